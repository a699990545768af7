"""Losses as pure functions of scores (batch, 1 + n), column 0 the positive: the slope of each score, and the value.

Rows are weighted, and sums over a batch are divided by the sum of the weights, so a loss is a weighted mean over rows.
Masked places (a negative that is true after all) count for nothing. `*_formula` restate each loss with torch for any
device and for the tests.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding import kernels
from fedlu.embedding.kernels import Floats

if TYPE_CHECKING:
    import torch

Mask: TypeAlias = NDArray[np.bool_]


def contrastive(scores: Floats, masked: Mask, weights: Floats, adversarial: float) -> tuple[Floats, float]:
    """The prediction loss, Eq. (localpredictloss), with uniform (0) or self-adversarial weights of the negatives."""
    slopes, losses = kernels.sigmoid_slopes(scores, masked, weights / weights.sum(), adversarial)
    return slopes, float(losses.sum())


def cross_entropy(scores: Floats, masked: Mask, weights: Floats) -> tuple[Floats, float]:
    """Sampled softmax: the positive is to win against its negatives."""
    share = (weights / weights.sum())[:, None]
    slopes = kernels.probabilities(scores, masked, 1.0)
    loss = -float((share[:, 0] * np.log(np.maximum(slopes[:, 0], 1e-30))).sum())
    slopes[:, 0] -= 1
    slopes *= share
    return slopes, loss


def add_mutual_distillation(
    slopes: Floats,
    avatar_slopes: Floats,
    local: Floats,
    avatar: Floats,
    masked: Mask,
    weights: Floats,
    temperature: float,
    *,
    to_local: float = 1.0,
    to_avatar: float = 1.0,
) -> None:
    """Add the slopes of both distillations, Eq. (localdistillloss) and its mirror, so many times each, to those of the
    local and of the global scores.

    Each is a KL of the student's distribution from the teacher's, who is a constant: so one is the other's negative.
    """
    shares = weights / (weights.sum() * np.float32(temperature))
    kernels.add_distillation(slopes, avatar_slopes, local, avatar, masked, shares, temperature, to_local, to_avatar)


def distillation(student: Floats, teacher: Floats, masked: Mask, weights: Floats, temperature: float) -> Floats:
    """The slopes of the student's scores alone."""
    slopes = np.zeros_like(student)
    add_mutual_distillation(
        slopes, np.zeros_like(slopes), student, teacher, masked, weights, temperature, to_avatar=0.0
    )
    return slopes


def hard_confusion(scores: Floats, masked: Mask, weights: Floats, kind: str) -> tuple[Floats, float]:
    """The positive taken for a negative, Eq. (unlearnhard).

    Where learning was by a softmax, scores mean something only beside each other: there it is the log of the odds of
    the positive against its negatives.
    """
    if kind != "cross_entropy":  # the prediction loss with the positive's sign turned
        turned = scores.copy()
        turned[:, 0] *= -1
        slopes, loss = contrastive(turned, masked, weights, 0.0)
        slopes[:, 0] *= -1
        return slopes, loss
    share = (weights / weights.sum())[:, None]
    wrong = np.where(masked[:, 1:], np.float32(-1e30), scores[:, 1:])  # finite: a row may have no negative left
    top = wrong.max(1, keepdims=True)
    likely = np.exp(wrong - top)
    total = likely.sum(1, keepdims=True)
    slopes = np.concatenate([np.ones_like(top), -likely / total * ~masked[:, 1:]], axis=1)
    return share * slopes, float((share * (scores[:, :1] - top - np.log(total))).sum())


def soft_confusion(scores: Floats, masked: Mask, weights: Floats) -> tuple[Floats, float]:
    """The mean distance between the positive's score and its negatives', Eq. (unlearnsoft)."""
    slopes, losses = kernels.drawn_together(scores, masked, weights / weights.sum())
    return slopes, float(losses.sum())


def contrastive_formula(
    scores: torch.Tensor, masked: torch.Tensor, weights: torch.Tensor, adversarial: float
) -> torch.Tensor:
    import torch

    negatives = scores[:, 1:]
    hidden = masked[:, 1:]
    shares = (adversarial * negatives.detach()).masked_fill(hidden, -math.inf).softmax(dim=1)
    lost = torch.nn.functional.softplus(-scores[:, 0])
    lost = lost + (shares * torch.nn.functional.softplus(negatives)).sum(dim=1)
    return (weights * lost).sum() / weights.sum()


def cross_entropy_formula(scores: torch.Tensor, masked: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    lost = -scores.masked_fill(masked, -math.inf).log_softmax(dim=1)[:, 0]
    return (weights * lost).sum() / weights.sum()


def distillation_formula(
    student: torch.Tensor, teacher: torch.Tensor, masked: torch.Tensor, weights: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    import torch

    mine = (student / temperature).masked_fill(masked, -math.inf).log_softmax(dim=1)
    theirs = (teacher.detach() / temperature).masked_fill(masked, -math.inf).softmax(dim=1)
    terms = torch.where(masked, 0.0, theirs * (theirs.clamp_min(1e-30).log() - mine))
    return (weights * terms.sum(dim=1)).sum() / weights.sum()


def hard_confusion_formula(
    scores: torch.Tensor, masked: torch.Tensor, weights: torch.Tensor, kind: str
) -> torch.Tensor:
    import torch

    if kind == "cross_entropy":
        lost = scores[:, 0] - scores.masked_fill(masked, -math.inf)[:, 1:].logsumexp(dim=1)
    else:
        lost = torch.nn.functional.softplus(scores)
        lost = lost[:, 0] + (lost[:, 1:] * ~masked[:, 1:]).sum(dim=1) / (~masked[:, 1:]).sum(dim=1).clamp_min(1)
    return (weights * lost).sum() / weights.sum()


def soft_confusion_formula(scores: torch.Tensor, masked: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    apart = (scores[:, 1:] - scores[:, :1]).abs() * ~masked[:, 1:]
    return (weights * apart.sum(dim=1) / (~masked[:, 1:]).sum(dim=1).clamp_min(1)).sum() / weights.sum()
