"""The loops over rows of tables: taken, summed, moved by an optimizer, pulled back by a regulariser."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fedlu.embedding.compiling import compiled, fast, inline
from fedlu.embedding.kernels import TINY, Floats, Ids


@fast
def take_rows(table: Floats, rows: Ids) -> Floats:
    """(rows, dim): copies of some rows."""
    taken = np.empty((len(rows), table.shape[1]), dtype=np.float32)
    for i in prange(len(rows)):
        row, copy = table[rows[i]], taken[i]
        for k in range(len(copy)):  # as `taken[i] = table[rows[i]]` it takes twice as long
            copy[k] = row[k]
    return taken


@inline
def _sum_into(total: Any, first: Any, second: Any, third: Any, order: Any, start: Any, stop: Any) -> None:
    """The sum of the rows order[start:stop] of three tables on end."""
    for at in range(start, stop):
        place = order[at]
        if place < len(first):
            row = first[place]
        elif place < len(first) + len(second):
            row = second[place - len(first)]
        else:
            row = third[place - len(first) - len(second)]
        if at == start:
            for k in range(len(total)):
                total[k] = row[k]
        else:
            for k in range(len(total)):
                total[k] += row[k]


@fast
def sum_rows(first: Floats, second: Floats, third: Floats, order: Ids, starts: Ids) -> Floats:
    """(groups, dim): sums of rows[order[starts[g]:starts[g + 1]]], where the rows are those of three tables on end."""
    sums = np.empty((len(starts) - 1, first.shape[1]), dtype=np.float32)
    for g in prange(len(sums)):
        _sum_into(sums[g], first, second, third, order, starts[g], starts[g + 1])
    return sums


@fast
def pull_back(values: Floats, rows: Ids, home: Floats, strength: float) -> Floats:
    """(rows, dim): strength times the way from home[rows] to the values."""
    gradient, size = np.empty_like(values), np.float32(strength)
    for i in prange(len(rows)):
        mine, there, out = values[i], home[rows[i]], gradient[i]
        for k in range(len(out)):
            out[k] = size * (mine[k] - there[k])
    return gradient


@fast
def contrast(
    values: Floats, rows: Ids, current: Floats, previous: Floats, strength: float, temperature: float
) -> Floats:
    """(rows, dim): the gradient of strength * -log(e^a / (e^a + e^b)) for each row, where a and b are its cosines with
    current[rows] and with previous[rows], over the temperature."""
    gradient, tiny, one = np.empty_like(values), np.float32(TINY), np.float32(1)
    size, inverse = np.float32(strength), np.float32(1 / temperature)
    for i in prange(len(rows)):
        mine, good, bad, out = values[i], current[rows[i]], previous[rows[i]], gradient[i]
        own, of_good, of_bad, like, unlike = tiny, tiny, tiny, np.float32(0), np.float32(0)
        for k in range(len(mine)):
            own += mine[k] * mine[k]
            of_good += good[k] * good[k]
            of_bad += bad[k] * bad[k]
            like += mine[k] * good[k]
            unlike += mine[k] * bad[k]
        own, of_good, of_bad = one / np.sqrt(own), one / np.sqrt(of_good), one / np.sqrt(of_bad)
        like, unlike = like * own * of_good, unlike * own * of_bad
        doubt = one / (one + np.exp((like - unlike) * inverse))  # the probability given to the bad one
        scale = size * doubt * own * inverse
        for k in range(len(mine)):
            out[k] = scale * (of_bad * bad[k] - of_good * good[k] + (like - unlike) * own * mine[k])
    return gradient


@compiled
def add_cubic(gradient: Floats, rows: Floats, strength: float, complex_rows: bool) -> Floats:
    """(rows, dim): the gradient, and that of strength * sum |x|^3, with the modulus of complex numbers."""
    found, size, half = np.empty_like(rows), np.float32(3 * strength), rows.shape[1] // 2
    for i in prange(len(rows)):
        x, known, out = rows[i], gradient[i], found[i]
        if complex_rows:
            for k in range(half):
                length = size * np.sqrt(x[k] * x[k] + x[half + k] * x[half + k])
                out[k] = known[k] + length * x[k]
                out[half + k] = known[half + k] + length * x[half + k]
        else:
            for k in range(len(x)):
                out[k] = known[k] + size * np.sqrt(x[k] * x[k]) * x[k]
    return found


@compiled
def adam_step(
    table: Floats,
    mean: Floats,
    square: Floats,
    rows: Ids,
    first: Floats,
    second: Floats,
    third: Floats,
    order: Ids,
    starts: Ids,
    rate: float,
    step: int,
) -> None:
    """Adam on some rows of a table, in place; moments of other rows stay as they are. The gradient of each is a sum, as
    in `sum_rows`, which never leaves the nearest cache."""
    decay, slow, tiny = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
    one = np.float32(1)
    size = np.float32(rate / (1 - 0.9**step))
    root = np.float32(1 / np.sqrt(1 - 0.999**step))
    for i in prange(len(rows)):
        gradient = np.empty(table.shape[1], dtype=np.float32)
        _sum_into(gradient, first, second, third, order, starts[i], starts[i + 1])
        row, m, v = table[rows[i]], mean[rows[i]], square[rows[i]]
        for k in range(len(gradient)):
            m[k] = decay * m[k] + (one - decay) * gradient[k]
            v[k] = slow * v[k] + (one - slow) * gradient[k] * gradient[k]
            row[k] -= size * m[k] / (np.sqrt(v[k]) * root + tiny)


@compiled
def adagrad_step(
    table: Floats,
    square: Floats,
    rows: Ids,
    first: Floats,
    second: Floats,
    third: Floats,
    order: Ids,
    starts: Ids,
    rate: float,
) -> None:
    """Adagrad on some rows of a table, in place; gradients as above."""
    size, tiny = np.float32(rate), np.float32(1e-10)
    for i in prange(len(rows)):
        gradient = np.empty(table.shape[1], dtype=np.float32)
        _sum_into(gradient, first, second, third, order, starts[i], starts[i + 1])
        row, v = table[rows[i]], square[rows[i]]
        for k in range(len(gradient)):
            v[k] += gradient[k] * gradient[k]
            row[k] -= size * gradient[k] / (np.sqrt(v[k]) + tiny)
