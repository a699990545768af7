"""The models' formulas as they are written down, with torch operations: for any device, gradients by autograd.

A module of its own, since torch takes seconds and 200 MB, and what runs on the CPU or at a server does without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedlu.embedding.kernels import TINY, Floats
from fedlu.embedding.ranking import Side
from fedlu.embedding.scorers import Rows, Stateless, shape_of
from fedlu.errors import InputError


def check_device(name: str) -> None:
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as bad:
        reason = str(bad).splitlines()[0][:100]
        raise InputError(f"device = {name!r} cannot be used ({reason})", remedy="leave it out for the CPU") from None


def _complex(rows: torch.Tensor) -> torch.Tensor:
    real, imaginary = rows.chunk(2, dim=-1)
    return torch.complex(real, imaginary)


def _halves(numbers: torch.Tensor) -> torch.Tensor:
    return torch.cat([numbers.real, numbers.imag], dim=-1)


def _sign(side: Side) -> int:
    return 1 if side == Side.TAIL else -1


TORCH_QUERIES: dict[str, Callable[[torch.Tensor, torch.Tensor, Side], torch.Tensor]] = {
    "translate": lambda a, r, side: a + _sign(side) * r,
    "multiply": lambda a, r, side: a * r,
    "complex": lambda a, r, side: _halves(_complex(a) * (_complex(r) if side == Side.TAIL else _complex(r).conj())),
    "rotate": lambda a, r, side: _halves(_complex(a) * torch.polar(torch.ones_like(r), _sign(side) * r)),
}
TORCH_COMPARISONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "l1": lambda q, e: (q - e).abs().sum(-1),
    "l2": lambda q, e: ((q - e).square().sum(-1) + TINY).sqrt(),
    "dot": lambda q, e: (q * e).sum(-1),
    "modulus": lambda q, e: (_complex(q - e).abs().square() + TINY).sqrt().sum(-1),
}


@dataclass(frozen=True)
class Formulas(Stateless):
    """The reference, on any torch device: gradients by autograd. Slow, and right by inspection."""

    model: str
    margin: float
    device: str = "cpu"

    def score(self, queries: torch.Tensor, entities: torch.Tensor) -> torch.Tensor:
        shape = shape_of(self.model)
        compared = TORCH_COMPARISONS[shape.comparison](queries, entities)
        return self.margin - compared if shape.is_distance else compared

    def scores(self, leaves: list[torch.Tensor], side: Side) -> torch.Tensor:
        anchors, relations, answers, negatives = leaves
        queries = TORCH_QUERIES[shape_of(self.model).query](anchors, relations, side)
        positive = self.score(queries, answers).unsqueeze(1)  # (batch, 1)
        return torch.cat([positive, self.score(queries.unsqueeze(1), negatives)], dim=1)  # (batch, 1 + n)

    def private(self, rows: Rows, leaves: list[torch.Tensor], side: Side) -> torch.Tensor:
        assert rows.picks is not None
        chosen = leaves[3][torch.from_numpy(rows.picks).long().to(self.device)]  # (batch, n, dim)
        return self.scores([*leaves[:3], chosen], side)

    def forward(self, rows: Rows, side: Side) -> tuple[Floats, Callable[[Floats], Rows]]:
        arrays = (rows.anchors, rows.relations, rows.answers, rows.negatives)
        leaves = [torch.from_numpy(each).to(self.device).requires_grad_() for each in arrays]
        scores = self.scores(leaves, side) if rows.picks is None else self.private(rows, leaves, side)

        def backward(slopes: Floats) -> Rows:
            given = torch.from_numpy(slopes).to(scores)
            found = torch.autograd.grad(scores, leaves, grad_outputs=given)
            return Rows(*(each.cpu().numpy() for each in found))

        return scores.detach().cpu().numpy(), backward

    def compare_all(self, anchors: Floats, relations: Floats, entities: Floats, side: Side) -> Floats:
        a, r, e = (torch.from_numpy(each).to(self.device) for each in (anchors, relations, entities))
        queries = TORCH_QUERIES[shape_of(self.model).query](a, r, side)
        found = [self.score(query.unsqueeze(0), e) for query in queries]  # a row at a time: no (batch, n, dim) tensor
        result: Floats = torch.stack(found).cpu().numpy()
        return result
