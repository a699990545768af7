"""What is asked to go: a file of triples, the forget sets, a sample, all about an entity, or a relation."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedlu.errors import InputError
from fedlu.graph.federation import SPLITS, ClientGraph, Federation
from fedlu.graph.ledger import Ledger, Marks
from fedlu.graph.sources import read_file
from fedlu.graph.triples import COLUMNS
from fedlu.seeds import generator


@dataclass(frozen=True)
class Wish:
    """One of these kinds; `client` narrows it to one owner, and is needed for a file of triples."""

    triples: str | Path | None = None
    forget_sets: bool = False
    fraction: float = 0.0
    seed: int = 0
    entity: str | None = None
    relation: str | None = None
    client: str | None = None

    def __post_init__(self) -> None:
        kinds = [self.triples is not None, self.forget_sets, self.fraction != 0, bool(self.entity), bool(self.relation)]
        if sum(kinds) != 1:
            remedy = "give one of --triples, --forget-sets, --fraction, --entity and --relation"
            raise InputError("what is to be forgotten?" if not any(kinds) else "more than one request", remedy=remedy)
        if not 0 <= self.fraction < 1:
            raise InputError(f"fraction = {self.fraction}", remedy="give a share above 0 and below 1, such as 0.01")


@dataclass(frozen=True)
class Chosen:
    """What goes, by client; and what of it is erased as a whole."""

    marks: dict[str, Marks]
    entity: str | None = None
    relation: str | None = None

    def count(self) -> int:
        return sum(int(marks[split].sum()) for marks in self.marks.values() for split in SPLITS)

    def remember(self, ledger: Ledger, data: Federation) -> Ledger:
        for client in data.clients:
            if client.name in self.marks:
                ledger = ledger.with_triples(client, self.marks[client.name])
                if self.entity is not None:
                    ledger = ledger.with_entity(client.name, self.entity)
                if self.relation is not None:
                    ledger = ledger.with_relation(client.name, self.relation)
        return ledger

    def labels(self, data: Federation) -> list[tuple[str, tuple[str, str, str]]]:
        """By client's name; for the screen of who asked, and nowhere else."""
        return [
            (client.name, triple)
            for client in data.clients
            if client.name in self.marks
            for split in SPLITS
            for triple in client.vocabulary.labels(client.split(split)[self.marks[client.name][split]])
        ]


def choose(data: Federation, wish: Wish) -> Chosen:
    """Find what a wish means in this data, and refuse what cannot be done before anything changes."""
    clients = _clients(data, wish.client)
    if wish.triples is not None:
        if wish.client is None and len(data.clients) > 1:
            names = ", ".join(client.name for client in data.clients)
            raise InputError("whose triples?", where=wish.triples, remedy=f"give --client, one of {names}")
        marks = {clients[0].name: _listed(clients[0], wish.triples)}
    elif wish.forget_sets:
        marks = {client.name: _same(client, client.vocabulary.keys(client.forget)) for client in clients}
        if not any(marks[client.name]["train"].any() for client in clients):
            what = "no client has a forget.txt with triples that are still there"
            raise InputError(what, where=data.name, remedy="name what is to go in another way")
    elif wish.fraction:
        marks = {client.name: _sampled(client, wish.fraction, wish.seed) for client in clients}
    else:
        marks = _about(clients, wish)
    chosen = Chosen(
        {name: each for name, each in marks.items() if any(each[split].any() for split in SPLITS)},
        wish.entity,
        wish.relation,
    )
    for client in clients:
        if client.name in chosen.marks and chosen.marks[client.name]["train"].all():
            what = f"nothing would be left for {client.name} to learn from"
            raise InputError(what, where=data.name, remedy="ask for less, or delete the client's run and data")
    if not chosen.marks:
        raise InputError("nothing would go", where=data.name, remedy="ask for more")
    return chosen


def _clients(data: Federation, name: str | None) -> list[ClientGraph]:
    if name is None:
        return list(data.clients)
    found = [client for client in data.clients if client.name == name]
    if not found:
        names = ", ".join(client.name for client in data.clients)
        raise InputError(f"no client {name!r}", where=data.name, remedy=f"choose one of {names}")
    return found


def _none(client: ClientGraph) -> Marks:
    return {split: np.zeros(len(client.split(split)), dtype=np.bool_) for split in (*SPLITS, "forget")}


def _same(client: ClientGraph, keys: np.ndarray) -> Marks:
    """Marks of the triples with these keys, in every split."""
    return {split: np.isin(client.vocabulary.keys(client.split(split)), keys) for split in (*SPLITS, "forget")}


def listed_in(path: str | Path) -> list[tuple[str, str, str]]:
    """The triples of a file, each once."""
    frame = read_file(Path(path)).frame
    return list(dict.fromkeys(zip(*(frame[column].to_list() for column in COLUMNS), strict=True)))


def _listed(client: ClientGraph, path: str | Path) -> Marks:
    wanted, vocabulary = listed_in(path), client.vocabulary
    held = set(vocabulary.labels(client.known))
    missing = [" ".join(triple) for triple in wanted if triple not in held]
    if missing:
        listed = ", ".join(missing[:20]) + (f" and {len(missing) - 20} more" if len(missing) > 20 else "")
        what = f"{client.name} does not hold {len(missing)} of these {len(wanted)} triples: {listed}"
        raise InputError(what, where=path, remedy="remove them from the file, or name the right client")
    numbers = [(vocabulary.entity_ids[h], vocabulary.relation_ids[r], vocabulary.entity_ids[t]) for h, r, t in wanted]
    return _same(client, vocabulary.keys(np.array(numbers, dtype=np.int32).reshape(-1, 3)))


def _sampled(client: ClientGraph, fraction: float, seed: int) -> Marks:
    number = min(max(1, round(fraction * len(client.train))), len(client.train) - 1)
    random = generator(seed, "forget", client.name)
    chosen = random.choice(len(client.train), size=max(0, number), replace=False)
    return _same(client, client.vocabulary.keys(client.train[chosen]))


def _about(clients: list[ClientGraph], wish: Wish) -> dict[str, Marks]:
    """All triples with an entity at either end, or of a relation."""
    name, found = wish.entity or wish.relation or "", {}
    for client in clients:
        ids = client.vocabulary.entity_ids if wish.entity else client.vocabulary.relation_ids
        if name not in ids:
            continue
        columns = [0, 2] if wish.entity else [1]
        splits = (*SPLITS, "forget")
        found[client.name] = {split: (client.split(split)[:, columns] == ids[name]).any(1) for split in splits}
    if not found:
        kind = "entity" if wish.entity else "relation"
        names = {
            label
            for client in clients
            for label in (client.vocabulary.entities if wish.entity else client.vocabulary.relations)
        }
        near = difflib.get_close_matches(name, sorted(names), n=3)
        remedy = f"did you mean {' or '.join(near)}?" if near else "check the name, and the client's data"
        raise InputError(f"no {kind} {name!r}", remedy=remedy)
    return found
