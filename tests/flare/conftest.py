"""One small federation for the tests of a deployment, and what it learns in one process, to compare with."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedlu.graph import Federation, partition, read, save
from tests.flare.deployment import Deployment, deployed

QUICK: dict[str, Any] = {"dimension": 8, "evaluate_every": 3, "warm_rounds": 2, "negatives": 16, "patience": 99}


def options(**changes: Any) -> list[str]:
    pairs = {**QUICK, **changes}
    return [word for name, value in pairs.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="session")
def data() -> Federation:
    return partition(read("nations"), clients=3, by="random", seed=1)


def in_one_process(data: Federation, folder: Path, **changes: Any) -> Path:
    """In a process of its own, as the sites are."""
    source = folder.with_name(f"{folder.name}-data") / data.name
    save(data, source, {})
    settings = {**QUICK, **changes}
    program = "import fedlu, json, sys; fedlu.learn(sys.argv[1], out=sys.argv[2], **json.loads(sys.argv[3]))"
    command = [sys.executable, "-c", program, str(source), str(folder), json.dumps(settings)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def compiled(data: Federation, tmp_path_factory: pytest.TempPathFactory) -> None:
    """In a fresh clone, the loops are compiled once, here, and not by all sites at the same time."""
    in_one_process(data, tmp_path_factory.mktemp("compiled") / "run", rounds=3)


@pytest.fixture(scope="module")
def federation(data: Federation, compiled: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server, three sites and a lead, over mTLS; all of them processes of their own; who kills one restarts it."""
    with deployed(tmp_path_factory.mktemp("deployment"), data) as deployment:
        deployment.start()
        yield deployment
