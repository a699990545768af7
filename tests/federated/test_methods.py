"""Methods: each does what its name says, seen from the tables before and after a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from fedlu.config import METHODS, Settings, resolve
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import Queries, Side
from fedlu.embedding.row_kernels import add_cubic
from fedlu.errors import InputError
from fedlu.federated import rounds
from fedlu.federated.client import Client
from fedlu.federated.messages import Keep, Train, Welcome
from fedlu.federated.rounds import DivergedError, Progress
from fedlu.graph import Federation, partition, read
from fedlu.learning.regularisers import contrastive_pull, proximal_pull
from fedlu.results.checkpoints import Party
from fedlu.results.runs import gather


@pytest.fixture(scope="module")
def federation() -> Federation:
    return partition(read("umls"), clients=3, by="random", seed=1)


def play(
    federation: Federation, number: int, prepare: Callable[[Client], None] | None = None, **settings: Any
) -> Party:
    values = Settings(**{"dimension": 16, "batch_size": 128, "negatives": 32, "learning_rate": 0.01, **settings})
    party = gather(federation, values)
    for client in party.clients if prepare else []:
        prepare(client)
    loop = rounds.learn(
        party.server,
        party.transport,
        Progress(),
        rounds=number,
        fraction=values.fraction,
        evaluate_every=99,
        patience=9,
    )
    for _ in loop:
        pass
    return party


def mrr(party: Party, view: str, split: str = "test") -> float:
    return float(rounds.measure(party.server, party.transport, 1, split)[view]["weighted"]["mrr"])


PAIRS = [(method, model) for method in METHODS for model in ("TransE", "ComplEx")]
PAIRS += [(method, model) for method in ("fede", "fedlu") for model in ("TransE-L2", "DistMult", "RotatE")]


@pytest.mark.parametrize(("method", "model"), PAIRS)
def test_every_method_and_every_model_learns(federation: Federation, method: str, model: str) -> None:
    """From about chance to well above it, in every view it has, in a few rounds."""
    start, end = (play(federation, n, method=method, model=model, warm_rounds=2, learning_rate=0.02) for n in (1, 12))
    for view in end.clients[0].views:
        assert mrr(end, view) > mrr(start, view)
        assert mrr(end, view) > 0.15  # a guesser has 0.04


@pytest.mark.parametrize("rounds_an_epoch", [1, 2, 4])
def test_an_epoch_spread_over_rounds_asks_for_everything_once(federation: Federation, rounds_an_epoch: int) -> None:
    """The rounds of an epoch share its questions among them, with wrong answers of their own; the next epoch has
    another order."""
    settings = Settings(dimension=4, batch_size=128, negatives=8, epochs=1 / rounds_an_epoch)
    client = gather(federation, settings).clients[0]
    first, second = (
        [list(client._batches(number + epoch)) for number in range(1, 1 + rounds_an_epoch)]
        for epoch in (0, rounds_an_epoch)
    )
    for epoch in (first, second):
        sizes = [len(batches) for batches in epoch]
        assert max(sizes) - min(sizes) <= 1
        for side in Side:
            asked = [
                np.stack([batch.queries.anchors, batch.queries.relations, batch.answers], axis=1)
                for batches in epoch
                for batch in batches
                if batch.queries.side == side
            ]
            order = [0, 1, 2] if side == Side.TAIL else [2, 1, 0]
            found = np.concatenate(asked)[:, order]
            assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, client.graph.train.tolist()))
    drawn = [tuple(batch.negatives.tolist()) for batches in first for batch in batches]
    assert len(set(drawn)) == len(drawn)
    assert not np.array_equal(first[0][0].answers, second[0][0].answers)


def test_a_client_of_few_triples_learns_in_every_part_of_an_epoch(federation: Federation) -> None:
    settings = Settings(dimension=4, batch_size=2**20, negatives=8, epochs=0.1)  # a batch for each side
    client = gather(federation, settings).clients[0]
    sides = [[batch.queries.side for batch in client._batches(number)] for number in range(1, 11)]
    assert [len(each) for each in sides] == [1] * 10
    assert {side for each in sides for side in each} == set(Side)


def test_averaging_more_often_brings_clients_nearer_to_each_other(federation: Federation) -> None:
    """Before the server averages, rows of one entity differ between its owners by what each learned since."""

    def apart(rounds_an_epoch: int) -> float:
        party = play(federation, 8 * rounds_an_epoch, method="fede", epochs=1 / rounds_an_epoch)
        gaps = []
        for client in party.clients:
            gaps.append(client.local.values[client.shared] - party.server.rows_for(client.name))
        return float(np.linalg.norm(np.concatenate(gaps)))

    assert apart(4) < 0.5 * apart(1)


@pytest.mark.parametrize("recipe", ["fast", "strong"])
@pytest.mark.parametrize("model", ["TransE", "RotatE", "ComplEx", "DistMult"])
def test_no_recipe_cripples_a_rival(federation: Federation, recipe: str, model: str) -> None:
    """What sets FedProx and FedEC apart from FedE is a small addition, and costs little if it is not too strong."""
    rounds = round(10 / resolve(recipe, method="fede", model=model).epochs)
    small = {"dimension": 32, "rounds": rounds}
    found = {
        method: mrr(
            play(federation, rounds, **asdict(resolve(recipe, method=method, model=model, overrides=small))), "global"
        )
        for method in ("fede", "fedprox", "fedec")
    }
    assert min(found["fedprox"], found["fedec"]) > 0.95 * found["fede"], found


@pytest.mark.parametrize("model", ["HolE", "PairRE", "TuckER", "QuatE"])
def test_pykeens_interactions_learn_together(federation: Federation, model: str) -> None:
    small = {"dimension": 8, "negatives": 8}  # what is PyKEEN's is slow
    options = {"model": f"pykeen:{model}", "warm_rounds": 2, "learning_rate": 0.03, "initial_range": 0.3, **small}
    start, end = (play(federation, n, method="fedlu", **options) for n in (1, 8))
    for view in ("local", "global", "blend"):
        assert mrr(end, view) > mrr(start, view)
        assert mrr(end, view) > 0.08  # a guesser has 0.04
    ours, theirs = (client.learner.scorer.parameters for client in end.clients[:2])
    assert (ours is None) == (model != "TuckER")
    if ours is not None and theirs is not None:
        assert (ours.values != theirs.values).any()  # what is a client's own stays its own


def test_independent_clients_learn_nothing_from_each_other(federation: Federation) -> None:
    alone = Federation("alone", federation.clients[:1])
    together, by_itself = (play(f, 2, method="independent").clients[0].local.values for f in (federation, alone))
    assert (together == by_itself).all()


def test_fede_starts_a_round_from_the_average(federation: Federation) -> None:
    party = play(federation, 1, method="fede")
    trained = {client.name: client.avatar.values[client.shared] for client in party.clients}
    rows = {client.name: party.server.rows[client.name] for client in party.clients}
    for number in range(len(party.server.table)):
        sent = [trained[name][list(rows[name]).index(number)] for name in rows if number in rows[name]]
        assert len(sent) > 1
        np.testing.assert_allclose(party.server.table[number], np.mean(sent, axis=0), rtol=1e-5, atol=1e-7)


def test_a_warm_fedlu_is_fede_until_the_tables_part(federation: Federation) -> None:
    warm, fede = play(federation, 3, method="fedlu", warm_rounds=3), play(federation, 3, method="fede")
    assert (warm.server.table == fede.server.table).all()
    parted = play(federation, 5, method="fedlu", warm_rounds=3)
    for client in parted.clients:
        assert (client.local.values != client.avatar.values).any()


def test_a_client_that_missed_the_parting_parts_when_it_comes(federation: Federation) -> None:
    """With a fraction of clients, a round may pass without one: its local table is still a copy of the avatar."""
    values = Settings(dimension=8, warm_rounds=2, learning_rate=1e-9)
    party = gather(federation, values)
    client, rows = party.clients[0], party.server.rows_for(party.clients[0].name)
    client.train(Train(1, rows))
    client.train(Train(9, rows + 1))  # the average has moved on meanwhile
    np.testing.assert_allclose(client.local.values, client.avatar.values, atol=1e-6)
    client.train(Train(10, rows + 2))
    assert np.abs(client.local.values - client.avatar.values).max() > 0.9  # and only once


def test_without_teaching_the_local_table_is_an_independent_client(federation: Federation) -> None:
    """Relations learn from the local table only, and the avatar teaches nothing: that is independent training."""
    free = play(federation, 2, method="fedlu", teach_local=0.0, relations_from="local")
    alone = play(federation, 2, method="independent")
    for mine, theirs in zip(free.clients, alone.clients, strict=True):
        np.testing.assert_array_equal(mine.local.values, theirs.local.values)
        np.testing.assert_array_equal(mine.relations.values, theirs.relations.values)


@pytest.mark.parametrize(
    "options",
    [
        {"relations_from": "local"},
        {"relations_from": "both"},
        {"model": "ComplEx", "reciprocal": True, "relation_prediction": 0.5, "relations_from": "both"},
    ],
)
def test_untaught_tables_that_begin_apart_are_two_models(federation: Federation, options: dict[str, Any]) -> None:
    """No gradient crosses: the local table and its relations are a client alone, what is shared is FedE."""

    def alike(client: Client) -> None:
        """Begin as the two others do, to be compared with them."""
        client.local, client.local_relations = client.avatar.copy(), client.relations.copy()

    untaught = {"own_start": True, "teach_local": 0.0, "teach_global": 0.0, "rejoin": 0.5}
    both = play(federation, 3, alike, method="fedlu", **untaught, **options)
    alone, fede = (play(federation, 3, method=method, **options) for method in ("independent", "fede"))
    np.testing.assert_array_equal(both.server.table, fede.server.table)
    for mine, single, shared in zip(both.clients, alone.clients, fede.clients, strict=True):
        assert mine.local_relations is not None
        np.testing.assert_array_equal(mine.local.values, single.local.values)
        np.testing.assert_array_equal(mine.local_relations.values, single.relations.values)
        np.testing.assert_array_equal(mine.relations.values, shared.relations.values)
        assert (single.relations.values != shared.relations.values).any()


def test_teaching_brings_the_tables_closer(federation: Federation) -> None:
    """The more the tables teach each other, the more alike are their scores."""

    def apart(mu: float) -> float:
        client = play(federation, 8, method="fedlu", teach_local=mu, teach_global=mu).clients[0]
        rows = client.graph.test.astype(np.int64)
        scores = client.scores(Queries(rows[:, 0], rows[:, 1], Side.TAIL), best=False)
        local, avatar = (np.exp(scores[v] - scores[v].max(1, keepdims=True)) for v in ("local", "global"))
        return float(np.abs(local / local.sum(1, keepdims=True) - avatar / avatar.sum(1, keepdims=True)).sum())

    assert apart(8.0) < 0.8 * apart(0.0)


def test_teaching_waits_as_long_as_it_is_told(federation: Federation) -> None:
    later = play(federation, 2, method="fedlu", teach_local=5.0, teach_local_after=2)
    never = play(federation, 2, method="fedlu", teach_local=0.0)
    now = play(federation, 2, method="fedlu", teach_local=5.0)
    assert (later.clients[0].local.values == never.clients[0].local.values).all()
    assert (now.clients[0].local.values != never.clients[0].local.values).any()


def test_a_local_table_may_begin_with_rows_and_relations_of_its_own(federation: Federation) -> None:
    """The same start range, other numbers, the same ones each time; global rows and relations are not concerned."""
    alike, apart, again = (
        gather(federation, Settings(dimension=16, own_start=own)).clients[0] for own in (False, True, True)
    )
    assert (alike.local.values == alike.avatar.values).all()
    assert np.corrcoef(apart.local.values.ravel(), apart.avatar.values.ravel())[0, 1] < 0.1
    assert np.abs(apart.local.values).max() <= apart.settings.start_range
    assert apart.local.values.std() == pytest.approx(alike.local.values.std(), rel=0.1)
    assert alike.local_relations is None
    assert apart.local_relations is not None
    assert again.local_relations is not None
    assert abs(np.corrcoef(apart.local_relations.values.ravel(), apart.relations.values.ravel())[0, 1]) < 0.3
    assert (apart.local_relations.values == again.local_relations.values).all()
    assert (apart.local.values == again.local.values).all()
    for table in ("avatar", "relations"):
        assert (getattr(apart, table).values == getattr(alike, table).values).all()
    rival = gather(federation, Settings(method="fedec", dimension=16, own_start=True)).clients[0]
    assert (rival.local.values == rival.avatar.values).all()  # it is FedLU's alone
    kept = gather(federation, Settings(dimension=16, own_start=True, rejoin=1, learning_rate=1e-12)).clients[0]
    for number in (1, 2):
        kept.train(Train(number, kept.avatar.values[kept.shared]))
    np.testing.assert_allclose(kept.local.values, apart.local.values, atol=1e-5)  # it was never joined
    later = gather(federation, Settings(dimension=16, own_start=True, warm_rounds=1)).clients[0]
    assert later.local_relations is None  # after warm rounds it is a copy, whose relations are shared


@pytest.mark.parametrize(
    ("rejoin", "epochs", "share"), [(0.0, 1, 0.0), (0.25, 1, 0.25), (1.0, 1, 1.0), (0.75, 0.5, 0.5)]
)
def test_local_rows_go_back_to_the_global_ones_by_a_share(
    federation: Federation, rejoin: float, epochs: float, share: float
) -> None:
    """Seen at a rate at which nothing is learned: shared rows move by the share, the client's own not at all. With
    half an epoch it is so much that two such rounds make a whole: a half, and a half of what is left, are 0.75."""
    options = {"warm_rounds": 1, "rejoin": rejoin, "epochs": epochs, "learning_rate": 1e-12}
    party = play(federation, 2, method="fedlu", **options)
    client = party.clients[0]
    client.welcome(Welcome(client.shared[::2]))  # in this federation all are shared; say that half are
    before, rows = client.local.values.copy(), client.local.values[client.shared] + 1
    own = np.setdiff1d(np.arange(len(before)), client.shared)
    client.avatar.values[own] += 1
    client.train(Train(3, rows.copy()))
    np.testing.assert_allclose(client.local.values[client.shared] - before[client.shared], share, atol=1e-5)
    np.testing.assert_allclose(client.local.values[own], before[own], atol=1e-5)


def test_proximal_rows_stay_near_the_global_ones(federation: Federation) -> None:
    def moved(strength: float) -> float:
        party = play(federation, 1, method="fedprox", proximal=strength)
        start = gather(federation, Settings(method="fedprox", dimension=16))
        client, fresh = party.clients[0], start.clients[0]
        fresh.avatar.values[fresh.shared] = start.server.rows_for(fresh.name)
        return float(np.abs(client.avatar.values - fresh.avatar.values).mean())

    assert moved(10.0) < 0.7 * moved(0.0)


@pytest.mark.parametrize("kind", ["proximal", "contrastive", "cubic", "complex cubic"])
def test_pulls_are_gradients(kind: str, random: np.random.Generator) -> None:
    """Compared with differences of the formula, restated here in double precision."""
    current, previous = random.normal(size=(2, 9, 6))
    values, known = random.normal(size=(2, 4, 6))
    rows = np.array([7, 2, 5, 0])  # of larger tables, in any order

    def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))

    formulas = {
        "proximal": lambda x: 0.3 / 2 * ((x - current[rows]) ** 2).sum(),
        "contrastive": lambda x: (
            0.3 * np.log1p(np.exp((cosine(x, previous[rows]) - cosine(x, current[rows])) / 0.2)).mean()
        ),
        "cubic": lambda x: 0.3 * (np.abs(x) ** 3).sum(),
        "complex cubic": lambda x: 0.3 * (np.abs(x[:, :3] + 1j * x[:, 3:]) ** 3).sum(),
    }
    single = [each.astype(np.float32) for each in (current, previous, values, known)]
    found = {
        "proximal": lambda: proximal_pull(0.3, single[0])(rows, single[2]),
        "contrastive": lambda: contrastive_pull(0.3, 0.2, single[0], single[1])(rows, single[2]),
        "cubic": lambda: add_cubic(single[3], single[2], 0.3, False) - single[3],
        "complex cubic": lambda: add_cubic(single[3], single[2], 0.3, True) - single[3],
    }[kind]()
    expected = np.zeros_like(values)
    for place in np.ndindex(*values.shape):
        step = np.zeros_like(values)
        step[place] = 1e-5
        expected[place] = (formulas[kind](values + step) - formulas[kind](values - step)) / 2e-5
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_centralized_ranks_within_each_client(federation: Federation) -> None:
    party = play(federation, 1, method="centralized")
    (client,) = party.clients
    assert [exam.name for exam in client.exams] == [graph.name for graph in federation.clients]
    found = rounds.measure(party.server, party.transport, 1, "test")
    assert set(found) == {"global"}
    assert set(found["global"]["clients"]) == {graph.name for graph in federation.clients}
    # a guesser's mean rank tells how many competed: the client's entities, not all
    client.avatar.values[:] = 0
    small = min(federation.clients, key=lambda graph: len(graph.vocabulary.entities))
    worst = client.measure(rounds.Measure(1, "test", party.server.rows_for("all"))).metrics[small.name]["global"]
    assert worst["mr"] <= (len(small.vocabulary.entities) + 1) / 2


def test_reciprocal_relations_have_two_rows(federation: Federation) -> None:
    party = play(federation, 12, method="fede", model="DistMult", reciprocal=True, learning_rate=0.02)
    client = party.clients[0]
    assert len(client.relations.values) == 2 * len(client.graph.vocabulary.relations)
    assert mrr(party, "global") > 0.25


@pytest.mark.parametrize("model", ["TransE", "TransE-L2", "DistMult", "ComplEx", "RotatE"])
@pytest.mark.parametrize("private", [False, True])
def test_the_torch_fallback_trains_the_same_tables(federation: Federation, model: str, private: bool) -> None:
    """Two rounds of mutual steps by the formulas and autograd on a torch device, and by the fused loops."""
    options = {"method": "fedlu", "model": model, "private_negatives": private, "learning_rate": 1e-3}
    fused, torch_ = (play(federation, 2, device=device, **options) for device in ("", "cpu"))
    for mine, theirs in zip(fused.clients, torch_.clients, strict=True):
        for table in ("local", "avatar", "relations"):
            ours, formula = getattr(mine, table).values, getattr(theirs, table).values
            assert np.abs(ours - formula).mean() < 2e-5, table  # Adam's first steps are signs: a few may differ


def test_an_unknown_device_is_refused(federation: Federation) -> None:
    with pytest.raises(InputError, match="device = 'gpu9' cannot be used"):
        gather(federation, Settings(device="gpu9"))


def test_partial_participation(federation: Federation) -> None:
    """One client of three in a round: after one round, one has trained; after many, all have."""
    for number, expected in ((1, 1), (12, 3)):
        party = play(federation, number, method="fede", fraction=0.34)
        assert len([client for client in party.clients if client.avatar.updates]) == expected


def test_an_independent_client_sends_nothing(federation: Federation) -> None:
    party = play(federation, 1, method="independent")
    assert party.server.table.size == 0
    assert all(not len(client.shared) for client in party.clients)


def test_phases_are_not_regularised(federation: Federation) -> None:
    """The cubic regulariser is about sizes; RotatE's relations are angles, which it must leave alone."""
    options = {"method": "independent", "model": "RotatE", "dimension": 7, "learning_rate": 1e-3}
    free, held = (play(federation, 1, n3=n3, **options).clients[0] for n3 in (0.0, 1e3))
    assert np.abs(held.local.values).mean() < np.abs(free.local.values).mean()
    start = gather(federation, free.settings).clients[0].relations.values
    assert np.abs(held.relations.values - start).mean() < 3 * np.abs(free.relations.values - start).mean()


