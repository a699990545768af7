"""A federation: clients that each hold a private graph. On disk, a folder with one sub-folder per client:

    hospitals/
      north/   train.txt  valid.txt  test.txt  [forget.txt]
      south/   train.txt  valid.txt  test.txt

One triple a line, three columns; .txt, .tsv or .csv, plain or .gz. Every client has ids of its own: what it knows of
the others is only which entities they share, and that is `Federation`'s to say.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlu.errors import InputError
from fedlu.graph.sources import SEPARATORS, line_of, read_file
from fedlu.graph.triples import Ids, Triples, Vocabulary, index, sort_rows

SPLITS = ("train", "valid", "test")
PROVENANCE = "partition.json"
"""Says how `save` came by a federation; its presence marks a folder as ours to replace."""


@dataclass(frozen=True)
class ClientGraph:
    """One owner's triples, numbered by its own vocabulary; `forget` is the part of `train` it is asked to forget."""

    name: str
    vocabulary: Vocabulary
    train: Triples
    valid: Triples
    test: Triples
    forget: Triples
    repeated: int = 0
    """Lines that repeat another line of the same file; they are read once."""

    def split(self, name: str) -> Triples:
        return {"train": self.train, "valid": self.valid, "test": self.test, "forget": self.forget}[name]

    @cached_property
    def known(self) -> Triples:
        """(n, 3): all splits together, the set that filters a ranking."""
        return sort_rows(np.concatenate([self.train, self.valid, self.test]), self.vocabulary)

    def without(self, marks: Mapping[str, NDArray[np.bool_]]) -> ClientGraph:
        """The same graph without the marked triples, and without names that only they had: as if never read."""
        splits = {split: self.split(split)[~marks[split]] for split in (*SPLITS, "forget")}
        used = np.concatenate([splits[split] for split in SPLITS])
        entities, relations = np.unique(used[:, [0, 2]]), np.unique(used[:, 1])
        vocabulary = Vocabulary(
            tuple(self.vocabulary.entities[number] for number in entities),
            tuple(self.vocabulary.relations[number] for number in relations),
        )
        numbers = (entities, relations, entities)
        for split, triples in splits.items():
            columns = [np.searchsorted(old, triples[:, place]) for place, old in enumerate(numbers)]
            splits[split] = np.stack(columns, axis=1).astype(np.int32)
        return ClientGraph(self.name, vocabulary, **splits, repeated=self.repeated)

    def shared_triples(self, first: str, second: str) -> Triples:
        """The triples that stand in two splits; there should be none."""
        a, b = self.split(first), self.split(second)
        return a[np.isin(self.vocabulary.keys(a), self.vocabulary.keys(b))]


@dataclass(frozen=True)
class Federation:
    name: str
    clients: tuple[ClientGraph, ...]

    @cached_property
    def entities(self) -> tuple[str, ...]:
        """Every client's entities together, sorted: the rows of the global table."""
        return tuple(sorted({label for client in self.clients for label in client.vocabulary.entities}))

    @cached_property
    def relations(self) -> tuple[str, ...]:
        return tuple(sorted({label for client in self.clients for label in client.vocabulary.relations}))

    @cached_property
    def rows(self) -> tuple[Ids, ...]:
        """For each client (its entities,): the global row of each of its entities, in increasing order."""
        numbers = {label: number for number, label in enumerate(self.entities)}
        return tuple(
            np.array([numbers[label] for label in client.vocabulary.entities], dtype=np.int32)
            for client in self.clients
        )

    def lift(self, number: int, triples: Triples) -> Triples:
        """A client's triples in the ids of the union."""
        rows = self.rows[number]
        of_label = {label: place for place, label in enumerate(self.relations)}
        relations = np.array([of_label[name] for name in self.clients[number].vocabulary.relations], dtype=np.int32)
        return np.stack([rows[triples[:, 0]], relations[triples[:, 1]], rows[triples[:, 2]]], axis=1)

    def union(self) -> ClientGraph:
        """All clients' triples as one graph, for the centralized setting; its entity ids are the global rows."""
        vocabulary = Vocabulary(self.entities, self.relations)
        splits = {}
        for split in (*SPLITS, "forget"):
            parts = [self.lift(number, client.split(split)) for number, client in enumerate(self.clients)]
            splits[split] = sort_rows(np.concatenate(parts), vocabulary)
        held = np.concatenate([vocabulary.keys(splits[split]) for split in ("valid", "test")])
        for split in ("train", "forget"):  # what one client is tested on, another may have trained on
            splits[split] = splits[split][~np.isin(vocabulary.keys(splits[split]), held)]
        return ClientGraph("all", vocabulary, splits["train"], splits["valid"], splits["test"], splits["forget"])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every client's names and triples: the same data, the same fingerprint."""
        digest = hashlib.sha256()
        for client in self.clients:
            for labels in ((client.name,), client.vocabulary.entities, client.vocabulary.relations):
                digest.update(json.dumps(labels).encode())
            for split in (*SPLITS, "forget"):
                triples = client.split(split)
                digest.update(f"{split} {len(triples)}".encode() + triples.astype("<i4").tobytes())
        return digest.hexdigest()


