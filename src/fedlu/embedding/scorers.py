"""Models as a query and a comparison: an anchor and a relation make a query, which is compared with any entity.

    TransE    query  a + r  (tails),  a - r  (heads)          score  margin - |query - e|
    DistMult  query  a * r                                    score  <query, e>
    ComplEx   query  a r  (tails),  a conj(r)  (heads)        score  Re <query, conj(e)>
    RotatE    query  a e^{i r} (tails), a e^{-i r} (heads)    score  margin - sum of moduli of query - e

So head and tail prediction differ in the query alone, and one comparison serves training, ranking and prediction. Each
formula is written once with torch operations in `formulas.py`, for any device, through autograd; for the CPU, `Fused`
does the same here with the loops of `kernels.py` and gradients by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding import distance_kernels, kernels, private_kernels
from fedlu.embedding.kernels import TINY, Floats
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import Side
from fedlu.errors import InputError


@dataclass(frozen=True)
class Rows:
    """What a batch is scored from. Scores are (batch, 1 + n): the answer's, then those of the negatives.

    Negatives are shared by the batch; or, if there are `picks`, each query has those at its picks for its own.
    """

    anchors: Floats  # (batch, dim)
    relations: Floats  # (batch, relation dim)
    answers: Floats  # (batch, dim)
    negatives: Floats  # (n, dim)
    picks: NDArray[np.int32] | None = None  # (batch, n)


class Scorer(Protocol):
    """How a model computes; the tables are the caller's."""

    @property
    def parameters(self) -> Table | None:
        """What the model learns besides rows, as a table of one row; the models here have nothing of the kind."""
        ...

    def parameter_gradient(self) -> Floats | None:
        """(1, numbers): that of the last backward pass."""
        ...

    def begin(self, seed: int) -> None:
        """Before a round: whatever is random in the model is so by this seed."""
        ...

    def state(self) -> dict[str, Floats]:
        """What else the model remembers."""
        ...

    def restore(self, arrays: dict[str, Floats]) -> None: ...

    def forward(self, rows: Rows, side: Side) -> tuple[Floats, Callable[[Floats], Rows]]:
        """Scores (batch, 1 + n), and a function from their gradient to that of the rows."""
        ...

    def compare_all(self, anchors: Floats, relations: Floats, entities: Floats, side: Side) -> Floats:
        """(batch, entities): scores of every entity."""
        ...


@dataclass(frozen=True)
class Shape:
    """How wide the rows of a model are, for a given dimension, and what its formulas are."""

    entity_width: int  # times the dimension
    relation_width: int
    query: str
    comparison: str
    is_distance: bool


MODELS = {
    "TransE": Shape(1, 1, "translate", "l1", True),
    "TransE-L2": Shape(1, 1, "translate", "l2", True),
    "DistMult": Shape(1, 1, "multiply", "dot", False),
    "ComplEx": Shape(2, 2, "complex", "dot", False),
    "RotatE": Shape(2, 1, "rotate", "modulus", True),
}


def shape_of(model: str) -> Shape:
    if model not in MODELS:
        known = ", ".join(MODELS)
        raise InputError(f"no model {model!r}", remedy=f"choose one of {known}, or pykeen:NAME for one of PyKEEN's")
    return MODELS[model]


class Stateless:
    """The half of `Scorer` that is empty for a model of rows alone."""

    parameters: ClassVar[Table | None] = None

    def parameter_gradient(self) -> Floats | None:
        return None

    def begin(self, seed: int) -> None:
        pass

    def state(self) -> dict[str, Floats]:
        return {}

    def restore(self, arrays: dict[str, Floats]) -> None:
        pass


# --- fused: the same by hand ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fused(Stateless):
    """The models on the CPU, in float32."""

    model: str
    margin: float

    def forward(self, rows: Rows, side: Side) -> tuple[Floats, Callable[[Floats], Rows]]:
        shape = shape_of(self.model)
        make, unmake = QUERIES[shape.query]
        queries, memory = make(rows.anchors, rows.relations, side)
        products = shape.comparison == "dot" and rows.picks is None
        scores, unscore = (
            _score_products(queries, rows)
            if products
            else _score(queries, rows, shape.comparison, self.margin, shape.is_distance)
        )

        def backward(slopes: Floats) -> Rows:
            for_queries, for_answers, for_negatives = unscore(slopes)
            for_anchors, for_relations = unmake(for_queries, rows.anchors, memory, side)
            return Rows(for_anchors, for_relations, for_answers, for_negatives)

        return scores, backward

    def queries(self, anchors: Floats, relations: Floats, side: Side) -> Floats:
        """(batch, dim): what entities are compared with."""
        return QUERIES[shape_of(self.model).query][0](anchors, relations, side)[0]

    def compare_all(self, anchors: Floats, relations: Floats, entities: Floats, side: Side) -> Floats:
        shape, queries = shape_of(self.model), self.queries(anchors, relations, side)
        scores = COMPARISONS[shape.comparison][0](queries, entities)
        return np.subtract(np.float32(self.margin), scores, out=scores) if shape.is_distance else scores


Memory = Any
"""What the making of a query leaves for its gradient."""


def _translate(anchors: Floats, relations: Floats, side: Side) -> tuple[Floats, Memory]:
    return (anchors + relations if side == Side.TAIL else anchors - relations), None


def _untranslate(slopes: Floats, anchors: Floats, memory: Memory, side: Side) -> tuple[Floats, Floats]:
    return slopes, slopes if side == Side.TAIL else -slopes


def _multiply(anchors: Floats, relations: Floats, side: Side) -> tuple[Floats, Memory]:
    return anchors * relations, relations


def _unmultiply(slopes: Floats, anchors: Floats, relations: Memory, side: Side) -> tuple[Floats, Floats]:
    return slopes * relations, slopes * anchors


