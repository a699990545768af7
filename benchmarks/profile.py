"""Where does the time of a real run go? A few rounds of FedLU on a federation, from the first draw to the checkpoint.

python -m benchmarks.profile C3 --model TransE
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fedlu
from benchmarks.report import report
from fedlu.embedding import scorers
from fedlu.embedding.negatives import Sampler
from fedlu.federated.client import Client
from fedlu.federated.server import Server
from fedlu.learning import local_training
from fedlu.learning.local_training import Learner, Pass, Teaching
from fedlu.results import checkpoints

PARTS: list[tuple[str, Any, str]] = [
    ("sampling", Sampler, "batch"),
    ("gather", local_training, "take_rows"),
    ("score", scorers.Fused, "forward"),
    ("loss", Learner, "predict"),
    ("loss", Teaching, "add"),
    ("gradients", Pass, "backward"),
    ("update", Learner, "apply"),
    ("update", Learner, "_apply_relations"),
    ("evaluation", Client, "measure"),
    ("aggregation", Server, "aggregate"),
    ("checkpoint", checkpoints, "save"),
]
"""None of them is called within another, but for scores while evaluating, which are `compare_all`'s."""


def timed(function: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    def wrapper(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            spent[part] += time.perf_counter() - start

    return wrapper


def seconds_by_part(federation: str | Path, **settings: Any) -> dict[str, float]:
    """Of a whole run, from reading the data to the last ranking; "all else" is what no part has.

    By a clock of its own: the seconds that a run reports are of its rounds, and checkpoints are written between them.
    """
    spent: dict[str, float] = defaultdict(float)
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for part, owner, name in PARTS:
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name), part, spent)))
        start = time.perf_counter()
        fedlu.learn(federation, out=Path(folder) / "run", **settings)
        whole = time.perf_counter() - start
    return {**spent, "all else": whole - sum(spent.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("federation")
    parser.add_argument("--model", default="TransE")
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    spent = seconds_by_part(asked.federation, model=asked.model, rounds=asked.rounds)
    whole = sum(spent.values())
    rows: list[dict[str, object]] = [
        {"part": part, "seconds": seconds, "share": seconds / whole} for part, seconds in spent.items()
    ]
    report(f"profile-{asked.model}", rows, federation=asked.federation, rounds=asked.rounds, seconds=whole)


if __name__ == "__main__":
    main()