def test_the_global_view_is_a_mean_of_what_the_last_rounds_were_averaged_to(federation: Federation) -> None:
    """Of five rounds, the last three are remembered; what came of the fifth would come with a sixth. With the client's
    own relations of each, and its own rows where nobody shares them."""
    options = {"method": "fede", "rounds": 5}
    after = {number: play(federation, number, **options) for number in (3, 4)}
    party = play(federation, 5, **options, remember=0.6)
    for number, client in enumerate(party.clients):
        seen = []
        for past in after.values():
            entities = past.clients[number].avatar.values.copy()
            entities[client.shared] = past.server.rows_for(client.name)
            seen.append((entities, past.clients[number].relations.values))
        client.keep(Keep(5, ("global",)))
        kept = client.best["global"]
        np.testing.assert_allclose(kept.entities, (seen[0][0] + seen[1][0]) / 2, atol=1e-6)
        np.testing.assert_allclose(kept.relations, (seen[0][1] + seen[1][1]) / 2, atol=1e-6)


def test_owners_never_predict_by_different_rows_of_what_they_share(federation: Federation) -> None:
    """A client that is not asked in a remembered round has no mean, whether it is asked again or not."""
    party = play(federation, 10, method="fede", rounds=10, fraction=0.67, remember=0.5)
    asked = [set(party.server.sample(number, 0.67)) for number in range(7, 11)]  # each brings what came of one before
    for client in party.clients:
        missed = any(client.name not in names for names in asked)
        assert ("global" in client.remembered.of) != missed
        assert "local" in client.remembered.of  # of the rounds that it had
        if missed:
            rows = client._memory("global").table.values[client.shared]
            assert (rows == party.server.rows_for(client.name)).all()
    assert any("global" not in client.remembered.of for client in party.clients)


