"""Moving a row for one triple with the least change of the others: against the definition, and against a plain move."""

from __future__ import annotations

import numpy as np
import pytest

from fedlu.config import Settings
from fedlu.embedding.models import model_of
from fedlu.embedding.negatives import Sampler
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import Queries, Side
from fedlu.embedding.scorers import shape_of
from fedlu.federated.client import learner_of
from fedlu.learning.bystanders import ELSEWHERE, bystanders
from fedlu.learning.local_training import Learner

ENTITIES, RELATIONS, DIMENSION = 40, 4, 16
NOBODYS = np.empty(0, dtype=np.int64)
EVERY, RIDGE = 8192, 0.05


def made(model: str, *, reciprocal: bool = False) -> tuple[Learner, Table, Table, Sampler]:
    random, shape = np.random.default_rng(3), shape_of(model)
    settings = Settings(model=model, dimension=DIMENSION, reciprocal=reciprocal)
    learner = learner_of(settings, model_of(model, dimension=DIMENSION, margin=10.0), RELATIONS)
    triples = np.unique(random.integers(0, [ENTITIES, RELATIONS, ENTITIES], size=(200, 3)), axis=0).astype(np.int32)
    triples = triples[triples[:, 0] != triples[:, 2]]
    low_rank = random.normal(size=(ENTITIES, 4)) @ random.normal(size=(4, shape.entity_width * DIMENSION))
    table = Table((0.3 * low_rank).astype(np.float32))
    rows = random.normal(size=((1 + reciprocal) * RELATIONS, shape.relation_width * DIMENSION))
    return learner, table, Table(rows.astype(np.float32)), Sampler.of(triples, ENTITIES, RELATIONS, weighted=False)


def score(learner: Learner, table: Table, relations: Table, triples: np.ndarray, side: Side) -> np.ndarray:
    anchors, answers = (triples[:, 0], triples[:, 2]) if side == Side.TAIL else (triples[:, 2], triples[:, 0])
    queries = Queries(anchors.astype(np.int64), triples[:, 1].astype(np.int64), side)
    found = learner.score_all(table.values, relations.values, table.values[anchors], queries.relations, side)
    return found[np.arange(len(triples)), answers].astype(np.float64)


def slopes(learner: Learner, table: Table, relations: Table, triple: np.ndarray, row: int, side: Side) -> np.ndarray:
    """(width,): that of a triple's score with respect to a row, by differences."""
    found = np.empty(table.values.shape[1])
    for place in range(len(found)):
        moved = []
        for step in (1e-2, -1e-2):
            values = table.values.copy()
            values[row, place] += step
            moved.append(score(learner, Table(values), relations, triple[None], side)[0])
        found[place] = (moved[0] - moved[1]) / 2e-2
    return found


@pytest.mark.parametrize("reciprocal", [False, True])
def test_the_inverse_is_that_of_the_mean_of_products(reciprocal: bool) -> None:
    """Restated with gradients by differences, over every end of every retained triple."""
    learner, table, relations, retained = made("ComplEx", reciprocal=reciprocal)
    width = table.values.shape[1]
    total = np.zeros((width, width))
    for triple in retained.triples:
        for side in Side if reciprocal else (Side.TAIL,):
            for row in (int(triple[0]), int(triple[2])):
                gradient = slopes(learner, table, relations, triple, row, side)
                total += np.outer(gradient, gradient)
    total *= width / np.trace(total)
    found = bystanders(learner, table, relations, retained, NOBODYS, seen=EVERY, ridge=RIDGE)
    np.testing.assert_allclose(found.inverse @ (total + RIDGE * np.eye(width)), np.eye(width), atol=0.02)
    ends = np.concatenate([retained.triples[:, 0], retained.triples[:, 2]])
    assert found.others.tolist() == [1 + int((ends == entity).sum()) for entity in range(ENTITIES)]


@pytest.mark.parametrize("model", ["TransE", "ComplEx", "RotatE"])
def test_others_change_less_than_by_a_plain_move(model: str) -> None:
    """The same fall of one triple's score, once along its gradient, once with the others in mind."""
    learner, table, relations, retained = made(model)
    others = bystanders(learner, table, relations, retained, NOBODYS, seen=EVERY, ridge=RIDGE)
    changes = {"plain": 0.0, "spared": 0.0}
    for place in range(0, len(retained.triples), 3):
        triple = retained.triples[place]
        row = int(triple[2])
        rest = np.delete(retained.triples, place, axis=0)
        rest = rest[(rest[:, 0] == row) | (rest[:, 2] == row)]
        gradient = slopes(learner, table, relations, triple, row, Side.TAIL).astype(np.float32)
        ways = {"plain": gradient, "spared": others.spare(np.array([row]), gradient[None])[0]}
        before = score(learner, table, relations, rest, Side.TAIL)
        for name, way in ways.items():
            values = table.values.copy()
            values[row] -= 0.02 * way / (way @ gradient)
            changes[name] += float(((score(learner, Table(values), relations, rest, Side.TAIL) - before) ** 2).sum())
    assert changes["spared"] < 0.8 * changes["plain"], changes


def test_the_end_with_fewer_others_moves_most() -> None:
    learner, table, relations, retained = made("TransE")
    others = bystanders(learner, table, relations, retained, NOBODYS, seen=EVERY, ridge=RIDGE)
    few, many = int(others.others.argmin()), int(others.others.argmax())
    gradient = np.ones((1, table.values.shape[1]), dtype=np.float32)
    ratio = others.others[many] / others.others[few]
    assert ratio > 1
    np.testing.assert_allclose(
        others.spare(np.array([few]), gradient), ratio * others.spare(np.array([many]), gradient), rtol=1e-5
    )


def test_of_two_ends_the_one_that_nobody_shares_moves_most() -> None:
    learner, table, relations, retained = made("ComplEx")
    alone = bystanders(learner, table, relations, retained, NOBODYS, seen=EVERY, ridge=RIDGE)
    ours, theirs = retained.triples[0, [0, 2]].astype(np.int64)
    gradient = np.ones((1, table.values.shape[1]), dtype=np.float32)
    found = bystanders(learner, table, relations, retained, np.array([theirs]), seen=EVERY, ridge=RIDGE)
    for row, times in ((ours, 1.0), (theirs, ELSEWHERE)):
        np.testing.assert_allclose(
            alone.spare(np.array([row]), gradient), times * found.spare(np.array([row]), gradient), rtol=1e-6
        )