def load(folder: str | Path, *, allow_leaks: bool = False) -> Federation:
    """Read a federation. A triple in both train and test is refused, unless `allow_leaks` (to describe the fault)."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("no such folder", where=folder, remedy="make one with `fedlu partition`")
    parts = sorted(part for part in folder.iterdir() if part.is_dir() and not part.name.startswith("."))
    if not parts:
        remedy = "expected one sub-folder per client with train, valid and test files"
        raise InputError("no clients", where=folder, remedy=remedy)
    for part in parts:
        if not part.name.isprintable() or part.name.encode("utf-8", "replace").decode() != part.name:
            raise InputError("the name of a client is not plain text", where=folder, remedy=f"rename {part.name!a}")
    clients = tuple(load_client(part) for part in parts)
    if not allow_leaks:
        refuse_leaks(folder, clients)
    return Federation(name=folder.resolve().name, clients=clients)


def refuse_leaks(folder: Path, clients: tuple[ClientGraph, ...]) -> None:
    """A test triple that was trained on makes every result look better than it is."""
    for client in clients:
        leaked = client.shared_triples("test", "train")
        if not len(leaked):
            continue
        train, test = (_split_file(folder / client.name, split) for split in ("train", "test"))
        assert train  # they were read
        assert test
        triple = client.vocabulary.labels(leaked[:1])[0]
        others = f" (and {len(leaked) - 1} more)" if len(leaked) > 1 else ""
        there = line_of(train, triple)
        what = f"the triple is in {train.name}{'' if there is None else f':{there}'} too{others}"
        raise InputError(what, where=test, line=line_of(test, triple), remedy="remove it from one of the two")


def load_client(folder: Path) -> ClientGraph:
    files = {split: _split_file(folder, split) for split in (*SPLITS, "forget")}
    frames = {split: read_file(path).frame for split, path in files.items() if path is not None}
    vocabulary, numbered = index(list(frames.values()))
    splits = dict(zip(frames, numbered, strict=True))
    client = ClientGraph(
        name=folder.name,
        vocabulary=vocabulary,
        forget=splits.pop("forget", np.empty((0, 3), dtype=np.int32)),
        repeated=sum(len(frame) for frame in frames.values()) - sum(map(len, numbered)),
        **splits,
    )
    strangers = ~np.isin(vocabulary.keys(client.forget), vocabulary.keys(client.train))
    if strangers.any():
        path = files["forget"]
        assert path is not None
        line = line_of(path, vocabulary.labels(client.forget[strangers][:1])[0])
        raise InputError("the triple is not in train", where=path, line=line, remedy="only trained triples can go")
    return client


def _split_file(folder: Path, split: str) -> Path | None:
    found = [folder / f"{split}{suffix}{packed}" for suffix in SEPARATORS for packed in ("", ".gz")]
    found = [path for path in found if path.is_file()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise InputError(f"{split} is there twice, as {names}", where=folder, remedy="keep one of them")
    if found:
        return found[0]
    if split == "forget":
        return None
    raise InputError(f"no {split} split", where=folder, remedy=f"expected {split}.txt, .tsv or .csv, plain or .gz")


def save(federation: Federation, folder: str | Path, provenance: dict[str, object], *, replace: bool = False) -> None:
    """Write a federation, whole or not at all; an existing folder is replaced only if `save` made it."""
    folder = Path(folder)
    check_target(folder, replace=replace)
    with whole_folder(folder) as new:
        for client in federation.clients:
            (new / client.name).mkdir()
            for split in (*SPLITS, "forget"):
                triples = client.split(split)
                if split == "forget" and not len(triples):
                    continue
                lines = ("\t".join(labels) + "\n" for labels in client.vocabulary.labels(triples))
                with (new / client.name / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as file:
                    file.writelines(lines)
        text = json.dumps(provenance, indent=2) + "\n"
        (new / PROVENANCE).write_text(text, encoding="utf-8")


def check_target(folder: Path, *, replace: bool = False) -> None:
    """Refuse early what `save` would refuse in the end."""
    whole = folder.absolute()
    above = next(parent for parent in whole.parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError("cannot be written to", where=above, remedy="choose another --out")
    if whole == Path.cwd() or folder.is_symlink():
        raise InputError("is the working folder or a link", where=folder, remedy="choose a folder of its own as --out")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError("is a file", where=folder, remedy="choose another --out")
    if not any(folder.iterdir()):
        return
    if not _is_ours(folder):
        remedy = "choose another --out (what is in it was not all made by `fedlu partition`)"
        raise InputError("the folder is not empty", where=folder, remedy=remedy)
    if not replace:
        remedy = "choose another --out, or --force to replace it"
        raise InputError("the folder is not empty", where=folder, remedy=remedy)


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a saved federation and nothing else, so that replacing it loses nobody's work."""
    ours = {f"{split}.txt" for split in (*SPLITS, "forget")}
    clients = [entry for entry in folder.iterdir() if entry.name != PROVENANCE]
    return (folder / PROVENANCE).is_file() and all(
        client.is_dir() and all(file.name in ours for file in client.iterdir()) for client in clients
    )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its place only once all is written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.parent / f".{folder.name}-{secrets.token_hex(8)}"
    new, old = scratch / "new", scratch / "old"
    try:  # the name is chosen before: whoever stops us as soon as the folder is there finds it cleared away
        scratch.mkdir(mode=0o700)
        new.mkdir()  # with the usual rights, which the scratch folder does not have
        yield new
        if folder.exists():
            folder.replace(old)
        new.replace(folder)
    finally:
        if old.exists() and not folder.exists():  # interrupted between the two
            old.replace(folder)
        shutil.rmtree(scratch, ignore_errors=True)
