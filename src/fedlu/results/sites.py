"""A client whose state survives: on disk after every round, so that any of its processes can go on where another died.

    config.json                      settings, fingerprint of the data, version
    rounds.json                      the last rounds it trained: what was asked, the losses; replaced in one step
    round-000007.safetensors         its tables after a round
    best-local-000005.safetensors    the best of a view, as it was kept after a round
    events.jsonl                     its own losses and metrics, which nobody else sees
    metrics.json                     its own, when the run is done

Requests are tagged with their round. One that was answered gets the same answer again; one that has to be done again
starts from the state before it. So a server that fell back by a round finds every site where it needs it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

import fedlu
from fedlu.config import Settings
from fedlu.embedding.kernels import Ids
from fedlu.errors import InputError
from fedlu.federated.client import Client
from fedlu.federated.compression import unpack
from fedlu.federated.keepsakes import under
from fedlu.federated.messages import (
    Keep,
    Measure,
    Measured,
    MessageError,
    Packed,
    Registration,
    Rows,
    Train,
    Trained,
    Welcome,
)
from fedlu.graph.federation import ClientGraph, Federation
from fedlu.results.files import read_json, save_arrays, write_json
from fedlu.results.runs import ledger_of, open_folder, sampled

Arrays: TypeAlias = dict[str, Any]

KEPT_ROUNDS = 2
"""How many rounds a site can be asked for again: the server saves after each, so it falls back by one at the most."""


@dataclass
class Record:
    """A round that this site has trained."""

    round: int
    request: str
    """What was asked, as a digest."""
    losses: dict[str, float]
    counters: dict[str, int]
    events_bytes: int
    best: dict[str, int] = field(default_factory=dict)  # view -> the round it was kept in


class Site:
    """Answers as a `Client` does, and can be killed at any moment."""

    def __init__(self, graph: ClientGraph, settings: Settings, folder: Path):
        graph = as_learned(graph, folder)
        config = {
            "settings": asdict(settings),
            "fingerprint": Federation(graph.name, (graph,)).fingerprint,
            "fedlu": fedlu.__version__,
        }
        open_folder(folder, config, resume=True)
        self.folder, self.name, self.settings = folder, graph.name, settings
        self._new_client: Callable[[], Client] = lambda: client_of(graph, settings)
        self.shared: Ids = np.empty(0, dtype=np.int64)
        self.records: list[Record] = []
        self.forgotten_up_to = 0
        """Rounds up to this one cannot be asked for again."""
        self.answer: Packed | None = None
        """What it said in its last round, if that cannot be read off its tables."""
        self.measured = 0
        """The round whose global rows the avatar holds."""
        self.unsaved = False
        """Whether the client has moved on from what is on disk."""
        if (folder / "rounds.json").is_file():
            state = read_json(folder / "rounds.json")
            self.records = [Record(**record) for record in state["records"]]
            self.forgotten_up_to = state["forgotten_up_to"]
        self._restore()

    # --- what a server may ask

    def register(self, key: bytes) -> Registration:
        return self.client.register(key)

    def welcome(self, message: Welcome) -> None:
        if len(message.shared) and message.shared[-1] >= len(self.client.graph.vocabulary.entities):
            raise MessageError("a place that this site has not", where="server")
        self.shared = message.shared
        self._restore()  # what it owes to the rows that it shares is known again now that these are

    def train(self, message: Train) -> Trained:
        unpack(message.rows, self.settings.compress, (len(self.client.shared), self.client.width), "server")
        request = _digest(message.rows)
        last = self.records[-1] if self.records else None
        if last is not None and last.round == message.round and last.request == request:
            self._restore()
            rows = self.answer or self.client.avatar.values[self.client.shared]
            return Trained(self.name, message.round, rows, last.losses)
        self._fall_back_before(message.round)
        self.unsaved = True
        reply = self.client.train(message)
        self.answer = reply.rows if isinstance(reply.rows, Packed) else None
        self._save(message.round, request, reply.losses)
        return reply

    def measure(self, message: Measure) -> Measured:
        if message.split not in self.client.exams[0].splits:
            raise MessageError(f"no split {message.split[:40]!r}", where="server")
        if message.rows is None and not self.client.best:
            raise MessageError("nothing was kept here that could be measured", where=self.name)
        reply = self.client.measure(message)
        self.measured = message.round if message.rows is not None else self.measured
        self._tell({"round": message.round, "split": message.split, "metrics": reply.metrics[self.name]})
        if message.rows is None:
            path = self.folder / "metrics.json"
            found = read_json(path) if path.is_file() else {}
            write_json(path, {**found, message.split: reply.metrics[self.name]})
        return reply

    def keep(self, message: Keep) -> None:
        if self.measured != message.round:
            raise MessageError(f"asked to keep round {message.round}, measured {self.measured}", where="server")
        self.client.keep(message)
        if not self.records:  # it never was among the clients of a round
            self._save(0, "", {})
        self._save_best(message)

    def adopt(self, client: Client, number: int) -> None:
        """Begin, and be done, with a client that was made elsewhere."""
        self.client = client
        self._save(number, "", {})
        self._save_best(Keep(number, tuple(client.best)))

    # --- what is on disk

    def _save_best(self, message: Keep) -> None:
        last = self.records[-1]
        arrays, _ = self.client.state()
        for view in message.views:
            mine = under(f"best.{view}.", arrays)
            self._write(mine, self._best_file(view, message.round))
            last.best[view] = message.round
        self._write_records()

    def _save(self, number: int, request: str, losses: dict[str, float]) -> None:
        arrays, counters = self.client.state()
        best = self.records[-1].best if self.records else {}
        tables: Arrays = {name: array for name, array in arrays.items() if not name.startswith("best.")}
        if self.answer is not None:
            tables |= {"answer.numbers": self.answer.numbers, "answer.steps": self.answer.steps}
        self._write(tables, self._tables_file(number))
        size = self._tell({"round": number, "losses": losses})
        self.records.append(Record(number, request, losses, counters, size, dict(best)))
        while len(self.records) > KEPT_ROUNDS:
            self.forgotten_up_to = self.records.pop(0).round
        self._write_records()
        self.unsaved = False

    def _write_records(self) -> None:
        state = {"records": [asdict(record) for record in self.records], "forgotten_up_to": self.forgotten_up_to}
        write_json(self.folder / "rounds.json", state)
        named = {self._tables_file(record.round) for record in self.records}
        named |= {self._best_file(view, number) for record in self.records for view, number in record.best.items()}
        for path in self.folder.glob("*.safetensors*"):
            if path not in named:
                path.unlink()

    def _fall_back_before(self, number: int) -> None:
        """To the state before a round; the client has it already, unless the round was begun before."""
        kept = [record for record in self.records if record.round < number]
        if not kept and self.forgotten_up_to:
            what = f"asked for round {number}, but this site is at {self.records[-1].round}"
            raise MessageError(what, where=self.name)
        if self.unsaved or len(kept) < len(self.records):
            self.records = kept
            self._restore()

    def _restore(self) -> None:
        """The client as the last record says."""
        self.client, self.answer = self._new_client(), None
        self.measured, self.unsaved = 0, False
        events = self.folder / "events.jsonl"
        if not self.records:
            self.client.welcome(Welcome(self.shared))
            events.unlink(missing_ok=True)
            return
        last = self.records[-1]
        try:
            arrays = load_file(self._tables_file(last.round))
            for view, number in last.best.items():
                found = load_file(self._best_file(view, number))
                arrays |= {f"best.{view}.{name}": array for name, array in found.items()}
            self.client.restore(arrays, last.counters)
            self.client.welcome(Welcome(self.shared))
            if "answer.numbers" in arrays:
                self.answer = Packed(arrays["answer.numbers"], arrays["answer.steps"])
            os.truncate(events, last.events_bytes)
        except (SafetensorError, KeyError, FileNotFoundError) as bad:
            what = f"the state of round {last.round} is damaged ({bad})"
            raise InputError(what, where=self.folder, remedy="begin another run") from bad

    def _tell(self, event: dict[str, Any]) -> int:
        """Add a line to the site's own events; how long they are now."""
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as events:
            events.write(json.dumps(event) + "\n")
            events.flush()
            os.fsync(events.fileno())
            return events.tell()

    def _write(self, arrays: Arrays, path: Path) -> None:
        """Whole or not at all."""
        scratch = path.with_suffix(".safetensors.part")
        save_arrays(arrays, scratch)
        scratch.replace(path)

    def _tables_file(self, number: int) -> Path:
        return self.folder / f"round-{number:06}.safetensors"

    def _best_file(self, view: str, number: int) -> Path:
        return self.folder / f"best-{view}-{number:06}.safetensors"


def as_learned(graph: ClientGraph, folder: Path) -> ClientGraph:
    """Without what the run in this folder has forgotten."""
    ledger = ledger_of(folder)
    return graph if ledger is None else ledger.apply(Federation(graph.name, (graph,)))[0].clients[0]


def client_of(graph: ClientGraph, settings: Settings) -> Client:
    client = Client(graph, settings)
    client.exams = [sampled(exam, settings) for exam in client.exams]
    return client


def _digest(rows: Rows) -> str:
    parts = (rows.numbers, rows.steps) if isinstance(rows, Packed) else (rows,)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
