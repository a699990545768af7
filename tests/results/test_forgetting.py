"""Forgetting a run: what goes, what stays, what is left on disk, and that nothing comes back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlu.config import Settings
from fedlu.embedding.ranking import FilterIndex, Side
from fedlu.errors import InputError
from fedlu.federated import rounds
from fedlu.federated.client import LOOKS, Client
from fedlu.federated.exams import Exam
from fedlu.federated.messages import Keep, Measure, Recall, Unlearned
from fedlu.federated.rounds import ForgetEvent
from fedlu.federated.server import Server
from fedlu.graph import load, partition, read, save
from fedlu.graph.ledger import Ledger
from fedlu.learning.unlearning import Unlearner
from fedlu.results import checkpoints, evidence, files, forgetting, prediction, requests, runs
from fedlu.results.requests import Wish

SETTINGS: dict[str, Any] = {"dimension": 32, "rounds": 30, "warm_rounds": 10, "learning_rate": 0.01, "final_rate": 1}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation with forget sets, and a run over it; read by many tests, changed by none."""
    folder = tmp_path_factory.mktemp("forgetting")
    save(partition(read("umls"), clients=3, by="random", seed=1, forget=0.02), folder / "umls", {})
    runs.learn(folder / "umls", out=folder / "run", **SETTINGS)
    forgetting.forget(folder / "run", folder / "forgot", forget_sets=True)
    return folder


def clients_of(run: Path) -> list[Client]:
    settings = Settings(**files.read_json(run / "config.json")["settings"])
    return runs.go_on(run, runs.data_of(run), settings)[0].clients


def snapshot(folder: Path) -> dict[str, bytes]:
    """But for the lock, which whoever is killed leaves behind, and which holds nobody up."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def known(run: Path, asked: dict[str, list[tuple[str, str, str]]], view: str) -> float:
    """How well a run knows triples, given by name, in the mean."""
    found = []
    for client in clients_of(run):
        names = client.graph.vocabulary
        rows = [
            (names.entity_ids[h], names.relation_ids[r], names.entity_ids[t])
            for h, r, t in asked.get(client.name, [])
            if h in names.entity_ids and t in names.entity_ids and r in names.relation_ids
        ]
        if rows:
            found.append(evidence.known_by(client, view, np.array(rows, dtype=np.int32)))
    return float(np.concatenate(found).mean())


def forget_sets(world: Path) -> dict[str, list[tuple[str, str, str]]]:
    return {client.name: client.vocabulary.labels(client.forget) for client in load(world / "umls").clients}


def test_a_mean_over_rounds_is_forgotten_from_and_left_behind(world: Path, tmp_path: Path) -> None:
    """What the views predict by forgets; the means themselves, which still know, are not in the new run."""
    old, new = tmp_path / "run", tmp_path / "forgot"
    runs.learn(world / "umls", out=old, **{**SETTINGS, "rounds": 12, "warm_rounds": 4, "remember": 0.5})
    rounds = [{view: mean.rounds for view, mean in client.remembered.of.items()} for client in clients_of(old)]
    assert rounds == [{"local": 6, "global": 5}] * 3  # the global rows of a round come with the next
    forgetting.forget(old, new, forget_sets=True)
    asked = forget_sets(world)
    for view in ("local", "global"):
        assert known(new, asked, view) < known(old, asked, view) - 0.1
    assert not any(client.remembered.of for client in clients_of(new))
    assert not any(b"remembered" in content for content in snapshot(new / "checkpoints").values())


def test_the_forgotten_become_like_triples_never_seen(world: Path) -> None:
    asked = forget_sets(world)
    unseen = {client.name: client.vocabulary.labels(client.test) for client in load(world / "umls").clients}
    for view in ("local", "global"):
        raw, after = known(world / "run", asked, view), known(world / "forgot", asked, view)
        level = known(world / "forgot", unseen, view)
        assert after < raw - 0.3
        assert abs(after - level) < 0.5 * (raw - level)
    facts = files.read_json(world / "forgot" / forgetting.FORGETTING)
    assert facts["reached"]
    assert facts["forgotten"] == {name: len(triples) for name, triples in asked.items()}


def test_what_stays_is_still_known(world: Path) -> None:
    before = runs.read_metrics(world / "run")["valid"]
    last = [json.loads(line) for line in (world / "forgot" / "events.jsonl").read_text().splitlines()][-1]
    for view, mrr in last["valid"].items():
        assert mrr > before[view]["weighted"]["mrr"] - 0.03
    assert runs.evaluate(world / "forgot") == runs.read_metrics(world / "forgot")["test"]


def test_the_new_run_holds_no_forgotten_name(world: Path) -> None:
    """No file has a label of the data; the search would find one (the data itself is the control)."""
    labels = [label.encode() for triples in forget_sets(world).values() for t in triples for label in (t[0], t[2])]
    control = b"".join(snapshot(world / "umls").values())
    assert all(label in control for label in labels)
    for name, content in snapshot(world / "forgot").items():
        assert not [label for label in labels if label in content], name


def test_what_others_receive_has_forgotten_too(world: Path, tmp_path: Path) -> None:
    """Only one client forgets; judged by the rows that the others hold afterwards, with that client's relations."""
    asked = forget_sets(world)["client-0"]
    forgetting.forget(world / "run", tmp_path / "forgot", forget_sets=True, client="client-0")
    fell = []
    for h, r, t in asked:
        scores = []
        for run in (world / "run", tmp_path / "forgot"):
            owner, *others = clients_of(run)
            names = [other.graph.vocabulary.entity_ids for other in others]
            holder = next((o for o, ids in zip(others, names, strict=True) if h in ids and t in ids), None)
            if holder is None:
                break
            ids, table = holder.graph.vocabulary.entity_ids, holder.best["global"].entities
            number = np.array([owner.graph.vocabulary.relation_ids[r]])
            relations = owner.best["global"].relations
            all_scores = owner.learner.score_all(table, relations, table[[ids[h]]], number, Side.TAIL)[0]
            scores.append(float((all_scores > all_scores[ids[t]]).sum()))
        if len(scores) == 2:
            fell.append(scores[1] - scores[0])
    assert len(fell) > 10
    assert np.mean(fell) > 0.5  # more entities stand before the answer than did


