"""Tables that leave: every format read back by other means, and a PyKEEN model that scores what the run scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from pykeen.models import ERModel, RotatE, TransE
from pykeen.nn.modules import ComplExInteraction, DistMultInteraction, RotatEInteraction, TransEInteraction
from pykeen.triples import TriplesFactory
from safetensors.numpy import load_file, save_file

import fedlu
from fedlu.embedding.ranking import Queries, Side
from fedlu.errors import InputError
from fedlu.results import exchange
from fedlu.results.prediction import LearnedRun
from fedlu.results.tables import Shape, Tables, read_tables, write_tables

QUICK: dict[str, Any] = {
    "dimension": 6,
    "rounds": 2,
    "evaluate_every": 1,
    "warm_rounds": 1,
    "negatives": 8,
    "initial_range": 0.5,
}


@pytest.fixture(scope="module")
def run_of(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[tuple[str, bool], LearnedRun] = {}

    def run_of(model: str, reciprocal: bool = False) -> LearnedRun:
        if (model, reciprocal) not in made:
            out = tmp_path_factory.mktemp("runs") / "run"
            fedlu.learn(data, out=out, model=model, reciprocal=reciprocal, **QUICK)
            made[model, reciprocal] = fedlu.load(out)
        return made[model, reciprocal]

    return run_of


def all_scores(learned: LearnedRun, client: str, view: str) -> list[np.ndarray]:
    """For every entity and relation, by side: (entities * relations, entities)."""
    desk = learned.desks[client]
    entities, relations = len(desk.graph.vocabulary.entities), len(desk.graph.vocabulary.relations)
    anchors, numbers = (each.ravel() for each in np.meshgrid(np.arange(entities), np.arange(relations), indexing="ij"))
    return [desk.scores(Queries(anchors, numbers, side), view) for side in Side]


def pykeen_scores(model: ERModel, entities: int, relations: int) -> list[np.ndarray]:
    anchors, numbers = torch.meshgrid(torch.arange(entities), torch.arange(relations), indexing="ij")
    a, r = anchors.reshape(-1), numbers.reshape(-1)
    with torch.no_grad():
        heads = model.predict_h(torch.stack([r, a], dim=1)).numpy()
        return [heads, model.predict_t(torch.stack([a, r], dim=1)).numpy()]


KINDS = {
    "TransE": TransEInteraction,
    "TransE-L2": TransEInteraction,
    "DistMult": DistMultInteraction,
    "ComplEx": ComplExInteraction,
    "RotatE": RotatEInteraction,
}


@pytest.mark.parametrize("reciprocal", [False, True], ids=["plain", "reciprocal"])
@pytest.mark.parametrize("model", [*KINDS, "pykeen:HolE", "pykeen:TuckER", "pykeen:SimplE", "pykeen:ComplEx"])
def test_a_pykeen_model_scores_identically(run_of: Any, tmp_path: Path, model: str, reciprocal: bool) -> None:
    """Both sides, every question, local, global, and the blend where it is a model of its own."""
    learned = run_of(model, reciprocal)
    can_blend = model in KINDS and model != "TransE-L2"
    for view in ("local", "global", "blend") if can_blend else ("local", "global"):
        folder = fedlu.export(learned, "client-1", tmp_path / view, kind="pykeen", view=view)
        assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]
        theirs = fedlu.load_pykeen(folder)
        assert isinstance(theirs, ERModel)
        if model in KINDS:
            assert isinstance(theirs.interaction, KINDS[model])
        labels = exchange.labels_of(folder)
        assert theirs.use_inverse_triples == reciprocal
        assert theirs.num_real_relations == len(labels.relations)
        ours = all_scores(learned, "client-1", view)
        found = pykeen_scores(theirs, len(labels.entities), len(labels.relations))
        for mine, other in zip(ours, found, strict=True):
            assert np.ptp(mine) > 1e-3  # a collapsed model would agree with anything
            np.testing.assert_allclose(other, mine, rtol=1e-4, atol=1e-4)


def test_a_blend_that_is_no_model_is_refused(run_of: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a blend of TransE-L2 is not a TransE-L2; export it with --view local"):
        fedlu.export(run_of("TransE-L2"), "client-0", tmp_path / "model", kind="pykeen")
    assert not list(tmp_path.iterdir())


def test_safetensors_come_back(run_of: Any, tmp_path: Path) -> None:
    learned = run_of("ComplEx", True)
    path = fedlu.export(learned, "client-0", tmp_path / "deep" / "tables.safetensors", view="global")
    best, tables = learned.desks["client-0"].best["global"], read_tables(path)
    np.testing.assert_array_equal(tables.entities, best.entities)
    np.testing.assert_array_equal(tables.relations, best.relations)
    assert tables.shape == Shape(
        "ComplEx",
        6,
        8.0,
        True,
        learned.desks["client-0"].graph.vocabulary.entities,
        learned.desks["client-0"].graph.vocabulary.relations,
    )
    with pytest.raises(InputError, match=r"tables.safetensors: is there already; choose another --out"):
        fedlu.export(learned, "client-0", path)


def test_tsv(run_of: Any, tmp_path: Path) -> None:
    learned = run_of("TransE", True)
    folder = fedlu.export(learned.folder, "client-0", tmp_path / "tsv", kind="tsv", view="local")
    desk = learned.desks["client-0"]
    lines = [line.split("\t") for line in (folder / "entities.tsv").read_text().splitlines()]
    assert tuple(line[0] for line in lines) == desk.graph.vocabulary.entities
    np.testing.assert_array_equal(np.array([line[1:] for line in lines], dtype=np.float32), desk.best["local"].entities)
    names = [line.split("\t")[0] for line in (folder / "relations.tsv").read_text().splitlines()]
    relations = desk.graph.vocabulary.relations
    assert names == [*relations, *(f"{name} (inverse)" for name in relations)]


def test_word2vec_is_what_gensim_reads(run_of: Any, tmp_path: Path) -> None:
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    learned = run_of("TransE")
    path = fedlu.export(learned, "client-0", tmp_path / "entities.txt", kind="word2vec", view="local")
    vectors = keyed.load_word2vec_format(str(path), binary=False)
    desk = learned.desks["client-0"]
    assert tuple(vectors.index_to_key) == desk.graph.vocabulary.entities
    np.testing.assert_array_equal(vectors.vectors, desk.best["local"].entities)


def test_blanks_in_names_become_words(tmp_path: Path) -> None:
    def tables(*names: str) -> Tables:
        rows = np.arange(len(names), dtype=np.float32)[:, None] + np.float32(0.1)
        return Tables(Shape("TransE", 1, 10.0, False, names, ()), rows, np.empty((0, 1), dtype=np.float32))

    exchange.write_word2vec(tables("head ache", 'say "x"'), tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == '2 1\nhead_ache 0.1\nsay_"x" 1.1\n'
    with pytest.raises(InputError, match="two entities would be 'head_ache' without blanks; export them as tsv"):
        exchange.write_word2vec(tables("head ache", "head_ache"), tmp_path / "b.txt")


@pytest.mark.parametrize(("kind", "message"), [("onnx", "no format 'onnx'; choose one of safetensors, pykeen")])
def test_unknown_formats(run_of: Any, tmp_path: Path, kind: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fedlu.export(run_of("TransE"), "client-0", tmp_path / "x", kind=kind)
    with pytest.raises(InputError, match="no client 'nobody'"):
        fedlu.export(run_of("TransE"), "nobody", tmp_path / "x")


# --- import


def pykeen_run(folder: Path, model: type[ERModel], inverse: bool) -> tuple[ERModel, TriplesFactory, Path]:
    """What a person has after PyKEEN: a model, its weights as torch saves them, and the factory's folder."""
    rows = np.array([["ada", "knows", "bob"], ["bob", "knows", "cyd"], ["cyd", "likes", "ada"]], dtype=str)
    factory = TriplesFactory.from_labeled_triples(rows, create_inverse_triples=inverse)
    made = model(triples_factory=factory, embedding_dim=4, random_seed=3)
    factory.to_path_binary(folder / "training_triples")
    torch.save(made.state_dict(), folder / "weights.pt")
    return made, factory, folder / "weights.pt"


