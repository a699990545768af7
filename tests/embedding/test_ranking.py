"""Ranking: equal to a slow restatement of its definition, and to PyKEEN's evaluator, on the same scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import DistMult
from pykeen.triples import CoreTriplesFactory

from fedlu.embedding.ranking import TIES, FilterIndex, Queries, Ranks, Side, average, rank, summarize
from fedlu.errors import InputError, ScoreError
from fedlu.graph import partition, read

ENTITIES, RELATIONS = 9, 3
TRIPLE = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))
TRIPLES = st.lists(TRIPLE, min_size=1, max_size=25, unique=True)


def table(seed: int, levels: int) -> NDArray[np.float64]:
    """(sides, entities, relations, entities): a score for every triple, with many ties if there are few levels."""
    return np.random.default_rng(seed).integers(0, levels, size=(2, ENTITIES, RELATIONS, ENTITIES)).astype(np.float64)


def scorer(scores: NDArray[np.float64]):  # type: ignore[no-untyped-def]
    return lambda queries: scores[queries.side, queries.anchors, queries.relations]


def slow_rank(
    scores: NDArray[np.float64],
    triple: tuple[int, int, int],
    side: Side,
    known: set[tuple[int, int, int]],
    candidates: list[int],
    ties: str,
) -> tuple[float, int]:
    """The definition, one candidate at a time: the rank, and the number of competitors."""
    head, relation, tail = triple
    anchor, answer = (head, tail) if side == Side.TAIL else (tail, head)
    competitors = []
    for entity in candidates:
        other = (anchor, relation, entity) if side == Side.TAIL else (entity, relation, anchor)
        if entity != answer and other not in known:
            competitors.append(scores[side, anchor, relation, entity])
    mine = scores[side, anchor, relation, answer]
    above, equal = sum(s > mine for s in competitors), sum(s == mine for s in competitors)
    return 1 + above + {"optimistic": 0, "realistic": 0.5, "pessimistic": 1}[ties] * equal, len(competitors)


@settings(deadline=None)
@given(
    triples=TRIPLES,
    others=TRIPLES,
    seed=st.integers(0, 99),
    levels=st.sampled_from([1, 2, 5, 10**6]),
    ties=st.sampled_from(TIES),
    batch_size=st.sampled_from([None, 1, 4]),
    some=st.none() | st.sets(st.integers(0, ENTITIES - 1)),
    filter_self=st.booleans(),
)
def test_equal_to_the_definition(
    triples: list[tuple[int, int, int]],
    others: list[tuple[int, int, int]],
    seed: int,
    levels: int,
    ties: str,
    batch_size: int | None,
    some: set[int] | None,
    filter_self: bool,
) -> None:
    scores = table(seed, levels)
    known = others + triples if filter_self else others  # forgotten triples are ranked by a filter without them
    candidates = list(range(ENTITIES)) if some is None else sorted(some | {e for h, _, t in triples for e in (h, t)})
    ranks = rank(
        scorer(scores),
        np.array(triples),
        FilterIndex.of(np.array(known), ENTITIES, RELATIONS),
        candidates=None if some is None else np.array(candidates),
        batch_size=batch_size,
    )
    for row, triple in enumerate(triples):
        for side in Side:
            expected = slow_rank(scores, triple, side, set(known), candidates, ties)
            assert (ranks.values(ties)[row, side], ranks.competitors[row, side]) == expected


@settings(deadline=None)
@given(triples=TRIPLES, seed=st.integers(0, 99), scale=st.floats(0.1, 10), shift=st.floats(-5, 5))
def test_only_the_order_of_scores_matters(
    triples: list[tuple[int, int, int]], seed: int, scale: float, shift: float
) -> None:
    rows, scores = np.array(triples), table(seed, 1000)
    known = FilterIndex.of(rows, ENTITIES, RELATIONS)
    assert (rank(scorer(scores), rows, known).above == rank(scorer(np.exp(scores / 1e3)), rows, known).above).all()
    assert (rank(scorer(scores), rows, known).above == rank(scorer(scale * scores + shift), rows, known).above).all()


def test_a_collapsed_model_does_not_look_good(random: np.random.Generator) -> None:
    triples = random.integers(0, [ENTITIES, RELATIONS, ENTITIES], size=(20, 3))
    collapsed = rank(scorer(np.zeros((2, ENTITIES, RELATIONS, ENTITIES))), triples, FilterIndex.of(triples[:0], 9, 3))
    assert summarize(collapsed)["mr"] == (ENTITIES + 1) / 2
    assert summarize(collapsed)["amri"] == 0
    assert summarize(collapsed)["hits@1"] == 0
    assert summarize(collapsed, "optimistic")["mrr"] == 1
    assert summarize(collapsed, "pessimistic")["mr"] == ENTITIES


def test_metrics_by_hand() -> None:
    ranks = Ranks(above=np.array([[0, 1], [3, 19]]), equal=np.array([[0, 0], [2, 0]]), competitors=np.full((2, 2), 20))
    found = summarize(ranks)
    assert ranks.values().tolist() == [[1, 2], [5, 20]]
    assert found["count"] == 2
    assert found["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 5 + 1 / 20) / 4)
    assert found["mr"] == 7
    assert found["amri"] == pytest.approx(1 - 6 / 10)
    assert (found["hits@1"], found["hits@3"], found["hits@10"]) == (0.25, 0.5, 0.75)
    assert found["head"]["mr"] == 3
    assert found["tail"]["hits@3"] == 0.5


def test_averages_over_clients() -> None:
    def metrics(rank_value: int, count: int) -> dict[str, object]:
        above = np.full((count, 2), rank_value - 1)
        return summarize(Ranks(above, np.zeros_like(above), np.full_like(above, 9)))

    found = average({"small": metrics(1, 10), "large": metrics(2, 30), "empty": metrics(1, 0)})
    assert found["weighted"]["mrr"] == pytest.approx((10 * 1 + 30 * 0.5) / 40)
    assert found["mean"]["mrr"] == pytest.approx((1 + 0.5) / 2)
    assert found["weighted"]["tail"]["mr"] == pytest.approx(1.75)
    assert found["weighted"]["count"] == 40
    assert found["clients"]["empty"] == {"count": 0, "head": {}, "tail": {}}


@pytest.mark.filterwarnings("ignore:Encountered type:UserWarning")  # PyKEEN's, of its own arguments
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("restricted", [False, True])
def test_equal_to_pykeens_evaluator(ties: str, restricted: bool) -> None:
    """The same scores, filtered alike, all metrics of both sides; coarse scores, so that there are ties."""
    client = partition(read("umls"), clients=2, by="random", seed=1).clients[0]
    entities, relations = len(client.vocabulary.entities), len(client.vocabulary.relations)
    factory = CoreTriplesFactory.create(torch.from_numpy(client.train.astype(np.int64)), entities, relations)
    model = DistMult(triples_factory=factory, embedding_dim=8, random_seed=0)
    for representation in (*model.entity_representations, *model.relation_representations):
        for weight in representation.parameters():
            weight.data = (weight.data * 2).round()  # whole numbers: sums are exact and ties abound

    def score(queries: Queries) -> torch.Tensor:
        batch = torch.from_numpy(np.stack([queries.anchors, queries.relations], axis=1))
        return model.score_t(batch) if queries.side == Side.TAIL else model.score_h(batch.flip(1))

    test = client.test
    candidates = np.arange(0, entities, 2) if restricted else None
    if candidates is not None:
        test = test[np.isin(test[:, [0, 2]], candidates).all(axis=1)]
    theirs = RankBasedEvaluator(filtered=True).evaluate(
        model,
        torch.from_numpy(test.astype(np.int64)),
        additional_filter_triples=torch.from_numpy(client.known.astype(np.int64)),
        restrict_entities_to=None if candidates is None else candidates.tolist(),
        batch_size=64,
        use_tqdm=False,
    )
    ranks = rank(score, test, FilterIndex.of(client.known, entities, relations), candidates=candidates)
    assert ranks.equal.any()
    ours = summarize(ranks, ties)
    names = {
        "mrr": "inverse_harmonic_mean_rank",
        "mr": "arithmetic_mean_rank",
        "amri": "adjusted_arithmetic_mean_rank_index",
        "hits@1": "hits_at_1",
        "hits@3": "hits_at_3",
        "hits@10": "hits_at_10",
    }
    for side, found in {"both": ours, "head": ours["head"], "tail": ours["tail"]}.items():
        for mine, other in names.items():
            if mine == "amri" and ties != "realistic":
                continue  # PyKEEN defines it for realistic ranks only
            assert found[mine] == pytest.approx(theirs.get_metric(f"{side}.{ties}.{other}"), rel=1e-6, abs=1e-6), (
                side,
                mine,
            )


def test_float_precision_is_kept(random: np.random.Generator) -> None:
    """float32 and float64 scores are ranked as they are; integers and tensors are taken too."""
    triples, scores = random.integers(0, [9, 3, 9], size=(20, 3)), table(3, 50)
    known = FilterIndex.of(triples, ENTITIES, RELATIONS)
    expected = rank(scorer(scores), triples, known).values()
    for convert in (np.float32, np.int64):
        assert (rank(scorer(scores.astype(convert)), triples, known).values() == expected).all()
    tensor = torch.from_numpy(scores).requires_grad_()
    torch_score = lambda queries: tensor[int(queries.side)][queries.anchors, queries.relations]  # noqa: E731
    assert (rank(torch_score, triples, known).values() == expected).all()
    half = tensor.detach().to(torch.bfloat16)  # exact for whole numbers below 256
    half_score = lambda queries: half[int(queries.side)][queries.anchors, queries.relations]  # noqa: E731
    assert (rank(half_score, triples, known).values() == expected).all()
    near = scores + 1e-12 * np.arange(ENTITIES)  # differences that float32 would lose
    assert not rank(scorer(near), triples, known).equal.any()


@pytest.mark.parametrize("spoil", ["answer", "other"])
def test_nan_is_refused(spoil: str) -> None:
    scores = table(0, 50)
    scores[Side.TAIL, 1, 1, 2 if spoil == "answer" else 5] = np.nan
    with pytest.raises(ScoreError, match="NaN"):
        rank(scorer(scores), np.array([[1, 1, 2]]), FilterIndex.of(np.array([[1, 1, 2]]), ENTITIES, RELATIONS))


def test_infinite_scores_are_ranked() -> None:
    scores = table(0, 50)
    scores[:, :, :, 2] = np.inf
    scores[:, :, :, 3] = -np.inf
    known = FilterIndex.of(np.array([[1, 1, 2]]), ENTITIES, RELATIONS)
    assert rank(scorer(scores), np.array([[1, 1, 2]]), known).values()[0, Side.TAIL] == 1
    assert rank(scorer(scores), np.array([[1, 1, 3]]), known).values()[0, Side.TAIL] == ENTITIES - 1


def test_wrong_calls_are_refused() -> None:
    triples = np.array([[1, 1, 2]])
    known = FilterIndex.of(triples, ENTITIES, RELATIONS)
    good = scorer(table(0, 5))
    with pytest.raises(ScoreError, match=r"scores of shape \(1, 8\), expected \(1, 9\)"):
        rank(lambda queries: good(queries)[:, :8], triples, known)
    with pytest.raises(InputError, match="not among the candidates"):
        rank(good, triples, known, candidates=np.array([1, 5]))
    with pytest.raises(InputError, match="candidates are not ids"):
        rank(good, triples, known, candidates=np.array([1, 2, 9]))
    with pytest.raises(InputError, match="ids beyond 0 to 8"):
        rank(lambda queries: np.zeros((1, 9)), np.array([[1, 1, 9]]), known)
    with pytest.raises(InputError, match="ids beyond 0 to 8"):
        FilterIndex.of(np.array([[1, 1, 9]]), ENTITIES, RELATIONS)
    with pytest.raises(InputError, match="ids beyond 0 to 2"):
        rank(good, np.array([[1, 5, 2]]), known)
    with pytest.raises(InputError, match="batch_size = -1"):
        rank(good, triples, known, batch_size=-1)
    with pytest.raises(InputError, match="give integer ids"):
        rank(good, triples.astype(float), known)
    with pytest.raises(InputError, match=r"not an \(n, 3\) array"):
        FilterIndex.of(triples[:, :2], ENTITIES, RELATIONS)
    with pytest.raises(InputError, match="candidates are not ids"):
        rank(good, triples, known, candidates=np.array([1.0, 2.0]))
    with pytest.raises(InputError, match="no tie policy 'kind'"):
        rank(good, triples, known).values("kind")


def test_no_triples_no_ranks() -> None:
    nothing = rank(scorer(table(0, 5)), np.empty((0, 3), dtype=np.int64), FilterIndex.of(np.array([[1, 1, 2]]), 9, 3))
    assert summarize(nothing)["count"] == 0
