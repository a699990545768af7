"""How soon is a run as good as that? Rounds, seconds and bytes to a given MRR, from the events that it left.

While learning, a run is measured on its valid triples (or a sample of them) every few rounds, so that is what is
compared with the target; the test sets are ranked only once, at the end. A run counts as there once any view is.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlu.errors import InputError
from fedlu.results import published


@dataclass(frozen=True)
class Point:
    """A run when it was measured: what it had cost by then, and the valid MRR by view."""

    round: int
    seconds: float
    bytes: int
    mrr: dict[str, float]

    @property
    def best(self) -> float:
        return max(self.mrr.values())


@dataclass(frozen=True)
class Curve:
    model: str
    method: str
    seed: int
    points: tuple[Point, ...]

    @property
    def best(self) -> float:
        return max((point.best for point in self.points), default=0.0)

    def reach(self, target: float) -> Point | None:
        return next((point for point in self.points if point.best >= target), None)


def curve_of(run: Path, model: str, method: str, seed: int) -> Curve:
    points, seconds, sent = [], 0.0, 0
    for event in _events(run / "events.jsonl"):
        seconds += event["seconds"]
        sent += sum(event["bytes_up"].values()) + sum(event["bytes_down"].values())
        if event["valid"]:
            mrr = {view: found["weighted"].get("mrr", 0.0) for view, found in event["valid"].items()}
            points.append(Point(event["round"], seconds, sent, mrr))
    return Curve(model, method, seed, tuple(points))


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as bad:
        remedy = f"delete {path.parent}, and repeat"
        raise InputError(f"no events of a run ({bad})", where=path, remedy=remedy) from None


def target_of(curves: list[Curve], model: str, paper: str, wished: float | None = None) -> tuple[float, str]:
    """The MRR that is asked for, and what it is: as wished, the paper's FedLU, or what every method reaches."""
    if wished is not None:
        return wished, "as asked for"
    views = [published.printed("learning", paper, model, "fedlu", view, "test") for view in ("local", "global")]
    printed = [figures["mrr"] for figures in views if figures]
    if printed:
        return max(printed), f"the paper's FedLU on {paper}, its better row"
    return min((curve.best for curve in curves if curve.model == model), default=0.0), "reached by every method"


COLUMNS = ("model", "method", "seed", "target", "rounds", "seconds", "megabytes", "best")


def table(curves: list[Curve], targets: dict[str, tuple[float, str]]) -> list[tuple[str, ...]]:
    """A line for each run, in the order of COLUMNS; MRRs in percent; empty where the target was not reached."""
    lines: list[tuple[str, ...]] = []
    for curve in curves:
        target = targets[curve.model][0]
        point = curve.reach(target)
        cost = ("", "", "") if point is None else (str(point.round), f"{point.seconds:.1f}", f"{point.bytes / 1e6:.1f}")
        about = (curve.model, curve.method, str(curve.seed), f"{100 * target:.2f}")
        lines.append((*about, *cost, f"{100 * curve.best:.2f}"))
    return lines


def write(curves: list[Curve], targets: dict[str, tuple[float, str]], out: Path) -> list[Path]:
    """OUT/convergence.md and .csv; returns where."""
    lines = table(curves, targets)
    said = [f"- {model}: {100 * target:.2f}, {why}" for model, (target, why) in targets.items()]
    text = ["# Convergence: the cost of a given MRR", "", "Targets, in percent:", "", *said, ""]
    text += [
        "Measured on valid, every few rounds; `best` is the best that a run came to there. Bytes are both ways.",
        "",
    ]
    text += ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
    text += ["| " + " | ".join(line) + " |" for line in lines]
    (out / "convergence.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    rows = io.StringIO()
    csv.writer(rows, lineterminator="\n").writerows([COLUMNS, *lines])
    (out / "convergence.csv").write_text(rows.getvalue(), encoding="utf-8")
    return [out / "convergence.md", out / "convergence.csv"]
