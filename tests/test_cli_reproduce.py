"""`fedlu reproduce` and `fedlu tune` as a person meets them."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedlu.display import MatrixBoard
from fedlu.graph import partition, read, save
from fedlu.results.matrix import Cell, State
from tests.test_cli import run

QUICK = ["--set", "dimension=8", "--set", "rounds=4", "--set", "evaluate_every=2", "--set", "warm_rounds=1"]


@pytest.fixture(scope="module")
def nations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "nations"
    save(partition(read("nations"), clients=2, by="random", forget=0.01), folder, {})
    return folder


def test_a_table_from_the_command_line(nations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "--table", "link-prediction", "--federation", nations, "--models", "TransE, DistMult"]
    options = ["--methods", "independent,fedlu", "--paper", "R3", "--target", "20", *QUICK, "--out", tmp_path / "out"]
    code, out, err = run(*command, *options, capsys=capsys)
    assert code == 0
    assert err.count(": done, ") == 4  # not a terminal: a line for each cell
    for word in ("Independent", "FedLU (blend)", "31.96", "DistMult", "link-prediction.tex", "convergence.png"):
        assert word in out
    code, out, err = run(*command, *options, capsys=capsys)
    assert (code, err.count(": done, was there")) == (0, 4)
    assert "20.00, as asked for" in (tmp_path / "out" / "convergence.md").read_text()


def test_the_board_shows_every_cell() -> None:
    states = {
        Cell("TransE", "fede", 0): State("done", "", 12.0),
        Cell("TransE", "fedlu", 0): State("running", "7/45 0.301 0.312"),
        Cell("RotatE", "fede", 0): State("left out", "~900 s"),
        Cell("RotatE", "fedlu", 0): State("waiting", "~30 s"),
    }
    table = MatrixBoard().table(states)
    assert table.title == "1 of 4 cells done"
    columns = [list(column.cells) for column in table.columns]
    assert columns == [
        ["TransE, seed 0", "RotatE, seed 0"],
        ["✓ 12 s", "– ~900 s"],
        ["▶ 7/45 0.301 0.312", "· ~30 s"],
    ]
    later = {Cell(cell.model, cell.method, 1): State() for cell in states}
    assert list(MatrixBoard().table({**states, **later}).columns[0].cells) == ["TransE, seed 0", "RotatE, seed 0"]
    ended = dict.fromkeys(states, State("done"))
    assert list(MatrixBoard().table({**ended, **later}).columns[0].cells) == ["TransE, seed 1", "RotatE, seed 1"]


def test_a_terminal_sees_the_cells_live(nations: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fedlu", "reproduce", "--table", "link-prediction", "--federation", str(nations)]
    options = ["--models", "TransE", "--methods", "fede,fedlu", "--out", str(tmp_path / "out"), *QUICK]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen([*command, *options], stdout=theirs, stderr=theirs, env=environment)
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
    for word in ("0 of 2 cells done", "1 of 2 cells done", "▶ 1/4", "TransE, seed 0", "FedLU (blend)"):
        assert word in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--table", "figure"], "no table 'figure'; choose from link-prediction, unlearning, ablation"),
        (["--budget", "soon"], "--budget soon; write it as 90s, 60m, 2h or 1h30m"),
        (["--paper", "C7"], "the paper has no 'C7'; choose one of C3"),
        (["--methods", "fedavg"], "no method 'fedavg'"),
        (["--tuned", "nowhere.toml"], "nowhere.toml: no such file"),
        (["--set", "round=3"], "no setting 'round'"),
    ],
)
def test_refusals_are_one_line(
    nations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    command = ["reproduce", "--table", "link-prediction", "--federation", nations, "--out", tmp_path / "out", *options]
    code, out, err = run(*command, capsys=capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


def test_tuning_ends_with_a_command_that_works(
    nations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--method", "fede", "--trials", "2", "--seed", "3", *QUICK[:-2], "--out", tmp_path / "study"]
    code, out, err = run("tune", nations, *options, capsys=capsys)
    assert (code, err) == (0, "")
    assert "trial 0: valid MRR 0." in out
    assert "the recipe as it is" in out
    command = shlex.split(out.strip().splitlines()[-1])
    assert command[:2] == ["fedlu", "learn"]
    command[-1] = str(tmp_path / "run")
    code, _, _ = run(*command[1:], capsys=capsys)
    assert code == 0
    said = max(float(mrr) for mrr in re.findall(r"trial \d: valid MRR ([\d.]+)", out))
    valid = json.loads((tmp_path / "run" / "metrics.json").read_text())["valid"]
    assert max(found["weighted"]["mrr"] for found in valid.values()) == pytest.approx(said, abs=1e-4)
    code, _, err = run(
        "tune", nations, "--method", "fedec", "--trials", "2", "--out", tmp_path / "study", capsys=capsys
    )
    assert code == 2
    assert "holds a study of other method" in err


def test_compress_is_an_option_of_learn(nations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run("learn", nations, "--compress", "int8", *QUICK, "--out", tmp_path / "run", capsys=capsys)
    assert code == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["compress"] == "int8"
    both = ["--compress", "int8", "--set", "compress=fp16"]
    code, _, err = run("learn", nations, *both, *QUICK, "--out", tmp_path / "b", capsys=capsys)
    assert (code, err) == (2, "fedlu: --compress int8 and --set compress=fp16; give one of them\n")
    code, _, err = run("learn", nations, "--compress", "zip", *QUICK, "--out", tmp_path / "b", capsys=capsys)
    assert (code, err) == (2, "fedlu: compress = 'zip'; choose one of none, fp16, int8\n")
