"""A comparison as Markdown, CSV and LaTeX. Best and second best are bold and underlined, as in the paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from fedlu.results.comparison import Comparison, Line, rounded

NOTES = {
    "link-prediction": "Test sets, weighted by the number of triples. The rivals are shown by what they share. "
    "Seconds are of learning and the last ranking.",
    "unlearning": "Forget: lower is further from known; test: higher is better. Re-trained is our method again, from "
    "scratch, on what is retained (the paper's local rows are clients alone, its global ones one model of all).",
    "ablation": "Forget: lower is further from known; test: higher is better. Seconds are of forgetting.",
}
CSV_COLUMNS = (
    *("table", "federation", "paper_name", "recipe", "settings", "tuned", "goal"),
    *("model", "row", "method", "view", "column"),
    *("paper", "ours", "deviation", "difference", "seeds", "seconds", "best"),
)
ARROWS = {"forget": "down", "test": "up"}


def write(comparison: Comparison, out: Path) -> list[Path]:
    """OUT/TABLE.md, .csv and .tex, or TABLE-GOAL.md; returns where."""
    texts = {".md": markdown(comparison), ".csv": as_csv(comparison), ".tex": latex(comparison)}
    paths = []
    for suffix, text in texts.items():
        path = out / f"{comparison.stem}{suffix}"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


# --- Markdown ------------------------------------------------------------------------------------------------------


def markdown(comparison: Comparison) -> str:
    paper = f" (the paper's {comparison.paper})" if comparison.paper else ""
    lines = [f"# {comparison.table}: {comparison.federation}{paper}, {comparison.made}", ""]
    lines += [f"In percent. {NOTES[comparison.table]}"]
    if comparison.table == "link-prediction":
        lines[-1] += " Of each column, the best is **bold**, the second best <ins>underlined</ins>."
    for model, block in _blocks(comparison):
        heads = [f"{column} {part}" for column in comparison.columns for part in ("paper", "ours", "diff.")]
        lines += ["", f"## {model}", "", "| | " + " | ".join([*heads, "seconds"]) + " |"]
        lines.append("|---|" + "---:|" * (len(heads) + 1))
        marks = _marks(comparison, model, lambda text: f"**{text}**", lambda text: f"<ins>{text}</ins>")
        for line in block:
            cells = [text for column in comparison.columns for text in _cells(line, column, marks, "±")]
            lines.append(f"| {line.label} | " + " | ".join([*cells, _seconds(line)]) + " |")
    lines += _all_views(comparison)
    if comparison.missing:
        lines += ["", "## Not there", "", *(f"- {each}" for each in comparison.missing)]
    return "\n".join(lines) + "\n"


def _all_views(comparison: Comparison) -> list[str]:
    """The rivals have a local table and a blend, too: to compare fairly, look at all."""
    if comparison.table != "link-prediction" or all(line.shown for line in comparison.lines):
        return []
    lines = ["", "## Every view of every method: MRR", "", "| model | method | local | global | blend |"]
    lines.append("|---|---|---:|---:|---:|")
    for (model, method), group in groupby(comparison.lines, key=lambda line: (line.model, line.method)):
        found = {line.view: line.figures["mrr"].mean for line in group}
        cells = [_number(found.get(view)) for view in ("local", "global", "blend")]
        lines.append(f"| {model} | {method} | " + " | ".join(cells) + " |")
    return lines


# --- CSV -----------------------------------------------------------------------------------------------------------


def as_csv(comparison: Comparison) -> str:
    """A line for each number, all views included."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(CSV_COLUMNS)
    for line in comparison.lines:
        for column in comparison.columns:
            figure = line.figures[column]
            place = comparison.ranking(line.model, column, ours=True).get(line.label, "") if line.shown else ""
            numbers = [_number(each) for each in (figure.paper, figure.mean, figure.deviation, figure.difference)]
            about = [comparison.table, comparison.federation, comparison.paper, comparison.recipe]
            about += [" ".join(f"{key}={value}" for key, value in comparison.settings.items())]
            about += ["; ".join(comparison.tuned), comparison.goal]
            row = [line.model, line.label, line.method, line.view, column, *numbers]
            out.writerow([*about, *row, len(figure.ours), _seconds(line), place])
    return text.getvalue()


