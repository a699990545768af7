"""An explorer in this process, for questions; and one of its own, with a port, for browsers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from fedlu.explorer.api import Explorer, app_of
from fedlu.results.prediction import load


@pytest.fixture
def asking(hostile_run: Path) -> Iterator[TestClient]:
    """A client of the API over a run whose names are hostile."""
    app = app_of(Explorer(load(hostile_run)))
    with TestClient(app, base_url="http://127.0.0.1:8237") as client:  # type: ignore[arg-type]
        yield client


@contextmanager
def exploring(run: Path, *options: str) -> Iterator[str]:
    """A server on a free port, its address; stopped by its own process id."""
    command = [sys.executable, "-m", "fedlu", "explore", str(run), "--port", "0", "--no-browser", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        line = server.stdout.readline()  # it is listening once it says where
        assert line.startswith("exploring"), server.communicate(timeout=60)[1]
        yield line.split(" at ")[1].split(" ")[0]
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()
