"""`tune`: what is tried comes from the declared space, only valid counts, and a study that was killed goes on."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from fedlu.config import METHODS, RECIPES, Settings, read_space, resolve
from fedlu.errors import InputError
from fedlu.federated.rounds import DivergedError
from fedlu.graph import partition, read, save
from fedlu.results import runs, tuning
from fedlu.results.reproduction import read_tuned
from fedlu.results.tuning import space_of, tune

HELD = {"dimension": "8", "rounds": "4", "evaluate_every": "2", "negatives": "16"}


@pytest.fixture(scope="module")
def nations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "nations"
    save(partition(read("nations"), clients=2, by="random"), folder, {})
    return folder


class Unseen(dict[str, Any]):
    """Metrics whose test nobody may read."""

    def __getitem__(self, key: str) -> Any:
        assert key != "test"
        return super().__getitem__(key)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Runs that take no time: the better, the nearer the margin is to 12."""
    seen: list[dict[str, Any]] = []

    def learn(federation: Path, *, out: Path, **given: Any) -> Unseen:
        seen.append(given)
        mrr = 1 / (1 + abs(float(given.get("margin", 10.0)) - 12))
        views = {"local": mrr / 2, "global": mrr}
        return Unseen(valid={view: {"weighted": {"mrr": each}} for view, each in views.items()})

    monkeypatch.setattr(runs, "learn", learn)
    return seen


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", read_space()["models"])
def test_the_space_is_of_settings_and_within_their_bounds(method: str, model: str) -> None:
    """Both ends of every range are settings that a run takes."""
    known = {field.name for field in fields(Settings)}
    space = space_of(method, model)
    assert set(space) <= known
    ends: list[dict[str, Any]] = [
        {
            key: (entry["choices"][place] if "choices" in entry else entry[("low", "high")[place]])
            for key, entry in space.items()
        }
        for place in (0, -1)
    ]
    for params in ends:
        resolve("fast", method=method, model=model, overrides=tuning.settings_of(params))


def test_all_methods_are_tuned_alike_and_fedlu_has_its_own() -> None:
    fede, fedlu = space_of("fede", "TransE"), space_of("fedlu", "TransE")
    assert set(fede) < set(fedlu)
    assert {key: fedlu[key] for key in fede} == fede
    assert {"teach_local", "teach_global", "warm_rounds"} <= set(fedlu) - set(fede)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", read_space()["models"])
def test_the_recipe_is_a_place_of_its_space(recipe: str, method: str, model: str) -> None:
    """So that the sampler can learn from the first trial; and a share gives the recipe's whole number again."""
    settings = resolve(recipe, method=method, model=model)
    start = tuning.place_of(settings, space_of(method, model))
    for key, declared in space_of(method, model).items():
        entry = tuning.holding(declared, start[key])
        inside = start[key] in entry["choices"] if "choices" in entry else entry["low"] <= start[key] <= entry["high"]
        assert inside, key
        assert not entry.get("log") or entry["low"] > 0, key
        kept = entry["choices"] if "choices" in entry else (entry["low"], entry["high"])
        old = declared["choices"] if "choices" in declared else (declared["low"], declared["high"])
        assert min(kept) <= min(old) <= max(old) <= max(kept)  # never narrower
    assert resolve(recipe, method=method, model=model, overrides=start) == settings


@pytest.mark.parametrize("model", ["TransE", "ComplEx", "RotatE"])
@pytest.mark.parametrize("rounds", [2, 3, 5, 6, 8, 9, 52])
def test_shares_to_choose_from_are_different_numbers_of_rounds(model: str, rounds: int) -> None:
    """As a trial sets them, rounded; the recipe's own is among them."""
    settings = resolve("fast", method="fedlu", model=model, overrides={"rounds": rounds})
    start = tuning.place_of(settings, space_of("fedlu", model))["warm_rounds"]
    declared = tuning.holding(space_of("fedlu", model)["warm_rounds"], start)
    entry = tuning._distinct("warm_rounds", declared, start, settings)
    trials = [
        resolve("fast", method="fedlu", model=model, overrides={"rounds": rounds, **tuning.settings_of(params)})
        for params in ({"warm_rounds": share} for share in entry["choices"])
    ]
    assert start in entry["choices"]
    assert settings in trials
    assert len({(each.begins_apart, each.warm_rounds) for each in trials}) == len(trials) >= 3