@pytest.mark.parametrize("inverse", [False, True], ids=["plain", "inverse"])
def test_a_pykeen_transe_comes_in_with_its_scores(tmp_path: Path, inverse: bool) -> None:
    """Scored by our formula, the imported rows give PyKEEN's own scores, label by label."""
    theirs, factory, weights = pykeen_run(tmp_path, TransE, inverse)
    tables = exchange.import_pykeen(weights, tmp_path / "training_triples", model="TransE", reciprocal=inverse)
    assert tables.shape.entities == ("ada", "bob", "cyd")
    assert tables.shape.dimension == 4
    for h, r, t in [("ada", "likes", "cyd"), ("cyd", "knows", "bob")]:
        ids = [factory.entity_to_id[h], factory.relation_to_id[r], factory.entity_to_id[t]]
        head, tail = (tables.entities[tables.shape.entities.index(each)] for each in (h, t))
        relation = tables.relations[tables.shape.relations.index(r)]
        with torch.no_grad():
            expected, found = theirs.predict_hrt(torch.tensor([ids])), theirs.predict_h(torch.tensor([ids[1:]]))
        assert -np.abs(head + relation - tail).sum() == pytest.approx(float(expected), abs=1e-5)
        if inverse:
            back = tables.relations[tables.shape.relations.index(r) + 2]
            assert -np.abs(tail + back - head).sum() == pytest.approx(float(found[0, ids[0]]), abs=1e-5)


