"""Settings: recipes resolve, overrides win, and what is wrong is named."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from fedlu.config import METHODS, RECIPES, Settings, layers, parse_overrides, read_recipe, read_space, resolve
from fedlu.embedding.scorers import MODELS
from fedlu.errors import InputError


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_suits_every_method_and_model(recipe: str) -> None:
    assert read_recipe(recipe)["about"]
    for method in METHODS:
        for model in MODELS:
            settings = resolve(recipe, method=method, model=model)
            assert (settings.method, settings.model) == (method, model)


def test_the_paper_by_the_letter() -> None:
    settings = resolve("paper", method="fedlu", model="TransE")
    assert (settings.learning_rate, settings.negatives, settings.dimension, settings.epochs) == (1e-4, 256, 256, 3)
    assert (settings.teach_local, settings.teach_global, settings.relations_from) == (2, 2, "local")
    assert (settings.private_negatives, settings.warm_rounds, settings.adversarial) == (True, 0, 0)
    assert resolve("paper", method="fede", model="RotatE").adversarial == 1
    assert resolve("paper", method="fede", model="RotatE").batch_size == 1024
    for method in ("independent", "centralized"):  # without rounds: measured every 5 epochs, an optimizer throughout
        alone = resolve("paper", method=method, model="TransE")
        assert (alone.epochs, alone.evaluate_every, alone.keep_optimizer) == (1, 5, True)
        assert alone.rounds * alone.epochs == settings.rounds * settings.epochs


def test_strong_has_the_regulariser_that_fits_the_model() -> None:
    found = {model: resolve("strong", method="fedlu", model=model) for model in ("ComplEx", "DistMult", "TransE")}
    assert {model: (each.n3, each.dura) for model, each in found.items()} == {
        "ComplEx": (0.0, 0.025),
        "DistMult": (0.0, 0.025),
        "TransE": (0.0, 0.0),
    }


@pytest.mark.parametrize("model", ["TransE", "TransE-L2", "RotatE"])
@pytest.mark.parametrize("method", METHODS)
def test_models_of_distances_learn_as_long_and_as_fast_with_strong_as_with_fast(method: str, model: str) -> None:
    """What differs is what it is there for: how often rows are averaged, whether changes add up, means over rounds."""
    fast, strong = (resolve(recipe, method=method, model=model) for recipe in ("fast", "strong"))
    assert strong.rounds * strong.epochs == fast.rounds * fast.epochs
    meant = {"rounds", "epochs", "evaluate_every", "add_up", "remember"}
    own = {"warm_rounds", "rejoin"} if method == "fedlu" else set()
    changed = {name for name, value in asdict(fast).items() if getattr(strong, name) != value}
    assert meant <= changed <= meant | own


def test_a_model_like_another_has_what_is_said_of_it_where_nothing_is_said_of_itself() -> None:
    of_methods = {"fede": {"epochs": 9, "models": {"TransE": {"rounds": 1, "margin": 4.0}, "RotatE": {"rounds": 2}}}}
    models = {"TransE": {"margin": 8.0, "negatives": 3}, "RotatE": {"like": "TransE", "margin": 10.0}}
    text = {"models": models, "methods": of_methods}
    assert layers(text, "fede", "TransE") == [models["TransE"], {"epochs": 9}, {"rounds": 1, "margin": 4.0}]
    assert layers(text, "fede", "RotatE") == [
        {"margin": 10.0, "negatives": 3},
        {"epochs": 9},
        {"rounds": 2, "margin": 4.0},
    ]
    assert layers(text, "fedlu", "DistMult") == [{}, {}, {}]


@pytest.mark.parametrize("text", [*map(read_recipe, RECIPES), read_space()], ids=[*RECIPES, "space"])
def test_a_model_is_like_one_that_stands_for_itself(text: dict[str, Any]) -> None:
    """`like` is followed once: a chain, or a name that is nowhere, would be passed over without a word."""
    models = text.get("models", {})
    for each in models.values():
        assert "like" not in each or "like" not in models[each["like"]]


def test_the_stronger_wins() -> None:
    """The method's table over the recipe's keys, and the command line over both; text takes the field's type."""
    settings = resolve("fast", method="fedlu", model="TransE", overrides={"warm_rounds": "3", "weighted": "false"})
    assert settings.warm_rounds == 3
    assert settings.weighted is False
    assert resolve("fast", method="fede", model="TransE").warm_rounds == 0
    assert resolve("fast", method="fedlu", model="TransE").warm_rounds == 20
    assert resolve("fast", method="fedlu", model="ComplEx").warm_rounds == 8  # said of the two together
    assert resolve("fast", method="fede", model="ComplEx").optimizer == "adagrad"
    assert resolve("fast", method="fede", model="TransE", overrides={"learning_rate": "1e-2"}).learning_rate == 0.01