# --- LaTeX ---------------------------------------------------------------------------------------------------------


def latex(comparison: Comparison) -> str:
    """Needs the packages booktabs and multirow."""
    columns = comparison.columns
    title = f"{comparison.table} on {comparison.federation}, {comparison.made}, in percent"
    lines = [
        r"% \usepackage{booktabs,multirow}",
        r"\begin{table*}",
        r"\centering",
        rf"\caption{{{_escaped(title)}}}",
        rf"\begin{{tabular}}{{ll{'|rrr' * len(columns)}|r}}",
        r"\toprule",
        " & & " + " & ".join(rf"\multicolumn{{3}}{{c|}}{{{_head(column)}}}" for column in columns) + r" & \\",
        "Model & & " + " & ".join(["Paper & Ours & Diff."] * len(columns)) + r" & Seconds \\",
    ]
    for model, block in _blocks(comparison):
        lines.append(r"\midrule")
        marks = _marks(comparison, model, lambda text: rf"\textbf{{{text}}}", lambda text: rf"\underline{{{text}}}")
        for place, line in enumerate(block):
            first = rf"\multirow{{{len(block)}}}{{*}}{{{_escaped(model)}}}" if not place else ""
            cells = [text for column in columns for text in _cells(line, column, marks, r"$\pm$")]
            lines.append(" & ".join([first, _escaped(line.label), *cells, _seconds(line)]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if comparison.table == "link-prediction":
        lines.append(r"\par The best and second best are \textbf{bold} and \underline{underlined}.")
    if comparison.missing:  # else the best of those who were there would pass for the best of all
        lines.append(rf"\par Not there: {_escaped('; '.join(comparison.missing))}.")
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def _head(column: str) -> str:
    words = [f"{word} $\\{ARROWS[word]}arrow$" if word in ARROWS else _escaped(word) for word in column.split()]
    return " ".join(words).replace("hits", "Hits").replace("mrr", "MRR")


LATEX = {ord(letter): f"\\{letter}" for letter in "&%#_${}"} | {
    ord("\\"): r"\textbackslash{}",
    ord("~"): r"\textasciitilde{}",
    ord("^"): r"\textasciicircum{}",
}


def _escaped(text: str) -> str:
    return text.translate(LATEX)


# --- what they share -----------------------------------------------------------------------------------------------

Mark = Callable[[str], str]
Marks = dict[tuple[str, str, bool], Mark]


def _blocks(comparison: Comparison) -> list[tuple[str, list[Line]]]:
    shown = [line for line in comparison.lines if line.shown]
    return [(model, list(group)) for model, group in groupby(shown, key=lambda line: line.model)]


def _marks(comparison: Comparison, model: str, best: Mark, second: Mark) -> Marks:
    """By label, column and whether ours: how to mark it."""
    found = {}
    for column in comparison.columns:
        for ours in (False, True):
            for label, place in comparison.ranking(model, column, ours=ours).items():
                found[label, column, ours] = best if place == 1 else second
    return found


def _cells(line: Line, column: str, marks: Marks, plus_minus: str) -> Sequence[str]:
    """The paper's, ours and the difference."""
    figure = line.figures[column]
    ours = _number(figure.mean)
    if figure.deviation is not None:
        ours += f" {plus_minus} {figure.deviation:.2f}"
    cells = [(False, _number(figure.paper)), (True, ours)]
    marked = [marks.get((line.label, column, mine), str)(text) if text else "" for mine, text in cells]
    return [*marked, _number(figure.difference, sign=True)]


def _number(value: float | None, *, sign: bool = False) -> str:
    value = rounded(value)
    return "" if value is None else f"{value:+.2f}" if sign else f"{value:.2f}"


def _seconds(line: Line) -> str:
    return f"{sum(line.seconds) / len(line.seconds):.1f}" if line.seconds else ""
