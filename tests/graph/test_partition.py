"""Partitions: every triple goes to one client, splits are 8:1:1 and keep train whole, the paper's are given back."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fedlu.errors import InputError
from fedlu.graph import Federation, LabelledTriples, load, partition, read, save
from fedlu.graph.partition import co_occurrence, hold_out_order
from fedlu.graph.triples import COLUMNS, index
from tests.graph.test_federation import tree

Rows = list[tuple[str, str, str]]


def source(rows: Rows) -> LabelledTriples:
    return LabelledTriples(pl.DataFrame(rows, schema=list(COLUMNS), orient="row"), name="made")


def labelled(federation: Federation, split: str) -> list[tuple[str, str, str]]:
    return [row for client in federation.clients for row in client.vocabulary.labels(client.split(split))]


def two_worlds() -> Rows:
    """Persons know each other by r0..r3, places by r4..r7; one person is from one place."""
    people = [(f"person{a}", f"r{(a + b) % 4}", f"person{b}") for a, b in permutations(range(12), 2)]
    places = [(f"place{a}", f"r{4 + (a + b) % 4}", f"place{b}") for a, b in permutations(range(12), 2)]
    return [*people, *places, ("person0", "r4", "place0")]


def test_clusters_are_the_worlds_that_relations_live_in() -> None:
    federation = partition(source(two_worlds()), clients=2, seed=3)
    assert [client.vocabulary.relations for client in federation.clients] == [
        ("r0", "r1", "r2", "r3"),
        ("r4", "r5", "r6", "r7"),
    ]


def test_co_occurrence_counts_the_entities_that_touch_both() -> None:
    vocabulary, (triples,) = index([source([*two_worlds(), ("loop", "r0", "loop"), ("loop", "r7", "loop")]).frame])
    touched = defaultdict(set)
    for head, relation, tail in triples.tolist():
        touched[head].add(relation)
        touched[tail].add(relation)
    expected = np.zeros((8, 8))  # the paper's Algorithm 2, lines 3 to 10
    for relations in touched.values():
        for first, second in permutations(relations, 2):
            expected[first, second] += 1
    assert (co_occurrence(triples, vocabulary).toarray() == expected).all()


@pytest.mark.parametrize("by", ["cluster", "random"])
@pytest.mark.parametrize("name", ["umls", "nations"])
def test_every_triple_goes_to_one_client_and_one_split(by: str, name: str) -> None:
    graph = read(name)
    federation = partition(graph, clients=4, by=by, seed=5, forget=0.01)
    dealt = [row for split in ("train", "valid", "test") for row in labelled(federation, split)]
    assert sorted(dealt) == sorted(set(graph.frame.rows()))
    for a, b in combinations(federation.clients, 2):
        assert not set(a.vocabulary.relations) & set(b.vocabulary.relations)
    for client in federation.clients:
        held = math.ceil(len(client.known) / 10)
        assert len(client.valid) == len(client.test) == held
        assert len(client.forget) == math.ceil(len(client.train) * 0.01)
        assert set(client.vocabulary.labels(client.forget)) <= set(client.vocabulary.labels(client.train))


def test_random_relations_are_dealt_evenly_and_by_the_seed() -> None:
    first, again, other = (partition(read("umls"), clients=4, by="random", seed=seed) for seed in (1, 1, 2))
    sizes = sorted(len(client.vocabulary.relations) for client in first.clients)
    assert sizes == [11, 11, 12, 12]
    assert labelled(first, "train") == labelled(again, "train")
    assert labelled(first, "train") != labelled(other, "train")


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(partition(read("nations"), clients=3, seed=9, forget=0.05), tmp_path / name, {"seed": 9})
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_islands_of_relations_are_dealt_the_same_way_every_time() -> None:
    """No two relations share an entity, so eigenvalues are equal: an iterative solver would answer at random."""
    rows = [(f"{r}-{a}", f"r{r}", f"{r}-{b}") for r in range(8) for a, b in [(0, 1), (1, 2), (2, 0), (0, 3), (3, 1)]]
    found = {str(labelled(partition(source(rows), clients=5, seed=36), "train")) for _ in range(10)}
    assert len(found) == 1


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70])
@pytest.mark.parametrize("by", ["cluster", "random"])
def test_any_whole_number_is_a_seed(by: str, seed: int) -> None:
    assert len(partition(read("nations"), clients=2, by=by, seed=seed).clients) == 2


TRIPLES = st.lists(st.tuples(*[st.integers(0, 12)] * 3), min_size=3, max_size=80, unique=True)


@settings(deadline=None)
@given(TRIPLES, st.integers(0, 5))
def test_train_keeps_what_can_be_kept(rows: list[tuple[int, int, int]], seed: int) -> None:
    """An order of all rows; and where one triple for each name leaves enough to hold out, no name is lost."""
    triples = np.array(rows, dtype=np.int32)
    held = 2 * math.ceil(len(rows) / 10)
    order = hold_out_order(triples, held, np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(rows)))
    train = triples[order[held:]]
    lost = len(set(triples[:, [0, 2]].ravel())) - len(set(train[:, [0, 2]].ravel()))
    needed = len(set(triples[:, [0, 2]].ravel())) + len(set(triples[:, 1]))
    if len(rows) - needed >= held:
        assert lost == 0
        assert set(triples[:, 1]) == set(train[:, 1])


def test_a_sparse_graph_gives_up_the_dispensable_first() -> None:
    """A star of pairs and a cycle: only triples of the cycle can go without losing an entity."""
    star = [(0, 0, leaf) for leaf in range(1, 41)]
    cycle = [(50 + i, 1, 50 + (i + 1) % 10) for i in range(10)]
    triples = np.array(star + cycle, dtype=np.int32)
    train = triples[hold_out_order(triples, 4, np.random.default_rng(0))[4:]]  # a greedy finds at least 4
    assert len(set(train[:, [0, 2]].ravel())) == len(set(triples[:, [0, 2]].ravel()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 47}, "umls: 47 clients but only 46 relations"),
        ({"clients": 0}, "umls: 0 clients; give at least 1"),
        ({"clients": 2, "by": "colour"}, "no way to partition by 'colour'; choose one of cluster, random"),
        ({"clients": 2, "forget": 1.0}, "umls: a forget share of 1.0"),
        ({"clients": 46}, "too few for train, valid and test; give fewer clients"),
        ({"clients": 3, "forget": 0.999}, "would leave it nothing to train on"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        partition(read("umls"), **options)  # type: ignore[arg-type]
    assert message in str(refusal.value)


def test_one_client_takes_all() -> None:
    federation = partition(read("nations"), clients=1)
    assert len(federation.clients[0].known) == 1992


def test_relations_that_are_all_alike_still_give_every_client_some() -> None:
    rows = [(f"e{a}", f"r{r}", f"e{b}") for a, b in permutations(range(4), 2) for r in range(6)]
    federation = partition(source(rows), clients=4)
    assert sorted(sum((client.vocabulary.relations for client in federation.clients), ())) == [
        f"r{r}" for r in range(6)
    ]
    assert all(len(client.train) for client in federation.clients)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 2026])
def test_the_published_clusters_are_given_back(fb15k237: Path, published: Path, seed: int) -> None:
    """Adjusted Rand index 1.0 with C3, whatever the seed."""
    theirs = {
        relation: client.name for client in load(published / "C3").clients for relation in client.vocabulary.relations
    }
    ours = partition(read(fb15k237), clients=3, by="cluster", seed=seed)
    mine = {relation: client.name for client in ours.clients for relation in client.vocabulary.relations}
    assert adjusted_rand_score([theirs[r] for r in sorted(theirs)], [mine[r] for r in sorted(theirs)]) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("by", ["cluster", "random"])
@pytest.mark.parametrize("clients", [3, 5, 10])
def test_all_six_federations_of_the_paper_are_whole(fb15k237: Path, by: str, clients: int) -> None:
    federation = partition(read(fb15k237), clients=clients, by=by)
    assert len(federation.clients) == clients
    assert sum(len(client.known) for client in federation.clients) == 310_116
    for client in federation.clients:
        assert min(len(client.train), len(client.valid), len(client.test)) > 0
        assert set(np.unique(client.train[:, [0, 2]])) == set(range(len(client.vocabulary.entities)))
        assert set(np.unique(client.train[:, 1])) == set(range(len(client.vocabulary.relations)))
