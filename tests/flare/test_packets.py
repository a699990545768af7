"""Packets: long arrays go in pieces and come back to the bit; pieces that do not make an array are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind

from fedlu.federated.messages import MessageError, Packed, Train, Trained
from fedlu.flare import packets
from fedlu.flare.packets import cut, join, to_message, to_shareable

ROWS = np.arange(70, dtype=np.float32).reshape(10, 7)


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "PIECE_BYTES", 3 * 7 * 4)


def test_long_arrays_go_in_pieces() -> None:
    pieces = cut({"rows": ROWS, "short": ROWS[:3], "none": ROWS[:0]})
    assert list(pieces) == ["rows#0", "rows#1", "rows#2", "rows#3", "short", "none"]
    assert all(piece.nbytes <= packets.PIECE_BYTES for piece in pieces.values())
    assert np.shares_memory(pieces["rows#1"], ROWS)  # nothing is copied
    back = join(pieces, "north")
    assert back.keys() == {"rows", "short", "none"}
    np.testing.assert_array_equal(back["rows"], ROWS)


def test_rows_longer_than_a_piece_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "PIECE_BYTES", 1)
    np.testing.assert_array_equal(join(cut({"rows": ROWS}), "north")["rows"], ROWS)


def test_messages_come_back_to_the_bit() -> None:
    rows = to_message(to_shareable(Train(3, ROWS)), "Train", "server").rows
    assert (rows == ROWS).all()
    packed = Packed((ROWS - 30).astype(np.int8), np.ones(10, dtype=np.float32))
    back = to_message(to_shareable(Trained("north", 3, packed, {"global": 0.5})), "Trained", "north")
    assert (back.rows.numbers == packed.numbers).all()
    assert (back.rows.steps == packed.steps).all()


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"rows#1": ROWS}, "pieces that do not fit"),
        ({"rows#0": ROWS, "rows#2": ROWS}, "do not follow each other"),
        ({"rows#0": ROWS, "rows": ROWS}, "whole and in pieces"),
        ({"rows#0": ROWS, "rows#1": ROWS.astype(np.float64)}, "pieces that do not fit"),
        ({"rows#0": ROWS, "rows#1": ROWS[:, 1:]}, "pieces that do not fit"),
        ({"rows#0": np.float32(1).reshape(()), "rows#1": np.float32(1).reshape(())}, "no array"),
        ({"rows#0": ROWS.astype(object)}, "no array"),
        ({"rows#x": ROWS}, "pieces that do not fit"),
        ({"#": ROWS}, "pieces that do not fit"),
        ({"rows#0": [1.0]}, "no arrays"),
        ({3: ROWS}, "not a part of this message|rows: NoneType"),
    ],
)
def test_pieces_that_make_no_array_are_refused(arrays: dict[Any, Any], reason: str) -> None:
    message = DXO(DataKind.WEIGHTS, arrays, {"message": "Train", "fields": '{"round": 1}'})
    with pytest.raises(MessageError, match=f"^north: .*({reason})"):
        to_message(message.to_shareable(), "Train", "north")


def test_pieces_of_more_than_there_may_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "LONGEST_ARRAY", ROWS.nbytes - 1)
    with pytest.raises(MessageError, match="no array that there may be"):
        join(cut({"rows": ROWS}), "north")
