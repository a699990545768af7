"""What the report shows of `audit.json`: the states it compares, its verdicts, and how scores are distributed.

An audit may lack parts (no re-training was asked for, an older version): what is there is shown, the rest is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedlu.results import published
from fedlu.results.charts import STATES, Chart, Table
from fedlu.results.overview import Overview


@dataclass(frozen=True)
class Audit:
    states: dict[str, Any]
    """raw, forgotten, retrained -> view -> split -> metrics."""
    views: tuple[str, ...]
    verdicts: Table
    distributions: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = field(default=())


def audit_of(run: Overview) -> Audit | None:
    audit = run.audit
    if not isinstance(audit, dict) or not isinstance(audit.get("raw"), dict):
        return None
    states = {state: audit[state] for state in STATES if isinstance(audit.get(state), dict)}
    views = tuple(view for view in ("local", "global") if view in states["raw"])
    return Audit(states, views, _against_paper(run, states, views))


def _against_paper(run: Overview, states: dict[str, Any], views: tuple[str, ...]) -> Table:
    """Hits@1 of what was forgotten and of test, ours and the paper's."""
    rows = []
    for view in views:
        for split in ("forget", "test"):
            cells = []
            for state in states:
                ours = states[state].get(view, {}).get(split, {}).get("hits@1")
                theirs = published.forgotten(run.config["fingerprint"], run.settings["model"], state, view, split)
                beside = f" ({100 * theirs['hits@1']:.2f})" if theirs else ""
                cells.append("–" if ours is None else f"{100 * ours:.2f}{beside}")
            rows.append((view, split, *cells))
    return Table(("rows", "triples", *(STATES[state] for state in states)), tuple(rows))
