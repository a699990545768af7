"""Turn one graph into a federation: deal its relations out to clients, then split each client's triples 8:1:1."""

from __future__ import annotations

import logging
import math
import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedlu.errors import InputError
from fedlu.graph.federation import ClientGraph, Federation
from fedlu.graph.sources import LabelledTriples
from fedlu.graph.triples import Ids, Triples, Vocabulary, index
from fedlu.seeds import generator

if TYPE_CHECKING:
    from scipy import sparse

logger = logging.getLogger(__name__)

HELD_OUT = 0.1
"""The share of valid, and that of test; the rest is train (8:1:1)."""


def partition(
    source: LabelledTriples, *, clients: int, by: str = "cluster", seed: int = 0, forget: float = 0.0
) -> Federation:
    """Deal the relations of a graph out to clients, by "cluster" (the paper's) or "random" (FedE's)."""
    vocabulary, (triples,) = index([source.frame])
    if by not in DEALERS:
        raise InputError(f"no way to partition by {by!r}", remedy=f"choose one of {', '.join(DEALERS)}")
    if clients < 1:
        raise InputError(f"{clients} clients", where=source.name, remedy="give at least 1")
    if not 0 <= forget < 1:
        raise InputError(f"a forget share of {forget}", where=source.name, remedy="give a number from 0 to below 1")
    if clients > len(vocabulary.relations):
        what = f"{clients} clients but only {len(vocabulary.relations)} relations"
        raise InputError(what, where=source.name, remedy="every client needs a relation of its own: give fewer clients")
    owner = DEALERS[by](triples, vocabulary, clients, seed)[triples[:, 1]]  # (n,)
    width = len(str(clients - 1))
    members = tuple(
        _client(f"client-{number:0{width}}", triples[owner == number], vocabulary, seed, forget)
        for number in range(clients)
    )
    return Federation(name=source.name, clients=members)


def cluster_relations(triples: Triples, vocabulary: Vocabulary, clients: int, seed: int) -> Ids:
    """(relations,): the client of each relation; the paper's Algorithm 2, by spectral clustering of co-occurrence.

    Clusters are numbered by their first relation, so that the seed of k-means does not shuffle the clients.
    """
    relations = len(vocabulary.relations)
    if clients in (1, relations):
        return np.arange(relations, dtype=np.int32) % clients
    from sklearn.cluster import KMeans  # slow to import, and only needed here

    chance = int(generator(seed, "k-means").integers(2**31))
    features = spectral_features(co_occurrence(triples, vocabulary).toarray(), clients)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # relations that are all alike are dealt with below
        labels = KMeans(clients, n_init=10, random_state=chance).fit_predict(features)
    labels = _fill_empty(labels.astype(np.int32), clients)
    _, first = np.unique(labels, return_index=True)
    new_number = np.argsort(np.argsort(first)).astype(np.int32)
    return new_number[labels]


