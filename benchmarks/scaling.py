"""How does a mutual TransE step scale with triples, entities and dimension, and how much memory does it take?

In a process without PyKEEN's loop or plain PyTorch, so that the peak of memory is ours: it may be at most four times
the embedding tables and 1 GB.

    python -m benchmarks.scaling
"""

from __future__ import annotations

import resource

from benchmarks.report import report
from benchmarks.training import DIMENSION, ENTITIES, TRIPLES, our_step

SIZES = [
    (TRIPLES, ENTITIES, DIMENSION),
    (1_000_000, ENTITIES, DIMENSION),
    (5_000_000, ENTITIES, DIMENSION),
    (TRIPLES, ENTITIES, 64),
    (TRIPLES, ENTITIES, 128),
    (TRIPLES, ENTITIES, 512),
    (TRIPLES, 100_000, DIMENSION),
    (TRIPLES, 1_000_000, DIMENSION),
]
"""From small to large, since the peak is of the process so far."""


def main() -> None:
    rows: list[dict[str, object]] = []
    base = 0.0
    for triples, entities, dimension in SIZES:
        speed = our_step("TransE", private=False, mutual=True, triples=triples, entities=entities, dimension=dimension)
        base = base or speed
        tables = 2 * entities * dimension * 4 / 1e9
        rows.append(
            {
                "triples": triples,
                "entities": entities,
                "dimension": dimension,
                "triples/s": speed,
                "relative": speed / base,
                "peak GB so far": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
                "two tables GB": tables,
                "allowed GB": 4 * tables + 1,
            }
        )
    report("scaling", rows, unit="mutual TransE step, batch 512, 256 negatives")


if __name__ == "__main__":
    main()
