"""The command line as a person meets it: output, exit codes, one-line refusals, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedlu import __version__
from fedlu.cli import main
from fedlu.display import degree_quantile, sparkline
from tests.conftest import Write


def run(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(exit_.value.code or 0), out, err


def test_partition_then_describe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "umls-r3"
    code, text, _ = run(
        "partition", "umls", "--clients", 3, "--by", "random", "--forget", 0.01, "--out", out, capsys=capsys
    )
    assert code == 0
    assert f"next: fedlu describe {out}" in text
    assert sorted(path.name for path in (out / "client-1").iterdir()) == [
        "forget.txt",
        "test.txt",
        "train.txt",
        "valid.txt",
    ]
    assert json.loads((out / "partition.json").read_text())["seed"] == 0
    code, text, _ = run("describe", out, capsys=capsys)
    assert code == 0
    for word in ("client-0", "relations", "clustering", "mean pairwise overlap", "owners of the 135 entities"):
        assert word in text
    code, text, _ = run("describe", out, "--json", capsys=capsys)
    found = json.loads(text)
    assert found["entities"] == 135
    assert [client["name"] for client in found["clients"]] == ["client-0", "client-1", "client-2"]
    assert sum(found["owners"].values()) == 135


def test_two_federations_in_json_and_in_one_picture(
    hospitals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "both.png"
    code, text, _ = run("describe", hospitals, hospitals, "--json", "--plot", picture, capsys=capsys)
    assert code == 0
    assert [found["name"] for found in json.loads(text)] == ["hospitals", "hospitals"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "nowhere"], "fedlu: nowhere: no such folder; make one with `fedlu partition`"),
        (["describe"], "fedlu: Missing argument 'DIR...'; see `fedlu describe --help`"),
        (["partition", "missing.tsv"], "fedlu: missing.tsv: no such file"),
        (["partition", "umls", "--clients", "99"], "fedlu: umls: 99 clients but only 46 relations"),
        (["partition", "umls", "--clients", "many"], "fedlu: Invalid value for '--clients'"),
        (["partition", "umls", "--by", "size"], "fedlu: no way to partition by 'size'; choose one of cluster, random"),
        (["partition", "umls", "--seeed", "1"], "fedlu: No such option: --seeed"),
        (["partition", "bad.tsv"], "fedlu: bad.tsv:2: 2 columns, expected 3"),
        (["teach"], "fedlu: No such command 'teach'"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("bad.tsv", "a\tb\tc\nd\te\n")
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tsv"]  # nothing half-written


def test_a_leak_is_described_and_then_refused(
    hospitals: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("hospitals/north/test.txt", "ada\thas\tflu\n")
    code, out, err = run("describe", hospitals, capsys=capsys)
    assert code == 2
    assert "warning: north: 1 triples are both in train and in test" in out
    assert (
        err == f"fedlu: {hospitals}/north/test.txt:1: the triple is in train.txt:1 too; remove it from one of the two\n"
    )


def test_a_triple_in_train_and_valid_is_a_warning(
    hospitals: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("hospitals/north/valid.txt", "ada\thas\tflu\n")
    code, out, err = run("describe", hospitals, capsys=capsys)
    assert (code, err) == (0, "")
    assert "warning: north: 1 triples are both in train and in valid" in out


def test_labels_are_not_markup(hospitals: Path, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("hospitals/[red]/train.txt", "[bold]a\tr\tb\n")
    write("hospitals/[red]/valid.txt", "a\tr\tb\n")
    write("hospitals/[red]/test.txt", "b\tr\t[/bold]z\n")
    code, out, _ = run("describe", hospitals, capsys=capsys)
    assert code == 0
    assert "[red]" in out
    assert "[/bold]z" in out


def test_brackets_in_a_path_are_letters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("x[/y]", "x[red]y"):
        code, out, _ = run("partition", "nations", "--out", tmp_path / name, capsys=capsys)
        assert code == 0
        assert f"next: fedlu describe {tmp_path / name}" in out


def test_a_terminal_without_the_letters_is_no_failure(hospitals: Path) -> None:
    found = command("describe", str(hospitals), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (found.returncode, found.stderr) == (0, "")
    assert "north" in found.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_partition_leaves_nothing(tmp_path: Path, number: signal.Signals, code: int) -> None:
    graph = tmp_path / "g.tsv"
    graph.write_text("".join(f"e{i % 4999}\tr{i % 97}\te{i * 7 % 5003}\n" for i in range(400_000)))
    process = subprocess.Popen(
        [sys.executable, "-m", "fedlu", "partition", str(graph), "--by", "random", "--out", str(tmp_path / "out")],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out-*")):  # it has begun to write
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["g.tsv"]


def test_an_existing_folder_is_kept(hospitals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("partition", "nations", "--out", hospitals, "--force", capsys=capsys)
    assert code == 2
    assert "not all made by `fedlu partition`" in err
    assert (hospitals / "north" / "train.txt").exists()


def test_literals_are_counted_aloud(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"<http://e{a}> <http://r{r}> <http://e{b}> ." for a in range(5) for b in range(5) for r in range(2)]
    path = write("g.nt", "\n".join([*lines, '<http://e0> <http://name> "zero" .']))
    code, _, err = run("partition", path, "--clients", 2, "--out", tmp_path / "out", capsys=capsys)
    assert code == 0
    assert "1 triples with literals were skipped" in err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", capsys=capsys)[1] == f"fedlu {__version__}\n"
    code, out, _ = run(capsys=capsys)
    assert code == 0
    assert "partition" in out
    assert "describe" in out


def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("partition", "describe"):
        code, out, _ = run(command, "--help", capsys=capsys)
        assert code == 0
        assert f"fedlu {command} " in out


@pytest.mark.parametrize(
    ("degrees", "median", "bars"),
    [({1: 4}, 1, "█"), ({1: 1, 2: 1, 3: 1, 16: 4}, 16, "▂▄  █"), ({3: 1, 5: 9}, 5, " ▁█")],
)
def test_degrees_at_a_glance(degrees: dict[int, int], median: int, bars: str) -> None:
    assert degree_quantile(degrees, 0.5) == median
    assert sparkline(degrees) == bars


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fedlu", *arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def test_the_installed_command_and_a_closed_pipe(hospitals: Path) -> None:
    assert command("--version").stdout == f"fedlu {__version__}\n"
    fedlu = Path(sys.executable).with_name("fedlu")
    piped = subprocess.run(f"{fedlu} describe {hospitals} --json | head -1", shell=True, capture_output=True, text=True)
    assert (piped.stdout, piped.stderr) == ("{\n", "")


def test_help_loads_nothing_heavy() -> None:
    """No heavy import before it is needed; how long it takes has a test in test_help.py."""
    loaded = command("--help", env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}).stderr
    assert "typer" in loaded
    assert not [name for name in ("torch", "numpy", "polars", "scipy", "pykeen") if f"| {name}\n" in loaded]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["C3", "R3"])
def test_the_published_are_described_in_five_seconds(published: Path, name: str) -> None:
    start = os.times()
    found = command("describe", str(published / name), "--json")
    end = os.times()
    # processor time, on one thread (see conftest): tests run beside each other, so a clock on the wall tells of them
    assert end.children_user + end.children_system - start.children_user - start.children_system <= 5
    assert json.loads(found.stdout)["mean_entity_overlap"] == {"C3": 1447, "R3": 11067}[name]
