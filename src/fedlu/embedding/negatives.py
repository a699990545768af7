"""Batches: which queries are asked together, and which entities are the wrong answers they share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding import kernels, private_kernels
from fedlu.embedding.kernels import Floats, Ids
from fedlu.embedding.optimizers import Touched
from fedlu.embedding.ranking import FilterIndex, Queries, Side
from fedlu.graph.triples import Triples


@dataclass(frozen=True)
class Batch:
    """Queries of one side with their answers, and negatives: shared by all, or picked by each for itself."""

    queries: Queries
    answers: Ids  # (batch,)
    negatives: Ids  # (entities,): no entity twice
    picks: NDArray[np.int32] | None  # (batch, n): which of these are a query's own; None if all are
    masked: NDArray[np.bool_]  # (batch, 1 + n): negatives that are true answers; column 0 is the answer, never masked
    weights: Floats  # (batch,)

    @cached_property
    def entities(self) -> Ids:
        """(2 * batch + entities,): anchors, answers and negatives; what every table is asked for, and taught."""
        return np.concatenate([self.queries.anchors, self.answers, self.negatives])

    @cached_property
    def touched(self) -> Touched:
        """The rows of these entities, each once."""
        return Touched.by(self.entities)


@dataclass(frozen=True)
class Sampler:
    """Makes the batches of a client's epochs; what is random comes from the generator it is given each time."""

    triples: Triples
    known: FilterIndex
    weights: Floats  # (triples,)
    private: bool
    """Whether each query draws negatives of its own, as the paper has it; slower, for no better results."""

    @classmethod
    def of(cls, triples: Triples, entities: int, relations: int, *, weighted: bool, private: bool = False) -> Sampler:
        known = FilterIndex.of(triples, entities, relations)
        weights = frequency_weights(triples, known) if weighted else np.ones(len(triples), dtype=np.float32)
        return cls(triples, known, weights, private)

    @cached_property
    def _spans(self) -> list[NDArray[np.integer[Any]]]:
        """By side (2, triples): where the known answers to each triple's question start and stop."""
        return [known_spans(self.triples, self.known, side) for side in Side]

    def spans(self, side: Side, chosen: Ids) -> NDArray[np.int64]:
        """(2, chosen): where the known answers to the questions of some triples start and stop."""
        return self._spans[side][:, chosen].astype(np.int64)

    def epoch(self, random: np.random.Generator, batch_size: int, negatives: int) -> Iterator[Batch]:
        """Every triple twice, once for each side, in batches of one side, in random order."""
        for side, chosen in self.plan(random, batch_size):
            yield self.batch(chosen, side, random, negatives)

    def part(
        self,
        number: int,
        parts: int,
        order: np.random.Generator,
        random: np.random.Generator,
        batch_size: int,
        negatives: int,
    ) -> Iterator[Batch]:
        """A part of an epoch; `order` is the same for all parts. Each has a batch, however few the triples are."""
        plan = self.plan(order, batch_size)
        for side, chosen in plan[number::parts] or [plan[number % len(plan)]]:
            yield self.batch(chosen, side, random, negatives)

    def plan(self, random: np.random.Generator, batch_size: int) -> list[tuple[Side, Ids]]:
        """The batches of an epoch: for each its side, and which triples are asked."""
        batches = []
        for side in Side:
            order = random.permutation(len(self.triples))
            number = max(1, math.ceil(len(order) / batch_size))
            batches += [(side, part) for part in np.array_split(order, number)]  # even, so that none is of one alone
        return [batches[number] for number in random.permutation(len(batches))]

    def batch(self, chosen: Ids, side: Side, random: np.random.Generator, negatives: int) -> Batch:
        rows = self.triples[chosen].astype(np.int64)
        queries = question_of(rows, side)
        if self.private:
            return self._private_batch(chosen, queries, rows[:, 2 * side], random, negatives)
        entities = self.known.entities
        wrong = np.sort(random.choice(entities, size=min(negatives, entities), replace=False, shuffle=False))
        slots = np.full(entities, -1, dtype=np.int32)
        slots[wrong] = np.arange(1, 1 + len(wrong))  # column 0 is the answer's
        starts, stops = self.spans(side, chosen)
        masked = kernels.mark_known(slots, starts, stops, self.known.answers[side], 1 + len(wrong))
        return Batch(queries, rows[:, 2 * side], wrong, None, masked, self.weights[chosen])

    def _private_batch(
        self, chosen: Ids, queries: Queries, answers: Ids, random: np.random.Generator, negatives: int
    ) -> Batch:
        """Draws with replacement, so a negative may come twice, as in the paper's release."""
        entities = self.known.entities
        picked = random.integers(entities, size=(len(chosen), negatives), dtype=np.int32)
        drawn = np.zeros(entities, dtype=np.bool_)
        drawn[picked.ravel()] = True
        position = (np.cumsum(drawn) - 1).astype(np.int32)  # of an entity among those drawn
        starts, stops = self.spans(queries.side, chosen)
        masked = np.zeros((len(chosen), 1 + negatives), dtype=np.bool_)
        masked[:, 1:] = private_kernels.mark_picked(picked, starts, stops, self.known.answers[queries.side])
        return Batch(queries, answers, np.flatnonzero(drawn), position[picked], masked, self.weights[chosen])


def question_of(triples: NDArray[np.integer[Any]], side: Side) -> Queries:
    """What is asked when a side of each triple (n, 3) is missing."""
    anchors, relations = (np.asarray(triples[:, column], dtype=np.int64) for column in (2 - 2 * side, 1))
    return Queries(anchors, relations, side)


AT_A_TIME = 2**18
"""Triples whose questions are looked up together: what that takes besides is many times as large as what it finds."""


def known_spans(triples: Triples, known: FilterIndex, side: Side) -> NDArray[np.integer[Any]]:
    """(2, triples): where the known answers to the question of each start and stop, in as few bytes as will do."""
    spans = np.empty((2, len(triples)), dtype=np.int32 if len(known.answers[side]) < 2**31 else np.int64)
    for start in range(0, len(triples), AT_A_TIME):
        part = slice(start, start + AT_A_TIME)
        spans[:, part] = known.find(question_of(triples[part], side))
    return spans


def frequency_weights(triples: Triples, known: FilterIndex) -> Floats:
    """(n,): 1 / sqrt(frequency of (h, r) + frequency of (t, r^-1)), each counted from 4 on, as word2vec would."""
    count = np.zeros(len(triples), dtype=np.int64)
    for side in Side:
        starts, stops = known_spans(triples, known, side)
        count += stops - starts + 3
    return (1 / np.sqrt(count)).astype(np.float32)
