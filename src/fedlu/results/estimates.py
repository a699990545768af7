"""How long a cell of a matrix will take: as long as one of its kind took; or, if none is there yet, by a probe.

A probe trains a client on a few batches and ranks a few triples, with the real settings, and is scaled to all triples
and rounds. It knows nothing of stopping early, so it says too much rather than too little; of settings with which
nothing can be learned it says nothing, and lets them fail. Forgetting and its audit are taken to last as long as
learning each, until one was measured, and re-training as long as learning did.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedlu.config import Settings
from fedlu.errors import FedluError, InputError
from fedlu.federated.client import Client
from fedlu.federated.messages import Keep, Measure, Train
from fedlu.graph.federation import Federation
from fedlu.graph.triples import Triples
from fedlu.results import files
from fedlu.results.forgetting import FORGETTING

if TYPE_CHECKING:
    from fedlu.results.matrix import Cell

BATCHES = 4
RANKED = 64


class Estimates:
    def __init__(
        self,
        data: Federation,
        settings_of: Callable[[Cell], Settings],
        folder_of: Callable[[Cell], Path],
        retrained_of: Callable[[Cell], Path] | None = None,
    ):
        self.data, self.settings_of, self.folder_of, self.retrained_of = data, settings_of, folder_of, retrained_of
        self.probed: dict[tuple[str, str], float] = {}

    def seconds(self, cell: Cell) -> float:
        """What is still to be done of a cell."""
        if not cell.variant:
            whole, done = self._learning(cell), self._share_done(cell)
            return whole * (1 - done)
        learning = self._learning(cell.learned)
        forgetting, auditing = self._measured_forgetting(cell) or (learning, learning)
        needed = auditing if (self.folder_of(cell) / FORGETTING).is_file() else forgetting + auditing
        if self.retrained_of is None or (self.retrained_of(cell) / "metrics.json").is_file():
            return needed
        return needed + learning

    def reason(self, cell: Cell) -> str:
        if cell.variant:
            return "by what learning took" if self._measured_forgetting(cell) is None else "by one that forgot"
        return "by a probe" if self._measured(cell) is None else "by another seed"

    def _learning(self, cell: Cell) -> float:
        measured = self._measured(cell)
        if measured is not None:
            return measured
        kind = (cell.model, cell.method)
        if kind not in self.probed:
            try:
                self.probed[kind] = probe(self.data, self.settings_of(cell))
            except FedluError:
                self.probed[kind] = 0.0
        return self.probed[kind]

    def _measured(self, cell: Cell) -> float | None:
        """The mean of the seeds that are there."""
        found = []
        for seed in range(cell.seed + 1):
            with suppress(InputError, KeyError):
                metrics = files.read_json(self.folder_of(replace(cell, seed=seed)) / "metrics.json")
                found.append(sum(metrics["seconds"].values()))
        return float(np.mean(found)) if found else None

    def _measured_forgetting(self, cell: Cell) -> tuple[float, float] | None:
        """Of one that was audited: forgetting, and the audit without re-training."""
        for seed in range(cell.seed, -1, -1):
            for variant in ("whole", "without hard", "without soft"):
                path = self.folder_of(replace(cell, seed=seed, variant=variant)) / "audit.json"
                with suppress(InputError, KeyError):
                    cost = files.read_json(path)["cost"]
                    auditing = cost["audit seconds"] - (cost["retraining seconds"] or 0.0)  # less than 0 if shared
                    return float(cost["forgetting seconds"]), max(float(auditing), 0.0)
        return None

    def _share_done(self, cell: Cell) -> float:
        with suppress(InputError, KeyError):
            progress = files.read_json(self.folder_of(cell) / "state.json")["progress"]
            return float(progress["round"]) / self.settings_of(cell).rounds
        return 0.0


def probe(data: Federation, settings: Settings) -> float:
    """Seconds that a run with these settings should take at most on this machine, as it is now."""
    graphs = [data.union()] if settings.method == "centralized" else list(data.clients)
    largest = max(graphs, key=lambda graph: len(graph.vocabulary.entities))
    small = replace(
        largest,
        train=_some(largest.train, BATCHES * settings.batch_size),
        valid=_some(largest.valid, RANKED),
        test=largest.test[:0],
    )
    client = Client(small, replace(settings, compress="none", epochs=max(1, settings.epochs)))
    train = sum(len(graph.train) for graph in graphs) / len(small.train)
    valid = sum(len(graph.valid) for graph in data.clients) / max(1, len(small.valid))
    test = sum(len(graph.test) for graph in data.clients) / max(1, len(small.valid))
    warm = min(settings.warm_rounds, settings.rounds) if settings.method == "fedlu" else settings.rounds
    looks = settings.rounds // settings.evaluate_every + 1
    rows = np.empty((0, client.width), dtype=np.float32)
    early = _timed(lambda: client.train(Train(1, rows)))
    late = early if warm == settings.rounds else _timed(lambda: client.train(Train(settings.rounds, rows)))
    client.keep(Keep(1, tuple(view for view in client.views if view != "blend")))
    ranked = _timed(lambda: client.measure(Measure(1, "valid", None)))
    learning = train * (warm * early + (settings.rounds - warm) * late) / settings.rounds_an_epoch
    return learning + ranked * (looks * settings.valid_share * valid + valid + test)


def _some(triples: Triples, number: int) -> Triples:
    """Evenly from all of them, so that they are of many relations."""
    return triples[:: max(1, -(-len(triples) // number))]


def _timed(what: Callable[[], object]) -> float:
    """Of the second time: the first may compile."""
    what()
    start = time.perf_counter()
    what()
    return time.perf_counter() - start
