"""Help that helps: every command has examples that are understood, shells complete it, and it comes at once."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from fedlu.cli import app
from tests.test_cli import run

GROUP: Any = typer.main.get_command(app)


def leaves(group: Any, path: str = "") -> dict[str, Any]:
    """Every command under its whole name, those of groups too: "learn", "site start"."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        whole = f"{path} {name}".strip()
        found |= leaves(command, whole) if hasattr(command, "commands") else {whole: command}
    return found


COMMANDS = leaves(GROUP)


def examples(text: str) -> list[list[str]]:
    return [shlex.split(each) for each in re.findall(r"`(fedlu [^`]+)`", text.split("Example", 1)[-1])]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_it_understands(name: str) -> None:
    """Parsed, not run: an example with an option that is gone would fail here."""
    text = COMMANDS[name].help
    assert re.search(r"^\s*Examples?:$", text, flags=re.M), f"fedlu {name} --help has no examples"
    parts = name.split()
    mine = [words[1 + len(parts) :] for words in examples(text) if words[1 : 1 + len(parts)] == parts]
    assert mine
    for words in mine:
        with COMMANDS[name].make_context(name, words) as context:
            assert context.params is not None


def test_the_first_help_has_examples_too(capsys: pytest.CaptureFixture[str]) -> None:
    shown = examples(GROUP.help)
    assert len(shown) >= 3
    for words in shown:
        with COMMANDS[words[1]].make_context(words[1], words[2:]):
            pass
    code, out, _ = run("--help", capsys=capsys)
    assert code == 0
    assert "fedlu partition umls" in out
    for name, command in GROUP.commands.items():
        assert f" {name} " in out
        assert command.help.strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", ""), f"fedlu {name} {parameter.name}"


def complete(words: str, last: int) -> list[str]:
    environment = {**os.environ, "_FEDLU_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(last)}
    done = subprocess.run([sys.executable, "-m", "fedlu"], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_shells_complete_commands_options_and_values(tmp_path: Path) -> None:
    assert complete("fedlu ex", 1) == ["export", "explore"]
    assert complete("fedlu predict run --new", 3) == ["--new-only"]
    assert complete("fedlu export run --format w", 4) == ["word2vec"]
    assert complete("fedlu learn data --method fede", 4) == ["fede", "fedec"]
    (tmp_path / "state.json").write_text('{"counters": {"north": {}, "south": {}}}')
    assert complete(f"fedlu predict {tmp_path} --client n", 4) == ["north"]
    assert complete("fedlu predict nowhere --client n", 4) == []


HEAVY = ("numpy", "torch", "numba", "polars", "pykeen", "matplotlib", "sklearn", "scipy", "pandas", "safetensors")


def test_help_loads_nothing_heavy() -> None:
    program = "import sys, fedlu.cli; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stdout.split())


def test_what_runs_on_the_cpu_does_without_torch() -> None:
    """Which takes two seconds: every prediction on the command line would wait for them."""
    rooms = "fedlu.explorer.api, fedlu.flare.executor, fedlu.flare.lead"
    work = "fedlu.results.audit, fedlu.results.prediction, fedlu.results.report, fedlu.results.tuning"
    program = f"import sys, {rooms}, {work}; print('torch' in sys.modules, 'scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def processor_time(*words: str) -> tuple[float, str]:
    """Of another Python, and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def test_help_comes_at_once() -> None:
    """Half a second of a core's time, the best of five; more only where Python itself takes longer than usual."""
    library = "import asyncio, email.message, http.client, unittest, xml.dom.minidom, sqlite3, decimal"
    usual = [processor_time("-c", library)[0] for _ in range(5)]  # 0.13 s on a free machine, where help takes 0.32
    taken, said = zip(*(processor_time("-m", "fedlu", "--help") for _ in range(5)), strict=True)
    assert "partition" in said[0]
    assert min(taken) <= max(0.5, 4 * min(usual)), (taken, usual)
