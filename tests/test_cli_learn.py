"""`fedlu learn`, `evaluate` and `recipes` as a person meets them."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedlu import display
from fedlu.federated.rounds import Progress, RoundEvent
from fedlu.graph import partition, read, save
from tests.test_cli import run

QUICK = ["--set", "dimension=8", "--set", "rounds=4", "--set", "evaluate_every=2", "--set", "warm_rounds=1"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    save(partition(read("nations"), clients=2, by="random"), tmp_path / "nations", {})
    return tmp_path / "nations"


def test_learn_then_evaluate(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("learn", data, "--out", tmp_path / "run", *QUICK, capsys=capsys)
    assert (code, err) == (0, "")  # no progress where there is no terminal
    for word in ("test, after 4 rounds", "local", "global", "blend", "all, weighted", "client-1", "hits@10"):
        assert word in out
    code, out, _ = run("evaluate", tmp_path / "run", "--split", "valid", "--json", capsys=capsys)
    assert code == 0
    assert json.loads(out) == json.loads((tmp_path / "run" / "metrics.json").read_text())["valid"]
    code, out, _ = run("evaluate", tmp_path / "run", capsys=capsys)
    assert "all, plain mean" in out


def test_a_run_is_evaluated_where_its_data_is_now(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = tmp_path / "away"
    assert run("learn", data, "--out", tmp_path / "run", *QUICK, capsys=capsys)[0] == 0
    data.rename(away)
    code, _, err = run("evaluate", tmp_path / "run", capsys=capsys)
    assert (code, "the data of the run is gone; put it back, or say where it is now" in err) == (2, True)
    code, out, _ = run("evaluate", tmp_path / "run", "--data", away, "--json", capsys=capsys)
    assert (code, json.loads(out)) == (0, json.loads((tmp_path / "run" / "metrics.json").read_text())["test"])


def test_options_reach_the_run(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--method", "fede", "--model", "DistMult", "--recipe", "strong", "--seed", "5", *QUICK]
    assert run("learn", data, "--out", tmp_path / "run", *options, capsys=capsys)[0] == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    found = {key: config["settings"][key] for key in ("method", "model", "seed", "rounds", "optimizer")}
    assert found == {"method": "fede", "model": "DistMult", "seed": 5, "rounds": 4, "optimizer": "adagrad"}
    assert config["recipe"] == "strong"


def test_a_run_is_resumed_only_when_asked(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("learn", data, "--out", tmp_path / "run", *QUICK, capsys=capsys)[0] == 0
    code, _, err = run("learn", data, "--out", tmp_path / "run", *QUICK, capsys=capsys)
    assert (code, err) == (2, f"fedlu: {tmp_path}/run: holds a run; choose another --out, or --resume to continue it\n")
    code, out, _ = run("learn", data, "--out", tmp_path / "run", "--resume", *QUICK, capsys=capsys)
    assert code == 0
    assert "test, after 4 rounds" in out
    code, _, err = run("learn", data, "--out", tmp_path / "run", "--resume", "--seed", "9", *QUICK, capsys=capsys)
    assert code == 2
    assert "other settings: seed was 0" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "rounds"], "fedlu: --set rounds; write it as key=value"),
        (["--set", "round=3"], "fedlu: no setting 'round'; known are dimension"),
        (["--method", "fedavg"], "fedlu: method = 'fedavg'; choose one of independent"),
        (["--model", "TransX"], "fedlu: no model 'TransX'; choose one of TransE"),
        (["--recipe", "slow"], "fedlu: no recipe 'slow'; choose one of fast, paper, strong"),
        (["--set", "dimension=1000000000"], "fedlu: 28 rows of 1,000,000,000 numbers and the batches need about"),
    ],
)
def test_wrong_options_are_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    code, out, err = run("learn", data, "--out", tmp_path / "run", *options, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_terminal_sees_the_rounds(data: Path, tmp_path: Path) -> None:
    """In a real pseudo-terminal: rounds, loss and valid MRR are shown while it learns."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fedlu", "learn", str(data), "--out", str(tmp_path / "run"), *QUICK]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    assert process.wait(timeout=60) == 0
    os.close(ours)
    text = seen.decode(errors="replace")
    assert "4/4" in text
    assert "loss " in text
    assert "valid MRR local 0." in text


