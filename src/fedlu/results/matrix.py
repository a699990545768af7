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
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedlu.config import METHODS, Settings, resolve
from fedlu.errors import FedluError, InputError
from fedlu.federated.rounds import Progress, RoundEvent
from fedlu.graph import federation as federations
from fedlu.graph.federation import Federation
from fedlu.learning.unlearning import GOALS
from fedlu.results import audit, files, forgetting, runs
from fedlu.results.estimates import Estimates
from fedlu.results.memory import refuse_too_large

TABLES = ("link-prediction", "unlearning", "ablation")
MODELS = ("TransE", "ComplEx", "RotatE")
"""As the paper lists them; others come after."""
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
            return _holds(self.folder(cell) / "metrics.json", "test", "seconds")
        compared = ("raw", "retrained") if self.table == "unlearning" else ()
        return _holds(self.folder(cell) / "audit.json", "forgotten", "verdict", "cost", *compared)

    def with_all_there(self) -> Matrix:
        """The same with every model, method and seed that its folder has runs of, in the paper's order."""
        found = []
        for path in (self.out / "runs").glob("*/config.json"):
            with suppress(InputError, KeyError, TypeError):  # a damaged one: whoever asks for that cell is told
                had = files.read_json(path)["settings"]
                cell = Cell(had["model"], had["method"], had["seed"])
                found += [cell] if cell.name == path.parent.name else []
        models = sorted({*self.models, *(cell.model for cell in found)})
        asked = {*self.methods, *(cell.method for cell in found)}
        return replace(
            self,
            models=tuple(sorted(models, key=lambda model: MODELS.index(model) if model in MODELS else len(MODELS))),
            methods=tuple(method for method in METHODS if method in asked),
            seeds=max([self.seeds, *(cell.seed + 1 for cell in found)]),
        )


def _holds(path: Path, *parts: str) -> bool:
    """Whether a file is there, whole, and says this; a damaged one is made again."""
    try:
        files.read_json(path, *parts)
    except InputError:
        return False
    return True


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
    _refuse_stale(matrix.with_all_there())
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
            state.detail = f"~{needed:.0f} s" if needed <= left else f"~{needed:.0f} s, too long"
            left -= needed if needed <= left else 0.0


def check(matrix: Matrix) -> Federation:
    """Refuse what cannot work before anything is run."""
    choices = ("table", [matrix.table], TABLES), ("method", matrix.methods, METHODS), ("goal", [matrix.goal], GOALS)
    for kind, given, known in choices:
        for each in given:
            if each not in known:
                raise InputError(f"no {kind} {each!r}", remedy=f"choose from {', '.join(known)}")
    for kind, some in (("models", matrix.models), ("methods", matrix.methods)):
        if not some:
            raise InputError(f"no {kind} are named", remedy="name at least one")
    if matrix.seeds < 1:
        raise InputError(f"seeds = {matrix.seeds}", remedy="give at least 1")
    files.refuse_inside(matrix.out, {"the data": matrix.federation})
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


def _refuse_stale(matrix: Matrix) -> None:
    """A recipe changes from version to version: what is of an older one is not to stand beside newer ones, nor what
    was made from a run that is no more."""
    for cell in matrix.cells():
        for folder in {matrix.folder(cell), matrix.retrained(cell)}:
            if not _holds(folder / "config.json", "settings"):
                continue
            changed = runs.other_settings(files.read_json(folder / "config.json"), asdict(matrix.settings(cell)))
            remedy = "delete that folder, or choose another --out"
            if changed:
                what = f"was learned when the recipe was another: {changed}"
                raise InputError(what, where=folder, remedy=remedy)
            if cell.variant and folder == matrix.folder(cell) and not matrix.folder(cell.learned).exists():
                raise InputError("the run that it forgot from is gone", where=folder, remedy=remedy)


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
    files.claim(path, "reproduce")
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
        if not matrix.is_done(cell):
            state.what, state.detail = "failed", "its audit has no raw run to compare with"
    except InputError as damaged:  # all that is given was checked before: it is what lies in its folder
        state.what, state.detail = "failed", f"{damaged}; or delete {matrix.folder(cell)}, and repeat"
    except FedluError as trouble:
        state.what, state.detail = "failed", str(trouble)
    state.seconds = time.monotonic() - start


def _learn(matrix: Matrix, cell: Cell, watch: runs.Watch) -> None:
    folder = matrix.folder(cell)
    (folder / "metrics.json").unlink(missing_ok=True)  # if it is there, it is damaged: rank again
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
    folder, data = matrix.folder(cell), matrix.federation  # which may have been moved since its run was learned
    if not (folder / forgetting.FORGETTING).is_file():
        raw, without = matrix.folder(cell.learned), VARIANTS[cell.variant]
        forgetting.forget(raw, folder, goal=cell.goal, without=without, data=data, forget_sets=True)
    retrain = matrix.table == "unlearning"
    retrained = matrix.retrained(cell) if retrain else None
    audit.audit(folder, retrain=retrain, retrained=retrained, watch=watch, data=data, forget_sets=True)


def finished(matrix: Matrix) -> Iterator[tuple[Cell, Path]]:
    """The cells that are there, with their folders."""
    for cell in matrix.cells():
        if matrix.is_done(cell):
            yield cell, matrix.folder(cell)
