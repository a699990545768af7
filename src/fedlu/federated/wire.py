"""Messages as arrays and plain values, for a network, and back. Nothing is believed on the way back.

A packet is a kind, numpy arrays by name, and fields that JSON can hold. `unpack` takes exactly what `pack` gives: the
known names, the right types and dimensions, and no more bytes than there may be. What the numbers mean is checked where
they are used: shapes and lengths by the server (`arrivals`), rows and places by the client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlu.errors import InputError
from fedlu.federated.messages import (
    STEPS,
    Begin,
    Keep,
    Measure,
    Measured,
    MessageError,
    Packed,
    Recall,
    Registration,
    Rows,
    Train,
    Trained,
    Unlearn,
    Unlearned,
    Welcome,
)

TOKEN_BYTES = 32
LONGEST_ARRAY = 4 * 2**30
"""Bytes: rows of four million shared entities at dimension 256."""
LONGEST_FIELDS = 2**20
LARGEST_ROUND = 10**9

Message: TypeAlias = (
    Begin | Registration | Welcome | Train | Trained | Measure | Measured | Keep | Recall | Unlearn | Unlearned
)
Arrays: TypeAlias = dict[str, NDArray[Any]]


def is_name(text: str) -> bool:
    """Whether this may be the name of a run, and so of a folder: letters, digits, dots, dashes; no way out of it."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text) is not None


def check_name(text: str, what: str) -> None:
    if not is_name(text):
        raise InputError(f"{text!r} is no name of a {what}", remedy="use letters, digits, dots and dashes")


@dataclass(frozen=True)
class Packet:
    kind: str
    arrays: Arrays
    fields: str
    """JSON text: floats come back as they were, to the bit."""


def pack(message: Message) -> Packet:
    arrays: Arrays = {}
    fields: dict[str, Any] = {}
    for name, value in vars(message).items():
        if name == "tokens":
            arrays[name] = np.frombuffer(b"".join(value), dtype=np.uint8).reshape(-1, TOKEN_BYTES)
        elif isinstance(value, Packed):
            arrays |= {"numbers": np.ascontiguousarray(value.numbers), "steps": np.ascontiguousarray(value.steps)}
        elif isinstance(value, np.ndarray):
            arrays[name] = np.ascontiguousarray(value)
        elif name != "client":  # the network says who speaks, not the speaker
            fields[name] = value
    return Packet(type(message).__name__, arrays, json.dumps(fields))


def unpack(packet: Packet, kind: str, client: str) -> Any:
    """The message of this kind from or for `client`, or a refusal that says what is wrong with it."""
    if packet.kind != kind or kind not in _READERS:
        raise MessageError(f"a message of kind {str(packet.kind)[:40]!r}, expected {kind}", where=client)
    try:
        if not isinstance(packet.fields, str) or len(packet.fields) > LONGEST_FIELDS:
            raise MessageError("fields that are no text or too long")
        try:
            fields = json.loads(packet.fields)
        except (ValueError, RecursionError):
            raise MessageError("fields that are not JSON") from None
        message = _READERS[kind](_Reader(client, dict(packet.arrays), fields))
    except MessageError as bad:
        raise MessageError(bad.what, where=client) from None
    return message


class _Reader:
    """Takes a packet apart, name by name; what is left over in the end is refused."""

    def __init__(self, client: str, arrays: Arrays, fields: Any):
        if not isinstance(fields, dict):
            raise MessageError("fields without names")
        self.client, self.arrays, self.fields = client, arrays, fields

    def array(self, name: str, kind: type[np.generic], dimensions: int) -> Any:
        found = self.arrays.pop(name, None)
        if not isinstance(found, np.ndarray) or found.dtype != np.dtype(kind) or found.ndim != dimensions:
            what = (
                f"{found.dtype} of {found.ndim} dimensions" if isinstance(found, np.ndarray) else type(found).__name__
            )
            raise MessageError(f"{name}: {what}, expected {np.dtype(kind)} of {dimensions}")
        if found.nbytes > LONGEST_ARRAY:
            raise MessageError(f"{name}: {found.nbytes:,} bytes, at most {LONGEST_ARRAY:,}")
        return np.ascontiguousarray(found)

    def rows(self) -> Rows:
        """Plain or packed; which of them was agreed upon is known where they are used."""
        if "numbers" not in self.arrays:
            plain: Rows = self.array("rows", np.float32, 2)
            return plain
        half = getattr(self.arrays["numbers"], "dtype", None) == np.float16
        return Packed(self.array("numbers", np.float16 if half else np.int8, 2), self.array("steps", np.float32, 1))

    def field(self, name: str, kind: type | tuple[type, ...]) -> Any:
        found = self.fields.pop(name, None)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise MessageError(f"{name}: {type(found).__name__} where it has no place")
        return found

    def round(self) -> int:
        number: int = self.field("round", int)
        if not 0 <= number <= LARGEST_ROUND:
            raise MessageError(f"round {number}")
        return number

    def losses(self) -> dict[str, float]:
        found = self.field("losses", dict)
        if not set(found) <= {"local", "global"} or not all(type(value) is float for value in found.values()):
            raise MessageError("losses: expected numbers of the local and the global table")
        return dict(found)

    def done(self, message: Message) -> Message:
        left = sorted([*self.arrays, *self.fields])
        if left:
            raise MessageError(f"{', '.join(map(str, left))[:80]}: not a part of this message")
        return message


