"""What keeps rows small, or near others: gradients that are added to those of the loss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedlu.embedding import row_kernels
from fedlu.embedding.kernels import Floats, Ids
from fedlu.embedding.scorers import Rows

ALONE, TOGETHER = 0.5, 1.5
"""How much the sizes of entity rows and those of their products with the relation weigh in `add_dura_gradients`."""

Pull = Callable[[Ids, Floats], Floats]
"""From the ids and values of some rows to an addition to their gradient."""


def add_cubic_gradients(
    found: Rows, rows: Rows, strength: float, *, complex_rows: bool, relations_are_phases: bool
) -> Rows:
    """To what was found, that of the mean over a batch of strength * (|anchor|^3 + |relation|^3 + |answer|^3), N3
    (Lacroix et al. 2018). No regulariser moves negatives."""
    share = strength / len(rows.anchors)
    relations = found.relations  # an angle has no size to keep small
    if not relations_are_phases:
        relations = row_kernels.add_cubic(relations, rows.relations, share, complex_rows)
    return Rows(
        row_kernels.add_cubic(found.anchors, rows.anchors, share, complex_rows),
        relations,
        row_kernels.add_cubic(found.answers, rows.answers, share, complex_rows),
        found.negatives,
    )


def add_dura_gradients(found: Rows, rows: Rows, strength: float, *, complex_rows: bool) -> Rows:
    """To what was found, that of the mean over a batch of strength * (ALONE (|a|^2 + |b|^2) + TOGETHER (|a r|^2 +
    |b r|^2)), where r relates a to b: DURA (Zhang et al. 2020). What is kept small is a query, a r, and its answer, b.
    """
    share, alone, together = np.float32(2 * strength / len(rows.anchors)), np.float32(ALONE), np.float32(TOGETHER)
    stretch = share * (alone + together * _squares(rows.relations, complex_rows))
    ends = _squares(rows.anchors, complex_rows) + _squares(rows.answers, complex_rows)
    return Rows(
        found.anchors + stretch * rows.anchors,
        found.relations + share * together * ends * rows.relations,
        found.answers + stretch * rows.answers,
        found.negatives,
    )


def _squares(rows: Floats, complex_rows: bool) -> Floats:
    """|x|^2 at the place of every x, or of both its parts."""
    squares = rows**2
    if complex_rows:
        half = rows.shape[1] // 2
        squares[:, :half] += squares[:, half:]
        squares[:, half:] = squares[:, :half]
    return squares


def proximal_pull(strength: float, anchor: Floats) -> Pull:
    """FedProx: the gradient of strength / 2 * |row - the global row of this round|^2."""
    return lambda rows, values: row_kernels.pull_back(values, rows, anchor, strength)


def contrastive_pull(strength: float, temperature: float, current: Floats, previous: Floats) -> Pull:
    """FedEC: a row is to be like the global row of this round, and unlike its own of the round before.

    -log(e^{a} / (e^{a} + e^{b})), where a and b are cosine similarities over the temperature; a mean over the rows.
    """

    return lambda rows, values: row_kernels.contrast(values, rows, current, previous, strength / len(rows), temperature)
