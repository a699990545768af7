"""The report: runs side by side in one HTML file that opens anywhere, offline, and holds no triple.

What is drawn comes from `charts.py`, the page from `pages/`; here they are put together. Every name is escaped by the
template, whatever it holds.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import fedlu
from fedlu.errors import FedluError, InputError
from fedlu.graph.statistics import FederationStatistics
from fedlu.results import charts, prediction, published
from fedlu.results.audit_charts import Audit, audit_of
from fedlu.results.charts import Chart, Table
from fedlu.results.maps import entity_map
from fedlu.results.overview import Data, Overview, federations_of, read

METRICS = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10"}


def report(
    runs: Sequence[str | Path], out: str | Path, *, maps: bool = True, names: bool = False, seed: int = 0
) -> dict[str, Any]:
    """Write a report of one or more runs, and return what it says of them, as the template gets it.

    `maps` draws the entities of each finished run (the first time, that takes a while); `names` puts the entities'
    names into the map, for readers who may see them.
    """
    out = Path(out)
    check_target(out)
    found = read([Path(run) for run in runs])
    content = _content(found, names=names)
    content["maps"], content["map_notes"] = _maps(found, names=names, seed=seed) if maps else ([], [])
    page = _render(content)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.with_name(f".{out.name}.part")
    try:
        scratch.write_text(page, encoding="utf-8", errors="replace")
        scratch.replace(out)
    finally:
        scratch.unlink(missing_ok=True)
    return content


def check_target(out: Path) -> None:
    """Refuse early what writing would refuse in the end."""
    if out.is_dir():
        raise InputError("is a folder", where=out, remedy="choose another name for the report")
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"unknown kind of report {out.suffix!r}", where=out, remedy="end it in .html")


def asset(name: str) -> str:
    """A file of the package's `pages`."""
    return resources.files("fedlu").joinpath("pages", name).read_text(encoding="utf-8")


def _render(content: dict[str, Any]) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    ours = {"look": Markup(asset("look.css")), "script": Markup(asset("charts.js"))}  # noqa: S704, files of the package
    return environment.from_string(asset("report.html")).render(**content, **ours)