@pytest.mark.parametrize(("rounds", "warm"), [(1, 0), (2, 1), (5, 2), (8, 4), (40, 20), (101, 50)])
def test_warm_rounds_follow_the_rounds(rounds: int, warm: int) -> None:
    """Half of them in the recipe, so that a shorter run parts its tables as well."""
    assert resolve("fast", method="fedlu", model="TransE", overrides={"rounds": rounds}).warm_rounds == warm


@pytest.mark.parametrize("recipe", ["fast", "strong"])
@pytest.mark.parametrize("warm", [None, "0.3", "1", "0"])
def test_only_no_warm_rounds_at_all_begin_apart(recipe: str, warm: str | None) -> None:
    """Not a share of so few rounds that none is left; and a run with warm rounds has the settings it always had."""
    for rounds in (2, 40):
        chosen = {"rounds": rounds} | ({} if warm is None else {"warm_rounds": warm})
        settings = resolve(recipe, method="fedlu", model="ComplEx", overrides=chosen)
        assert settings.begins_apart == settings.own_start == (warm == "0")
    assert not resolve(recipe, method="fede", model="ComplEx").begins_apart
    assert not resolve("paper", method="fedlu", model="ComplEx").begins_apart


@pytest.mark.parametrize("recipe", ["fast", "strong"])
def test_a_start_of_its_own_is_refused_where_warm_rounds_would_undo_it(recipe: str) -> None:
    """In silence the local table would become a copy of the global one."""
    with pytest.raises(InputError, match=r"own_start = true with warm_rounds = .* set warm_rounds=0, too"):
        resolve(recipe, method="fedlu", model="ComplEx", overrides={"own_start": "true"})
    assert not resolve(recipe, method="fedlu", model="ComplEx", overrides={"own_start": "false"}).own_start
    chosen = {"own_start": "true", "warm_rounds": "0"}
    assert resolve(recipe, method="fedlu", model="ComplEx", overrides=chosen).begins_apart


@pytest.mark.parametrize(("given", "taken"), [("0.0", 0), ("3.0", 3), ("2e1", 20)])
def test_a_whole_number_may_be_written_as_a_study_prints_it(given: str, taken: int) -> None:
    settings = resolve("fast", method="fedlu", model="ComplEx", overrides={"rounds": 40, "warm_rounds": given})
    assert (settings.warm_rounds, type(settings.warm_rounds)) == (taken, int)


def test_a_share_below_one_leaves_a_round_for_two_tables() -> None:
    for rounds in range(1, 60):
        settings = resolve("fast", method="fedlu", model="TransE", overrides={"rounds": rounds, "warm_rounds": "0.999"})
        assert settings.warm_rounds == int(0.999 * rounds) < rounds
    exact = {"rounds": 100, "warm_rounds": 0.29}  # their product is a hair below 29 for a computer
    assert resolve("fast", method="fedlu", model="TransE", overrides=exact).warm_rounds == 29


