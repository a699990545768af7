"""What an audit is about: the request, given again, since the run does not store it, and checked against the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedlu.embedding.kernels import Ids
from fedlu.errors import InputError
from fedlu.graph.federation import ClientGraph, Federation
from fedlu.graph.ledger import Ledger
from fedlu.graph.triples import Triples
from fedlu.results import runs
from fedlu.results.forgetting import request_hash
from fedlu.results.requests import Wish, choose, listed_in

Labels = tuple[str, str, str]


def asked_for(data: Federation, before: Path, wish: Wish) -> dict[str, list[Labels]]:
    """What was asked to go, by client: all of a file, or what was learned of what the wish means in the data as it was
    when it was made, if it still has it."""
    if wish.triples is not None:
        if wish.client is None and len(data.clients) > 1:
            raise InputError("whose triples?", where=wish.triples, remedy="give --client")
        return {wish.client or data.clients[0].name: listed_in(wish.triples)}
    if former := runs.ledger_of(before):  # what had gone already could not be chosen
        data, _ = former.apply(data)
    chosen, found = choose(data, wish), {}
    for client in data.clients:
        if client.name in chosen.marks:
            found[client.name] = client.vocabulary.labels(client.train[chosen.marks[client.name]["train"]])
    return found


def learned_of(data: Federation, asked: dict[str, list[Labels]], facts: dict[str, Any]) -> dict[str, list[Labels]]:
    """Of a file's triples those of train: valid and test ones have gone with them, but nobody had learned them."""
    found = {}
    for client in data.clients:
        if labels := asked.get(client.name):
            train, number = set(client.vocabulary.labels(client.train)), facts["forgotten"][client.name]
            mine = labels if len(labels) == number else [triple for triple in labels if triple in train]
            if len(mine) != number:
                what = (
                    f"only {number:,} of these {len(labels):,} triples were learned, and the data does not tell which"
                )
                raise InputError(what, where=data.name, remedy="audit before you remove them from the data")
            found[client.name] = mine
    return found


def check(ledger: Ledger, asked: dict[str, list[Labels]], run: Path) -> None:
    for client, labels in asked.items():
        strangers = [
            triple
            for triple in labels
            if ledger.hash(client, *triple) not in ledger.triples
            and not {ledger.hash(client, "entity", triple[0]), ledger.hash(client, "entity", triple[2])}
            & ledger.entities
        ]
        if strangers:
            what = f"{len(strangers)} of these {len(labels)} triples of {client} are not in the ledger"
            raise InputError(what, where=run, remedy="give the request as it was given to `fedlu forget`")


def check_whole(
    ledger: Ledger, asked: dict[str, list[Labels]], facts: dict[str, Any], run: Path, *, listed: bool
) -> None:
    """Part of a request, or an earlier one, would give evidence of something else than what was asked for."""
    if not any(facts["forgotten"].values()):
        what = "what went was in no train set: it was never learned, and there is nothing to audit"
        raise InputError(what, where=run, remedy="audit a run that forgot triples of train")
    if listed:
        hashes = {ledger.hash(client, *triple) for client, labels in asked.items() for triple in labels}
        is_whole = request_hash(hashes) == facts["hashes"]["request"]
    else:
        is_whole = all(len(asked.get(name, [])) >= number for name, number in facts["forgotten"].items())
    if not is_whole:
        what = f"this is not the request of {sum(facts['forgotten'].values()):,} triples that was forgotten here"
        raise InputError(what, where=run, remedy="give the whole request, as it was given to `fedlu forget`")


def in_ids(client: ClientGraph, labels: list[Labels]) -> Triples:
    """Those whose names are still there."""
    entities, relations = client.vocabulary.entity_ids, client.vocabulary.relation_ids
    rows = [
        (entities[h], relations[r], entities[t])
        for h, r, t in labels
        if h in entities and r in relations and t in entities
    ]
    return np.array(sorted(rows), dtype=np.int32).reshape(-1, 3)


def ends_of(client: ClientGraph, labels: list[Labels]) -> Ids:
    """The heads and tails that are still there: of a triple whose relation or other end was erased, too."""
    ids = client.vocabulary.entity_ids
    return np.array(sorted({ids[name] for h, _, t in labels for name in (h, t) if name in ids}), dtype=np.int64)
