"""Pictures for papers and reports, drawn with matplotlib on no screen."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedlu.errors import InputError
from fedlu.graph.statistics import FederationStatistics
from fedlu.results.convergence import Curve

COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")
"""Paul Tol's bright scheme: told apart by colour-blind readers too."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
KINDS = (".png", ".svg", ".pdf")


def degree_distributions(federations: list[FederationStatistics]) -> Figure:
    """One panel per federation, side by side on shared axes: the share of a client's entities by degree."""
    figure = Figure(figsize=(5.2 * len(federations), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(federations), squeeze=False, sharex=True, sharey=True)[0]
    for panel, federation in zip(panels, federations, strict=True):
        for number, client in enumerate(federation.clients):
            degrees, shares = log_bins(client.degrees)
            panel.loglog(
                degrees,
                shares,
                marker=MARKERS[number % len(MARKERS)],
                color=COLOURS[number % len(COLOURS)],
                linestyle=LINES[number // len(COLOURS) % len(LINES)],
                markersize=4,
                linewidth=1.2,
                label=f"{_drawable(client.name)}: degree {client.average_degree:.1f}, "
                f"clustering {client.clustering_coefficient:.2f}",
            )
        overlap = f"mean entity overlap {federation.mean_entity_overlap:,.0f}"
        panel.set_title(f"{_drawable(federation.name)} ({overlap})", fontsize=10)
        panel.set_xlabel("degree of an entity")
        panel.grid(alpha=0.25, which="both", linewidth=0.5)
        panel.legend(fontsize=7, frameon=False)
    panels[0].set_ylabel("share of the client's entities, per unit of degree")
    return figure


def _drawable(name: str) -> str:
    """A name as it is: a dollar is no formula, an underscore in front no wish to be left out of the legend."""
    name = name.encode("utf-8", "replace").decode().replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


def log_bins(degrees: dict[int, int], per_decade: int = 5) -> tuple[list[float], list[float]]:
    """A heavy-tailed histogram in bins of equal ratio: their mean degree, and the density of entities there."""
    values = np.array(sorted(degrees))
    counts = np.array([degrees[value] for value in values.tolist()], dtype=np.float64)
    steps = np.arange(int(np.ceil(np.log10(values.max() + 1) * per_decade)) + 1)
    edges = np.unique(np.ceil(10 ** (steps / per_decade)))  # the last one is above every degree
    bins = np.digitize(values, edges) - 1
    mass = np.bincount(bins, weights=counts, minlength=len(edges) - 1)
    centre = np.bincount(bins, weights=counts * values, minlength=len(edges) - 1)
    some = mass > 0
    density = mass[some] / np.diff(edges)[some] / counts.sum()
    return (centre[some] / mass[some]).tolist(), density.tolist()


def check_target(path: Path) -> None:
    """Refuse early what `save` would refuse in the end."""
    if path.suffix.lower() not in KINDS:
        raise InputError(f"unknown kind of picture {path.suffix!r}", where=path, remedy=f"end it in {', '.join(KINDS)}")
    if path.is_dir():
        raise InputError("is a folder", where=path, remedy="choose another name for the picture")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its suffix says (png, svg, pdf)."""
    check_target(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.part")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a letter that the font lacks is drawn as a box
            figure.savefig(scratch, format=path.suffix.lstrip(".").lower(), dpi=150)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def convergence_curves(curves: list[Curve], targets: dict[str, float]) -> Figure:
    """One panel per model: the valid MRR of each method's best view over the seconds it took; dashed, the target."""
    models = list(targets)
    figure = Figure(figsize=(5.2 * len(models), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(models), squeeze=False, sharey=True)[0]
    methods = list(dict.fromkeys(curve.method for curve in curves))
    for panel, model in zip(panels, models, strict=True):
        for curve in (curve for curve in curves if curve.model == model):
            number = methods.index(curve.method)
            panel.plot(
                [point.seconds for point in curve.points],
                [100 * point.best for point in curve.points],
                marker=MARKERS[number % len(MARKERS)],
                color=COLOURS[number % len(COLOURS)],
                markersize=4,
                linewidth=1.2,
                label=curve.method if not curve.seed else None,
            )
        panel.axhline(100 * targets[model], color="#555555", linestyle="--", linewidth=1)
        panel.set_title(_drawable(model), fontsize=10)
        panel.set_xlabel("seconds of learning")
        panel.grid(alpha=0.25, linewidth=0.5)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7, frameon=False)
    panels[0].set_ylabel("valid MRR x 100")
    return figure
