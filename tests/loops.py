"""`python -m tests.loops`: have Numba compile the loops once, so that not every test process does it on its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import fedlu
from fedlu.graph import partition, read

if __name__ == "__main__":
    data = partition(read("nations"), clients=2, by="random", seed=1)
    with tempfile.TemporaryDirectory() as folder:
        for model in ("TransE", "RotatE", "ComplEx"):
            out = Path(folder) / model
            fedlu.learn(data, out=out, model=model, dimension=8, negatives=16, warm_rounds=1, rounds=2)
