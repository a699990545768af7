"""Who else depends on a row: how to move it for one triple and change the scores of the others least.

The score of every retained triple at a row changes along a gradient of its own. Of all moves d that lower the score of
one triple (gradient g) by the same amount, the one that changes those others least, in the sum of squares, is along
C^-1 g, with C the sum of their g' g'^T. For a row that is the mean of such products over the client's retained
triples, times the number of triples at the row: so directions that many depend on are avoided, and of the two ends of
a triple the one with fewer others goes most of the way. Where other owners share a row, their triples depend on it,
too: nobody knows which and how many, so a shared row weighs as if it had many times its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedlu.embedding.installation import products_alone
from fedlu.embedding.kernels import Floats, Ids
from fedlu.embedding.negatives import Sampler
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import Side
from fedlu.embedding.scorers import matrix_product
from fedlu.learning.local_training import Learner

ELSEWHERE = 16.0
"""How many times as many triples a shared row is taken to have as its owner sees."""


@dataclass(frozen=True)
class Bystanders:
    """The retained triples of a client, as they weigh on the rows of one table."""

    inverse: Floats  # (width, width): of the mean of g' g'^T
    others: Floats  # (entities,): retained triples at a row, and one; many times as many where it is shared
    multiply: Callable[[Floats, Floats], Floats]

    def spare(self, rows: Ids, gradient: Floats) -> Floats:
        """(batch, width): C^-1 g for the gradient g of each row."""
        found = self.multiply(gradient, self.inverse)
        found /= self.others[rows, None]
        return found


def bystanders(
    learner: Learner, table: Table, relations: Table, retained: Sampler, shared: Ids, *, seen: int, ridge: float
) -> Bystanders:
    """Of `table`, some rows of which are `shared` with other owners. The gradients of `seen` triples stand for all; the
    `ridge` is added to their mean product, as a part of its mean diagonal, so that no direction is quite free."""
    # models of products have torch loaded, whose threads are ours; to load it takes longer than to forget a triple
    multiply = matrix_product if learner.loss == "cross_entropy" else _product_alone
    random = np.random.default_rng(0)
    triples, width = retained.triples, table.values.shape[1]
    total = np.zeros((width, width))
    some = random.permutation(len(triples))[:seen]
    for side in Side if learner.reciprocal else (Side.TAIL,):  # else both sides have the same score
        for start in range(0, len(some), 1024):
            batch = retained.batch(some[start : start + 1024], side, random, 1)
            each = learner.forward(table, relations, batch)
            gradient = each.gradient(np.eye(1, each.scores.shape[1], dtype=np.float32).repeat(len(batch.answers), 0))
            for ends in (gradient.anchors, gradient.answers):
                total += multiply(ends.T, ends)
    size = float(np.trace(total)) / width or 1.0
    with products_alone():
        inverse = np.linalg.inv(total / size + ridge * np.eye(width))
    others = (np.bincount(triples[:, [0, 2]].ravel(), minlength=retained.known.entities) + 1).astype(np.float32)
    others[shared] *= ELSEWHERE
    return Bystanders(inverse.astype(np.float32), others, multiply)


def _product_alone(left: Floats, right: Floats) -> Floats:
    with products_alone():
        product: Floats = left @ right
    return product