def test_centralized_training_has_a_mean_over_rounds_too(federation: Federation) -> None:
    party = play(federation, 4, method="centralized", rounds=4, remember=0.75)
    past = [play(federation, number, method="centralized", rounds=4).clients[0].avatar.values for number in (2, 3)]
    party.clients[0].keep(Keep(4, ("global",)))
    np.testing.assert_allclose(party.clients[0].best["global"].entities, (past[0] + past[1]) / 2, atol=1e-6)


@pytest.mark.parametrize("method", ["independent", "fede", "fedlu"])
def test_the_local_view_is_a_mean_over_the_last_rounds(federation: Federation, method: str) -> None:
    """Of four rounds, the last two are remembered; what is learned, and what is shared, stays as it is without."""
    options = {"method": method, "rounds": 4, "warm_rounds": 1}
    after = {number: play(federation, number, **options) for number in (3, 4)}
    party = play(federation, 4, **options, remember=0.5)
    for number, client in enumerate(party.clients):
        third, fourth = (after[n].clients[number] for n in (3, 4))
        assert (client.local.values == fourth.local.values).all()
        assert (client.avatar.values == fourth.avatar.values).all()
        client.keep(Keep(4, ("local",)))
        kept = client.best["local"]
        np.testing.assert_allclose(kept.entities, (third.local.values + fourth.local.values) / 2, atol=1e-6)
        np.testing.assert_allclose(kept.relations, (third.relations.values + fourth.relations.values) / 2, atol=1e-6)
        assert (kept.entities != fourth.local.values).any()


def test_a_model_that_learns_more_than_rows_remembers_no_rounds(federation: Federation) -> None:
    with pytest.raises(InputError, match=r"remember = 0\.5 with pykeen:TuckER, which learns more than rows; give 0"):
        gather(federation, Settings(model="pykeen:TuckER", dimension=4, remember=0.5))


def test_optimizer_memory_is_kept_or_not(federation: Federation) -> None:
    kept = play(federation, 2, method="fede").clients[0].avatar.updates
    assert play(federation, 2, method="fede", keep_optimizer=False).clients[0].avatar.updates == kept / 2


def test_a_diverging_run_stops_and_names_the_round(federation: Federation) -> None:
    party = play(federation, 1, method="fede")
    party.clients[1].relations = Table(np.full_like(party.clients[1].relations.values, np.nan))
    loop = rounds.learn(
        party.server, party.transport, Progress(round=6), rounds=9, fraction=1, evaluate_every=9, patience=9
    )
    with pytest.raises(DivergedError, match="round 7: the global loss of client-1 is nan"):
        next(loop)
