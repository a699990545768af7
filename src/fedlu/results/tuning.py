"""`tune`: settings found by trying, judged by the MRR on valid alone; test is never looked at.

    STUDY/study.json       what is tuned, and the space as it was
    STUDY/journal.jsonl    Optuna's journal of the trials: JSON, a line for each thing that happened
    STUDY/trials/0003      the run of a trial; its checkpoint is deleted once it is judged
    STUDY/best.toml        the best settings, for `fedlu reproduce --tuned`

The first trial is the recipe as it is, and the sampler knows where that is in the space: after a few random places, it
looks near the best ones; a place that was tried already gives way to a random one. What it proposes depends on the
seed and the trials before alone, so a study that was stopped, or killed, goes on as if it had not been: a trial that
had begun is a run, and is resumed; one that was killed while it was thought up is thought up again.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from fedlu.config import SHARES, Settings, layers, read_space, resolve, whole_of
from fedlu.errors import FedluError, InputError
from fedlu.graph import federation as federations
from fedlu.results import files, runs

Space = dict[str, dict[str, Any]]
"""By setting: low and high (and log, whole), or choices."""
FIRST_TRIALS = 4
"""The recipe and random places; after them, places like the best ones are tried."""
RANDOM_PLACES = 100
"""How many are looked at for one that is new, before all of a small space counts as tried."""


@dataclass(frozen=True)
class Trial:
    number: int
    settings: dict[str, Any]
    mrr: float | None
    """On valid, of the best view; None if it failed."""

    @property
    def said(self) -> str:
        mrr = "failed" if self.mrr is None else f"valid MRR {self.mrr:.4f}"
        settings = " ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{mrr}, {settings if self.number else 'the recipe as it is'}"


@dataclass(frozen=True)
class Study:
    trials: tuple[Trial, ...]
    best: Trial


def tune(
    federation: str | Path,
    out: str | Path,
    *,
    method: str = "fedlu",
    model: str = "TransE",
    trials: int = 20,
    recipe: str = "fast",
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    watch: runs.Watch | None = None,
) -> Study:
    """Go on until the study in `out` has this many trials, or all of a small space was tried; `overrides` are held, and
    not tuned."""
    out, held = Path(out), dict(overrides or {})
    if trials < 1:
        raise InputError(f"trials = {trials}", remedy="give at least 1")
    settings = resolve(recipe, method=method, model=model, overrides={**held, "seed": seed})  # refuses what cannot be
    declared = {key: found for key, found in space_of(method, model).items() if key not in held}
    if not declared:
        raise InputError("nothing is left to tune", remedy="hold fewer settings with --set")
    start = place_of(settings, declared)
    space = {key: _distinct(key, holding(entry, start[key]), start[key], settings) for key, entry in declared.items()}
    files.refuse_inside(out, {"the data": federation})
    data = federations.load(federation)
    facts = {"method": method, "model": model, "recipe": recipe, "seed": seed, "held": held, "space": space}
    _open(out, {**facts, "federation": data.name, "fingerprint": data.fingerprint})
    with files.alone(out):
        study = _study(out)
        while (place := _next(study, space, start, trials, seed)) is not None:
            trial, folder = _tried(study, space)[place], out / "trials" / f"{place:04}"
            try:
                metrics = runs.learn(
                    federation,
                    method=method,
                    model=model,
                    recipe=recipe,
                    out=folder,
                    resume=(folder / "config.json").is_file(),
                    watch=watch,
                    splits=("valid",),
                    **{**held, **tried_in(place, trial), "seed": seed},
                )
                study.tell(trial.number, judge(metrics))
            except InputError:
                raise
            except FedluError:  # it diverged: a bad place, and no more
                study.tell(trial.number, state=TrialState.FAIL)
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        found = _found(_tried(study, space))
    (out / "best.toml").write_text(as_toml(found.best, method, model, recipe), encoding="utf-8")
    return found


def judge(metrics: dict[str, Any]) -> float:
    """The best view counts, the same for every method; of `valid`, so that test stays unseen."""
    found = [each["weighted"].get("mrr") for each in metrics["valid"].values()]
    if None in found:
        raise InputError("there are no valid triples to judge by", remedy="give the clients some")
    return float(max(found))


# --- the space -----------------------------------------------------------------------------------------------------


def space_of(method: str, model: str) -> Space:
    """What is tuned for every method, for this model, for this method, and for this method of this model; each stronger
    than the one before."""
    text = read_space()
    if model not in text["models"]:
        raise InputError(f"no space for {model!r}", remedy=f"choose one of {', '.join(text['models'])}")
    of_model, of_method, of_both = layers(text, method, model)
    return {**text["every"], **of_model, **of_method, **of_both}


def place_of(settings: Settings, space: Space) -> dict[str, Any]:
    """Where a recipe stands in the space; what may be a share of another setting is one, rounded up, as it is down when
    it becomes a whole number again."""
    found = {key: getattr(settings, key) for key in space}
    shares = {
        key: math.ceil(1e4 * found[key] / getattr(settings, whole)) / 1e4
        for key, whole in SHARES.items()
        if key in found
    }
    return {**found, **shares}


def holding(entry: dict[str, Any], value: Any) -> dict[str, Any]:
    """A part of the space, made wider, if it has to be, for the recipe's value."""
    if "choices" in entry:
        return entry if value in entry["choices"] else {**entry, "choices": [*entry["choices"], value]}
    return {**entry, "low": min(entry["low"], value), "high": max(entry["high"], value)}


