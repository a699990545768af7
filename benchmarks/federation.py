"""What does an exchange between machines cost, against the same loop in one process?

Three sites that share 11,719 entities at dimension 256, so that a slice is 12 MB each way; few triples, so that it is
the exchange that is measured. Over mTLS on loopback, through a counter of bytes. Then 100 clients in one process. On a
busy machine, seconds tell of the others; processor time does not.

    python -m benchmarks.federation [--rounds 8]
"""

from __future__ import annotations

import os

# Three sites with a thread for each core would fight over them, each spinning while it waits; on machines of their own
# they do not. Set before Numba is loaded, for the one process as for the sites.
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import resource
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import psutil

import fedlu
from benchmarks.report import report
from fedlu.graph.federation import ClientGraph, Federation
from fedlu.graph.triples import index
from tests.flare.deployment import Deployment, deployed
from tests.flare.wiretap import Wiretap

ENTITIES, DIMENSION, SITES = 11_719, 256, 3
SETTINGS = {"dimension": DIMENSION, "negatives": 16, "evaluate_every": 99, "method": "fede", "batch_size": 2048}


def client(name: str, entities: int, first: int, seed: int, triples: int) -> ClientGraph:
    """A graph over the entities from `first` on, each mentioned at least once."""
    random = np.random.default_rng(seed)
    heads = np.concatenate([np.arange(entities), random.integers(entities, size=max(triples - entities, 0))])
    tails = (heads + 1 + random.integers(entities - 1, size=len(heads))) % entities
    names = [f"e{first + number:06}" for number in range(entities)]
    frames = [
        pl.DataFrame(
            {
                "head": [names[h] for h in heads[part]],
                "relation": [f"r{r}" for r in random.integers(5, size=len(heads[part]))],
                "tail": [names[t] for t in tails[part]],
            }
        )
        for part in (slice(None), slice(0, 5), slice(5, 10))
    ]
    vocabulary, (train, valid, test) = index(frames)
    keys = [vocabulary.keys(split) for split in (train, valid, test)]
    train = train[~np.isin(keys[0], np.concatenate(keys[1:]))]
    return ClientGraph(name, vocabulary, train, valid, test, np.empty((0, 3), dtype=np.int32))


def row(what: str, measured: str, aim: str) -> dict[str, object]:
    return {"what": what, "measured": measured, "aim": aim}


def events_of(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


class Peak:
    """The largest memory of the server's processes while they work."""

    def __init__(self, deployment: Deployment):
        self.job = self.parent = 0
        self.deployment, self.done = deployment, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.done.wait(0.1):
            try:
                parent = psutil.Process(self.deployment.processes["server"].pid)
                self.parent = max(self.parent, parent.memory_info().rss)
                self.job = max([self.job, *(child.memory_info().rss for child in parent.children())])
            except psutil.Error:
                continue


def processor_time(deployment: Deployment) -> float:
    """Seconds, of all parties and their jobs so far."""
    found = 0.0
    for name in ("server", *deployment.sites):
        parent = psutil.Process(deployment.processes[name].pid)
        for process in (parent, *parent.children(recursive=True)):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def in_one_process(data: Federation, folder: Path, rounds: int) -> dict[str, float]:
    spent: list[float] = []
    fedlu.learn(data, out=folder, rounds=rounds, watch=lambda *_: spent.append(time.process_time()), **SETTINGS)
    found = events_of(folder)
    return {
        "seconds per round": float(np.median([event["seconds"] for event in found[1 : rounds - 1]])),
        "processor seconds per round": (spent[rounds - 2] - spent[0]) / (rounds - 2),
    }


def between_machines(data: Federation, folder: Path, rounds: int) -> dict[str, float]:
    with deployed(folder, data) as deployment, Wiretap(deployment.port, keep=False) as line:
        for site in deployment.sites:
            path = deployment.kits[site] / "startup" / "fed_client.json"
            path.write_text(path.read_text().replace(f"localhost:{deployment.port}", f"localhost:{line.own_port}"))
        deployment.start()
        peak, counted, spent = Peak(deployment), [], []
        words = [word for name, value in SETTINGS.items() if name != "method" for word in ("--set", f"{name}={value}")]
        deployment.learn("bench", "--method", "fede", "--set", f"rounds={rounds}", *words)
        path = deployment.runs / "bench" / "events.jsonl"
        while deployment.processes["bench"].poll() is None:
            seen = path.read_text().count("\n") if path.is_file() else 0
            while len(counted) < min(seen, rounds - 1):
                counted.append(line.count)
                spent.append(processor_time(deployment))
            time.sleep(0.01)
        deployment.finish("bench")
        peak.done.set()
        found = events_of(deployment.runs / "bench")
    middle = slice(1, rounds - 1)  # the first has the sites warm up, the last is measured
    payload = sum(sum(event["bytes_up"].values()) + sum(event["bytes_down"].values()) for event in found[middle])
    return {
        "seconds per round": float(np.median([event["seconds"] for event in found[middle]])),
        "processor seconds per round": (spent[rounds - 2] - spent[0]) / (rounds - 2),
        "payload bytes per round": payload / (rounds - 2),
        "bytes on the wire per round": (counted[rounds - 2] - counted[0]) / (rounds - 2),
        "server job peak MB": peak.job / 1e6,
        "server peak MB": peak.parent / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=8)
    rounds = parser.parse_args().rounds
    data = Federation("bench", tuple(client(f"site-{n}", ENTITIES, 0, n, 12_000) for n in range(SITES)))
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        alone = in_one_process(data, Path(scratch) / "run", rounds)
        found = between_machines(data, Path(scratch), rounds)
    table_mb = ENTITIES * DIMENSION * 4 / 1e6
    extra = found["bytes on the wire per round"] / found["payload bytes per round"] - 1
    rows += [
        row("slice", f"{table_mb:.1f} MB", ""),
        row("one process, a round", f"{alone['seconds per round']:.2f} s", ""),
        row("FLARE over mTLS, a round", f"{found['seconds per round']:.2f} s", ""),
        row("overhead of a round", f"{found['seconds per round'] - alone['seconds per round']:.2f} s", "<= 1.5 s"),
        row("processor time of a round, one process", f"{alone['processor seconds per round']:.2f} s", ""),
        row("processor time of a round, all parties", f"{found['processor seconds per round']:.2f} s", ""),
        row("load average", f"{os.getloadavg()[1]:.1f}", ""),
        row("bytes beyond the rows", f"{100 * extra:.2f} %", "<= 2 %"),
        row("server's job, peak memory", f"{found['server job peak MB']:.0f} MB", f"<= {3 * table_mb + 500:.0f} MB"),
        row("server's parent, peak memory", f"{found['server peak MB']:.0f} MB", ""),
    ]
    many = Federation("many", tuple(client(f"client-{n:03}", 400, 200 * n, n, 1_000) for n in range(100)))
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        options = {**SETTINGS, "method": "fedlu", "dimension": 64, "fraction": 0.1, "rounds": 10, "warm_rounds": 2}
        metrics = fedlu.learn(many, out=Path(scratch) / "run", **options)
        seconds = time.perf_counter() - start
    rows.append(row("100 clients, a tenth in a round", f"{seconds:.1f} s for {metrics['rounds']} rounds", "completes"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    rows.append(row("this process, peak memory", f"{memory:.0f} MB", ""))
    report("federation", rows, rounds=rounds, **{name.replace(" ", "_"): value for name, value in found.items()})


if __name__ == "__main__":
    main()
