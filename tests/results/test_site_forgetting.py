"""Forgetting between sites: as in one process; the request stays where it was made, and breaking off is harmless."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlu
from fedlu.config import Settings, resolve
from fedlu.errors import InputError
from fedlu.federated.alignment import key_for_one_process
from fedlu.federated.arrivals import Rules
from fedlu.federated.messages import Keep, Measure, MessageError, Recall, Unlearn, Welcome
from fedlu.federated.transport import InProcessTransport
from fedlu.graph import Federation, load, partition, read, save
from fedlu.results import hosted
from fedlu.results.forgetting import forget
from fedlu.results.site_forgetting import REQUEST, ForgettingSite, ask
from fedlu.results.sites import Site

LEARNED: dict[str, Any] = {"dimension": 16, "rounds": 16, "evaluate_every": 8, "warm_rounds": 6, "learning_rate": 0.02}
RULES = Rules(averages_only=True)
OWNER = "client-1"


def settings() -> Settings:
    return resolve("fast", method="fedlu", model="TransE", overrides=LEARNED)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "nations"
    save(partition(read("nations"), clients=3, by="random", seed=1, forget=0.03), folder, {})
    return folder


def sites(data: Federation, folder: Path, run: str) -> list[Site]:
    return [Site(graph, settings(), folder / graph.name / run) for graph in data.clients]


def over(parties: list[Any]) -> InProcessTransport:
    return InProcessTransport(parties, key_for_one_process(0))


@pytest.fixture(scope="module")
def learned(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, federation = tmp_path_factory.mktemp("learned"), load(data)
    names = [graph.name for graph in federation.clients]
    hosted.learn(
        folder / "first", settings(), names, over(sites(federation, folder, "first")), rules=RULES, name="nations"
    )
    ask(federation.clients[1], folder / OWNER / "first", forget_sets=True, goal="suppress")
    return folder


def go(federation: Federation, folder: Path, before: InProcessTransport) -> dict[str, Any]:
    return hosted.forget(
        folder / "first", folder / "second", before, lambda: over(sites(federation, folder, "second")), RULES
    )


def forgetting(federation: Federation, folder: Path) -> list[ForgettingSite]:
    return [ForgettingSite(site, folder / site.name / "second") for site in sites(federation, folder, "first")]


class Overheard(InProcessTransport):
    """Keeps all that the clients say; dies in a step of forgetting, if told to."""

    def __init__(self, parties: list[Any], die_in: int = 0):
        super().__init__(parties, key_for_one_process(0))
        self.said: list[Any] = []
        self.die_in = die_in

    def unlearn(self, messages: dict[str, Unlearn]) -> Any:
        if next(iter(messages.values())).round == self.die_in:
            raise KeyboardInterrupt
        replies = super().unlearn(messages)
        self.said += replies
        return replies


def test_sites_forget_as_clients_of_one_process_do(data: Path, learned: Path, tmp_path: Path) -> None:
    federation = load(data)
    with pytest.raises(KeyboardInterrupt):  # broken off: begun again, it ends the same
        go(federation, learned, Overheard(forgetting(federation, learned), die_in=1))
    assert not (learned / "second").exists()
    line = Overheard(forgetting(federation, learned))
    metrics = go(federation, learned, line)
    fedlu.learn(data, out=tmp_path / "run", **LEARNED)
    facts = forget(tmp_path / "run", tmp_path / "forgot", forget_sets=True, client=OWNER, goal="suppress")
    expected = json.loads((tmp_path / "forgot" / "metrics.json").read_text())
    assert metrics["forgetting"]["cycles"] == facts["cycles"]
    for view in ("local", "global", "blend"):
        assert metrics["test"][view]["weighted"] == expected["test"][view]["weighted"]
    # the site that asked has evidence of its own; nobody else has anything to show
    audit = json.loads((learned / OWNER / "second" / "audit.json").read_text())
    for view in ("local", "global"):
        assert audit["forgotten"][view]["forget"]["mrr"] < audit["raw"][view]["forget"]["mrr"]
    asked = federation.clients[1].vocabulary.labels(federation.clients[1].forget)
    for path in (learned / OWNER / "second", learned / "second", learned / "client-0" / "second"):
        for file in (each for each in path.rglob("*") if each.is_file()):
            text = file.read_bytes()
            assert not any("\t".join(triple).encode() in text for triple in asked)
    assert (learned / OWNER / "second" / "ledger.json").exists()
    assert not (learned / "client-0" / "second" / "audit.json").exists()
    assert {type(each).__name__ for each in line.said} == {"Unlearned"}
    # the new run can be evaluated, from what the sites kept of it
    again = hosted.evaluate(learned / "second", "test", over(sites(federation, learned, "second")), RULES)
    assert again["global"]["weighted"] == metrics["test"]["global"]["weighted"]
    assert go(federation, learned, line)["rounds"] == metrics["rounds"]  # done is done


def test_a_request_is_private_single_and_about_a_finished_run(data: Path, learned: Path, tmp_path: Path) -> None:
    graph = load(data).clients[1]
    assert stat.S_IMODE((learned / OWNER / "first" / REQUEST).stat().st_mode) == 0o600
    with pytest.raises(InputError, match="a request waits already"):
        ask(graph, learned / OWNER / "first", forget_sets=True)
    with pytest.raises(InputError, match="no finished run"):
        ask(graph, tmp_path, forget_sets=True)
    with pytest.raises(InputError, match="no goal 'never'"):
        ask(graph, learned / OWNER / "first", forget_sets=True, goal="never")
    with pytest.raises(InputError, match="no entity 'Atlantis'"):
        ask(load(data).clients[0], learned / "client-0" / "first", entity="Atlantis")


def test_a_server_cannot_misuse_a_forgetting_site(data: Path, learned: Path, tmp_path: Path) -> None:
    site = ForgettingSite(sites(load(data), learned, "first")[0], tmp_path / "second")
    site.welcome(Welcome(np.arange(2)))
    rows = np.zeros((2, 16), np.float32)
    with pytest.raises(MessageError, match="before it forgot"):
        site.keep(Keep(1, ("local",)))
    with pytest.raises(MessageError, match="asked for step 1 after -1"):
        site.unlearn(Unlearn(1, "decay", rows))
    site.recall(Recall(0))
    site.unlearn(Unlearn(1, "interference", rows))
    with pytest.raises(MessageError, match="asked for step 1 after 1"):
        site.unlearn(Unlearn(1, "interference", rows))
    for request in (Measure(1, "test", rows), Measure(1, "valid", None)):
        with pytest.raises(MessageError, match="something else"):
            site.measure(request)
    assert not hasattr(site, "train")
    assert not (tmp_path / "second").exists()