def _distinct(key: str, entry: dict[str, Any], start: Any, settings: Settings) -> dict[str, Any]:
    """With few rounds, several shares are the same number of them: one of each, the recipe's if it is among them; 0 is
    no share."""
    if key not in SHARES or "choices" not in entry:
        return entry
    number = getattr(settings, SHARES[key])
    found = {(share > 0, whole_of(share, number)): share for share in [*entry["choices"], start]}
    return {**entry, "choices": list(found.values())}


def tried_in(place: int, trial: FrozenTrial) -> dict[str, Any]:
    """The settings of a trial; the first is the recipe, to which nothing is set."""
    return settings_of(trial.params) if place else {}


def settings_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """What a trial proposes, as settings: rounded, so that what is printed is what was tried."""
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in params.items()}


def _distribution(entry: dict[str, Any]) -> BaseDistribution:
    if "choices" in entry:
        return CategoricalDistribution(entry["choices"])
    if entry.get("whole"):
        return IntDistribution(entry["low"], entry["high"], log=entry.get("log", False))
    return FloatDistribution(entry["low"], entry["high"], log=entry.get("log", False))


# --- the study -----------------------------------------------------------------------------------------------------


def _study(out: Path) -> optuna.Study:
    """For whoever is alone in the folder: then a lock on the journal is of a process that was killed, and so is a line
    that does not end."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = out / "journal.jsonl"
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    if journal.is_file():
        whole = journal.read_bytes().rpartition(b"\n")
        os.truncate(journal, len(whole[0]) + len(whole[1]))
    storage = JournalStorage(JournalFileBackend(str(journal.resolve())))
    return optuna.create_study(study_name="fedlu", storage=storage, direction="maximize", load_if_exists=True)


def _tried(study: optuna.Study, space: Space) -> list[FrozenTrial]:
    """The trials that count. One that was killed while it was thought up knows only some of its settings, and one that
    was given up because its place had been tried is not the first there."""
    whole = [trial for trial in study.trials if trial.state != TrialState.WAITING and set(trial.params) == set(space)]
    return [trial for at, trial in enumerate(whole) if trial.state == TrialState.COMPLETE or _is_new(trial, whole[:at])]


def _is_new(trial: FrozenTrial | optuna.Trial, before: list[FrozenTrial]) -> bool:
    return settings_of(trial.params) not in [settings_of(each.params) for each in before]


def _next(study: optuna.Study, space: Space, start: dict[str, Any], trials: int, seed: int) -> int | None:
    """The place of a trial that was begun and not judged, or else of a new one; None if there are enough."""
    tried = _tried(study, space)
    for place, trial in enumerate(tried):
        if trial.state == TrialState.RUNNING:
            return place
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
    if len(tried) >= trials:
        return None
    if not tried and not study.get_trials(states=(TrialState.WAITING,)):
        study.enqueue_trial(start)
    of_this_trial = 1_000_003 * seed + len(tried)
    samplers = [
        optuna.samplers.GPSampler(seed=of_this_trial, n_startup_trials=FIRST_TRIALS),
        *[optuna.samplers.RandomSampler(seed=of_this_trial)] * RANDOM_PLACES,
    ]
    for sampler in samplers:
        study.sampler = sampler
        asked = study.ask({key: _distribution(entry) for key, entry in space.items()})
        if _is_new(asked, tried):
            return len(tried)
        study.tell(asked, state=TrialState.FAIL)
    return None


def _found(tried: list[FrozenTrial]) -> Study:
    trials = tuple(Trial(place, tried_in(place, trial), trial.value) for place, trial in enumerate(tried))
    good = [trial for trial in trials if trial.mrr is not None]
    if not good:
        raise InputError("every trial failed", remedy="try smaller learning rates: hold learning_rate with --set")
    return Study(trials, max(good, key=lambda trial: trial.mrr or 0.0))


def _open(out: Path, facts: dict[str, Any]) -> None:
    path = out / "study.json"
    if path.is_file():
        old = files.read_json(path)
        changed = [key for key, value in facts.items() if old.get(key) != json.loads(json.dumps(value))]
        if changed:
            what = f"holds a study of other {', '.join(changed)}"
            raise InputError(what, where=out, remedy="choose another --out, or repeat the command as it was")
        return
    files.claim(path, "a study")
    files.write_json(path, facts)


def as_toml(best: Trial, method: str, model: str, recipe: str) -> str:
    """In the form of a recipe, with the name of the one that it changes."""
    lines = [f'about = "trial {best.number}, valid MRR {best.mrr:.4f}"', f"recipe = {json.dumps(recipe)}", ""]
    lines.append(f"[methods.{method}.models.{json.dumps(model)}]")
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in best.settings.items())]) + "\n"
