"""What a client is measured by: triples to rank, and against what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.ranking import FilterIndex
from fedlu.graph.federation import ClientGraph
from fedlu.graph.triples import Triples


@dataclass(frozen=True)
class Exam:
    """Triples to rank, by split, and against what: a client has one of its own, the centralized one has everybody's."""

    name: str
    splits: dict[str, Triples]
    known: FilterIndex
    candidates: NDArray[np.int32] | None = None


def own_exam(graph: ClientGraph) -> Exam:
    entities, relations = len(graph.vocabulary.entities), len(graph.vocabulary.relations)
    known = FilterIndex.of(graph.known, entities, relations)
    return Exam(graph.name, {"valid": graph.valid, "test": graph.test}, known)
