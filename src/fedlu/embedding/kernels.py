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
