"""Forgetting at a site: a request that stays there, what the site does when the others are asked too, and its audit.

The request lies beside the tables that it is about, until their owner removes them; it names triples of the site's own
data and never leaves. The run that has forgotten is a folder of its own, written whole when all sites are done.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fedlu.errors import InputError
from fedlu.federated.messages import (
    Keep,
    Measure,
    Measured,
    MessageError,
    Recall,
    Registration,
    Unlearn,
    Unlearned,
    Welcome,
)
from fedlu.graph.federation import SPLITS, ClientGraph, Federation, whole_folder
from fedlu.graph.ledger import LEDGER, Ledger, Marks
from fedlu.learning.unlearning import GOALS
from fedlu.results.audit import audit_of_one
from fedlu.results.files import write_json
from fedlu.results.forgetting import at_a_glance, carry_over, request_of
from fedlu.results.requests import Chosen, Wish, choose
from fedlu.results.runs import ledger_of
from fedlu.results.sites import Site, as_learned, client_of

REQUEST = "request.json"


def ask(graph: ClientGraph, folder: Path, *, goal: str = "indistinguishable", **wish: Any) -> int:
    """Leave a request for the next exchange; how many triples will go. `wish` is as for `forgetting.forget`."""
    if goal not in GOALS:
        raise InputError(f"no goal {goal!r}", remedy=f"choose one of {', '.join(GOALS)}")
    if not (folder / "metrics.json").is_file():
        raise InputError("no finished run", where=folder, remedy="forget once it is learned")
    if (folder / REQUEST).exists():
        raise InputError(
            "a request waits already", where=folder / REQUEST, remedy="delete it to ask for something else"
        )
    graph = as_learned(graph, folder)
    chosen = choose(Federation(graph.name, (graph,)), Wish(**wish, client=graph.name))
    places = {split: np.flatnonzero(marks).tolist() for split, marks in chosen.marks[graph.name].items()}
    text = {"goal": goal, "places": places, "entity": chosen.entity, "relation": chosen.relation}
    descriptor = os.open(folder / REQUEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(text, file)
    return chosen.count()


class ForgettingSite:
    """Answers as a site does, while its run forgets. On disk nothing changes until all have forgotten."""

    def __init__(self, site: Site, into: Path):
        self.site, self.name, self.into = site, site.name, into
        self.graph = site.client.graph
        self.chosen, self.goal = _read(site.folder / REQUEST, self.graph)
        self.step = -1

    def register(self, key: bytes) -> Registration:
        return self.site.register(key)

    def welcome(self, message: Welcome) -> None:
        self.site.welcome(message)

    def recall(self, message: Recall) -> Unlearned:
        if not self.site.client.best:
            raise MessageError("nothing was kept here that could forget", where=self.name)
        self.step = 0
        self.site.client.exams = [at_a_glance(exam) for exam in self.site.client.exams]
        if self.chosen is not None:
            marks = self.chosen.marks[self.name]
            self.site.client.request = request_of(self.graph, marks, self.goal, None)
        return self.site.client.recall(message)

    def unlearn(self, message: Unlearn) -> Unlearned:
        if not 0 <= self.step < message.round:  # a step is taken once
            raise MessageError(f"asked for step {message.round} after {self.step}", where=self.name)
        self.step = message.round
        return self.site.client.unlearn(message)

    def measure(self, message: Measure) -> Measured:
        if message.rows is None or message.split != "valid" or self.step < 0:
            raise MessageError("asked for something else while it forgets", where=self.name)
        return self.site.client.measure(message)

    def keep(self, message: Keep) -> None:
        """All have forgotten: write the run that has, and what its owner may want to know of it."""
        if self.step < 0:
            raise MessageError("asked to keep before it forgot", where=self.name)
        site = self.site
        ledger = ledger_of(site.folder)
        retained, asked = self.graph, []
        if self.chosen is not None:
            data = Federation(self.name, (self.graph,))
            ledger = self.chosen.remember(ledger or Ledger(), data)
            retained = ledger.apply(data)[0].clients[0]
            asked = self.graph.vocabulary.labels(self.graph.train[self.chosen.marks[self.name]["train"]])
        raw, after = (client_of(retained, site.settings) for _ in range(2))
        carry_over(raw, Site(self.graph, site.settings, site.folder).client)
        site.client.keep(message)
        carry_over(after, site.client)
        with whole_folder(self.into) as new:
            if ledger is not None:
                ledger.save(new / LEDGER)
            Site(retained, site.settings, new).adopt(after, message.round)
            if asked:
                write_json(new / "audit.json", audit_of_one(raw, after, asked))


def _read(path: Path, graph: ClientGraph) -> tuple[Chosen | None, str]:
    if not path.is_file():
        return None, ""
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
        marks: Marks = {}
        for split in (*SPLITS, "forget"):
            marks[split] = np.zeros(len(graph.split(split)), dtype=np.bool_)
            marks[split][text["places"][split]] = True
        return Chosen({graph.name: marks}, text["entity"], text["relation"]), str(text["goal"])
    except (ValueError, KeyError, IndexError, TypeError) as bad:
        raise InputError(
            f"not a request ({type(bad).__name__})", where=path, remedy="delete it and ask again"
        ) from None
