"""Measures of forgetting: can an attacker tell the forgotten from true triples that were never learned, how fast do
they come back, and which of them can be deduced from what is kept. All in the ids of the retained data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.negatives import Sampler
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import FilterIndex
from fedlu.federated.client import Client
from fedlu.graph.federation import ClientGraph
from fedlu.graph.triples import Triples
from fedlu.learning.knowledge import Memory, knowledge, questions_about

Numbers: TypeAlias = NDArray[np.int64]
Known: TypeAlias = NDArray[np.float64]
"""(triples,): how well each is known."""
FALSE_ALARMS = 0.01
RESAMPLES = 1000
BESIDE = 1024
"""Entities that a triple is compared with to see how well it is known."""
RELEARN_STEPS = 200
RELEARN_RATE = 1e-3
SURE = 0.8
"""The share of a relation's pairs that another one must cover for it to give a forgotten triple away."""


@dataclass(frozen=True)
class Attack:
    """How well a threshold on a number tells members from others; 0.5 is a coin."""

    auc: float
    low: float
    high: float
    """Ends of the 95 % interval, by resampling."""
    caught: float
    """True positives where one in a hundred others is taken for a member."""
    members: int
    others: int


def attack(members: Known, others: Known) -> Attack:
    """Higher numbers are taken for members."""
    if not len(members) or not len(others):
        return Attack(float("nan"), float("nan"), float("nan"), float("nan"), len(members), len(others))
    random = np.random.default_rng(0)
    drawn = [auc(random.choice(members, len(members)), random.choice(others, len(others))) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    limit = np.quantile(others, 1 - FALSE_ALARMS, method="higher")
    return Attack(
        auc(members, others), float(low), float(high), float((members > limit).mean()), len(members), len(others)
    )


def auc(members: Known, others: Known) -> float:
    """The chance that a member has the higher number, a tie counting half (Mann and Whitney)."""
    ordered = np.sort(others)
    below, up_to = (np.searchsorted(ordered, members, side=side).sum() for side in ("left", "right"))
    return float((below + up_to) / 2 / (len(members) * len(others)))


def bins(values: list[Known]) -> list[float]:
    """Twenty steps of equal width from the lowest to the highest of all of them; none if there are no values."""
    together = np.concatenate(values) if values else np.empty(0)
    return np.linspace(together.min(), together.max() + 1e-9, 21).tolist() if len(together) else []


def shares(pair: list[Known], edges: list[float]) -> dict[str, list[float]]:
    """How members and others are distributed over the steps: enough to draw, too little to find a triple by."""
    if not edges:
        return {}
    counted = {n: np.histogram(v, edges)[0] / max(len(v), 1) for n, v in zip(("members", "others"), pair, strict=True)}
    return {"edges": edges, **{name: found.round(4).tolist() for name, found in counted.items()}}


def matched(forget: Triples, unseen: Triples, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Pairs of a forgotten and an unseen triple of the same relation, as places; the unseen ones none twice."""
    random = np.random.default_rng(seed)
    ours: list[Numbers] = []
    theirs: list[Numbers] = []
    for relation in np.unique(forget[:, 1]):
        mine = random.permutation(np.flatnonzero(forget[:, 1] == relation))
        other = random.permutation(np.flatnonzero(unseen[:, 1] == relation))
        number = min(len(mine), len(other))
        ours.append(mine[:number])
        theirs.append(other[:number])
    nothing = [np.empty(0, dtype=np.int64)]
    return np.concatenate(ours or nothing), np.concatenate(theirs or nothing)


def memory_of(client: Client, view: str) -> Memory:
    snapshot = client.best[view]
    return Memory(Table(snapshot.entities.copy()), Table(snapshot.relations.copy()))


def known_by(client: Client, view: str, triples: Triples) -> Known:
    """How well a client's best tables know some triples, in the mean of both sides."""
    questions = questions_about(_sampler(client.graph, triples), BESIDE)
    found: Known = knowledge(client.learner, memory_of(client, view), questions).mean(1)
    return found


def relearn_steps(client: Client, view: str, forget: Triples, level: float) -> int:
    """Steps on the forgotten triples alone until they are known as well as `level`, in the mean; at most so many."""
    memory, sampler = memory_of(client, view), _sampler(client.graph, forget)
    learner = replace(client.learner, optimizer="adam", rate=RELEARN_RATE, n3=0.0, dura=0.0, relation_prediction=0.0)
    random, steps, questions = np.random.default_rng(0), 0, questions_about(sampler, BESIDE)
    while steps < RELEARN_STEPS:
        for batch in sampler.epoch(random, client.settings.batch_size, client.settings.negatives):
            if float(knowledge(learner, memory, questions).mean()) >= level:
                return steps
            learner.plain_step(memory.table, memory.relations, batch)
            steps += 1
    return steps


def _sampler(graph: ClientGraph, triples: Triples) -> Sampler:
    known = FilterIndex.of(graph.known, len(graph.vocabulary.entities), len(graph.vocabulary.relations))
    return Sampler(triples, known, np.ones(len(triples), dtype=np.float32), private=False)


def deducible(graph: ClientGraph, forget: Triples) -> NDArray[np.bool_]:
    """(forgotten,): which can be read off a kept triple of another relation between the same two, in either direction.

    A relation gives another away if, of its pairs, most are pairs of the other as well, in the kept graph. Of a
    relation that was erased, with a number beyond the graph's, the forgotten triples are all there was.
    """
    kept = graph.known.astype(np.int64)
    size, number = len(graph.vocabulary.entities), len(graph.vocabulary.relations)
    straight = kept[:, 0] * size + kept[:, 2]
    pairs_of = [np.unique(straight[kept[:, 1] == relation]) for relation in range(number)]
    gone = np.zeros(len(forget), dtype=np.bool_)
    for relation in np.unique(forget[:, 1]):
        asked = np.flatnonzero(forget[:, 1] == relation)
        rows = forget[asked].astype(np.int64)
        there, back = rows[:, 0] * size + rows[:, 2], rows[:, 2] * size + rows[:, 0]
        mine = pairs_of[relation] if relation < number else np.unique(there)
        for keys, own in ((there, mine), (back, np.sort(mine % size * size + mine // size))):
            for other, pairs in enumerate(pairs_of):
                if (other == relation and own is pairs) or not len(pairs):
                    continue
                hit = np.isin(keys, pairs)
                if hit.any() and np.isin(pairs, own).mean() >= SURE:
                    gone[asked[hit]] = True
    return gone
