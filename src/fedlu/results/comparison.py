"""The tables of `reproduce`: the paper's value, ours, the difference and the seconds, row by row as the paper has them.

All figures are percent, as the paper prints them. A row of ours that the paper does not have (FedLU's blend) stands
beside the others without a figure of the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from fedlu.results import files, published, runs
from fedlu.results.matrix import VARIANTS, Cell, Matrix

METHODS = {
    "independent": "Independent",
    "centralized": "Centralized",
    "fede": "FedE",
    "fedprox": "FedProx",
    "fedec": "FedEC",
    "fedlu": "FedLU",
}
VIEWS_SHOWN = {"independent": ("local",), "fedlu": ("local", "global", "blend")}
"""The others are shown as the paper has them: by what they share."""
STATES = {"raw": "Raw", "retrained": "Re-trained", "forgotten": "Unlearned"}
LEARNING = ("hits@1", "hits@3", "hits@10", "mrr")
FORGETTING = ("forget hits@1", "test hits@1", "forget mrr", "test mrr")
ABLATION = ("forget hits@1", "test hits@1")


@dataclass(frozen=True)
class Figure:
    """One number of the paper's, if it has it, and ours of every seed."""

    paper: float | None
    ours: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        return mean(self.ours) if self.ours else None

    @property
    def deviation(self) -> float | None:
        """Of the seeds, as a sample; one seed has none."""
        return stdev(self.ours) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        return None if self.paper is None or self.mean is None else self.mean - self.paper


@dataclass(frozen=True)
class Line:
    model: str
    label: str
    method: str
    view: str
    figures: dict[str, Figure]
    seconds: tuple[float, ...]
    """Of every seed: learning and the last ranking; or forgetting; or re-training."""
    shown: bool = True
    """False for views of rivals that the paper has no row for; they stand in the CSV, and in a table of all views."""


@dataclass(frozen=True)
class Comparison:
    table: str
    federation: str
    paper: str
    """What the paper calls the federation; empty if it does not know it."""
    recipe: str
    settings: dict[str, str]
    """What was set besides, for every cell."""
    tuned: tuple[str, ...]
    """Methods and models that had tuned settings."""
    goal: str
    """Of forgetting; empty where nothing was forgotten."""
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    missing: tuple[str, ...]
    """Cells that are not there, and why."""

    @property
    def made(self) -> str:
        """How, in words: recipe, settings, and the rest."""
        parts = [f"recipe {self.recipe}", *(f"{key}={value}" for key, value in self.settings.items())]
        parts += [f"tuned: {', '.join(self.tuned)}"] * bool(self.tuned)
        return ", ".join(parts + [f"goal {self.goal}"] * bool(self.goal))

    @property
    def stem(self) -> str:
        """Of its files; the paper's goal of forgetting needs no name."""
        return self.table if self.goal in ("", "suppress") else f"{self.table}-{self.goal}"

    def ranking(self, model: str, column: str, *, ours: bool) -> dict[str, int]:
        """By label: 1 for the best and 2 for the second best value of a model's block, as the paper marks them: its own
        among all of its rows, whether they stand here or not."""
        if self.table != "link-prediction":
            return {}
        lines = [line for line in self.lines if line.model == model and line.shown]
        values = {
            line.label: rounded(line.figures[column].mean if ours else line.figures[column].paper) for line in lines
        }
        others = [] if ours else _printed_of_all(self.paper, model, column)
        ordered = sorted({value for value in [*values.values(), *others] if value is not None}, reverse=True)[:2]
        return {label: ordered.index(value) + 1 for label, value in values.items() if value in ordered}


def _printed_of_all(name: str, model: str, metric: str) -> list[float | None]:
    """What the paper has of a model, by all methods, in percent."""
    rows = [(method, view) for method in METHODS for view in VIEWS_SHOWN.get(method, ("global",))]
    found = [published.printed("learning", name, model, method, view, "test").get(metric) for method, view in rows]
    return [rounded(100 * value) for value in found if value is not None]


def rounded(value: float | None) -> float | None:
    """As printed: what looks the same ranks the same."""
    return None if value is None else round(value, 2)