def test_a_short_study_looks_near_the_recipe(nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the recipe the best of all, what follows the random trials is nearer to it than these are."""

    def learn(*_: Any, **given: Any) -> dict[str, Any]:
        distance = abs(math.log(float(given.get("learning_rate", 3e-3)) / 3e-3))
        return {"valid": {"global": {"weighted": {"mrr": 1 / (1 + distance)}}}}

    monkeypatch.setattr(runs, "learn", learn)
    near, random = [], []
    for seed in range(3):
        found = tune(nations, tmp_path / str(seed), method="fede", trials=8, seed=seed).trials
        rates = [abs(math.log(trial.settings["learning_rate"] / 3e-3)) for trial in found[1:]]
        random += rates[: tuning.FIRST_TRIALS - 1]
        near += rates[tuning.FIRST_TRIALS - 1 :]
    assert np.mean(near) < 0.7 * np.mean(random)


def test_it_was_killed_before_its_first_trial_began(
    nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretended: list[dict[str, Any]]
) -> None:
    """The place of the recipe is written down, its trial not yet asked for."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "ask", killed)
        with pytest.raises(KeyboardInterrupt):
            tune(nations, tmp_path / "study", method="fede", trials=3)
    found = tune(nations, tmp_path / "study", method="fede", trials=3)
    assert found.trials == tune(nations, tmp_path / "whole", method="fede", trials=3).trials
    assert [trial.number for trial in found.trials] == [0, 1, 2]


@pytest.mark.parametrize("trial", [0, 2, 5])
def test_a_trial_killed_while_it_was_thought_up_is_thought_up_again(
    nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretended: list[dict[str, Any]], trial: int
) -> None:
    """Killed between two of its settings: as many trials as without, and the same ones."""
    whole = tune(nations, tmp_path / "whole", method="fede", trials=7)
    real, asked = optuna.Trial._suggest, 0

    def suggest(self: optuna.Trial, name: str, distribution: Any) -> Any:
        nonlocal asked
        asked += self.number == trial
        if asked == 3:
            raise KeyboardInterrupt
        return real(self, name, distribution)

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Trial, "_suggest", suggest)
        with pytest.raises(KeyboardInterrupt):
            tune(nations, tmp_path / "killed", method="fede", trials=7)
    assert tune(nations, tmp_path / "killed", method="fede", trials=7).trials == whole.trials
    assert len(pretended) == 14


@pytest.fixture
def at_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that take no time, and are the better, the higher the rate is: so one corner is proposed over and over."""

    def learn(*_: Any, **given: Any) -> dict[str, Any]:
        return {"valid": {"global": {"weighted": {"mrr": float(given.get("learning_rate", 3e-3))}}}}

    monkeypatch.setattr(runs, "learn", learn)


EDGE = {"final_rate": 0.03, "remember": 0.0, "margin": 8.0, "adversarial": 1.0}


@pytest.mark.usefixtures("at_the_edge")
def test_no_place_is_tried_twice(nations: Path, tmp_path: Path) -> None:
    found = tune(nations, tmp_path / "study", method="fede", trials=14, overrides=EDGE)
    rates = [trial.settings["learning_rate"] for trial in found.trials[1:]]
    assert found.best.settings["learning_rate"] == 8e-3
    assert len(rates) == len(set(rates)) == 13
    assert [trial.number for trial in found.trials] == list(range(14))
    journal = map(json.loads, (tmp_path / "study" / "journal.jsonl").read_text().splitlines())
    assert len({each["trial_id"] for each in journal if "trial_id" in each}) > 14  # some places were given up


@pytest.mark.usefixtures("at_the_edge")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_when_a_place_is_given_up(
    nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    whole = tune(nations, tmp_path / "whole", method="fede", trials=14, overrides=EDGE)
    real, kills = optuna.Study.tell, 0

    def tell(self: optuna.Study, trial: Any, *given: Any, **named: Any) -> Any:
        nonlocal kills
        given_up = isinstance(trial, optuna.Trial)
        if moment == "after" or not given_up:
            real(self, trial, *given, **named)
        if given_up and kills < 1:
            kills += 1
            raise KeyboardInterrupt
        if moment == "before" and given_up:
            real(self, trial, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "tell", tell)
        with pytest.raises(KeyboardInterrupt):
            tune(nations, tmp_path / "killed", method="fede", trials=14, overrides=EDGE)
    assert tune(nations, tmp_path / "killed", method="fede", trials=14, overrides=EDGE).trials == whole.trials


@pytest.mark.usefixtures("at_the_edge")
def test_a_small_space_has_an_end(nations: Path, tmp_path: Path) -> None:
    held = {"learning_rate": 1e-3, "margin": 8.0, "adversarial": 1.0}
    found = tune(nations, tmp_path / "study", method="fede", trials=9, overrides=held)
    places = {tuple(trial.settings.values()) for trial in found.trials[1:]} | {(0.03, 0.0)}  # the recipe's own
    assert len(found.trials) == len(places) == 8  # four rates at the end, a mean over rounds or none
    assert tune(nations, tmp_path / "study", method="fede", trials=9, overrides=held) == found


def test_killed_while_it_wrote_its_journal(
    nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretended: list[dict[str, Any]]
) -> None:
    """Optuna's lock is left, and half of a line; with a relative --out, too, where the lock is a link to nowhere."""
    monkeypatch.chdir(tmp_path)
    whole = tune(nations, "whole", method="fede", trials=3)
    tune(nations, "killed", method="fede", trials=2)
    Path("killed/journal.jsonl.lock").symlink_to("killed/journal.jsonl")
    with Path("killed/journal.jsonl").open("a") as journal:
        journal.write('{"op_code": 4, "work')
    assert tune(nations, "killed", method="fede", trials=3).trials == whole.trials
    assert not Path("killed/journal.jsonl.lock").is_symlink()


