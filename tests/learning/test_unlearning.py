"""Interference and decay at one client: where the forgotten end up, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedlu.config import resolve
from fedlu.embedding.ranking import FilterIndex, Queries, Side
from fedlu.federated.client import Client
from fedlu.federated.messages import Train
from fedlu.graph import ClientGraph, partition, read
from fedlu.learning.knowledge import Memory, Questions, evenly, knowledge, places_of, questions_about, targets_of
from fedlu.learning.local_training import Teaching
from fedlu.learning.unlearning import GOALS, NOTHING, Request, Unlearner
from fedlu.results.forgetting import CYCLES, request_of

MODELS = ("TransE", "ComplEx", "RotatE")


@pytest.fixture(scope="module")
def graph() -> ClientGraph:
    return partition(read("umls"), clients=2, by="random", seed=1, forget=0.03).clients[0]


@pytest.fixture(scope="module", params=MODELS)
def trained(request: pytest.FixtureRequest, graph: ClientGraph) -> Client:
    """Trained until it knows its triples much better than those it never saw."""
    overrides = {
        "dimension": 32,
        "warm_rounds": 8,
        "n3": 0,
        "final_rate": 1,
        "learning_rate": 0.1 if request.param == "ComplEx" else 0.01,
    }
    client = Client(graph, resolve("fast", method="fedlu", model=request.param, overrides=overrides))
    for number in range(1, 41):
        client.train(Train(number, np.empty((0, client.width), dtype=np.float32)))
    return client


def unlearner(client: Client, goal: str = "indistinguishable", **changes: Any) -> Unlearner:
    marks = {split: np.zeros(len(client.graph.split(split)), bool) for split in ("train", "valid", "test")}
    keys, forget = client.graph.vocabulary.keys, changes.get("forget", client.graph.forget)
    marks["train"] = np.isin(keys(client.graph.train), keys(forget))
    asked = request_of(client.graph, marks, goal, changes.get("without"))
    memories = {
        "local": Memory(client.local.copy(), client.relations.copy()),
        "global": Memory(client.avatar.copy(), client.relations.copy()),
    }
    teaching = Teaching(0.5, 0.5, 1.0, relations_from_both=True)
    slowly = replace(client.learner, rate=client.learner.rate / 10)  # as at the end of a run
    return Unlearner(slowly, memories, asked, teaching, weighted=True, batch_size=128, negatives=64)


def means(found: dict[str, Any]) -> dict[str, float]:
    return {name: float(gap.mean()) for name, gap in found.items()}


def test_known_better_means_a_larger_share(trained: Client) -> None:
    """The measure restated, a triple at a time, over all entities (there are fewer than candidates)."""
    mine = unlearner(trained)
    request, memory = mine.request, mine.memories["local"]
    found = knowledge(trained.learner, memory, mine.asked)
    for place in (0, 7):
        h, r, t = (int(number) for number in request.forget[place])
        for side, anchor, answer in ((Side.TAIL, h, t), (Side.HEAD, t, h)):
            queries = Queries(np.array([anchor]), np.array([r]), side)
            scores = trained.learner.score_all(
                memory.table.values, memory.relations.values, memory.table.values[[anchor]], queries.relations, side
            )[0].astype(np.float64)
            starts, stops = request.known.find(queries)
            hidden = request.known.answers[side][starts[0] : stops[0]]
            keep = np.setdiff1d(np.arange(len(scores)), hidden)
            # the answer is compared with all others, itself included: negatives are drawn without looking
            share = scores[answer] - np.logaddexp.reduce(np.append(scores[keep], scores[answer]))
            assert found[place, side] == pytest.approx(share, abs=1e-3)


def test_interference_brings_the_forgotten_to_their_places(trained: Client) -> None:
    mine = unlearner(trained)
    before = means(mine.gaps(mine.targets()))
    assert all(gap > 0.5 for gap in before.values())  # well known, as triples of train are
    relations = {name: memory.relations.values.copy() for name, memory in mine.memories.items()}
    mine.interfere(np.random.default_rng(1))
    after = means(mine.gaps(mine.targets()))
    assert all(abs(after[name]) < 0.35 * before[name] for name in before)
    for name, memory in mine.memories.items():
        np.testing.assert_array_equal(memory.relations.values, relations[name])


@pytest.mark.parametrize("number", [1, 3])
def test_a_few_named_triples_are_forgotten_from_both_ends(trained: Client, number: int) -> None:
    """The two ends of a triple move together: one that stands too low must not hold up the other."""
    few = unlearner(trained, forget=trained.graph.forget[:number])
    before = few.gaps(few.targets())
    assert any(few.interfere(np.random.default_rng(cycle)) for cycle in range(CYCLES))
    for name, gap in few.gaps(few.targets()).items():
        assert gap.max() <= max(0.1 * number * before[name].max(), 0.05)


def test_targets_follow_the_tables(trained: Client) -> None:
    """A table that is as it was need not be asked again, one that has changed must."""
    mine = unlearner(trained)
    first, asked = mine.targets(), []
    found = mine._known
    mine._known = lambda name, sampler=None: asked.append(name) or found(name, sampler)  # type: ignore[method-assign,func-returns-value]
    again = mine.targets()
    assert asked == []
    mine.memories["global"].table.values *= np.float32(0.5)
    after = mine.targets()
    assert asked == ["global"]
    np.testing.assert_array_equal(again["local"], first["local"])
    np.testing.assert_array_equal(after["local"], first["local"])
    anew = unlearner(trained)
    anew.places = mine.places
    anew.memories["global"].table.values *= np.float32(0.5)
    np.testing.assert_array_equal(after["global"], anew.targets()["global"])
    assert not np.array_equal(after["global"], first["global"])


def test_interference_touches_only_rows_of_the_forgotten(trained: Client) -> None:
    mine = unlearner(trained)
    start = {name: memory.table.values.copy() for name, memory in mine.memories.items()}
    mine.interfere(np.random.default_rng(1))
    named = np.unique(mine.request.forget[:, [0, 2]])
    for name, memory in mine.memories.items():
        changed = np.flatnonzero((memory.table.values != start[name]).any(1))
        assert len(changed)
        assert set(changed) <= set(named)


def test_who_stands_where_it_should_is_left_alone(trained: Client) -> None:
    mine = unlearner(trained)
    gaps = {name: np.full((len(mine.request.forget), 2), NOTHING) for name in mine.memories}
    gaps["local"][3, Side.HEAD] = 1.0
    start = {name: memory.table.values.copy() for name, memory in mine.memories.items()}
    mine._confuse_all(gaps, np.random.default_rng(1))
    for name, memory in mine.memories.items():
        changed = np.flatnonzero((memory.table.values != start[name]).any(1))
        assert set(changed) <= set(mine.request.forget[3, [0, 2]])
        assert len(changed) or name == "global"
    for gap in gaps.values():
        gap[:] = NOTHING
    start = {name: memory.table.values.copy() for name, memory in mine.memories.items()}
    mine._confuse_all(gaps, np.random.default_rng(1))
    assert all((memory.table.values == start[name]).all() for name, memory in mine.memories.items())


def test_without_valid_triples_a_guess_is_the_aim(trained: Client) -> None:
    """A guess among the entities that there are, if they are fewer than the candidates asked for."""
    mine = unlearner(trained)
    asked = replace(mine.request, valid=mine.request.valid[:0])
    alone = Unlearner(mine.learner, mine.memories, asked, mine.teaching, weighted=True, batch_size=128, negatives=64)
    for target in alone.targets().values():
        np.testing.assert_allclose(target, -np.log(len(trained.graph.vocabulary.entities)))


def test_suppressed_are_known_less_than_indistinguishable_ones(trained: Client) -> None:
    found = {}
    for goal in GOALS:
        mine = unlearner(trained, goal)
        mine.interfere(np.random.default_rng(1))
        found[goal] = knowledge(trained.learner, mine.memories["local"], mine.asked).mean()
    assert found["suppress"] < found["indistinguishable"] - 0.1


def test_without_hard_confusion_more_is_remembered(trained: Client) -> None:
    """The paper's ablation."""
    left = {}
    for without in (None, "hard", "soft"):
        mine = unlearner(trained, "suppress", without=without)
        mine.interfere(np.random.default_rng(1))
        left[without] = float(mine.gaps(mine.targets())["local"].mean())
    assert left["hard"] > left[None] + 0.2
    assert left["hard"] > left["soft"]


