"""The loops for private negatives, each query compared with entities of its own, and for its own answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from fedlu.embedding.compiling import compiled, fast, inline
from fedlu.embedding.kernels import PARTS, TINY, Floats, Ids, sum_parts

DOT, L1, L2, MODULUS = 0, 1, 2, 3
KINDS = {"dot": DOT, "l1": L1, "l2": L2, "modulus": MODULUS}


@inline
def _compare(kind: Any, x: Any, y: Any) -> Any:
    total, tiny = np.float32(0), np.float32(TINY)
    if kind == DOT:
        for k in range(len(x)):
            total += x[k] * y[k]
    elif kind == L1:
        for k in range(len(x)):
            total += abs(x[k] - y[k])
    elif kind == L2:
        for k in range(len(x)):
            total += (x[k] - y[k]) * (x[k] - y[k])
        total = np.sqrt(total + tiny)
    else:
        half = len(x) // 2
        for k in range(half):
            real, imaginary = x[k] - y[k], x[half + k] - y[half + k]
            total += np.sqrt(real * real + imaginary * imaginary + tiny)
    return total


@inline
def _add_gradients(kind: Any, x: Any, y: Any, slope: Any, for_x: Any, for_y: Any) -> None:
    """Add the gradients of slope times the comparison of x and y, in one pass: a difference serves both."""
    tiny, none = np.float32(TINY), np.float32(0)
    if kind == DOT:
        for k in range(len(x)):
            for_x[k] += slope * y[k]
            for_y[k] += slope * x[k]
    elif kind == L1:
        for k in range(len(x)):
            step = (slope if x[k] > y[k] else none) - (slope if x[k] < y[k] else none)
            for_x[k] += step
            for_y[k] -= step
    elif kind == L2:
        total = np.float32(0)
        for k in range(len(x)):
            total += (x[k] - y[k]) * (x[k] - y[k])
        scale = slope / np.sqrt(total + tiny)
        for k in range(len(x)):
            step = scale * (x[k] - y[k])
            for_x[k] += step
            for_y[k] -= step
    else:
        half = len(x) // 2
        for k in range(half):
            real, imaginary = x[k] - y[k], x[half + k] - y[half + k]
            scale = slope / np.sqrt(real * real + imaginary * imaginary + tiny)
            for_x[k] += scale * real
            for_x[half + k] += scale * imaginary
            for_y[k] -= scale * real
            for_y[half + k] -= scale * imaginary


@fast
def scores_with_own(
    kind: int, queries: Floats, answers: Floats, compared: Floats, margin: float, is_distance: bool
) -> Floats:
    """(batch, 1 + n): the score of each query's own answer, then of those that it was compared with (batch, n)."""
    batch, n = compared.shape
    scores, rim = np.empty((batch, 1 + n), dtype=np.float32), np.float32(margin)
    for b in prange(batch):
        own = _compare(kind, queries[b], answers[b])
        scores[b, 0] = rim - own if is_distance else own
        for k in range(n):
            scores[b, 1 + k] = rim - compared[b, k] if is_distance else compared[b, k]
    return scores


@fast
def slopes_of_comparisons(slopes: Floats, is_distance: bool) -> tuple[Floats, Floats]:
    """(batch,) and (batch, n): from the slopes of scores to those of comparisons, the own answer's and the others'."""
    batch, n = slopes.shape[0], slopes.shape[1] - 1
    own, others = np.empty(batch, dtype=np.float32), np.empty((batch, n), dtype=np.float32)
    sign = np.float32(-1 if is_distance else 1)  # a distance is taken from the margin
    for b in prange(batch):
        own[b] = sign * slopes[b, 0]
        for k in range(n):
            others[b, k] = sign * slopes[b, 1 + k]
    return own, others


@fast
def add_own_gradients(kind: int, queries: Floats, answers: Floats, slopes: Floats, for_queries: Floats) -> Floats:
    """(batch, dim): the gradient for the answers; that for the queries is added to `for_queries`. Slopes (batch,)."""
    for_answers = np.empty_like(answers)
    for b in prange(len(queries)):
        for k in range(answers.shape[1]):
            for_answers[b, k] = 0
        _add_gradients(kind, queries[b], answers[b], slopes[b], for_queries[b], for_answers[b])
    return for_answers


@fast
def picked_comparisons(kind: int, queries: Floats, entities: Floats, order: Ids, starts: Ids) -> Floats:
    """(batch, n): each query compared with the entities that it picked; `order` and `starts` are `group_places`'.

    Entity by entity: a row of the large table is read once, and the queries stay in the cache.
    """
    width = len(order) // len(queries)
    compared = np.empty((len(queries), width), dtype=np.float32)
    for e in prange(len(entities)):
        for at in range(starts[e], starts[e + 1]):
            b, n = order[at] // width, order[at] % width
            compared[b, n] = _compare(kind, queries[b], entities[e])
    return compared


@fast
def picked_gradients(
    kind: int, queries: Floats, entities: Floats, order: Ids, starts: Ids, slopes: Floats
) -> tuple[Floats, Floats]:
    """((batch, dim), (entities, dim)): in one pass, entity by entity, in a fixed number of parts with about as many
    places each; every part has sums of its own for the queries, so no two threads write the same row."""
    width = slopes.shape[1]
    for_entities = np.zeros_like(entities)
    sums = np.zeros((PARTS, queries.shape[0], queries.shape[1]), dtype=np.float32)
    bounds = np.searchsorted(starts, np.arange(PARTS + 1) * len(order) // PARTS)
    bounds[PARTS] = len(entities)
    for part in prange(PARTS):
        for e in range(bounds[part], bounds[part + 1]):
            for at in range(starts[e], starts[e + 1]):
                b, n = order[at] // width, order[at] % width
                _add_gradients(kind, queries[b], entities[e], slopes[b, n], sums[part, b], for_entities[e])
    return sum_parts(sums), for_entities


@compiled
def mark_picked(picked: NDArray[np.int32], starts: Ids, stops: Ids, known: NDArray[np.int32]) -> NDArray[np.bool_]:
    """(batch, n): which private negatives are true answers after all, by bisection of the sorted known answers."""
    marked = np.zeros(picked.shape, dtype=np.bool_)
    for i in prange(len(picked)):
        for k in range(picked.shape[1]):
            low, high = starts[i], stops[i]
            while low < high:
                middle = (low + high) // 2
                if known[middle] < picked[i, k]:
                    low = middle + 1
                else:
                    high = middle
            marked[i, k] = low < stops[i] and known[low] == picked[i, k]
    return marked


@compiled
def group_places(picks: NDArray[np.int32], groups: int) -> tuple[Ids, Ids]:
    """((places,), (groups + 1,)): the places of each number of `picks`, read row by row: a counting sort."""
    flat = picks.ravel()
    starts = np.zeros(groups + 1, dtype=np.int64)
    for place in range(len(flat)):
        starts[flat[place] + 1] += 1
    for group in range(groups):
        starts[group + 1] += starts[group]
    order, filled = np.empty(len(flat), dtype=np.int64), starts.copy()
    for place in range(len(flat)):
        order[filled[flat[place]]] = place
        filled[flat[place]] += 1
    return order, starts
