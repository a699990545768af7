"""Losses: slopes equal the gradient of the formula, and move scores the way they should."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedlu.embedding import kernels, losses

Made = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture
def made(random: np.random.Generator) -> Made:
    scores, teacher = random.normal(scale=4, size=(2, 8, 6)).astype(np.float32)
    masked = random.random((8, 6)) < 0.2
    masked[:, 0] = False
    masked[:, 1] = False  # so that every row has a negative
    return scores, teacher, masked, random.uniform(0.1, 1, size=8).astype(np.float32)


CASES: dict[str, tuple[Callable[..., tuple[np.ndarray, float]], Callable[..., torch.Tensor]]] = {
    "uniform": (
        lambda s, t, m, w: losses.contrastive(s, m, w, 0.0),
        lambda s, t, m, w: losses.contrastive_formula(s, m, w, 0.0),
    ),
    "adversarial": (
        lambda s, t, m, w: losses.contrastive(s, m, w, 1.5),
        lambda s, t, m, w: losses.contrastive_formula(s, m, w, 1.5),
    ),
    "cross entropy": (
        lambda s, t, m, w: losses.cross_entropy(s, m, w),
        lambda s, t, m, w: losses.cross_entropy_formula(s, m, w),
    ),
    "hard confusion": (
        lambda s, t, m, w: losses.hard_confusion(s, m, w, "contrastive"),
        lambda s, t, m, w: losses.hard_confusion_formula(s, m, w, "contrastive"),
    ),
    "hard confusion of a softmax": (
        lambda s, t, m, w: losses.hard_confusion(s, m, w, "cross_entropy"),
        lambda s, t, m, w: losses.hard_confusion_formula(s, m, w, "cross_entropy"),
    ),
    "soft confusion": (
        lambda s, t, m, w: losses.soft_confusion(s, m, w),
        lambda s, t, m, w: losses.soft_confusion_formula(s, m, w),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_slopes_are_the_gradient_of_the_formula(name: str, made: Made) -> None:
    fused, formula = CASES[name]
    slopes, value = fused(*made)
    scores, *others = (torch.from_numpy(each) for each in made)
    scores = scores.double().requires_grad_()
    expected = formula(scores, *others)
    (gradient,) = torch.autograd.grad(expected, scores)
    assert value == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(slopes, gradient.numpy(), rtol=1e-4, atol=1e-7)


def test_the_papers_loss_by_hand() -> None:
    """Eq. (localpredictloss): one positive and n = 2 negatives, weighted evenly."""
    scores, masked = np.array([[1.0, -2.0, 0.5]], dtype=np.float32), np.zeros((1, 3), dtype=bool)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    expected = -np.log(sigmoid(1.0)) - (np.log(sigmoid(2.0)) + np.log(sigmoid(-0.5))) / 2
    assert losses.contrastive(scores, masked, np.ones(1, np.float32), 0.0)[1] == pytest.approx(expected, rel=1e-6)


def test_the_papers_confusion_by_hand() -> None:
    """Eq. (unlearnhard) and (unlearnsoft): one triple to forget and n = 2 negatives."""
    scores, masked = np.array([[1.0, -2.0, 0.5]], dtype=np.float32), np.zeros((1, 3), dtype=bool)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    hard = -np.log(sigmoid(-1.0)) - (np.log(sigmoid(2.0)) + np.log(sigmoid(-0.5))) / 2
    one = np.ones(1, np.float32)
    assert losses.hard_confusion(scores, masked, one, "contrastive")[1] == pytest.approx(hard, rel=1e-6)
    assert losses.soft_confusion(scores, masked, one)[1] == pytest.approx((3.0 + 0.5) / 2, rel=1e-6)


@pytest.mark.parametrize("name", ["hard confusion", "hard confusion of a softmax"])
def test_confusion_lowers_what_has_to_go(name: str, made: Made) -> None:
    assert (CASES[name][0](*made)[0][:, 0] > 0).all()


def test_soft_confusion_draws_scores_together(made: Made) -> None:
    scores, _, masked, weights = made
    before = losses.soft_confusion(scores, masked, weights)[1]
    for _ in range(200):
        scores = scores - 0.2 * losses.soft_confusion(scores, masked, weights)[0]
    assert losses.soft_confusion(scores, masked, weights)[1] < before / 2


@pytest.mark.parametrize("name", CASES)
def test_masked_places_do_not_matter(name: str, made: Made) -> None:
    fused, _ = CASES[name]
    scores, teacher, masked, weights = made
    slopes, value = fused(scores, teacher, masked, weights)
    changed, value_changed = fused(np.where(masked, scores - 3, scores), teacher, masked, weights)
    assert (slopes[masked] == 0).all()
    assert value_changed == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(changed, slopes, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["uniform", "adversarial", "cross entropy"])
def test_prediction_raises_the_positive_and_lowers_negatives(name: str, made: Made) -> None:
    slopes, _ = CASES[name][0](*made)
    masked = made[2]
    assert (slopes[:, 0] < 0).all()
    assert (slopes[:, 1:][~masked[:, 1:]] > 0).all()


def distillation(
    student: np.ndarray, teacher: np.ndarray, masked: np.ndarray, weights: np.ndarray, heat: float
) -> tuple[np.ndarray, float]:
    """Slopes and value by the formula and autograd."""
    scores = torch.tensor(student, dtype=torch.float64, requires_grad=True)
    others = (torch.tensor(teacher, dtype=torch.float64), torch.tensor(masked), torch.tensor(weights).double())
    value = losses.distillation_formula(scores, *others, heat)
    value.backward()
    assert scores.grad is not None
    return scores.grad.numpy(), value.item()


def test_mutual_distillation_is_both_distillations(made: Made) -> None:
    scores, teacher, masked, weights = made
    local, avatar = np.ones_like(scores), np.full_like(scores, 2.0)  # they are added to
    losses.add_mutual_distillation(local, avatar, *made[:2], masked, weights, 2.0, to_local=0.5, to_avatar=3.0)
    for_local, for_avatar = (
        distillation(*pair, masked, weights, 2.0)[0] for pair in ((scores, teacher), (teacher, scores))
    )
    np.testing.assert_allclose(local - 1, 0.5 * for_local, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(avatar - 2, 3.0 * for_avatar, rtol=1e-4, atol=1e-6)
    assert (local[masked] == 1).all()


def test_one_student_alone(made: Made) -> None:
    found = losses.distillation(*made, 2.0)
    np.testing.assert_allclose(found, distillation(*made, 2.0)[0], rtol=1e-4, atol=1e-7)


def test_a_student_like_its_teacher_has_nothing_to_learn(made: Made) -> None:
    scores, _, masked, weights = made
    slopes = losses.distillation(scores, scores + 5, masked, weights, 1.0)  # a shift leaves the distribution
    assert np.abs(slopes).max() < 1e-6


def test_following_the_slopes_brings_the_student_to_the_teacher(made: Made) -> None:
    scores, teacher, masked, weights = made
    before = distillation(scores, teacher, masked, weights, 1.0)[1]
    for _ in range(300):
        scores = scores - 5 * losses.distillation(scores, teacher, masked, weights, 1.0)
    assert distillation(scores, teacher, masked, weights, 1.0)[1] < before / 20


@pytest.mark.parametrize("name", CASES)
def test_a_masked_score_far_above_the_rest_hides_nothing(name: str) -> None:
    """True triples are masked, and true triples score high."""
    scores = np.array([[0.0, 100.0, -5.0, 2.0]], dtype=np.float32)
    teacher, masked = np.array([[1.0, 300.0, 0.0, 0.5]], dtype=np.float32), np.array([[False, True, False, False]])
    weights = np.ones(1, dtype=np.float32)
    fused, formula = CASES[name]
    given = [torch.from_numpy(each) for each in (scores, teacher, masked, weights)]
    assert fused(scores, teacher, masked, weights)[1] == pytest.approx(formula(*given).item(), rel=1e-5)


def test_a_row_with_every_negative_masked_learns_from_its_positive() -> None:
    scores, masked = np.array([[0.0, 3.0, 4.0]], dtype=np.float32), np.array([[False, True, True]])
    slopes, value = losses.contrastive(scores, masked, np.ones(1, dtype=np.float32), 1.0)
    assert slopes.tolist() == [[-0.5, 0.0, 0.0]]
    assert value == pytest.approx(np.log(2), rel=1e-5)


def test_extreme_scores_stay_finite() -> None:
    scores = np.array([[300, -300, 300], [-300, 300, -300]], dtype=np.float32)
    masked, weights = np.zeros((2, 3), dtype=bool), np.ones(2, dtype=np.float32)
    for fused, _ in CASES.values():
        slopes, value = fused(scores, scores[::-1].copy(), masked, weights)
        assert np.isfinite(slopes).all()
        assert np.isfinite(value)
    np.testing.assert_allclose(kernels.probabilities(scores, masked, 1.0).sum(1), 1, rtol=1e-6)
