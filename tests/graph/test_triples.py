"""Ids: sorted labels, rows sorted and unique, whatever the order of the input."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from fedlu.graph.triples import COLUMNS, index

LABELS = st.text(alphabet="abzé漢😀 ", min_size=1, max_size=3)
ROWS = st.lists(st.tuples(LABELS, LABELS, LABELS), min_size=1, max_size=30)


def frame(rows: list[tuple[str, str, str]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(COLUMNS), orient="row")


@given(ROWS, ROWS)
def test_ids_name_the_labels_they_came_from(
    first: list[tuple[str, str, str]], second: list[tuple[str, str, str]]
) -> None:
    vocabulary, numbered = index([frame(first), frame(second)])
    assert list(vocabulary.entities) == sorted({label for h, _, t in first + second for label in (h, t)})
    assert list(vocabulary.relations) == sorted({r for _, r, _ in first + second})
    for rows, triples in zip((first, second), numbered, strict=True):
        assert vocabulary.labels(triples) == sorted(set(rows))  # sorted and unique, by label and by id alike
        assert triples.dtype == np.int32
        assert (np.diff(vocabulary.keys(triples)) > 0).all()
    assert all(vocabulary.entities[i] == label for label, i in vocabulary.entity_ids.items())
    assert all(vocabulary.relations[i] == label for label, i in vocabulary.relation_ids.items())


@given(ROWS, st.randoms())
def test_the_order_of_lines_does_not_matter(rows: list[tuple[str, str, str]], shuffle: object) -> None:
    turned = list(rows)
    shuffle.shuffle(turned)  # type: ignore[attr-defined]
    (vocabulary, (triples,)), (again, (same,)) = index([frame(rows)]), index([frame(turned)])
    assert vocabulary == again
    assert (triples == same).all()
