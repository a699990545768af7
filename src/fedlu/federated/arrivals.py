"""What arrives at the server is hostile until checked: a bad reply is dropped with its reason, and the rest goes on.

A run goes on while a quorum holds. By default every client that was asked must answer well, so that a result never
depends on who was late; with less, a round is made of those who did.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fedlu.embedding.kernels import Floats
from fedlu.errors import FedluError, InputError
from fedlu.federated.messages import Measured, MessageError, Missing, Trained, Unlearned, check_places, check_rows
from fedlu.federated.server import HOW_TO_AGGREGATE, Server

VIEWS = frozenset({"local", "global", "blend"})
METRICS = frozenset({"mrr", "mr", "amri", "hits@1", "hits@3", "hits@10"})
SIDES = frozenset({"head", "tail"})

Reply = TypeVar("Reply", Trained, Measured, Unlearned)


class QuorumError(FedluError):
    """Too few good replies to go on; what was checkpointed is kept."""

    exit_code = 6


class DivergedError(FedluError):
    """A loss that is no number: the run stops, and its last good checkpoint is kept."""

    exit_code = 4


@dataclass(frozen=True)
class Rules:
    """How much the server trusts its clients."""

    quorum: float = 1.0
    """The share of the clients asked that must answer well."""
    aggregate: str = "mean"
    norm_bound: float = math.inf
    """The longest row that is believed."""
    averages_only: bool = False
    """Keep no client's own metrics and losses, only their means."""

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise InputError(f"quorum = {self.quorum}", remedy="give a share above 0, up to 1")
        if self.aggregate not in HOW_TO_AGGREGATE:
            raise InputError(f"aggregate = {self.aggregate!r}", remedy=f"choose {', '.join(HOW_TO_AGGREGATE)}")
        if not self.norm_bound > 0:
            raise InputError(f"norm_bound = {self.norm_bound}", remedy="give a length above 0")

    def needed(self, asked: int) -> int:
        return max(1, math.ceil(self.quorum * asked - 1e-9))


def sift(
    arrived: Sequence[Reply | Missing], asked: Collection[str], number: int, server: Server, rules: Rules
) -> tuple[list[Reply], dict[str, str]]:
    """The good replies in the order of names, and why each other client has none; refused below the quorum."""
    good: dict[str, Reply] = {}
    dropped = dict.fromkeys(asked, "no reply")
    diverged = ""
    for reply in arrived:
        name = reply.client
        if name not in asked:
            dropped[name] = "replied without being asked"
            continue
        try:
            if isinstance(reply, Missing):
                raise MessageError(reply.reason)
            if name in good:
                raise MessageError("replied twice")
            _check(reply, number, server, rules)
        except DivergedError as bad:
            diverged = f"round {number}: {bad.what}"
            dropped[name] = bad.what
        except MessageError as bad:
            good.pop(name, None)
            dropped[name] = bad.what
        else:
            good[name] = reply
            del dropped[name]
    if len(good) < rules.needed(len(asked)):
        if diverged:
            raise DivergedError(diverged, remedy="lower learning_rate")
        reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(dropped.items()))
        raise QuorumError(f"round {number}: {len(good)} good replies of {rules.needed(len(asked))} needed ({reasons})")
    return [good[name] for name in sorted(good)], dropped


def _check(reply: Trained | Measured | Unlearned, number: int, server: Server, rules: Rules) -> None:
    if reply.round != number:
        raise MessageError(f"a reply of round {reply.round}, asked for {number}")
    if isinstance(reply, Measured):
        check_metrics(reply.metrics)
        return
    mine = len(server.rows[reply.client])
    if isinstance(reply, Unlearned):
        check_places(reply.places, mine, reply.client)
        mine = len(reply.places)
    else:
        _check_losses(reply)
    check_lengths(check_rows(reply.rows, (mine, server.width), reply.client), rules.norm_bound)


def _check_losses(reply: Trained) -> None:
    for table, loss in reply.losses.items():
        if not math.isfinite(loss):
            raise DivergedError(f"the {table} loss of {reply.client} is {loss}")


def check_lengths(rows: Floats, bound: float) -> None:
    """A row far out of proportion would outvote all others in a mean."""
    if math.isinf(bound) or not len(rows):
        return
    longest = float(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64).max()))
    if longest > bound:
        raise MessageError(f"a row of length {longest:.4g}, above the bound of {bound:.4g}")


def check_metrics(metrics: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Numbers under the known names and nothing else, so that what a client says can be averaged."""
    for views in metrics.values():
        if not views or not set(views) <= VIEWS:
            raise MessageError("metrics of unknown views")
        for found in views.values():
            count = found.get("count")
            if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**40:
                raise MessageError("metrics without a count")
            sides = [found[side] for side in SIDES if isinstance(found.get(side), dict)]
            _check_numbers({name: value for name, value in found.items() if name not in {"count", *SIDES}}, count)
            for side in sides:
                _check_numbers(side, count)
            if len(sides) != len(SIDES):
                raise MessageError("metrics without both sides")


def _check_numbers(found: dict[str, Any], count: int) -> None:
    if set(found) != (METRICS if count else set()):
        raise MessageError("metrics of unknown names")
    for name, value in found.items():
        if not isinstance(value, float | int) or isinstance(value, bool) or not math.isfinite(value):
            raise MessageError(f"{name} is no number")