def test_it_finds_what_is_good_and_sees_valid_alone(
    nations: Path, tmp_path: Path, pretended: list[dict[str, Any]]
) -> None:
    found = tune(nations, tmp_path / "study", method="fede", trials=25)
    assert len(pretended) == len(found.trials) == 25
    assert all(given["splits"] == ("valid",) for given in pretended)  # nor is test ranked at all
    assert "margin" not in pretended[0]  # the recipe as it is
    assert found.trials[0].mrr == pytest.approx(1 / 3)
    assert abs(found.best.settings["margin"] - 12) < 1.0
    assert found.best.mrr == max(trial.mrr or 0 for trial in found.trials)
    assert read_tuned([tmp_path / "study" / "best.toml"], "fast") == {"fede": {"TransE": found.best.settings}}


def test_the_study_is_json_and_goes_on(nations: Path, tmp_path: Path, pretended: list[dict[str, Any]]) -> None:
    whole = tune(nations, tmp_path / "whole", method="fedlu", trials=12, seed=3)
    for trials in (1, 4, 4, 12):
        parts = tune(nations, tmp_path / "parts", method="fedlu", trials=trials, seed=3)
    assert parts.trials == whole.trials  # as if it had not been stopped
    assert len(pretended) == 24
    lines = (tmp_path / "whole" / "journal.jsonl").read_text().splitlines()
    assert all(isinstance(json.loads(each), dict) for each in lines)
    other = tune(nations, tmp_path / "other", method="fedlu", trials=3, seed=4)
    assert other.trials[1] != whole.trials[1]


def test_a_trial_that_was_killed_is_resumed(nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real thing: interrupted within the second trial, which then goes on in its own folder."""
    monkeypatch.setattr(runs, "CHECKPOINT_SECONDS", 0.0)
    whole = tune(nations, tmp_path / "whole", method="fedec", trials=3, overrides=HELD)
    seen = 0

    def stop(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == 6:  # of four rounds a trial, the second of the second
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(nations, tmp_path / "parts", method="fedec", trials=3, overrides=HELD, watch=stop)
    assert (tmp_path / "parts" / "trials" / "0001" / "state.json").exists()
    parts = tune(nations, tmp_path / "parts", method="fedec", trials=3, overrides=HELD)
    assert parts.trials == whole.trials
    assert not list((tmp_path / "parts" / "trials").glob("*/checkpoints"))
    metrics = runs.read_metrics(tmp_path / "parts" / "trials" / f"{parts.best.number:04}")
    assert parts.best.mrr == max(found["weighted"]["mrr"] for found in metrics["valid"].values())
    alone = runs.learn(nations, method="fedec", out=tmp_path / "run", **{**HELD, **parts.best.settings})
    assert alone["valid"] == metrics["valid"]  # the settings that are printed give what was found


def test_a_trial_that_diverges_is_only_a_bad_place(
    nations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretended: list[dict[str, Any]]
) -> None:
    good = runs.learn

    def learn(*args: Any, **given: Any) -> Any:
        if len(pretended) == 1:
            pretended.append({})
            raise DivergedError("a loss that is no number")
        return good(*args, **given)

    monkeypatch.setattr(runs, "learn", learn)
    found = tune(nations, tmp_path / "study", method="fede", trials=4)
    assert [trial.mrr is None for trial in found.trials] == [False, True, False, False]
    assert "learning_rate=" in found.trials[1].said
    assert found.trials[1].said.startswith("failed, ")


def test_what_is_held_is_not_tuned(nations: Path, tmp_path: Path, pretended: list[dict[str, Any]]) -> None:
    tune(nations, tmp_path / "study", method="fede", trials=3, overrides={"margin": "7.5"})
    assert all(given["margin"] == "7.5" for given in pretended)


def test_refusals(nations: Path, tmp_path: Path, pretended: list[dict[str, Any]]) -> None:
    tune(nations, tmp_path / "study", method="fede", trials=1)
    with pytest.raises(InputError, match="holds a study of other method"):
        tune(nations, tmp_path / "study", method="fedec", trials=1)
    with pytest.raises(InputError, match="no space for 'pykeen:HolE'; choose one of TransE"):
        tune(nations, tmp_path / "b", model="pykeen:HolE")
    with pytest.raises(InputError, match="trials = 0"):
        tune(nations, tmp_path / "b", trials=0)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="in use, and not by a study"):
        tune(nations, tmp_path / "used", method="fede", trials=1)
    with pytest.raises(InputError, match="b: is inside the data; choose an --out beside it"):
        tune(nations, nations / "b", method="fede", trials=1)
    assert not (tmp_path / "b").exists()
    assert not (nations / "b").exists()
