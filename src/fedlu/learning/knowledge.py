"""How well a triple is known, and how well one is known that was never learned.

How well, from its head and from its tail, is the log of its share in a softmax over a sample of entities (of a few
triples, the log of its odds). A triple that was never learned is known to some degree too: deducible ones well,
surprising ones badly. So a triple that has to go gets a place in the distribution of the client's valid triples of the
same relation, which no training has seen; to suppress it, in the lowest part of that distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.kernels import Floats, Ids, probabilities
from fedlu.embedding.losses import Mask
from fedlu.embedding.negatives import Batch, Sampler
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import FilterIndex, Side
from fedlu.graph.triples import Triples
from fedlu.learning.local_training import Learner

Knowledge: TypeAlias = NDArray[np.float64]
"""(triples, 2): how well each is known, from either side."""
Numbers: TypeAlias = NDArray[np.int32]

SUPPRESSED = {
    "products": {"local": 0.515, "global": 0.5},
    "translations": {"local": 0.84, "global": 0.84},
    "rotations": {"local": 0.914, "global": 0.985},
}
"""To suppress, by memory: the part of the valid triples' distribution, from its low end, where forgotten triples are
placed. As far down as the rest does not suffer: where scores are products, rows can be moved further."""
CANDIDATES = {"products": 1024, "translations": 512, "rotations": 512}
"""Entities that a triple is compared with to see how well it is known: most distances cost many times a product."""
ENOUGH = 20
"""Valid triples of a relation that make a distribution of their own; and forgotten ones that can fill one."""


@dataclass
class Memory:
    """An entity table and the relations it was kept with; relations are not changed by forgetting."""

    table: Table
    relations: Table
    shared: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Rows of the table that other owners have, too."""


@dataclass(frozen=True)
class Questions:
    """Triples to be asked about again and again, always with the same sample of entities beside them."""

    triples: Triples
    candidates: int
    batches: list[tuple[Ids, Side, Batch]]
    """Which of the triples, from which side, beside whom."""


def questions_about(sampler: Sampler, candidates: int) -> Questions:
    """About all of a sampler's triples, from both sides."""
    number, batches = len(sampler.triples), []
    for start in range(0, number, 512):
        chosen = np.arange(start, min(start + 512, number))
        for side in Side:
            batches.append((chosen, side, sampler.batch(chosen, side, np.random.default_rng(0), candidates)))
    return Questions(sampler.triples, min(candidates, sampler.known.entities), batches)


def knowledge(learner: Learner, memory: Memory, questions: Questions, *, odds: bool = False) -> Knowledge:
    """(triples, 2): the log of each triple's share, by side, among a sample of entities that is the same for all; or
    of its odds, by which its score can be told however well it is known."""
    found = np.zeros((len(questions.triples), len(Side)))
    for chosen, side, batch in questions.batches:
        scores = learner.forward(memory.table, memory.relations, batch).scores
        found[chosen, side] = log_odds(scores, batch.masked) if odds else log_shares(scores, batch.masked)
    return found


def log_shares(scores: Floats, masked: Mask) -> Floats:
    """(batch,): of the positive in a softmax over all."""
    found: Floats = np.log(np.maximum(probabilities(scores, masked, 1.0)[:, 0], 1e-30))
    return found


def log_odds(scores: Floats, masked: Mask) -> Floats:
    """(batch,): of the positive against all others; a share near one would not tell how near."""
    others = np.where(masked[:, 1:], np.float32(-1e30), scores[:, 1:])  # finite: a row may have no negative left
    top = others.max(1, keepdims=True)
    found: Floats = scores[:, 0] - top[:, 0] - np.log(np.exp(others - top).sum(1))
    return found


def evenly(triples: Triples, known: FilterIndex) -> Sampler:
    return Sampler(triples, known, np.ones(len(triples), dtype=np.float32), private=False)


def family(learner: Learner) -> str:
    """Which of the kinds a model is of that know, and forget, alike; a softmax makes any of them like the products."""
    if learner.loss == "cross_entropy":
        return "products"
    return "rotations" if learner.relations_are_phases else "translations"


def shares_to_fill(learner: Learner, goal: str) -> dict[str, float]:
    """By memory: which part of the distribution, from its low end."""
    return SUPPRESSED[family(learner)] if goal == "suppress" else {"local": 1.0, "global": 1.0}


def places_of(relations: Numbers, known: dict[str, Knowledge], shares: dict[str, float]) -> dict[str, Knowledge]:
    """By memory (forgotten, 2): the place of each in its relation's distribution, by how well it was known before.

    Only the memory's share of the distribution is filled, from its low end. Within a relation the places are spread
    evenly; a few triples alone are placed in the lower half, since a single one that came to stand high would not look
    forgotten to anyone.
    """
    random, places = np.random.default_rng(0), {}
    for name, values in known.items():
        place = np.empty_like(values)
        for side in Side:
            order = np.lexsort((values[:, side], relations))
            groups = relations[order]
            first = np.searchsorted(groups, groups, side="left")
            size = np.searchsorted(groups, groups, side="right") - first
            spread = (np.arange(len(order)) - first + random.uniform(size=len(order))) / np.maximum(size, 1)
            place[order, side] = spread if len(order) >= ENOUGH else np.minimum(spread, 0.5)
        places[name] = shares[name] * place
    return places


def targets_of(known: Knowledge, unseen: Questions, forget: Triples, places: Knowledge) -> Knowledge:
    """(forgotten, 2): how well a triple at its place is known, among unseen ones of its relation, or among all; given
    how well those are `known`."""
    found = np.full(places.shape, -np.log(unseen.candidates))  # nothing to compare with: as good as a guess
    if not len(known):
        return found
    relations = unseen.triples[:, 1]
    for relation in np.unique(forget[:, 1]):
        chosen, of_it = forget[:, 1] == relation, known[relations == relation]
        for side in Side:
            values = of_it[:, side] if len(of_it) >= ENOUGH else known[:, side]
            found[chosen, side] = np.quantile(values, places[chosen, side])
    return found
