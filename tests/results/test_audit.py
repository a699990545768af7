"""The audit: its measures restated, its verdicts, and what it writes."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlu.config import Settings
from fedlu.errors import InputError
from fedlu.graph import load, partition, read, save
from fedlu.graph.federation import ClientGraph
from fedlu.graph.triples import Vocabulary
from fedlu.results import audit as audits
from fedlu.results import evidence, files, forgetting, runs
from fedlu.results.report import report

SETTINGS: dict[str, Any] = {"dimension": 32, "rounds": 20, "warm_rounds": 8, "learning_rate": 0.01, "final_rate": 1}
COMMON = {"entity", "group", "event", "language", "classification"}
"""Names in UMLS that are also words of the page."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    save(partition(read("umls"), clients=2, by="random", seed=1, forget=0.03), folder / "umls", {})
    runs.learn(folder / "umls", out=folder / "run", **SETTINGS)
    forgetting.forget(folder / "run", folder / "forgot", forget_sets=True)
    return folder


@pytest.fixture(scope="module")
def audited(world: Path) -> dict[str, Any]:
    return audits.audit(world / "forgot")[0]


def test_three_models_side_by_side(audited: dict[str, Any]) -> None:
    for model in ("raw", "forgotten", "retrained"):
        for view in ("local", "global"):
            assert set(audited[model][view]) == {"forget", "test", "retained", "neighbourhood"}
            assert all(0 < audited[model][view][name]["mrr"] <= 1 for name in audited[model][view])
    for view in ("local", "global"):
        raw, gone, again = (audited[model][view] for model in ("raw", "forgotten", "retrained"))
        assert raw["forget"]["hits@1"] > again["forget"]["hits@1"] + 0.1  # there was something to forget
        way = raw["forget"]["mrr"] - again["forget"]["mrr"]
        part = (raw["forget"]["mrr"] - gone["forget"]["mrr"]) / way
        assert part > 0.5
        assert gone["test"]["mrr"] > raw["test"]["mrr"] - 0.03


def test_an_attacker_finds_members_before_and_not_after(audited: dict[str, Any]) -> None:
    found = audited["membership"]
    for view in ("local", "global"):
        assert found["raw"][view]["low"] > found["retrained"][view]["auc"]
        assert abs(found["forgotten"][view]["auc"] - found["retrained"][view]["auc"]) < 0.15
        assert found["before and after"][view]["auc"] > 0.6  # who has both tables sees what was changed
        for each in found.values():
            assert each[view]["low"] <= each[view]["auc"] <= each[view]["high"]


def test_the_files(world: Path, audited: dict[str, Any]) -> None:
    folder = world / "forgot"
    saved = json.loads((folder / "audit.json").read_text())
    assert saved["forgotten"] == audited["forgotten"]
    assert saved["cost"]["retraining seconds"] > 0
    assert saved["hashes"]["tables before"] != saved["hashes"]["tables after"]
    assert set(saved["versions"]) == {"fedlu", "python", "numpy", "numba", "torch"}
    text = (folder / "audit.md").read_text()
    shown = f"{100 * audited['forgotten']['local']['forget']['hits@1']:.2f}"
    assert f"| local | forget | {100 * audited['raw']['local']['forget']['hits@1']:.2f} | {shown} |" in text
    assert audits.STATEMENT in text
    clients = load(world / "umls").clients
    labels = {t[end] for client in clients for t in client.vocabulary.labels(client.forget) for end in (0, 2)}
    for name in ("audit.json", "audit.md", "retrained/config.json", "retrained/events.jsonl", "retrained/metrics.json"):
        content = (folder / name).read_text()
        assert not [label for label in labels if label in content]


