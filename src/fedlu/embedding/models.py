"""Models by name: how wide their rows are, how these begin, and what computes their scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlu.embedding.kernels import Floats
from fedlu.embedding.scorers import MODELS, Formulas, Fused, Scorer, check_device
from fedlu.errors import InputError

PYKEEN = "pykeen:"


@dataclass(frozen=True)
class Model:
    scorer: Scorer
    entity_width: int
    relation_width: int
    complex_rows: bool
    """Whether rows are halves of complex numbers."""
    relations_are_phases: bool = False
    is_product: bool = False
    """Whether a score is a product of head, relation and tail, linear in each."""

    def start_relations(self, random: np.random.Generator, rows: int, limit: float) -> Floats:
        """(rows, relation_width): uniform; phases all around the circle."""
        limit = np.pi if self.relations_are_phases else limit
        return random.uniform(-limit, limit, size=(rows, self.relation_width)).astype(np.float32)


def model_of(name: str, *, dimension: int, margin: float, seed: int = 0, device: str = "") -> Model:
    """A native model, or `pykeen:NAME` for any of PyKEEN's interactions; fused, unless a torch device is named."""
    if device:
        check_device(device)
    if name.startswith(PYKEEN):
        from fedlu.embedding.pykeen_models import PykeenScorer  # takes seconds to import

        scorer = PykeenScorer(name.removeprefix(PYKEEN), dimension, seed, device or "cpu")
        return Model(scorer, scorer.entity_width, scorer.relation_width, scorer.is_complex)
    if name not in MODELS:
        known = ", ".join(MODELS)
        raise InputError(f"no model {name!r}", remedy=f"choose one of {known}, or {PYKEEN}NAME for one of PyKEEN's")
    shape = MODELS[name]
    return Model(
        scorer=Formulas(name, margin, device) if device else Fused(name, margin),
        entity_width=shape.entity_width * dimension,
        relation_width=shape.relation_width * dimension,
        complex_rows=shape.entity_width == 2,
        relations_are_phases=shape.query == "rotate",
        is_product=shape.comparison == "dot",
    )
