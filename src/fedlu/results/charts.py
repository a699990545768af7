"""What the report draws, as plain data: a chart has a specification for `pages/charts.js`, a sentence, and a table.

The sentence and the table are the chart for whoever cannot see it. No triple and no entity's name gets in here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fedlu.graph.federation import SPLITS
from fedlu.graph.statistics import FederationStatistics, log_bins
from fedlu.results.maps import EntityMap
from fedlu.results.overview import Overview

STATES = {"raw": "before", "forgotten": "after forgetting", "retrained": "trained again without"}
"""The columns of an audit, as the report calls them."""


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chart:
    title: str
    text: str
    """What there is to see, in words."""
    spec: dict[str, Any]
    table: Table | None = None
    wide: bool = False


# --- federation ---------------------------------------------------------------------------------------------------


def client_sizes(federation: FederationStatistics) -> Chart:
    names = [client.name for client in federation.clients]
    series = [{"name": split, "values": [c.triples[split] for c in federation.clients]} for split in SPLITS]
    totals = [sum(client.triples[split] for split in SPLITS) for client in federation.clients]
    large, small = max(totals), min(totals)
    text = (
        f"{len(names)} clients hold between {small:,} and {large:,} triples; "
        f"{names[totals.index(large)]} is the largest, {large / max(small, 1):.1f} times the smallest."
    )
    return Chart("Triples per client", text, bars(names, series, "triples", stacked=True))


def degree_distributions(federation: FederationStatistics) -> Chart:
    series = []
    for client in federation.clients:
        degrees, shares = log_bins(client.degrees)
        series.append({"name": client.name, "points": list(map(list, zip(degrees, shares, strict=True)))})
    means = ", ".join(f"{client.name} {client.average_degree:.1f}" for client in federation.clients)
    text = f"How many triples mention an entity, on two logarithmic scales. Mean degrees: {means}."
    spec = lines(series, "degree of an entity", "share of entities, per unit", x_log=True, y_log=True)
    return Chart("Degree distributions", text, spec, _points_table(series, "degree", "share"))


# --- convergence --------------------------------------------------------------------------------------------------


def convergence(runs: Sequence[Overview], metric: str, against: str = "round") -> Chart | None:
    """The valid metric of every run and view, against rounds, megabytes or seconds."""
    name = {"mrr": "MRR"}.get(metric, metric.title())
    label, measure = COSTS[against]
    series = []
    for run in runs:
        cost = measure(run)
        for view in views_of(run):
            points = [[cost[e["round"]], e["valid"][view]["weighted"][metric]] for e in run.measured]
            series.append({"name": _series_name(run, view, runs), "points": points, "group": run.label})
    series = [each for each in series if each["points"]]
    if not series:
        return None
    best = max(series, key=lambda each: max(y for _, y in each["points"]))
    x, y = max(best["points"], key=lambda point: point[1])
    text = (
        f"{name} on valid, weighted over clients, {len(series)} lines. "
        f"The best is {best['name']} with {100 * y:.2f} at {label.split(',')[0]} {x:,.4g}."
    )
    spec = lines(series, label, f"valid {name} x 100", scale=100)
    return Chart(f"Valid {name} by {against}", text, spec, _points_table(series, label, f"{name} x 100", scale=100))


def _rounds(run: Overview) -> dict[int, float]:
    return {event["round"]: event["round"] for event in run.events}


def _seconds(run: Overview) -> dict[int, float]:
    return _running(run, lambda event: event["seconds"])


def _megabytes(run: Overview) -> dict[int, float]:
    return _running(run, lambda event: (sum(event["bytes_up"].values()) + sum(event["bytes_down"].values())) / 1e6)


def _running(run: Overview, part: Callable[[dict[str, Any]], float]) -> dict[int, float]:
    totals = accumulate(part(event) for event in run.events)
    return {event["round"]: total for event, total in zip(run.events, totals, strict=True)}


COSTS: dict[str, tuple[str, Callable[[Overview], dict[int, float]]]] = {
    "round": ("round", _rounds),
    "megabytes": ("megabytes, up and down", _megabytes),
    "seconds": ("seconds", _seconds),
}
"""What convergence is drawn against: the axis, and from a run the total after each round."""


def views_of(run: Overview) -> list[str]:
    return list(run.measured[0]["valid"]) if run.measured else []


def _series_name(run: Overview, view: str, runs: Sequence[Overview]) -> str:
    return view if len(runs) == 1 else f"{run.label}: {view}"


# --- entities -----------------------------------------------------------------------------------------------------


def entity_map(found: EntityMap, label: str, *, names: bool) -> Chart:
    shown, there = len(found.client), found.entities
    some = f"{shown:,} of {there:,}, drawn by lot" if shown < there else f"all {shown:,}"
    text = (
        f"The {found.view} rows of the entities of each client ({some}), laid out by t-SNE: what lies together has "
        "like rows. An entity that several clients hold has a point for each."
    )
    series: list[dict[str, Any]] = []
    for number, client in enumerate(found.clients):
        chosen = found.client == number
        each: dict[str, Any] = {"name": client, "xy": found.packed(chosen)}
        if names:
            each["labels"] = [label for label, mine in zip(found.labels, chosen.tolist(), strict=True) if mine]
        series.append(each)
    counts = tuple((each["name"], f"{int((found.client == n).sum()):,}") for n, each in enumerate(series))
    spec = {"kind": "map", "series": series}
    return Chart(f"{label}: entities", text, spec, Table(("client", "points"), counts))


# --- forgetting ---------------------------------------------------------------------------------------------------


def forgetting(audit: dict[str, Any], view: str, metric: str = "hits@1") -> Chart | None:
    """Before, after, and trained again without: on what is forgotten, and on what must not be."""
    states = [state for state in STATES if audit.get(state, {}).get(view)]
    if not states:
        return None
    splits = [split for split in ("forget", "neighbourhood", "retained", "test") if split in audit[states[0]][view]]
    values = {state: [audit[state][view].get(split, {}).get(metric) for split in splits] for state in states}
    series = [{"name": STATES[state], "values": values[state]} for state in states]
    spoken = ", ".join(f"{STATES[s]} {100 * values[s][0]:.1f}" for s in states if values[s][0] is not None)
    text = f"{metric.title()} x 100 by the {view} rows. On the forgotten triples: {spoken}."
    return Chart(f"{metric.title()}, {view}", text, bars(splits, series, f"{metric.title()} x 100", scale=100))


# --- specifications -----------------------------------------------------------------------------------------------


def lines(
    series: list[dict[str, Any]], x: str, y: str, *, x_log: bool = False, y_log: bool = False, scale: float = 1
) -> dict[str, Any]:
    """`series`: name and points [[x, y], ...]; `scale` multiplies what is shown of y."""
    return {
        "kind": "lines",
        "series": series,
        "x": {"label": x, "log": x_log},
        "y": {"label": y, "log": y_log, "scale": scale},
    }


def bars(
    groups: Sequence[str], series: list[dict[str, Any]], y: str, *, stacked: bool = False, scale: float = 1
) -> dict[str, Any]:
    """`series`: name and values, one for each group, null where there is none."""
    return {
        "kind": "bars",
        "groups": list(groups),
        "series": series,
        "stacked": stacked,
        "y": {"label": y, "scale": scale},
    }


def bars_table(spec: dict[str, Any]) -> Table:
    """The numbers of a bar chart."""
    scale = spec["y"]["scale"]
    rows = []
    for number, group in enumerate(spec["groups"]):
        values = [each["values"][number] for each in spec["series"]]
        rows.append((group, *("" if v is None else f"{scale * v:,.2f}" if scale != 1 else f"{v:,}" for v in values)))
    return Table(("", *(each["name"] for each in spec["series"])), tuple(rows))


def _points_table(series: list[dict[str, Any]], x: str, y: str, *, scale: float = 1) -> Table:
    rows = [(each["name"], f"{a:,.4g}", f"{scale * b:.4g}") for each in series for a, b in each["points"]]
    return Table(("line", x, y), tuple(rows))