def _turn(anchors: Floats, relations: Floats, side: Side) -> tuple[Floats, Memory]:
    return kernels.complex_product(anchors, relations, side == Side.HEAD), relations


def _unturn(slopes: Floats, anchors: Floats, relations: Memory, side: Side) -> tuple[Floats, Floats]:
    return kernels.complex_product_gradients(slopes, anchors, relations, side == Side.HEAD)


def _rotate(anchors: Floats, phases: Floats, side: Side) -> tuple[Floats, Memory]:
    turns = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    return kernels.complex_product(anchors, turns, side == Side.HEAD), turns


def _unrotate(slopes: Floats, anchors: Floats, turns: Memory, side: Side) -> tuple[Floats, Floats]:
    for_anchors, for_turns = _unturn(slopes, anchors, turns, side)
    half = turns.shape[1] // 2  # d e^{ip} = i e^{ip} dp
    return for_anchors, for_turns[:, half:] * turns[:, :half] - for_turns[:, :half] * turns[:, half:]


QUERIES: dict[str, tuple[Callable[..., tuple[Floats, Memory]], Callable[..., tuple[Floats, Floats]]]] = {
    "translate": (_translate, _untranslate),
    "multiply": (_multiply, _unmultiply),
    "complex": (_turn, _unturn),
    "rotate": (_rotate, _unrotate),
}


def _dot(queries: Floats, entities: Floats) -> Floats:
    return matrix_product(queries, entities.T)


def _dot_gradient(queries: Floats, entities: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    return matrix_product(slopes, entities), matrix_product(slopes.T, queries)


def _l2(queries: Floats, entities: Floats) -> Floats:
    square = (queries**2).sum(1)[:, None] + (entities**2).sum(1) - 2 * matrix_product(queries, entities.T)
    return _root(np.maximum(square, 0))


def _l2_gradient(queries: Floats, entities: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    weights = slopes / _l2(queries, entities)  # d|q - e| = (q - e) / |q - e|
    for_queries = weights.sum(1)[:, None] * queries - matrix_product(weights, entities)
    return for_queries, weights.sum(0)[:, None] * entities - matrix_product(weights.T, queries)


COMPARISONS: dict[str, tuple[Callable[..., Floats], Callable[..., tuple[Floats, Floats]]]] = {
    "l1": (distance_kernels.l1_distances, distance_kernels.l1_gradients),
    "l2": (_l2, _l2_gradient),
    "dot": (_dot, _dot_gradient),
    "modulus": (distance_kernels.modulus_distances, distance_kernels.modulus_gradients),
}


Unscore = Callable[[Floats], tuple[Floats, Floats, Floats]]
"""From the gradient of scores to those of queries, answers and negatives."""


def _score(queries: Floats, rows: Rows, comparison: str, margin: float, is_distance: bool) -> tuple[Floats, Unscore]:
    """(batch, 1 + n): scores of the answers and of the negatives."""
    compared, pair_gradient = _compare_negatives(queries, rows, comparison)
    kind = private_kernels.KINDS[comparison]

    def back(slopes: Floats) -> tuple[Floats, Floats, Floats]:
        own, others = private_kernels.slopes_of_comparisons(slopes, is_distance)
        for_queries, for_negatives = pair_gradient(others)
        for_answers = private_kernels.add_own_gradients(kind, queries, rows.answers, own, for_queries)
        return for_queries, for_answers, for_negatives

    return private_kernels.scores_with_own(kind, queries, rows.answers, compared, margin, is_distance), back


def _score_products(queries: Floats, rows: Rows) -> tuple[Floats, Unscore]:
    """The same where a product with shared negatives is the score: it is written and read where it stands."""
    scores = np.empty((len(queries), 1 + len(rows.negatives)), dtype=np.float32)
    matrix_product(queries, rows.negatives.T, out=scores[:, 1:])
    scores[:, :1] = private_kernels.scores_with_own(
        private_kernels.DOT, queries, rows.answers, scores[:, :0], 0.0, False
    )

    def back(slopes: Floats) -> tuple[Floats, Floats, Floats]:
        for_queries, for_negatives = _dot_gradient(queries, rows.negatives, slopes[:, 1:])
        own = np.ascontiguousarray(slopes[:, 0])
        for_answers = private_kernels.add_own_gradients(private_kernels.DOT, queries, rows.answers, own, for_queries)
        return for_queries, for_answers, for_negatives

    return scores, back


def _compare_negatives(
    queries: Floats, rows: Rows, comparison: str
) -> tuple[Floats, Callable[[Floats], tuple[Floats, Floats]]]:
    """(batch, n), and a function from its gradient to those of the queries and of the negatives."""
    if rows.picks is None:
        pairs, gradient = COMPARISONS[comparison]
        return pairs(queries, rows.negatives), lambda slopes: gradient(queries, rows.negatives, slopes)
    kind, entities = private_kernels.KINDS[comparison], rows.negatives
    order, starts = private_kernels.group_places(rows.picks, len(entities))

    def back(slopes: Floats) -> tuple[Floats, Floats]:
        return private_kernels.picked_gradients(kind, queries, entities, order, starts, slopes)

    return private_kernels.picked_comparisons(kind, queries, entities, order, starts), back


def matrix_product(
    left: NDArray[np.float32], right: NDArray[np.float32], out: NDArray[np.float32] | None = None
) -> Floats:
    """Through torch, whose product shares its threads with ours instead of fighting them."""
    import torch

    place = None if out is None else torch.from_numpy(out)
    product: Floats = torch.mm(torch.from_numpy(left), torch.from_numpy(right), out=place).numpy()
    return product


def _root(square: Floats) -> Floats:
    root: Floats = np.sqrt(square + np.float32(TINY))
    return root