def test_seeds_keep_all_their_digits() -> None:
    assert resolve("fast", method="fedlu", model="TransE", overrides={"seed": 2**60 + 1}).seed == 2**60 + 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"learing_rate": 1}, "no setting 'learing_rate'; known are method, model"),
        ({"rounds": "many"}, "rounds = 'many'; give a value of type int"),
        ({"rounds": "1.5"}, "rounds = '1.5'; give a value of type int"),
        ({"rounds": 0}, "rounds = 0; give at least 1"),
        ({"rounds": 0.5}, "rounds = 0.5; give a value of type int"),
        ({"warm_rounds": "1.5"}, "warm_rounds = '1.5'; give a value of type int, or a share of rounds below 1"),
        ({"warm_rounds": "-0.5"}, "warm_rounds = '-0.5'; give a value of type int, or a share of rounds below 1"),
        ({"weighted": "perhaps"}, "weighted = 'perhaps'; give a value of type bool"),
        ({"learning_rate": "nan"}, "learning_rate = nan; give a number above 0"),
        ({"teach_local": -1}, "teach_local = -1.0; give a finite number"),
        ({"fraction": 1.5}, "fraction = 1.5; give a share above 0, up to 1"),
        ({"rounds": float("inf")}, "rounds = inf; give a value of type int"),
        ({"temperature": 1e-300}, "temperature = 1e-300; give at least 0.01"),
        ({"rounds": 5, "warm_rounds": 5}, "warm_rounds = 5 of rounds = 5: the two tables would never part; give fewer"),
        ({"rejoin": 1.5}, "rejoin = 1.5; give a share from 0 to 1"),
        ({"remember": 1.5}, "remember = 1.5; give a share from 0 to 1"),
        ({"add_up": 1.5}, "add_up = 1.5; give a share from 0 to 1"),
        ({"epochs": 1.5}, "epochs = 1.5; give a whole number, or a half, a third, ... of one"),
        ({"epochs": "0.7"}, "epochs = 0.7; give a whole number, or a half, a third, ... of one"),
        ({"epochs": 0}, "epochs = 0.0; give a whole number, or a half, a third, ... of one"),
        ({"epochs": float("inf")}, "epochs = inf; give a finite number"),
        ({"loss": "hinge"}, "loss = 'hinge'; choose one of contrastive, cross_entropy"),
    ],
)
def test_what_is_wrong_is_named(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        resolve("fast", method="fedlu", model="TransE", overrides=overrides)
    assert str(refusal.value).startswith(message)


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(InputError, match="no recipe 'slow'; choose one of fast, paper, strong"):
        resolve("slow", method="fedlu", model="TransE")
    with pytest.raises(InputError, match="method = 'fedavg'; choose one of independent"):
        resolve("fast", method="fedavg", model="TransE")
    with pytest.raises(InputError, match="--set margin; write it as key=value"):
        parse_overrides(["margin"])
    assert parse_overrides(["margin = 1", "loss=x=y"]) == {"margin": "1", "loss": "x=y"}
    for key in ("seed", "method", "recipe", "out"):  # options of their own, or nothing at all
        with pytest.raises(InputError, match=f"no setting '{key}'; known are dimension"):
            parse_overrides([f"{key}=1"])


def test_a_large_seed_is_kept_whole() -> None:
    assert resolve("fast", method="fede", model="TransE", overrides={"seed": 2**53 + 1}).seed == 2**53 + 1


def test_the_starting_range_is_the_published_one() -> None:
    assert Settings(margin=10, dimension=256).start_range == 12 / 256
    assert Settings(initial_range=0.5).start_range == 0.5


def test_an_epoch_may_be_spread_over_rounds() -> None:
    assert [Settings(epochs=epochs).rounds_an_epoch for epochs in (3, 1, 0.5, 0.33, 0.1)] == [1, 1, 2, 3, 10]


def test_the_rate_falls_evenly() -> None:
    settings = Settings(rounds=5, learning_rate=0.1, final_rate=0.2)
    assert [settings.rate_in(number) for number in range(1, 6)] == pytest.approx([0.1, 0.08, 0.06, 0.04, 0.02])
    assert Settings(rounds=1, final_rate=0.2, learning_rate=0.1).rate_in(1) == 0.1
    assert settings.rate_in(9) == pytest.approx(0.02)  # it does not fall below
