"""An explorer in this process, for questions; and one of its own, with a port, for browsers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedlu.explorer.api import Explorer, app_of
from fedlu.explorer.safety import Guard
from fedlu.results.prediction import load


class Asking:
    """A client of the API in this process, without a socket."""

    def __init__(self, app: Guard, address: str = "http://127.0.0.1:8237") -> None:
        self.app, self.address = app, address

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            way = httpx.ASGITransport(app=self.app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=way, base_url=self.address) as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


@pytest.fixture
def asking(hostile_run: Path) -> Iterator[Asking]:
    """The API over a run whose names are hostile."""
    explorer = Explorer(load(hostile_run))
    yield Asking(app_of(explorer))
    explorer.batcher.close()


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
    assert server.returncode == 0  # Ctrl-C is the way to end it
