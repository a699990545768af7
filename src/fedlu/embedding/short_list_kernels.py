"""The loops of `short_lists.py`: sums over rows of bytes, and the best few by them. On one thread, without the GIL.

A few dozen questions are too little work to share: threads that wait for each other cost more than they save.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from fedlu.embedding.kernels import TINY, Floats, Ids

Function = TypeVar("Function")

LANES = 64
"""Bytes that are compared at once: rows of bytes are a multiple of it."""
KINDS = {"l1": 0, "modulus": 1, "dot": 2}
TILE = 1 << 14
"""Bytes of the table that stay in the nearest cache while every question is compared with them."""
TOGETHER = 8
"""Questions whose ceilings are in memory at a time."""
GROUP = 32
"""Entities that are passed over together, if the best of them is not good enough; the best come first."""
LOWEST = np.float32(-1e38)
"""Below every score, and so are sums of a few of it; the loops are compiled for finite numbers."""


def alone(function: Function) -> Function:
    return cast(Function, numba.njit(cache=True, nogil=True, fastmath=True)(function))


def in_order(function: Function) -> Function:
    """As above, where nothing may be reordered."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


# --- sums over rows of bytes: written as vectors, since the compiler would take eight bytes at a time only ---------


def _sum_over_bytes(builder: Any, term: Any, left: Any, right: Any, width: Any) -> Any:
    """The sum of `term` over two rows at the addresses `left` and `right`, in 32-bit integers."""
    wide, narrow = (ir.VectorType(ir.IntType(bits), LANES) for bits in (32, 8))
    before, loop, after = builder.block, *(builder.append_basic_block(name) for name in ("bytes", "bytes_end"))
    builder.branch(loop)
    builder.position_at_end(loop)
    place, total = builder.phi(width.type), builder.phi(wide)
    rows = []
    for address in (left, right):
        row = builder.load(builder.inttoptr(builder.add(address, place), narrow.as_pointer()))
        row.align = 1
        rows.append(row)
    added = builder.add(total, term(builder, *rows, wide))
    following = builder.add(place, ir.Constant(width.type, LANES))
    for phi, first, later in ((place, ir.Constant(width.type, 0), following), (total, ir.Constant(wide, None), added)):
        phi.add_incoming(first, before)
        phi.add_incoming(later, loop)
    builder.cbranch(builder.icmp_signed("<", following, width), loop, after)
    builder.position_at_end(after)
    name = f"llvm.vector.reduce.add.v{LANES}i32"
    kind = ir.FunctionType(ir.IntType(32), [wide])
    return builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), [added])


def _absolute_difference(builder: Any, left: Any, right: Any, wide: Any) -> Any:
    difference, zero = builder.sub(builder.zext(left, wide), builder.zext(right, wide)), ir.Constant(wide, None)
    return builder.select(builder.icmp_signed("<", difference, zero), builder.sub(zero, difference), difference)


def _product(builder: Any, left: Any, right: Any, wide: Any) -> Any:
    return builder.mul(builder.sext(left, wide), builder.sext(right, wide))


@intrinsic  # type: ignore[untyped-decorator]
def _differences(typing: Any, left: Any, right: Any, width: Any) -> Any:
    """sum |left - right| over bytes from 0 to 255."""
    return types.int32(types.intp, types.intp, types.intp), lambda _, builder, __, given: _sum_over_bytes(
        builder, _absolute_difference, *given
    )


@intrinsic  # type: ignore[untyped-decorator]
def _products(typing: Any, left: Any, right: Any, width: Any) -> Any:
    """sum left * right over bytes from -127 to 127."""
    return types.int32(types.intp, types.intp, types.intp), lambda _, builder, __, given: _sum_over_bytes(
        builder, _product, *given
    )


