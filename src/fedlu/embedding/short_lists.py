"""The best few of all entities, exactly, though only a few are scored: the others are ruled out by a row of bytes each.

A table is kept a second time with a byte per number. The sum over two rows of bytes (|q - e|, or q * e) costs a
fraction of a score, and with the errors of the bytes, which are known, it gives a ceiling that no score exceeds.

    l1       margin - sum |q - e|  <=  margin + error of q + error of e - step * sum |byte of q - byte of e|
    modulus  as l1, since a sum of moduli is at least sum |q - e| / sqrt 2
    dot      <q, e>                <=  <q', e'> + |q - q'| |e| + |q'| |e - e'|,  where q', e' are what the bytes say

Whoever's ceiling is below the score of the tenth best so far need not be scored. The others are scored in float32, as
ever. Ceilings are a little higher than said, by more than float32 can round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.kernels import Floats, Ids
from fedlu.embedding.scorers import Fused, Scorer, shape_of
from fedlu.embedding.short_list_kernels import KINDS, LANES, best_few, difference_terms

LARGEST = 1e6
"""Numbers beyond this are not met in a model that has learned; with them, float32 may overflow."""
UNIT = 2.0**-23


@dataclass(frozen=True)
class Few:
    """(batch, views, top) each. Best first, of equals the lower id; -1 where there are no more."""

    ids: NDArray[np.int32]
    scores: Floats
    places: Ids
    """Where each stands among the known answers that were given, -1 for what is new."""


@dataclass(frozen=True)
class Coded:
    """A table and its bytes: number = low + step * byte, or step * byte for products."""

    table: Floats  # (entities, width)
    codes: NDArray[np.uint8]  # (entities, width, rounded up to `LANES`); for products they are int8
    errors: NDArray[np.float64]  # (entities,): of the bytes, by the norm that the ceiling needs
    low: float
    step: float
    largest: float
    """The largest norm of a row."""


@dataclass(frozen=True)
class ShortLists:
    """Tables of one client (local, global), ready to be searched."""

    scorer: Fused
    comparison: str
    coded: tuple[Coded, ...]
    errors: Floats  # (tables, entities)

    @classmethod
    def of(cls, scorer: Scorer, tables: Sequence[Floats]) -> ShortLists | None:
        """None where there is no ceiling: for PyKEEN's models, other devices, Euclidean distances, endless numbers."""
        if not isinstance(scorer, Fused) or shape_of(scorer.model).comparison not in KINDS:
            return None
        if not all(len(table) and np.abs(table).max() < LARGEST for table in tables):  # NaN is not less either
            return None
        comparison = shape_of(scorer.model).comparison
        coded = tuple(_code(np.require(table, np.float32, ["C", "W"]), comparison) for table in tables)
        return cls(scorer, comparison, coded, np.array([each.errors for each in coded], dtype=np.float32))

    def best(
        self,
        queries: Sequence[Floats],
        views: Sequence[int],
        top: int,
        known: tuple[Ids, Ids, NDArray[np.int32]],
        new_only: NDArray[np.bool_],
    ) -> Few:
        """The best for queries (batch, width), those of each table; a view is the sum of the tables whose bits it has.

        known: for every query where its known answers start and stop in the third array, sorted; with `new_only`
        (batch,) they are left out.
        """
        codes, terms = zip(*map(self._terms, self.coded, queries), strict=True)
        found = best_few(
            KINDS[self.comparison],
            self.scorer.margin,
            tuple(each.table for each in self.coded),
            tuple(each.codes for each in self.coded),
            self.errors,
            np.array(queries),
            np.array(codes),
            np.array(terms),
            np.array(views, dtype=np.int64),
            *known,
            new_only,
            min(top, len(self.coded[0].table)),
        )
        return Few(*found)

    def _terms(self, coded: Coded, queries: Floats) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """The queries as bytes, and (batch, 3): a ceiling is base + slope * sum over bytes + weight * error."""
        rounding = (queries.shape[1] + 16) * UNIT
        if self.comparison != "dot":
            share, margin = 1.0 if self.comparison == "l1" else 0.5**0.5, self.scorer.margin
            base = margin + rounding * (abs(margin) + coded.largest)
            return difference_terms(queries, coded.low, coded.step, share, base, rounding)
        rows = queries.astype(np.float64)
        steps = np.maximum(np.abs(rows).max(1), 1e-30) / 127
        codes = np.rint(rows / steps[:, None]).astype(np.int8)
        rounded = codes * steps[:, None]
        sizes = np.sqrt((rows**2).sum(1))
        lost, weights = np.sqrt(((rows - rounded) ** 2).sum(1)), np.sqrt((rounded**2).sum(1))
        bases = lost * coded.largest + rounding * sizes * coded.largest
        return _padded(codes), np.stack([bases, steps * coded.step, weights], axis=1)


def _code(table: Floats, comparison: str) -> Coded:
    if comparison == "dot":
        low, step = 0.0, max(float(np.abs(table).max()), 1e-30) / 127
        codes: NDArray[np.integer[Any]] = np.rint(table / np.float64(step)).astype(np.int8)
        errors, sizes = (np.sqrt((each**2).sum(1, dtype=np.float64)) for each in (table - step * codes, table))
    else:
        low, high = float(table.min()), float(table.max())
        step = max(high - low, 1e-30) / 255
        codes = _bytes(table, low, step)
        errors, sizes = (np.abs(each).sum(1, dtype=np.float64) for each in (table - (low + step * codes), table))
    return Coded(table, _padded(codes), errors * (1 + 1e-6), low, step, float(sizes.max()) * (1 + 1e-6))


def _bytes(rows: NDArray[np.floating[Any]], low: float, step: float) -> NDArray[np.uint8]:
    codes: NDArray[np.uint8] = np.clip(np.rint((rows - low) / step), 0, 255).astype(np.uint8)
    return codes


def _padded(codes: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
    """To a multiple of `LANES`, with what adds nothing to any sum."""
    rows, width = codes.shape
    wide = np.zeros((rows, -(-width // LANES) * LANES), dtype=np.uint8)
    wide[:, :width] = codes.view(np.uint8)
    return wide
