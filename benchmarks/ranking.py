"""How fast is our ranking against PyKEEN's evaluator, on the same model, scores and filter?

A client of the size of the largest in FB15k-237-C3: 12,110 entities, 127 relations, 239,800 triples of which 23,980 are
ranked, DistMult of dimension 256. PyKEEN is given its best batch size of those tried, and a sample of the triples: all
would take minutes: its time is proportional to their number, as it compares each with every known triple.

    python -m benchmarks.ranking [--all]
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import DistMult
from pykeen.triples import CoreTriplesFactory

from benchmarks.report import report
from fedlu.embedding.ranking import FilterIndex, Queries, rank, summarize

ENTITIES, RELATIONS, KNOWN, RANKED, DIMENSION = 12_110, 127, 239_800, 23_980, 256


def random_triples() -> np.ndarray:
    """(KNOWN, 3): ends and relations of Zipf's popularity, so that some questions have very many known answers."""
    random = np.random.default_rng(0)

    def popular(number: int, size: int) -> np.ndarray:
        weights = 1 / (10 + np.arange(number))
        return random.choice(number, size=size, p=weights / weights.sum())

    size = KNOWN * 2
    rows = np.stack([popular(ENTITIES, size), popular(RELATIONS, size), popular(ENTITIES, size)], axis=1)
    return random.permutation(np.unique(rows, axis=0))[:KNOWN]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--all", action="store_true", help="let PyKEEN rank all triples too (minutes)")
    everything = parser.parse_args().all
    warnings.simplefilter("ignore")
    known = random_triples()
    ranked = known[:RANKED]
    factory = CoreTriplesFactory.create(torch.from_numpy(known), num_entities=ENTITIES, num_relations=RELATIONS)
    model = DistMult(triples_factory=factory, embedding_dim=DIMENSION, random_seed=0)
    entities = model.entity_representations[0]().detach()  # (entities, dim)
    relations = model.relation_representations[0]().detach()  # (relations, dim)

    def score(queries: Queries) -> torch.Tensor:
        return (entities[queries.anchors] * relations[queries.relations]) @ entities.T  # (batch, entities)

    def ours(triples: np.ndarray) -> tuple[float, dict[str, float]]:
        start = time.perf_counter()
        found = summarize(rank(score, triples, FilterIndex.of(known, ENTITIES, RELATIONS)))
        return time.perf_counter() - start, found

    def pykeen(triples: np.ndarray, batch_size: int) -> tuple[float, float]:
        evaluator = RankBasedEvaluator(filtered=True)
        start = time.perf_counter()
        result = evaluator.evaluate(
            model,
            torch.from_numpy(triples),
            additional_filter_triples=torch.from_numpy(known),
            batch_size=batch_size,
            use_tqdm=False,
        )
        return time.perf_counter() - start, result.get_metric("both.realistic.inverse_harmonic_mean_rank")

    ours(ranked[:64])  # compiles the kernel
    pykeen(ranked[:64], 64)
    mine, found = ours(ranked)
    sizes = {size: pykeen(ranked[:256], size)[0] / 256 for size in (16, 64, 256)}
    best = min(sizes, key=sizes.__getitem__)
    sample = ranked if everything else ranked[:2048]
    theirs, theirs_mrr = pykeen(sample, best)
    again, found_sample = ours(sample)
    assert abs(found_sample["mrr"] - theirs_mrr) < 1e-6, "the two rankings disagree"
    per_second = {"fedlu": RANKED / mine, "pykeen": len(sample) / theirs}
    rows = [
        {"evaluator": "fedlu", "triples": RANKED, "seconds": mine, "triples/s": per_second["fedlu"]},
        {"evaluator": "pykeen", "triples": len(sample), "seconds": theirs, "triples/s": per_second["pykeen"]},
    ]
    ratio = per_second["fedlu"] / per_second["pykeen"]
    same = theirs / again
    report(
        "ranking",
        rows,
        ratio=round(ratio, 1),
        ratio_on_the_same_sample=round(same, 1),
        pykeen_batch_size=best,
        mrr=round(found["mrr"], 6),
        goal="ratio >= 5",
    )


if __name__ == "__main__":
    main()
