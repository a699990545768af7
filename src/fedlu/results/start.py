"""A run that does not begin with random rows: tables of another run, or of a PyKEEN model, are put in before round 1.

A file is meant for one client (`north=tables.safetensors`) or for all (`tables.safetensors`). Whatever it names that a
client has, entities and relations, begins with its row; the rest begins as ever. Rows that the client shares begin so
for the server, too: as the mean over the clients that were given one, as if they had sent it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedlu.config import Settings
from fedlu.embedding.kernels import Floats, Ids
from fedlu.errors import InputError
from fedlu.federated.client import Client
from fedlu.federated.server import Server
from fedlu.graph.federation import Federation
from fedlu.results.tables import Tables, read_tables


@dataclass(frozen=True)
class Start:
    client: str | None
    """None is for all."""
    file: Path
    digest: str
    tables: Tables = field(repr=False)

    def record(self) -> dict[str, Any]:
        """What `config.json` keeps of it."""
        return {"client": self.client, "file": str(self.file.resolve()), "sha256": self.digest}


def parse_starts(given: str | Path | Iterable[str | Path], data: Federation, settings: Settings) -> list[Start]:
    """From ["tables.safetensors", "north=other.safetensors"]; where two name the same, the later one holds.

    All that can be wrong with them is found here, before a run is begun.
    """
    names = ("all",) if settings.method == "centralized" else tuple(client.name for client in data.clients)
    return [_parse(str(each), names, data, settings) for each in ([given] if isinstance(given, str | Path) else given)]


def _parse(given: str, names: tuple[str, ...], data: Federation, settings: Settings) -> Start:
    client, equals, file = given.rpartition("=")
    whole = not equals or Path(given).is_file()  # a file may have = in its name
    path, wanted = Path(given if whole else file), None if whole else client
    if wanted is not None and wanted not in names:
        raise InputError(f"no client {wanted!r} to start", remedy=f"its clients are {', '.join(names)}")
    tables = read_tables(path)
    _refuse_misfit(tables, settings, path)
    if not set(tables.shape.entities) & set(data.entities):
        raise InputError("it names no entity of this federation", where=path, remedy="names must be written alike")
    return Start(wanted, path, hashlib.sha256(path.read_bytes()).hexdigest(), tables)


def begin_from(starts: list[Start], server: Server, clients: list[Client]) -> None:
    """Put the rows of the files where random ones were."""
    given: dict[str, Ids] = {client.name: np.empty(0, dtype=np.int64) for client in clients}
    for start in starts:
        for client in clients:
            if start.client in (None, client.name):
                given[client.name] = np.union1d(given[client.name], _put(start.tables, client))
    _tell_server(server, clients, given)


def _refuse_misfit(tables: Tables, settings: Settings, file: Path) -> None:
    for name in ("model", "dimension", "reciprocal"):
        theirs, mine = getattr(tables.shape, name), getattr(settings, name)
        if theirs != mine:
            option = f"--model {theirs}" if name == "model" else f"--set {name}={str(theirs).lower()}"
            raise InputError(f"its {name} is {theirs}, the run's is {mine}", where=file, remedy=f"learn with {option}")


def _put(tables: Tables, client: Client) -> Ids:
    """The ids of the client's entities that the tables have a row for; both of its tables begin with them."""
    labels, shape = client.graph.vocabulary, tables.shape
    mine, theirs = _matched(labels.entity_ids, shape.entities)
    for table in (client.local, client.avatar):
        table.values[mine] = tables.entities[theirs]
    ours, others = _matched(labels.relation_ids, shape.relations)
    for table in (client.relations,) if client.local_relations is None else (client.relations, client.local_relations):
        table.values[ours] = tables.relations[others]
        if shape.reciprocal:
            table.values[ours + len(labels.relations)] = tables.relations[others + len(shape.relations)]
    own = client.learner.scorer.parameters
    if own is not None and "parameters" in tables.own:
        own.values = tables.own["parameters"].copy()
    return mine


def _matched(ids: dict[str, int], names: tuple[str, ...]) -> tuple[Ids, Ids]:
    pairs = [(ids[name], place) for place, name in enumerate(names) if name in ids]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _tell_server(server: Server, clients: list[Client], given: dict[str, Ids]) -> None:
    total: Floats = np.zeros_like(server.table)
    count = np.zeros(len(server.table), dtype=np.int64)
    for client in sorted(clients, key=lambda client: client.name):
        has = np.isin(client.shared, given[client.name])
        rows = server.rows[client.name][has]
        total[rows] += client.avatar.values[client.shared[has]]
        count[rows] += 1
    known = count > 0
    server.table[known] = total[known] / count[known, None].astype(np.float32)
