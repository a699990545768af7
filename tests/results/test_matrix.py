"""`reproduce`: a matrix that survives, never repeats itself, keeps to a budget, and says truly what it found."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fedlu.errors import InputError, ScoreError
from fedlu.federated.rounds import DivergedError
from fedlu.graph import partition, read, save
from fedlu.results import estimates, matrix, runs
from fedlu.results.matrix import Cell, Matrix, carry_out
from fedlu.results.reproduction import parse_budget, read_tuned, reproduce

QUICK = {"dimension": "8", "rounds": "4", "evaluate_every": "2", "warm_rounds": "1", "negatives": "16"}


@pytest.fixture(scope="module")
def nations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "nations"
    save(partition(read("nations"), clients=2, by="random", forget=0.01), folder, {})
    return folder


def matrix_of(nations: Path, out: Path, **changes: Any) -> Matrix:
    options = {"table": "link-prediction", "models": ("TransE",), "methods": ("fede", "fedlu"), "overrides": QUICK}
    return Matrix(federation=nations, out=out, **{**options, **changes})


def diverging(real: Callable[..., Any], method: str) -> Callable[..., Any]:
    """Learning that diverges with one method."""

    def learn(*args: Any, **kwargs: Any) -> Any:
        if kwargs["method"] == method:
            raise DivergedError("round 1: the global loss of client-0 is nan")
        return real(*args, **kwargs)

    return learn


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_every_cell_is_a_run_of_its_own(nations: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = reproduce(matrix_of(nations, out, seeds=2))
    assert [state.what for state in done.states.values()] == ["done"] * 4
    names = ["TransE-fede-0", "TransE-fedlu-0", "TransE-fede-1", "TransE-fedlu-1"]
    assert [cell.name for cell in done.states] == names
    for name in names:
        metrics = json.loads((out / "runs" / name / "metrics.json").read_text())
        assert (metrics["method"], metrics["seed"]) == (name.split("-")[1], int(name[-1]))
    runs.learn(nations, method="fede", out=tmp_path / "alone", seed=1, **QUICK)
    alone, ours = (
        json.loads((each / "metrics.json").read_text()) for each in (tmp_path / "alone", out / "runs" / names[2])
    )
    assert alone["test"] == ours["test"]


def test_the_tables_say_what_the_runs_found(nations: Path, tmp_path: Path) -> None:
    """Mean and deviation of the seeds, restated from metrics.json."""
    out = tmp_path / "out"
    done = reproduce(matrix_of(nations, out, seeds=2), paper="C3")
    found = [json.loads((out / "runs" / f"TransE-fedlu-{seed}" / "metrics.json").read_text()) for seed in (0, 1)]
    first, second = (100 * each["test"]["local"]["weighted"]["mrr"] for each in found)
    row = next(
        row for row in rows_of(out / "link-prediction.csv") if (row["row"], row["column"]) == ("FedLU (local)", "mrr")
    )
    assert float(row["ours"]) == pytest.approx((first + second) / 2, abs=0.006)
    assert float(row["deviation"]) == pytest.approx(abs(first - second) / 2**0.5, abs=0.006)
    assert row["paper"] == "33.71"  # as printed in the paper's table for C3
    assert float(row["difference"]) == pytest.approx(float(row["ours"]) - 33.71, abs=0.011)
    assert row["seeds"] == "2"
    assert {path.name for path in done.files} == {
        "link-prediction.md",
        "link-prediction.csv",
        "link-prediction.tex",
        "convergence.md",
        "convergence.csv",
        "convergence.png",
    }
    text = (out / "link-prediction.md").read_text()
    assert "the paper's C3" in text
    assert f"{(first + second) / 2:.2f} ± " in text
    assert "| FedE | " in text
    assert "FedE (local)" not in text  # the paper has no such row; all views have a table of their own
    assert "| TransE | fede | " in text


def test_nothing_is_done_twice(nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out(matrix_of(nations, tmp_path / "out"))
    learned: list[Any] = []
    real = runs.learn
    monkeypatch.setattr(
        runs, "learn", lambda *args, **kwargs: learned.append(kwargs["out"].name) or real(*args, **kwargs)
    )
    assert all(state.what == "done" for state in carry_out(matrix_of(nations, tmp_path / "out")).values())
    assert learned == []
    carry_out(matrix_of(nations, tmp_path / "out", methods=("fede", "fedprox", "fedlu")))
    assert learned == ["TransE-fedprox-0"]


def test_a_folder_is_of_one_experiment(nations: Path, tmp_path: Path) -> None:
    carry_out(matrix_of(nations, tmp_path / "out", methods=("fede",)))
    for changes, what in (
        ({"recipe": "strong"}, "recipe"),
        ({"overrides": {**QUICK, "rounds": "5"}}, "settings"),
        ({"tuned": {"fede": {"TransE": {"margin": 4.0}}}}, "tuned"),
    ):
        with pytest.raises(InputError, match=f"holds runs of other {what}; choose another --out"):
            carry_out(matrix_of(nations, tmp_path / "out", **changes))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="in use, and not by reproduce"):
        carry_out(matrix_of(nations, tmp_path / "other"))


def test_a_cell_of_an_older_recipe_does_not_stand_beside_newer_ones(nations: Path, tmp_path: Path) -> None:
    matrix = matrix_of(nations, tmp_path / "out", methods=("fede",))
    carry_out(matrix)
    path = tmp_path / "out" / "runs" / "TransE-fede-0" / "config.json"
    config = json.loads(path.read_text())
    settings = config["settings"]
    path.write_text(json.dumps({**config, "settings": {**settings, "margin": 12.5}}))
    with pytest.raises(InputError, match=r"fede-0: was learned .* recipe was another: margin was 12\.5; delete"):
        carry_out(matrix)
    del settings["rejoin"]  # as of a version that had no such setting: it stands for what was done then
    path.write_text(json.dumps(config))
    assert carry_out(matrix)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": "figures"}, "no table 'figures'; choose from link-prediction"),
        ({"methods": ("fedavg",)}, "no method 'fedavg'"),
        ({"methods": ()}, "no methods are named; name at least one"),
        ({"models": ()}, "no models are named; name at least one"),
        ({"models": ("TransX",)}, "no model 'TransX'"),
        ({"seeds": 0}, "seeds = 0"),
        ({"table": "unlearning", "goal": "hide"}, "no goal 'hide'; choose from indistinguishable, suppress"),
        ({"overrides": {**QUICK, "warm_rounds": "9"}}, "warm_rounds = 9 of rounds = 4"),
        ({"table": "unlearning", "methods": ("centralized",)}, "centralized cannot forget"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_run(
    nations: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        carry_out(matrix_of(nations, tmp_path / "out", **changes))
    assert not (tmp_path / "out").exists()


def test_forgetting_needs_forget_sets(tmp_path: Path) -> None:
    save(partition(read("nations"), clients=2, by="random"), tmp_path / "plain", {})
    with pytest.raises(InputError, match=r"no client has a forget.txt"):
        carry_out(matrix_of(tmp_path / "plain", tmp_path / "out", table="unlearning", methods=("fedlu",)))


def test_a_cell_that_fails_does_not_stop_the_others(
    nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "learn", diverging(runs.learn, "fede"))
    done = reproduce(matrix_of(nations, tmp_path / "out"))
    assert [state.what for state in done.states.values()] == ["failed", "done"]
    text = (tmp_path / "out" / "link-prediction.md").read_text()
    assert "- TransE-fede-0: failed (round 1: the global loss of client-0 is nan)" in text
    monkeypatch.undo()
    again = reproduce(matrix_of(nations, tmp_path / "out"))  # the next time, it is tried again
    assert [state.what for state in again.states.values()] == ["done", "done"]


def test_tables_are_of_all_that_is_there_in_the_papers_order(nations: Path, tmp_path: Path) -> None:
    """A command that adds a cell does not take the others out of the table."""
    out = tmp_path / "out"
    reproduce(matrix_of(nations, out, models=("RotatE",), methods=("fedlu",)), paper="C3")
    reproduce(matrix_of(nations, out, models=("TransE",), methods=("fede",), seeds=2), paper="C3")
    found = [(row["model"], row["method"], row["view"], row["seeds"]) for row in rows_of(out / "link-prediction.csv")]
    assert list(dict.fromkeys(found)) == [
        *(("TransE", "fede", view, "2") for view in ("local", "global", "blend")),
        *(("RotatE", "fedlu", view, "1") for view in ("local", "global", "blend")),
    ]
    runs_measured = [(row["model"], row["seed"]) for row in rows_of(out / "convergence.csv")]
    assert runs_measured == [("TransE", "0"), ("RotatE", "0"), ("TransE", "1")]


def test_tables_say_how_they_were_made(nations: Path, tmp_path: Path) -> None:
    tuned = {"fede": {"TransE": {"margin": 4.5}}}
    done = reproduce(matrix_of(nations, tmp_path / "out", methods=("fede",), tuned=tuned))
    how = "recipe fast, dimension=8, rounds=4, evaluate_every=2, warm_rounds=1, negatives=16, tuned: fede TransE"
    assert (tmp_path / "out" / "link-prediction.md").read_text().splitlines()[0].endswith(how)
    assert how.replace("_", r"\_") in (tmp_path / "out" / "link-prediction.tex").read_text()
    row = rows_of(tmp_path / "out" / "link-prediction.csv")[0]
    settings = " ".join(f"{key}={value}" for key, value in QUICK.items())
    assert (row["settings"], row["tuned"], row["goal"]) == (settings, "fede TransE", "")
    assert done.comparison.stem == "link-prediction"


@pytest.mark.parametrize("damage", ["", "{}", '{"test": {'])
def test_damaged_metrics_are_made_again(nations: Path, tmp_path: Path, damage: str) -> None:
    mine = matrix_of(nations, tmp_path / "out", methods=("fede",))
    carry_out(mine)
    path = mine.folder(mine.cells()[0]) / "metrics.json"
    before = json.loads(path.read_text())
    path.write_text(damage)
    assert [state.what for state in carry_out(mine, budget=1e6).values()] == ["done"]
    after = json.loads(path.read_text())
    assert after["test"] == before["test"]


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
@pytest.mark.parametrize("damaged", ["config.json", "state.json"])
def test_a_damaged_cell_does_not_stop_the_others(nations: Path, tmp_path: Path, damaged: str, text: str) -> None:
    mine = matrix_of(nations, tmp_path / "out")
    first = mine.cells()[0]
    carry_out(matrix_of(nations, tmp_path / "out", methods=("fede",)))
    (mine.folder(first) / "metrics.json").unlink()
    (mine.folder(first) / damaged).write_text(text)
    done = reproduce(mine)
    assert [state.what for state in done.states.values()] == ["failed", "done"]
    said = next(iter(done.comparison.missing))
    assert said.startswith("TransE-fede-0: failed (")
    assert f"delete {mine.folder(first)}, and repeat" in said
    assert {line.method for line in done.comparison.lines} == {"fedlu"}


@pytest.mark.parametrize("text", [None, '{"round": 1'])
def test_lost_events_are_named(nations: Path, tmp_path: Path, text: str | None) -> None:
    mine = matrix_of(nations, tmp_path / "out", methods=("fede",))
    carry_out(mine)
    path = mine.folder(mine.cells()[0]) / "events.jsonl"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(InputError, match=r"events.jsonl: no events of a run .* delete .*TransE-fede-0, and repeat"):
        reproduce(mine)


def test_no_runs_within_the_data(tmp_path: Path) -> None:
    """They would be taken for clients."""
    data = tmp_path / "data"
    save(partition(read("nations"), clients=2, by="random"), data, {})
    for out in (data / "out", data / "client-0" / "out"):
        with pytest.raises(InputError, match="out: is inside the data; choose an --out beside it"):
            carry_out(matrix_of(data, out, methods=("fede",)))
        with pytest.raises(InputError, match="out: is inside the data"):
            runs.learn(data, out=out, **QUICK)
        assert not out.exists()


# --- killed


def test_killed_before_it_said_what_it_is(nations: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".matrix.json.part").write_text("{")
    done = carry_out(matrix_of(nations, tmp_path / "out", methods=("fede",)))
    assert [state.what for state in done.values()] == ["done"]


SLOW = [f"--set={key}={value}" for key, value in {**QUICK, "rounds": "20", "patience": "20"}.items()]


def command(nations: Path, out: Path) -> list[str]:
    options = ["--table", "link-prediction", "--models", "TransE", "--methods", "fede,fedlu,fedprox", *SLOW]
    return [sys.executable, "-m", "fedlu", "reproduce", "--federation", str(nations), "--out", str(out), *options]


def test_killed_and_restarted_it_goes_on(nations: Path, tmp_path: Path) -> None:
    """SIGKILL once the second cell has begun; what was done stays, and the end is that of one left alone."""
    out = tmp_path / "out"
    first, second = out / "runs" / "TransE-fede-0", out / "runs" / "TransE-fedlu-0"
    process = subprocess.Popen(command(nations, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (second / "config.json").exists():
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    stamp = (first / "metrics.json").stat().st_mtime_ns
    assert not (out / "link-prediction.md").exists()
    done = subprocess.run(command(nations, out), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (first / "metrics.json").stat().st_mtime_ns == stamp
    assert "TransE-fede-0: done, was there" in done.stderr
    subprocess.run(command(nations, tmp_path / "alone"), check=True, capture_output=True)
    ours, alone = (
        [(row["row"], row["column"], row["ours"]) for row in rows_of(each / "link-prediction.csv")]
        for each in (out, tmp_path / "alone")
    )
    assert ours == alone
    assert len(ours) == 9 * 4


# --- forgetting


def test_the_papers_forgetting_is_fedlus_alone(nations: Path, tmp_path: Path) -> None:
    """A rival's rows bear its name, and no figure of the paper's."""
    for table in ("ablation", "unlearning"):
        done = reproduce(matrix_of(nations, tmp_path / "out", table=table, methods=("fede", "fedlu")), paper="C3")
        lines = done.comparison.lines
        assert len({line.label for line in lines}) == len(lines)
        for line in lines:
            assert (line.figures["forget hits@1"].paper is not None) == (line.method == "fedlu"), line.label
            assert line.label.startswith("FedE") == (line.method == "fede")
        assert {row["method"] for row in rows_of(tmp_path / "out" / f"{table}.csv")} == {"fede", "fedlu"}


def test_unlearning_and_ablation_share_their_runs(
    nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[str] = []
    real = runs.learn
    monkeypatch.setattr(
        runs, "learn", lambda *args, **kwargs: learned.append(Path(kwargs["out"]).name) or real(*args, **kwargs)
    )
    out = tmp_path / "out"
    ablation = reproduce(matrix_of(nations, out, table="ablation", methods=("fedlu",)), paper="C3")
    assert learned == ["TransE-fedlu-0"]
    assert [line.label for line in ablation.comparison.lines] == [
        "FedLU (local)",
        "w/o hard confusion (local)",
        "w/o soft confusion (local)",
        "FedLU (global)",
        "w/o hard confusion (global)",
        "w/o soft confusion (global)",
    ]
    papers = [line.figures["forget hits@1"].paper for line in ablation.comparison.lines]
    assert papers == pytest.approx([13.23, 17.32, 15.87, 15.02, 18.06, 15.28])
    unlearning = reproduce(matrix_of(nations, out, table="unlearning", methods=("fedlu",)), paper="C3")
    assert learned == ["TransE-fedlu-0", "TransE-fedlu-0-retrained"]
    audit = json.loads((out / "runs" / "TransE-fedlu-0-suppress" / "audit.json").read_text())
    lines = {line.label: line for line in unlearning.comparison.lines}
    assert list(lines) == [
        f"{state} {view}" for view in ("local", "global") for state in ("Raw", "Re-trained", "Unlearned")
    ]
    figure = lines["Re-trained global"].figures["forget mrr"]
    assert figure.ours == pytest.approx((100 * audit["retrained"]["global"]["forget"]["mrr"],))
    assert figure.paper == pytest.approx(32.33)
    assert lines["Unlearned local"].seconds == (audit["cost"]["forgetting seconds"],)
    again = reproduce(matrix_of(nations, out, table="ablation", methods=("fedlu",)))
    assert learned == ["TransE-fedlu-0", "TransE-fedlu-0-retrained"]
    assert all(state.what == "done" for state in again.states.values())
    assert r"forget $\downarrow$ Hits@1" in (out / "unlearning.tex").read_text()
    papers_goal = (out / "unlearning.md").read_text()
    assert "goal suppress" in papers_goal
    other = reproduce(matrix_of(nations, out, table="unlearning", methods=("fedlu",), goal="indistinguishable"))
    assert (out / "unlearning.md").read_text() == papers_goal
    assert "goal indistinguishable" in (out / "unlearning-indistinguishable.md").read_text()
    assert all(state.what == "done" for state in other.states.values())
    again_audited = json.loads((out / "runs" / "TransE-fedlu-0-indistinguishable" / "audit.json").read_text())
    assert again_audited["retrained"] == audit["retrained"]
    assert again_audited["forgotten"] != audit["forgotten"]
    events = (out / "runs" / "TransE-fedlu-0-retrained" / "events.jsonl").read_text().splitlines()
    assert len(events) == int(QUICK["rounds"])  # trained once, for both goals


def test_what_forgot_from_an_older_run_does_not_stand_beside_newer_ones(nations: Path, tmp_path: Path) -> None:
    mine = matrix_of(nations, tmp_path / "out", table="ablation", methods=("fedlu",))
    whole = [cell for cell in mine.cells() if cell.variant in ("", "whole")]
    for cell in whole:
        mine.folder(cell).mkdir(parents=True)
        settings = {**asdict(mine.settings(cell)), "margin": 12.5 if cell.variant else 8.0}
        (mine.folder(cell) / "config.json").write_text(json.dumps({"settings": settings}))
    with pytest.raises(InputError, match=r"fedlu-0-suppress: was learned when the recipe was another: margin was 12"):
        matrix._refuse_stale(mine)
    (mine.folder(whole[1]) / "config.json").write_text(json.dumps({"settings": asdict(mine.settings(whole[1]))}))
    matrix._refuse_stale(mine)
    shutil.rmtree(mine.folder(whole[0]))
    with pytest.raises(InputError, match="fedlu-0-suppress: the run that it forgot from is gone; delete that folder"):
        matrix._refuse_stale(mine)


def test_data_that_moved_is_found_where_one_says(nations: Path, tmp_path: Path) -> None:
    shutil.copytree(nations, tmp_path / "old" / "nations")
    carry_out(matrix_of(tmp_path / "old" / "nations", tmp_path / "out", methods=("fedlu",)))
    (tmp_path / "old").rename(tmp_path / "new")
    mine = matrix_of(tmp_path / "new" / "nations", tmp_path / "out", table="unlearning", methods=("fedlu",))
    assert [state.what for state in carry_out(mine).values()] == ["done", "done"]


# --- budget


def test_settings_that_diverge_fail_within_a_budget_as_without(
    nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(data: Any, settings: Any) -> float:
        if settings.method == "fede":
            raise ScoreError("the model scores some triples NaN")
        return 1.0

    monkeypatch.setattr(estimates, "probe", probe)
    monkeypatch.setattr(matrix.runs, "learn", diverging(runs.learn, "fede"))
    done = carry_out(matrix_of(nations, tmp_path / "out"), budget=1000.0)
    assert [state.what for state in done.values()] == ["failed", "done"]


def test_an_audit_is_in_the_estimate(nations: Path, tmp_path: Path) -> None:
    """What is left of a cell: forgetting, auditing, re-training, as they were measured."""
    mine = matrix_of(nations, tmp_path / "out", table="unlearning", methods=("fedlu",), seeds=2)
    learned, forgot = mine.cells()[:2]
    for cell, name, facts in (
        (learned, "metrics.json", {"seconds": {"learning": 90.0, "final_evaluation": 10.0}}),
        (
            forgot,
            "audit.json",
            {"cost": {"forgetting seconds": 30.0, "audit seconds": 97.0, "retraining seconds": 90.0}},
        ),
    ):
        mine.folder(cell).mkdir(parents=True)
        (mine.folder(cell) / name).write_text(json.dumps(facts))
    found = estimates.Estimates(matrix.check(mine), mine.settings, mine.folder, mine.retrained)
    second = mine.cells()[3]
    assert found.seconds(second) == pytest.approx(30 + 7 + 100)
    mine.folder(second).mkdir(parents=True)
    (mine.folder(second) / "forgetting.json").write_text("{}")
    assert found.seconds(second) == pytest.approx(7 + 100)
    alone = estimates.Estimates(matrix.check(mine), mine.settings, mine.folder)
    assert alone.seconds(second) == pytest.approx(7)


def test_a_budget_leaves_out_what_does_not_fit(nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"fede": 5.0, "fedprox": 5000.0, "fedlu": 10.0}
    monkeypatch.setattr(estimates, "probe", lambda data, settings: cost[settings.method])
    done = reproduce(matrix_of(nations, tmp_path / "out", methods=("fede", "fedprox", "fedlu")), budget=1000.0)
    assert [state.what for state in done.states.values()] == ["done", "left out", "done"]
    said = next(each for each in done.comparison.missing)
    assert said.startswith("TransE-fedprox-0: left out (about 5000 s, ")
    assert said.endswith(" s left; by a probe)")
    assert said in (tmp_path / "out" / "link-prediction.md").read_text()
    none = carry_out(matrix_of(nations, tmp_path / "out", seeds=2, methods=("fede",)), budget=0.0)
    assert [state.what for state in none.values()] == ["done", "left out"]
    assert none[Cell("TransE", "fede", 1)].detail.endswith("by another seed")


def test_an_estimate_is_what_was_measured_where_there_is_a_measure(nations: Path, tmp_path: Path) -> None:
    mine = matrix_of(nations, tmp_path / "out", seeds=2, methods=("fede",))
    data = matrix.check(mine)
    carry_out(matrix_of(nations, tmp_path / "out", methods=("fede",)))
    found = estimates.Estimates(data, mine.settings, mine.folder)
    metrics = runs.read_metrics(tmp_path / "out" / "runs" / "TransE-fede-0")
    assert found.seconds(Cell("TransE", "fede", 1)) == pytest.approx(sum(metrics["seconds"].values()))


@pytest.mark.parametrize(
    ("method", "epochs"), [("fedlu", 1), ("centralized", 1), ("independent", 1), ("fedlu", 0.25), ("fedlu", 2)]
)
def test_a_probe_is_scaled_to_all_triples_and_rounds(
    nations: Path, tmp_path: Path, method: str, epochs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every probe taken to last a second: rounds by train, and looks by valid, restated from the sizes."""
    monkeypatch.setattr(estimates, "_timed", lambda what: what() and 1.0)
    wished = {**QUICK, "batch_size": "32", "epochs": str(epochs)}
    mine = matrix_of(nations, tmp_path / "out", methods=(method,), overrides=wished)
    data = matrix.check(mine)
    found = estimates.probe(data, mine.settings(mine.cells()[0]))
    train, valid, test = (
        sum(len(client.split(split)) for client in data.clients) for split in ("train", "valid", "test")
    )
    largest = max(data.clients, key=lambda client: len(client.vocabulary.entities))
    of = train if method == "centralized" else len(largest.train)
    probed = len(range(0, of, math.ceil(of / 128)))  # four batches of 32
    theirs = valid if method == "centralized" else len(largest.valid)
    ranked = len(range(0, theirs, math.ceil(theirs / 64)))
    looks, rounds = 4 // 2 + 1, 4 * min(1, epochs)  # two epochs are probed as such
    assert found == pytest.approx(rounds * train / probed + (looks * 0.2 * valid + valid + test) / ranked, rel=0.05)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("60m", 3600), ("2h", 7200), ("1h30m", 5400), ("0.5m", 30)])
