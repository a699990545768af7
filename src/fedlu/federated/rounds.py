"""The loops of learning (train, aggregate; now and then measure, keep the best, stop when nothing improves) and of
forgetting (interfere, aggregate, decay, aggregate, until what has to go has gone and the rest is as good as before)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fedlu.embedding.ranking import average
from fedlu.errors import FedluError
from fedlu.federated.messages import Keep, Measure, Measured, Recall, Rows, Train, Unlearn
from fedlu.federated.server import Server
from fedlu.federated.transport import Transport


class DivergedError(FedluError):
    """A loss that is no number: the run stops, and its last good checkpoint is kept."""

    exit_code = 4


@dataclass
class Progress:
    """Where a run is: enough, with the states of server and clients, to go on from."""

    round: int = 0
    rounds: int = 0
    """How many there will be at most."""
    best: dict[str, float] = field(default_factory=dict)  # view -> valid MRR
    best_round: dict[str, int] = field(default_factory=dict)
    waited: int = 0
    finished: bool = False


@dataclass(frozen=True)
class RoundEvent:
    """What happened in a round, for `events.jsonl` and for the person who watches."""

    round: int
    losses: dict[str, dict[str, float]]
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    seconds: float
    valid: dict[str, Any] | None
    """By view, if this round was measured."""


def learn(
    server: Server,
    transport: Transport,
    progress: Progress,
    *,
    rounds: int,
    fraction: float,
    evaluate_every: int,
    patience: int,
    warm_rounds: int = 0,
) -> Iterator[RoundEvent]:
    """Go on from `progress` to the end, a round at a time; `progress` is up to date whenever an event is given."""
    progress.rounds = rounds
    while not progress.finished:
        start = time.perf_counter()
        number = progress.round + 1
        sent = server.send(server.sample(number, fraction))
        requests = {name: Train(number, rows) for name, rows in sent.items()}
        arrived = transport.train(requests)
        for reply in arrived:
            for table, loss in reply.losses.items():
                if not math.isfinite(loss):
                    what = f"round {number}: the {table} loss of {reply.client} is {loss}"
                    raise DivergedError(what, remedy="lower learning_rate; what was checkpointed is kept")
        replies = [server.receive(reply) for reply in arrived]
        server.aggregate(replies)
        progress.round = number
        valid = None
        down = {name: request.rows.nbytes for name, request in requests.items()}
        if number % evaluate_every == 0 or number == rounds:
            sent = server.send(sorted(server.rows))
            valid = measure(server, transport, number, "valid", sent=sent)
            _judge(transport, progress, valid)
            if number <= warm_rounds:
                progress.waited = 0  # the method has not begun in earnest
            for name, rows in sent.items():  # to be measured, every client was sent the new rows
                down[name] = down.get(name, 0) + rows.nbytes
        progress.finished = number >= rounds or progress.waited >= patience
        yield RoundEvent(
            round=number,
            losses={reply.client: reply.losses for reply in replies},
            bytes_up={reply.client: reply.rows.nbytes for reply in arrived},
            bytes_down=down,
            seconds=time.perf_counter() - start,
            valid=valid,
        )


FORGET_PATIENCE = 2
"""Cycles without a better valid MRR, once all has gone, after which decay is given up."""


@dataclass(frozen=True)
class ForgetEvent:
    """What happened in a cycle of forgetting: interference, and decay unless the goal was reached."""

    cycle: int
    content: bool
    """Whether at every client, before this cycle, what has to go stood where it should."""
    valid: dict[str, float]
    """MRR by view, after the interference of this cycle."""
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    seconds: float
    finished: bool


def forget(server: Server, transport: Transport, *, cycles: int, tolerance: float) -> Iterator[ForgetEvent]:
    """Interference and decay in turn, the server averaging after each, until what has to go stands where it should
    and the valid MRR of every view is back within the tolerance, or decay no longer helps; the tables of then are
    kept as the best."""
    server.merge(transport.recall(Recall(0)))
    before = _mrr(measure(server, transport, 0, "valid"))
    best, waited = 0.0, 0
    for cycle in range(1, cycles + 1):
        start = time.perf_counter()
        up, down = dict.fromkeys(server.rows, 0), dict.fromkeys(server.rows, 0)
        content = _forget_step(server, transport, 2 * cycle - 1, "interference", up, down)
        valid = _mrr(measure(server, transport, cycle, "valid"))
        restored = all(valid[view] >= before[view] - tolerance for view in valid)
        if content:
            best, waited = (sum(valid.values()), 0) if sum(valid.values()) > best else (best, waited + 1)
        reached = content and (restored or waited >= FORGET_PATIENCE)
        if not reached:
            _forget_step(server, transport, 2 * cycle, "decay", up, down)
        finished = reached or cycle == cycles
        if finished:
            transport.keep(Keep(cycle, tuple(view for view in valid if view != "blend")))
        yield ForgetEvent(cycle, content, valid, up, down, time.perf_counter() - start, finished)
        if finished:
            return


def _forget_step(
    server: Server, transport: Transport, number: int, step: str, up: dict[str, int], down: dict[str, int]
) -> bool:
    requests = {name: Unlearn(number, step, server.rows_for(name)) for name in sorted(server.rows)}
    replies = transport.unlearn(requests)
    server.merge(replies)
    for reply in replies:
        up[reply.client] += reply.rows.nbytes + reply.places.nbytes
        down[reply.client] += requests[reply.client].rows.nbytes
    return all(reply.content for reply in replies)


def _mrr(views: dict[str, Any]) -> dict[str, float]:
    return {view: float(found["weighted"].get("mrr", 0.0)) for view, found in views.items()}


def measure(
    server: Server,
    transport: Transport,
    number: int,
    split: str,
    *,
    best: bool = False,
    sent: dict[str, Rows] | None = None,
) -> dict[str, Any]:
    """By view: the clients' metrics and their means, with the rows `sent`, or else with the server's as they are."""
    rows = sent or {name: server.rows_for(name) for name in sorted(server.rows)}
    requests = {name: Measure(number, split, None if best else rows[name]) for name in sorted(server.rows)}
    return by_view(transport.measure(requests))


def by_view(replies: list[Measured]) -> dict[str, Any]:
    graphs = {name: views for reply in replies for name, views in reply.metrics.items()}
    views = next(iter(graphs.values()))
    return {view: average({name: found[view] for name, found in graphs.items()}) for view in views}


def _judge(transport: Transport, progress: Progress, valid: dict[str, Any]) -> None:
    """Keep the tables of each view that was never better; count how often none was.

    A blend has no tables of its own: it is made of the best local and the best global ones.
    """
    better = []
    for view, found in valid.items():
        if view == "blend":
            continue
        mrr = found["weighted"].get("mrr", 0.0)
        if mrr > progress.best.get(view, -1.0):
            progress.best[view], progress.best_round[view] = mrr, progress.round
            better.append(view)
    progress.waited = 0 if better else progress.waited + 1
    if better:
        transport.keep(Keep(progress.round, tuple(better)))