def _begin(reader: _Reader) -> Message:
    run, into, settings = reader.field("run", str), reader.field("into", str), reader.field("settings", dict)
    if not is_name(run) or (into and not is_name(into)) or run == into:
        raise MessageError("a run of a name that is none")
    return reader.done(Begin(run, settings, reader.field("version", str), into))


def _registration(reader: _Reader) -> Message:
    tokens = reader.array("tokens", np.uint8, 2)
    if tokens.shape[1] != TOKEN_BYTES:
        raise MessageError(f"tokens of {tokens.shape[1]} bytes")
    text = tokens.tobytes()
    parts = tuple(text[start : start + TOKEN_BYTES] for start in range(0, len(text), TOKEN_BYTES))
    return reader.done(Registration(reader.client, parts))


def _welcome(reader: _Reader) -> Message:
    shared = reader.array("shared", np.int64, 1)
    if len(shared) and (shared[0] < 0 or (np.diff(shared) <= 0).any()):
        raise MessageError("places that do not rise")
    return reader.done(Welcome(shared))


def _train(reader: _Reader) -> Message:
    return reader.done(Train(reader.round(), reader.rows()))


def _trained(reader: _Reader) -> Message:
    return reader.done(Trained(reader.client, reader.round(), reader.rows(), reader.losses()))


def _measure(reader: _Reader) -> Message:
    rows = None
    if reader.arrays:
        rows = reader.rows()
    else:
        reader.field("rows", type(None))
    return reader.done(Measure(reader.round(), reader.field("split", str), rows))


def _measured(reader: _Reader) -> Message:
    metrics = reader.field("metrics", dict)
    if set(metrics) != {reader.client}:
        raise MessageError("metrics of another client")
    views = metrics[reader.client]
    if not isinstance(views, dict) or not all(isinstance(found, dict) for found in views.values()):
        raise MessageError("metrics that are not by view")
    return reader.done(Measured(reader.client, reader.round(), metrics))


def _keep(reader: _Reader) -> Message:
    views = reader.field("views", list)
    if not all(view in ("local", "global") for view in views):
        raise MessageError("unknown views to keep")
    return reader.done(Keep(reader.round(), tuple(views)))


def _recall(reader: _Reader) -> Message:
    return reader.done(Recall(reader.round()))


def _unlearn(reader: _Reader) -> Message:
    step = reader.field("step", str)
    if step not in STEPS:
        raise MessageError("an unknown step")
    return reader.done(Unlearn(reader.round(), step, reader.array("rows", np.float32, 2)))


def _unlearned(reader: _Reader) -> Message:
    places, rows = reader.array("places", np.int64, 1), reader.array("rows", np.float32, 2)
    content = reader.fields.pop("content", None)
    if not isinstance(content, bool):
        raise MessageError("content: neither yes nor no")
    return reader.done(Unlearned(reader.client, reader.round(), places, rows, content))


_READERS: dict[str, Callable[[_Reader], Message]] = {
    "Begin": _begin,
    "Registration": _registration,
    "Welcome": _welcome,
    "Train": _train,
    "Trained": _trained,
    "Measure": _measure,
    "Measured": _measured,
    "Keep": _keep,
    "Recall": _recall,
    "Unlearn": _unlearn,
    "Unlearned": _unlearned,
}
