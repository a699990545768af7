"""The hot loops, compiled by Numba at first use and cached on disk: no compiler is needed on the user's machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import prange
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Numba's decorator has no types; this keeps those of the function."""
    return cast(Function, numba.njit(parallel=True, cache=True, nogil=True)(function))


@_compiled
def count_competitors(
    scores: NDArray[np.floating[Any]],
    targets: NDArray[np.int64],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    known: NDArray[np.int32],
) -> NDArray[np.int64]:
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
