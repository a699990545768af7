"""Figures side by side: marks as in the paper, deviations, what the paper says, and what a given MRR cost."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedlu.results import published
from fedlu.results.comparison import Comparison, Figure, Line
from fedlu.results.comparison_files import as_csv, latex, markdown
from fedlu.results.convergence import Curve, curve_of, table, target_of, write
from fedlu.results.figures import convergence_curves, save


def line(label: str, paper: float | None, *ours: float, shown: bool = True) -> Line:
    return Line("TransE", label, label.lower(), "global", {"mrr": Figure(paper, ours)}, (2.0,) * len(ours), shown)


def comparison(*lines: Line, columns: tuple[str, ...] = ("mrr",)) -> Comparison:
    return Comparison("link-prediction", "C_3 & co", "C3", "fast", {"rounds": "6"}, (), "", columns, lines, ())


def test_best_and_second_best_are_marked_as_in_the_paper() -> None:
    """In the paper's own column and in ours; what looks the same is marked the same."""
    five = comparison(
        line("A", 31.0, 35.001),
        line("B", 33.0, 35.004),
        line("C", 32.0, 34.0),
        line("D", None, 36.0),
        line("E", 30.0, 33),
    )
    text = markdown(replace(five, paper=""))
    assert "| A | 31.00 | <ins>35.00</ins> | +4.00 | 2.0 |" in text
    assert "| B | **33.00** | <ins>35.00</ins> | +2.00 | 2.0 |" in text
    assert "| C | <ins>32.00</ins> | 34.00 | +2.00 | 2.0 |" in text
    assert "| D |  | **36.00** |  | 2.0 |" in text
    assert "| E | 30.00 | 33.00 | +3.00 | 2.0 |" in text


def test_marks_of_the_papers_own_table() -> None:
    """C3, TransE, hits@1: the paper prints 21.27 bold and 20.94 underlined."""
    rows = {"fedlu": "local", "independent": "local", "fede": "global", "fedec": "global"}
    lines = [
        line(method, 100 * published.printed("learning", "C3", "TransE", method, view, "test")["hits@1"], 1.0)
        for method, view in rows.items()
    ] + [line("second", 100 * published.printed("learning", "C3", "TransE", "fedlu", "global", "test")["hits@1"], 1.0)]
    found = replace(comparison(), lines=tuple(replace(each, figures={"hits@1": each.figures["mrr"]}) for each in lines))
    text = markdown(replace(found, columns=("hits@1",)))
    assert "| fedlu | **21.27** |" in text
    assert "| second | <ins>20.94</ins> |" in text
    without = markdown(replace(found, columns=("hits@1",), lines=found.lines[1:]))
    assert "**2" not in without  # the paper's best is not among these rows
    assert "| second | <ins>20.94</ins> |" in without


def test_views_without_a_row_in_the_paper_are_not_ranked() -> None:
    text = markdown(comparison(line("A", 31.0, 35.0), line("A (blend)", None, 40.0, shown=False)))
    assert "**35.00**" in text
    assert "A (blend)" not in text
    assert "40.00" in as_csv(comparison(line("A (blend)", None, 40.0, shown=False)))


def test_deviation_is_of_a_sample() -> None:
    assert Figure(None, (1.0, 2.0, 3.0)).deviation == pytest.approx(1.0)
    assert Figure(None, (1.0,)).deviation is None
    assert Figure(2.5, (1.0, 2.0)).difference == pytest.approx(-1.0)
    assert "2.00 ± 1.00" in markdown(comparison(line("A", None, 1.0, 2.0, 3.0)))


def test_latex_is_well_formed() -> None:
    text = latex(replace(comparison(line("A_1", 31.0, 35.0, 36.0), line("B", 33.0, 34.0, 34.0)), paper=""))
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    rows = [each for each in text.splitlines() if each.endswith(r"\\")]
    width = 2 + 3 + 1
    heads = [each for each in rows if "multicolumn" in each]
    assert all(each.count("&") - each.count(r"\&") == width - 1 for each in rows if each not in heads)
    assert r"C\_3 \& co" in text
    odd = replace(comparison(line("A", 31.0, 35.0)), federation="na$t_{ü}^~\\")
    escaped = r"na\$t\_\{ü\}\textasciicircum{}\textasciitilde{}\textbackslash{}"
    assert rf"\caption{{link-prediction on {escaped}, recipe fast, rounds=6, in percent}}" in latex(odd)
    assert r"A\_1 & \underline{31.00} & \textbf{35.50 $\pm$ 0.71} & +4.50" in text
    assert r"\textbf{33.00} & \underline{34.00 $\pm$ 0.00}" in text
    assert r"\multirow{2}{*}{TransE}" in text
    assert "Not there" not in text


