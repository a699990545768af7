"""Where does the time of a real run go? A few rounds of FedLU on a federation, from the first draw to the checkpoint.

python -m benchmarks.profile C3 --model TransE
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedlu
from benchmarks.report import report
from fedlu.embedding import scorers
from fedlu.embedding.negatives import Sampler
from fedlu.federated.client import Client
from fedlu.federated.server import Server
from fedlu.learning import local_training
from fedlu.learning.local_training import Learner, Pass, Teaching
from fedlu.results import runs

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
    ("checkpoint", runs, "save_checkpoint"),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("federation")
    parser.add_argument("--model", default="TransE")
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    spent: dict[str, float] = defaultdict(float)
    for part, owner, name in PARTS:
        setattr(owner, name, timed(getattr(owner, name), part, spent))
    with tempfile.TemporaryDirectory() as folder:
        metrics = fedlu.learn(asked.federation, model=asked.model, rounds=asked.rounds, out=Path(folder) / "run")
    whole = sum(metrics["seconds"].values())
    spent["all else"] = whole - sum(spent.values())
    rows: list[dict[str, object]] = [
        {"part": part, "seconds": seconds, "share": seconds / whole} for part, seconds in spent.items()
    ]
    report(f"profile-{asked.model}", rows, federation=asked.federation, rounds=asked.rounds, seconds=whole)


if __name__ == "__main__":
    main()
