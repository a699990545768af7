"""Asking for the relation too: the step's gradients against autograd on the loss restated, and that it helps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlu.config import resolve
from fedlu.embedding.kernels import Floats
from fedlu.embedding.models import model_of
from fedlu.embedding.negatives import Batch, Sampler
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import Side
from fedlu.errors import InputError
from fedlu.federated.client import Client, learner_of
from fedlu.federated.messages import Train
from fedlu.graph import partition, read
from fedlu.learning.local_training import Learner, Teaching

ENTITIES, RELATIONS, DIMENSION, WEIGHT = 30, 5, 4, 0.7


def product(model: str, head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
    if model == "DistMult":
        return (head * relation * tail).sum(-1)
    h, r, t = (torch.complex(*each.chunk(2, dim=-1)) for each in (head, relation, tail))
    return (h * r * t.conj()).real.sum(-1)


def restated(model: str, reciprocal: bool, batch: Batch, table: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
    """The whole loss, a triple at a time."""
    total = torch.zeros((), dtype=torch.float64)
    side, queries = batch.queries.side, batch.queries
    for place in range(len(batch.answers)):
        anchor, number = table[queries.anchors[place]], int(queries.relations[place])
        shift = RELATIONS if reciprocal and side == Side.HEAD else 0

        def score(relation: torch.Tensor, other: torch.Tensor, anchor: torch.Tensor = anchor) -> torch.Tensor:
            if side == Side.TAIL or reciprocal:
                return product(model, anchor, relation, other)
            return product(model, other, relation, anchor)

        own = relations[number + shift]
        answer = table[batch.answers[place]]
        wrong = batch.negatives[~batch.masked[place, 1:]]
        entity_scores = torch.stack([score(own, answer), *(score(own, table[each]) for each in wrong)])
        relation_scores = torch.stack([score(relations[each + shift], answer) for each in range(RELATIONS)])
        lost = -entity_scores.log_softmax(0)[0] - WEIGHT * relation_scores.log_softmax(0)[number]
        total = total + float(batch.weights[place]) * lost
    return total / float(batch.weights.sum())


def learner(model: str, reciprocal: bool) -> Learner:
    settings = resolve(
        "strong",
        method="fedlu",
        model=model,
        overrides={"reciprocal": reciprocal, "relation_prediction": WEIGHT, "n3": 0, "dura": 0, "dimension": DIMENSION},
    )
    return learner_of(settings, model_of(model, dimension=DIMENSION, margin=1), RELATIONS)


def tables(model: str, reciprocal: bool, number: int) -> list[Floats]:
    random, width = np.random.default_rng(5), DIMENSION * (2 if model == "ComplEx" else 1)
    heights = [ENTITIES] * number + [RELATIONS * (1 + reciprocal)]
    return [random.normal(size=(height, width)).astype(np.float32) for height in heights]


def batch_of(side: Side) -> Batch:
    random = np.random.default_rng(3)
    triples = np.stack([random.integers(size, size=80) for size in (ENTITIES, RELATIONS, ENTITIES)], axis=1)
    sampler = Sampler.of(np.unique(triples, axis=0).astype(np.int32), ENTITIES, RELATIONS, weighted=True)
    return sampler.batch(np.arange(12), side, random, 9)


def gradient_of(table: Table, before: Floats) -> Floats:
    """What Adagrad was given in its first step: the size from its memory, the sign from the move."""
    size: Floats = np.sqrt(table.memory["square"]) * np.sign(before - table.values)
    return size


@pytest.mark.parametrize("model", ["ComplEx", "DistMult"])
@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("side", list(Side))
def test_a_step_has_the_gradient_of_the_loss(model: str, reciprocal: bool, side: Side) -> None:
    values, relations = tables(model, reciprocal, 1)
    batch = batch_of(side)
    leaves = [torch.from_numpy(each.astype(np.float64)).requires_grad_() for each in (values, relations)]
    expected = torch.autograd.grad(restated(model, reciprocal, batch, *leaves), leaves)
    table, relation_table = Table(values.copy()), Table(relations.copy())
    learner(model, reciprocal).plain_step(table, relation_table, batch)
    np.testing.assert_allclose(gradient_of(table, values), expected[0].numpy(), atol=2e-5)
    np.testing.assert_allclose(gradient_of(relation_table, relations), expected[1].numpy(), atol=2e-5)


def test_two_tables_ask_each_for_itself() -> None:
    """Untaught, each table moves as alone; the relations by the sum of both gradients."""
    local, avatar, relations = tables("ComplEx", True, 2)
    batch, mine = batch_of(Side.TAIL), learner("ComplEx", True)
    alone, gradients = [], []
    for values in (local, avatar):
        table, relation_table = Table(values.copy()), Table(relations.copy())
        mine.plain_step(table, relation_table, batch)
        alone.append(table.values)
        gradients.append(gradient_of(relation_table, relations))
    both, relation_table = [Table(local.copy()), Table(avatar.copy())], Table(relations.copy())
    mine.mutual_step(*both, relation_table, batch, Teaching(0, 0, 1, relations_from_both=True))
    for table, values in zip(both, alone, strict=True):
        np.testing.assert_array_equal(table.values, values)
    np.testing.assert_allclose(gradient_of(relation_table, relations), sum(gradients), atol=1e-5)


def test_it_learns_which_relation_holds() -> None:
    """With it, the right relation of a train pair is ranked higher than without, after equal training."""
    graph = partition(read("umls"), clients=3, by="random", seed=1).clients[0]
    settings = resolve("strong", method="independent", model="ComplEx", overrides={"dimension": 16, "negatives": 32})
    found = {}
    for weight in (0.0, 1.0):
        client = Client(graph, replace(settings, relation_prediction=weight))
        for number in range(1, 9):
            client.train(Train(number, np.empty((0, client.width), dtype=np.float32)))
        h, r, t = graph.train.T
        heads, tails = client.local.values[h], client.local.values[t]
        rows = client.relations.values[: len(graph.vocabulary.relations)]
        scores = np.stack(
            [
                product("ComplEx", *(torch.from_numpy(each) for each in (heads, np.tile(row, (len(h), 1)), tails)))
                for row in rows
            ],
            axis=1,
        )
        found[weight] = float((scores >= scores[np.arange(len(h)), r][:, None]).sum(1).mean())
    assert found[1.0] < 0.9 * found[0.0]


def test_models_of_distances_have_no_such_thing() -> None:
    settings = resolve("fast", method="fedlu", model="RotatE", overrides={"relation_prediction": 1})
    with pytest.raises(InputError, match=r"relation_prediction = 1\.0 with RotatE; give 0"):
        learner_of(settings, model_of("RotatE", dimension=4, margin=1), 3)
