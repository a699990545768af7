"""DURA and N3 against autograd on the formulas of their papers, and that DURA keeps queries and answers small."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlu.config import resolve
from fedlu.embedding.models import model_of
from fedlu.embedding.negatives import Sampler
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import Side
from fedlu.errors import InputError
from fedlu.federated.client import Client, learner_of
from fedlu.federated.messages import Train
from fedlu.graph import partition, read

ENTITIES, RELATIONS, DIMENSION, STRENGTH = 30, 5, 4, 0.3


def modulus(rows: torch.Tensor, model: str) -> torch.Tensor:
    return torch.complex(*rows.chunk(2, dim=-1)).abs() if model == "ComplEx" else rows.abs()


@pytest.mark.parametrize("kind", ["dura", "n3"])
@pytest.mark.parametrize("model", ["ComplEx", "DistMult"])
@pytest.mark.parametrize("side", list(Side))
def test_what_is_added_is_the_gradient_of_the_regulariser(
    kind: str, model: str, side: Side, random: np.random.Generator
) -> None:
    overrides = {"dura": 0, "n3": 0, kind: STRENGTH, "dimension": DIMENSION}
    settings = resolve("strong", method="fedlu", model=model, overrides=overrides)
    learner = learner_of(settings, model_of(model, dimension=DIMENSION, margin=1), RELATIONS)
    triples = np.stack([random.integers(size, size=40) for size in (ENTITIES, RELATIONS, ENTITIES)], axis=1)
    sampler = Sampler.of(triples.astype(np.int32), ENTITIES, RELATIONS, weighted=False)
    width = DIMENSION * (2 if model == "ComplEx" else 1)
    entities, relations = (
        Table(random.normal(size=(rows, width)).astype(np.float32)) for rows in (ENTITIES, 2 * RELATIONS)
    )
    each = learner.forward(entities, relations, sampler.batch(np.arange(12), side, random, 9))
    slopes = random.normal(size=each.scores.shape).astype(np.float32)
    bare, whole = each.gradient(slopes), each.backward(slopes)

    leaves = [
        torch.from_numpy(rows.astype(np.float64)).requires_grad_()
        for rows in (each.rows.anchors, each.rows.relations, each.rows.answers)
    ]
    h, r, t = (modulus(leaf, model) for leaf in leaves)
    size = 0.5 * (h**2 + t**2).sum() + 1.5 * ((h * r) ** 2 + (t * r) ** 2).sum()
    if kind == "n3":
        size = (h**3 + r**3 + t**3).sum()
    expected = torch.autograd.grad(STRENGTH * size / 12, leaves)
    for name, gradient in zip(("anchors", "relations", "answers"), expected, strict=True):
        np.testing.assert_allclose(getattr(whole, name) - getattr(bare, name), gradient.numpy(), atol=2e-5)
    np.testing.assert_array_equal(whole.negatives, bare.negatives)


def test_queries_and_answers_stay_small() -> None:
    """After learning with it, h * r and t are a fraction of the size that they have without, and still tell answers."""
    graph = partition(read("umls"), clients=3, by="random", seed=1).clients[0]
    size = {}
    for strength in (0.0, 0.1):
        overrides = {"dimension": 16, "negatives": 32, "dura": strength, "n3": 0}
        client = Client(graph, resolve("strong", method="independent", model="DistMult", overrides=overrides))
        for number in range(1, 9):
            client.train(Train(number, np.empty((0, client.width), dtype=np.float32)))
        heads, tails = client.local.values[graph.train[:, 0]], client.local.values[graph.train[:, 2]]
        queries = heads * client.relations.values[graph.train[:, 1]]
        size[strength] = float((queries**2 + tails**2).mean())
        wrong = client.local.values[graph.train[:, 2][::-1]]
        assert (queries * tails).sum(1).mean() > 2 * (queries * wrong).sum(1).mean()
    assert size[0.1] < 0.3 * size[0.0]


def test_models_of_distances_have_no_such_thing() -> None:
    settings = resolve("fast", method="fedlu", model="TransE", overrides={"dura": 0.1})
    with pytest.raises(InputError, match=r"dura = 0\.1 with TransE; give 0"):
        learner_of(settings, model_of("TransE", dimension=4, margin=1), 3)
