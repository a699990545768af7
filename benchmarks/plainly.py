"""A step of mutual distillation as one writes it from the paper's formulas with PyTorch, without a thought for speed.

Every triple has negatives of its own, gathered into (batch, 1 + negatives, dim) tensors; autograd; dense Adam. As in
the paper's algorithm, the two tables are updated in turn on each batch, each taught by the other as it is then. A
process of its own measures it, which imports nothing of fedlu: what fedlu asks of the memory allocator would serve it.

    python -m benchmarks.plainly TransE
"""

from __future__ import annotations

import sys
import time

import torch
from torch.nn.functional import kl_div, log_softmax, logsigmoid, softmax

BATCH, NEGATIVES, DIMENSION, ENTITIES, RELATIONS, MARGIN, TEACH = 512, 256, 256, 12_110, 127, 10.0, 0.5
WIDTHS = {"TransE": (1, 1), "ComplEx": (2, 2), "RotatE": (2, 1)}
"""Of entities and relations, times the dimension."""


def score(model: str, heads: torch.Tensor, relations: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
    """(batch, 1 + n) from (batch, 1, width), (batch, 1, width) and (batch, 1 + n, width)."""
    if model == "TransE":
        return MARGIN - (heads + relations - tails).abs().sum(-1)
    real, imaginary = heads.chunk(2, -1)
    tail_real, tail_imaginary = tails.chunk(2, -1)
    if model == "ComplEx":
        relation_real, relation_imaginary = relations.chunk(2, -1)
    else:
        relation_real, relation_imaginary = relations.cos(), relations.sin()
    turned_real = real * relation_real - imaginary * relation_imaginary
    turned_imaginary = real * relation_imaginary + imaginary * relation_real
    if model == "ComplEx":
        return (turned_real * tail_real + turned_imaginary * tail_imaginary).sum(-1)
    apart = torch.stack([turned_real - tail_real, turned_imaginary - tail_imaginary])
    return MARGIN - apart.norm(dim=0).sum(-1)


def loss_of(mine: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Prediction with self-adversarial weights, and distillation from a teacher that is a constant."""
    positive, negative = mine[:, 0], mine[:, 1:]
    weights = softmax(negative.detach(), dim=1)
    predicted = -logsigmoid(positive) - (weights * logsigmoid(-negative)).sum(1)
    taught = kl_div(log_softmax(mine, dim=1), softmax(teacher, dim=1), reduction="none").sum(1)
    return (predicted + TEACH * taught).mean()


def triples_per_second(model: str, steps: int = 3) -> float:
    """The median of a few steps, after one to warm up."""
    torch.manual_seed(0)
    widths = [DIMENSION * width for width in WIDTHS[model]]
    tables = [torch.nn.Embedding(ENTITIES, widths[0]) for _ in range(2)]
    relations = torch.nn.Embedding(RELATIONS, widths[1])
    for each in (*tables, relations):
        torch.nn.init.uniform_(each.weight, -0.05, 0.05)
    optimizers = [torch.optim.Adam([table.weight, relations.weight], lr=1e-3) for table in tables]
    took = []
    for _ in range(1 + steps):
        start = time.perf_counter()
        heads, tails = torch.randint(ENTITIES, (BATCH, 1)), torch.randint(ENTITIES, (BATCH, 1))
        numbers, wrong = torch.randint(RELATIONS, (BATCH, 1)), torch.randint(ENTITIES, (BATCH, NEGATIVES))
        candidates = torch.cat([tails, wrong], dim=1)

        def scores(table: torch.nn.Embedding) -> torch.Tensor:
            return score(model, table(heads), relations(numbers), table(candidates))  # noqa: B023, used in this step

        for student, teacher, optimizer in zip(tables, tables[::-1], optimizers, strict=True):
            with torch.no_grad():
                told = scores(teacher)
            loss = loss_of(scores(student), told)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        took.append(time.perf_counter() - start)
    return BATCH / sorted(took[1:])[steps // 2]


if __name__ == "__main__":
    print(triples_per_second(sys.argv[1]))