def test_the_report_shows_it_and_names_nothing(world: Path, audited: dict[str, Any], tmp_path: Path) -> None:
    content = report([world / "run", world / "forgot"], tmp_path / "r.html", maps=False)
    (section,) = content["audits"]
    assert [row[:2] for row in section["verdicts"].rows] == [
        (view, audited["verdict"][view]) for view in audited["raw"]
    ]
    bars = section["charts"][0].spec
    assert bars["groups"][0] == "forget"
    assert [series["values"][0] for series in bars["series"]] == [
        audited[model]["local"]["forget"]["hits@1"] for model in ("raw", "forgotten", "retrained")
    ]
    known = section["charts"][2].spec["series"]
    assert len(known) == 4  # the forgotten in three states, and what was never learned
    for series in known:
        assert sum(share for _, share in series["points"]) == pytest.approx(1, abs=0.005)
    middle = [sum(x * share for x, share in series["points"]) for series in known]
    assert middle[0] > middle[1]  # better known before
    clients = load(world / "umls").clients
    labels = {t[end] for client in clients for t in client.vocabulary.labels(client.forget) for end in (0, 2)}
    said = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", (tmp_path / "r.html").read_text(), flags=re.S)
    assert not [label for label in labels if re.search(rf"\b{re.escape(label)}\b", said) and label not in COMMON]


def test_retraining_is_done_once(world: Path, audited: dict[str, Any]) -> None:
    before = (world / "forgot" / "retrained" / "metrics.json").stat().st_mtime_ns
    again, _ = audits.audit(world / "forgot", forget_sets=True)
    assert (world / "forgot" / "retrained" / "metrics.json").stat().st_mtime_ns == before
    assert again["membership"] == audited["membership"]
    assert (
        runs.read_metrics(world / "forgot" / "retrained")["fingerprint"] == runs.data_of(world / "forgot").fingerprint
    )


def test_no_audit_is_replaced_by_one_that_shows_less(world: Path, tmp_path: Path, audited: dict[str, Any]) -> None:
    """What was re-trained is compared with, asked for or not; and where it is not known any more, the audit stays."""
    again, _ = audits.audit(world / "forgot", retrain=False)
    assert again["retrained"] == audited["retrained"]
    shutil.copytree(world / "forgot", tmp_path / "out")
    shutil.move(tmp_path / "out" / "retrained", tmp_path / "elsewhere")
    before = (tmp_path / "out" / "audit.json").read_bytes()
    with pytest.raises(InputError, match=r"which this one would replace; say where that run is with --retrained"):
        audits.audit(tmp_path / "out", retrain=False)
    assert (tmp_path / "out" / "audit.json").read_bytes() == before
    found, _ = audits.audit(tmp_path / "out", retrained=tmp_path / "elsewhere")
    assert found["membership"] == audited["membership"]


