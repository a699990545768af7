"""Sites: killed at any moment and asked again, they and their server end with the bits of a run in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError

import fedlu
from fedlu.config import Settings, resolve
from fedlu.errors import InputError
from fedlu.federated.alignment import key_for_one_process
from fedlu.federated.arrivals import QuorumError, Rules
from fedlu.federated.compression import pack
from fedlu.federated.messages import Keep, Measure, MessageError, Missing, Packed, Train, Welcome
from fedlu.federated.transport import InProcessTransport
from fedlu.graph import Federation, partition, read
from fedlu.results import files, hosted
from fedlu.results.sites import Site
from tests import same_bits

QUICK: dict[str, Any] = {"dimension": 8, "rounds": 6, "evaluate_every": 2, "warm_rounds": 2, "negatives": 16}
RULES = Rules(averages_only=True)


@pytest.fixture(scope="module")
def data() -> Federation:
    return partition(read("nations"), clients=3, by="random", seed=1)


@pytest.fixture(scope="module")
def whole(data: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run in one process."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    fedlu.learn(data, out=folder, **QUICK)
    return folder


def settings(**changes: Any) -> Settings:
    return resolve("fast", method="fedlu", model="TransE", overrides={**QUICK, **changes})


class Killed(BaseException):
    """As when the power goes: nothing below may catch it."""


class Fragile(InProcessTransport):
    """Sites of this process that die where they are told to; a new transport is a restart of all of them."""

    def __init__(self, data: Federation, folder: Path, die: tuple[str, int, str] | None = None, **changes: Any):
        sites = [Site(graph, settings(**changes), folder / graph.name) for graph in data.clients]
        super().__init__(sites, key_for_one_process(0))  # type: ignore[arg-type]
        self.die = die

    def _perhaps_die(self, what: str, number: int, moment: str) -> None:
        if self.die == (what, number, moment):
            raise Killed

    def train(self, messages: dict[str, Train]) -> Any:
        number = next(iter(messages.values())).round
        replies = []
        for place, (name, message) in enumerate(messages.items()):
            if place == 1:
                self._perhaps_die("train", number, "before")
            replies.append(self.clients[name].train(message))
            if place == 1:
                self._perhaps_die("train", number, "after")
        return replies

    def measure(self, messages: dict[str, Measure]) -> Any:
        number = next(iter(messages.values())).round
        self._perhaps_die("measure", number, "before")
        replies = super().measure(messages)
        self._perhaps_die("measure", number, "after")
        return replies

    def keep(self, message: Keep) -> None:
        for place, client in enumerate(self.clients.values()):
            if place == 1:
                self._perhaps_die("keep", message.round, "before")
            client.keep(message)
        self._perhaps_die("keep", message.round, "after")


def learn(data: Federation, folder: Path, transport: InProcessTransport, **changes: Any) -> dict[str, Any]:
    names = [graph.name for graph in data.clients]
    return hosted.learn(folder / "server", settings(**changes), names, transport, rules=RULES, name="nations")


def assert_same_bits(whole: Path, folder: Path) -> None:
    same_bits.assert_same_bits(folder / "server", [folder / f"client-{number}" for number in range(3)], whole)


def test_apart_they_learn_what_they_learn_in_one_process(data: Federation, whole: Path, tmp_path: Path) -> None:
    learn(data, tmp_path, Fragile(data, tmp_path))
    assert_same_bits(whole, tmp_path)
    assert sorted(path.name for path in (tmp_path / "server").iterdir()) == [
        "checkpoints",
        "config.json",
        "events.jsonl",
        "metrics.json",
        "state.json",
        "tokens.safetensors",
    ]
    (checkpoint,) = (tmp_path / "server" / "checkpoints").iterdir()
    assert [path.name for path in checkpoint.iterdir()] == ["server.safetensors"]
    mine = json.loads((tmp_path / "client-1" / "metrics.json").read_text())
    theirs = json.loads((whole / "metrics.json").read_text())["test"]
    assert {view: found["mrr"] for view, found in mine["test"].items()} == {
        view: found["clients"]["client-1"]["mrr"] for view, found in theirs.items()
    }
    again = hosted.evaluate(tmp_path / "server", "test", Fragile(data, tmp_path), RULES)
    assert again["blend"]["weighted"] == theirs["blend"]["weighted"]


@pytest.mark.parametrize(
    "die",
    [
        ("train", 1, "before"),
        ("train", 3, "before"),
        ("train", 3, "after"),
        ("train", 4, "after"),
        ("measure", 4, "before"),
        ("measure", 4, "after"),
        ("keep", 2, "before"),
        ("keep", 2, "after"),
        ("measure", 6, "after"),
    ],
    ids=lambda die: "-".join(map(str, die)),
)
def test_all_killed_at_once_and_restarted(
    data: Federation, whole: Path, tmp_path: Path, die: tuple[str, int, str]
) -> None:
    with pytest.raises(Killed):
        learn(data, tmp_path, Fragile(data, tmp_path, die))
    learn(data, tmp_path, Fragile(data, tmp_path))
    assert_same_bits(whole, tmp_path)
    for number in range(3):
        events = (tmp_path / f"client-{number}" / "events.jsonl").read_text().splitlines()
        trained = [json.loads(line)["round"] for line in events if "losses" in line]
        assert trained == [1, 2, 3, 4, 5, 6]  # no round twice, none missing


def test_killed_in_every_round_in_turn(data: Federation, whole: Path, tmp_path: Path) -> None:
    for number in range(1, 7):
        with pytest.raises(Killed):
            learn(data, tmp_path, Fragile(data, tmp_path, ("train", number, "after")))
    learn(data, tmp_path, Fragile(data, tmp_path))
    assert_same_bits(whole, tmp_path)


@pytest.fixture(scope="module", params=["fp16", "int8"])
def packed(request: pytest.FixtureRequest, data: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one process whose rows travel in fewer bytes."""
    folder = tmp_path_factory.mktemp("packed") / "run"
    fedlu.learn(data, out=folder, compress=request.param, **QUICK)
    return folder


