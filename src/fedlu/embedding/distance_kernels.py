"""Loops over every pair of a query and an entity: distances and their gradients, in tiles that stay in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fedlu.embedding.kernels import PARTS, TINY, Floats, estimated, fast, inline, sum_parts

TILE, BLOCK, COLUMNS = 128, 32, 8
"""How many entities, queries and columns a thread takes at once: as many as stay in the nearest caches."""


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


@fast
def l1_distances(queries: Floats, entities: Floats) -> Floats:
    """(batch, n): the L1 distance of queries (batch, dim) to entities (n, dim).

    A tile of entities meets a block of queries, whose sums stay in the nearest cache; and several columns are added at
    once, so that a sum is loaded and stored less often.
    """
    batch, dim = queries.shape
    tiles, blocks = _tiles(entities), (batch + BLOCK - 1) // BLOCK
    distances = np.empty((batch, len(entities)), dtype=np.float32)
    for job in prange(len(tiles) * blocks):
        tile, first = tiles[job // blocks], job % blocks * BLOCK
        sums = np.zeros((min(BLOCK, batch - first), TILE), dtype=np.float32)
        for k in range(0, dim - 3, 4):
            e0, e1, e2, e3 = tile[k], tile[k + 1], tile[k + 2], tile[k + 3]
            for b in range(len(sums)):
                query, total = queries[first + b], sums[b]
                q0, q1, q2, q3 = query[k], query[k + 1], query[k + 2], query[k + 3]
                for n in range(TILE):
                    total[n] += (abs(q0 - e0[n]) + abs(q1 - e1[n])) + (abs(q2 - e2[n]) + abs(q3 - e3[n]))
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

    Both in one pass, since each difference serves both. The batch is cut into a fixed number of parts with sums of
    their own for the entities, so no two threads write the same row, and the result does not depend on the threads.
    """
    batch, dim = queries.shape
    for_queries = np.zeros((batch, dim), dtype=np.float32)
    sums = np.zeros((PARTS, len(entities), dim), dtype=np.float32)
    for part in prange(PARTS):
        for b in range(part * batch // PARTS, (part + 1) * batch // PARTS):
            query, mine = queries[b], for_queries[b]
            for n in range(len(entities)):
                entity, slope, theirs = entities[n], slopes[b, n], sums[part, n]
                for k in range(dim):
                    step = slope if query[k] > entity[k] else -slope
                    mine[k] += step
                    theirs[k] -= step
    return for_queries, sum_parts(sums)


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