def test_same_request_same_bits(world: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        forgetting.forget(world / "run", tmp_path / name, fraction=0.01, seed=4)
    first, again = (files.read_json(tmp_path / name / forgetting.FORGETTING)["hashes"] for name in ("a", "b"))
    assert first["tables after"] == again["tables after"]
    assert first["tables after"] != first["tables before"]


def test_an_entity_is_erased(world: Path, tmp_path: Path) -> None:
    data = load(world / "umls")
    label = next(
        label
        for label in data.clients[0].vocabulary.entities
        if sum(label in client.vocabulary.entity_ids for client in data.clients) == 3
    )
    forgetting.forget(world / "run", tmp_path / "one", entity=label, client="client-0")
    one, two, _ = clients_of(tmp_path / "one")
    assert label not in one.graph.vocabulary.entity_ids
    assert label in two.graph.vocabulary.entity_ids
    assert len(one.local.values) == len(data.clients[0].vocabulary.entities) - 1
    forgetting.forget(world / "run", tmp_path / "all", entity=label)
    party = runs.go_on(tmp_path / "all", runs.data_of(tmp_path / "all"), one.settings)[0]
    assert all(label not in client.graph.vocabulary.entity_ids for client in party.clients)
    whole = runs.go_on(world / "run", data, one.settings)[0]
    assert len(party.server.table) < len(whole.server.table)  # nobody has it left, so its global row is gone as well
    ledger = Ledger.read(tmp_path / "all")
    assert all(ledger.hash(client.name, "entity", label) in ledger.entities for client in data.clients)


def test_a_relation_goes(world: Path, tmp_path: Path) -> None:
    relation = load(world / "umls").clients[1].vocabulary.relations[0]
    forgetting.forget(world / "run", tmp_path / "out", relation=relation)
    for client in clients_of(tmp_path / "out"):
        assert relation not in client.graph.vocabulary.relation_ids
        assert len(client.relations.values) == len(client.graph.vocabulary.relations)


def test_one_triple(world: Path, tmp_path: Path) -> None:
    client = load(world / "umls").clients[2]
    (before,) = (each for each in clients_of(world / "run") if each.name == client.name)
    well = evidence.known_by(before, "local", client.train) + evidence.known_by(before, "global", client.train)
    triple = client.vocabulary.labels(client.train)[int(well.argmax())]  # the best known of all
    (tmp_path / "erase.tsv").write_text("\t".join(triple) + "\n", encoding="utf-8")
    facts = forgetting.forget(world / "run", tmp_path / "out", triples=tmp_path / "erase.tsv", client=client.name)
    assert facts["forgotten"] == {client.name: 1}
    asked = {client.name: [triple]}
    for view in ("local", "global"):
        assert known(tmp_path / "out", asked, view) < known(world / "run", asked, view) - 0.1


@pytest.mark.parametrize("method", ["independent", "fede", "fedprox"])
def test_rivals_forget_as_well(world: Path, tmp_path: Path, method: str) -> None:
    runs.learn(world / "umls", method=method, out=tmp_path / "run", **{**SETTINGS, "warm_rounds": 0})
    forgetting.forget(tmp_path / "run", tmp_path / "out", forget_sets=True)
    asked = forget_sets(world)
    assert known(tmp_path / "out", asked, "local") < known(tmp_path / "run", asked, "local") - 0.2


def test_tables_that_began_apart_both_forget(world: Path, tmp_path: Path) -> None:
    apart = {**SETTINGS, "warm_rounds": 0, "own_start": True}
    runs.learn(world / "umls", method="fedlu", out=tmp_path / "run", **apart)
    forgetting.forget(tmp_path / "run", tmp_path / "out", forget_sets=True)
    asked = forget_sets(world)
    for view in ("local", "global"):
        assert known(tmp_path / "out", asked, view) < known(tmp_path / "run", asked, view) - 0.2
    for client in clients_of(tmp_path / "out"):  # what it would go on from is what it predicts by
        assert client.local_relations is not None
        np.testing.assert_array_equal(client.local.values, client.best["local"].entities)
        np.testing.assert_array_equal(client.local_relations.values, client.best["local"].relations)


# --- refusals: before anything changes ---------------------------------------------------------------------------


def erase(folder: Path, *triples: tuple[str, str, str]) -> Path:
    path = folder / "erase.tsv"
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples), encoding="utf-8")
    return path


