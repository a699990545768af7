"""`reproduce`: a matrix of runs, a cell for each model, method and seed; what is done is never done again.

    OUT/matrix.json            the data, recipe and settings that all cells share
    OUT/runs/TransE-fede-0     a run of `learn`
    OUT/runs/TransE-fedlu-0-suppress              a run of `forget`, with its audit
    OUT/runs/TransE-fedlu-0-suppress-without-hard
    OUT/runs/TransE-fedlu-0-retrained             from scratch, without what was to be forgotten
    OUT/link-prediction.md, .csv, .tex, convergence.md, ...

Killed at any moment, it goes on: a cell is a run, and runs survive. Several tables may share a folder, and then share
the runs that they have in common.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedlu.config import METHODS, Settings, resolve
from fedlu.errors import FedluError, InputError
from fedlu.federated.rounds import Progress, RoundEvent
from fedlu.graph import federation as federations
from fedlu.graph.federation import Federation
from fedlu.results import audit, files, forgetting, runs
from fedlu.results.estimates import Estimates
from fedlu.results.memory import refuse_too_large

TABLES = ("link-prediction", "unlearning", "ablation")
VARIANTS = {"whole": None, "without hard": "hard", "without soft": "soft"}
"""Of the ablation: what interference leaves out."""


@dataclass(frozen=True)
class Cell:
    """A run: learned, or made to forget; then `variant` says how, and the run of the same name without it is needed."""

    model: str
    method: str
    seed: int
    goal: str = ""
    variant: str = ""

    @property
    def name(self) -> str:
        parts = [self.model, self.method, str(self.seed), self.goal, "" if self.variant == "whole" else self.variant]
        return re.sub(r"[^\w.-]+", "-", "-".join(part for part in parts if part))

    @property
    def learned(self) -> Cell:
        """The run that it forgets from."""
        return Cell(self.model, self.method, self.seed)


@dataclass(frozen=True)
class Matrix:
    """What is to be run, on which data, how, and where to."""

    table: str
    federation: Path
    out: Path
    models: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int = 1
    recipe: str = "fast"
    overrides: dict[str, str] = field(default_factory=dict)
    tuned: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Settings by method and model, found by `fedlu tune`; `overrides` are stronger."""
    goal: str = "suppress"
    """Of forgetting; the paper's tables measure how far the forgotten are suppressed."""

    def cells(self) -> list[Cell]:
        """All of one seed before any of the next, so that whoever stops early has a whole table."""
        found: list[Cell] = []
        for seed in range(self.seeds):
            for model in self.models:
                for method in self.methods:
                    found.append(Cell(model, method, seed))
                    if self.table != "link-prediction":
                        variants = tuple(VARIANTS) if self.table == "ablation" else ("whole",)
                        found += [Cell(model, method, seed, self.goal, variant) for variant in variants]
        return found

    def overrides_of(self, cell: Cell) -> dict[str, Any]:
        tuned = self.tuned.get(cell.method, {}).get(cell.model, {})
        return {**tuned, **self.overrides, "seed": cell.seed}

    def settings(self, cell: Cell) -> Settings:
        return resolve(self.recipe, method=cell.method, model=cell.model, overrides=self.overrides_of(cell))

    def folder(self, cell: Cell) -> Path:
        return self.out / "runs" / cell.name

    def retrained(self, cell: Cell) -> Path:
        """From scratch, without what was to be forgotten: the same for every goal."""
        return self.folder(cell.learned).with_name(f"{cell.learned.name}-retrained")

    def is_done(self, cell: Cell) -> bool:
        if not cell.variant:
            return (self.folder(cell) / "metrics.json").is_file()
        found = self.folder(cell) / "audit.json"
        return found.is_file() and (self.table != "unlearning" or "retrained" in files.read_json(found))


@dataclass
class State:
    """Of a cell: waiting, running, done, failed or left out; and what there is to say of it."""

    what: str = "waiting"
    detail: str = ""
    seconds: float = 0.0


States = dict[Cell, State]
Watch = Callable[[States], object]


def carry_out(matrix: Matrix, *, budget: float | None = None, watch: Watch | None = None) -> States:
    """Do every cell that is not done, one after the other, and say how each ended.

    With a budget in seconds, a cell is begun only if it should end within it; the estimates say why.
    """
    data = check(matrix)
    _open(matrix, data)
    for cell in matrix.cells():
        _refuse_other_recipe(matrix, cell)
    states = {cell: State("done" if matrix.is_done(cell) else "waiting") for cell in matrix.cells()}
    show = watch or (lambda _: None)
    with files.alone(matrix.out):
        retrained_of = matrix.retrained if matrix.table == "unlearning" else None
        estimates = Estimates(data, matrix.settings, matrix.folder, retrained_of)
        start = time.monotonic()
        if budget is not None:
            _plan(states, estimates, budget)
        show(states)
        for cell, state in states.items():
            if state.what == "done":
                continue
            if cell.variant and states[cell.learned].what != "done":
                state.what, state.detail = "left out", "its run is not there"
            elif budget is not None:
                needed, left = estimates.seconds(cell), budget - (time.monotonic() - start)
                if needed > left:
                    state.what = "left out"
                    state.detail = f"about {needed:.0f} s, {max(left, 0.0):.0f} s left; {estimates.reason(cell)}"
            if state.what == "waiting":
                _run(matrix, cell, state, lambda: show(states))
            show(states)
    return states


