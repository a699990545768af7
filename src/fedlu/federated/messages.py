"""All that crosses the wire. What is not here cannot leave a client: no triple, no relation, no name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.kernels import Floats, Ids
from fedlu.errors import FedluError


class MessageError(FedluError):
    """A message that is not what it has to be; it is dropped."""

    exit_code = 5


@dataclass(frozen=True)
class Begin:
    """Server to client, where they are apart: which run this is and with what settings; answered by a registration."""

    run: str
    settings: dict[str, Any]
    version: str
    into: str = ""
    """The run to be made of it, if it shall forget."""


@dataclass(frozen=True)
class Packed:
    """Rows in fewer bytes: numbers of half precision, or whole ones with the size of a step in each row."""

    numbers: NDArray[np.float16] | NDArray[np.int8]  # (rows, width)
    steps: Floats  # (rows,) of whole numbers, else (0,)

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.steps.nbytes


Rows: TypeAlias = Floats | Packed
"""What `compress` makes of rows; see compression.py."""


@dataclass(frozen=True)
class Registration:
    """A client names its entities by tokens, which say nothing without the clients' key."""

    client: str
    tokens: tuple[bytes, ...]


@dataclass(frozen=True)
class Welcome:
    """Which of the tokens another client has too, by their places; only those rows will travel."""

    shared: Ids  # (shared,)


@dataclass(frozen=True)
class Train:
    """Server to client: the global rows of the shared entities, to start a round from."""

    round: int
    rows: Rows  # (shared, width)


@dataclass(frozen=True)
class Trained:
    """Client to server: the same rows after its training; packed, how they changed."""

    client: str
    round: int
    rows: Rows  # (shared, width)
    losses: dict[str, float]


@dataclass(frozen=True)
class Measure:
    """Server to client: rank a split, with these global rows or, without any, with the best tables kept."""

    round: int
    split: str
    rows: Rows | None  # (shared, width)


@dataclass(frozen=True)
class Measured:
    """Client to server: metrics by evaluated graph (the client's own name, unless it stands for several) and view."""

    client: str
    round: int
    metrics: dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Keep:
    """Server to client: these views were never better than now; keep their tables."""

    round: int
    views: tuple[str, ...]


@dataclass(frozen=True)
class Recall:
    """Server to client: take up the best tables again, to forget in them."""

    round: int


@dataclass(frozen=True)
class Unlearn:
    """Server to client: a step of forgetting, from these global rows; or, with `look`, whether the client is content
    with them. What has to go is the client's own affair."""

    round: int
    step: str  # one of STEPS
    rows: Floats  # (shared, width)


STEPS = ("interference", "look", "decay")


@dataclass(frozen=True)
class Unlearned:
    """Client to server: the rows that it changed, by their places among its shared rows; and whether it is content."""

    client: str
    round: int
    places: Ids  # (changed,)
    rows: Floats  # (changed, width)
    content: bool


@dataclass(frozen=True)
class Missing:
    """What stands for a reply that did not come in time, or that could not be read; the reason is for the log."""

    client: str
    reason: str


def check_rows(rows: Rows, shape: tuple[int, int], who: str) -> Floats:
    """Rows that arrive are hostile until checked."""
    if isinstance(rows, Packed):
        raise MessageError("packed rows, expected plain ones", where=who)
    if rows.shape != shape or rows.dtype != np.float32:
        raise MessageError(f"rows of {rows.shape} {rows.dtype}, expected {shape} float32", where=who)
    if not np.isfinite(rows).all():
        raise MessageError("rows that are not finite", where=who)
    return rows


def check_places(places: Ids, number: int, who: str) -> None:
    """Places among a client's shared rows: its own, and none twice."""
    if places.ndim != 1 or places.dtype != np.int64:
        raise MessageError(f"places of {places.shape} {places.dtype}, expected int64 in one row", where=who)
    if len(places) and (places.min() < 0 or places.max() >= number or len(np.unique(places)) != len(places)):
        raise MessageError("places that are not its own, or twice", where=who)
