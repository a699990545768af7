"""A real federation: processes, certificates and jobs. It learns the same bits as one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fedlu.graph import Federation
from tests.flare.conftest import in_one_process, options
from tests.flare.deployment import LONG, PATIENCE, Deployment, assert_same_bits, wait_until

pytestmark = pytest.mark.slow


def fedlu_says(*words: str | Path) -> str:
    done = subprocess.run([sys.executable, "-m", "fedlu", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def first(federation: Deployment) -> str:
    federation.learn("first", *options(rounds=6))
    federation.finish("first")
    return "first"


def test_a_federation_learns_the_bits_of_one_process(
    federation: Deployment, first: str, data: Federation, tmp_path: Path
) -> None:
    assert_same_bits(federation, first, in_one_process(data, tmp_path / "whole", rounds=6))
    assert "first: test, after 6 rounds" in federation.said(first)


def test_what_each_party_keeps(federation: Deployment, first: str) -> None:
    """The server has a table, means and tokens; labels are in the sites' own data alone, and the key nowhere else."""
    run = federation.runs / first
    names = {"checkpoints", "config.json", "events.jsonl", "metrics.json", "state.json", "tokens.safetensors"}
    assert {path.name for path in run.iterdir()} == names
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["global"]["clients"] == {}
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["round"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert all(set(event["losses"]) == {"all"} for event in events)
    key = federation.key.read_bytes().strip()
    for place in (federation.runs, federation.kits["localhost"]):
        for path in place.rglob("*"):
            text = path.read_bytes() if path.is_file() else b""
            assert key not in text
            assert bytes.fromhex(key.decode()) not in text
            assert b"\tUSA\n" not in text
    own = json.loads((federation.state("client-1") / first / "metrics.json").read_text())
    assert 0 < own["test"]["blend"]["mrr"] < 1


def test_a_finished_run_is_evaluated_and_shown(federation: Deployment, first: str) -> None:
    metrics = json.loads((federation.runs / first / "metrics.json").read_text())
    found = json.loads(fedlu_says("federation", "evaluate", federation.lead, "--run", first, "--json"))
    assert found["blend"]["weighted"] == metrics["test"]["blend"]["weighted"]
    status = json.loads(fedlu_says("federation", "status", federation.lead, "--json"))
    assert set(status["sites"]) == set(federation.sites)
    assert all(seconds is not None and seconds < 30 for seconds in status["sites"].values())
    assert {job["name"] for job in status["jobs"]} == {"first.learn", "first.evaluate"}
    assert "runs as process" in fedlu_says("server", "status", federation.kits["localhost"], "--runs", federation.runs)
    said = fedlu_says("site", "status", federation.kits["client-0"], "--state", federation.state("client-0"))
    assert "client-0: runs as process" in said
    assert "first: round 6 (done)" in said


def test_the_server_listens_where_it_was_told(federation: Deployment, first: str) -> None:
    server = psutil.Process(federation.processes["server"].pid)
    listening = [each.laddr for each in server.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert federation.port in {address.port for address in listening}
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


@LONG
def test_a_stopped_run_is_taken_up_again(federation: Deployment, first: str) -> None:
    process = federation.learn("stopped", *options(rounds=24, epochs=60))
    federation.wait_for_round("client-0", "stopped", 2)
    process.kill()  # the lead goes home; the job goes on without
    process.wait()
    assert "stopped: 1 job stopped" in fedlu_says("federation", "stop", federation.lead, "--run", "stopped")
    wait_until(lambda: not psutil.Process(federation.processes["server"].pid).children(), "the job to end")
    federation.learn("stopped", *options(rounds=24, epochs=60))
    federation.finish("stopped")
    assert json.loads((federation.runs / "stopped" / "metrics.json").read_text())["rounds"] == 24


def test_a_lead_gets_a_refusal_as_one_line(federation: Deployment, first: str) -> None:
    process = federation.learn("first", *options(rounds=7))
    assert process.wait(timeout=PATIENCE) == 2
    assert "other settings: rounds was 6" in federation.said("first")


def test_parties_stop_cleanly(federation: Deployment, first: str) -> None:
    """SIGTERM: exit code 0, soon, and no process of theirs is left."""
    family = [psutil.Process(federation.processes[name].pid) for name in ("server", *federation.sites)]
    children = [child for parent in family for child in parent.children(recursive=True)]
    for name in ("server", *federation.sites):
        federation.processes[name].terminate()
    for name in ("server", *federation.sites):
        assert federation.processes[name].wait(timeout=30) == 0
    assert psutil.wait_procs(children, timeout=10)[1] == []
    said = fedlu_says("site", "status", federation.kits["client-0"], "--state", federation.state("client-0"))
    assert "client-0: does not run" in said
    federation.start()  # for the tests to come