def spectral_features(affinity: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """(relations, number): the first eigenvectors of the normalised Laplacian.

    By a dense solver, which gives the same answer every time even where islands of relations make eigenvalues equal.
    """
    from scipy import linalg  # slow to import, and only needed here

    degree = affinity.sum(axis=0)
    root = np.sqrt(np.where(degree == 0, 1.0, degree))
    laplacian = np.eye(len(affinity)) - affinity / root[:, None] / root
    _, vectors = linalg.eigh(laplacian, subset_by_index=[0, number - 1])
    features: NDArray[np.float64] = vectors / root[:, None]
    return features


def co_occurrence(triples: Triples, vocabulary: Vocabulary) -> sparse.csr_array:
    """(relations, relations): how many entities touch both relations; the diagonal is zero."""
    from scipy import sparse  # slow to import, and only needed here

    ends = np.concatenate([triples[:, 0], triples[:, 2]])
    ones = np.ones(len(ends), dtype=np.float64)
    shape = (len(vocabulary.entities), len(vocabulary.relations))
    touches = sparse.csr_array((ones, (ends, np.tile(triples[:, 1], 2))), shape=shape)
    touches.data[:] = 1.0  # an entity counts once per relation
    counts = sparse.csr_array(touches.T @ touches)
    counts.setdiag(0.0)
    counts.eliminate_zeros()
    return counts


def _fill_empty(labels: Ids, clients: int) -> Ids:
    """k-means leaves a cluster empty where relations are alike: give it one from the largest cluster."""
    for number in range(clients):
        if not (labels == number).any():
            largest = np.bincount(labels, minlength=clients).argmax()
            labels[np.flatnonzero(labels == largest)[-1]] = number
            logger.warning("relations are too alike for %d clusters; one was moved to fill a client", clients)
    return labels


def deal_relations(triples: Triples, vocabulary: Vocabulary, clients: int, seed: int) -> Ids:
    """(relations,): the client of each relation; FedE's even random partition."""
    relations = len(vocabulary.relations)
    owner = np.empty(relations, dtype=np.int32)
    owner[generator(seed, "relations").permutation(relations)] = np.arange(relations) % clients
    return owner


DEALERS = {"cluster": cluster_relations, "random": deal_relations}


# --- one client --------------------------------------------------------------------------------------------------


def _client(name: str, triples: Triples, vocabulary: Vocabulary, seed: int, forget: float) -> ClientGraph:
    if len(triples) < 3:
        what = f"would hold {len(triples)} triples, too few for train, valid and test"
        raise InputError(what, where=name, remedy="give fewer clients, or --by random")
    own, triples = _renumber(triples, vocabulary)
    held = math.ceil(len(triples) * HELD_OUT)
    order = hold_out_order(triples, 2 * held, generator(seed, "split", name))
    valid, test, train = np.split(order, [held, 2 * held])
    sampled = math.ceil(len(train) * forget)
    if sampled >= len(train):
        what = f"forgetting {sampled} of its {len(train)} triples would leave it nothing to train on"
        raise InputError(what, where=name, remedy="give a smaller --forget or fewer clients")
    asked = generator(seed, "forget", name).choice(train, size=sampled, replace=False)
    splits = (triples[np.sort(rows)] for rows in (train, valid, test, asked))
    return ClientGraph(name, own, *splits)


def _renumber(triples: Triples, vocabulary: Vocabulary) -> tuple[Vocabulary, Triples]:
    """The client's own vocabulary. Order is kept, so rows stay sorted."""
    entities, ends = np.unique(triples[:, [0, 2]], return_inverse=True)
    relations, middles = np.unique(triples[:, 1], return_inverse=True)
    own = Vocabulary(tuple(vocabulary.entities[i] for i in entities), tuple(vocabulary.relations[i] for i in relations))
    ends = ends.reshape(-1, 2)
    return own, np.stack([ends[:, 0], middles.reshape(-1), ends[:, 1]], axis=1).astype(np.int32)


def hold_out_order(triples: Triples, wanted: int, random: np.random.Generator) -> NDArray[np.intp]:
    """(n,): rows in an order whose first `wanted` can be held out with the least loss to train.

    In a random order, the first triple of each entity and of each relation is an anchor; all others are free to go:
    what they mention stays in train. Only where these are too few do anchors go too, dispensable ones first.
    """
    order = random.permutation(len(triples))
    shuffled = triples[order]
    _, first_of_relation = np.unique(shuffled[:, 1], return_index=True)
    _, first_of_entity = np.unique(shuffled[:, [0, 2]].ravel(), return_index=True)  # two places a row
    anchor = np.zeros(len(triples), dtype=bool)
    anchor[first_of_relation] = True
    anchor[first_of_entity // 2] = True
    free, anchors = np.flatnonzero(~anchor), np.flatnonzero(anchor)
    free = random.permutation(free)
    if len(free) < wanted:
        anchors = _dispensable_first(shuffled, anchors, wanted - len(free))
    hold_out_first: NDArray[np.intp] = order[np.concatenate([free, anchors])]
    return hold_out_first


def _dispensable_first(triples: Triples, anchors: NDArray[np.intp], wanted: int) -> NDArray[np.intp]:
    """Anchors, reordered so that the first `wanted` take few entities and relations out of train (greedy)."""
    entity_left = np.bincount(triples[anchors][:, [0, 2]].ravel(), minlength=int(triples[:, [0, 2]].max()) + 1)
    relation_left = np.bincount(triples[anchors, 1], minlength=int(triples[:, 1].max()) + 1)
    chosen: dict[int, None] = {}  # an ordered set
    for allowed in range(4):  # what holding one out may lose: nothing, one entity, two, the relation
        for row in anchors.tolist():
            if len(chosen) == wanted:
                break
            head, relation, tail = triples[row].tolist()
            uses = 2 if head == tail else 1
            lost = sum(entity_left[end] == uses for end in {head, tail})
            if relation_left[relation] == 1:
                lost = 3
            if lost <= allowed and row not in chosen:
                chosen[row] = None
                entity_left[head] -= 1
                entity_left[tail] -= 1
                relation_left[relation] -= 1
    first = np.array(list(chosen), dtype=np.intp)
    return np.concatenate([first, np.setdiff1d(anchors, first)])
