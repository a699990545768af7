"""Pictures for papers and reports, drawn with matplotlib on no screen."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedlu.errors import InputError
from fedlu.graph.statistics import FederationStatistics, log_bins
from fedlu.results.convergence import Curve
from fedlu.results.maps import EntityMap

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


def line_chart(spec: dict[str, Any]) -> Figure:
    """The lines of a specification of `charts.py`: one colour per line, or per run if a run has several."""
    figure, panel = _single(6.4, 4.2)
    groups = list(dict.fromkeys(series.get("group", series["name"]) for series in spec["series"]))
    of_group: dict[str, int] = {}
    for series in spec["series"]:
        group = series.get("group", series["name"])
        place = of_group[group] = of_group.get(group, -1) + 1
        number = groups.index(group) if len(groups) > 1 else place
        panel.plot(
            [x for x, _ in series["points"]],
            [spec["y"]["scale"] * y for _, y in series["points"]],
            marker=MARKERS[number % len(MARKERS)],
            color=COLOURS[number % len(COLOURS)],
            linestyle=LINES[place % len(LINES)] if len(groups) > 1 else "-",
            markersize=4,
            linewidth=1.2,
            label=_drawable(series["name"]),
        )
    panel.set_xlabel(spec["x"]["label"])
    panel.set_ylabel(spec["y"]["label"])
    panel.grid(alpha=0.25, linewidth=0.5)
    panel.legend(fontsize=8, frameon=False)
    return figure


def bar_chart(specs: Sequence[dict[str, Any]], titles: Sequence[str]) -> Figure:
    """Grouped bars, a panel for each specification of `charts.py`."""
    figure = Figure(figsize=(5.2 * len(specs), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(specs), squeeze=False, sharey=True)[0]
    for panel, spec, title in zip(panels, specs, titles, strict=True):
        width = 0.8 / len(spec["series"])
        for place, series in enumerate(spec["series"]):
            values = [spec["y"]["scale"] * (value or 0.0) for value in series["values"]]
            at = [group + (place - (len(spec["series"]) - 1) / 2) * width for group in range(len(values))]
            panel.bar(at, values, width=width, color=COLOURS[place % len(COLOURS)], label=_drawable(series["name"]))
        panel.set_xticks(range(len(spec["groups"])), [_drawable(group) for group in spec["groups"]])
        panel.set_title(_drawable(title), fontsize=10)
        panel.grid(alpha=0.25, axis="y", linewidth=0.5)
    panels[0].set_ylabel(specs[0]["y"]["label"])
    panels[0].legend(fontsize=8, frameon=False)
    return figure


def entity_maps(maps: Sequence[EntityMap], titles: Sequence[str]) -> Figure:
    """One panel per run: the entities in the plane, coloured by client, drawn in turn so that none hides another."""
    figure = Figure(figsize=(4.2 * len(maps), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for panel, found, title in zip(panels, maps, titles, strict=True):
        order = np.random.default_rng(0).permutation(len(found.client))
        colours = np.array([COLOURS[number % len(COLOURS)] for number in range(len(found.clients))])
        xy = found.xy[order].astype(np.float64)
        size = 1.5 if len(order) > 2000 else 6
        panel.scatter(xy[:, 0], xy[:, 1], s=size, c=colours[found.client[order]], linewidths=0, rasterized=True)
        for number, client in enumerate(found.clients):  # for the legend alone
            panel.scatter([], [], s=20, color=colours[number], label=_drawable(client))
        panel.set_title(_drawable(f"{title} ({found.view} rows)"), fontsize=10)
        panel.set_aspect("equal")
        panel.set_xticks([])
        panel.set_yticks([])
    panels[0].legend(fontsize=8, frameon=False, loc="upper left")
    return figure


def _single(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _drawable(name: str) -> str:
    """A name as it is: a dollar is no formula, an underscore in front no wish to be left out of the legend."""
    name = name.encode("utf-8", "replace").decode().replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


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