def test_decay_leaves_the_forgotten_gone_and_lifts_the_rest(trained: Client) -> None:
    mine = unlearner(trained)
    raw = knowledge(trained.learner, mine.memories["local"], mine.asked).mean()
    random = np.random.default_rng(1)
    kept = evenly(mine.request.retained, mine.request.known)
    disturbed = np.unique(mine.request.forget[:, [0, 2]])
    for _ in range(3):
        mine.interfere(random)
        before = knowledge(trained.learner, mine.memories["local"], questions_about(kept, 512)).mean()
        mine.decay(random, disturbed)
        assert knowledge(trained.learner, mine.memories["local"], questions_about(kept, 512)).mean() > before
    assert knowledge(trained.learner, mine.memories["local"], mine.asked).mean() < raw - 0.3


def test_decay_gives_back_the_scores_that_were(trained: Client) -> None:
    """Of retained triples: their shares, where a softmax is what is learned, or else their scores as they are."""
    mine = unlearner(trained)
    kept = evenly(mine.request.retained, mine.request.known)

    def scores() -> Any:
        memory, triples = mine.memories["local"], mine.request.retained
        everything = np.arange(len(triples))
        if trained.settings.loss == "cross_entropy":
            return np.exp(knowledge(trained.learner, memory, questions_about(kept, 512)))
        batch = kept.batch(everything, Side.TAIL, np.random.default_rng(0), 1)
        return trained.learner.forward(memory.table, memory.relations, batch).scores[:, 0]

    had, disturbed = scores(), np.unique(mine.request.forget[:, [0, 2]])
    random = np.random.default_rng(1)
    mine.interfere(random)
    lost = np.sqrt(np.mean((scores() - had) ** 2))
    mine.decay(random, disturbed)
    left = np.sqrt(np.mean((scores() - had) ** 2))
    assert left < lost * (0.95 if trained.settings.loss == "cross_entropy" else 0.8)


