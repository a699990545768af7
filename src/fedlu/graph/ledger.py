"""The ledger of what was forgotten: salted hashes, so that it can be recognised when it comes back, but not read.

A hash is of a client's name and a triple, or of a client's name and an entity or a relation that was erased as a whole.
Who has the ledger and guesses a triple can check the guess: it is to be kept as carefully as the data.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlu.errors import InputError
from fedlu.graph.federation import SPLITS, ClientGraph, Federation

Marks: TypeAlias = dict[str, NDArray[np.bool_]]
"""By split (n,): which triples are meant."""
LEDGER = "ledger.json"


@dataclass(frozen=True)
class Ledger:
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    triples: frozenset[str] = frozenset()
    entities: frozenset[str] = frozenset()
    relations: frozenset[str] = frozenset()

    def hash(self, client: str, *labels: str) -> str:
        """No label holds a tab, so different texts are different bytes."""
        return hashlib.blake2b("\t".join((client, *labels)).encode(), key=self.salt, digest_size=16).hexdigest()

    def marks(self, client: ClientGraph) -> Marks:
        """What of a client's triples was forgotten, by its own hash or by an entity or relation in it."""
        vocabulary, name = client.vocabulary, client.name
        gone = np.array([self.hash(name, "entity", label) in self.entities for label in vocabulary.entities], bool)
        over = np.array([self.hash(name, "relation", label) in self.relations for label in vocabulary.relations], bool)
        found = {}
        for split in (*SPLITS, "forget"):
            triples = client.split(split)
            marks = gone[triples[:, 0]] | over[triples[:, 1]] | gone[triples[:, 2]]
            if self.triples:
                labels = vocabulary.labels(triples)
                marks |= np.array([self.hash(name, *each) in self.triples for each in labels], dtype=bool)
            found[split] = marks
        return found

    def apply(self, federation: Federation) -> tuple[Federation, int]:
        """The federation without what was forgotten, and how many triples that were."""
        clients, number = [], 0
        for client in federation.clients:
            marks = self.marks(client)
            number += sum(int(marks[split].sum()) for split in SPLITS)
            clients.append(client.without(marks))
        return (Federation(federation.name, tuple(clients)), number) if number else (federation, 0)

    def with_triples(self, client: ClientGraph, marks: Marks) -> Ledger:
        labels = (each for split in SPLITS for each in client.vocabulary.labels(client.split(split)[marks[split]]))
        return replace(self, triples=self.triples | {self.hash(client.name, *each) for each in labels})

    def with_entity(self, client: str, label: str) -> Ledger:
        return replace(self, entities=self.entities | {self.hash(client, "entity", label)})

    def with_relation(self, client: str, label: str) -> Ledger:
        return replace(self, relations=self.relations | {self.hash(client, "relation", label)})

    def holds(self, client: ClientGraph, marks: Marks) -> bool:
        """Whether all these triples were forgotten."""
        mine = self.marks(client)
        return all(bool((mine[split] | ~marks[split]).all()) for split in SPLITS)

    def save(self, path: Path) -> None:
        parts = {name: sorted(getattr(self, name)) for name in ("triples", "entities", "relations")}
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"salt": self.salt.hex(), **parts}, file, indent=1)

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """From a file, or from the run that has it."""
        path = path / LEDGER if path.is_dir() else path
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            parts = {name: frozenset(map(str, found[name])) for name in ("triples", "entities", "relations")}
            return cls(bytes.fromhex(found["salt"]), **parts)
        except (OSError, ValueError, KeyError, TypeError) as bad:
            reason = f"not a ledger ({type(bad).__name__})"
            raise InputError(reason, where=path, remedy="give a run that `fedlu forget` wrote") from None
