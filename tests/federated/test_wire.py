"""The wire: what is packed comes back to the bit, and what was tampered with does not come through."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlu.federated import messages, wire
from fedlu.federated.alignment import tokens
from fedlu.federated.messages import (
    Begin,
    Keep,
    Measure,
    Measured,
    MessageError,
    Packed,
    Recall,
    Registration,
    Train,
    Trained,
    Unlearn,
    Unlearned,
    Welcome,
)
from fedlu.federated.wire import Packet, is_name, pack, unpack

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)
HALF = Packed(ROWS.astype(np.float16), np.empty(0, dtype=np.float32))
WHOLE = Packed(ROWS.astype(np.int8), np.ones(3, dtype=np.float32))
MESSAGES: list[Any] = [
    Begin("first", {"dimension": 8, "margin": 0.1}, "0.1"),
    Registration("north", tokens(("ada", "flu"), b"key")),
    Registration("north", ()),
    Welcome(np.array([0, 4, 9], dtype=np.int64)),
    Welcome(np.empty(0, dtype=np.int64)),
    Train(3, ROWS),
    Trained("north", 3, ROWS, {"local": 0.1, "global": 1e-300}),
    Train(3, HALF),
    Trained("north", 3, WHOLE, {}),
    Measure(3, "valid", WHOLE),
    Measure(3, "valid", ROWS),
    Measure(3, "all of valid", None),
    Measured("north", 3, {"north": {"local": {"mrr": 0.1 + 0.2, "count": 7}}}),
    Keep(3, ("local", "global")),
    Recall(0),
    Unlearn(3, "decay", ROWS),
    Unlearned("north", 3, np.array([0, 2, 5]), ROWS, True),
]


def same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second) and first.dtype == second.dtype
    if not dataclasses.is_dataclass(first):
        return bool(first == second)
    return all(same(a, b) for a, b in zip(vars(first).values(), vars(second).values(), strict=True))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_come_back_to_the_bit(message: Any) -> None:
    packet = pack(message)
    assert all(type(array) is np.ndarray and array.dtype != object for array in packet.arrays.values())
    back = unpack(packet, type(message).__name__, "north")
    assert type(back) is type(message)
    assert same(back, message)


def test_every_message_can_travel() -> None:
    kinds = {name for name, each in vars(messages).items() if dataclasses.is_dataclass(each)}
    inside = {"Missing", "Packed"}  # made at the server; a part of others
    assert kinds - inside == {type(message).__name__ for message in MESSAGES}


@given(st.dictionaries(st.sampled_from(["local", "global"]), st.floats(allow_nan=False)))
def test_losses_keep_every_bit(losses: dict[str, float]) -> None:
    assert unpack(pack(Trained("north", 1, ROWS, losses)), "Trained", "north").losses == losses


def test_the_network_says_who_speaks() -> None:
    packet = pack(Trained("south", 3, ROWS, {}))
    assert "south" not in packet.fields
    assert unpack(packet, "Trained", "north").client == "north"


TRAINED = pack(MESSAGES[6])
BYTES, STEPS = WHOLE.numbers, WHOLE.steps


def fields(**changes: Any) -> Packet:
    return replace(TRAINED, fields=json.dumps({**json.loads(TRAINED.fields), **changes}))


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (replace(TRAINED, kind="Train"), "a message of kind 'Train', expected Trained"),
        (replace(TRAINED, kind=None), "a message of kind"),
        (replace(TRAINED, arrays={}), "rows: NoneType"),
        (replace(TRAINED, arrays={"rows": [[1.0]]}), "rows: list"),
        (replace(TRAINED, arrays={"rows": ROWS.astype(np.float64)}), "rows: float64"),
        (replace(TRAINED, arrays={"rows": ROWS.astype(object)}), "rows: object"),
        (replace(TRAINED, arrays={"rows": ROWS[0]}), "rows: float32 of 1 dimensions"),
        (replace(TRAINED, arrays={"rows": ROWS, "triples": ROWS}), "triples: not a part"),
        (replace(TRAINED, arrays={"numbers": ROWS, "steps": STEPS}), "numbers: float32"),
        (replace(TRAINED, arrays={"numbers": BYTES[0], "steps": STEPS}), "numbers: int8 of 1 dimensions"),
        (replace(TRAINED, arrays={"numbers": [[1]], "steps": STEPS}), "numbers: list"),
        (replace(TRAINED, arrays={"numbers": BYTES}), "steps: NoneType"),
        (replace(TRAINED, arrays={"numbers": BYTES, "steps": STEPS.astype(np.float64)}), "steps: float64"),
        (replace(TRAINED, arrays={"numbers": BYTES, "steps": STEPS[:, None]}), "steps: float32 of 2"),
        (replace(TRAINED, arrays={"numbers": BYTES, "steps": STEPS, "rows": ROWS}), "rows: not a part"),
        (replace(TRAINED, fields="[1]"), "fields without names"),
        (replace(TRAINED, fields="{"), "not JSON"),
        (replace(TRAINED, fields=b"{}"), "no text"),
        (replace(TRAINED, fields=" " * (wire.LONGEST_FIELDS + 1)), "too long"),
        (replace(TRAINED, fields="[" * 100_000), "not JSON"),
        (fields(round="3"), "round: str"),
        (fields(round=True), "round: bool"),
        (fields(round=-1), "round -1"),
        (fields(round=10**12), "round 1"),
        (fields(losses={"ada": 1.0}), "losses: expected"),
        (fields(losses={"local": "low"}), "losses: expected"),
        (fields(losses=[1.0]), "losses: list"),
        (fields(client="south"), "client: not a part"),
        (fields(extra=1), "extra: not a part"),
    ],
)
def test_what_was_tampered_with_is_refused(packet: Packet, reason: str) -> None:
    with pytest.raises(MessageError, match=f"^north: .*{reason}"):
        unpack(packet, "Trained", "north")


def test_an_oversized_array_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LONGEST_ARRAY", ROWS.nbytes - 1)
    with pytest.raises(MessageError, match="24 bytes, at most 23"):
        unpack(TRAINED, "Trained", "north")
    monkeypatch.setattr(wire, "LONGEST_ARRAY", BYTES.nbytes - 1)
    with pytest.raises(MessageError, match="numbers: 6 bytes, at most 5"):
        unpack(pack(Train(3, WHOLE)), "Train", "north")


@pytest.mark.parametrize(
    ("message", "kind", "reason"),
    [
        (replace(pack(MESSAGES[1]), arrays={"tokens": np.zeros((2, 31), np.uint8)}), "Registration", "31 bytes"),
        (pack(Welcome(np.array([4, 0]))), "Welcome", "do not rise"),
        (pack(Welcome(np.array([-1, 0]))), "Welcome", "do not rise"),
        (pack(Keep(1, ("blend",))), "Keep", "unknown views"),
        (pack(Measured("south", 1, {"south": {}})), "Measured", "of another client"),
        (pack(Measured("north", 1, {"north": {"local": 3}})), "Measured", "not by view"),  # type: ignore[dict-item]
        (pack(Begin("../../etc", {}, "1")), "Begin", "a name that is none"),
        (pack(Unlearn(1, "all of it", ROWS)), "Unlearn", "an unknown step"),
        (pack(Unlearned("north", 1, np.arange(3), ROWS, 1)), "Unlearned", "neither yes nor no"),  # type: ignore[arg-type]
        (pack(MESSAGES[5]), "Pickle", "a message of kind"),
    ],
)
def test_what_makes_no_sense_is_refused(message: Packet, kind: str, reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        unpack(message, kind, "north")


def test_names_lead_out_of_no_folder() -> None:
    assert all(map(is_name, ("first", "a.b-c_2", "X" * 100)))
    assert not any(map(is_name, ("", ".", "..", "../x", "a/b", "-x", ".x", "a b", "x" * 101, "a\n")))
