"""Rows in fewer bytes: half precision, or whole numbers of one byte with a step for each row; and error feedback.

What rounding takes from a row is kept and added to it the next time, so nothing is lost for good, only late. The server
sends rows as they are; a client answers with how they changed, which is smaller and so is rounded less. What a client
received rounded therefore never finds its way into the server's table.

Forgetting is not compressed: a row that has to forget must arrive as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedlu.embedding.kernels import Floats, Ids
from fedlu.federated.messages import MessageError, Packed, Rows, Trained, check_rows

LARGEST = 127
"""Whole numbers from -127 to 127: as many below zero as above, so that rounding prefers no side."""


def pack(rows: Floats, kind: str) -> Rows:
    """Rows that are not finite stay so, and are refused where they arrive; those too large for half precision are sent
    as large as they can be, and a sender owes the rest."""
    if kind == "none":
        return rows
    if kind == "fp16":
        largest = np.finfo(np.float16).max
        held = np.where(np.isfinite(rows), np.clip(rows, -largest, largest), rows)
        return Packed(held.astype(np.float16), np.empty(0, dtype=np.float32))
    steps = np.abs(rows).max(axis=1, initial=0.0) / np.float32(LARGEST)  # (rows,)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.rint(rows / steps[:, None])
    whole = np.clip(np.nan_to_num(whole, nan=0.0), -LARGEST, LARGEST)
    return Packed(whole.astype(np.int8), steps.astype(np.float32))


def unpack(rows: Rows, kind: str, shape: tuple[int, int], who: str) -> Floats:
    """Rows again, after looking at what arrived: the kind agreed upon, the right shape, and finite."""
    if kind == "none":
        return check_rows(rows, shape, who)
    if not isinstance(rows, Packed):
        raise MessageError(f"plain rows, expected {kind}", where=who)
    numbers = np.float16 if kind == "fp16" else np.int8
    steps = (0,) if kind == "fp16" else shape[:1]
    if rows.numbers.shape != shape or rows.numbers.dtype != numbers:
        what = f"numbers of {rows.numbers.shape} {rows.numbers.dtype}, expected {shape} {np.dtype(numbers)}"
        raise MessageError(what, where=who)
    if rows.steps.shape != steps or rows.steps.dtype != np.float32:
        raise MessageError(f"steps of {rows.steps.shape} {rows.steps.dtype}, expected {steps} float32", where=who)
    return check_rows(_widened(rows), shape, who)


def _widened(packed: Packed) -> Floats:
    found: Floats = packed.numbers.astype(np.float32)
    if packed.numbers.dtype == np.int8:
        with np.errstate(over="ignore", invalid="ignore"):
            found *= packed.steps[:, None]
    return found


@dataclass
class Sender:
    """One end of the wire, with what rounding has kept back so far; part of what a checkpoint holds."""

    kind: str
    owed: Floats  # (rows, width)

    @classmethod
    def of(cls, kind: str, rows: int, width: int) -> Sender:
        return cls(kind, np.zeros((rows if kind != "none" else 0, width), dtype=np.float32))

    def of_rows(self, rows: int) -> Sender:
        """With what it owes, if that is of as many rows; as if it had sent nothing yet otherwise."""
        new = Sender.of(self.kind, rows, self.owed.shape[1])
        return self if new.owed.shape == self.owed.shape else new

    def pack(self, rows: Floats) -> Rows:
        if self.kind == "none":
            return rows
        with np.errstate(invalid="ignore", over="ignore"):  # of a run that diverges; refused on arrival
            wanted = rows + self.owed
            packed = pack(wanted, self.kind)
            assert isinstance(packed, Packed)
            self.owed = wanted - _widened(packed)
        return packed

    def pack_change(self, rows: Floats, start: Floats) -> Rows:
        """How rows changed since `start`; without compression, the rows themselves."""
        return rows if self.kind == "none" else self.pack(rows - start)

    def state(self) -> dict[str, Floats]:
        return {} if self.kind == "none" else {"owed": self.owed}

    def restore(self, arrays: dict[str, Floats]) -> None:
        if self.kind != "none":
            self.owed = arrays["owed"]


def slice_of(rows: Rows, places: Ids) -> Rows:
    """Some rows of a table that was packed as a whole, so that all who share a row receive the same."""
    if isinstance(rows, Packed):
        return Packed(rows.numbers[places], rows.steps[places] if len(rows.steps) else rows.steps)
    return rows[places]


def unpacked(reply: Trained, kind: str, start: Floats) -> Trained:
    """A client's reply with whole rows: what the server holds of them, `start`, and how they changed."""
    if kind == "none":
        return reply
    shape = (start.shape[0], start.shape[1])
    return replace(reply, rows=start + unpack(reply.rows, kind, shape, reply.client))