def _plan(states: States, estimates: Estimates, left: float) -> None:
    """What each cell should take, and whether it fits after those before it; looked at again when its turn comes."""
    for cell, state in states.items():
        if state.what == "waiting":
            needed = estimates.seconds(cell)
            state.detail = f"about {needed:.0f} s" if needed <= left else f"about {needed:.0f} s, too long"
            left -= needed if needed <= left else 0.0


def check(matrix: Matrix) -> Federation:
    """Refuse what cannot work before anything is run."""
    for kind, given, known in (("table", [matrix.table], TABLES), ("method", matrix.methods, METHODS)):
        for each in given:
            if each not in known:
                raise InputError(f"no {kind} {each!r}", remedy=f"choose from {', '.join(known)}")
    for kind, some in (("models", matrix.models), ("methods", matrix.methods)):
        if not some:
            raise InputError(f"no {kind} are named", remedy="name at least one")
    if matrix.seeds < 1:
        raise InputError(f"seeds = {matrix.seeds}", remedy="give at least 1")
    data = federations.load(matrix.federation)
    if matrix.table != "link-prediction":
        if "centralized" in matrix.methods:
            raise InputError("centralized cannot forget", remedy="choose other methods")
        if not any(len(client.forget) for client in data.clients):
            remedy = "make it with `fedlu partition --forget 0.01`"
            raise InputError("no client has a forget.txt", where=matrix.federation, remedy=remedy)
    for cell in matrix.cells():
        refuse_too_large(data, matrix.settings(cell))
    return data


def _refuse_other_recipe(matrix: Matrix, cell: Cell) -> None:
    """A recipe changes from version to version: a cell of an older one is not to stand beside newer ones."""
    if not cell.variant and matrix.is_done(cell):
        config = files.read_json(matrix.folder(cell) / "config.json")
        if changed := runs.other_settings(config, asdict(matrix.settings(cell))):
            what = f"was learned when the recipe was another: {changed}"
            raise InputError(what, where=matrix.folder(cell), remedy="delete that folder, or choose another --out")


def _open(matrix: Matrix, data: Federation) -> None:
    """A folder is of one federation, recipe and group of settings; tables, models, methods and seeds may be added."""
    path = matrix.out / "matrix.json"
    facts = {
        "federation": data.name,
        "fingerprint": data.fingerprint,
        "recipe": matrix.recipe,
        "settings": matrix.overrides,
        "tuned": matrix.tuned,
    }
    if path.is_file():
        old = files.read_json(path)
        changed = [key for key in facts if old.get(key) != json.loads(json.dumps(facts[key]))]
        if changed:
            what = f"holds runs of other {', '.join(changed)}"
            raise InputError(what, where=matrix.out, remedy="choose another --out, or repeat the command as it was")
        return
    if matrix.out.exists() and (not matrix.out.is_dir() or any(matrix.out.iterdir())):
        raise InputError("is in use, and not by reproduce", where=matrix.out, remedy="choose another --out")
    matrix.out.mkdir(parents=True, exist_ok=True)
    files.write_json(path, facts)


def _run(matrix: Matrix, cell: Cell, state: State, show: Callable[[], object]) -> None:
    """One cell; if it fails, the others go on."""
    state.what, state.detail, start = "running", "", time.monotonic()
    show()
    shown = 0.0

    def watch_round(event: RoundEvent, progress: Progress) -> None:
        nonlocal shown
        mrr = [f"{found['weighted'].get('mrr', 0.0):.3f}" for found in (event.valid or {}).values()]
        state.detail = " ".join([f"{event.round}/{progress.rounds}", *(mrr or state.detail.split()[1:])])
        if time.monotonic() - shown > 0.2:
            shown = time.monotonic()
            show()

    try:
        if cell.variant:
            _forget(matrix, cell, watch_round)
        else:
            _learn(matrix, cell, watch_round)
        state.what, state.detail = "done", ""
    except InputError:
        raise
    except FedluError as trouble:
        state.what, state.detail = "failed", str(trouble)
    state.seconds = time.monotonic() - start


def _learn(matrix: Matrix, cell: Cell, watch: runs.Watch) -> None:
    folder = matrix.folder(cell)
    runs.learn(
        matrix.federation,
        method=cell.method,
        model=cell.model,
        recipe=matrix.recipe,
        out=folder,
        resume=(folder / "config.json").is_file(),
        watch=watch,
        **matrix.overrides_of(cell),
    )


def _forget(matrix: Matrix, cell: Cell, watch: runs.Watch) -> None:
    folder = matrix.folder(cell)
    if not (folder / forgetting.FORGETTING).is_file():
        raw = matrix.folder(cell.learned)
        forgetting.forget(raw, folder, goal=cell.goal, without=VARIANTS[cell.variant], forget_sets=True)
    retrain = matrix.table == "unlearning"
    retrained = matrix.retrained(cell) if retrain else None
    audit.audit(folder, retrain=retrain, retrained=retrained, watch=watch, forget_sets=True)


def finished(matrix: Matrix) -> Iterator[tuple[Cell, Path]]:
    """The cells that are there, with their folders."""
    for cell in matrix.cells():
        if matrix.is_done(cell):
            yield cell, matrix.folder(cell)
