"""docs/reproduce.md is true: its commands are run in their order, and what it says is there afterwards is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.test_cli import run
from tests.test_docs import ROOT, commands

PAGE = ROOT / "docs" / "reproduce.md"


@pytest.mark.slow
def test_the_page_works_for_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = commands(PAGE)
    assert len(typed) >= 8
    for words in typed:
        assert words[0] == "fedlu"
        code, out, err = run(*words[1:], capsys=capsys)  # in this process: eight starts would take longer than the work
        assert (code, bool(out)) == (0, True), f"{' '.join(words)}: {err}"
    named = re.findall(r"`((?:link-prediction|convergence)\.md)`, ((?:`\.\w+`(?:, )?)+)", PAGE.read_text())
    assert len(named) == 2
    for first, others in named:
        for suffix in [".md", *re.findall(r"\.\w+", others)]:
            assert (tmp_path / "tables" / first).with_suffix(suffix).stat().st_size > 0
    assert (tmp_path / "tables" / "runs" / "TransE-fede-1" / "metrics.json").exists()  # the second seed
    for table in ("unlearning", "ablation"):
        assert (tmp_path / "tables" / f"{table}.tex").exists()
    sizes = {}
    for name in ("run-int8", "tables/runs/TransE-fedlu-0"):
        events = (tmp_path / name / "events.jsonl").read_text().splitlines()
        sizes[name] = sum(sum(json.loads(event)["bytes_up"].values()) for event in events)
    quarter, whole = sizes.values()
    assert quarter == whole * (16 + 4) / (4 * 16)  # a quarter, and four bytes for each row of 16


def test_its_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert link.startswith("https://") or (PAGE.parent / link).exists(), link
