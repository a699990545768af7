"""A federation on this machine for the tests: real processes, mTLS on loopback, free ports, folders of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from fedlu.federated.alignment import key_for_one_process
from fedlu.flare.provisioning import Person, Plan, Site, init
from fedlu.graph import Federation, save
from tests import same_bits

PATIENCE = float(os.environ.get("FEDLU_TEST_PATIENCE", "480"))
"""Seconds that a test waits for anything; a busy machine is slow."""

LONG = pytest.mark.skipif(
    not os.environ.get("FEDLU_LONG_TESTS"), reason="takes minutes of its own: `make test-deployment` runs it"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def wait_until(true: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


class Deployment:
    """A server and sites; everything that is started here is stopped here, by its process id."""

    def __init__(self, folder: Path, data: Federation, *, seed: int = 0, security: str = "mtls"):
        self.folder, self.port = folder, free_port()
        self.sites = [client.name for client in data.clients]
        save(data, folder / "data", {})
        plan = Plan(
            name="trial",
            address="localhost",
            port=self.port,
            listen="127.0.0.1",
            organisation="lab",
            sites=tuple(Site(name, f"org_{number}") for number, name in enumerate(self.sites)),
            people=(Person("lead@example.org", "lab"), Person("member@example.org", "org_0", "member")),
            security=security,
        )
        self.kits = init(plan, folder / "kits")
        self.key = folder / "alignment.key"
        self.key.write_text(key_for_one_process(seed).hex())  # that of the run in one process, to compare with
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.worlds: dict[str, dict[str, str]] = {}

    @property
    def lead(self) -> Path:
        return self.kits["lead@example.org"]

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def state(self, site: str) -> Path:
        return self.folder / "state" / site

    def start(self, *names: str, with_code: str = "") -> None:
        """Start the server and the sites, or those named; `with_code` is run at the start of each of their workers."""
        world = {**os.environ}
        if with_code:
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            guard = 'import sys\nif "nvflare.private.fed.app.client.worker_process" in sys.orig_argv:\n'
            code = textwrap.indent(textwrap.dedent(with_code), "    ")
            (folder / "sitecustomize.py").write_text(guard + code)
            world["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        for name in names or ("server", *self.sites):
            if name == "server":
                words = ["server", "start", self.kits["localhost"], "--runs", self.runs]
            else:
                data, state = self.folder / "data" / name, self.state(name)
                words = ["site", "start", self.kits[name], "--data", data, "--key", self.key, "--state", state]
            with (self.folder / f"{name}.out").open("ab") as out:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "fedlu", *map(str, words)],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=world,
                )

    def learn(self, run: str, *options: str) -> subprocess.Popen[bytes]:
        """The lead, as a process of its own."""
        words = ["federation", "learn", str(self.lead), "--run", run, *options]
        with (self.folder / f"{run}.out").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedlu", *words], stdout=out, stderr=subprocess.STDOUT, env={**os.environ}
            )
        self.processes[run] = process
        return process

    def events(self, run: str) -> list[dict[str, Any]]:
        """What the server wrote of a run."""
        return [json.loads(line) for line in (self.runs / run / "events.jsonl").read_text().splitlines()]

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(errors="replace")

    def finish(self, run: str) -> None:
        code = self.processes[run].wait(timeout=PATIENCE)
        assert code == 0, self.said(run)[-3000:]

    def worker(self, name: str) -> psutil.Process:
        """The process of a party's running job."""
        parent = psutil.Process(self.processes[name].pid)
        return wait_until(lambda: next(iter(parent.children()), None), f"a job at {name}")

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait(timeout=30)

    def wait_for_end(self, name: str) -> None:
        """Of a party that ends by itself."""
        self.processes[name].wait(timeout=PATIENCE)

    def round_of(self, site: str, run: str) -> int:
        path = self.state(site) / run / "events.jsonl"
        return path.read_text().count('"losses"') if path.is_file() else 0

    def wait_for_round(self, site: str, run: str, number: int) -> None:
        wait_until(lambda: self.round_of(site, run) >= number, f"round {number} at {site}")

    def stop(self) -> None:
        """Politely, then not; workers go with their parents."""
        known = [psutil.Process(each.pid) for each in self.processes.values() if each.poll() is None]
        family = [child for parent in known for child in parent.children(recursive=True)]
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)
        _, alive = psutil.wait_procs(family, timeout=5)
        for child in alive:
            child.kill()


@contextmanager
def deployed(folder: Path, data: Federation, **options: Any) -> Iterator[Deployment]:
    deployment = Deployment(folder, data, **options)
    try:
        yield deployment
    finally:
        deployment.stop()
        shutil.rmtree(folder / "kits" / "authority", ignore_errors=True)


def assert_same_bits(federation: Deployment, run: str, whole: Path) -> None:
    states = [federation.state(site) / run for site in federation.sites]
    same_bits.assert_same_bits(federation.runs / run, states, whole)
