"""Batches: every triple once per side, negatives exactly masked, weights as word2vec's."""

from __future__ import annotations

import numpy as np
import pytest

from fedlu.embedding import negatives
from fedlu.embedding.negatives import Batch, Sampler
from fedlu.embedding.ranking import Side

ENTITIES, RELATIONS = 20, 3


@pytest.fixture
def triples(random: np.random.Generator) -> np.ndarray:
    rows = random.integers(0, [ENTITIES, RELATIONS, ENTITIES], size=(150, 3))
    return np.unique(rows, axis=0).astype(np.int32)


def asked(batch: Batch) -> list[tuple[int, int, int]]:
    pairs = zip(batch.queries.anchors.tolist(), batch.queries.relations.tolist(), batch.answers.tolist(), strict=True)
    return [(a, r, x) if batch.queries.side == Side.TAIL else (x, r, a) for a, r, x in pairs]


@pytest.mark.parametrize("private", [False, True])
def test_an_epoch_asks_for_every_head_and_every_tail_once(triples: np.ndarray, private: bool) -> None:
    sampler = Sampler.of(triples, ENTITIES, RELATIONS, weighted=True, private=private)
    batches = list(sampler.epoch(np.random.default_rng(1), 16, 8))
    for side in Side:
        rows = [row for batch in batches if batch.queries.side == side for row in asked(batch)]
        assert sorted(rows) == sorted(map(tuple, triples.tolist()))
    sizes = [len(batch.answers) for batch in batches]
    assert max(sizes) <= 16
    assert min(sizes) >= max(sizes) - 1  # a last batch of one triple would upset a batch norm


@pytest.mark.parametrize("private", [False, True])
def test_negatives_are_masked_exactly_where_they_are_true(triples: np.ndarray, private: bool) -> None:
    known = set(map(tuple, triples.tolist()))
    sampler = Sampler.of(triples, ENTITIES, RELATIONS, weighted=True, private=private)
    hidden = 0
    for batch in sampler.epoch(np.random.default_rng(1), 16, 8):
        assert not batch.masked[:, 0].any()
        assert len(set(batch.negatives.tolist())) == len(batch.negatives)
        for row, (head, relation, tail) in enumerate(asked(batch)):
            own = batch.negatives if batch.picks is None else batch.negatives[batch.picks[row]]
            assert len(own) == 8
            for place, entity in enumerate(own.tolist(), start=1):
                corrupt = (head, relation, entity) if batch.queries.side == Side.TAIL else (entity, relation, tail)
                assert batch.masked[row, place] == (corrupt in known)
                hidden += corrupt in known
    assert hidden > 0


def test_negatives_are_drawn_anew_and_by_the_seed(triples: np.ndarray) -> None:
    sampler = Sampler.of(triples, ENTITIES, RELATIONS, weighted=True)
    first, again, other = (list(sampler.epoch(np.random.default_rng(seed), 16, 8)) for seed in (1, 1, 2))
    assert all(
        (a.negatives == b.negatives).all() and (a.answers == b.answers).all() for a, b in zip(first, again, strict=True)
    )
    assert len({tuple(batch.negatives) for batch in first}) > len(first) / 2
    assert any((a.negatives != b.negatives).any() for a, b in zip(first, other, strict=True))


def test_more_negatives_than_entities_means_all_of_them(triples: np.ndarray) -> None:
    sampler = Sampler.of(triples, ENTITIES, RELATIONS, weighted=True)
    batch = next(sampler.epoch(np.random.default_rng(1), 16, 999))
    size = len(batch.answers)
    assert batch.negatives.tolist() == list(range(ENTITIES))
    assert batch.masked[np.arange(size), 1 + batch.answers].all()  # the answer itself is no negative


def test_questions_are_looked_up_in_parts_and_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question's number is its anchor times all relations: of triples in 32 bits it may need more."""
    entities, relations = 90_000, 60_000
    last, rare = entities - 1, relations - 1
    rows = [[0, 0, 0], [0, 0, 5], [last, rare, 1], [last, rare, 0], [last - 1, rare, 1]]
    triples = np.array(rows, dtype=np.int32)
    whole = Sampler.of(triples, entities, relations, weighted=True)
    monkeypatch.setattr(negatives, "AT_A_TIME", 2)
    parts = Sampler.of(triples, entities, relations, weighted=True)
    np.testing.assert_array_equal(whole.weights, parts.weights)
    for side, counts in ((Side.TAIL, [2, 2, 2, 2, 1]), (Side.HEAD, [1, 1, 2, 1, 2])):
        for sampler in (whole, parts):
            starts, stops = sampler.spans(side, np.arange(len(triples)))
            assert (stops - starts).tolist() == counts


def test_weights_by_hand() -> None:
    triples = np.array([[0, 0, 1], [0, 0, 2], [3, 1, 2]], dtype=np.int32)
    weights = Sampler.of(triples, 4, 2, weighted=True).weights
    expected = [1 / np.sqrt((3 + 2) + (3 + 1))] * 2 + [1 / np.sqrt((3 + 1) + (3 + 1))]  # (h, r), then (r, t)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert (Sampler.of(triples, 4, 2, weighted=False).weights == 1).all()
