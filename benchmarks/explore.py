"""How long does a prediction of `fedlu explore` take, over a real socket, while fifty people ask?

A server is started on a run and asked questions made of its test triples, none twice: by people who ask once a second
each, and by as many connections that ask again as soon as they are answered, which shows the limit. A prediction gives
the ten best by every view. The answers that the server keeps are of no use here, since all questions differ.

    python -m benchmarks.explore RUN [--people 50] [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from benchmarks.report import report
from fedlu.results.runs import data_of

GOAL = 20.0
"""Milliseconds that 95 of 100 predictions may take."""


def questions(run: Path) -> list[bytes]:
    """Requests for both ends of the test triples of every client, each client by its share, in random order."""
    found = []
    for client in data_of(run).clients:
        for head, relation, tail in client.vocabulary.labels(client.test):
            for end in ({"head": head}, {"tail": tail}):
                query = urlencode({"client": client.name, "relation": relation, **end})
                found.append(f"GET /api/predict?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    distinct = list(dict.fromkeys(found))
    return [distinct[place] for place in np.random.default_rng(0).permutation(len(distinct))]


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: bytes) -> float:
    """Milliseconds from the question to the whole of the answer."""
    start = time.perf_counter()
    writer.write(question)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    return 1000 * (time.perf_counter() - start)


async def load(port: int, asked: list[bytes], people: int, seconds: float, pause: float) -> list[float]:
    """What each question took; every person has a connection, and waits `pause` seconds between two questions."""
    end, took, left = time.perf_counter() + seconds, [], iter(asked)
    random = np.random.default_rng(1)
    starts = random.uniform(0, pause, size=people).tolist()

    async def person(start: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(start)
        while time.perf_counter() < end:
            question = next(left, None)
            if question is None:
                break
            took.append(await ask(reader, writer, question))
            await asyncio.sleep(pause)
        writer.close()

    await asyncio.gather(*(person(start) for start in starts))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    asked = questions(options.run)
    command = [sys.executable, "-m", "fedlu", "explore", str(options.run), "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().split("127.0.0.1:")[1].split("/")[0])
        asyncio.run(load(port, asked[:200], 2, 60, 0))  # compiles, and fills the caches
        rows: list[dict[str, object]] = []
        at = 200
        for name, people, pause in (
            ("one person, again and again", 1, 0.0),
            (f"{options.people} people, once a second each", options.people, 1.0),
            (f"{options.people} connections, again and again", options.people, 0.0),
        ):
            before = _busy(server.pid)
            start = time.perf_counter()
            took = np.array(asyncio.run(load(port, asked[at:], people, options.seconds, pause)))
            wall = time.perf_counter() - start
            at += len(took)
            p50, p95, p99 = np.percentile(took, [50, 95, 99]).tolist()
            rows.append(
                {"load": name, "questions": len(took), "per second": len(took) / wall, "p50 ms": p50, "p95 ms": p95}
                | {"p99 ms": p99, "server's processor ms each": 1000 * (_busy(server.pid) - before) / len(took)}
            )
        report("explore", rows, run=options.run.name, goal=f"p95 <= {GOAL:.0f} ms", other_load=os.getloadavg()[0])
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)


def _busy(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
