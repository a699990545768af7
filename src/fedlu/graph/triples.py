"""Triples as integers: labels are sorted before they are numbered, so ids are the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

COLUMNS = ("head", "relation", "tail")

Triples: TypeAlias = NDArray[np.int32]
"""(n, 3): head, relation, tail ids; rows sorted, none repeated."""

Ids: TypeAlias = NDArray[np.int32]
Keys: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Vocabulary:
    """The names behind the ids: entity `i` is `entities[i]`, relation `i` is `relations[i]`; both sorted."""

    entities: tuple[str, ...]
    relations: tuple[str, ...]

    @cached_property
    def entity_ids(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.entities)}

    @cached_property
    def relation_ids(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.relations)}

    def keys(self, triples: Triples) -> Keys:
        """(n,): one integer per triple, in the same order as the sorted rows."""
        rows = triples.astype(np.int64)
        return (rows[:, 0] * len(self.relations) + rows[:, 1]) * len(self.entities) + rows[:, 2]

    def labels(self, triples: Triples) -> list[tuple[str, str, str]]:
        return [(self.entities[h], self.relations[r], self.entities[t]) for h, r, t in triples.tolist()]


def index(frames: list[pl.DataFrame]) -> tuple[Vocabulary, list[Triples]]:
    """Number the labels of several frames (columns head, relation, tail) by one vocabulary.

    Repeated rows of a frame are kept once. Sorting is by code point, as Python sorts strings.
    """
    entities = pl.concat([frame[side] for frame in frames for side in ("head", "tail")]).unique().sort()
    relations = pl.concat([frame["relation"] for frame in frames]).unique().sort()
    vocabulary = Vocabulary(tuple(entities.to_list()), tuple(relations.to_list()))
    columns = {"head": entities, "relation": relations, "tail": entities}
    numbered = []
    for frame in frames:
        ids = [_positions(frame[name], labels) for name, labels in columns.items()]
        numbered.append(sort_rows(np.stack(ids, axis=1), vocabulary))
    return vocabulary, numbered


def sort_rows(triples: Triples, vocabulary: Vocabulary) -> Triples:
    """The same triples as a sorted set."""
    _, first = np.unique(vocabulary.keys(triples), return_index=True)
    return np.ascontiguousarray(triples[first])


def _positions(labels: pl.Series, ordered: pl.Series) -> Ids:
    lookup = pl.DataFrame({"label": ordered}).with_row_index("id")
    found = pl.DataFrame({"label": labels}).join(lookup, on="label", how="left", maintain_order="left")
    return found["id"].to_numpy().astype(np.int32)