def test_a_pykeen_rotate_comes_in_as_phases(tmp_path: Path) -> None:
    theirs, _, weights = pykeen_run(tmp_path, RotatE, False)
    tables = exchange.import_pykeen(weights, tmp_path / "training_triples", model="RotatE")
    entity = tables.entities[0, :4] + 1j * tables.entities[0, 4:]
    np.testing.assert_allclose(
        entity, theirs.entity_representations[0](torch.tensor([0])).detach().numpy()[0], rtol=1e-5
    )
    turn = theirs.relation_representations[0](torch.tensor([1])).detach().numpy()[0]
    np.testing.assert_allclose(np.exp(1j * tables.relations[1]), turn / np.abs(turn), rtol=1e-5)


@pytest.mark.parametrize("model", ["ComplEx", "RotatE"])
def test_out_and_in_again(run_of: Any, tmp_path: Path, model: str) -> None:
    """An exported PyKEEN folder says all that the import needs."""
    learned = run_of(model, True)
    folder = fedlu.export(learned, "client-0", tmp_path / "model", kind="pykeen", view="local")
    tables, best = exchange.import_pykeen(folder), learned.desks["client-0"].best["local"]
    np.testing.assert_array_equal(tables.entities, best.entities)
    if model == "RotatE":  # phases are the same angle, not the same number
        np.testing.assert_allclose(np.exp(1j * tables.relations), np.exp(1j * best.relations), atol=1e-6)
    else:
        np.testing.assert_array_equal(tables.relations, best.relations)


def test_wrong_weights_are_refused(tmp_path: Path) -> None:
    theirs, _, weights = pykeen_run(tmp_path, TransE, False)
    labels = tmp_path / "training_triples"
    torch.save(theirs, tmp_path / "trained_model.pkl")  # as PyKEEN's pipeline does: a pickled object
    with pytest.raises(InputError, match=r"not weights alone .* can run any code: save model.state_dict\(\)"):
        exchange.import_pykeen(tmp_path / "trained_model.pkl", labels)
    with pytest.raises(InputError, match="weights have no names; give --labels"):
        exchange.import_pykeen(weights)
    with pytest.raises(InputError, match=r"3 and 2 rows for 3 and 2 names; check --labels, and say --reciprocal"):
        exchange.import_pykeen(weights, labels, reciprocal=True)
    with pytest.raises(InputError, match="no such file; give the training_triples folder"):
        exchange.import_pykeen(weights, tmp_path)
    with pytest.raises(InputError, match="no such file"):
        exchange.import_pykeen(tmp_path / "none.pt", labels)
    with pytest.raises(InputError, match="no model 'TransX' to import"):
        exchange.import_pykeen(weights, labels, model="TransX")
    save_file({"x": np.zeros((2, 2), dtype=np.float32)}, tmp_path / "x.safetensors")
    with pytest.raises(InputError, match=r"no weights of TransE in it \(it has x\); check --model"):
        exchange.import_pykeen(tmp_path / "x.safetensors", labels)
    spoilt = {**theirs.state_dict()}
    spoilt = {key: torch.full_like(value, float("nan")) for key, value in spoilt.items()}
    torch.save(spoilt, tmp_path / "nan.pt")
    with pytest.raises(InputError, match="not finite"):
        exchange.import_pykeen(tmp_path / "nan.pt", labels)


