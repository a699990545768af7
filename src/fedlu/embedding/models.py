"""Models by name: how wide their rows are, how these begin, and what computes their scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlu.embedding.kernels import Floats
from fedlu.embedding.scorers import Fused, Scorer, shape_of

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


@dataclass(frozen=True)
class Size:
    """How many numbers a model is made of, known before anything is made."""

    entity_width: int
    relation_width: int
    own: int = 0
    """What the model learns besides rows."""
    expanded: int = 1
    """How many numbers stand for a score while a batch is computed."""


def size_of(name: str, *, dimension: int) -> Size:
    if name.startswith(PYKEEN):
        from fedlu.embedding.pykeen_models import shape_without_numbers

        return Size(*shape_without_numbers(name.removeprefix(PYKEEN), dimension))
    shape = shape_of(name)
    return Size(shape.entity_width * dimension, shape.relation_width * dimension)


def model_of(name: str, *, dimension: int, margin: float, seed: int = 0, device: str = "") -> Model:
    """A native model, or `pykeen:NAME` for any of PyKEEN's interactions; fused, unless a torch device is named."""
    if device:
        from fedlu.embedding.formulas import check_device

        check_device(device)
    if name.startswith(PYKEEN):
        from fedlu.embedding.pykeen_models import PykeenScorer  # takes seconds to import

        scorer = PykeenScorer(name.removeprefix(PYKEEN), dimension, seed, device or "cpu")
        return Model(scorer, scorer.entity_width, scorer.relation_width, scorer.is_complex)
    shape = shape_of(name)
    return Model(
        scorer=_formulas(name, margin, device) if device else Fused(name, margin),
        entity_width=shape.entity_width * dimension,
        relation_width=shape.relation_width * dimension,
        complex_rows=shape.entity_width == 2,
        relations_are_phases=shape.query == "rotate",
        is_product=shape.comparison == "dot",
    )


def _formulas(name: str, margin: float, device: str) -> Scorer:
    from fedlu.embedding.formulas import Formulas  # with torch, which takes seconds

    return Formulas(name, margin, device)