def test_a_run_of_before_is_re_trained_as_it_was(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that did not exist then is not taken from the recipe of today."""
    config = json.loads((world / "run" / "config.json").read_text())
    config["recipe"], config["settings"]["model"] = "strong", "ComplEx"
    del config["settings"]["dura"]
    asked: dict[str, Any] = {}
    monkeypatch.setattr(runs, "learn", lambda _, **options: asked.update(options))
    audits._retrain(tmp_path / "again", load(world / "umls"), config, None)
    assert (asked["recipe"], asked["model"], asked["dura"]) == ("strong", "ComplEx", 0.0)
    assert asked["n3"] == config["settings"]["n3"]


def test_without_a_re_trained_model_its_column_is_absent(world: Path, tmp_path: Path, audited: dict[str, Any]) -> None:
    forgetting.forget(world / "run", tmp_path / "out", fraction=0.02, seed=5, goal="suppress")
    result, _ = audits.audit(tmp_path / "out", retrain=False, fraction=0.02, seed=5)
    with pytest.raises(InputError, match="was re-trained without other triples than these"):
        audits.audit(tmp_path / "out", retrained=world / "forgot" / "retrained", fraction=0.02, seed=5)
    assert "retrained" not in result
    assert result["absent"] == {"retrained": "not asked for"}
    assert result["cost"]["retraining seconds"] is None
    assert "| view | set | raw | forgotten |" in (tmp_path / "out" / "audit.md").read_text()
    with pytest.raises(InputError, match="are not in the ledger; give the request as it was"):
        audits.audit(tmp_path / "out", retrain=False, fraction=0.02, seed=6)


def test_a_purged_run_has_no_raw_column(world: Path, tmp_path: Path) -> None:
    shutil.copytree(world / "run", tmp_path / "run")
    forgetting.forget(tmp_path / "run", tmp_path / "out", forget_sets=True, client="client-1", purge=True)
    result, _ = audits.audit(tmp_path / "out", retrain=False, forget_sets=True, client="client-1")
    assert "raw" not in result
    assert "its checkpoints were deleted on" in result["absent"]["raw"]


def test_a_run_that_forgot_nothing_is_refused(world: Path) -> None:
    with pytest.raises(InputError, match="nothing was forgotten here"):
        audits.audit(world / "run")


# --- measures ------------------------------------------------------------------------------------------------------


def test_auc_counts_pairs(random: np.random.Generator) -> None:
    members, others = random.integers(6, size=9).astype(float), random.integers(5, size=7).astype(float)
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(members, others))
    assert evidence.auc(members, others) == pytest.approx(wins / 63)
    found = evidence.attack(members + 100, others)
    assert (found.auc, found.caught) == (1.0, 1.0)
    assert found.low == found.high == 1.0
    assert np.isnan(evidence.attack(members[:0], others).auc)


def test_a_coin_is_a_coin(random: np.random.Generator) -> None:
    found = evidence.attack(random.normal(size=500), random.normal(size=500))
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.1
    assert found.caught < 0.05


def test_pairs_have_the_same_relation(random: np.random.Generator) -> None:
    forget = np.stack([np.arange(40), random.integers(4, size=40), np.arange(40)], axis=1).astype(np.int32)
    unseen = np.stack([np.arange(25), random.integers(3, size=25), np.arange(25)], axis=1).astype(np.int32)
    ours, theirs = evidence.matched(forget, unseen)
    assert (forget[ours, 1] == unseen[theirs, 1]).all()
    assert len(set(theirs)) == len(theirs)
    for relation in range(3):
        wanted = min((forget[:, 1] == relation).sum(), (unseen[:, 1] == relation).sum())
        assert (forget[ours, 1] == relation).sum() == wanted


@pytest.mark.parametrize(
    ("mine", "low", "high", "reference", "said"),
    [
        (0.60, 0.58, 0.62, 0.50, "under-forgotten"),
        (0.40, 0.38, 0.42, 0.50, "over-forgotten"),
        (0.52, 0.51, 0.53, 0.50, "indistinguishable"),
        (0.60, 0.45, 0.75, 0.50, "indistinguishable"),  # too few to tell them apart
        (0.60, 0.58, 0.62, 0.61, "indistinguishable"),  # high, but so it is after re-training
        (float("nan"), 0.0, 1.0, 0.5, "not enough triples to tell"),
    ],
)
def test_verdicts(mine: float, low: float, high: float, reference: float, said: str) -> None:
    found = {
        "forgotten": {"local": {"auc": mine, "low": low, "high": high, "members": audits.FEWEST}},
        "retrained": {"local": {"auc": reference}},
    }
    assert audits.verdict(found, "local") == said
    found["forgotten"]["local"]["members"] -= 1
    assert audits.verdict(found, "local") == "not enough triples to tell"


def test_only_the_whole_request_is_audited(world: Path, tmp_path: Path) -> None:
    """Else one could pick those that look best, under the hash of all of them."""
    client = load(world / "umls").clients[0]
    lines = ["\t".join(triple) + "\n" for triple in client.vocabulary.labels(client.train[:3])]
    asked, part = tmp_path / "asked.tsv", tmp_path / "part.tsv"
    asked.write_text("".join(lines))
    part.write_text(lines[0])
    forgetting.forget(world / "run", tmp_path / "out", triples=asked, client=client.name)
    for wish in ({"triples": part, "client": client.name}, {}):
        with pytest.raises(InputError, match=r"not the request of 3 triples|are not in the ledger"):
            audits.audit(tmp_path / "out", retrain=False, **wish)
    assert not (tmp_path / "out" / "audit.json").exists()
    asked.write_text("".join(reversed(lines)))  # in whatever order
    assert audits.audit(tmp_path / "out", retrain=False, triples=asked, client=client.name)[0]["reach"]["asked"] == 3


def test_what_was_never_learned_is_not_audited(world: Path, tmp_path: Path) -> None:
    client = load(world / "umls").clients[0]
    (tmp_path / "valid.tsv").write_text("\t".join(client.vocabulary.labels(client.valid[:1])[0]) + "\n")
    wish = {"triples": tmp_path / "valid.tsv", "client": client.name}
    facts = forgetting.forget(world / "run", tmp_path / "out", **wish)
    assert (facts["forgotten"], facts["dropped"]) == ({client.name: 0}, 1)
    with pytest.raises(InputError, match="never learned"):
        audits.audit(tmp_path / "out", retrain=False, **wish)


def test_members_are_what_was_learned(world: Path, tmp_path: Path) -> None:
    """Of a file with valid triples and a line twice, those of train, each once; if the data no longer tells, none."""
    shutil.copytree(world / "umls", tmp_path / "umls")
    runs.learn(tmp_path / "umls", out=tmp_path / "run", dimension=8, rounds=2)
    client = load(tmp_path / "umls").clients[0]
    learned, unseen = (client.vocabulary.labels(client.split(split)[:25]) for split in ("train", "valid"))
    lines = ["\t".join(triple) + "\n" for triple in [*learned, *unseen, learned[0]]]
    (tmp_path / "asked.tsv").write_text("".join(lines))
    wish = {"triples": tmp_path / "asked.tsv", "client": client.name}
    forgetting.forget(tmp_path / "run", tmp_path / "out", **wish)
    result, _ = audits.audit(tmp_path / "out", retrain=False, **wish)
    assert result["reach"]["asked"] == 25
    assert result["membership"]["forgotten"]["local"]["members"] <= 25
    for name in ("train.txt", "forget.txt"):
        path = tmp_path / "umls" / client.name / name
        path.write_text("".join(line for line in path.read_text().splitlines(True) if line not in lines[:25]))
    with pytest.raises(InputError, match="only 25 of these 50 triples were learned, and the data does not tell which"):
        audits.audit(tmp_path / "out", retrain=False, **wish)


def test_a_second_request_is_audited_like_the_first(world: Path, tmp_path: Path) -> None:
    """A sample is of what was left then."""
    forgetting.forget(world / "forgot", tmp_path / "again", fraction=0.02, seed=3)
    result, _ = audits.audit(tmp_path / "again", retrain=False, fraction=0.02, seed=3)
    assert result["reach"]["asked"] == sum(
        files.read_json(tmp_path / "again" / "forgetting.json")["forgotten"].values()
    )


def test_of_a_single_client_nobody_asks_whose(tmp_path: Path) -> None:
    save(partition(read("nations"), clients=1, by="random"), tmp_path / "nations", {})
    runs.learn(tmp_path / "nations", out=tmp_path / "run", method="independent", dimension=8, rounds=2)
    client = load(tmp_path / "nations").clients[0]
    (tmp_path / "asked.tsv").write_text("\t".join(client.vocabulary.labels(client.train[:1])[0]) + "\n")
    forgetting.forget(tmp_path / "run", tmp_path / "out", triples=tmp_path / "asked.tsv")
    result, _ = audits.audit(tmp_path / "out", retrain=False, triples=tmp_path / "asked.tsv")
    assert result["reach"]["asked"] == 1


@pytest.mark.parametrize("wish", [{"entity": "antibiotic"}, {"relation": "treats"}])
def test_of_what_was_erased_the_neighbourhood_is_evidence(world: Path, tmp_path: Path, wish: dict[str, str]) -> None:
    """There is no row left to ask, and the audit says so; but the other ends are there, with what is known of them."""
    forgetting.forget(world / "run", tmp_path / "out", **wish)
    result, _ = audits.audit(tmp_path / "out", retrain=False, **wish)
    assert result["reach"]["asked"] == result["reach"]["cannot be asked any more"] > 0
    for view in ("local", "global"):
        assert result["verdict"][view] == audits.ERASED
        assert {"test", "retained", "neighbourhood"} <= set(result["forgotten"][view])
        assert 0.1 < result["forgotten"][view]["neighbourhood"]["mrr"] <= 1
    assert "nan" not in (tmp_path / "out" / "audit.md").read_text().split("## Membership")[0]


def graph(rows: list[tuple[int, int, int]]) -> ClientGraph:
    triples = np.array(sorted(rows), dtype=np.int32)
    names = Vocabulary(tuple(f"e{n:02}" for n in range(20)), ("bought", "likes", "owns", "sold by"))
    none = triples[:0]
    return ClientGraph("north", names, triples, none, none, none)


def test_what_another_relation_gives_away() -> None:
    """owns follows from bought, and is the inverse of "sold by" as it were; likes says nothing."""
    kept = [(n, 0, n + 1) for n in range(10)] + [(n, 2, n + 1) for n in range(1, 10)]  # bought, owns but for one
    kept += [(n, 1, (7 * n + 3) % 20) for n in range(10)]
    forget = np.array([(0, 2, 1), (0, 1, 5)], dtype=np.int32)
    assert evidence.deducible(graph(kept), forget).tolist() == [True, False]
    inverse = [(n + 1, 3, n) for n in range(10)] + [(n, 2, n + 1) for n in range(1, 10)]
    assert evidence.deducible(graph(inverse), forget).tolist() == [True, False]
    erased = np.array([(n, 4, n + 1) for n in range(10)] + [(15, 4, 3)], dtype=np.int32)  # as many as it ever had
    assert evidence.deducible(graph(kept), erased).tolist() == [True] * 10 + [False]
    symmetric = [pair for n in range(0, 18, 2) for pair in ((n, 1, n + 1), (n + 1, 1, n))]
    assert evidence.deducible(graph(symmetric[1:]), np.array([(0, 1, 1)], dtype=np.int32)).tolist() == [True]


def test_the_same_triple_at_another_client_is_named(tmp_path: Path) -> None:
    """Both hold it; one forgets it."""
    data = partition(read("nations"), clients=2, by="random", seed=1)
    save(data, tmp_path / "nations", {})
    shared = data.clients[0].vocabulary.labels(data.clients[0].train)[0]
    with (tmp_path / "nations" / data.clients[1].name / "train.txt").open("a") as file:
        file.write("\t".join(shared) + "\n")
    (tmp_path / "erase.tsv").write_text("\t".join(shared) + "\n")
    runs.learn(tmp_path / "nations", out=tmp_path / "run", dimension=8, rounds=3, warm_rounds=1)
    wish = {"triples": tmp_path / "erase.tsv", "client": data.clients[0].name}
    forgetting.forget(tmp_path / "run", tmp_path / "out", **wish)
    result, shown = audits.audit(tmp_path / "out", retrain=False, **wish)
    assert (data.clients[0].name, shared, "another client") in shown
    assert result["reach"]["deducible"] == 1
    assert (tmp_path / "out" / "audit.json").read_text().count(shared[0]) == 0


def test_relearning_takes_longer_for_what_is_gone(world: Path, audited: dict[str, Any]) -> None:
    steps = audited["relearning"]
    assert all(0 < steps["forgotten"][view] <= evidence.RELEARN_STEPS for view in ("local", "global"))
    settings = Settings(**files.read_json(world / "run" / "config.json")["settings"])
    raw = runs.go_on(world / "run", runs.data_of(world / "run"), settings)[0].clients[0]
    level = float(evidence.known_by(raw, "local", raw.graph.forget).mean())
    assert evidence.relearn_steps(raw, "local", raw.graph.forget, level) == 0
