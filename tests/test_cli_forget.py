"""`fedlu forget` and `audit` as a person meets them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fedlu import display
from fedlu.graph import load, partition, read, save
from fedlu.results import runs
from tests.test_cli import run

QUICK = ["--set", "dimension=16", "--set", "rounds=12", "--set", "warm_rounds=4", "--set", "learning_rate=0.02"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    save(partition(read("nations"), clients=2, by="random", forget=0.03), folder / "nations", {})
    settings = dict(each.split("=") for each in QUICK if "=" in each)
    runs.learn(folder / "nations", out=folder / "run", **settings)
    return folder


def test_forget_then_audit(learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("forget", learned / "run", "--forget-sets", "--out", tmp_path / "out", capsys=capsys)
    assert code == 0, err
    assert out.startswith("forgot ")
    assert f"next: fedlu audit {tmp_path / 'out'} --forget-sets" in out
    code, out, err = run("audit", tmp_path / "out", "--no-retrain", capsys=capsys)
    assert code == 0
    for word in ("forget", "neighbourhood", "membership AUC", "asked: ", "approximate unlearning", "judged by a coin"):
        assert word in out
    code, out, _ = run("audit", tmp_path / "out", "--no-retrain", "--json", capsys=capsys)
    assert json.loads(out)["forgotten"] == json.loads((tmp_path / "out" / "audit.json").read_text())["forgotten"]


def test_a_dry_run_names_what_would_go(learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = load(learned / "nations").clients[0]
    relation = client.vocabulary.relations[0]
    words = ("forget", learned / "run", "--relation", relation, "--dry-run")
    code, _, err = run(*words, "--goal", "oblivion", capsys=capsys)
    assert (code, "no goal 'oblivion'" in err) == (2, True)
    code, _, err = run(*words, "--out", learned / "nations", capsys=capsys)
    assert (code, "is in use; choose another --out" in err) == (
        2,
        True,
    )  # a rehearsal is refused what the deed would be
    code, out, _ = run(*words, capsys=capsys)
    assert code == 0
    triples = [t for t in client.vocabulary.labels(client.known) if t[1] == relation]
    assert f"{len(triples)} triples would go; nothing was changed" in out
    assert all(f"{client.name}: {' | '.join(triple)}" in out for triple in triples)


def test_audits_of_one_request_share_what_was_re_trained(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without hard confusion, too, and with the old checkpoints deleted: the request is what counts."""
    shutil.copytree(learned / "run", tmp_path / "run")
    for number, options in enumerate((["--without", "hard"], ["--purge"])):
        words = ["forget", tmp_path / "run", "--forget-sets", *options, "--out", tmp_path / f"out-{number}"]
        code, out, err = run(*words, capsys=capsys)
        assert code == 0, err
    assert "deleted " in out
    code, out, err = run("audit", tmp_path / "out-0", capsys=capsys)
    assert code == 0, err
    assert "; re-trained 0." in out
    shared = tmp_path / "out-0" / "retrained"
    code, out, err = run("audit", tmp_path / "out-1", "--retrained", shared, capsys=capsys)
    assert code == 0, err
    first, second = (json.loads((tmp_path / f"out-{n}" / "audit.json").read_text()) for n in (0, 1))
    assert first["retrained"] == second["retrained"]
    assert not (tmp_path / "out-1" / "retrained").exists()
    code, _, err = run("audit", tmp_path / "out-1", "--retrained", shared, "--no-retrain", capsys=capsys)
    assert (code, "--retrained with --no-retrain; leave one of them out" in err) == (2, True)


def test_what_is_still_deducible_is_named_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [("north", ("ada", "knows", "bob"), "another client")]
    display.show_deducible(found)
    err = capsys.readouterr().err
    assert "still deducible: 1; on a terminal they are named" in err
    assert "ada" not in err
    monkeypatch.setattr(display, "notes", Console(stderr=True, force_terminal=True, highlight=False, width=30))
    display.show_deducible(found)
    assert "still deducible (another client): north: ada | knows | bob" in capsys.readouterr().err


def test_a_ledger_of_other_clients_is_remarked(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("forget", learned / "run", "--fraction", "0.02", "--out", tmp_path / "out", capsys=capsys)
    data = load(learned / "nations")
    save(
        replace(data, clients=tuple(replace(each, name=f"site-{each.name}") for each in data.clients)),
        tmp_path / "b",
        {},
    )
    command = ["learn", tmp_path / "b", "--ledger", tmp_path / "out", "--out", tmp_path / "again", *QUICK]
    code, _, err = run(*command, capsys=capsys)
    assert code == 0
    assert "nothing of the ledger is in this data" in err


def test_forgotten_triples_are_skipped_with_a_count(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("forget", learned / "run", "--fraction", "0.02", "--seed", "3", "--out", tmp_path / "out", capsys=capsys)
    number = sum(json.loads((tmp_path / "out" / "forgetting.json").read_text())["forgotten"].values())
    command = ["learn", learned / "nations", "--ledger", tmp_path / "out", "--out", tmp_path / "again", *QUICK]
    code, _, err = run(*command, capsys=capsys)
    assert code == 0
    assert f"{number} forgotten triples in the data were skipped" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--forget-sets"], "no --out; name the folder of the run that has forgotten"),
        (["--out", "OUT"], "what is to be forgotten?; give one of --triples"),
        (["--out", "OUT", "--entity", "cubaa"], "no entity 'cubaa'; did you mean cuba"),
        (["--out", "OUT", "--triples", "missing.tsv", "--client", "client-0"], "missing.tsv"),
    ],
)
def test_refusals_are_one_line(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    given = [str(tmp_path / "out") if each == "OUT" else each for each in options]
    code, out, err = run("forget", learned / "run", *given, capsys=capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


def test_an_audit_of_a_run_that_forgot_nothing(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("audit", learned / "run", capsys=capsys)
    assert (code, err) == (
        2,
        f"fedlu: {learned / 'run'}: nothing was forgotten here; audit a run that `fedlu forget` wrote\n",
    )
