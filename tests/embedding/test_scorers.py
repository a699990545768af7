"""Models: the fused loops equal the formulas, and the formulas equal PyKEEN's and their own definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pykeen.nn.modules import ComplExInteraction, DistMultInteraction, RotatEInteraction, TransEInteraction

from fedlu.embedding.distance_kernels import BLOCK, TILE
from fedlu.embedding.formulas import TORCH_QUERIES, Formulas
from fedlu.embedding.ranking import Side
from fedlu.embedding.scorers import MODELS, Fused, Rows, shape_of
from fedlu.errors import InputError

DIMENSION, BATCH, NEGATIVES = 6, 7, 5
PARTS = ("anchors", "relations", "answers", "negatives")


def rows_for(model: str, random: np.random.Generator, private: bool = False) -> Rows:
    shape = shape_of(model)

    def normal(number: int, width: int) -> np.ndarray:
        return random.normal(size=(number, width * DIMENSION)).astype(np.float32)

    return Rows(
        anchors=normal(BATCH, shape.entity_width),
        relations=normal(BATCH, shape.relation_width),
        answers=normal(BATCH, shape.entity_width),
        negatives=normal(NEGATIVES, shape.entity_width),
        picks=random.integers(NEGATIVES, size=(BATCH, 9)).astype(np.int32) if private else None,
    )


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("model", MODELS)
def test_fused_equals_the_formulas(model: str, side: Side, private: bool, random: np.random.Generator) -> None:
    rows = rows_for(model, random, private)
    fused, fused_back = Fused(model, 3.0).forward(rows, side)
    formulas, formulas_back = Formulas(model, 3.0).forward(rows, side)
    np.testing.assert_allclose(fused, formulas, rtol=1e-5, atol=1e-5)
    slopes = random.normal(size=fused.shape).astype(np.float32)
    ours, theirs = fused_back(slopes), formulas_back(slopes)
    for part in PARTS:
        np.testing.assert_allclose(getattr(ours, part), getattr(theirs, part), rtol=1e-4, atol=1e-5, err_msg=part)


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("model", MODELS)
def test_ranking_compares_as_training_does(model: str, side: Side, random: np.random.Generator) -> None:
    rows = rows_for(model, random)
    for scorer in (Fused(model, 3.0), Formulas(model, 3.0)):
        trained, _ = scorer.forward(rows, side)
        ranked = scorer.compare_all(rows.anchors, rows.relations, rows.negatives, side)
        np.testing.assert_allclose(ranked, trained[:, 1:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("model", MODELS)
def test_gradients_in_double_precision(model: str, side: Side, random: np.random.Generator) -> None:
    rows = rows_for(model, random)
    leaves = [torch.from_numpy(getattr(rows, part)).double().requires_grad_() for part in PARTS]
    assert torch.autograd.gradcheck(lambda *each: Formulas(model, 3.0).scores(list(each), side), leaves)


INTERACTIONS = {
    "TransE": TransEInteraction(p=1),
    "TransE-L2": TransEInteraction(p=2),
    "DistMult": DistMultInteraction(),
    "ComplEx": ComplExInteraction(),
    "RotatE": RotatEInteraction(),
}


@pytest.mark.parametrize("model", MODELS)
def test_both_sides_score_a_triple_as_pykeen_does(model: str, random: np.random.Generator) -> None:
    """(head, relation, ?) compared with the tail, and (?, relation, tail) with the head, are the same score."""
    rows, shape = rows_for(model, random), shape_of(model)
    head, relation, tail = (torch.from_numpy(each) for each in (rows.anchors, rows.relations, rows.answers))

    def native(row: torch.Tensor) -> torch.Tensor:
        real, imaginary = row.chunk(2, dim=-1)
        return torch.complex(real, imaginary)

    h, r, t = head, relation, tail
    if shape.entity_width == 2:
        h, t = native(head), native(tail)
        r = torch.polar(torch.ones_like(relation), relation) if model == "RotatE" else native(relation)
    expected = INTERACTIONS[model](h, r, t)
    margin = 3.0 if shape.is_distance else 0.0
    for side, anchor, answer in ((Side.TAIL, head, tail), (Side.HEAD, tail, head)):
        query = TORCH_QUERIES[shape.query](anchor, relation, side)
        ours = Formulas(model, 3.0).score(query, answer) - margin
        if model == "RotatE":  # PyKEEN takes the norm of the whole vector of complex differences
            expected = -(query - answer).reshape(BATCH, 2, DIMENSION).square().sum(1).sqrt().sum(-1)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_an_unknown_model_lists_the_known() -> None:
    with pytest.raises(InputError, match="no model 'TransX'; choose one of TransE"):
        shape_of("TransX")


@pytest.mark.parametrize("model", ["TransE", "RotatE"])
@pytest.mark.parametrize("dimension", [1, 3, 8, 9])
def test_tiles_and_blocks_that_are_not_full(model: str, dimension: int, random: np.random.Generator) -> None:
    shape = shape_of(model)
    widths = (shape.entity_width, shape.relation_width, shape.entity_width, shape.entity_width)
    numbers = (BLOCK + 1, BLOCK + 1, BLOCK + 1, TILE + 2)
    arrays = [random.normal(size=(n, w * dimension)).astype(np.float32) for n, w in zip(numbers, widths, strict=True)]
    fused, fused_back = Fused(model, 3.0).forward(Rows(*arrays), Side.TAIL)
    formulas, formulas_back = Formulas(model, 3.0).forward(Rows(*arrays), Side.TAIL)
    np.testing.assert_allclose(fused, formulas, rtol=1e-5, atol=1e-5)
    slopes = random.normal(size=fused.shape).astype(np.float32)
    ours, theirs = fused_back(slopes), formulas_back(slopes)
    for part in PARTS:
        np.testing.assert_allclose(getattr(ours, part), getattr(theirs, part), rtol=1e-4, atol=1e-4, err_msg=part)


@pytest.mark.parametrize("model", MODELS)
def test_equal_rows_tie_wherever_they_stand(model: str, random: np.random.Generator) -> None:
    rows = rows_for(model, random)
    same = np.repeat(rows.negatives[:1], 2 * TILE + 3, axis=0)
    scores = Fused(model, 3.0).compare_all(rows.anchors, rows.relations, same, Side.TAIL)
    assert (scores == scores[:, :1]).all()


def test_no_distance_no_gradient() -> None:
    zeros = np.zeros((BATCH, 2 * DIMENSION), dtype=np.float32)
    rows = Rows(zeros, zeros[:, :DIMENSION], zeros, zeros)
    scores, back = Fused("RotatE", 3.0).forward(rows, Side.TAIL)
    np.testing.assert_allclose(scores, 3.0, atol=1e-4)
    gradient = back(np.ones_like(scores))
    assert not any(getattr(gradient, part).any() for part in PARTS)