def _content(runs: list[Overview], *, names: bool) -> dict[str, Any]:
    finished = [run for run in runs if run.metrics is not None]
    audits = [(run, audit_of(run)) for run in runs if run.audit is not None]
    curves = [charts.convergence(runs, metric, against) for metric, against in CURVES]
    return {
        "title": _title(runs),
        "subtitle": _subtitle(runs),
        "summary": _summary(finished),
        "notes": [
            f"{run.label} is under way: {_length(run)} so far, no final figures yet."
            for run in runs
            if run.metrics is None
        ],
        "results": results_table(finished),
        "paper": any(published.name_of(run.config["fingerprint"]) for run in finished),
        "by_client": _by_client(finished),
        "convergence": [curve for curve in curves if curve is not None],
        "audits": [_audit_section(run, audit) for run, audit in audits if audit is not None],
        "federations": [_federation(data) for data in federations_of(runs)],
        "facts": _facts(runs),
        "settings": _settings(runs),
        "names": names,
        "version": fedlu.__version__,
        "when": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


CURVES = (("mrr", "round"), ("hits@1", "round"), ("mrr", "megabytes"), ("mrr", "seconds"))


# --- results ------------------------------------------------------------------------------------------------------


def _title(runs: list[Overview]) -> str:
    if len(runs) == 1:
        return f"{runs[0].label}: {runs[0].settings['method']}, {runs[0].settings['model']}"
    return f"{len(runs)} runs: {', '.join(run.label for run in runs)}"


def _subtitle(runs: list[Overview]) -> str:
    federations = list(dict.fromkeys(run.config["federation"] for run in runs))
    return f"Embeddings of the federation {', '.join(federations)} after {', '.join(map(_length, runs))}."


def _length(run: Overview) -> str:
    return f"{len(run.cycles)} cycles of forgetting" if run.cycles else f"{len(run.events)} rounds"


def _summary(runs: list[Overview]) -> str:
    rows = [(run, view, found["weighted"]) for run in runs for view, found in (run.metrics or {})["test"].items()]
    if not rows:
        return "No run is finished yet."
    run, view, best = max(rows, key=lambda row: float(row[2]["mrr"]))
    where = f"the {view} predictions of {run.label}" if len(runs) > 1 else f"the {view} predictions"
    return (
        f"Asked for the missing end of a test triple, {where} put the right entity first {100 * best['hits@1']:.1f} "
        f"times in a hundred, and among the first ten {100 * best['hits@10']:.1f} times (MRR {best['mrr']:.4f}), "
        f"in {best['count']:,} triples asked both ways."
    )


def results_table(runs: list[Overview]) -> dict[str, Any]:
    """A row per run and view: ours, and the paper's where the data is a published one."""
    rows = []
    for run in runs:
        settings = run.settings
        for view, found in (run.metrics or {})["test"].items():
            theirs = published.learned(run.config["fingerprint"], settings["model"], settings["method"], view)
            values = {metric: found["weighted"][metric] for metric in METRICS}
            rows.append(
                {"label": run.label, "method": settings["method"], "model": settings["model"], "view": view}
                | {"values": values, "theirs": theirs}
            )
    best = {metric: max(row["values"][metric] for row in rows) for metric in METRICS} if rows else {}
    for row in rows:
        row["cells"] = [
            {
                "ours": f"{100 * row['values'][metric]:.2f}",
                "paper": f"{100 * row['theirs'][metric]:.2f}" if metric in row["theirs"] else "",
                "best": row["values"][metric] == best[metric],
            }
            for metric in METRICS
        ]
    return {"metrics": list(METRICS.values()), "rows": rows}


def _by_client(runs: list[Overview]) -> Table:
    tests = [(run, view, found) for run in runs for view, found in (run.metrics or {})["test"].items()]
    names = list(dict.fromkeys(name for _, _, found in tests for name in found["clients"]))
    rows = []
    for run, view, found in tests:
        each = (found["clients"].get(name, {}).get("mrr") for name in names)
        cells = ("" if value is None else f"{100 * value:.2f}" for value in each)
        rows.append((run.label, view, *cells, f"{100 * found['mean']['mrr']:.2f}"))
    return Table(("run", "rows", *names, "plain mean"), tuple(rows))


# --- forgetting ---------------------------------------------------------------------------------------------------


def _audit_section(run: Overview, audit: Audit) -> dict[str, Any]:
    shown = [charts.forgetting(audit.states, view) for view in audit.views]
    drawn = [_with_table(chart) for chart in shown if chart is not None]
    return {
        "label": run.label,
        "verdicts": audit.verdicts,
        "beside_paper": audit.beside_paper,
        "charts": [*drawn, *audit.distributions],
        "notes": audit.notes,
    }


def _with_table(chart: Chart) -> Chart:
    return Chart(chart.title, chart.text, chart.spec, charts.bars_table(chart.spec), chart.wide)


# --- federation ---------------------------------------------------------------------------------------------------


def _federation(data: Data) -> dict[str, Any]:
    head = {"name": data.name, "published": published.name_of(data.fingerprint), "missing": data.missing}
    if data.statistics is None:
        return head
    found = data.statistics
    names = [client.name for client in found.clients]
    sizes = charts.client_sizes(found)
    overlap = []
    for row, name in zip(found.entity_overlap, names, strict=True):
        largest = max(max(each) for each in found.entity_overlap) or 1
        overlap.append(
            {"name": name, "cells": [{"count": f"{count:,}", "share": f"{count / largest:.3f}"} for count in row]}
        )
    return head | {
        "names": names,
        "text": _federation_text(found),
        "sizes": _client_table(found),
        "overlap": overlap,
        "charts": [_with_table(sizes), charts.degree_distributions(found)],
    }


def _federation_text(found: FederationStatistics) -> str:
    shared = sum(count for number, count in found.owners.items() if number > 1)
    return (
        f"{len(found.clients)} clients, {found.entities:,} entities of which {shared:,} have more than one owner, "
        f"{found.relations:,} relations. Two clients have {found.mean_entity_overlap:,.0f} entities and "
        f"{found.mean_relation_overlap:,.0f} relations in common, on average."
    )


def _client_table(found: FederationStatistics) -> Table:
    columns = ("client", "entities", "relations", "train", "valid", "test", "forget", "mean degree", "clustering")
    rows = tuple(
        (
            client.name,
            *(f"{n:,}" for n in (client.entities, client.relations, *client.triples.values())),
            f"{client.average_degree:.2f}",
            f"{client.clustering_coefficient:.3f}",
        )
        for client in found.clients
    )
    return Table(columns, rows)


# --- entities -----------------------------------------------------------------------------------------------------


def _maps(runs: list[Overview], *, names: bool, seed: int) -> tuple[list[Chart], list[str]]:
    """A map for every run that can be loaded; for the others, why not."""
    drawn, notes = [], []
    for run in runs:
        try:
            found = entity_map(prediction.load(run.folder), seed=seed)
        except FedluError as refusal:
            notes.append(f"{run.label} cannot be mapped: {refusal}")
            continue
        drawn.append(charts.entity_map(found, run.label, names=names))
    return drawn, notes


# --- facts --------------------------------------------------------------------------------------------------------


def _facts(runs: list[Overview]) -> Table:
    rows: list[tuple[str, ...]] = []

    def add(name: str, values: list[object]) -> None:
        rows.append((name, *(str(value) for value in values)))

    add("recipe", [run.config["recipe"] for run in runs])
    add("federation", [run.config["federation"] for run in runs])
    add("fingerprint of the data", [run.config["fingerprint"][:16] for run in runs])
    add("took", [_length(run) for run in runs])
    add("best rounds", [_best_rounds(run) for run in runs])
    add("seconds", [f"{sum(event['seconds'] for event in (*run.events, *run.cycles)):,.1f}" for run in runs])
    add("megabytes up and down", [_megabytes(run) for run in runs])
    add("learned by fedlu", [run.config.get("fedlu", "") for run in runs])
    here = f"Python {platform.python_version()}, " + ", ".join(f"{n} {version(n)}" for n in ("numpy", "numba", "torch"))
    add("reported with", [here] * len(runs))
    return Table(("", *(run.label for run in runs)), tuple(rows))


def _best_rounds(run: Overview) -> str:
    best = (run.metrics or {}).get("best_round", {})
    return ", ".join(f"{view} {number}" for view, number in best.items()) or "–"


def _megabytes(run: Overview) -> str:
    events = (*run.events, *run.cycles)
    up, down = (sum(sum(event[way].values()) for event in events) / 1e6 for way in ("bytes_up", "bytes_down"))
    return f"{up:,.1f} and {down:,.1f}"


def _settings(runs: list[Overview]) -> Table:
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    rows = tuple((key, *(str(run.settings.get(key, "")) for run in runs)) for key in keys)
    return Table(("setting", *(run.label for run in runs)), rows)