def test_refusals(world: Path, tmp_path: Path) -> None:
    data = load(world / "umls")
    mine = data.clients[0].vocabulary.labels(data.clients[0].train)
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "what is to be forgotten?; give one of --triples"),
        ({"forget_sets": True, "fraction": 0.1}, "more than one request"),
        ({"fraction": 1.5}, "fraction = 1.5"),
        ({"triples": erase(tmp_path, mine[0])}, "whose triples?; give --client, one of client-0"),
        ({"triples": erase(tmp_path, mine[0]), "client": "north"}, "no client 'north'; choose one of client-0"),
        (
            {"triples": erase(tmp_path, ("x", "y", "z"), ("u", "v", "w"), mine[0]), "client": "client-0"},
            "client-0 does not hold 2 of these 3 triples: x y z, u v w; remove them",
        ),
        ({"triples": erase(tmp_path, *mine), "client": "client-0"}, "nothing would be left for client-0"),
        ({"entity": "diseas_or_syndrome"}, "no entity 'diseas_or_syndrome'; did you mean disease_or_syndrome"),
        ({"relation": "nothing_like_it_at_all"}, "no relation 'nothing_like_it_at_all'; check the name"),
        ({"forget_sets": True, "goal": "oblivion"}, "no goal 'oblivion'; choose one of indistinguishable, suppress"),
        ({"forget_sets": True, "without": "both"}, "without 'both'; choose hard or soft"),
    ]
    before = snapshot(world / "run")
    for wish, message in cases:
        if "triples" in wish and "nothing would be left" in message:
            wish["triples"] = erase(tmp_path, *mine)
        elif "triples" in wish and "does not hold" in message:
            wish["triples"] = erase(tmp_path, ("x", "y", "z"), ("u", "v", "w"), mine[0])
        elif "triples" in wish:
            wish["triples"] = erase(tmp_path, mine[0])
        with pytest.raises(InputError) as refusal:
            forgetting.forget(world / "run", tmp_path / "out", **wish)
        assert message in str(refusal.value)
        assert not (tmp_path / "out").exists()
    assert snapshot(world / "run") == before
    with pytest.raises(InputError, match="is in use"):
        forgetting.forget(world / "run", world / "forgot", forget_sets=True)
    with pytest.raises(InputError, match="no such folder"):
        forgetting.forget(tmp_path / "nowhere", tmp_path / "out", forget_sets=True)
    for inside, what in ((world / "run" / "checkpoints" / "new", "the run"), (world / "umls" / "new", "the data")):
        with pytest.raises(InputError, match=f"is inside {what}; choose an --out beside it"):
            forgetting.forget(world / "run", inside, forget_sets=True, purge=True)
        assert not inside.exists()
    assert snapshot(world / "run") == before