def compare(matrix: Matrix, *, paper: str | None, missing: Sequence[str] = ()) -> Comparison:
    """Of all cells that are done, asked for now or before; `paper` names the paper's federation, where the data does
    not tell."""
    facts, matrix = files.read_json(matrix.out / "matrix.json"), matrix.with_all_there()
    name = paper or published.name_of(facts["fingerprint"]) or ""
    lines: list[Line] = []
    for model in matrix.models:
        for method in matrix.methods:
            cells = [cell for cell in matrix.cells() if (cell.model, cell.method) == (model, method)]
            done = [cell for cell in cells if matrix.is_done(cell)]
            if matrix.table == "link-prediction":
                lines += _learned(matrix, name, done)
            elif matrix.table == "unlearning":
                lines += _forgotten(matrix, name, [cell for cell in done if cell.variant])
            else:
                lines += _ablated(matrix, name, [cell for cell in done if cell.variant])
    columns = {"link-prediction": LEARNING, "unlearning": FORGETTING, "ablation": ABLATION}[matrix.table]
    return Comparison(
        matrix.table,
        facts["federation"],
        name,
        matrix.recipe,
        dict(matrix.overrides),
        tuple(f"{method} {model}" for method, models in matrix.tuned.items() for model in models),
        "" if matrix.table == "link-prediction" else matrix.goal,
        columns,
        tuple(lines),
        tuple(missing),
    )


def _learned(matrix: Matrix, name: str, cells: list[Cell]) -> list[Line]:
    if not cells:
        return []
    model, method = cells[0].model, cells[0].method
    found = [runs.read_metrics(matrix.folder(cell)) for cell in cells]
    seconds = tuple(sum(metrics["seconds"].values()) for metrics in found)
    lines = []
    shown = VIEWS_SHOWN.get(method, ("global",))
    for view in found[0]["test"]:
        theirs = published.printed("learning", name, model, method, view, "test")
        figures = {
            metric: _figure(theirs.get(metric), [each["test"][view]["weighted"][metric] for each in found])
            for metric in LEARNING
        }
        label = METHODS[method] if method != "fedlu" and view in shown else f"{METHODS[method]} ({view})"
        lines.append(Line(model, label, method, view, figures, seconds, view in shown))
    return lines


def _forgotten(matrix: Matrix, name: str, cells: list[Cell]) -> list[Line]:
    """Raw, re-trained and unlearned, of either view."""
    if not cells:
        return []
    found = [files.read_json(matrix.folder(cell) / "audit.json") for cell in cells]
    raw = [sum(runs.read_metrics(matrix.folder(cell.learned))["seconds"].values()) for cell in cells]
    seconds = {
        "raw": tuple(raw),
        "retrained": tuple(each["cost"]["retraining seconds"] for each in found),
        "forgotten": tuple(each["cost"]["forgetting seconds"] for each in found),
    }
    lines, model, method = [], cells[0].model, cells[0].method
    for view in found[0]["verdict"]:
        for state, word in STATES.items():
            theirs = _printed_of_fedlu("forgetting", name, model, method, state, view)
            figures = _by_split(FORGETTING, theirs, [each[state][view] for each in found])
            lines.append(Line(model, _named(method, f"{word} {view}"), method, view, figures, seconds[state]))
    return lines


def _ablated(matrix: Matrix, name: str, cells: list[Cell]) -> list[Line]:
    lines = []
    for variant in VARIANTS:
        mine = [cell for cell in cells if cell.variant == variant]
        if not mine:
            continue
        found = [files.read_json(matrix.folder(cell) / "audit.json") for cell in mine]
        seconds = tuple(each["cost"]["forgetting seconds"] for each in found)
        model, method = mine[0].model, mine[0].method
        for view in found[0]["verdict"]:
            theirs = _printed_of_fedlu("ablation", name, model, method, variant, view)
            figures = _by_split(ABLATION, theirs, [each["forgotten"][view] for each in found])
            without = _named(method, variant.replace("without", "w/o") + " confusion")
            word = METHODS[method] if variant == "whole" else without
            lines.append(Line(model, f"{word} ({view})", method, view, figures, seconds))
    return sorted(lines, key=lambda line: line.view != "local")


def _printed_of_fedlu(
    table: str, name: str, model: str, method: str, row: str, view: str
) -> dict[str, dict[str, float]]:
    """By split: what the paper prints; it forgets with FedLU alone."""
    if method != "fedlu":
        return {"forget": {}, "test": {}}
    return {split: published.printed(table, name, model, row, view, split) for split in ("forget", "test")}


def _named(method: str, words: str) -> str:
    """A row's label; that of a rival begins with its name."""
    return words if method == "fedlu" else f"{METHODS[method]}: {words}"


def _by_split(
    columns: Sequence[str], theirs: dict[str, dict[str, float]], found: list[dict[str, Any]]
) -> dict[str, Figure]:
    figures = {}
    for column in columns:
        split, metric = column.split()
        figures[column] = _figure(theirs[split].get(metric), [each[split][metric] for each in found])
    return figures


def _figure(paper: float | None, ours: list[float]) -> Figure:
    return Figure(None if paper is None else 100 * paper, tuple(100 * each for each in ours))