def test_damaged_files_are_refused(run_of: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"not tables")
    with pytest.raises(InputError, match="not tables of fedlu"):
        read_tables(bad)
    save_file({"entities": np.zeros((1, 1), dtype=np.float32)}, bad)
    with pytest.raises(InputError, match="not tables of fedlu"):
        read_tables(bad)
    rows = np.zeros((1, 2), dtype=np.float32)
    write_tables(Tables(Shape("TransE", 2, 1.0, False, ("a", "b"), ("r",)), rows, rows), bad)
    with pytest.raises(InputError, match="names and rows do not fit"):
        read_tables(bad)
    folder = fedlu.export(run_of("TransE"), "client-0", tmp_path / "model", kind="pykeen")
    state = load_file(folder / "model.safetensors")
    save_file({key: each[:1] for key, each in state.items()}, folder / "model.safetensors")
    with pytest.raises(InputError, match="the weights do not fit"):
        fedlu.load_pykeen(folder)
    (folder / "model.json").write_text("{}")
    with pytest.raises(InputError, match="not an exported model"):
        fedlu.load_pykeen(folder)
    with pytest.raises(InputError, match="no exported model; make one with `fedlu export --format pykeen`"):
        fedlu.load_pykeen(tmp_path / "nowhere")


# --- a run that starts from tables


def given(tmp_path: Path, names: tuple[str, ...], relations: tuple[str, ...], value: float, **other: Any) -> Path:
    rows = np.full((len(names), 6), value, dtype=np.float32)
    shape = Shape(
        **{"model": "TransE", "dimension": 6, "margin": 10.0, "reciprocal": False, **other},
        entities=names,
        relations=relations,
    )
    path = tmp_path / f"start-{value}.safetensors"
    path.unlink(missing_ok=True)
    write_tables(Tables(shape, rows, np.full((len(relations), 6), value, dtype=np.float32)), path)
    return path


def still(data: Path, tmp_path: Path, name: str, **options: Any) -> LearnedRun:
    """A run whose learning rate is so small that its tables stay where they began."""
    settings = {**QUICK, "rounds": 1, "warm_rounds": 0, "learning_rate": 1e-12, **options}
    fedlu.learn(data, out=tmp_path / name, **settings)
    return fedlu.load(tmp_path / name)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedlu", {"own_start": False}),
        ("fedlu", {"own_start": True}),
        ("fede", {}),
        ("independent", {}),
        ("centralized", {}),
    ],
)
def test_a_run_begins_with_the_rows_that_it_was_given(
    data: Path, tmp_path: Path, method: str, settings: dict[str, Any]
) -> None:
    client = fedlu.graph.load(data).clients[0]
    relation = client.vocabulary.relations[0]
    file = given(tmp_path, ("brazil", "atlantis", "china"), (relation,), 0.5)
    warm, cold = (
        still(data, tmp_path, name, method=method, start_from=start, **settings)
        for name, start in {"warm": [file], "cold": ()}.items()
    )
    for view in ("local", "global") if len(warm.views) == 3 else warm.views:
        for name in warm.clients:
            labels = warm.desks[name].graph.vocabulary
            mine, other = warm.desks[name].best[view], cold.desks[name].best[view]
            for number, label in enumerate(labels.entities):
                if label in ("brazil", "china"):
                    np.testing.assert_allclose(mine.entities[number], 0.5, atol=1e-6)
                else:
                    np.testing.assert_allclose(mine.entities[number], other.entities[number], atol=1e-6)
            if relation in labels.relations:
                np.testing.assert_allclose(mine.relations[labels.relation_ids[relation]], 0.5, atol=1e-6)
    config = json.loads((tmp_path / "warm" / "config.json").read_text())
    assert config["start_from"][0]["file"] == str(file)
    assert len(config["start_from"][0]["sha256"]) == 64
    assert "start_from" not in json.loads((tmp_path / "cold" / "config.json").read_text())


