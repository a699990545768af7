"""How long does a prediction of `fedlu explore` take, over a real socket, while fifty people ask?

A server is started on a run and asked questions made of its test triples, none twice: by people who ask once a second
each, and by as many connections that ask again as soon as they are answered, which shows the limit. A prediction gives
the ten best by every view. The answers that the server keeps are of no use here, since all questions differ.

    python -m benchmarks.explore RUN [--people 50] [--seconds 20]
"""

from __future__ import annotations

import argparse
import heapq
import os
import select
import signal
import socket
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


def load(port: int, asked: list[bytes], people: int, seconds: float, pause: float) -> tuple[list[float], float]:
    """Milliseconds that each question took, to the whole of its answer; and seconds from the first to the last.

    Every person has a connection, and waits `pause` seconds between two questions. One plain loop: what is busy here
    is not free for the server.
    """
    took: list[float] = []
    left, random, poll = iter(asked), np.random.default_rng(1), select.epoll()
    lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(people)]
    by_number, begun, parts = {each.fileno(): each for each in lines}, dict[int, float](), dict[int, bytes]()
    due = [
        (time.perf_counter() + delay, each.fileno())
        for each, delay in zip(lines, random.uniform(0, pause, people), strict=True)
    ]
    heapq.heapify(due)
    first = last = time.perf_counter()
    end = first + seconds
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    while due or begun:
        now = time.perf_counter()
        while due and due[0][0] <= now:
            number = heapq.heappop(due)[1]
            question = next(left, None) if now < end else None
            if question is not None:
                begun[number], parts[number] = time.perf_counter(), b""
                by_number[number].sendall(question)
        if not begun and due:
            time.sleep(max(0.0, due[0][0] - time.perf_counter()))
            continue
        for number, _ in poll.poll(max(0.0, due[0][0] - now) if due else 1.0):
            got = by_number[number].recv(1 << 16)
            assert got, "the server hung up"
            parts[number] += got
            if _is_whole(parts[number]):
                last = time.perf_counter()
                took.append(1000 * (last - begun.pop(number)))
                heapq.heappush(due, (last + pause, number))
    for each in lines:
        each.close()
    return took, last - first


def _is_whole(answer: bytes) -> bool:
    head, gap, body = answer.partition(b"\r\n\r\n")
    if not gap:
        return False
    assert head.startswith(b"HTTP/1.1 200"), head
    return len(body) >= int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])


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
        load(port, asked[:200], 2, 60, 0)  # compiles, and fills the caches
        rows: list[dict[str, object]] = []
        at = 200
        for name, people, pause in (
            ("one person, again and again", 1, 0.0),
            (f"{options.people} people, once a second each", options.people, 1.0),
            (f"{options.people} connections, again and again", options.people, 0.0),
        ):
            before = _busy(server.pid)
            found, wall = load(port, asked[at:], people, options.seconds, pause)
            took = np.array(found)
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
