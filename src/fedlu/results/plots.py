"""`fedlu plot`: what the report shows, as a figure for a paper; the data is the report's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedlu.errors import InputError
from fedlu.results import charts, figures, prediction
from fedlu.results.audit_charts import audit_of
from fedlu.results.maps import entity_map
from fedlu.results.overview import Overview, federations_of, read

METRICS = ("mrr", "hits@1", "hits@3", "hits@10")


def plot(runs: Sequence[str | Path], what: str, out: str | Path, *, metric: str = "mrr", seed: int = 0) -> None:
    """Draw `what` (convergence, tsne, degrees, forgetting) of runs into a .png, .svg or .pdf file."""
    if what not in KINDS:
        raise InputError(f"no figure {what!r}", remedy=f"choose one of {', '.join(KINDS)}")
    if metric not in METRICS:
        raise InputError(f"no metric {metric!r}", remedy=f"choose one of {', '.join(METRICS)}")
    figures.check_target(Path(out))
    found = read([Path(run) for run in runs])
    figures.save(KINDS[what](found, metric, seed), Path(out))


def _convergence(runs: list[Overview], metric: str, _: int) -> Any:
    chart = charts.convergence(runs, metric)
    if chart is None:
        raise InputError("no round was measured yet", where=runs[0].folder, remedy="wait for the run, or finish it")
    return figures.line_chart(chart.spec)


def _tsne(runs: list[Overview], _: str, seed: int) -> Any:
    maps = [entity_map(prediction.load(run.folder), seed=seed) for run in runs]
    return figures.entity_maps(maps, [run.label for run in runs])


def _degrees(runs: list[Overview], _: str, __: int) -> Any:
    found = federations_of(runs)
    for data in found:
        if data.statistics is None:
            raise InputError(f"cannot be described: {data.missing}", where=data.name, remedy="bring its data back")
    return figures.degree_distributions([data.statistics for data in found if data.statistics is not None])


def _forgetting(runs: list[Overview], metric: str, _: int) -> Any:
    specs, titles = [], []
    for run in runs:
        audit = audit_of(run)
        if audit is None:
            raise InputError("has no audit", where=run.folder, remedy="make one with `fedlu audit`")
        for view in audit.views:
            chart = charts.forgetting(audit.states, view, metric)
            if chart is not None:
                specs.append(chart.spec)
                titles.append(f"{run.label}: {view}")
    if not specs:
        raise InputError(f"no audit measured {metric}", where=runs[0].folder, remedy="choose another --metric")
    return figures.bar_chart(specs, titles)


KINDS = {"convergence": _convergence, "tsne": _tsne, "degrees": _degrees, "forgetting": _forgetting}
