"""A run whose clients were apart, against the same run in one process: equal to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def assert_same_bits(run: Path, states: list[Path], whole: Path) -> None:
    """The server's arrays in `run`; each client's tables and what it kept as best, in `states` in the order of names;
    and the means of their metrics."""
    (mine,), (theirs,) = ((each / "checkpoints").iterdir() for each in (run, whole))
    found, expected = (load_file(each / "server.safetensors") for each in (mine, theirs))
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    for number, state in enumerate(states):
        expected = load_file(theirs / f"client-{number:04}.safetensors")
        found = _arrays_of(state)
        assert found.keys() == expected.keys()
        for name in found.keys() - {"avatar.values"}:  # in one process it holds the average by now
            np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{state} {name}")
    metrics = [json.loads((each / "metrics.json").read_text()) for each in (run, whole)]
    for split in ("valid", "test"):
        assert metrics[0][split].keys() == metrics[1][split].keys()
        for view in metrics[0][split]:
            assert metrics[0][split][view]["weighted"] == metrics[1][split][view]["weighted"]
            assert metrics[0][split][view]["clients"] == {}


def _arrays_of(state: Path) -> dict[str, np.ndarray]:
    """What a site has on disk, under the names of a checkpoint."""
    record = json.loads((state / "rounds.json").read_text())["records"][-1]
    arrays = load_file(state / f"round-{record['round']:06}.safetensors")
    found = {name: array for name, array in arrays.items() if not name.startswith("answer.")}
    for view, kept in record["best"].items():
        arrays = load_file(state / f"best-{view}-{kept:06}.safetensors")
        found |= {f"best.{view}.{name}": array for name, array in arrays.items()}
    return found
