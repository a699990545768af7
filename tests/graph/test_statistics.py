"""What `describe` counts, checked by hand, against networkx, and against the paper's figures."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlu.graph import describe, load, partition, read
from fedlu.graph.statistics import clustering_coefficient
from tests.conftest import Write


def test_a_federation_counted_by_hand(hospitals: Path) -> None:
    found = describe(load(hospitals))
    north, south = found.clients
    assert (north.relations, north.entities) == (3, 4)
    assert north.triples == {"train": 4, "valid": 1, "test": 1, "forget": 1}
    assert north.degrees == {2: 1, 3: 2, 4: 1}  # fever 2; bob, flu 3; ada 4
    assert north.average_degree == 12 / 4
    assert (found.entities, found.relations) == (5, 4)
    assert found.owners == {1: 3, 2: 2}
    assert found.entity_overlap == ((4, 2), (2, 3))
    assert found.mean_entity_overlap == 2
    assert found.mean_relation_overlap == 1
    assert south.clustering_coefficient == 1
    assert found.warnings == ()


def test_faults_become_warnings(hospitals: Path, write: Write) -> None:
    write("hospitals/north/valid.txt", "bob\tknows\tada\nada\tknows\tzoe\n")
    write("hospitals/north/test.txt", "ada\thas\tflu\nbob\tknows\tada\nbob\tknows\tada\n")
    found = describe(load(hospitals, allow_leaks=True))
    assert found.clients[0].only_outside_train == 1
    assert found.warnings == (
        "north: 1 entities are only in valid or test (zoe)",
        "north: 1 triples are both in train and in test",
        "north: 1 triples are both in valid and in test",
        "north: 1 lines repeat a triple of the same file and were read once",
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=60))
def test_clustering_equals_networkx(rows: list[tuple[int, int, int]]) -> None:
    graph = networkx.Graph()
    graph.add_nodes_from(range(10))
    graph.add_edges_from((head, tail) for head, _, tail in rows if head != tail)
    ours = clustering_coefficient(np.array(rows, dtype=np.int32), entities=10)
    assert ours == pytest.approx(networkx.average_clustering(graph))


def test_degrees_add_up() -> None:
    for client in describe(partition(read("umls"), clients=3, by="random")).clients:
        assert sum(client.degrees.values()) == client.entities
        ends = sum(degree * count for degree, count in client.degrees.items())
        assert ends == 2 * sum(client.triples[split] for split in ("train", "valid", "test"))
        assert client.average_degree == pytest.approx(ends / client.entities)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "overlap"), [("C3", 1447), ("R3", 11067)])
def test_the_overlap_that_the_paper_prints(published: Path, name: str, overlap: int) -> None:
    found = describe(load(published / name))
    assert found.mean_entity_overlap == overlap
    assert (found.entities, found.relations, found.mean_relation_overlap) == (14541, 237, 0)
    if name == "C3":
        assert [client.only_outside_train for client in found.clients] == [6, 0, 0]
        assert found.owners[1] == 10388
