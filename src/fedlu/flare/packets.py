"""Packets as FLARE carries them: arrays in a DXO, so that a site's privacy filters see them, and fields as text."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fedlu.federated.messages import MessageError
from fedlu.federated.wire import Message, Packet, pack, unpack

REASON = "fedlu_reason"
LONGEST_REASON = 200


def to_shareable(message: Message) -> Shareable:
    packet = pack(message)
    kind = DataKind.WEIGHTS if {"rows", "numbers"} & packet.arrays.keys() else DataKind.APP_DEFINED
    return DXO(kind, dict(packet.arrays), {"message": packet.kind, "fields": packet.fields}).to_shareable()


def to_message(shareable: Any, kind: str, client: str) -> Any:
    """What has arrived, as the message it has to be; anything else is refused."""
    try:
        dxo = from_shareable(shareable)
    except (TypeError, ValueError, KeyError, AttributeError):
        raise MessageError("no message", where=client) from None
    if not isinstance(dxo.data, dict) or not all(isinstance(each, np.ndarray) for each in dxo.data.values()):
        raise MessageError("data that are no arrays", where=client)
    return unpack(Packet(dxo.get_meta_prop("message", ""), dxo.data, dxo.get_meta_prop("fields", "")), kind, client)


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