def test_restoring_moves_the_marked_rows_towards_the_scores_that_were(trained: Client) -> None:
    mine = unlearner(trained)
    memory, before = mine.memories["global"], mine.before["global"].values.copy()
    row = int(mine.request.retained[0, 0])
    memory.table.values[row] += np.float32(0.05) * np.sign(memory.table.values[row])
    moved = memory.table.values.copy()
    mended = np.zeros(len(moved), dtype=np.bool_)
    mended[row] = True
    at = np.flatnonzero((mine.request.retained[:, [0, 2]] == row).any(1))
    batch = mine.retained.batch(at, Side.TAIL, np.random.default_rng(0), 1)

    def off() -> float:
        now = trained.learner.forward(memory.table, memory.relations, batch).scores[:, 0]
        had = trained.learner.forward(mine.before["global"], memory.relations, batch).scores[:, 0]
        return float(np.square(now - had).mean())

    start = off()
    for _ in range(5):
        mine._restore(batch, mended)
    assert off() < 0.5 * start
    np.testing.assert_array_equal(np.delete(memory.table.values, row, 0), np.delete(moved, row, 0))
    np.testing.assert_array_equal(mine.before["global"].values, before)


def test_decay_mends_disturbed_rows_alone(trained: Client) -> None:
    mine = unlearner(trained)
    mine.interfere(np.random.default_rng(1))
    before = {name: memory.table.values.copy() for name, memory in mine.memories.items()}
    disturbed = np.unique(mine.request.forget[:, [0, 2]])
    mine.decay(np.random.default_rng(1), disturbed)
    for name, memory in mine.memories.items():
        changed = np.flatnonzero((memory.table.values != before[name]).any(1))
        assert np.isin(changed, disturbed).all()
        assert len(changed) > len(disturbed) / 2


