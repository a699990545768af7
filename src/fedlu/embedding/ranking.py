"""Filtered link prediction, in both directions: how high does a model rank the true answer among a client's entities?

    ranks = rank(score, client.test, FilterIndex.of(client.known, entities, relations))
    metrics = summarize(ranks)                      # per side and pooled
    table = average({"north": metrics, ...})        # count-weighted and plain mean over clients

`score` is any function from a batch of queries to a (batch, entities) array or tensor, higher meaning more likely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.kernels import count_competitors
from fedlu.errors import InputError, ScoreError

HITS = (1, 3, 10)
TIES = ("realistic", "optimistic", "pessimistic")
SCORES_AT_ONCE = 1 << 22
"""How many scores a batch holds at most: as many as stay in the caches between scoring and counting."""


class Side(IntEnum):
    """Which end of the triple is asked for; also the column of that answer in `Ranks`."""

    HEAD = 0
    TAIL = 1


@dataclass(frozen=True)
class Queries:
    """A batch of questions of one side: (anchor, relation, ?) asks for tails, (?, relation, anchor) for heads."""

    anchors: NDArray[np.int64]  # (batch,)
    relations: NDArray[np.int64]  # (batch,)
    side: Side


Score: TypeAlias = Callable[[Queries], Any]
"""Queries -> (batch, entities) scores, as a NumPy array or a torch tensor."""


@dataclass(frozen=True)
class FilterIndex:
    """For every question the answers already known, as compressed rows: one pair of arrays per side."""

    entities: int
    relations: int
    questions: tuple[NDArray[np.int64], NDArray[np.int64]]  # per side (questions,): anchor * relations + relation
    offsets: tuple[NDArray[np.int64], NDArray[np.int64]]  # per side (questions + 1,)
    answers: tuple[NDArray[np.int32], NDArray[np.int32]]  # per side (triples,)

    @classmethod
    def of(cls, triples: NDArray[np.integer[Any]], entities: int, relations: int) -> FilterIndex:
        """Index known triples (n, 3). Repeated triples are counted once: an answer is filtered once only."""
        _check_ids(triples, entities, relations)
        sides = [_compress(triples, relations, side) for side in Side]
        questions, offsets, answers = zip(*sides, strict=True)
        return cls(entities, relations, questions, offsets, answers)

    def find(self, queries: Queries) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(batch,), (batch,): where in `answers[side]` the known answers of each query start and stop."""
        questions, offsets = self.questions[queries.side], self.offsets[queries.side]
        wanted = queries.anchors * self.relations + queries.relations
        place = np.searchsorted(questions, wanted)
        if not len(questions):
            return place, place
        found = questions[np.minimum(place, len(questions) - 1)] == wanted
        starts = offsets[place]
        return starts, np.where(found, offsets[np.minimum(place + 1, len(questions))], starts)


@dataclass(frozen=True)
class Ranks:
    """How each triple fared, before ties are judged. All arrays are (triples, 2): head and tail prediction."""

    above: NDArray[np.int64]
    """Competitors with a higher score."""
    equal: NDArray[np.int64]
    """Competitors with the same score."""
    competitors: NDArray[np.int64]
    """Candidates other than the answer itself and the known answers."""

    def values(self, ties: str = "realistic") -> NDArray[np.float64]:
        """(triples, 2): ranks from 1. Realistic is the mean over all orders of ties: a collapsed model ranks midway."""
        if ties not in TIES:
            raise InputError(f"no tie policy {ties!r}", remedy=f"choose one of {', '.join(TIES)}")
        share = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}[ties]
        return 1.0 + self.above + share * self.equal


def rank(
    score: Score,
    triples: NDArray[np.integer[Any]],
    known: FilterIndex,
    *,
    candidates: NDArray[np.integer[Any]] | None = None,
    batch_size: int | None = None,
) -> Ranks:
    """Rank the true head and the true tail of each triple (n, 3).

    `known` filters: other true answers do not compete. `candidates` restricts the competition to some entities, as
    when a model of all clients is ranked within one client's; the scores still have a column for every entity.
    """
    only = rank_views(
        lambda queries: {"only": score(queries)},
        ("only",),
        triples,
        known,
        candidates=candidates,
        batch_size=batch_size,
    )
    return only["only"]


