"""Loops are compiled by a helper and loaded by whoever runs them: no process computes other bits than another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from fedlu.embedding.compiling import SPINS, WIDE, _Helper, wide_vectors
from fedlu.embedding.distance_kernels import l1_distances

SUMS = """
import hashlib
import numpy as np
from fedlu.embedding import compiling, kernels, private_kernels

compiling.HELPER = HELPER
random = np.random.default_rng(0)
rows, others = (random.normal(size=(64, 256)).astype(np.float32) for _ in range(2))
own = private_kernels.scores_with_own(private_kernels.L1, rows, others, rows[:, :100].copy(), 8.0, True)
shares = kernels.probabilities(own, np.zeros(own.shape, dtype=np.bool_), 1.0)
expected = 8 - np.abs(rows.astype(np.float64) - others).sum(1)
assert np.allclose(own[:, 0], expected, atol=1e-3) and np.allclose(shares.sum(1), 1, atol=1e-5)
print(hashlib.sha256(own.tobytes() + shares.tobytes()).hexdigest(), compiling.compiled_just_now())
"""
"""In these two loops, code that was just compiled summed in another order than code from the cache."""


def run(cache: Path, helper: str = "fedlu.embedding.compiling") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    program = SUMS.replace("HELPER = HELPER", f"HELPER = {helper!r}")
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)


def test_the_first_process_computes_the_bits_of_all_later_ones(tmp_path: Path) -> None:
    first, later = (run(tmp_path).stdout.split() for _ in range(2))
    assert (first[1], later[1]) == ("2", "0")  # who came first had both compiled, who comes later loads them
    assert first[0] == later[0]


def test_without_a_helper_a_process_compiles_for_itself_and_says_so(tmp_path: Path) -> None:
    alone = run(tmp_path, helper="fedlu.no_such_helper")
    assert alone.stdout.split()[1] == "0"
    assert "no other process could compile" in alone.stderr
    assert run(tmp_path, helper="fedlu.no_such_helper").stderr == ""  # it is cached all the same


def test_the_helper_goes_with_whoever_asked() -> None:
    helper = subprocess.Popen(
        [sys.executable, "-m", "fedlu.embedding.compiling"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    answer, _ = helper.communicate(timeout=60)  # its input ends, as if the asker had been killed
    assert (answer, helper.returncode) == ("", 0)


def test_a_helper_that_was_idle_and_went_is_followed_by_another() -> None:
    asker = _Helper()
    first = asker._running()
    first.kill()
    first.wait()
    second = asker._running()
    assert second is not first
    assert second.poll() is None
    assert first.stdin is not None
    assert first.stdin.closed  # nothing of the first is left open
    asker.stop()
    assert second.poll() is not None


def test_threads_soon_sleep_while_they_wait_unless_the_user_says_how() -> None:
    program = "import os, fedlu.embedding.kernels; print(os.environ.get('GOMP_SPINCOUNT'))"
    plain = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    for said, expected in (({}, str(SPINS)), ({"OMP_WAIT_POLICY": "active"}, "None"), ({"GOMP_SPINCOUNT": "7"}, "7")):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env={**plain, **said}, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_wide_vectors_are_asked_for() -> None:
    @numba.njit
    def doubled(numbers: np.ndarray) -> None:
        wide_vectors()
        for place in range(len(numbers)):
            numbers[place] *= 2

    doubled(np.ones(4, dtype=np.float32))
    (text,) = doubled.inspect_llvm().values()
    assert WIDE in text


@pytest.mark.parametrize(("queries", "entities", "dimension"), [(33, 130, 256), (5, 7, 54)])
def test_distances_are_summed_in_the_order_that_is_written(
    queries: int, entities: int, dimension: int, random: np.random.Generator
) -> None:
    """To the bit, with whatever vectors the processor has: four columns at a time, then those that are left."""
    q, e = (random.normal(size=(number, dimension)).astype(np.float32) for number in (queries, entities))
    columns = [np.abs(q[:, None, k] - e[None, :, k]) for k in range(dimension)]
    total = np.zeros((queries, entities), dtype=np.float32)
    for k in range(0, dimension - 3, 4):
        a, b, c, d = columns[k : k + 4]
        total = (total + a) + ((b + c) + d)
    for k in range(dimension // 4 * 4, dimension):
        total = total + columns[k]
    np.testing.assert_array_equal(l1_distances(q, e), total)


def test_without_compiling_loops_are_plain_python() -> None:
    program = """if True:
        import numpy as np
        from fedlu.embedding.distance_kernels import l1_distances
        print(l1_distances(np.ones((1, 5), dtype=np.float32), np.zeros((2, 5), dtype=np.float32)).tolist())"""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[5.0, 5.0]]"
