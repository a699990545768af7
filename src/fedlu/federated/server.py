"""The server: rows of shared entities, by token, and their average. It sees no name, no relation and no triple."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.kernels import Floats, Ids
from fedlu.errors import InputError
from fedlu.federated.compression import Sender, slice_of, unpacked
from fedlu.federated.messages import Registration, Rows, Trained, Unlearned, Welcome, check_places, check_rows
from fedlu.seeds import generator


class Server:
    def __init__(self, width: int, start_range: float, seed: int, compress: str = "none", add_up: float = 0.0):
        self.width, self.start_range, self.seed, self.add_up = width, start_range, seed, add_up
        self.rows: dict[str, Ids] = {}  # client -> the global rows of its shared entities
        self.table: Floats = np.empty((0, width), dtype=np.float32)
        self.tokens: list[bytes] = []  # of the rows of the table
        self.sender = Sender.of(compress, 0, width)

    def register(self, registrations: list[Registration]) -> dict[str, Welcome]:
        """Find the tokens with several owners; rows with one owner stay with it, since their average is themselves."""
        owners: dict[bytes, int] = {}
        for registration in registrations:
            if len(set(registration.tokens)) != len(registration.tokens):
                remedy = "two of its labels are the same text in different Unicode forms: write them alike"
                raise InputError("registers a token twice", where=registration.client, remedy=remedy)
            for token in registration.tokens:
                owners[token] = owners.get(token, 0) + 1
        shared = sorted(token for token, number in owners.items() if number > 1)
        self.tokens, number_of = shared, {token: number for number, token in enumerate(shared)}
        random = generator(self.seed, "server")
        start = random.uniform(-self.start_range, self.start_range, size=(len(shared), self.width))
        self.table = start.astype(np.float32)
        self.sender = Sender.of(self.sender.kind, len(shared), self.width)
        welcomes = {}
        for registration in registrations:
            places = [place for place, token in enumerate(registration.tokens) if token in number_of]
            self.rows[registration.client] = np.array(
                [number_of[registration.tokens[p]] for p in places], dtype=np.int64
            )
            welcomes[registration.client] = Welcome(np.array(places, dtype=np.int64))
        return welcomes

    def sample(self, round_number: int, fraction: float) -> list[str]:
        """The clients of a round, in the order of their names."""
        names = sorted(self.rows)
        number = max(1, round(fraction * len(names)))
        if number == len(names):
            return names
        chosen = generator(self.seed, "sample", round_number).choice(len(names), size=number, replace=False)
        return [names[place] for place in sorted(chosen)]

    def rows_for(self, client: str) -> Floats:
        return self.table[self.rows[client]]

    def send(self, clients: list[str]) -> dict[str, Rows]:
        """Their rows as they travel while learning; packed once, so that all who share a row receive the same."""
        packed = self.sender.pack(self.table)
        return {client: slice_of(packed, self.rows[client]) for client in clients}

    def receive(self, reply: Trained) -> Trained:
        """A reply with its rows as plain numbers."""
        return unpacked(reply, self.sender.kind, self.rows_for(reply.client))

    def state(self) -> dict[str, Floats]:
        return {"table": self.table, **self.sender.state()}

    def restore(self, arrays: dict[str, Floats]) -> None:
        self.table = arrays["table"]
        self.sender.restore(arrays)

    def aggregate(self, replies: list[Trained], how: str = "mean") -> None:
        """Each row becomes the middle of what the clients sent for it; a row that nobody sent keeps its value. A mean
        goes further if changes add up; no other middle does, for it would leave the range of those who are no liars.

        Sums are taken in double precision in the order of names, so the order of arrival does not matter; and a few
        columns at a time, so that the memory beside the replies stays small.
        """
        parts = {}
        for reply in replies:
            mine = self.rows[reply.client]
            parts[reply.client] = (mine, check_rows(reply.rows, (len(mine), self.width), reply.client))
        self._combine(parts, how, self.add_up if how == "mean" else 0.0)

    def merge(self, replies: list[Unlearned]) -> None:
        """As `aggregate`, of the changed rows alone: owners that forgot nothing do not dilute what was forgotten."""
        parts = {}
        for reply in replies:
            mine = self.rows[reply.client]
            check_places(reply.places, len(mine), reply.client)
            check_rows(reply.rows, (len(reply.places), self.width), reply.client)
            parts[reply.client] = (mine[reply.places], reply.rows)
        self._combine(parts, "mean")

    def _combine(self, parts: dict[str, tuple[Ids, Floats]], how: str, add_up: float = 0.0) -> None:
        places, sent = [parts[client][0] for client in sorted(parts)], [parts[client][1] for client in sorted(parts)]
        middle, held = HOW_TO_AGGREGATE[how], 8 * len(self.table) * (1 + bool(add_up) if how == "mean" else len(sent))
        step = max(1, min(self.width, COLUMNS_AT_A_TIME, WORKING_BYTES // max(held, 1)))
        further = _beyond_the_mean(len(self.table), places, add_up) if add_up else None
        for start in range(0, self.width, step):
            part = self.table[:, start : start + step]
            before = part if further is None else part.copy()
            middle(part, places, [rows[:, start : start + step] for rows in sent])
            if further is not None:
                part += further * (part - before)


COLUMNS_AT_A_TIME = 64
WORKING_BYTES = 64 * 2**20
"""What an aggregation may hold besides the table and the replies."""


def _beyond_the_mean(rows: int, places: list[Ids], add_up: float) -> Floats:
    """(rows, 1): how many times the mean change each row goes further than its mean, by the number of its senders."""
    senders = np.zeros(rows)
    for mine in places:
        senders[mine] += 1
    return (np.maximum(senders, 1) ** add_up - 1).astype(np.float32)[:, None]


def mean_of(table: Floats, places: list[Ids], sent: list[Floats]) -> None:
    """The paper's: the mean over the clients that sent a row."""
    total = np.zeros(table.shape, dtype=np.float64)
    count = np.zeros(len(table), dtype=np.int64)
    for mine, rows in zip(places, sent, strict=True):
        total[mine] += rows
        count[mine] += 1
    there = count > 0
    table[there] = (total[there] / count[there, None]).astype(np.float32)


def median_of(table: Floats, places: list[Ids], sent: list[Floats]) -> None:
    """Number by number: fewer than half of a row's senders cannot move it out of the range of the others."""
    ordered, count = _ordered(table, places, sent)
    for number in np.unique(count[count > 0]):
        mine = count == number
        low, high = ordered[(number - 1) // 2, mine], ordered[number // 2, mine]
        table[mine] = ((low + high) / 2).astype(np.float32)


def trimmed_of(table: Floats, places: list[Ids], sent: list[Floats]) -> None:
    """Number by number, the mean without the lowest and the highest fifth; of three or four senders, one each."""
    ordered, count = _ordered(table, places, sent)
    for number in np.unique(count[count > 0]):
        mine, cut = count == number, max(int(number) // 5, int(number >= 3))
        table[mine] = ordered[cut : number - cut, mine].mean(axis=0).astype(np.float32)


def _ordered(table: Floats, places: list[Ids], sent: list[Floats]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(senders, rows, columns): what was sent for each row from low to high, then NaN; and (rows,): by how many."""
    stacked = np.full((len(sent), *table.shape), np.nan)
    count = np.zeros(len(table), dtype=np.int64)
    for number, (mine, rows) in enumerate(zip(places, sent, strict=True)):
        stacked[number, mine] = rows
        count[mine] += 1
    return np.sort(stacked, axis=0), count


HOW_TO_AGGREGATE = {"mean": mean_of, "median": median_of, "trimmed": trimmed_of}
