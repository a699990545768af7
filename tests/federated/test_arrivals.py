"""Arrivals: each kind of bad reply is dropped with its reason, a quorum decides, and robust means withstand a liar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedlu.config import Settings
from fedlu.embedding.ranking import Ranks, summarize
from fedlu.errors import InputError
from fedlu.federated import rounds
from fedlu.federated.arrivals import METRICS, DivergedError, QuorumError, Rules, check_metrics, sift
from fedlu.federated.messages import Measured, MessageError, Missing, Registration, Train, Trained
from fedlu.federated.rounds import Progress, RoundEvent
from fedlu.federated.server import Server
from fedlu.federated.transport import InProcessTransport
from fedlu.graph import Federation, partition, read
from fedlu.results.checkpoints import Party
from fedlu.results.runs import gather

WIDTH = 4
NAMES = ("east", "north", "south", "west")


@pytest.fixture
def server() -> Server:
    """Four clients that share all of three entities."""
    server = Server(WIDTH, 0.1, seed=1)
    server.register([Registration(name, (b"a" * 32, b"b" * 32, b"c" * 32)) for name in NAMES])
    return server


def reply(name: str, value: float = 1.0, **changes: Any) -> Trained:
    good = Trained(name, 7, np.full((3, WIDTH), value, dtype=np.float32), {"global": 0.5})
    return replace(good, **changes)


BAD = {
    "nan": (reply("west", math.nan), "not finite"),
    "infinite": (reply("west", math.inf), "not finite"),
    "too long": (reply("west", 1e6), "above the bound of 100"),
    "too few rows": (reply("west", rows=np.ones((2, WIDTH), dtype=np.float32)), r"rows of \(2, 4\)"),
    "too many rows": (reply("west", rows=np.ones((9, WIDTH), dtype=np.float32)), r"rows of \(9, 4\)"),
    "too wide": (reply("west", rows=np.ones((3, 5), dtype=np.float32)), r"rows of \(3, 5\)"),
    "double": (reply("west", rows=np.ones((3, WIDTH))), "float64"),
    "replayed": (reply("west", round=6), "a reply of round 6, asked for 7"),
    "ahead": (reply("west", round=8), "a reply of round 8, asked for 7"),
    "diverged": (reply("west", losses={"global": math.nan}), "the global loss of west is nan"),
    "late": (Missing("west", "no reply before the deadline"), "before the deadline"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_dropped_and_the_round_goes_on(server: Server, kind: str) -> None:
    bad, reason = BAD[kind]
    arrived = [bad, *(reply(name) for name in NAMES[:3])]
    good, dropped = sift(arrived, NAMES, 7, server, Rules(quorum=0.75, norm_bound=100.0))
    assert [each.client for each in good] == ["east", "north", "south"]
    assert list(dropped) == ["west"]
    with pytest.raises(MessageError, match=reason):
        raise MessageError(dropped["west"])


@pytest.mark.parametrize("kind", BAD)
def test_below_the_quorum_nothing_is_aggregated(server: Server, kind: str) -> None:
    bad, reason = BAD[kind]
    arrived = [bad, *(reply(name) for name in NAMES[:3])]
    with pytest.raises((QuorumError, DivergedError), match=reason):
        sift(arrived, NAMES, 7, server, Rules(norm_bound=100.0))


def test_who_was_not_asked_or_says_two_things_is_not_heard(server: Server) -> None:
    arrived = [reply("north"), reply("south"), reply("south"), reply("stranger"), reply("east")]
    good, dropped = sift(arrived, NAMES, 7, server, Rules(quorum=0.5))
    assert [each.client for each in good] == ["east", "north"]
    assert dropped == {"south": "replied twice", "stranger": "replied without being asked", "west": "no reply"}


def test_a_quorum_is_a_share_of_those_asked() -> None:
    assert [Rules(quorum=0.5).needed(number) for number in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert Rules(quorum=0.1).needed(3) == 1
    assert Rules().needed(7) == 7
    for wrong in ({"quorum": 0.0}, {"quorum": 1.5}, {"aggregate": "mode"}, {"norm_bound": 0.0}):
        with pytest.raises(InputError):
            Rules(**wrong)


def metrics(**changes: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(METRICS, 0.5)
    return {"count": 3, **numbers, "head": dict(numbers), "tail": dict(numbers), **changes}


def test_the_known_metrics_are_those_that_clients_have() -> None:
    found = summarize(Ranks(*(np.ones((2, 2), dtype=np.int64) for _ in Ranks.__dataclass_fields__)))
    check_metrics({"north": {"local": found}})
    check_metrics({"north": {"local": metrics()}})


@pytest.mark.parametrize(
    "spoiled",
    [
        {"count": -1},
        {"count": 2.5},
        {"count": True},
        {"count": 2**50},
        {"mrr": math.nan},
        {"mrr": "high"},
        {"mrr": {"nested": 1.0}},
        {"head": 3.0},
        {"tail": {"mrr": 0.1}},
        {"ada has flu": 1.0},
    ],
)
def test_bad_metrics_are_refused(server: Server, spoiled: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        check_metrics({"north": {"local": metrics(**spoiled)}})
    arrived = [Measured("north", 7, {"north": {"local": metrics(**spoiled)}})]
    with pytest.raises(QuorumError, match="north"):
        sift(arrived, ["north"], 7, server, Rules())


def test_metrics_of_unknown_views_are_refused() -> None:
    for views in ({}, {"secret": metrics()}):
        with pytest.raises(MessageError, match="unknown views"):
            check_metrics({"north": views})


def aggregated(server: Server, how: str, values: Sequence[float]) -> float:
    server.aggregate([reply(name, value) for name, value in zip(NAMES, values, strict=False)], how)
    assert (server.table == server.table[0, 0]).all()
    return float(server.table[0, 0])


def test_robust_means_withstand_a_liar(server: Server) -> None:
    assert aggregated(server, "mean", (1, 2, 3, 1000)) == 251.5
    assert aggregated(server, "median", (1, 2, 3, 1000)) == 2.5
    assert aggregated(server, "trimmed", (1, 2, 3, 1000)) == 2.5
    assert aggregated(server, "median", (1, 2, -1000)) == 1
    assert aggregated(server, "trimmed", (1, 2, -1000)) == 1
    assert aggregated(server, "trimmed", (1, 2)) == 1.5  # of two, neither can be called the liar


@pytest.mark.parametrize("how", ["mean", "median", "trimmed"])
def test_aggregates_are_those_of_numpy_over_the_senders(how: str, random: np.random.Generator) -> None:
    """Rows with one to seven senders, against the formula written out row by row."""
    labels = [bytes([number]) * 32 for number in range(40)]
    names = [f"client-{number}" for number in range(7)]
    owned = {name: tuple(label for label in labels if random.random() < 0.5) for name in names}
    server = Server(WIDTH, 0.1, seed=1)
    server.register([Registration(name, owned[name]) for name in names])
    before = server.table.copy()
    sent = {name: random.normal(size=(len(server.rows[name]), WIDTH)).astype(np.float32) for name in names}
    server.aggregate([Trained(name, 1, sent[name], {}) for name in names[:5]], how)
    for row in range(len(before)):
        values = [sent[name][list(server.rows[name]).index(row)] for name in names[:5] if row in server.rows[name]]
        ordered = np.sort(np.array(values, dtype=np.float64), axis=0)
        cut = max(len(values) // 5, int(len(values) >= 3))
        expected = (
            {
                "mean": lambda ordered: ordered.mean(axis=0),
                "median": lambda ordered: np.median(ordered, axis=0),
                "trimmed": lambda ordered, cut=cut: ordered[cut : len(ordered) - cut].mean(axis=0),
            }[how](ordered)
            if values
            else before[row]
        )
        np.testing.assert_allclose(server.table[row], expected, rtol=1e-6)


def test_columns_at_a_time_change_no_bit(server: Server, random: np.random.Generator, monkeypatch: Any) -> None:
    rows = {name: random.normal(size=(3, WIDTH)).astype(np.float32) for name in NAMES}
    start = server.table.copy()
    for how, server.add_up in (("mean", 0.0), ("mean", 0.5), ("median", 0.0), ("trimmed", 0.0)):
        found = []
        for step in (1, 3, 64):
            server.table = start.copy()
            monkeypatch.setattr("fedlu.federated.server.COLUMNS_AT_A_TIME", step)
            server.aggregate([reply(name, rows=rows[name]) for name in NAMES], how)
            found.append(server.table.copy())
        assert (found[0] == found[1]).all()
        assert (found[0] == found[2]).all()


# --- in the loop --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def federation() -> Federation:
    return partition(read("nations"), clients=3, by="random", seed=1)


class Spoiled(InProcessTransport):
    """One client turns bad in round 2."""

    def __init__(self, party: Party, how: str):
        assert isinstance(party.transport, InProcessTransport)
        super().__init__(party.clients, party.transport.key)
        self.how = how

    def train(self, messages: dict[str, Train]) -> Any:
        replies: list[Any] = list(super().train(messages))
        if next(iter(messages.values())).round == 2:
            last = replies[-1]
            replies[-1] = {
                "nan": replace(last, rows=last.rows * np.float32(np.nan)),
                "huge": replace(last, rows=last.rows + np.float32(1e9)),
                "silent": Missing(last.client, "no reply before the deadline"),
            }[self.how]
        return replies


def play(federation: Federation, how: str, rules: Rules) -> tuple[Party, list[RoundEvent]]:
    party = gather(federation, Settings(method="fede", dimension=8, negatives=16))
    transport = Spoiled(party, how)
    loop = rounds.learn(
        party.server, transport, Progress(), rounds=3, fraction=1, evaluate_every=9, patience=9, rules=rules
    )
    return party, list(loop)


@pytest.mark.parametrize("how", ["nan", "huge", "silent"])
def test_a_run_goes_on_without_a_client_that_turned_bad(federation: Federation, how: str) -> None:
    party, events = play(federation, how, Rules(quorum=0.6, norm_bound=1000.0))
    assert [sorted(event.dropped) for event in events] == [[], ["client-2"], []]
    assert np.abs(party.server.table).max() < 100
    with pytest.raises(QuorumError, match=r"round 2: 2 good replies of 3 needed \(client-2: "):
        play(federation, how, Rules(norm_bound=1000.0))


def test_without_a_bound_a_liar_is_outvoted_by_a_median_only(federation: Federation) -> None:
    lied, _ = play(federation, "huge", Rules())
    assert np.abs(lied.server.table).max() > 1e6
    outvoted, _ = play(federation, "huge", Rules(aggregate="median"))
    owners = np.bincount(np.concatenate(list(outvoted.server.rows.values())))
    assert np.abs(outvoted.server.table[owners == 3]).max() < 100


def test_only_means_are_kept_if_asked(federation: Federation) -> None:
    party = gather(federation, Settings(method="fede", dimension=8, negatives=16))
    rules = Rules(averages_only=True)
    (event,) = rounds.learn(
        party.server, party.transport, Progress(), rounds=1, fraction=1, evaluate_every=1, patience=9, rules=rules
    )
    assert set(event.losses) == {"all"}
    assert event.valid is not None
    assert event.valid["global"]["clients"] == {}
    assert event.valid["global"]["weighted"]["mrr"] > 0
