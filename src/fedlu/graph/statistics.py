"""What `fedlu describe` shows: how large the clients are, how unlike each other, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedlu.graph.federation import SPLITS, ClientGraph, Federation
from fedlu.graph.triples import Triples


@dataclass(frozen=True)
class ClientStatistics:
    """One client, over all its splits together unless said otherwise."""

    name: str
    relations: int
    entities: int
    triples: dict[str, int]
    """Per split, and of the forget set."""
    average_degree: float
    clustering_coefficient: float
    degrees: dict[int, int]
    """How many entities have each degree: the number of triples that mention it (twice for a loop)."""
    only_outside_train: int
    """Entities that valid or test mention but train does not: no model can have learned them."""


@dataclass(frozen=True)
class FederationStatistics:
    name: str
    clients: tuple[ClientStatistics, ...]
    entities: int
    relations: int
    mean_entity_overlap: float
    """The mean over pairs of clients of the number of entities that both hold: the paper's figure."""
    mean_relation_overlap: float
    entity_overlap: tuple[tuple[int, ...], ...]
    """(clients, clients): entities that both hold; the diagonal is a client's own number."""
    owners: dict[int, int]
    """How many entities have each number of owners."""
    warnings: tuple[str, ...]


def describe(federation: Federation) -> FederationStatistics:
    clients = tuple(_describe_client(client) for client in federation.clients)
    entity_overlap = _overlap([client.vocabulary.entities for client in federation.clients])
    relation_overlap = _overlap([client.vocabulary.relations for client in federation.clients])
    numbers = np.bincount(np.concatenate(federation.rows), minlength=len(federation.entities))
    return FederationStatistics(
        name=federation.name,
        clients=clients,
        entities=len(federation.entities),
        relations=len(federation.relations),
        mean_entity_overlap=_mean_pair(entity_overlap),
        mean_relation_overlap=_mean_pair(relation_overlap),
        entity_overlap=tuple(tuple(row) for row in entity_overlap.tolist()),
        owners=_histogram(numbers),
        warnings=tuple(warning for client in federation.clients for warning in _warnings(client)),
    )


def _describe_client(client: ClientGraph) -> ClientStatistics:
    entities = len(client.vocabulary.entities)
    degree = np.bincount(client.known[:, [0, 2]].ravel(), minlength=entities)
    return ClientStatistics(
        name=client.name,
        relations=len(client.vocabulary.relations),
        entities=entities,
        triples={split: len(client.split(split)) for split in (*SPLITS, "forget")},
        average_degree=float(degree.mean()),
        clustering_coefficient=clustering_coefficient(client.known, entities),
        degrees=_histogram(degree),
        only_outside_train=entities - len(np.unique(client.train[:, [0, 2]])),
    )


def _warnings(client: ClientGraph) -> list[str]:
    found = []
    outside = np.setdiff1d(np.arange(len(client.vocabulary.entities)), client.train[:, [0, 2]])
    if len(outside):
        examples = ", ".join(client.vocabulary.entities[i] for i in outside[:3])
        found.append(
            f"{client.name}: {len(outside)} entities are only in valid or test ({_shorten(examples, outside)})"
        )
    for first, second in combinations(SPLITS, 2):
        shared = client.shared_triples(first, second)
        if len(shared):
            found.append(f"{client.name}: {len(shared)} triples are both in {first} and in {second}")
    if client.repeated:
        found.append(f"{client.name}: {client.repeated} lines repeat a triple of the same file and were read once")
    return found


def _shorten(examples: str, found: NDArray[np.int_]) -> str:
    return examples + (", ..." if len(found) > 3 else "")


def clustering_coefficient(triples: Triples, entities: int) -> float:
    """The mean local clustering coefficient of the graph of entities, undirected, without loops or double edges.

    Edges point from the lower to the higher degree, so each of a triangle's corners is found by one sparse product
    and no product is dense, whatever the hubs.
    """
    from scipy import sparse  # slow to import, and only needed here

    ends = np.sort(triples[triples[:, 0] != triples[:, 2]][:, [0, 2]], axis=1).astype(np.int64)
    pairs = np.unique(ends[:, 0] * entities + ends[:, 1])
    a, b = pairs // entities, pairs % entities
    degree = np.bincount(a, minlength=entities) + np.bincount(b, minlength=entities)
    swap = (degree[a] > degree[b]) | ((degree[a] == degree[b]) & (a > b))
    low, high = np.where(swap, b, a), np.where(swap, a, b)
    edges = sparse.csr_array((np.ones(len(low), dtype=np.int64), (low, high)), shape=(entities, entities))
    through = (edges @ edges).multiply(edges)  # [u, w]: u -> v -> w with u -> w
    below = (edges.T @ edges).multiply(edges)  # [v, w]: v <- u -> w with v -> w
    triangles: NDArray[np.int64] = through.sum(axis=1) + below.sum(axis=1) + below.sum(axis=0)  # at u, v and w
    wedges = degree * (degree - 1) / 2
    return float(np.divide(triangles, wedges, out=np.zeros(entities), where=wedges > 0).mean())


def _overlap(labels: list[tuple[str, ...]]) -> NDArray[np.int64]:
    sets = [frozenset(each) for each in labels]
    return np.array([[len(a & b) for b in sets] for a in sets], dtype=np.int64)


def _mean_pair(overlap: NDArray[np.int64]) -> float:
    upper = overlap[np.triu_indices(len(overlap), k=1)]
    return float(upper.mean()) if len(upper) else 0.0


def _histogram(values: NDArray[np.int_]) -> dict[int, int]:
    numbers, counts = np.unique(values, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def log_bins(degrees: dict[int, int], per_decade: int = 5) -> tuple[list[float], list[float]]:
    """A heavy-tailed histogram in bins of equal ratio: their mean degree, and the density of entities there."""
    values = np.array(sorted(degrees))
    counts = np.array([degrees[value] for value in values.tolist()], dtype=np.float64)
    steps = np.arange(int(np.ceil(np.log10(values.max() + 1) * per_decade)) + 1)
    edges = np.unique(np.ceil(10 ** (steps / per_decade)))  # the last one is above every degree
    bins = np.digitize(values, edges) - 1
    mass = np.bincount(bins, weights=counts, minlength=len(edges) - 1)
    centre = np.bincount(bins, weights=counts * values, minlength=len(edges) - 1)
    some = mass > 0
    density = mass[some] / np.diff(edges)[some] / counts.sum()
    return (centre[some] / mass[some]).tolist(), density.tolist()
