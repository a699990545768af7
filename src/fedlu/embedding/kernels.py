"""The hot loops, compiled by Numba at first use and cached on disk: no compiler is needed on the user's machine.

Everything here is plain arrays in, arrays out, in float32 unless said otherwise. The formulas that these loops speed up
stand in `scorers.py` and `losses.py`; the tests hold the two to each other.

Complex numbers are stored as halves: a row of width 2 h holds h real parts, then h imaginary parts.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import prange
from numpy.typing import NDArray

from fedlu.embedding.compiling import compiled, fast, inline

Floats: TypeAlias = NDArray[np.float32]
Ids: TypeAlias = NDArray[np.int64]

TINY = 1e-12
"""Added under a square root, so that the distance of equal rows has a gradient (zero)."""
PARTS = 4
"""Into how many parts a batch is cut where threads would write the same rows."""


def keep_freed_memory() -> None:
    """glibc gives the memory of large arrays back to the system, and each step then waits to get it again, zeroed, for
    a sixth of its time. How much it keeps, it learns from the largest array that it saw freed; this is never touched.
    """
    np.empty(31 << 20, dtype=np.uint8)


keep_freed_memory()


# --- ranking -----------------------------------------------------------------------------------------------------


@compiled
def count_competitors(
    scores: NDArray[np.floating[Any]], targets: Ids, starts: Ids, stops: Ids, known: NDArray[np.int32]
) -> Ids:
    """(batch, 3): how many entities score above the target, how many equal it, and how many there are in all.

    scores (batch, entities); targets (batch,): a column each; known[starts[i]:stops[i]]: the columns of row i that are
    true answers and do not compete (the target may be among them; negative numbers are passed over). The target itself
    is not counted. A row with NaN gets -1 three times. Nothing is written to the scores, so no mask is ever built.
    """
    batch, entities = scores.shape
    counts = np.empty((batch, 3), dtype=np.int64)
    for i in prange(batch):
        row, mine = scores[i], scores[i, targets[i]]
        above, below = np.int32(0), np.int32(0)
        for j in range(entities):  # kept this plain so that it is vectorised
            above += row[j] > mine
            below += row[j] < mine
        equal, total = np.int32(0), entities - 1
        for j in range(entities):
            equal += row[j] == mine
        if above + below + equal != entities:  # NaN compares with nothing
            counts[i, :] = -1
            continue
        equal -= 1  # the target itself
        for k in range(starts[i], stops[i]):
            column = known[k]
            if column >= 0 and column != targets[i]:
                total -= 1
                if row[column] > mine:
                    above -= 1
                elif row[column] == mine:
                    equal -= 1
        counts[i, 0], counts[i, 1], counts[i, 2] = above, equal, total
    return counts


@fast
def sum_parts(sums: Floats) -> Floats:
    """(rows, dim): the sum over the first axis, always in the same order."""
    total = np.empty(sums.shape[1:], dtype=np.float32)
    for row in prange(sums.shape[1]):
        for k in range(sums.shape[2]):
            value = np.float32(0)
            for part in range(sums.shape[0]):
                value += sums[part, row, k]
            total[row, k] = value
    return total


# --- queries ----------------------------------------------------------------------------------------------------


@fast
def complex_product(left: Floats, right: Floats, conjugate: bool) -> Floats:
    """(batch, dim): row by row, left times right, or left times the conjugate of right."""
    batch, half = left.shape[0], left.shape[1] // 2
    product = np.empty_like(left)
    sign = np.float32(-1 if conjugate else 1)
    for b in prange(batch):
        x, y, out = left[b], right[b], product[b]
        for k in range(half):
            imaginary = sign * y[half + k]
            out[k] = x[k] * y[k] - x[half + k] * imaginary
            out[half + k] = x[k] * imaginary + x[half + k] * y[k]
    return product


@fast
def complex_product_gradients(slopes: Floats, left: Floats, right: Floats, conjugate: bool) -> tuple[Floats, Floats]:
    """(batch, dim) twice: from the gradient of a product as above to those of left and right, in one pass.

    q = x y: dx = dq conj(y), dy = dq conj(x); q = x conj(y): dx = dq y, dy = x conj(dq).
    """
    batch, half = left.shape[0], left.shape[1] // 2
    for_left, for_right = np.empty_like(left), np.empty_like(right)
    sign = np.float32(-1 if conjugate else 1)
    for b in prange(batch):
        dq, x, y, dx, dy = slopes[b], left[b], right[b], for_left[b], for_right[b]
        for k in range(half):
            dx[k] = dq[k] * y[k] + sign * dq[half + k] * y[half + k]
            dx[half + k] = dq[half + k] * y[k] - sign * dq[k] * y[half + k]
            dy[k] = dq[k] * x[k] + dq[half + k] * x[half + k]
            dy[half + k] = sign * (dq[half + k] * x[k] - dq[k] * x[half + k])
    return for_left, for_right


# --- losses: column 0 is the positive, the others are its negatives ----------------------------------------------


@inline
def _exp(x: Any) -> Any:
    """exp of a float32, to its precision, without a call: a loop over it is vectorised, five times as fast."""
    x = max(min(x, np.float32(80.0)), np.float32(-80.0))
    power = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    rest = (x - power * np.float32(0.693359375)) + power * np.float32(2.12194440e-4)  # x - power * log 2, in two parts
    series = np.float32(1.9875691500e-4)  # Cephes' polynomial on [-log 2 / 2, log 2 / 2]
    series = series * rest + np.float32(1.3981999507e-3)
    series = series * rest + np.float32(8.3334519073e-3)
    series = series * rest + np.float32(4.1665795894e-2)
    series = series * rest + np.float32(1.6666665459e-1)
    series = series * rest + np.float32(5.0000001201e-1)
    series = series * rest * rest + rest + np.float32(1.0)
    scale = np.int32((np.int32(power) + np.int32(127)) << np.int32(23))
    return series * scale.view(np.float32)


@inline
def _log1p(x: Any) -> Any:
    """log(1 + x) of a float32 in [0, 1], by the series of 2 artanh(x / (2 + x)), vectorised likewise."""
    z = x / (np.float32(2.0) + x)
    square = z * z
    series = np.float32(1 / 13)
    for coefficient in (1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0):
        series = series * square + np.float32(coefficient)
    return np.float32(2.0) * z * series


@inline
def _softmax(row: Any, hidden: Any, inverse: Any, out: Any) -> None:
    top = row[0]  # of what is not masked: a masked place may score far above the rest
    for k in range(len(row)):
        top = max(top, row[0] if hidden[k] else row[k])
    total = np.float32(0)
    for k in range(len(row)):
        value = _exp((row[k] - top) * inverse) * np.float32(not hidden[k])
        out[k] = value
        total += value
    for k in range(len(row)):
        out[k] /= total


@fast
def probabilities(scores: Floats, masked: NDArray[np.bool_], temperature: float) -> Floats:
    """(batch, 1 + n): softmax of each row of scores / temperature; masked places get zero."""
    result = np.empty_like(scores)
    inverse = np.float32(1 / temperature)
    for b in prange(len(scores)):
        _softmax(scores[b], masked[b], inverse, result[b])
    return result


@fast
def add_distillation(
    slopes: Floats,
    avatar_slopes: Floats,
    local: Floats,
    avatar: Floats,
    masked: NDArray[np.bool_],
    weights: Floats,
    temperature: float,
    to_local: float,
    to_avatar: float,
) -> None:
    """Add to the slopes of each table, so many times, what the other teaches it: weight * (its softmax - the other's).

    All (batch, 1 + n) but the weights (batch,). In one pass: four passes over scores would take longer than the rest.
    """
    width, inverse = local.shape[1], np.float32(1 / temperature)
    for b in prange(len(local)):
        mine, theirs = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
        _softmax(local[b], masked[b], inverse, mine)
        _softmax(avatar[b], masked[b], inverse, theirs)
        for_local, for_avatar = np.float32(to_local * weights[b]), np.float32(to_avatar * weights[b])
        for k in range(width):
            apart = mine[k] - theirs[k]
            slopes[b, k] += for_local * apart
            avatar_slopes[b, k] -= for_avatar * apart


@fast
def sigmoid_slopes(
    scores: Floats, masked: NDArray[np.bool_], weights: Floats, adversarial: float
) -> tuple[Floats, Floats]:
    """((batch, 1 + n), (batch,)): the gradient and the value of the weighted contrastive loss of each row.

    -log sigma(positive) - sum_j w_j log sigma(-negative_j), where w_j is uniform (adversarial 0: the paper's loss) or
    the softmax of adversarial * negative_j, which is taken as a constant. Masked negatives weigh nothing.
    """
    batch, width = scores.shape
    slopes, losses = np.empty_like(scores), np.empty(batch, dtype=np.float32)
    one, sharp = np.float32(1), np.float32(adversarial)
    for b in prange(batch):
        row, out, hidden = scores[b], slopes[b], masked[b]
        top = np.float32(-3e38)
        for k in range(1, width):
            top = max(top, np.float32(-3e38) if hidden[k] else row[k])
        total = np.float32(0)
        for k in range(1, width):
            value = _exp(sharp * (row[k] - top)) * np.float32(not hidden[k])
            out[k] = value
            total += value
        scale = weights[b] / max(total, np.float32(1e-30))
        loss = np.float32(0)
        for k in range(1, width):
            share = out[k] * scale
            # log(1 + e^x) and its slope from one exponential, safe for either sign
            small = _exp(-abs(row[k]))
            slope = one / (one + small) if row[k] > 0 else small / (one + small)
            loss += share * (max(row[k], np.float32(0)) + _log1p(small))
            out[k] = share * slope
        small = _exp(-abs(row[0]))
        slope = small / (one + small) if row[0] > 0 else one / (one + small)
        losses[b] = loss + weights[b] * (max(-row[0], np.float32(0)) + _log1p(small))
        out[0] = -weights[b] * slope
    return slopes, losses


# --- negatives ---------------------------------------------------------------------------------------------------


@fast
def drawn_together(scores: Floats, masked: NDArray[np.bool_], weights: Floats) -> tuple[Floats, Floats]:
    """((batch, 1 + n), (batch,)): the gradient and the value of weight * mean |positive - negative| of each row."""
    batch, width = scores.shape
    slopes, losses = np.empty_like(scores), np.empty(batch, dtype=np.float32)
    one, none = np.float32(1), np.float32(0)
    for b in prange(batch):
        row, out, hidden = scores[b], slopes[b], masked[b]
        number = none
        for k in range(1, width):
            number += none if hidden[k] else one
        share = weights[b] / max(number, one)
        total, loss = none, none
        for k in range(1, width):
            apart, counts = row[0] - row[k], none if hidden[k] else share
            step = counts * ((one if apart > 0 else none) - (one if apart < 0 else none))
            out[k] = -step
            total += step
            loss += counts * abs(apart)
        out[0], losses[b] = total, loss
    return slopes, losses


@compiled
def mark_known(
    slots: NDArray[np.int32], starts: Ids, stops: Ids, known: NDArray[np.int32], width: int
) -> NDArray[np.bool_]:
    """(batch, width): which columns of shared negatives are true answers of a query after all.

    slots (entities,) says in which column an entity stands, or -1: so the cost is that of walking
    over the known answers, never of searching for a negative among them.
    """
    marked = np.zeros((len(starts), width), dtype=np.bool_)
    for i in prange(len(starts)):
        for k in range(starts[i], stops[i]):
            slot = slots[known[k]]
            if slot >= 0:
                marked[i, slot] = True
    return marked


# --- rows --------------------------------------------------------------------------------------------------------


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
