"""The loops of learning (train, aggregate; now and then measure, keep the best, stop when nothing improves) and of
forgetting (interfere, aggregate, decay, aggregate, until what has to go has gone and the rest is as good as before)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedlu.embedding.ranking import average
from fedlu.federated.arrivals import DivergedError, Rules, sift
from fedlu.federated.messages import (
    Keep,
    Measure,
    Measured,
    MessageError,
    Missing,
    Recall,
    Rows,
    Train,
    Trained,
    Unlearn,
)
from fedlu.federated.server import Server
from fedlu.federated.transport import Transport

__all__ = ["DivergedError", "ForgetEvent", "Progress", "RoundEvent", "forget", "learn", "measure"]


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
    dropped: dict[str, str] = field(default_factory=dict)
    """Clients that were asked in vain, and why."""

    @property
    def valid_mrr(self) -> dict[str, float]:
        """By view; empty if this round was not measured, or nobody has valid triples."""
        found = {view: each["weighted"].get("mrr") for view, each in (self.valid or {}).items()}
        return {view: float(mrr) for view, mrr in found.items() if mrr is not None}


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
    rules: Rules | None = None,
) -> Iterator[RoundEvent]:
    """Go on from `progress` to the end, a round at a time; `progress` is up to date whenever an event is given."""
    progress.rounds, rules = rounds, rules or Rules()
    while not progress.finished:
        start = time.perf_counter()
        number = progress.round + 1
        event = _train(server, transport, number, fraction, rules)
        progress.round = number
        valid = None
        if number % evaluate_every == 0 or number == rounds:
            valid = _measure_all(server, transport, event, rules)
            _judge(transport, progress, valid)
            if number <= warm_rounds:
                progress.waited = 0  # the method has not begun in earnest
        progress.finished = number >= rounds or progress.waited >= patience
        yield replace(event, seconds=time.perf_counter() - start, valid=valid)


def _train(server: Server, transport: Transport, number: int, fraction: float, rules: Rules) -> RoundEvent:
    """A function of its own, so that the rows of a round are gone before those of the next are made."""
    requests = {name: Train(number, rows) for name, rows in server.send(server.sample(number, fraction)).items()}
    down = {name: request.rows.nbytes for name, request in requests.items()}
    arrived = transport.train(requests)
    replies, dropped = sift(_unpacked(server, arrived), down, number, server, rules)
    server.aggregate(replies, rules.aggregate)
    return RoundEvent(
        round=number,
        losses=_mean_losses(replies) if rules.averages_only else {reply.client: reply.losses for reply in replies},
        bytes_up={reply.client: reply.rows.nbytes for reply in arrived if isinstance(reply, Trained)},
        bytes_down=down,
        seconds=0.0,
        valid=None,
        dropped=dropped,
    )


def _measure_all(server: Server, transport: Transport, event: RoundEvent, rules: Rules) -> dict[str, Any]:
    """To be measured, every client is sent the new rows; they are counted, too."""
    sent = server.send(sorted(server.rows))
    for name, rows in sent.items():
        event.bytes_down[name] = event.bytes_down.get(name, 0) + rows.nbytes
    return measure(server, transport, event.round, "valid", rules=rules, dropped=event.dropped, sent=sent)


FORGET_PATIENCE = 1
"""Cycles without a better valid MRR, once all has gone, after which decay is given up."""


@dataclass(frozen=True)
class ForgetEvent:
    """What happened in a cycle of forgetting: interference, and decay unless the goal was reached."""

    cycle: int
    content: bool
    """Whether at every client, after interference and averaging, what has to go stands where it should."""
    valid: dict[str, float] | None
    """MRR by view, once all stands where it should."""
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    seconds: float
    finished: bool
    restored: bool
    """Whether the valid MRR of every view is back within the tolerance."""


def forget(server: Server, transport: Transport, *, cycles: int, tolerance: float) -> Iterator[ForgetEvent]:
    """Interference and decay in turn, the server averaging after each, until what has to go stands where it should
    and the valid MRR of every view is back within the tolerance, or decay no longer helps. Of the times when it stood
    there, the tables of the best valid MRR are kept, or of the last within the tolerance of it; if it never did, those
    of the last interference."""
    everybody, rules = sorted(server.rows), Rules()  # who is away cannot have forgotten: all or nothing
    server.merge(sift(transport.recall(Recall(0)), everybody, 0, server, rules)[0])
    before = _mrr(measure(server, transport, 0, "valid"))
    views = tuple(view for view in before if view != "blend")
    best, best_cycle, waited, table = 0.0, 0, 0, server.table
    for cycle in range(1, cycles + 1):
        start = time.perf_counter()
        up, down = dict.fromkeys(server.rows, 0), dict.fromkeys(server.rows, 0)
        content = _forget_step(server, transport, 3 * cycle - 2, "interference", up, down)
        content = content and _forget_step(server, transport, 3 * cycle - 1, "look", up, down)
        valid, reached, restored = None, False, False
        if content or (cycle == cycles and not best_cycle):  # what is kept is measured in any case
            valid = _mrr(measure(server, transport, cycle, "valid"))
            restored = all(valid[view] >= before[view] - tolerance for view in valid)
        if content and valid:
            mrr = sum(valid.values()) / len(valid)
            waited = 0 if mrr > best + tolerance else waited + 1
            if mrr > best - tolerance:
                best, best_cycle, table = max(mrr, best), cycle, server.table.copy()
            reached = restored or waited >= FORGET_PATIENCE
        if not reached and cycle < cycles:
            _forget_step(server, transport, 3 * cycle, "decay", up, down)
        finished = reached or cycle == cycles
        if finished:
            server.table = table if best_cycle else server.table
            transport.keep(Keep(best_cycle or cycle, views))
        yield ForgetEvent(cycle, content, valid, up, down, time.perf_counter() - start, finished, restored)
        if finished:
            return


def _forget_step(
    server: Server, transport: Transport, number: int, step: str, up: dict[str, int], down: dict[str, int]
) -> bool:
    requests = {name: Unlearn(number, step, server.rows_for(name)) for name in sorted(server.rows)}
    replies, _ = sift(transport.unlearn(requests), requests, number, server, Rules())
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
    rules: Rules | None = None,
    dropped: dict[str, str] | None = None,
    sent: dict[str, Rows] | None = None,
) -> dict[str, Any]:
    """By view: the clients' metrics and their means, with the rows `sent`, or else with the server's as they are; who
    did not answer well is added to `dropped`."""
    rows = sent or {name: server.rows_for(name) for name in sorted(server.rows)}
    requests = {name: Measure(number, split, None if best else rows[name]) for name in sorted(server.rows)}
    rules = rules or Rules()
    replies, silent = sift(transport.measure(requests), requests, number, server, rules)
    if dropped is not None:
        dropped.update(silent)
    found = by_view(replies)
    return {view: {**means, "clients": {}} for view, means in found.items()} if rules.averages_only else found


def _unpacked(server: Server, arrived: Sequence[Trained | Missing]) -> list[Trained | Missing]:
    """Replies with rows as plain numbers; one that cannot be read is as good as missing."""
    found: list[Trained | Missing] = []
    for reply in arrived:
        if isinstance(reply, Missing) or reply.client not in server.rows:
            found.append(reply)
            continue
        try:
            found.append(server.receive(reply))
        except MessageError as bad:
            found.append(Missing(reply.client, bad.what))
    return found


def _mean_losses(replies: list[Trained]) -> dict[str, dict[str, float]]:
    tables = {table for reply in replies for table in reply.losses}
    by_table = {table: [reply.losses[table] for reply in replies if table in reply.losses] for table in sorted(tables)}
    return {"all": {table: sum(losses) / len(losses) for table, losses in by_table.items()}}


def by_view(replies: list[Measured]) -> dict[str, Any]:
    graphs = {name: views for reply in replies for name, views in reply.metrics.items()}
    views = next(iter(graphs.values()))
    return {view: average({name: found[view] for name, found in graphs.items()}) for view in views}


def _judge(transport: Transport, progress: Progress, valid: dict[str, Any]) -> None:
    """Keep the tables of each view that was never better; count how often none was.

    A blend has no tables of its own: it is made of the best local and the best global ones. Where nobody has valid
    triples, the last tables are the best.
    """
    better = []
    for view, found in valid.items():
        if view == "blend":
            continue
        mrr = found["weighted"].get("mrr")
        if mrr is None or mrr > progress.best.get(view, -1.0):
            progress.best[view], progress.best_round[view] = mrr or 0.0, progress.round
            better.append(view)
    progress.waited = 0 if better else progress.waited + 1
    if better:
        transport.keep(Keep(progress.round, tuple(better)))