def rank_views(
    score: Callable[[Queries], Mapping[str, Any]],
    views: Sequence[str],
    triples: NDArray[np.integer[Any]],
    known: FilterIndex,
    *,
    candidates: NDArray[np.integer[Any]] | None = None,
    batch_size: int | None = None,
) -> dict[str, Ranks]:
    """As `rank`, for a function that gives several scores at once, by name: what they share is computed once."""
    _check_ids(triples, known.entities, known.relations)
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size = {batch_size}", remedy="give at least 1")
    counts = {name: np.empty((len(triples), 2, 3), dtype=np.int64) for name in views}
    competition = _Competition.of(candidates, known)
    size = batch_size or max(1, min(1024, SCORES_AT_ONCE // known.entities))
    for start in range(0, len(triples), size):
        batch = np.asarray(triples[start : start + size], dtype=np.int64)
        for side in Side:
            queries = Queries(batch[:, 2 - 2 * side], batch[:, 1], side)
            given = score(queries)
            for name, found in counts.items():
                scores = _as_array(given[name], (len(batch), known.entities))
                found[start : start + size, side] = _count(scores, batch[:, 2 * side], queries, known, competition)
    return {name: Ranks(above=c[:, :, 0], equal=c[:, :, 1], competitors=c[:, :, 2]) for name, c in counts.items()}


def summarize(ranks: Ranks, ties: str = "realistic") -> dict[str, Any]:
    """MRR, MR, AMRI and Hits@1, 3, 10 of both sides pooled, and under "head" and "tail" of each side alone."""
    values = ranks.values(ties)
    sides = {side.name.lower(): _metrics(values[:, side], ranks.competitors[:, side]) for side in Side}
    return {"count": len(values), **_metrics(values.ravel(), ranks.competitors.ravel()), **sides}


def average(clients: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The clients' metrics, their mean weighted by the number of triples (the paper's), and their plain mean."""
    some = {name: metrics for name, metrics in clients.items() if metrics["count"]}
    weights = np.array([metrics["count"] for metrics in some.values()], dtype=np.float64)
    result: dict[str, Any] = {}
    for name, weight in {"weighted": weights, "mean": np.ones(len(some))}.items():
        result[name] = {"count": int(weights.sum()), **_mean(list(some.values()), weight)}
    return {**result, "clients": dict(clients)}


# --- inside ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Competition:
    """Which columns of the scores compete: all (`candidates` is None), or some, which are then numbered anew."""

    candidates: NDArray[np.int64] | None
    position: NDArray[np.int32]  # (entities,): the column among the candidates, or -1
    answers: tuple[NDArray[np.int32], ...]  # per side: the filter's answers, as columns

    @classmethod
    def of(cls, candidates: NDArray[np.integer[Any]] | None, known: FilterIndex) -> _Competition:
        if candidates is None:
            return cls(None, np.arange(known.entities, dtype=np.int32), known.answers)
        chosen = np.unique(candidates)
        if (
            not np.issubdtype(chosen.dtype, np.integer)
            or not len(chosen)
            or chosen[0] < 0
            or chosen[-1] >= known.entities
        ):
            raise InputError(
                f"candidates are not ids from 0 to {known.entities - 1}", remedy="use the ids of the model"
            )
        position = np.full(known.entities, -1, dtype=np.int32)
        position[chosen] = np.arange(len(chosen))
        return cls(chosen.astype(np.int64), position, tuple(position[answers] for answers in known.answers))


def _count(
    scores: NDArray[Any], answers: NDArray[np.int64], queries: Queries, known: FilterIndex, competition: _Competition
) -> NDArray[np.int64]:
    """(batch, 3): competitors above, equal, and in all."""
    targets = competition.position[answers].astype(np.int64)
    if targets.min() < 0:
        raise InputError("a true answer is not among the candidates", remedy="rank triples of the candidates only")
    if competition.candidates is not None:
        scores = scores[:, competition.candidates]
    starts, stops = known.find(queries)
    columns = competition.answers[queries.side]
    counts = count_competitors(np.ascontiguousarray(scores), targets, starts, stops, columns)
    if (counts[:, 2] < 0).any():
        raise ScoreError("the model scores some triples NaN", remedy="lower the learning rate, or look for bad rows")
    return counts


def _check_ids(triples: NDArray[np.integer[Any]], entities: int, relations: int) -> None:
    """Ids out of range would silently be taken for another question's."""
    if not isinstance(triples, np.ndarray) or triples.ndim != 2 or triples.shape[1] != 3:
        raise InputError("triples are not an (n, 3) array", remedy="give head, relation and tail ids")
    if not np.issubdtype(triples.dtype, np.integer):
        raise InputError(f"triples of {triples.dtype}", remedy="give integer ids")
    for column, number in ((0, entities), (1, relations), (2, entities)):
        if len(triples) and not 0 <= triples[:, column].min() <= triples[:, column].max() < number:
            raise InputError(f"triples name ids beyond 0 to {number - 1}", remedy="use the ids of the model")


def _as_array(scores: Any, shape: tuple[int, int]) -> NDArray[Any]:
    if hasattr(scores, "detach"):  # a torch tensor, on whatever device
        scores = scores.detach().cpu()
        scores = (scores if scores.dtype.itemsize >= 4 else scores.float()).numpy()  # NumPy has no bfloat16
    array = np.asarray(scores)
    if array.shape != shape:
        raise ScoreError(f"scores of shape {array.shape}, expected {shape}", remedy="return (batch, entities)")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _compress(
    triples: NDArray[np.integer[Any]], relations: int, side: Side
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    # column by column, and in few bytes: of millions of triples, a copy is hundreds of megabytes
    asked = triples[:, 2 - 2 * side].astype(np.int64) * relations + triples[:, 1].astype(np.int64)
    answers = triples[:, 2 * side].astype(np.int32)
    order = np.lexsort((answers, asked))  # many times as fast as to sort rows as such
    asked, answers = asked[order], answers[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (asked[1:] != asked[:-1]) | (answers[1:] != answers[:-1])
    questions, first = np.unique(asked[new], return_index=True)
    return questions, np.append(first, new.sum()).astype(np.int64), answers[new]


def _metrics(values: NDArray[np.float64], competitors: NDArray[np.int64]) -> dict[str, float]:
    if not len(values):
        return {}
    by_chance = competitors.mean() / 2  # the mean rank of a guesser, less one
    return {
        "mrr": float((1.0 / values).mean()),
        "mr": float(values.mean()),
        # adjusted mean rank index: 1 is perfect, 0 is chance; Berrendorf et al. 2020
        "amri": float(1.0 - (values.mean() - 1.0) / by_chance) if by_chance else 1.0,
        **{f"hits@{k}": float((values <= k).mean()) for k in HITS},
    }


def _mean(results: list[dict[str, Any]], weights: NDArray[np.float64]) -> dict[str, Any]:
    """The weighted mean of every number, side by side and at every depth."""
    if not results:
        return {}
    return {
        name: _mean([result[name] for result in results], weights)
        if isinstance(value, dict)
        else float(np.average([result[name] for result in results], weights=weights))
        for name, value in results[0].items()
        if name != "count"
    }