def test_what_others_disturbed_is_mended_too_but_not_in_softmax_models(trained: Client) -> None:
    """A client with nothing to forget, whose row of most triples somebody else has moved."""
    mine = unlearner(trained)
    retained = mine.request.retained
    empty = Request(mine.request.forget[:0], retained, mine.request.valid, mine.request.known)
    other = Unlearner(trained.learner, mine.memories, empty, mine.teaching, weighted=True, batch_size=128, negatives=64)
    row = int(np.bincount(retained[:, 0]).argmax())
    other.memories["global"].table.values[row] *= np.float32(1.5)
    start = other.memories["global"].table.values.copy()
    other.decay(np.random.default_rng(0), np.array([row]))
    changed = np.flatnonzero((other.memories["global"].table.values != start).any(1)).tolist()
    assert changed == ([] if trained.settings.loss == "cross_entropy" else [row])


def test_nothing_to_forget_changes_nothing(trained: Client) -> None:
    mine = unlearner(trained)
    empty = Request(mine.request.forget[:0], mine.request.retained, mine.request.valid, mine.request.known)
    other = Unlearner(trained.learner, mine.memories, empty, mine.teaching, weighted=True, batch_size=128, negatives=64)
    start = mine.memories["local"].table.values.copy()
    assert other.interfere(np.random.default_rng(0)) is True
    np.testing.assert_array_equal(mine.memories["local"].table.values, start)


def test_places_are_spread_within_each_relation() -> None:
    relations = np.repeat([0, 1], 50).astype(np.int32)
    known = np.random.default_rng(2).normal(size=(100, 2))
    places = places_of(relations, {"local": known}, {"local": 1.0})["local"]
    for relation in (0, 1):
        for side in Side:
            mine, order = places[relations == relation, side], np.argsort(known[relations == relation, side])
            assert (np.floor(mine[order] * 50) == np.arange(50)).all()  # one in each fiftieth, in order of knowledge
    low = places_of(relations, {"local": known}, {"local": 0.4})["local"]
    np.testing.assert_allclose(low, 0.4 * places)
    both = places_of(relations, {"local": known, "global": known}, {"local": 0.4, "global": 0.9})
    np.testing.assert_allclose(both["local"], low)
    assert 0.4 < both["global"].max() <= 0.9  # each memory has a share of its own
    few = places_of(relations[:3], {"local": known[:3]}, {"local": 1.0})["local"]
    assert few.max() <= 0.5


def test_targets_are_those_of_the_relation_if_it_has_enough() -> None:
    values = np.concatenate([np.full(30, -1.0), np.full(5, -9.0)])
    unseen = np.stack([values, values - 1], axis=1)  # the sides apart
    relations = np.repeat([0, 1], [30, 5]).astype(np.int32)
    forget = np.array([[0, 0, 1], [0, 1, 1]], dtype=np.int32)

    def asked(relations: Any) -> Questions:
        return Questions(np.stack([relations] * 3, axis=1), 512, [])

    found = targets_of(unseen, asked(relations), forget, np.array([[0.5, 0.5], [0.0, 0.9]]))
    assert found.tolist() == [[-1.0, -2.0], [-9.0, -2.0]]  # the second among all, where -9 is the lowest
    none = targets_of(unseen[:0], asked(relations[:0]), forget, np.full((2, 2), 0.5))
    np.testing.assert_allclose(none, -np.log(512))


def test_a_filter_of_the_retained_alone(graph: ClientGraph) -> None:
    """The forgotten do not hide each other when they are ranked."""
    marks = {split: np.zeros(len(graph.split(split)), bool) for split in ("train", "valid", "test")}
    marks["train"][:5] = True
    known: FilterIndex = request_of(graph, marks, "suppress", None).known
    assert len(known.answers[0]) == len(graph.known) - 5