def test_data_given_in_memory_is_asked_for(tmp_path: Path) -> None:
    data = partition(read("nations"), clients=2, by="random", seed=1, forget=0.02)
    runs.learn(data, out=tmp_path / "run", dimension=8, rounds=2, warm_rounds=1)
    with pytest.raises(InputError, match="its data was given in memory"):
        forgetting.forget(tmp_path / "run", tmp_path / "out", forget_sets=True)


def test_a_centralized_run_has_no_clients_to_ask(world: Path, tmp_path: Path) -> None:
    runs.learn(world / "umls", method="centralized", out=tmp_path / "run", dimension=8, rounds=1)
    with pytest.raises(InputError, match="a centralized run; re-train it"):
        forgetting.forget(tmp_path / "run", tmp_path / "out", forget_sets=True)


# --- nothing half done, nothing comes back -----------------------------------------------------------------------


def test_stopped_half_way_it_leaves_nothing_and_the_old_run_as_it_was(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(world / "run")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forgetting.forget(world / "run", tmp_path / "out", forget_sets=True, watch=stop)
    monkeypatch.setattr(runs, "finish", stop)  # at the last moment, when all but the metrics are written
    with pytest.raises(KeyboardInterrupt):
        forgetting.forget(world / "run", tmp_path / "out", forget_sets=True)
    assert list(tmp_path.iterdir()) == []
    assert snapshot(world / "run") == before


def test_purge_reaches_the_model_of_an_audit(world: Path, tmp_path: Path) -> None:
    """It was re-trained without what went before, but with what goes now."""
    shutil.copytree(world / "run", tmp_path / "run")
    shutil.copytree(world / "run", tmp_path / "run" / "retrained")
    facts = forgetting.forget(tmp_path / "run", tmp_path / "out", fraction=0.01, purge=True)
    assert any("retrained" in path for path in facts["purged"])
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_what_the_rest_suffered_is_told_even_if_the_goal_was_not_reached(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "CYCLES", 1)
    monkeypatch.setattr(Unlearner, "is_content", lambda self, within=1.0: False)
    monkeypatch.setattr(Unlearner, "interfere", lambda self, random: False)
    seen: list[ForgetEvent] = []
    facts = forgetting.forget(world / "run", tmp_path / "out", fraction=0.01, watch=seen.append)
    assert (facts["reached"], facts["restored"]) == (False, True)  # nothing was changed, so nothing suffered
    assert seen[-1].valid is not None


def test_killed_at_any_moment_the_old_run_is_whole(world: Path, tmp_path: Path) -> None:
    """By SIGKILL: the old run stays as it was, the new one is there as a whole or not at all, and can be made."""
    shutil.copytree(world / "run", tmp_path / "run")
    before = snapshot(tmp_path / "run")
    program = "import sys, fedlu; fedlu.forget(sys.argv[1], sys.argv[2], fraction=0.02)"
    command = [sys.executable, "-c", program, str(tmp_path / "run"), str(tmp_path / "out")]
    killed = 0
    for delay in np.random.default_rng(0).uniform(0.5, 4.0, size=6):
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            child.wait(delay)
        except subprocess.TimeoutExpired:
            child.kill()
            killed += child.wait() != 0
        assert snapshot(tmp_path / "run") == before
        if (tmp_path / "out").exists():
            assert (tmp_path / "out" / "metrics.json").is_file()
            shutil.rmtree(tmp_path / "out")
    assert killed
    forgetting.forget(tmp_path / "run", tmp_path / "out", fraction=0.02)
    assert (tmp_path / "out" / "metrics.json").is_file()


def test_purge_deletes_the_checkpoints_and_says_which(world: Path, tmp_path: Path) -> None:
    shutil.copytree(world / "run", tmp_path / "run")
    there = {str(path) for path in (tmp_path / "run" / "checkpoints").rglob("*") if path.is_file()}
    facts = forgetting.forget(tmp_path / "run", tmp_path / "out", fraction=0.01, purge=True)
    assert set(facts["purged"]) == there
    assert not list((tmp_path / "run").rglob("*.safetensors"))
    assert runs.evaluate(tmp_path / "out")["local"]["weighted"]["mrr"] > 0.2
    with pytest.raises(InputError) as refusal:
        prediction.load(tmp_path / "run")
    today = datetime.now(timezone.utc).date().isoformat()
    assert f"its checkpoints were deleted on {today}, as by `fedlu forget --purge`" in str(refusal.value)
    assert refusal.value.remedy == f"use {(tmp_path / 'out').resolve()}, which has forgotten"
    (tmp_path / "run" / checkpoints.PURGED).unlink()  # as an older version left it
    with pytest.raises(InputError, match="its checkpoints were deleted, as by") as refusal:
        prediction.load(tmp_path / "run")
    assert "\n" not in str(refusal.value)


def test_learning_again_skips_what_was_forgotten(world: Path, tmp_path: Path) -> None:
    number = sum(map(len, forget_sets(world).values()))
    metrics = runs.learn(
        world / "umls", out=tmp_path / "run", ledger=world / "forgot", dimension=8, rounds=2, warm_rounds=1
    )
    assert metrics["skipped"] == number
    clean = runs.data_of(tmp_path / "run")
    held = {(client.name, *t) for client in clean.clients for t in client.vocabulary.labels(client.known)}
    asked = {(name, *triple) for name, triples in forget_sets(world).items() for triple in triples}
    assert not held & asked
    again = runs.learn(world / "umls", out=tmp_path / "run", resume=True, dimension=8, rounds=2, warm_rounds=1)
    assert again["skipped"] == number  # the run keeps its ledger


def test_data_that_was_cleaned_is_the_same_data(world: Path, tmp_path: Path) -> None:
    """Once the owner has removed the triples from the files, the run is as usable as before."""
    clean = runs.data_of(world / "forgot")
    shutil.copytree(world / "forgot", tmp_path / "forgot")
    save(clean, tmp_path / "umls", {})
    config = files.read_json(tmp_path / "forgot" / "config.json")
    files.write_json(tmp_path / "forgot" / "config.json", {**config, "data": str(tmp_path / "umls")})
    assert runs.evaluate(tmp_path / "forgot") == runs.evaluate(world / "forgot")


def test_forgetting_again_remembers_what_was_forgotten_before(world: Path, tmp_path: Path) -> None:
    forgetting.forget(world / "forgot", tmp_path / "out", fraction=0.01)
    assert Ledger.read(tmp_path / "out").triples > Ledger.read(world / "forgot").triples


class OneSite:
    """Changes its only row to the number of the step, unless it only looks; content as told, cycle by cycle."""

    def __init__(self, contents: list[bool], looks: list[bool] | None = None) -> None:
        self.kept: list[int] = []
        self.contents, self.looks = iter(contents), iter(looks or [True] * len(contents))

    def recall(self, message: Any) -> list[Unlearned]:
        return [self._changed(message.round, content=False)]

    def unlearn(self, messages: Any) -> list[Unlearned]:
        asked = messages["north"]
        if asked.step == "look":
            return [
                Unlearned("north", asked.round, np.empty(0, np.int64), np.empty((0, 4), np.float32), next(self.looks))
            ]
        return [self._changed(asked.round, content=asked.step == "decay" or next(self.contents))]

    def keep(self, message: Any) -> None:
        self.kept.append(message.round)

    def _changed(self, number: int, *, content: bool) -> Unlearned:
        row = np.full((1, 4), number, dtype=np.float32)
        return Unlearned("north", number, np.zeros(1, dtype=np.int64), row, content)


def forgotten_by(site: OneSite, valid: list[float], cycles: int) -> tuple[Server, list[rounds.ForgetEvent]]:
    """The valid MRR before, and after each interference that made the site content."""
    values, server = iter(valid), Server(4, 0.1, 0)
    server.rows["north"], server.table = np.zeros(1, dtype=np.int64), np.zeros((1, 4), dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "measure", lambda *_, **__: {"local": {"weighted": {"mrr": next(values)}}})
        events = list(rounds.forget(server, site, cycles=cycles, tolerance=0.002))  # type: ignore[arg-type]
    return server, events


def test_rounds_end_when_decay_no_longer_helps_and_the_best_is_kept() -> None:
    """Content, but the valid MRR never comes back: it gives up instead of going on for ever."""
    site = OneSite([True] * 20)
    server, events = forgotten_by(site, [0.5, 0.3, 0.31, 0.29], cycles=20)
    assert len(events) == 2 + rounds.FORGET_PATIENCE
    assert events[-1].finished
    assert site.kept == [2]
    assert (server.table == 4).all()  # as after the interference of cycle 2, whose step is the fourth


def test_of_cycles_that_are_as_good_the_last_is_kept() -> None:
    """Decay goes on mending what a sample of the valid triples does not tell."""
    site = OneSite([True] * 20)
    _, events = forgotten_by(site, [0.5, 0.3, 0.299], cycles=20)
    assert not any(event.restored for event in events)
    assert [event.valid for event in events] == [{"local": 0.3}, {"local": 0.299}]
    assert site.kept == [2]


def test_a_cycle_that_had_not_forgotten_is_kept_only_if_none_had() -> None:
    site = OneSite([False, True, False])
    server, events = forgotten_by(site, [0.5, 0.3], cycles=3)
    assert [event.content for event in events] == [False, True, False]
    assert site.kept == [2]
    assert (server.table == 4).all()
    never = OneSite([False, False])
    server, events = forgotten_by(never, [0.5, 0.3], cycles=2)
    assert never.kept == [2]
    assert [event.valid is not None for event in events] == [False, True]  # what the rest suffered is told all the same
    assert not events[-1].restored
    assert (server.table == 4).all()  # as after the last interference: no decay brings anything back


def test_a_client_has_to_be_content_with_what_the_server_averaged() -> None:
    site = OneSite([True, True], looks=[False, True])
    _, events = forgotten_by(site, [0.5, 0.5], cycles=5)
    assert [event.content for event in events] == [False, True]
    assert site.kept == [2]


def test_a_client_comes_back_to_an_earlier_look(world: Path) -> None:
    """Its tables as they were measured then, not as they are now."""
    client = clients_of(world / "run")[0]
    client.recall(Recall(0))
    assert client.unlearner is not None
    looked = {}
    for cycle in (1, 2, 3):
        for memory in client.unlearner.memories.values():
            memory.table.values += np.float32(cycle)
        client.measure(Measure(cycle, "valid", client.avatar.values[client.shared]))
        looked[cycle] = {view: memory.table.values.copy() for view, memory in client.unlearner.memories.items()}
    client.keep(Keep(2, ("local", "global")))
    for view in ("local", "global"):
        np.testing.assert_array_equal(client.best[view].entities, looked[2][view])
    assert set(client.looked) == {1, 2, 3}
    assert rounds.FORGET_PATIENCE < LOOKS


def test_a_ledger_cannot_be_read_but_recognises(world: Path) -> None:
    client = load(world / "umls").clients[0]
    ledger = Ledger()
    marks = {split: np.zeros(len(client.split(split)), bool) for split in ("train", "valid", "test", "forget")}
    marks["train"][:3] = True
    ledger = ledger.with_triples(client, marks)
    assert ledger.holds(client, marks)
    assert not Ledger().with_triples(client, marks).triples & ledger.triples  # another salt, other hashes
    assert {split: found.sum() for split, found in ledger.marks(client).items() if split != "forget"} == {
        "train": 3,
        "valid": 0,
        "test": 0,
    }


@pytest.mark.parametrize("text", ["", "{}", '{"salt": "zz", "triples": [], "entities": [], "relations": []}'])
def test_a_damaged_ledger_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "ledger.json").write_text(text)
    with pytest.raises(InputError, match="not a ledger"):
        Ledger.read(tmp_path)


