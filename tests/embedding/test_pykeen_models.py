"""PyKEEN's interactions: the generic path scores as ours and as theirs, and its gradients are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pykeen.nn.modules import HolEInteraction

from fedlu.embedding.models import model_of, size_of
from fedlu.embedding.optimizers import Touched, update
from fedlu.embedding.pykeen_models import PykeenScorer
from fedlu.embedding.ranking import Side
from fedlu.embedding.scorers import Fused, Rows, Scorer
from fedlu.errors import InputError

DIMENSION = 6
PARTS = ("anchors", "relations", "answers", "negatives")


def rows_for(scorer: PykeenScorer, random: np.random.Generator, private: bool = False) -> Rows:
    sizes = {"anchors": 4, "relations": 4, "answers": 4, "negatives": 5}
    widths = {name: scorer.relation_width if name == "relations" else scorer.entity_width for name in sizes}
    made = {name: random.normal(size=(sizes[name], widths[name])).astype(np.float32) for name in sizes}
    return Rows(**made, picks=random.integers(5, size=(4, 3)).astype(np.int32) if private else None)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("name", ["DistMult", "ComplEx"])
def test_equal_to_our_own(name: str, side: Side, private: bool, random: np.random.Generator) -> None:
    theirs: Scorer = PykeenScorer(name, DIMENSION, seed=0)
    assert isinstance(theirs, PykeenScorer)
    rows = rows_for(theirs, random, private)
    found, back = theirs.forward(rows, side)
    expected, expected_back = Fused(name, 0.0).forward(rows, side)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    slopes = random.normal(size=found.shape).astype(np.float32)
    gradient, expected_gradient = back(slopes), expected_back(slopes)
    for part in PARTS:
        np.testing.assert_allclose(getattr(gradient, part), getattr(expected_gradient, part), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["HolE", "PairRE", "TuckER", "QuatE", "SimplE", "TransD", "RESCAL", "ConvE"])
def test_ranking_compares_as_training_does(name: str, random: np.random.Generator) -> None:
    scorer = PykeenScorer(name, 8, seed=0)
    rows = rows_for(scorer, random)
    for side in Side:
        ranked = scorer.compare_all(rows.anchors, rows.relations, rows.negatives, side)
        assert ranked.shape == (4, 5)
        for row in range(4):  # one at a time equals all at once: no candidate sees another
            alone = scorer.compare_all(rows.anchors[row : row + 1], rows.relations[row : row + 1], rows.negatives, side)
            np.testing.assert_allclose(alone[0], ranked[row], rtol=1e-3, atol=1e-4)


def test_the_interaction_itself() -> None:
    random = np.random.default_rng(1)
    scorer = PykeenScorer("HolE", DIMENSION, seed=0)
    rows = rows_for(scorer, random)
    scores = scorer.compare_all(rows.anchors, rows.relations, rows.negatives, Side.HEAD)
    heads, relations, tails = (torch.from_numpy(e) for e in (rows.negatives, rows.relations, rows.anchors))
    expected = HolEInteraction()(heads[None], relations[:, None], tails[:, None])
    np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_own_parameters_are_trained_by_their_gradient(random: np.random.Generator) -> None:
    scorer = PykeenScorer("ERMLP", DIMENSION, seed=0)
    rows = rows_for(scorer, random)
    assert scorer.parameters is not None
    scores, back = scorer.forward(rows, Side.TAIL)
    slopes = np.ones_like(scores)
    back(slopes)
    gradient = scorer.parameter_gradient()
    assert gradient is not None
    assert scorer.parameter_gradient() is None  # taken once
    step = np.zeros_like(gradient)
    place = int(np.abs(gradient).argmax())
    step[0, place] = 1e-2
    start = scorer.parameters.values.copy()
    sums = []
    for sign in (1, -1):
        scorer.parameters.values = start + sign * step
        sums.append(float(scorer.forward(rows, Side.TAIL)[0].sum()))
    assert (sums[0] - sums[1]) / 2e-2 == pytest.approx(float(gradient[0, place]), rel=2e-2)


def test_values_that_changed_are_used_whatever_the_optimizer_remembers(random: np.random.Generator) -> None:
    scorer = PykeenScorer("ERMLP", DIMENSION, seed=0)
    rows = rows_for(scorer, random)
    assert scorer.parameters is not None
    first = scorer.forward(rows, Side.TAIL)[0]
    gradient = np.ones_like(scorer.parameters.values)
    for _ in range(3):
        scorer.parameters.forget_memory()
        update(scorer.parameters, Touched.by(np.zeros(1, np.int64)), gradient, optimizer="adam", rate=0.1)
        fresh = PykeenScorer("ERMLP", DIMENSION, seed=0)
        assert fresh.parameters is not None
        fresh.parameters.values = scorer.parameters.values.copy()
        found = scorer.forward(rows, Side.TAIL)[0]
        np.testing.assert_array_equal(found, fresh.forward(rows, Side.TAIL)[0])
        assert not np.array_equal(found, first)
        first = found


@pytest.mark.parametrize("name", ["TuckER", "ConvE"])
def test_a_batch_of_one_learns_with_a_batch_norm_too(name: str, random: np.random.Generator) -> None:
    """As of a client with a single triple: there is no mean over one, so the one of before serves."""
    scorer = PykeenScorer(name, DIMENSION, seed=0)
    all_rows = rows_for(scorer, random)
    rows = replace(all_rows, **{part: getattr(all_rows, part)[:1] for part in ("anchors", "relations", "answers")})
    scores, back = scorer.forward(rows, Side.TAIL)
    assert scores.shape == (1, 1 + len(rows.negatives))
    assert np.abs(back(np.ones_like(scores)).anchors).max() > 0


def test_the_seed_decides_where_it_starts() -> None:
    first, same, other = (PykeenScorer("TuckER", 4, seed).parameters for seed in (1, 1, 2))
    assert first is not None
    assert same is not None
    assert other is not None
    assert (first.values == same.values).all()
    assert (first.values != other.values).any()


@pytest.mark.parametrize("name", ["MultiLinearTucker", "AutoSF"])
def test_what_does_not_fit_is_refused_at_once(name: str) -> None:
    with pytest.raises(InputError, match=f"pykeen:{name} (does not fit|cannot be made)"):
        model_of(f"pykeen:{name}", dimension=8, margin=1.0)


def test_unknown_names_suggest() -> None:
    with pytest.raises(InputError, match="no PyKEEN interaction 'HolEE'; did you mean hole"):
        model_of("pykeen:HolEE", dimension=4, margin=1.0)
    with pytest.raises(InputError, match="or pykeen:NAME for one of PyKEEN's"):
        model_of("HolE", dimension=4, margin=1.0)


@pytest.mark.parametrize("name", ["HolE", "PairRE", "TuckER", "ConvE", "QuatE", "CrossE"])
def test_the_size_is_known_before_anything_is_made(name: str) -> None:
    size, model = size_of(f"pykeen:{name}", dimension=32), model_of(f"pykeen:{name}", dimension=32, margin=1)
    own = model.scorer.parameters
    assert (size.entity_width, size.relation_width) == (model.entity_width, model.relation_width)
    assert size.own == (0 if own is None else own.values.size)


@pytest.mark.parametrize("name", ["TransE", "HolE", "TuckER", "ConvE", "QuatE"])
def test_what_a_batch_keeps_is_estimated(name: str, random: np.random.Generator) -> None:
    """Of a real batch, what autograd keeps for each score more is no more than the estimate, nor far less."""
    scorer = PykeenScorer(name, 32, seed=0)
    widths = (scorer.entity_width, scorer.relation_width, scorer.entity_width)
    anchors, relations, answers = (random.normal(size=(6, width)).astype(np.float32) for width in widths)

    def kept(candidates: int, side: Side) -> int:
        found: list[int] = []
        negatives = random.normal(size=(candidates, scorer.entity_width)).astype(np.float32)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda each: found.append(each.nbytes) or each, lambda each: each
        ):
            scorer.forward(Rows(anchors, relations, answers, negatives), side)
        return sum(found) // 4

    for_a_score = max((kept(40, side) - kept(8, side)) / (6 * 32) for side in Side)
    estimated = size_of(f"pykeen:{name}", dimension=32).expanded
    assert for_a_score <= estimated
    assert estimated <= max(2 * for_a_score, 3 * scorer.entity_width)
