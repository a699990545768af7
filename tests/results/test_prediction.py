"""Predictions: the same scores that ranking sees, as labels; what is known is said; a typo gets a hint."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedlu
from fedlu.embedding.ranking import FilterIndex, Queries, Side, rank, summarize
from fedlu.errors import InputError
from fedlu.graph import load
from fedlu.results.prediction import LearnedRun, best_of, nearest

QUICK: dict[str, Any] = {
    "dimension": 8,
    "rounds": 4,
    "evaluate_every": 2,
    "warm_rounds": 1,
    "negatives": 16,
    "margin": 10,
}


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fedlu.learn(data, out=folder, **QUICK)
    return folder


@pytest.fixture(scope="module")
def learned(run: Path) -> LearnedRun:
    return fedlu.load(run)


def first_triple(learned: LearnedRun, client: str = "client-0", split: str = "train") -> tuple[str, str, str]:
    graph = learned.desks[client].graph
    return graph.vocabulary.labels(graph.split(split)[:1])[0]


# --- right scores


def transe(entities: np.ndarray, query: np.ndarray) -> np.ndarray:
    return np.array([10.0 - np.abs(query - row).sum() for row in entities])  # margin 10


@pytest.mark.parametrize("view", ["local", "global", "blend"])
def test_scores_are_the_formula_on_the_best_tables(learned: LearnedRun, view: str) -> None:
    desk = learned.desks["client-1"]
    head, relation, _ = first_triple(learned, "client-1")
    h, r = desk.graph.vocabulary.entity_ids[head], desk.graph.vocabulary.relation_ids[relation]
    expected = np.zeros(14)
    for each in ("local", "global") if view == "blend" else (view,):
        tables = desk.best[each]
        expected += transe(tables.entities, tables.entities[h] + tables.relations[r])
    found = learned.predict("client-1", head=head, relation=relation, view=view, top=14)
    assert found["label"].to_list() == [desk.graph.vocabulary.entities[i] for i in np.argsort(-expected)]
    np.testing.assert_allclose(found["score"].to_numpy(), np.sort(expected)[::-1], rtol=1e-5, atol=1e-5)
    assert found["rank"].to_list() == list(range(1, 15))
    tails = learned.predict("client-1", tail=head, relation=relation, view="local", top=14)
    local = desk.best["local"]
    backwards = transe(local.entities, local.entities[h] - local.relations[r])
    np.testing.assert_allclose(tails["score"].to_numpy(), np.sort(backwards)[::-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "model", "reciprocal"),
    [
        ("fedlu", "TransE", False),
        ("fede", "RotatE", True),
        ("centralized", "ComplEx", True),
        ("centralized", "TransE", False),
        ("independent", "pykeen:TuckER", False),
    ],
)
def test_ranking_by_predictions_gives_the_metrics_of_the_run(
    data: Path, tmp_path: Path, method: str, model: str, reciprocal: bool
) -> None:
    """Every view of every client, from the folder alone: what is predicted is what was measured."""
    settings = {**QUICK, "learning_rate": 0.1}
    metrics = fedlu.learn(data, out=tmp_path / "run", method=method, model=model, reciprocal=reciprocal, **settings)
    learned = fedlu.load(tmp_path / "run")
    assert set(learned.views) == set(metrics["test"])
    for view in reversed(learned.views):  # in another order than learning: a model's parameters must be the view's own
        for client in learned.clients:
            desk = learned.desks[client]
            vocabulary = desk.graph.vocabulary
            known = FilterIndex.of(desk.graph.known, len(vocabulary.entities), len(vocabulary.relations))
            ranks = rank(lambda queries: desk.scores(queries, view), desk.graph.test, known)  # noqa: B023
            assert summarize(ranks)["mrr"] == pytest.approx(metrics["test"][view]["clients"][client]["mrr"], abs=1e-6)


def test_many_questions_are_answered_as_one_by_one(learned: LearnedRun) -> None:
    graph = learned.desks["client-0"].graph
    triples = graph.vocabulary.labels(graph.test)
    questions = [(h, r, None) for h, r, _ in triples] + [(None, r, t) for _, r, t in triples]
    order = np.random.default_rng(0).permutation(len(questions))
    mixed = [questions[i] for i in order]
    many = learned.predict_many("client-0", mixed, top=4)
    assert many.columns == ["query", "head", "relation", "tail", "label", "score", "rank", "known"]
    for number, (head, relation, tail) in enumerate(mixed):
        one = learned.predict("client-0", head=head, relation=relation, tail=tail, top=4)
        mine = many.filter(pl.col("query") == number)
        assert mine["label"].to_list() == one["label"].to_list()
        np.testing.assert_allclose(mine["score"].to_numpy(), one["score"].to_numpy(), rtol=1e-5)
        assert mine["known"].to_list() == one["known"].to_list()
        assert set(mine["relation"]) == {relation}
        assert set(mine["head" if tail is None else "tail"]) == {head if tail is None else tail}
        assert mine["tail" if tail is None else "head"].to_list() == mine["label"].to_list()
    assert learned.predict_many("client-0", []).is_empty()


def test_threads_may_share_a_run(learned: LearnedRun) -> None:
    head, relation, _ = first_triple(learned)
    alone = {view: learned.predict("client-0", head=head, relation=relation, view=view) for view in learned.views}

    def ask(number: int) -> bool:
        view = learned.views[number % 3]
        return learned.predict("client-0", head=head, relation=relation, view=view).equals(alone[view])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(60)))


# --- known and new


def test_known_says_in_which_split(learned: LearnedRun) -> None:
    graph = learned.desks["client-0"].graph
    lists = {split: set(graph.vocabulary.labels(graph.split(split))) for split in ("train", "valid", "test")}
    seen = set()
    for head, relation, _ in graph.vocabulary.labels(graph.known)[::20]:
        for row in learned.predict("client-0", head=head, relation=relation, top=14).iter_rows(named=True):
            triple = (head, relation, row["label"])
            homes = [split for split, triples in lists.items() if triple in triples]
            assert row["known"] == (homes[0] if homes else None)
            seen.add(row["known"])
    assert seen == {"train", "valid", "test", None}


def test_new_only_leaves_out_all_that_is_known(learned: LearnedRun) -> None:
    head, relation, _ = first_triple(learned)
    everything = learned.predict("client-0", head=head, relation=relation, top=14)
    new = learned.predict("client-0", head=head, relation=relation, top=14, new_only=True)
    assert new["label"].to_list() == everything.filter(pl.col("known").is_null())["label"].to_list()
    assert 0 < len(new) < len(everything)
    assert new["rank"].to_list() == list(range(1, len(new) + 1))
    assert learned.predict("client-0", head=head, relation=relation, top=14).equals(everything)  # nothing was spoilt


def test_the_best_come_first_and_ties_by_id() -> None:
    scores = np.array([1, 5, 3, 5, 3, 3, -np.inf], dtype=np.float32)
    assert best_of(scores, 1).tolist() == [1]
    assert best_of(scores, 3).tolist() == [1, 3, 2]
    assert best_of(scores, 4).tolist() == [1, 3, 2, 4]
    assert best_of(scores, 99).tolist() == [1, 3, 2, 4, 5, 0]  # what is left out never comes
    random = np.random.default_rng(1).integers(0, 9, size=500).astype(np.float32)
    assert best_of(random, 40).tolist() == np.lexsort((np.arange(500), -random))[:40].tolist()


def test_what_was_forgotten_is_not_known_any_more(learned: LearnedRun, run: Path, tmp_path: Path) -> None:
    head, relation, tail = first_triple(learned)
    (tmp_path / "erase.tsv").write_text(f"{head}\t{relation}\t{tail}\n")
    fedlu.forget(run, tmp_path / "after", triples=str(tmp_path / "erase.tsv"), client="client-0")
    after = fedlu.load(tmp_path / "after")
    known = {
        each: run.predict("client-0", head=head, relation=relation, top=14) for each, run in enumerate((learned, after))
    }
    assert [known[each].filter(pl.col("label") == tail)["known"].item() for each in known] == ["train", None]
    new = after.predict("client-0", head=head, relation=relation, top=14, new_only=True)
    assert tail in new["label"].to_list()


# --- what is refused, and how


def test_wrong_questions_are_refused_with_a_hint(learned: LearnedRun) -> None:
    head, relation, tail = first_triple(learned)
    with pytest.raises(InputError, match=r"no client 'client-O'; did you mean 'client-0'"):
        learned.predict("client-O", head=head, relation=relation)
    with pytest.raises(InputError, match=r"client-0: no entity 'Brasil'; did you mean 'brazil'\?"):
        learned.predict("client-0", head="Brasil", relation=relation)
    with pytest.raises(InputError, match=rf"no relation '{relation}x'; did you mean '{relation}'"):
        learned.predict("client-0", head=head, relation=f"{relation}x")
    for ends in ({}, {"head": head, "tail": tail}):
        with pytest.raises(InputError, match="either a head or a tail"):
            learned.predict("client-0", relation=relation, **ends)
    with pytest.raises(InputError, match=r"no view 'blended' .* choose local or global or blend"):
        learned.predict("client-0", head=head, relation=relation, view="blended")
    with pytest.raises(InputError, match="top = 0"):
        learned.predict("client-0", head=head, relation=relation, top=0)


def test_the_nearest_labels() -> None:
    labels = ("Aspirin", "aspirin tablet", "fever", "/m/01x", "/m/01y")
    assert nearest("asprin", labels)[0] == "Aspirin"
    assert nearest("FEVER", labels) == ["fever"]
    assert nearest("tablet", labels) == ["aspirin tablet"]  # a part of a name is a hint, too
    assert set(nearest("/m/01", labels)) == {"/m/01x", "/m/01y"}
    assert nearest("zzz", labels) == []


def test_runs_that_cannot_predict(data: Path, run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder; check the name"):
        fedlu.load(tmp_path / "nowhere")
    begun = tmp_path / "begun"
    shutil.copytree(run, begun)
    (begun / "metrics.json").unlink()
    (begun / "state.json").unlink()
    with pytest.raises(InputError, match=r"no finished run; finish it with `fedlu learn ... --resume`"):
        fedlu.load(begun)
    moved, copy = tmp_path / "moved", tmp_path / "copy"
    shutil.copytree(data, moved)
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "data": str(tmp_path / "gone")}))
    with pytest.raises(InputError, match="gone: the data of the run is gone; put it back, or say where it is now"):
        fedlu.load(copy)
    assert fedlu.load(copy, data=moved).clients == ("client-0", "client-1")
    with (moved / "client-0" / "train.txt").open("a") as file:
        file.write("brazil\tembassy\tatlantis\n")
    with pytest.raises(InputError, match="the data has changed since"):
        fedlu.load(copy, data=moved)


def test_a_run_of_data_in_memory_needs_it_again(data: Path, tmp_path: Path) -> None:
    federation = load(data)
    fedlu.learn(federation, out=tmp_path / "run", method="independent", **QUICK)
    with pytest.raises(InputError, match="its data was given in memory; give the same federation again"):
        fedlu.load(tmp_path / "run")
    learned = fedlu.load(tmp_path / "run", data=federation)
    assert learned.default_view == "local"
    head, relation, _ = first_triple(learned)
    with pytest.raises(InputError, match=r"its method is independent.*choose local"):
        learned.predict("client-0", head=head, relation=relation, view="global")
    assert len(learned.predict("client-0", head=head, relation=relation, top=3)) == 3


def test_scores_of_a_side_are_not_those_of_the_other(learned: LearnedRun) -> None:
    desk = learned.desks["client-0"]
    anchors, relations = np.array([0, 1]), np.array([0, 0])
    by_side = [desk.scores(Queries(anchors, relations, side), "local") for side in Side]
    assert not np.allclose(*by_side)
