"""From a matrix to its files: run what is missing, then write the tables of all that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlu.config import METHODS, read_toml
from fedlu.errors import InputError
from fedlu.results import comparison_files, convergence, figures, published
from fedlu.results.comparison import Comparison, compare
from fedlu.results.matrix import Matrix, States, Watch, carry_out, finished


@dataclass(frozen=True)
class Reproduction:
    states: States
    comparison: Comparison
    files: tuple[Path, ...]


def reproduce(
    matrix: Matrix,
    *,
    paper: str | None = None,
    budget: float | None = None,
    target: float | None = None,
    watch: Watch | None = None,
) -> Reproduction:
    """`paper` names the paper's federation, where the fingerprint of the data does not tell."""
    if paper is not None and paper not in published.names():
        raise InputError(f"the paper has no {paper!r}", remedy=f"choose one of {', '.join(published.names())}")
    states = carry_out(matrix, budget=budget, watch=watch)
    missing = [f"{cell.name}: {state.what} ({state.detail})" for cell, state in states.items() if state.what != "done"]
    found = compare(matrix, paper=paper, missing=missing)
    files = comparison_files.write(found, matrix.out)
    if matrix.table == "link-prediction":
        files += _convergence(matrix, found.paper, target)
    return Reproduction(states, found, tuple(files))


def _convergence(matrix: Matrix, paper: str, wished: float | None) -> list[Path]:
    cells = finished(matrix.with_all_there())
    curves = [convergence.curve_of(folder, cell.model, cell.method, cell.seed) for cell, folder in cells]
    if not curves:
        return []
    models = dict.fromkeys(curve.model for curve in curves)
    targets = {model: convergence.target_of(curves, model, paper, wished) for model in models}
    picture = matrix.out / "convergence.png"
    figures.save(figures.convergence_curves(curves, {model: target for model, (target, _) in targets.items()}), picture)
    return [*convergence.write(curves, targets, matrix.out), picture]


def read_tuned(paths: Sequence[Path], recipe: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Settings by method and model, from files that `fedlu tune` wrote; they go with the recipe that was tuned."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in paths:
        text = read_toml(path)
        try:
            tuned = list(_settings_in(text))
        except (AttributeError, KeyError, TypeError, ValueError):
            remedy = "give the best.toml of a study"
            raise InputError("not settings of `fedlu tune`", where=path, remedy=remedy) from None
        if text.get("recipe", recipe) != recipe:
            raise InputError(f"was tuned with recipe {text['recipe']}", where=path, remedy="give the same as --recipe")
        for method, model, settings in tuned:
            found.setdefault(method, {}).setdefault(model, {}).update(settings)
    return found


def _settings_in(text: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, model and settings; an error of some kind where the text has another shape."""
    if set(text) - {"about", "recipe", "methods"}:
        raise ValueError(text)
    for method, table in text["methods"].items():
        if method not in METHODS or set(table) != {"models"}:
            raise ValueError(method)
        for model, settings in table["models"].items():
            yield method, model, dict(settings)


def parse_budget(text: str) -> float:
    """Seconds, from `90s`, `60m`, `2h` or `1h30m`."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    if match is None or not any(match.groups()):
        raise InputError(f"--budget {text}", remedy="write it as 90s, 60m, 2h or 1h30m")
    hours, minutes, seconds = (float(each or 0) for each in match.groups())
    return 3600 * hours + 60 * minutes + seconds