def test_a_sample_is_of_train_and_never_all_of_it(world: Path) -> None:
    data = load(world / "umls")
    chosen = requests.choose(data, Wish(fraction=0.1, seed=3))
    for client in data.clients:
        marks = chosen.marks[client.name]
        assert marks["train"].sum() == round(0.1 * len(client.train))
        assert not marks["valid"].any()
    other = requests.choose(data, Wish(fraction=0.1, seed=4))
    assert any((other.marks[name]["train"] != marks["train"]).any() for name, marks in chosen.marks.items())


@pytest.fixture(autouse=True)
def _no_leftovers(world: Path) -> Iterator[None]:
    """Every test leaves the shared runs as they were."""
    before = {name: sorted(path.name for path in (world / name).iterdir()) for name in ("run", "forgot")}
    yield
    assert {name: sorted(path.name for path in (world / name).iterdir()) for name in ("run", "forgot")} == before


@pytest.mark.parametrize(("size", "half", "few"), [(5000, 2500, 500), (2000, 1000, 400), (300, 150, 150)])
def test_for_a_few_triples_fewer_are_ranked_but_never_hardly_any(size: int, half: int, few: int) -> None:
    valid = np.arange(3 * size, dtype=np.int32).reshape(-1, 3)
    exam = Exam("north", {"valid": valid, "test": valid}, FilterIndex.of(np.zeros((1, 3), dtype=np.int32), 1, 1))
    for number, is_few in ((half, False), (few, True)):
        found = forgetting.at_a_glance(exam, few=is_few).splits
        assert len(found["valid"]) == len(np.unique(found["valid"], axis=0)) == number
        assert len(found["test"]) == size
