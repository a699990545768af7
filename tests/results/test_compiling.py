"""A process that compiles the loops computes the same bits as one that loads them from Numba's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flare.deployment import LONG

TRAINING = """
import hashlib, sys
from pathlib import Path
import fedlu
from fedlu.graph import partition, read

data, out = partition(read("nations"), clients=2, by="random", seed=1), Path(sys.argv[1])
fedlu.learn(data, out=out, model=sys.argv[2], dimension=256, negatives=64, warm_rounds=1, rounds=3)
for file in sorted(out.rglob("*.safetensors")):
    print(file.relative_to(out), hashlib.sha256(file.read_bytes()).hexdigest())
"""


@LONG
@pytest.mark.slow
@pytest.mark.parametrize("model", ["TransE", "RotatE"])
def test_compiling_changes_no_bit(model: str, tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def train(name: str) -> str:
        command = [sys.executable, "-c", TRAINING, str(tmp_path / name), model]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    compiling, loading = train("compiling"), train("loading")
    assert "safetensors" in compiling
    assert compiling == loading
