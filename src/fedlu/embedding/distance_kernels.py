"""Loops over every pair of a query and an entity: distances and their gradients, in tiles that stay in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fedlu.embedding.compiling import estimated, fast, in_order, inline, wide_vectors
from fedlu.embedding.kernels import PARTS, TINY, Floats

TILE, BLOCK, COLUMNS = 128, 32, 8
"""How many entities, queries and columns a thread takes at once: as many as stay in the nearest caches."""
GROUP = 16
"""Queries, where a column is summed over all entities."""


@fast
def _tiles(entities: Floats) -> Floats:
    """(tiles, dim, TILE): entities side by side, so that a loop over them is vectorised; zeros fill the last tile.

    All places of a tile go through the same instructions, so entities with equal rows get equal distances, to the bit.
    """
    number, dim = entities.shape
    tiles = np.zeros(((number + TILE - 1) // TILE, dim, TILE), dtype=np.float32)
    for tile in prange(len(tiles)):
        for n in range(min(TILE, number - tile * TILE)):
            for k in range(dim):
                tiles[tile, k, n] = entities[tile * TILE + n, k]
    return tiles


@in_order
def l1_distances(queries: Floats, entities: Floats) -> Floats:
    """(batch, n): the L1 distance of queries (batch, dim) to entities (n, dim).

    A tile of entities meets a block of queries, whose sums stay in the nearest cache; and several columns are added at
    once, so that a sum is loaded and stored less often. The order of the sums is as written, whatever the vectors.
    """
    batch, dim = queries.shape
    tiles, blocks = _tiles(entities), (batch + BLOCK - 1) // BLOCK
    distances = np.empty((batch, len(entities)), dtype=np.float32)
    for job in prange(len(tiles) * blocks):
        wide_vectors()
        tile, first = tiles[job // blocks], job % blocks * BLOCK
        sums = np.zeros((min(BLOCK, batch - first), TILE), dtype=np.float32)
        for k in range(0, dim - 3, 4):
            e0, e1, e2, e3 = tile[k], tile[k + 1], tile[k + 2], tile[k + 3]
            for b in range(len(sums)):
                query, total = queries[first + b], sums[b]
                q0, q1, q2, q3 = query[k], query[k + 1], query[k + 2], query[k + 3]
                for n in range(TILE):
                    total[n] = (total[n] + abs(q0 - e0[n])) + ((abs(q1 - e1[n]) + abs(q2 - e2[n])) + abs(q3 - e3[n]))
        for k in range(dim // 4 * 4, dim):
            for b in range(len(sums)):
                for n in range(TILE):
                    sums[b, n] += abs(queries[first + b, k] - tile[k, n])
        _place(sums, distances, first, job // blocks * TILE)
    return distances


@inline
def _place(sums: Any, distances: Any, first: Any, column: Any) -> None:
    """Write the sums of a block and a tile where they belong; those of the zeros that fill the tile are left out."""
    for b in range(len(sums)):
        for n in range(min(TILE, distances.shape[1] - column)):
            distances[first + b, column + n] = sums[b, n]


@fast
def l1_gradients(queries: Floats, entities: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    """((batch, dim), (n, dim)): the gradients for queries and entities; slopes (batch, n) is that for the distances.

    The gradient of |q - e| is 1 where q is above e and -1 elsewhere: twice the slopes where it is above, minus all. So
    only those are summed, for both in one pass, entities side by side. The batch is cut into a fixed number of parts
    with sums of their own for the entities, so no two threads write the same row, and the result does not depend on
    the threads.
    """
    batch, dim = queries.shape
    number, two = len(entities), np.float32(2)
    across, for_queries = np.ascontiguousarray(entities.T), np.empty((batch, dim), dtype=np.float32)
    above = np.zeros((PARTS, dim, number), dtype=np.float32)
    for part in prange(PARTS):
        first, last = part * batch // PARTS, (part + 1) * batch // PARTS
        for start in range(first, last, GROUP):  # their slopes stay in the nearest cache
            stop = min(start + GROUP, last)
            fours = start + (stop - start) // 4 * 4
            for k in range(dim):
                entity, mine = across[k], above[part, k]
                for b in range(start, fours, 4):
                    _sum_above_of_four(queries, entity, slopes, for_queries, mine, b, k)
                for b in range(fours, stop):
                    for_queries[b, k] = _sum_above(queries[b, k], entity, slopes[b], mine)
    in_all = np.zeros(number, dtype=np.float32)
    for b in range(batch):
        for n in range(number):
            in_all[n] += slopes[b, n]
    for b in prange(batch):
        total = np.float32(0)
        for n in range(number):
            total += slopes[b, n]
        for k in range(dim):
            for_queries[b, k] = two * for_queries[b, k] - total
    for_entities = np.empty((number, dim), dtype=np.float32)
    for n in prange(number):
        for k in range(dim):
            total = in_all[n]
            for part in range(PARTS):
                total -= two * above[part, k, n]
            for_entities[n, k] = total
    return for_queries, for_entities


@inline
def _sum_above(query: Any, entity: Any, slopes: Any, above: Any) -> Any:
    """The sum of the slopes of entities that the query is above of, in one column; each is added to `above`, too."""
    none = np.float32(0)
    total = none
    for n in range(len(entity)):
        step = slopes[n] if query > entity[n] else none
        total += step
        above[n] += step
    return total


@inline
def _sum_above_of_four(queries: Any, entity: Any, slopes: Any, for_queries: Any, above: Any, b: Any, k: Any) -> None:
    """The same for four queries from b on, so that `above` is loaded and stored once for all."""
    q0, q1, q2, q3 = queries[b, k], queries[b + 1, k], queries[b + 2, k], queries[b + 3, k]
    s0, s1, s2, s3 = slopes[b], slopes[b + 1], slopes[b + 2], slopes[b + 3]
    none = np.float32(0)
    m0, m1, m2, m3 = none, none, none, none
    for n in range(len(entity)):
        x = entity[n]
        p0 = s0[n] if q0 > x else none
        p1 = s1[n] if q1 > x else none
        p2 = s2[n] if q2 > x else none
        p3 = s3[n] if q3 > x else none
        m0 += p0
        m1 += p1
        m2 += p2
        m3 += p3
        above[n] += (p0 + p1) + (p2 + p3)
    for_queries[b, k], for_queries[b + 1, k] = m0, m1
    for_queries[b + 2, k], for_queries[b + 3, k] = m2, m3


@estimated
def modulus_distances(queries: Floats, entities: Floats) -> Floats:
    """(batch, n): the sum of the moduli of complex differences, in tiles and blocks as `l1_distances`.

    Of two roots, one is taken by the divider, the other by the multipliers (an estimate of the reciprocal root, and
    Newton's step), which work side by side. Were it x / sqrt(x), the compiler would make a root of it again.
    """
    batch, half = queries.shape[0], queries.shape[1] // 2
    tiles, blocks = _tiles(entities), (batch + BLOCK - 1) // BLOCK
    distances = np.empty((batch, len(entities)), dtype=np.float32)
    one, tiny, as_tiny = np.float32(1), np.float32(TINY), np.float32(TINY * (1 + 1e-7))
    for job in prange(len(tiles) * blocks):
        tile, first = tiles[job // blocks], job % blocks * BLOCK
        sums = np.zeros((min(BLOCK, batch - first), TILE), dtype=np.float32)
        for k in range(0, half - 1, 2):
            x0, y0, x1, y1 = tile[k], tile[half + k], tile[k + 1], tile[half + k + 1]
            for b in range(len(sums)):
                query, total = queries[first + b], sums[b]
                u0, v0, u1, v1 = query[k], query[half + k], query[k + 1], query[half + k + 1]
                for n in range(TILE):
                    square = (u0 - x0[n]) * (u0 - x0[n]) + (v0 - y0[n]) * (v0 - y0[n])
                    other = (u1 - x1[n]) * (u1 - x1[n]) + (v1 - y1[n]) * (v1 - y1[n])
                    total[n] += np.sqrt(square + tiny) + (other + as_tiny) * (one / np.sqrt(other + tiny))
        for k in range(half // 2 * 2, half):
            for b in range(len(sums)):
                for n in range(TILE):
                    real = queries[first + b, k] - tile[k, n]
                    imaginary = queries[first + b, half + k] - tile[half + k, n]
                    sums[b, n] += np.sqrt(real * real + imaginary * imaginary + tiny)
        _place(sums, distances, first, job // blocks * TILE)
    return distances


@estimated
def modulus_gradients(queries: Floats, entities: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    """((batch, dim), (n, dim)): as `l1_gradients`, but column by column: a query's sum stays in a register, and since
    each column is one thread's, no sums are kept apart."""
    batch, half = queries.shape[0], queries.shape[1] // 2
    columns = np.ascontiguousarray(entities.T)
    for_queries = np.empty((batch, 2 * half), dtype=np.float32)
    for_columns = np.zeros(columns.shape, dtype=np.float32)
    tiny = np.float32(TINY)
    for chunk in prange((half + COLUMNS - 1) // COLUMNS):
        for first in range(0, batch, BLOCK):  # the slopes of a block stay in the cache for all columns of the chunk
            for k in range(chunk * COLUMNS, min(half, chunk * COLUMNS + COLUMNS)):
                x, y, for_x, for_y = columns[k], columns[half + k], for_columns[k], for_columns[half + k]
                for b in range(first, min(batch, first + BLOCK)):
                    u, v, slope = queries[b, k], queries[b, half + k], slopes[b]
                    for_u, for_v = np.float32(0), np.float32(0)
                    for n in range(len(entities)):
                        real, imaginary = u - x[n], v - y[n]
                        scale = slope[n] / np.sqrt(real * real + imaginary * imaginary + tiny)
                        real *= scale
                        imaginary *= scale
                        for_u += real
                        for_v += imaginary
                        for_x[n] -= real
                        for_y[n] -= imaginary
                    for_queries[b, k], for_queries[b, half + k] = for_u, for_v
    return for_queries, np.ascontiguousarray(for_columns.T)
