"""The paper's figures for the federations it publishes, which are known by their fingerprints, wherever they lie.

The paper prints percent; here they are fractions, as everywhere. It says "local" and "global" of FedLU alone: its
independent clients are local, and what its rivals share is global.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

FEDERATIONS = {
    "7a3e1916864e28586ccaa2932708cb6f7340e51bc8561f4dd6bbffcc73fcad76": "C3",
    "bc87e235a084b60deae8c24c9a9394a79376b631383a4fcc0829d333ba45304b": "R3",
}
"""Fingerprint of a published split of FB15k-237 -> its name in the paper."""

Figures = dict[str, float]
"""By metric: mrr, hits@1, hits@3, hits@10, as far as printed."""


def name_of(fingerprint: str) -> str | None:
    """What the paper calls a federation, if it is one of its own."""
    return FEDERATIONS.get(fingerprint)


def learned(fingerprint: str, model: str, method: str, view: str) -> Figures:
    """On test, the mean weighted by triples; empty where the paper says nothing."""
    return _table().get(("learning", name_of(fingerprint) or "", model, method, view, "test"), {})


def forgotten(fingerprint: str, model: str, state: str, view: str, split: str) -> Figures:
    """Before (raw), after (forgotten), and trained again without (retrained); on the forget or the test sets."""
    return _table().get(("forgetting", name_of(fingerprint) or "", model, state, view, split), {})


@cache
def _table() -> dict[tuple[str, ...], Figures]:
    text = resources.files("fedlu.results").joinpath("paper.csv").read_text(encoding="utf-8")
    found = {}
    for row in csv.reader(text.splitlines()[1:]):
        metrics = zip(("mrr", "hits@1", "hits@3", "hits@10"), row[6:], strict=True)
        found[tuple(row[:6])] = {name: float(value) / 100 for name, value in metrics if value}
    return found


def printed(table: str, name: str, model: str, row: str, view: str, split: str) -> Figures:
    """As the paper prints it of a federation that it names: C3, C5, C10, R3, R5, R10; empty where it says nothing.

    `table` is learning (rows are methods), forgetting (raw, forgotten, retrained) or ablation (whole, without hard,
    without soft).
    """
    return _table().get((table, name, model, row, view, split), {})


def names() -> tuple[str, ...]:
    """The federations that the paper has figures of."""
    return tuple(dict.fromkeys(key[1] for key in _table()))