def test_packed_rows_make_the_same_bits_whatever_is_killed(data: Federation, packed: Path, tmp_path: Path) -> None:
    """What either side owes is a part of its state: else the first crash would show."""
    kind = json.loads((packed / "config.json").read_text())["settings"]["compress"]
    kills = [("train", 1, "after"), ("train", 2, "before"), ("measure", 2, "after"), ("keep", 2, "before")]
    for die in (*kills, ("train", 4, "after"), ("train", 5, "before"), ("measure", 6, "before")):
        with pytest.raises(Killed):
            learn(data, tmp_path, Fragile(data, tmp_path, die, compress=kind), compress=kind)
    learn(data, tmp_path, Fragile(data, tmp_path, compress=kind), compress=kind)
    assert_same_bits(packed, tmp_path)
    mine, theirs = (
        [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        for run in (tmp_path / "server", packed)
    )
    for way in ("bytes_up", "bytes_down"):
        assert [event[way] for event in mine] == [event[way] for event in theirs]


def test_a_packed_answer_is_given_again_to_the_bit(data: Federation, tmp_path: Path) -> None:
    """Though what was owed before it is no longer known to the site that has moved on."""
    rows = pack(np.full((4, 8), 0.3, dtype=np.float32), "int8")
    site = Site(data.clients[0], settings(compress="int8"), tmp_path / "site")
    site.welcome(Welcome(np.arange(4)))
    site.train(Train(1, rows))
    second = site.train(Train(2, rows))
    assert isinstance(second.rows, Packed)
    for asked in (site, Site(data.clients[0], settings(compress="int8"), tmp_path / "site")):
        asked.welcome(Welcome(np.arange(4)))
        again = asked.train(Train(2, rows))
        assert isinstance(again.rows, Packed)
        assert (again.rows.numbers == second.rows.numbers).all()
        assert (again.rows.steps == second.rows.steps).all()
    for bad in (
        np.zeros((4, 8), np.float32),
        pack(np.zeros((4, 8), np.float32), "fp16"),
        pack(np.ones((3, 8), np.float32), "int8"),
    ):
        with pytest.raises(MessageError, match=r"^server: "):
            site.train(Train(3, bad))


def test_an_answered_round_is_answered_again(data: Federation, tmp_path: Path) -> None:
    site = Site(data.clients[0], settings(), tmp_path / "site")
    places = np.arange(4)
    site.welcome(Welcome(places))
    rows = np.zeros((4, 8), dtype=np.float32)
    first = site.train(Train(1, rows))
    second = site.train(Train(2, first.rows))
    for asked in (site, Site(data.clients[0], settings(), tmp_path / "site")):  # and by another process
        asked.welcome(Welcome(places))
        again = asked.train(Train(2, first.rows))
        assert (again.rows == second.rows).all()
        assert again.losses == second.losses
    other = site.train(Train(2, first.rows + 1))  # the same round with other rows is another question
    assert (other.rows != second.rows).any()
    back = site.train(Train(2, first.rows))  # from the state before it, whatever was done in between
    assert (back.rows == second.rows).all()
    site.train(Train(3, rows))
    site.train(Train(4, rows))
    with pytest.raises(MessageError, match="asked for round 2, but this site is at 4"):
        site.train(Train(2, first.rows))


def test_what_a_server_may_not_ask(data: Federation, tmp_path: Path) -> None:
    site = Site(data.clients[0], settings(), tmp_path / "site")
    with pytest.raises(MessageError, match="a place that this site has not"):
        site.welcome(Welcome(np.array([0, 10_000])))
    site.welcome(Welcome(np.arange(4)))
    for rows in (np.zeros((5, 8), np.float32), np.zeros((4, 8)), np.full((4, 8), np.nan, np.float32)):
        with pytest.raises(MessageError, match="server: rows"):
            site.train(Train(1, rows))
    with pytest.raises(MessageError, match="no split 'train'"):
        site.measure(Measure(1, "train", np.zeros((4, 8), np.float32)))
    with pytest.raises(MessageError, match="nothing was kept"):
        site.measure(Measure(1, "test", None))
    with pytest.raises(MessageError, match="asked to keep round 1, measured 0"):
        site.keep(Keep(1, ("local",)))
    assert not (tmp_path / "site" / "rounds.json").exists()


@pytest.mark.parametrize("write", [3, 8, 11, 15])
def test_a_full_disk_anywhere_and_it_goes_on_later(
    data: Federation, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    """At the tokens, at a site's checkpoint, at the server's: the same processes are asked again once there is room."""
    written, save_file = [], files.save_file

    def full(arrays: Any, path: Path) -> None:
        written.append(path)
        if len(written) == write:
            path.write_bytes(b"half")
            raise SafetensorError("No space left on device")
        save_file(arrays, path)

    monkeypatch.setattr(files, "save_file", full)
    transport = Fragile(data, tmp_path)
    with pytest.raises(OSError, match="No space left"):
        learn(data, tmp_path, transport)
    learn(data, tmp_path, transport)
    assert_same_bits(whole, tmp_path)


class Away(Fragile):
    """A site that is not there from some round on; whoever restarts brings it back."""

    def __init__(self, *arguments: Any, since: int, **options: Any):
        super().__init__(*arguments, **options)
        self.since, self.gone = since, False

    def train(self, messages: dict[str, Train]) -> Any:
        self.gone = self.gone or next(iter(messages.values())).round >= self.since
        asked = {name: message for name, message in messages.items() if not self.gone or name != "client-2"}
        return [*super().train(asked), *([Missing("client-2", "gone")] if self.gone else [])]

    def measure(self, messages: dict[str, Measure]) -> Any:
        asked = {name: message for name, message in messages.items() if not self.gone or name != "client-2"}
        return [*super().measure(asked), *([Missing("client-2", "gone")] if self.gone else [])]

    def keep(self, message: Keep) -> None:
        for name, client in self.clients.items():
            if not self.gone or name != "client-2":
                client.keep(message)

    def register(self) -> Any:
        return [each for each in super().register() if self.since > 1 or each.client != "client-2"]


def test_a_run_begins_with_all_and_goes_on_with_a_quorum(data: Federation, tmp_path: Path) -> None:
    names, rules = [graph.name for graph in data.clients], Rules(quorum=0.6, averages_only=True)

    def go(transport: InProcessTransport) -> dict[str, Any]:
        return hosted.learn(tmp_path / "server", settings(), names, transport, rules=rules, name="nations")

    with pytest.raises(QuorumError, match="2 sites of 3 needed are here; away: client-2"):
        go(Away(data, tmp_path, since=1))
    with pytest.raises(Killed):
        go(Away(data, tmp_path, ("train", 5, "before"), since=3))
    dropped = [json.loads(line)["dropped"] for line in (tmp_path / "server" / "events.jsonl").read_text().splitlines()]
    assert dropped == [{}, {}, {"client-2": "gone"}, {"client-2": "gone"}]
    assert go(Away(data, tmp_path, since=1))["rounds"] == 6  # it may even be away when the run is taken up


def test_it_comes_back_and_takes_part(data: Federation, tmp_path: Path) -> None:
    names, rules = [graph.name for graph in data.clients], Rules(quorum=0.6, averages_only=True)
    with pytest.raises(Killed):
        hosted.learn(
            tmp_path / "server",
            settings(),
            names,
            Away(data, tmp_path, ("train", 5, "before"), since=3),
            rules=rules,
            name="nations",
        )
    metrics = hosted.learn(tmp_path / "server", settings(), names, Fragile(data, tmp_path), rules=rules, name="nations")
    assert metrics["rounds"] == 6
    record = json.loads((tmp_path / "client-2" / "rounds.json").read_text())["records"][-1]
    assert record["round"] == 6


def test_changed_data_or_settings_are_refused(data: Federation, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        learn(data, tmp_path, Fragile(data, tmp_path, ("train", 3, "after")))
    with pytest.raises(InputError, match="other settings: dimension was 8"):
        Fragile(data, tmp_path, dimension=4)
    other = partition(read("nations"), clients=3, by="random", seed=2)
    with pytest.raises(InputError, match="the data has changed"):
        Fragile(other, tmp_path)
    strangers = Fragile(data, tmp_path)
    strangers.key = b"another key"
    with pytest.raises(InputError, match="client-0: has other entities than when the run began"):
        learn(data, tmp_path, strangers)


def test_damaged_state_is_one_line(data: Federation, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        learn(data, tmp_path, Fragile(data, tmp_path, ("train", 3, "after")))
    (tmp_path / "client-0" / "round-000003.safetensors").write_text("{")
    with pytest.raises(InputError, match="the state of round 3 is damaged"):
        Fragile(data, tmp_path)


def test_centralized_cannot_be_hosted(data: Federation, tmp_path: Path) -> None:
    values = Settings(method="centralized")
    with pytest.raises(InputError, match="all triples in one place"):
        hosted.learn(tmp_path, values, ["a", "b"], Fragile(data, tmp_path), rules=RULES, name="nations")
