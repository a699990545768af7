"""The processes of a party: FLARE's server or client in this process, in the foreground, until it is told to stop.

What a job needs to know of its host reaches the job's process by the environment, never by the job.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlu.errors import InputError
from fedlu.flare.keys import read_key

RUNS, DATA, KEY, STATE = "FEDLU_RUNS", "FEDLU_DATA", "FEDLU_KEY", "FEDLU_STATE"
RUNNING = "running.json"
HEARTBEAT_SECONDS = 2
GIVE_BACK = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}
"""To glibc, of the server's jobs: what is freed goes back to the system, rather than to one of FLARE's many threads."""


@dataclass(frozen=True)
class SiteFiles:
    """What a site lets its jobs use."""

    data: Path
    key: Path
    state: Path

    @classmethod
    def of_environment(cls) -> SiteFiles:
        try:
            return cls(Path(os.environ[DATA]), Path(os.environ[KEY]), Path(os.environ[STATE]))
        except KeyError as missing:
            raise InputError(f"{missing} is not set", remedy="start the site with `fedlu site start`") from None

    def read_key(self) -> bytes:
        return read_key(self.key)


def server_folder() -> Path:
    if RUNS not in os.environ:
        raise InputError(f"{RUNS} is not set", remedy="start the server with `fedlu server start`")
    return Path(os.environ[RUNS])


def die_with_parent() -> None:
    """A job's process that lost its parent cannot be reached any more, but holds the state: it ends itself."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


def kit_of(folder: Path, role: str) -> dict[str, Any]:
    """What `fedlu federation init` wrote into a kit; refused if it is another party's."""
    path = folder / "fedlu.json"
    try:
        kit: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError("not a kit", where=folder, remedy="make kits with `fedlu federation init`") from None
    if kit.get("role") != role:
        what = f"is the kit of a {kit.get('role')}, not of a {role}"
        raise InputError(what, where=folder, remedy="give the right one")
    return kit


def run_server(folder: Path, runs: Path) -> int:
    kit = kit_of(folder, "server")
    os.environ[RUNS] = str(runs.resolve())
    runs.mkdir(parents=True, exist_ok=True)
    from nvflare.private.fed.app.server import server_train

    os.environ.update({name: os.environ.get(name, value) for name, value in GIVE_BACK.items()})
    _keep_jobs_in(folder.resolve())
    _listen_where_told(kit["listen"])
    arguments = Namespace(
        workspace=str(folder.resolve()),
        fed_server="fed_server.json",
        set=["secure_train=true", f"org={kit['org']}", "config_folder=config"],
    )
    return _run(server_train.main, arguments, folder)


def run_site(folder: Path, files: SiteFiles) -> int:
    kit = kit_of(folder, "site")
    files.read_key()
    if not files.data.is_dir():
        raise InputError("no such folder", where=files.data, remedy="give the folder of train, valid and test")
    files.state.mkdir(parents=True, exist_ok=True)
    for name, path in {DATA: files.data, KEY: files.key, STATE: files.state}.items():
        os.environ[name] = str(path.resolve())
    os.environ["NVFLARE_JOB_HEARTBEAT_INTERVAL"] = str(HEARTBEAT_SECONDS)
    from nvflare.private.fed.app.client import client_train

    options = ["secure_train=true", f"uid={kit['name']}", f"org={kit['org']}", "config_folder=config"]
    arguments = Namespace(
        workspace=str(folder.resolve()),
        fed_client="fed_client.json",
        set=[*options, f"heart_beat_interval={HEARTBEAT_SECONDS}"],
        local_rank=0,
    )
    return _run(client_train.main, arguments, folder)


def _keep_jobs_in(folder: Path) -> None:
    """FLARE's default is one shared folder for all servers of a machine, and it wants whole paths."""
    path = folder / "local" / "resources.json"
    resources = json.loads(path.read_text(encoding="utf-8"))
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(folder / "snapshots")
    for each in resources["components"]:
        if each["id"] == "job_manager":
            each["args"]["uri_root"] = str(folder / "jobs")
    path.write_text(json.dumps(resources, indent=2) + "\n", encoding="utf-8")


def _listen_where_told(address: str) -> None:
    """FLARE binds to every address unless its own is a loopback; here the kit says which."""
    from nvflare.private.fed.server import fed_server

    fed_server._is_loopback_host = lambda host: True
    fed_server._normalize_loopback_host = lambda host: address


def _run(main: Any, arguments: Namespace, folder: Path) -> int:
    """Until it ends or SIGTERM comes; then nothing of it is left: neither threads nor the processes of its jobs."""
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    def stop(*_: Any) -> None:
        threading.Thread(target=_end, args=(0,), daemon=True).start()

    with _marked(folder.resolve()):
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        code = MainProcessMonitor.run(main_func=main, run_dir=arguments.workspace, args=arguments)
        _end(code if isinstance(code, int) else 0)
    return 0


def _end(code: int) -> None:
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        child.terminate()
    _, alive = psutil.wait_procs(children, timeout=3)
    for child in alive:
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def _marked(folder: Path) -> Iterator[None]:
    """One process for a kit; `status` reads who it is. The lock goes with the process, however it ends."""
    with (folder / RUNNING).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError("is running already", where=folder, remedy="stop it first") from None
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}))
        file.flush()
        yield


def who_runs(folder: Path) -> dict[str, Any] | None:
    """The process of a kit, or None if none is running."""
    path = folder / RUNNING
    if not path.is_file():
        return None
    with path.open("r", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found: dict[str, Any] = json.loads(file.read() or "{}")
            return found
    return None
