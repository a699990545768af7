"""How fast is a training step, against the same step written plainly with PyTorch, and against PyKEEN's loop?

One run, one machine: batch 512, 256 negatives, dimension 256, a client with as many entities as the largest of C3.

- mutual: both tables updated on a batch. Plainly: as the paper's algorithm reads, with PyTorch (`plainly.py`). Ours:
  shared negatives (the default), and private ones.
- plain: one table, against PyKEEN's own training loop (sLCWA, self-adversarial loss, Adam).
- the share of the machine's measured peak; `scaling.py` goes on with sizes and memory.

    python -m benchmarks.training
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from pykeen.losses import NSSALoss
from pykeen.models import ComplEx, RotatE, TransE
from pykeen.sampling import BasicNegativeSampler
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import CoreTriplesFactory

from benchmarks.report import report
from fedlu.config import Settings
from fedlu.embedding.distance_kernels import l1_distances
from fedlu.embedding.models import model_of
from fedlu.embedding.negatives import Sampler
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import Side
from fedlu.embedding.scorers import matrix_product, shape_of
from fedlu.federated.client import learner_of
from fedlu.learning.local_training import Teaching

BATCH, NEGATIVES, DIMENSION, ENTITIES, RELATIONS, TRIPLES = 512, 256, 256, 12_110, 127, 100_000
TEACHING = Teaching(local=0.5, avatar=0.5, temperature=1.0, relations_from_both=True)
GOALS = {"TransE": 80, "ComplEx": 200, "RotatE": 300}


def per_second(step: Callable[[], object], triples: int, *, seconds: float = 3.0, warm: int = 2) -> float:
    """Triples per second: the median step of at least `seconds`, after a warm-up that compiles."""
    for _ in range(warm):
        step()
    times: list[float] = []
    while sum(times) < seconds and len(times) < 200:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return triples / float(np.median(times))


def random_triples(entities: int, number: int = TRIPLES) -> np.ndarray:
    random = np.random.default_rng(0)
    rows = random.integers(0, [entities, RELATIONS, entities], size=(number, 3))
    return np.unique(rows, axis=0).astype(np.int32)


def our_step(
    model: str,
    *,
    private: bool,
    mutual: bool,
    entities: int = ENTITIES,
    dimension: int = DIMENSION,
    triples: int = TRIPLES,
) -> float:
    """Everything a real step does: drawing, masking, scoring, slopes, gradients, updates."""
    settings = Settings(model=model, dimension=dimension, negatives=NEGATIVES, batch_size=BATCH)
    made = model_of(model, dimension=dimension, margin=10.0)
    learner, random, shape = learner_of(settings, made, RELATIONS), np.random.default_rng(1), shape_of(model)
    sampler = Sampler.of(random_triples(entities, triples), entities, RELATIONS, weighted=True, private=private)

    def table(rows: int, width: int) -> Table:
        return Table(random.uniform(-0.05, 0.05, size=(rows, width * dimension)).astype(np.float32))

    local, avatar = table(entities, shape.entity_width), table(entities, shape.entity_width)
    relations = table(RELATIONS, shape.relation_width)

    def step() -> None:
        chosen = random.choice(len(sampler.triples), size=BATCH, replace=False)
        batch = sampler.batch(chosen, Side(int(random.integers(2))), random, NEGATIVES)
        if mutual:
            learner.mutual_step(local, avatar, relations, batch, TEACHING)
        else:
            learner.plain_step(local, relations, batch)

    return per_second(step, BATCH)


def plain_torch_step(model: str) -> float:
    """See `benchmarks/plainly.py`; in a process of its own, with nothing of what fedlu asks of OpenMP."""
    command = [sys.executable, "-m", "benchmarks.plainly", model]
    plain = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    return float(subprocess.run(command, env=plain, check=True, capture_output=True, text=True).stdout)


def pykeen_loop(model: str) -> float:
    """PyKEEN's training loop on a few batches, its own negatives and loss."""
    logging.disable(logging.WARNING)
    batches = 2
    factory = CoreTriplesFactory.create(
        torch.from_numpy(random_triples(ENTITIES)[: BATCH * batches].astype(np.int64)),
        num_entities=ENTITIES,
        num_relations=RELATIONS,
    )
    kind = {"TransE": TransE, "ComplEx": ComplEx, "RotatE": RotatE}[model]
    options = {"scoring_fct_norm": 1} if model == "TransE" else {}
    net = kind(triples_factory=factory, embedding_dim=DIMENSION, loss=NSSALoss(), random_seed=0, **options)
    loop = SLCWATrainingLoop(
        model=net,
        triples_factory=factory,
        optimizer=torch.optim.Adam(net.parameters(), lr=1e-3),
        negative_sampler=BasicNegativeSampler,
        negative_sampler_kwargs={"num_negs_per_pos": NEGATIVES},
    )
    start = time.perf_counter()
    loop.train(factory, num_epochs=1, batch_size=BATCH, use_tqdm=False, use_tqdm_batch=False)
    return BATCH * batches / (time.perf_counter() - start)


def share_of_peak() -> dict[str, float]:
    """The inner kernel against what the machine can do, each measured here."""
    random = np.random.default_rng(0)
    big = random.normal(size=(2048, 2048)).astype(np.float32)
    peak = 2 * 2048**3 * per_second(lambda: matrix_product(big, big), 1, seconds=1.0)
    queries, entities = (random.normal(size=(n, 2 * DIMENSION)).astype(np.float32) for n in (BATCH, NEGATIVES))
    product = (
        2 * BATCH * NEGATIVES * 2 * DIMENSION * per_second(lambda: matrix_product(queries, entities.T), 1, seconds=1.0)
    )
    q, e = queries[:, :DIMENSION].copy(), entities[:, :DIMENSION].copy()
    pairs = 3 * BATCH * NEGATIVES * DIMENSION * per_second(lambda: l1_distances(q, e), 1, seconds=1.0)
    return {
        "peak GFLOP/s": peak / 1e9,
        "ComplEx comparison, share of peak": product / peak,
        "L1 comparison, 3 operations a number, share of peak": pairs / peak,
    }


def main() -> None:
    warnings.simplefilter("ignore")
    rows: list[dict[str, object]] = []
    for model in ("TransE", "ComplEx", "RotatE"):
        plainly = plain_torch_step(model)
        shared, private = (our_step(model, private=each, mutual=True) for each in (False, True))
        single, pykeen = our_step(model, private=False, mutual=False), pykeen_loop(model)
        rows.append(
            {
                "model": model,
                "PyTorch": plainly,
                "mutual": shared,
                "ratio": shared / plainly,
                "goal": GOALS[model],
                "private": private,
                "private ratio": private / plainly,
                "one table": single,
                "PyKEEN": pykeen,
                "PyKEEN ratio": single / pykeen,
            }
        )
    report("training", rows, unit="triples per second, batch 512, 256 negatives, dimension 256", **share_of_peak())


if __name__ == "__main__":
    main()
