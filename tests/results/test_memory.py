"""What a run is estimated to need, against what it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedlu.config import resolve
from fedlu.graph import ClientGraph, Federation, Vocabulary, save
from fedlu.results.memory import estimate

ENTITIES = 20_000
ROOMY = {"compress": "int8", "remember": 0.5}
SETTINGS = {"rounds": 3, "evaluate_every": 2, "epochs": 0.1, "negatives": 16, **ROOMY}
SCRIPT = """
import json, sys
import fedlu
data, run, settings = sys.argv[1:]
fedlu.learn(data, out=run, **json.loads(settings))
for line in open("/proc/self/status"):  # getrusage would count what the parent had
    if line.startswith("VmHWM:"):
        print(1024 * int(line.split()[1]))
"""


def ring(shift: int) -> ClientGraph:
    """Every entity and the one so many places further on."""
    heads = np.arange(ENTITIES)
    triples = np.stack([heads, heads % 3, (heads + shift) % ENTITIES], axis=1).astype(np.int32)
    labels = Vocabulary(tuple(f"e{number:05}" for number in heads), ("a", "b", "c"))
    return ClientGraph(f"client-{shift}", labels, triples[40:], triples[:20], triples[20:40], triples[:0])


@pytest.mark.slow
def test_a_run_takes_about_what_was_estimated(tmp_path: Path) -> None:
    """By what it takes more at a large dimension than at a small one, so that the program itself does not count."""
    data = Federation("ring", tuple(ring(shift) for shift in (1, 2, 3)))
    save(data, tmp_path / "ring", {})
    taken, estimated = [], []
    for dimension in (8, 512):
        settings = {**SETTINGS, "dimension": dimension}
        run = [str(tmp_path / "ring"), str(tmp_path / f"run-{dimension}"), json.dumps(settings)]
        done = subprocess.run([sys.executable, "-c", SCRIPT, *run], capture_output=True, text=True, check=True)
        taken.append(int(done.stdout))
        estimated.append(estimate(data, resolve("fast", method="fedlu", model="TransE", overrides=settings)))
    assert 0.8 < (taken[1] - taken[0]) / (estimated[1] - estimated[0]) < 1.15
