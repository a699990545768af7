"""The walk-through of docs/federation.md, as it is written, but on one machine and at a free port."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedlu.graph import partition, read, save
from tests.flare.deployment import LONG, PATIENCE, free_port, wait_until

pytestmark = pytest.mark.slow
PAGE = Path(__file__).resolve().parents[2] / "docs" / "federation.md"


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").replace("fed.example.org", "localhost")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


@pytest.fixture
def desk(compiled: None, tmp_path: Path) -> Path:
    save(partition(read("nations"), clients=2, by="random", seed=1, forget=0.02), tmp_path / "data", {})
    for old, new in {"client-0": "north", "client-1": "south"}.items():
        (tmp_path / "data" / old).rename(tmp_path / new)
    (plan,) = blocks("toml")
    plan = plan.replace("8002", str(free_port())).replace('"0.0.0.0"', '"127.0.0.1"')
    (tmp_path / "federation.toml").write_text(plan)
    return tmp_path


def all_there(command: list[str], desk: Path) -> bool:
    said = subprocess.run(command, cwd=desk, capture_output=True, text=True, timeout=PATIENCE).stdout
    return said.count(": heard") == 2


@LONG
def test_two_hospitals_on_two_machines(desk: Path) -> None:
    lines = [words for line in "\n".join(blocks("sh")).splitlines() if (words := shlex.split(line, comments=True))]
    assert len(lines) >= 12
    said, parties = {}, []
    try:
        for words in lines:
            assert words[0] == "fedlu"
            command = [sys.executable, "-m", "fedlu", *words[1:]]
            if words[2] == "start":
                parties.append(
                    subprocess.Popen(command, cwd=desk, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                )
                continue
            if words[1:3] == ["federation", "status"]:
                wait_until(lambda command=command: all_there(command, desk), "the two sites")
            done = subprocess.run(command, cwd=desk, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
            said[" ".join(words[1:3])] = done.stdout
    finally:
        for party in parties:
            party.send_signal(signal.SIGTERM)
        codes = [party.wait(timeout=60) for party in parties]
    assert codes == [0, 0, 0]
    assert "north: heard" in said["federation status"]
    assert "first: test, after 6 rounds" in said["federation learn"]
    assert "first: valid" in said["federation evaluate"]
    assert "first: round 6 (done)" in said["site status"]
    assert "first: 0 jobs stopped" in said["federation stop"]
    assert "triples will be forgotten" in said["site forget"]
    assert "second: test, after" in said["federation forget"]
    assert (desk / "state-north" / "second" / "audit.json").is_file()
    assert not (desk / "state-south" / "second" / "audit.json").exists()
    assert "kits/east" in said["federation add-site"]