def test_each_client_may_have_its_own_start_and_the_server_the_mean(data: Path, tmp_path: Path) -> None:
    low, high = given(tmp_path, ("brazil",), (), 0.2), given(tmp_path, ("brazil",), (), 0.6)
    learned = still(data, tmp_path, "run", start_from=[f"client-0={low}", f"client-1={high}"])
    brazil = {name: desk.graph.vocabulary.entity_ids["brazil"] for name, desk in learned.desks.items()}
    for name, value in {"client-0": 0.2, "client-1": 0.6}.items():
        np.testing.assert_allclose(learned.desks[name].best["local"].entities[brazil[name]], value, atol=1e-6)
        np.testing.assert_allclose(learned.desks[name].best["global"].entities[brazil[name]], 0.4, atol=1e-6)


def test_a_good_start_is_worth_rounds(data: Path, tmp_path: Path) -> None:
    """Tables of a longer run: after one round, a run that starts from them is where the other is after many."""
    settings: dict[str, Any] = {**QUICK, "method": "independent", "dimension": 16, "learning_rate": 0.02}
    fedlu.learn(data, out=tmp_path / "long", **{**settings, "rounds": 30, "evaluate_every": 5})
    learned = fedlu.load(tmp_path / "long")
    files = [f"{name}={fedlu.export(learned, name, tmp_path / f'{name}.safetensors')}" for name in learned.clients]
    found = {
        name: fedlu.learn(data, out=tmp_path / name, start_from=start, **{**settings, "rounds": 1})["valid"]["local"][
            "weighted"
        ]["mrr"]
        for name, start in {"cold": [], "warm": files}.items()
    }
    assert found["warm"] > found["cold"] + 0.05


def test_starts_that_do_not_fit_leave_no_run(data: Path, tmp_path: Path) -> None:
    def learn(*start: str | Path) -> None:
        fedlu.learn(data, out=tmp_path / "run", start_from=list(start), **QUICK)

    good = given(tmp_path, ("brazil",), (), 0.5)
    with pytest.raises(InputError, match="its model is RotatE, the run's is TransE; learn with --model RotatE"):
        learn(given(tmp_path, ("brazil",), (), 0.1, model="RotatE"))
    with pytest.raises(InputError, match="its dimension is 7, the run's is 6; learn with --set dimension=7"):
        learn(given(tmp_path, ("brazil",), (), 0.1, dimension=7))
    with pytest.raises(InputError, match="it names no entity of this federation"):
        learn(given(tmp_path, ("atlantis",), (), 0.1))
    with pytest.raises(InputError, match="no client 'north' to start; its clients are client-0, client-1"):
        learn(f"north={good}")
    with pytest.raises(InputError, match=r"gone.safetensors: no such file; make one with `fedlu export`"):
        learn(tmp_path / "gone.safetensors")
    assert not (tmp_path / "run").exists()
    learn(good)
    with pytest.raises(InputError, match="the run began with other tables; resume it with the same"):
        fedlu.learn(data, out=tmp_path / "run", resume=True, **QUICK)
    fedlu.learn(data, out=tmp_path / "run", resume=True, start_from=good, **QUICK)


def test_names_with_odd_letters_survive(tmp_path: Path) -> None:
    names = ("NA", "null", 'say "x"', "tab", "ü")
    pl.DataFrame({"id": range(5), "label": names}).write_csv(tmp_path / "names.tsv", separator="\t")
    assert exchange._pykeen_names(tmp_path / "names.tsv") == names