def test_cells_that_are_not_there_are_named() -> None:
    """Else the best of those who were there would pass for the best of all."""
    some = replace(comparison(line("A", 31.0, 35.0)), missing=("X_1-fede-0: left out (9 s)", "X_1-fedec-0: failed"))
    assert r"\par Not there: X\_1-fede-0: left out (9 s); X\_1-fedec-0: failed." in latex(some)
    assert "- X_1-fede-0: left out (9 s)\n- X_1-fedec-0: failed\n" in markdown(some)


# --- the paper


def test_the_papers_figures_are_whole() -> None:
    """Three models and seven rows for six federations; six states for three; three variants, two views, for one."""
    assert set(published.names()) == {"C3", "C5", "C10", "R3", "R5", "R10"}
    rows = [("independent", "local"), *((name, "global") for name in ("centralized", "fede", "fedprox", "fedec"))]
    for name in published.names():
        for model in ("TransE", "ComplEx", "RotatE"):
            for method, view in [*rows, ("fedlu", "local"), ("fedlu", "global")]:
                found = published.printed("learning", name, model, method, view, "test")
                assert set(found) == {"mrr", "hits@1", "hits@3", "hits@10"}
                assert 0 < found["hits@1"] < found["mrr"] < found["hits@10"] < 1
            for state in ("raw", "retrained", "forgotten"):
                found = published.printed("forgetting", name, model, state, "local", "forget")
                assert (set(found) == {"mrr", "hits@1"}) == name.startswith("C")
    assert published.printed("ablation", "C3", "ComplEx", "without hard", "global", "forget") == pytest.approx(
        {"hits@1": 0.1836}
    )
    assert published.printed("learning", "C10", "RotatE", "fedlu", "local", "test")["mrr"] == pytest.approx(0.3822)
    assert published.printed("learning", "C7", "RotatE", "fedlu", "local", "test") == {}


def test_the_published_splits_are_recognised(published_splits: Path) -> None:
    from fedlu.graph import federation

    for name in ("C3", "R3"):
        assert published.name_of(federation.load(published_splits / name).fingerprint) == name


@pytest.fixture
def published_splits(published: Path) -> Path:
    return published


# --- convergence


def event(number: int, seconds: float, sent: int, **mrr: float) -> str:
    valid = {view: {"weighted": {"mrr": value}} for view, value in mrr.items()} or None
    sizes = {"bytes_up": {"a": sent, "b": sent}, "bytes_down": {"a": 2 * sent}}
    return json.dumps({"round": number, "seconds": seconds, "valid": valid, **sizes})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [
        event(1, 2.0, 100),
        event(2, 3.0, 100, local=0.20, **{"global": 0.10}),
        event(3, 2.0, 100),
        event(4, 3.0, 100, local=0.25, **{"global": 0.31}),
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "run"


def test_rounds_seconds_and_bytes_to_a_given_mrr(run: Path) -> None:
    """Both ways: 2 x 100 up and 200 down a round."""
    curve = curve_of(run, "TransE", "fedlu", 0)
    soon, later = curve.reach(0.15), curve.reach(0.3)
    assert soon is not None
    assert later is not None
    assert (soon.round, soon.seconds, soon.bytes) == (2, 5.0, 800)
    assert (later.round, later.seconds, later.bytes) == (4, 10.0, 1600)
    assert curve.reach(0.32) is None
    assert curve.best == 0.31


def test_the_target_is_the_papers_or_what_all_reach(run: Path) -> None:
    good, poor = curve_of(run, "TransE", "fedlu", 0), Curve("TransE", "fede", 0, curve_of(run, "", "", 0).points[:1])
    assert target_of([good, poor], "TransE", "C3") == (pytest.approx(0.3371), "the paper's FedLU on C3, its better row")
    assert target_of([good, poor], "TransE", "R3")[0] == pytest.approx(0.3475)
    assert target_of([good, poor], "TransE", "") == (0.20, "reached by every method")
    assert target_of([good, poor], "TransE", "C3", 0.3) == (0.3, "as asked for")


def test_the_table_and_picture_of_convergence(run: Path, tmp_path: Path) -> None:
    good, poor = curve_of(run, "TransE", "fedlu", 0), Curve("TransE", "fede", 0, curve_of(run, "", "", 0).points[:1])
    targets = {"TransE": (0.3, "as asked for")}
    assert table([good, poor], targets) == [
        ("TransE", "fedlu", "0", "30.00", "4", "10.0", "0.0", "31.00"),
        ("TransE", "fede", "0", "30.00", "", "", "", "20.00"),
    ]
    write([good, poor], targets, tmp_path)
    assert "| TransE | fede | 0 | 30.00 |  |  |  | 20.00 |" in (tmp_path / "convergence.md").read_text()
    assert (tmp_path / "convergence.csv").read_text().count("\n") == 3
    figure = convergence_curves([good, poor], {"TransE": 0.3})
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["fedlu", "fede"]
    assert list(figure.axes[0].lines[0].get_xdata()) == [5.0, 10.0]
    save(figure, tmp_path / "convergence.png")
    assert re.match(rb"\x89PNG", (tmp_path / "convergence.png").read_bytes())
