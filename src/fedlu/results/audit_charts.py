"""What the report shows of `audit.json`: the states it compares, its verdicts, and how well the forgotten are known.

An audit may lack parts (no re-training was asked for, the run before was purged): what is there is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fedlu.results import published
from fedlu.results.charts import STATES, Chart, Table, lines
from fedlu.results.overview import Overview


@dataclass(frozen=True)
class Audit:
    states: dict[str, Any]
    """raw, forgotten, retrained -> view -> split -> metrics."""
    views: tuple[str, ...]
    verdicts: Table
    beside_paper: Table
    """Hits@1 of the forgotten and of test; the paper's in brackets, where it has audited the same."""
    distributions: tuple[Chart, ...]
    notes: tuple[str, ...]


def audit_of(run: Overview) -> Audit | None:
    audit = run.audit
    if not isinstance(audit, dict):
        return None
    states = {state: audit[state] for state in STATES if isinstance(audit.get(state), dict)}
    if not states:
        return None
    views = tuple(view for view in ("local", "global") if any(view in found for found in states.values()))
    return Audit(
        states,
        views,
        _verdicts(audit, views),
        _beside_paper(run, states, views),
        tuple(chart for view in views if (chart := _distribution(audit, view)) is not None),
        _notes(audit),
    )


def _verdicts(audit: dict[str, Any], views: tuple[str, ...]) -> Table:
    """What an attacker can tell: 0.5 is a coin; what counts is to be like the model that never saw the triples."""
    states = [state for state in STATES if state in audit.get("membership", {})]
    rows = []
    for view in views:
        cells = [_attack(audit["membership"][state].get(view)) for state in states]
        rows.append((view, audit.get("verdict", {}).get(view, "–"), *cells))
    return Table(("rows", "verdict", *(f"attack, {STATES[state]}" for state in states)), tuple(rows))


def _attack(found: dict[str, Any] | None) -> str:
    if not found or found.get("auc") is None:
        return "–"
    between = "" if found.get("low") is None else f" ({found['low']:.2f} to {found['high']:.2f})"
    return f"{found['auc']:.3f}{between}"


def _distribution(audit: dict[str, Any], view: str) -> Chart | None:
    """How well triples are known: the forgotten in each state, and true ones that were never learned."""
    series: list[dict[str, Any]] = []
    for state, words in STATES.items():
        found = audit.get("membership", {}).get(state, {}).get(view, {}).get("shares")
        if not found:
            continue
        edges = found["edges"]
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        sets = {"members": f"forgotten triples, {words}"}
        if state == "forgotten":
            sets["others"] = "true triples never learned"
        for key, name in sets.items():
            series.append({"name": name, "points": [list(p) for p in zip(middles, found[key], strict=True)]})
    if not series:
        return None
    text = (
        f"How well the {view} rows know triples: the log of a triple's share among other entities; further right is "
        "better known. Forgotten well, the forgotten look like true triples that were never learned."
    )
    spec = lines(series, "how well a triple is known", "share of the triples x 100", scale=100)
    rows = [(each["name"], f"{x:.2f}", f"{100 * y:.1f}") for each in series for x, y in each["points"]]
    table = Table(("triples", "known", "share x 100"), tuple(rows))
    return Chart(f"How well they are known, {view}", text, spec, table)


def _beside_paper(run: Overview, states: dict[str, Any], views: tuple[str, ...]) -> Table:
    before = (run.audit or {}).get("hashes", {}).get("data before", "")
    rows = []
    for view in views:
        for split in ("forget", "test"):
            cells = []
            for state in states:
                ours = states[state].get(view, {}).get(split, {}).get("hits@1")
                theirs = published.forgotten(before, run.settings["model"], state, view, split)
                beside = f" ({100 * theirs['hits@1']:.2f})" if theirs else ""
                cells.append("–" if ours is None else f"{100 * ours:.2f}{beside}")
            rows.append((view, split, *cells))
    return Table(("rows", "triples", *(STATES[state] for state in states)), tuple(rows))


def _notes(audit: dict[str, Any]) -> tuple[str, ...]:
    notes = []
    reach = audit.get("reach", {})
    if reach:
        notes.append(
            f"{reach.get('asked', 0):,} triples were to be forgotten; {reach.get('deducible', 0):,} of them can still "
            "be deduced from what is kept, which no forgetting can reach."
        )
    cost = audit.get("cost", {})
    if cost.get("forgetting seconds") is not None:
        again = cost.get("retraining seconds")
        beside = "" if again is None else f"; training again without them took {again:,.1f}"
        notes.append(f"Forgetting took {cost['forgetting seconds']:,.1f} seconds{beside}.")
    for state, reason in audit.get("absent", {}).items():
        notes.append(f"There is no column “{STATES.get(state, state)}”: {reason}.")
    if audit.get("statement"):
        notes.append(str(audit["statement"]))
    return tuple(notes)