def test_a_look_at_a_run_that_is_not_finished(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("learn", data, "--out", tmp_path / "run", *QUICK, capsys=capsys)
    (tmp_path / "run" / "metrics.json").unlink()  # as if it had been killed while it ranked for the last time
    said = "not finished: the best tables of 4 rounds, of 4\n"
    code, out, err = run("evaluate", tmp_path / "run", "--json", capsys=capsys)
    assert (code, err) == (0, said)
    assert json.loads(out)["local"]["weighted"]["mrr"] > 0
    question = ["--client", "client-0", "--head", "usa", "--relation", "embassy"]
    code, out, err = run("predict", tmp_path / "run", *question, "--json", capsys=capsys)
    assert (code, err) == (0, said), err
    assert json.loads(out)["answers"]


def test_recipes_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("recipes", capsys=capsys)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["fast", "paper", "strong"]
    code, out, _ = run("recipes", "paper", capsys=capsys)
    assert "learning_rate = 1e-4" in out
    assert "[methods.fedlu]" in out


def test_tensorboard_is_optional(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, err = run("learn", data, "--out", tmp_path / "run", "--tensorboard", *QUICK, capsys=capsys)
    assert (code, err) == (3, "fedlu: TensorBoard is not installed; pip install 'fedlu[tensorboard]'\n")
    assert not (tmp_path / "run").exists()


def test_tensorboard_is_told_every_loss_and_every_look_once(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TensorBoard itself reads it, and also where a run was stopped before its checkpoint: rounds that are computed
    again are not shown twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from fedlu.results import checkpoints

    words = ["learn", data, "--out", tmp_path / "run", "--tensorboard", "--set", "evaluate_every=2", *QUICK]
    save = checkpoints.save

    def interrupted(folder: Path, party: Any, progress: Any, *more: Any) -> None:
        if progress.round == 4:
            raise KeyboardInterrupt
        save(folder, party, progress, *more)

    monkeypatch.setattr(checkpoints, "save", interrupted)
    assert run(*words, capsys=capsys)[0] == 130
    monkeypatch.setattr(checkpoints, "save", save)
    assert run(*words, "--resume", capsys=capsys)[0] == 0
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    losses = [
        (f"loss/{table}/{client}", loss, event["round"])
        for event in events
        for client, tables in event["losses"].items()
        for table, loss in tables.items()
    ]
    looks = [
        (f"valid mrr/{view}", found["weighted"]["mrr"], event["round"])
        for event in events
        for view, found in (event["valid"] or {}).items()
    ]
    read = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    told = [(name, each.value, each.step) for name in read.Tags()["scalars"] for each in read.Scalars(name)]
    found, expected = ({(name, step): value for name, value, step in each} for each in (told, losses + looks))
    assert len(found) == len(told)  # nothing twice
    assert found == pytest.approx(expected)
    assert {step for name, _, step in told if name.startswith("valid")} == {2, 4}


def test_slow_rounds_have_an_end_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes a round, as with large graphs: what remains is told from the second round on."""
    now = [0.0]
    terminal = Console(file=io.StringIO(), force_terminal=True, get_time=lambda: now[0])
    monkeypatch.setattr(display, "notes", terminal)
    board = display.Board()
    for number in range(1, 4):
        now[0] += 120.0
        board.show(RoundEvent(number, {"a": {"local": 1.0}}, {}, {}, 120.0, None), Progress(round=number, rounds=40))
    assert board.bar.tasks[0].time_remaining == pytest.approx(37 * 120)
