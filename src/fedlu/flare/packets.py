"""Packets as FLARE carries them: arrays in a DXO, so that a site's privacy filters see them, and fields as text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fedlu.federated.messages import MessageError
from fedlu.federated.wire import LONGEST_ARRAY, Arrays, Message, Packet, pack, unpack

PIECE_BYTES = 2_000_000
"""FLARE sends an array at once, however long, and copies it several times on the way; so long ones go in pieces."""
REASON = "fedlu_reason"
LONGEST_REASON = 200


def to_shareable(message: Message) -> Shareable:
    packet = pack(message)
    kind = DataKind.WEIGHTS if {"rows", "numbers"} & packet.arrays.keys() else DataKind.APP_DEFINED
    return DXO(kind, cut(packet.arrays), {"message": packet.kind, "fields": packet.fields}).to_shareable()


def to_message(shareable: Any, kind: str, client: str) -> Any:
    """What has arrived, as the message it has to be; anything else is refused."""
    try:
        dxo = from_shareable(shareable)
    except (TypeError, ValueError, KeyError, AttributeError):
        raise MessageError("no message", where=client) from None
    if not isinstance(dxo.data, dict) or not all(isinstance(each, np.ndarray) for each in dxo.data.values()):
        raise MessageError("data that are no arrays", where=client)
    arrays = join(dxo.data, client)
    return unpack(Packet(dxo.get_meta_prop("message", ""), arrays, dxo.get_meta_prop("fields", "")), kind, client)


def cut(arrays: Arrays) -> Arrays:
    """Long arrays as pieces of some rows each, `name#0`, `name#1` and so on."""
    found: Arrays = {}
    for name, array in arrays.items():
        height = max(1, PIECE_BYTES // max(1, array.nbytes // max(1, len(array))))
        if len(array) <= height:
            found[name] = array
        else:
            starts = range(0, len(array), height)
            found |= {f"{name}#{number}": array[start : start + height] for number, start in enumerate(starts)}
    return found


def join(arrays: Arrays, client: str) -> Arrays:
    """Whole arrays again; pieces are taken out of `arrays` as they are joined."""
    found = {name: array for name, array in arrays.items() if "#" not in str(name)}
    for name in sorted({str(name).split("#")[0] for name in arrays if name not in found}):
        if name in found:
            raise MessageError(f"{name[:40]}: whole and in pieces", where=client)
        found[name] = _joined(name, arrays, client)
    if any("#" in str(name) for name in arrays):
        raise MessageError("pieces that do not follow each other", where=client)
    return found


def _joined(name: str, arrays: Arrays, client: str) -> NDArray[Any]:
    pieces: list[NDArray[Any]] = []
    while f"{name}#{len(pieces)}" in arrays:
        pieces.append(arrays.pop(f"{name}#{len(pieces)}"))
    if len({(piece.dtype, piece.shape[1:], piece.ndim) for piece in pieces}) != 1:
        raise MessageError(f"{name[:40]}: pieces that do not fit", where=client)
    if pieces[0].ndim == 0 or pieces[0].dtype.hasobject or sum(piece.nbytes for piece in pieces) > LONGEST_ARRAY:
        raise MessageError(f"{name[:40]}: pieces of no array that there may be", where=client)
    whole = np.empty((sum(len(piece) for piece in pieces), *pieces[0].shape[1:]), dtype=pieces[0].dtype)
    end = len(whole)
    while pieces:  # each is gone once it is copied
        piece = pieces.pop()
        whole[end - len(piece) : end] = piece
        end -= len(piece)
    return whole


def refusal(reason: str) -> Shareable:
    return make_reply(ReturnCode.EXECUTION_EXCEPTION, {REASON: reason[:LONGEST_REASON]})


def reason_of(shareable: Any) -> str | None:
    """Why a site has nothing to say, or None if it has."""
    if not isinstance(shareable, Shareable):
        return "no reply that could be read"
    code = shareable.get_return_code(ReturnCode.OK)
    if code == ReturnCode.OK:
        return None
    reason = shareable.get_header(REASON)
    text = reason if isinstance(reason, str) else str(code)
    return "".join(letter for letter in text[:LONGEST_REASON] if letter.isprintable())
