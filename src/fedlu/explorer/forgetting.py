"""Forgetting from the page: one request at a time, its progress, and the ranks before and after.

The run that is explored is never changed: the forgotten one is written beside it, and looked at from then on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fedlu
from fedlu.errors import FedluError, InputError
from fedlu.explorer.answers import rank_of
from fedlu.results import prediction
from fedlu.results.prediction import LearnedRun

MOST_TRIPLES = 200

Triple = tuple[str, str, str]
Forget = Callable[..., Any]


@dataclass
class Forgetting:
    """A request: waiting, working, done or failed."""

    client: str
    triples: tuple[Triple, ...]
    out: Path
    state: str = "working"
    steps: int = 0
    message: str = "reading the run"
    before: list[dict[str, Any]] = field(default_factory=list)
    after: list[dict[str, Any]] = field(default_factory=list)
    run: LearnedRun | None = None

    def told(self) -> dict[str, Any]:
        """For JSON."""
        ranks = []
        if self.state == "done":
            ranks = [
                {"head": h, "relation": r, "tail": t, "before": before, "after": after}
                for (h, r, t), before, after in zip(self.triples, self.before, self.after, strict=True)
            ]
        return {
            "state": self.state,
            "steps": self.steps,
            "message": self.message,
            "run": str(self.out) if self.state == "done" else None,
            "ranks": ranks,
        }


def request(run: LearnedRun, client: str, triples: Sequence[Triple]) -> Forgetting:
    """Check that the client learned these triples, and choose where the new run goes."""
    desk = run.desk(client)
    if not 1 <= len(triples) <= MOST_TRIPLES:
        raise InputError(f"{len(triples)} triples", remedy=f"choose 1 to {MOST_TRIPLES}")
    for h, r, t in triples:
        if rank_of(run, client, h, r, t)["known"] != "train":
            raise InputError(f"{client} has not learned ({h}, {r}, {t})", remedy="choose triples of its train split")
    numbers = range(1, 10_000)
    out = next(p for n in numbers if not (p := run.folder.with_name(f"{run.folder.name}-forgotten-{n}")).exists())
    return Forgetting(desk.graph.name, tuple(triples), out)


def carry_out(job: Forgetting, run: LearnedRun, forget: Forget | None = None) -> None:
    """The whole of it, in a thread of its own; what goes wrong is told in the job."""
    forget = forget or fedlu.forget
    try:
        job.before = [rank_of(run, job.client, *triple) for triple in job.triples]
        with tempfile.TemporaryDirectory() as folder:  # the request is gone with it
            path = Path(folder) / "forget.tsv"
            path.write_text("".join("\t".join(triple) + "\n" for triple in job.triples), encoding="utf-8")

            def watch(*_: object) -> None:
                job.steps += 1
                job.message = f"forgetting, cycle {job.steps}"

            job.message = "forgetting"
            forget(run.folder, job.out, triples=path, client=job.client, watch=watch)
        job.message = "looking again"
        job.run = prediction.load(job.out)
        job.after = [rank_of(job.run, job.client, *triple) for triple in job.triples]
        job.state, job.message = "done", f"forgotten; the run is in {job.out}"
    except FedluError as refusal:
        job.state, job.message = "failed", str(refusal)
    except Exception as trouble:  # a thread has nobody else to tell
        job.state, job.message = "failed", f"{type(trouble).__name__}: {trouble}"
