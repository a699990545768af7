"""Short lists leave nobody out: the best few are those of scoring everybody."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from fedlu.embedding.formulas import Formulas
from fedlu.embedding.kernels import Floats
from fedlu.embedding.ranking import Side
from fedlu.embedding.scorers import Fused, shape_of
from fedlu.embedding.short_list_kernels import KINDS, LANES, _ceilings, _differences, _products
from fedlu.embedding.short_lists import ShortLists
from fedlu.results.prediction import best_of

ENTITIES, BATCH = 700, 11
MODELS = ("TransE", "DistMult", "ComplEx", "RotatE")


def made(model: str, dimension: int, seed: int = 0) -> tuple[ShortLists, list[Floats], list[Floats]]:
    """Short lists of two tables, queries to each, and their scores. Some rows are equal, so that there are ties."""
    random, shape, scorer = np.random.default_rng(seed), shape_of(model), Fused(model, 8.0)
    tables, queries, scores = [], [], []
    for scale in (0.05, 1.5):
        table = random.normal(scale=scale, size=(ENTITIES, shape.entity_width * dimension)).astype(np.float32)
        table[1::7] = table[0]
        anchors = table[random.integers(ENTITIES, size=BATCH)]
        relations = random.normal(scale=2 * scale, size=(BATCH, shape.relation_width * dimension)).astype(np.float32)
        tables.append(table)
        queries.append(scorer.queries(anchors, relations, Side.TAIL))
        scores.append(scorer.compare_all(anchors, relations, table, Side.TAIL))
    lists = ShortLists.of(scorer, tables)
    assert lists is not None
    return lists, queries, scores


@pytest.mark.parametrize("dimension", [1, 24, 64])
@pytest.mark.parametrize("model", MODELS)
def test_no_score_is_above_its_ceiling(model: str, dimension: int) -> None:
    lists, queries, scores = made(model, dimension)
    for coded, errors, asked, found in zip(lists.coded, lists.errors, queries, scores, strict=True):
        codes, terms = lists._terms(coded, asked)
        ceilings = np.empty_like(found)
        _ceilings(KINDS[lists.comparison], coded.codes, errors, codes, terms, ceilings)
        assert (found <= ceilings).all()


@pytest.mark.parametrize("top", [1, 10, 100, 1000])
@pytest.mark.parametrize("model", MODELS)
def test_the_best_are_the_best_of_all(model: str, top: int) -> None:
    """By both tables and their sum, with and without what is known; of equals the lower id first."""
    lists, queries, scores = made(model, 24)
    random = np.random.default_rng(1)
    sizes = random.integers(0, 90, size=BATCH)
    sizes[0], sizes[1] = 0, ENTITIES  # nothing is known, or everything
    known = np.concatenate([np.sort(random.permutation(ENTITIES)[:size]) for size in sizes]).astype(np.int32)
    stops = np.cumsum(sizes).astype(np.int64)
    new_only = np.arange(BATCH) % 2 == 1
    found = lists.best(queries, [1, 2, 3], top, (stops - sizes, stops, known), new_only)
    for view, expected in enumerate((scores[0], scores[1], scores[0] + scores[1])):
        for b in range(BATCH):
            mine, answers = expected[b].copy(), known[stops[b] - sizes[b] : stops[b]]
            if new_only[b]:
                mine[answers] = -np.inf
            ids = best_of(mine, top)
            got = found.ids[b, view][found.ids[b, view] >= 0]
            assert len(got) == len(ids)
            # all at once is summed in another order than one by one, and so may order otherwise what is nearly equal
            assert mine[got] == pytest.approx(mine[ids], rel=1e-4, abs=1e-4)
            assert found.scores[b, view, : len(ids)] == pytest.approx(mine[got], rel=1e-4, abs=1e-4)
            assert len(set(got.tolist())) == len(got)
            equal = np.flatnonzero(np.diff(found.scores[b, view, : len(ids)]) == 0)
            assert (got[equal] < got[equal + 1]).all()
            places = found.places[b, view, : len(got)]
            assert [place >= 0 for place in places] == [number in set(answers.tolist()) for number in got]
            assert (known[places[places >= 0]] == got[places >= 0]).all()


@pytest.mark.parametrize("model", ["TransE", "ComplEx"])
def test_one_number_far_out_makes_the_bytes_coarse_and_nothing_wrong(model: str) -> None:
    """Then hardly anybody is ruled out; there are enough entities for several blocks of groups."""
    random, scorer, width = np.random.default_rng(3), Fused(model, 8.0), 8 * shape_of(model).entity_width
    table = random.normal(size=(3000, width)).astype(np.float32)
    table[5, 5] = 300
    lists = ShortLists.of(scorer, [table])
    assert lists is not None
    anchors, relations = (random.normal(size=(2, width)).astype(np.float32) for _ in range(2))
    nothing = np.zeros(2, dtype=np.int64)
    found = lists.best(
        [scorer.queries(anchors, relations, Side.TAIL)],
        [1],
        10,
        (nothing, nothing, np.empty(0, dtype=np.int32)),
        np.zeros(2, dtype=np.bool_),
    )
    for b, scores in enumerate(scorer.compare_all(anchors, relations, table, Side.TAIL)):
        assert found.ids[b, 0].tolist() == best_of(scores, 10).tolist()


@numba.njit
def byte_sums(products: bool, queries: NDArray[np.uint8], rows: NDArray[np.uint8]) -> NDArray[np.int32]:
    """(queries, rows): as the ceilings are made of."""
    sums = np.empty((len(queries), len(rows)), dtype=np.int32)
    width = rows.shape[1]
    for b in range(len(queries)):
        for n in range(len(rows)):
            left, right = queries.ctypes.data + b * width, rows.ctypes.data + n * width
            sums[b, n] = _products(left, right, width) if products else _differences(left, right, width)
    return sums


def test_sums_over_bytes() -> None:
    random = np.random.default_rng(0)
    rows: NDArray[np.uint8] = random.integers(0, 256, size=(9, 3 * LANES), dtype=np.uint8)
    rows[0], rows[1] = 0, 255
    wide = rows.astype(np.int64)
    assert (byte_sums(False, rows, rows) == np.abs(wide[:, None] - wide).sum(2)).all()
    signed = rows.view(np.int8).astype(np.int64)
    assert (byte_sums(True, rows, rows) == signed @ signed.T).all()


def test_where_there_is_no_ceiling_there_is_no_short_list() -> None:
    table = np.zeros((3, 4), dtype=np.float32)
    assert ShortLists.of(Fused("TransE", 8.0), [table]) is not None  # all alike, yet well
    assert ShortLists.of(Fused("TransE-L2", 8.0), [table]) is None
    assert ShortLists.of(Formulas("TransE", 8.0), [table]) is None
    for bad in (np.nan, np.inf, 1e30):
        assert ShortLists.of(Fused("TransE", 8.0), [table, np.full_like(table, bad)]) is None