@alone
def _ceilings(
    kind: int,
    rows: NDArray[np.uint8],
    errors: Floats,
    queries: NDArray[np.uint8],
    terms: NDArray[np.float64],
    ceilings: Floats,
) -> None:
    """Write (batch, entities): base + slope * sum over bytes + weight * the entity's error; terms (batch, 3)."""
    width = rows.shape[1]
    size = max(1, TILE // width)
    for tile in range(0, len(rows), size):
        end = min(len(rows), tile + size)
        for b in range(len(queries)):
            left, right = queries.ctypes.data + b * width, rows.ctypes.data + tile * width
            base, slope, weight = np.float32(terms[b, 0]), np.float32(terms[b, 1]), np.float32(terms[b, 2])
            mine = ceilings[b]
            if kind == 2:
                for n in range(tile, end):
                    mine[n] = base + slope * np.float32(_products(left, right, width)) + weight * errors[n]
                    right += width
            else:
                for n in range(tile, end):
                    mine[n] = base + slope * np.float32(_differences(left, right, width)) + weight * errors[n]
                    right += width


@in_order
def difference_terms(
    queries: Floats, low: float, step: float, share: float, base: float, rounding: float
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """(batch, width, rounded up to LANES) and (batch, 3): queries as bytes, and what a ceiling is made of, for l1 and
    modulus; see `short_lists.py`. In double precision: what the bytes lose must not be lost again."""
    batch, width = queries.shape
    codes = np.zeros((batch, (width + LANES - 1) // LANES * LANES), dtype=np.uint8)
    terms = np.empty((batch, 3))
    for b in range(batch):
        lost, size = 0.0, 0.0
        for k in range(width):
            value = np.float64(queries[b, k])
            code = min(max(np.rint((value - low) / step), 0.0), 255.0)
            codes[b, k] = np.uint8(code)
            lost += abs(value - (low + step * code))
            size += abs(value)
        terms[b, 0] = base + share * lost + rounding * size
        terms[b, 1], terms[b, 2] = -share * step, share
    return codes, terms


# --- the best few ---------------------------------------------------------------------------------------------------


@alone
def _l1(query: Floats, entity: Floats) -> Any:
    total = np.float32(0)
    for k in range(len(query)):
        total += abs(query[k] - entity[k])
    return total


@alone
def _moduli(query: Floats, entity: Floats) -> Any:
    half, total, tiny = len(query) // 2, np.float32(0), np.float32(TINY)
    for k in range(half):
        real, imaginary = query[k] - entity[k], query[half + k] - entity[half + k]
        total += np.sqrt(real * real + imaginary * imaginary + tiny)
    return total


@alone
def _dot(query: Floats, entity: Floats) -> Any:
    total = np.float32(0)
    for k in range(len(query)):
        total += query[k] * entity[k]
    return total


@in_order
def _score(kind: int, margin: Any, query: Floats, entity: Floats) -> Any:
    """As `scorers.Fused` scores a pair: the margin is not drawn into the sum, which would round otherwise."""
    if kind == 0:
        return margin - _l1(query, entity)
    if kind == 1:
        return margin - _moduli(query, entity)
    return _dot(query, entity)


@alone
def _insert(scores: Floats, ids: NDArray[np.int32], count: int, score: Any, number: int) -> int:
    """Keep the best in order, of equals the lower id first; gives how many there are now."""
    place = count
    while place > 0 and (scores[place - 1] < score or (scores[place - 1] == score and ids[place - 1] > number)):
        place -= 1
    if place == len(scores):
        return count
    count = min(count + 1, len(scores))
    for k in range(count - 1, place, -1):
        scores[k], ids[k] = scores[k - 1], ids[k - 1]
    scores[place], ids[place] = score, number
    return count


@alone
def _find(known: NDArray[np.int32], start: int, stop: int, wanted: int) -> int:
    """Where in the sorted known[start:stop] it is, or -1."""
    end = stop
    while start < stop:
        middle = (start + stop) // 2
        if known[middle] < wanted:
            start = middle + 1
        else:
            stop = middle
    return start if start < end and known[start] == wanted else -1


@alone
def _exactly(
    kind: int,
    margin: Any,
    tables: tuple[Floats, ...],
    queries: Floats,
    b: int,
    view: int,
    n: int,
    exact: Floats,
    asked: Ids,
) -> Any:
    """The score of a view; those of the tables that it sums are kept, as other views may want them too."""
    value = np.float32(0)
    for t in range(len(tables)):
        if view & (1 << t):
            if asked[t, n] != b:
                exact[t, n] = _score(kind, margin, queries[t, b], tables[t][n])
                asked[t, n] = b
            value += exact[t, n]
    return value


@alone
def _ceiling(ceilings: Floats, b: int, view: int, n: int) -> Any:
    """Of a view: those of its tables, summed."""
    value = np.float32(0)
    for t in range(len(ceilings)):
        if view & (1 << t):
            value += ceilings[t, b, n]
    return value


@alone
def _top(values: Floats, start: int) -> Any:
    """The highest of a group; a loop of a fixed length is vectorised."""
    value = LOWEST
    for n in range(GROUP):
        value = max(value, values[start + n])
    return value


@alone
def _top_of_sum(left: Floats, right: Floats, start: int) -> Any:
    value = LOWEST
    for n in range(GROUP):
        value = max(value, left[start + n] + right[start + n])
    return value


@alone
def _highest(ceilings: Floats, b: int, view: int, highest: Floats) -> None:
    """The best ceiling of each group; a view has one table or two."""
    left, right, entities = -1, -1, ceilings.shape[2]
    for t in range(len(ceilings)):
        if view & (1 << t):
            left, right = (t, right) if left < 0 else (left, t)
    one, other, whole = ceilings[left, b], ceilings[max(right, 0), b], entities // GROUP
    for g in range(whole):
        highest[g] = _top(one, g * GROUP) if right < 0 else _top_of_sum(one, other, g * GROUP)
    highest[whole:] = LOWEST
    for n in range(whole * GROUP, entities):
        highest[whole] = max(highest[whole], _ceiling(ceilings, b, view, n))


@alone
def _first_of_highest(highest: Floats, tops: Floats) -> int:
    """The group with the best ceiling; `tops` has the best of each block of groups. A few are asked for: to sort them
    all would take longer."""
    block, value = 0, LOWEST
    for start in range(0, len(tops), GROUP):
        top = _top(tops, start)
        if top > value:
            block, value = start, top
    while tops[block] != value:
        block += 1
    g = block * GROUP
    while highest[g] != value:
        g += 1
    return g


@alone
def _take(ceilings: Floats, b: int, view: int, g: int, taken: Ids, mark: int) -> tuple[int, Any]:
    """The entity of a group with the best ceiling of those not yet taken; it is now. And the best ceiling then left."""
    chosen, best, second = -1, LOWEST, LOWEST
    for n in range(g * GROUP, min(len(taken), (g + 1) * GROUP)):
        if taken[n] != mark:
            ceiling = _ceiling(ceilings, b, view, n)
            if ceiling > best or chosen < 0:
                chosen, best, second = n, ceiling, best
            elif ceiling > second:
                second = ceiling
    taken[chosen] = mark
    return chosen, second


@alone
def best_few(
    kind: int,
    margin: float,
    tables: tuple[Floats, ...],
    codes: tuple[NDArray[np.uint8], ...],
    errors: Floats,
    queries: Floats,
    query_codes: NDArray[np.uint8],
    terms: NDArray[np.float64],
    views: Ids,
    starts: Ids,
    stops: Ids,
    known: NDArray[np.int32],
    new_only: NDArray[np.bool_],
    top: int,
) -> tuple[NDArray[np.int32], Floats, Ids]:
    """(batch, views, top) each: ids of the best, -1 where there are no more; scores; places in `known`, -1 for new.

    tables, codes: per table (entities, width), and as bytes; errors (tables, entities); queries (tables, batch, width),
    query_codes likewise; terms (tables, batch, 3) for the ceilings. A view is the sum of the tables whose bits it has.
    """
    batch, entities, rim = len(starts), len(tables[0]), np.float32(margin)
    ids = np.full((batch, len(views), top), -1, dtype=np.int32)
    scores = np.full((batch, len(views), top), LOWEST, dtype=np.float32)
    places = np.full((batch, len(views), top), -1, dtype=np.int64)
    ceilings = np.empty((len(tables), min(batch, TOGETHER), entities), dtype=np.float32)
    exact = np.empty((len(tables), entities), dtype=np.float32)
    asked = np.full((len(tables), entities), -1, dtype=np.int64)  # the question that `exact` was last filled in for
    taken = np.full(entities, -1, dtype=np.int64)  # the question and view for which an entity was scored last
    groups = (entities - 1) // GROUP + 1
    blocks = (groups - 1) // GROUP + 1
    highest = np.empty(blocks * GROUP, dtype=np.float32)
    tops = np.full(((blocks - 1) // GROUP + 1) * GROUP, LOWEST, dtype=np.float32)  # the best group of each block
    for first in range(0, batch, TOGETHER):
        last = min(batch, first + TOGETHER)
        for t in range(len(tables)):
            _ceilings(kind, codes[t], errors[t], query_codes[t, first:last], terms[t, first:last], ceilings[t])
        for b in range(first, last):
            if new_only[b]:
                for k in range(starts[b], stops[b]):
                    ceilings[:, b - first, known[k]] = LOWEST
            for v in range(len(views)):
                _highest(ceilings, b - first, views[v], highest)
                for block in range(blocks):
                    tops[block] = _top(highest, block * GROUP)
                best, best_ids, count = scores[b, v], ids[b, v], 0
                while True:
                    g = _first_of_highest(highest, tops)
                    if highest[g] < best[-1] or highest[g] <= LOWEST:
                        break
                    n, highest[g] = _take(ceilings, b - first, views[v], g, taken, b * len(views) + v)
                    tops[g // GROUP] = _top(highest, g // GROUP * GROUP)
                    score = _exactly(kind, rim, tables, queries, b, views[v], n, exact, asked)
                    count = _insert(best, best_ids, count, score, n)
                for k in range(count):
                    places[b, v, k] = _find(known, starts[b], stops[b], best_ids[k])
    return ids, scores, places
