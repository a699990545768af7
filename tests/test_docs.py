"""The documents are true: each command and each program in them is run, and each link leads somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from itertools import permutations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / name
    for name in (
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/results.md",
        "docs/federation.md",
        "docs/look.md",
    )
]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def commands(path: Path) -> list[list[str]]:
    lines = "\n".join(blocks(path, "sh")).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run(words: list[str], folder: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("MAKEFLAGS", None)  # of the `make test` that may run us
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder, with a graph of their own."""
    folder = tmp_path_factory.mktemp("desk")
    rows = [f"person{a}\tknows{(a + b) % 4}\tperson{b}" for a, b in permutations(range(9), 2)]
    (folder / "my-graph.tsv").write_text("\n".join(rows) + "\n")
    return folder


def test_the_readme_starts_with_demo_and_test() -> None:
    assert commands(ROOT / "README.md")[:2] == [["make", "demo"], ["make", "test"]]


def test_the_readme_works_for_a_reader(desk: Path) -> None:
    """Commands in their order, then the program, which uses what they made."""
    typed = [words for words in commands(ROOT / "README.md") if words[0] != "make"]
    assert len(typed) >= 6
    for words in typed:
        assert words[0] == "fedlu"
        assert run(words, desk)
    (learning,) = blocks(ROOT / "README.md", "python")
    mrr, *frame = run([sys.executable, "-c", learning], desk).splitlines()
    assert 0 < float(mrr) < 1
    assert "label" in "".join(frame)
    assert (desk / "run-fede" / "metrics.json").exists()
    assert (desk / "run-2" / "audit.md").exists()


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 60


@pytest.mark.skipif(
    not (ROOT / ".venv" / ".ready").exists(), reason="not set up by make; `make demo` would install first"
)
def test_make_demo_tells_its_story() -> None:
    shutil.rmtree(ROOT / "demo", ignore_errors=True)
    story = run(["make", "demo"], ROOT)
    for words in ("client-2: 1,029 triples", "alone and together", "forgot the 5 triples", "what was forgotten"):
        assert words in story
    gain = re.search(r"all, weighted\D+([\d.]+)\D+([\d.]+)\D+([+-][\d.]+)", story)
    assert gain
    assert float(gain[3]) > 0  # to learn together pays
    assert (ROOT / "demo" / "report.html").stat().st_size > 10_000
    started = time.monotonic()
    assert "what was forgotten" in run(["make", "demo"], ROOT)  # again: everything is there already
    assert time.monotonic() - started < 60


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = {words[1] for path in DOCUMENTS for words in commands(path) if words[0] == "make"} | {
        name for path in DOCUMENTS for name in re.findall(r"`make ([a-z-]+)`", path.read_text())
    }
    assert {"demo", "test", "lint", "bench"} <= named <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_everything_installed_is_pinned() -> None:
    """A dependency that `constraints.txt` forgets would float."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "constraints.txt").read_text(), flags=re.M)
    known = {re.sub(r"[-_.]+", "-", name).lower() for name in pins}
    frozen = subprocess.run(
        [sys.executable, "-m", "pip", "freeze", "--all", "--exclude-editable"], capture_output=True, text=True
    )
    installed = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in frozen.stdout.split() if "==" in line}
    assert installed
    assert installed <= known | {"fedlu", "pip"}