def test_budgets(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "60", "soon", "5d", "m"])
def test_budgets_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="write it as 90s, 60m"):
        parse_budget(text)


# --- tuned settings


def test_tuned_settings_reach_their_cells_alone(nations: Path, tmp_path: Path) -> None:
    (tmp_path / "best.toml").write_text('about = "x"\n[methods.fede.models."TransE"]\nmargin = 4.5\nrounds = 3\n')
    tuned = read_tuned([tmp_path / "best.toml"], "fast")
    mine = matrix_of(nations, tmp_path / "out", tuned=tuned)
    carry_out(mine)
    margin, rounds = (
        [json.loads((mine.folder(cell) / "config.json").read_text())["settings"][key] for cell in mine.cells()]
        for key in ("margin", "rounds")
    )
    assert margin == [4.5, 8.0]
    assert rounds == [4, 4]  # --set is stronger


@pytest.mark.parametrize(
    "text",
    [
        "margin = 3\n",
        "[methods",
        "methods = 3\n",
        "[methods]\nfede = 3\n",
        "[methods.fede]\nlearning_rate = 0.01\n",  # as in a recipe; it would be ignored
        "[methods.fede.models]\nTransE = 3\n",
        "[methods.fdee.models.TransE]\nmargin = 3\n",
    ],
)
def test_tuned_settings_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "best.toml").write_text(text)
    with pytest.raises(InputError, match=r"best.toml: not"):
        read_tuned([tmp_path / "best.toml"], "fast")


def test_tuned_settings_go_with_their_recipe(tmp_path: Path) -> None:
    (tmp_path / "best.toml").write_text('recipe = "strong"\n[methods.fede.models.TransE]\nmargin = 4.5\n')
    assert read_tuned([tmp_path / "best.toml"], "strong") == {"fede": {"TransE": {"margin": 4.5}}}
    with pytest.raises(InputError, match=r"best.toml: was tuned with recipe strong; give the same as --recipe"):
        read_tuned([tmp_path / "best.toml"], "fast")


def test_names_of_cells_are_names_of_folders() -> None:
    assert Cell("pykeen:HolE", "fede", 2).name == "pykeen-HolE-fede-2"
    assert Cell("TransE", "fedlu", 0, "suppress", "without hard").name == "TransE-fedlu-0-suppress-without-hard"
