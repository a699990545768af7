"""A run is a folder that survives: its settings, an event per round, checkpoints, and at the end its metrics.

    config.json     settings, recipe, data and its fingerprint, version
    events.jsonl    one record per round
    state.json      where the run is, and which checkpoint says so; replaced in one step
    checkpoints/    one folder, of the last checkpoint: server.safetensors and a numbered file per client
    metrics.json    when it is done

A run killed at any moment goes on from its last checkpoint (`checkpoints.py`); and since every random draw is made from
the seed, the round and the client, it ends with the same bits.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import fedlu
from fedlu.config import Settings, resolve
from fedlu.embedding.ranking import FilterIndex
from fedlu.errors import InputError, ScoreError
from fedlu.federated import rounds
from fedlu.federated.alignment import key_for_one_process
from fedlu.federated.arrivals import DivergedError, Rules
from fedlu.federated.client import Client
from fedlu.federated.exams import Exam
from fedlu.federated.rounds import Progress, RoundEvent
from fedlu.federated.server import Server
from fedlu.federated.transport import InProcessTransport
from fedlu.graph import federation as federations
from fedlu.graph.federation import Federation
from fedlu.graph.ledger import LEDGER, Ledger
from fedlu.results import checkpoints
from fedlu.results.checkpoints import Party
from fedlu.results.files import alone, claim, read_json, refuse_inside, write_json
from fedlu.results.memory import refuse_too_large
from fedlu.results.start import begin_from, parse_starts
from fedlu.seeds import generator

CHECKPOINT_SECONDS = 30.0
"""At least this long between two checkpoints, but for rounds that were measured: a lost round is computed again, with
the same result."""

ALL_OF_VALID = "all of valid"
"""The split of which `valid_share` is ranked while learning."""

Watch = Callable[[RoundEvent, Progress], object]


def learn(
    federation: Federation | str | Path,
    *,
    method: str = "fedlu",
    model: str = "TransE",
    recipe: str = "fast",
    out: str | Path,
    resume: bool = False,
    ledger: str | Path | None = None,
    watch: Watch | None = None,
    start_from: str | Path | Sequence[str | Path] = (),
    splits: Sequence[str] = ("valid", "test"),
    **overrides: Any,
) -> dict[str, Any]:
    """Train a federation and leave a run in `out`; returns what `metrics.json` holds.

    Other keywords override the recipe's settings: `learn("umls-r3", out="run", rounds=10, seed=3)`. What stands in the
    ledger of a run that forgot (`ledger="forgotten-run"`) is not learned again; a resumed run keeps its ledger.
    `start_from` names tables to begin with: a file for all clients, or `"north=tables.safetensors"` for one.
    `splits` are measured in the end.
    """
    settings = resolve(recipe, method=method, model=model, overrides=overrides)
    data, folder = federation, Path(out)
    if not isinstance(data, Federation):
        refuse_inside(folder, {"the data": data})
        data = federations.load(data)
    known = Ledger.read(Path(ledger)) if ledger is not None else ledger_of(folder)
    data, skipped = known.apply(data) if known else (data, 0)
    for client in data.clients:
        if not len(client.train):
            raise InputError("nothing is left to learn from", where=client.name, remedy="all of it was forgotten")
    source = str(Path(federation).resolve()) if isinstance(federation, str | Path) else None
    refuse_too_large(data, settings)
    starts = parse_starts(start_from, data, settings)
    config = {
        "settings": asdict(settings),
        "recipe": recipe,
        "data": source,
        "federation": data.name,
        "fingerprint": data.fingerprint,
        "skipped": skipped,
        "fedlu": fedlu.__version__,
        **({"start_from": [start.record() for start in starts]} if starts else {}),
    }
    fresh = not (folder / "config.json").exists()
    open_folder(folder, config, known, resume=resume)
    with alone(folder):
        if (folder / "metrics.json").exists():
            return read_metrics(folder)
        try:
            party, progress, seconds = go_on(folder, data, settings)
        except InputError:
            if fresh:  # refused before it began: the folder may be used for another
                (folder / "config.json").unlink()
            raise
        if starts and not progress.round:
            begin_from(starts, party.server, party.clients)
        run(folder, party, progress, settings, seconds, watch)
        return finish(folder, party, progress, config, splits=splits)


def read_metrics(folder: str | Path) -> dict[str, Any]:
    path = Path(folder) / "metrics.json"
    if not path.parent.is_dir():
        raise InputError("no such folder", where=folder, remedy="check the name")
    if not path.is_file() and not (path.parent / "config.json").is_file():
        raise InputError("no run", where=folder, remedy="check the name, or make one with `fedlu learn`")
    if not path.is_file():
        raise InputError("no finished run", where=folder, remedy="finish it with `fedlu learn ... --resume`")
    return read_json(path)


def how_far(folder: str | Path) -> str:
    """Of a run that is not finished but has best tables, for a person: how far it is; refused if it has none yet."""
    folder = Path(folder)
    if (folder / "metrics.json").is_file() or not (folder / "state.json").is_file():
        read_metrics(folder)  # refuses what is no run
        if not (folder / "state.json").is_file():
            raise InputError("state.json is gone, which says where its tables are", where=folder, remedy="learn again")
        return ""
    progress = read_json(folder / "state.json", "progress")["progress"]
    if not progress["best"]:
        raise InputError("nothing was measured yet", where=folder, remedy="go on with `fedlu learn ... --resume`")
    return f"not finished: the best tables of {progress['round']} rounds, of {progress['rounds']}"


def evaluate(folder: str | Path, split: str = "test", *, data: Federation | str | Path | None = None) -> dict[str, Any]:
    """Rank a split again, with the best tables of a run, finished or not; by view, as in `metrics.json`. `data` says
    where the federation is now, if it was moved."""
    if split not in ("valid", "test"):
        raise InputError(f"no split {split!r}", remedy="choose valid or test")
    folder = Path(folder)
    how_far(folder)
    party, progress, _ = go_on(folder, data_of(folder, data), saved_settings(folder))
    source = ALL_OF_VALID if split == "valid" else split
    return rounds.measure(party.server, party.transport, progress.round, source, best=True)


def data_of(folder: Path, data: Federation | str | Path | None = None) -> Federation:
    """The data that a run was learned from, without what it has forgotten; `data` says where it is now, if moved."""
    config = read_config(folder)
    if data is None:
        data = config["data"]
    if data is None:
        raise InputError("its data was given in memory", where=folder, remedy="give the same federation again, as data")
    if not isinstance(data, Federation):
        if not Path(data).is_dir():
            raise InputError("the data of the run is gone", where=data, remedy="put it back, or say where it is now")
        data = federations.load(data)
    ledger = ledger_of(folder)
    if ledger is not None:
        data, _ = ledger.apply(data)
    if data.fingerprint != config["fingerprint"]:
        where = config["data"] or data.name
        raise InputError("the data has changed since", where=where, remedy="learn again with the new data")
    return data


def read_config(folder: Path) -> dict[str, Any]:
    return read_json(folder / "config.json", "settings", "recipe", "data", "federation", "fingerprint")


def saved_settings(folder: Path) -> Settings:
    """Those that a run was learned with; today's defaults stand for settings that its version did not have."""
    try:
        return Settings(**read_config(folder)["settings"])
    except TypeError as strange:
        remedy = "use the version of fedlu that wrote it"
        raise InputError(f"settings that are none ({strange})", where=folder / "config.json", remedy=remedy) from None


def ledger_of(folder: Path) -> Ledger | None:
    return Ledger.read(folder / LEDGER) if (folder / LEDGER).is_file() else None


# --- setting up ---------------------------------------------------------------------------------------------------


def gather(data: Federation, settings: Settings) -> Party:
    """A server and the clients of a federation, registered with each other."""
    if settings.method == "centralized":
        clients = [Client(data.union(), settings, _exams_of_all(data))]
    else:
        clients = [Client(graph, settings) for graph in data.clients]
    if len({client.name for client in clients}) < len(clients):
        raise InputError("two clients have the same name", where=data.name, remedy="rename one of them")
    for client in clients:
        client.exams = [sampled(exam, settings) for exam in client.exams]
    server = Server(clients[0].width, settings.start_range, settings.seed, settings.compress, settings.add_up)
    transport = InProcessTransport(clients, key_for_one_process(settings.seed))
    transport.welcome(server.register(transport.register()))
    return Party(server, clients, transport)


def _exams_of_all(data: Federation) -> list[Exam]:
    """Centralized: one model of all entities, ranked within each client's own, filtered by that client's triples."""
    exams = []
    for number, client in enumerate(data.clients):
        known = FilterIndex.of(data.lift(number, client.known), len(data.entities), len(data.relations))
        splits = {split: data.lift(number, client.split(split)) for split in ("valid", "test")}
        exams.append(Exam(client.name, splits, known, candidates=data.rows[number]))
    return exams


def sampled(exam: Exam, settings: Settings) -> Exam:
    """While learning, a sample of valid stands for the whole; the whole is kept beside it."""
    valid = exam.splits["valid"]
    splits = {**exam.splits, ALL_OF_VALID: valid}
    number = math.ceil(settings.valid_share * len(valid))
    chosen = generator(settings.seed, "valid", exam.name).choice(len(valid), size=number, replace=False)
    splits["valid"] = valid[np.sort(chosen)]
    return Exam(exam.name, splits, exam.known, exam.candidates)


def open_folder(folder: Path, config: dict[str, Any], ledger: Ledger | None = None, *, resume: bool) -> None:
    path = folder / "config.json"
    if path.is_file():
        if not resume:
            raise InputError("holds a run", where=folder, remedy="choose another --out, or --resume to continue it")
        old = read_json(path, "settings", "fingerprint")
        if old.get("fedlu") != config["fedlu"]:
            what = f"the run was begun with fedlu {old.get('fedlu')}"
            raise InputError(what, where=folder, remedy="resume it with that version, so that the result is the same")
        if old["fingerprint"] != config["fingerprint"]:
            raise InputError("the data has changed since the run began", where=folder, remedy="start a new run")
        if old.get("start_from") != config.get("start_from"):
            raise InputError("the run began with other tables", where=folder, remedy="resume it with the same")
        if changed := other_settings(old, config["settings"]):
            raise InputError(f"the run has other settings: {changed}", where=folder, remedy="resume it with the same")
        return
    claim(path, "a run", besides={LEDGER})
    if ledger is not None:
        ledger.save(folder / LEDGER)
    write_json(path, config)


def other_settings(config: dict[str, Any], settings: dict[str, Any]) -> str:
    """In which of its settings a run differs from these, in words; empty if in none."""
    had = {**asdict(Settings()), **config["settings"]}  # a run from before a setting was there has its default
    return ", ".join(f"{key} was {had[key]}" for key, value in settings.items() if had[key] != value)


# --- checkpoints --------------------------------------------------------------------------------------------------


def go_on(folder: Path, data: Federation, settings: Settings) -> tuple[Party, Progress, float]:
    """The party as the last checkpoint left it, or a new one."""
    party = gather(data, settings)
    return (party, *checkpoints.restore(folder, party))


def run(
    folder: Path,
    party: Party,
    progress: Progress,
    settings: Settings,
    seconds: float,
    watch: Watch | None,
    *,
    rules: Rules | None = None,
    every_round: bool = False,
) -> None:
    """Go on to the end; a checkpoint when a round was measured, and when the last one was some time ago, unless there
    has to be one after every round."""
    saved = time.monotonic()
    checkpoints.drop_later_events(folder)
    loop = rounds.learn(
        party.server,
        party.transport,
        progress,
        rounds=settings.rounds,
        fraction=settings.fraction,
        evaluate_every=settings.evaluate_every,
        patience=settings.patience,
        warm_rounds=settings.warm_rounds if settings.method == "fedlu" else 0,
        rules=rules,
    )
    with (folder / "events.jsonl").open("a", encoding="utf-8") as events, _saying_what_is_kept(folder, progress):
        for event in loop:
            seconds += event.seconds
            events.write(json.dumps(asdict(event)) + "\n")
            if watch is not None:
                watch(event, progress)
            measured = event.valid is not None
            if progress.finished or measured or every_round or time.monotonic() - saved >= CHECKPOINT_SECONDS:
                events.flush()
                os.fsync(events.fileno())
                checkpoints.save(folder, party, progress, events.tell(), seconds)
                saved = time.monotonic()


@contextmanager
def _saying_what_is_kept(folder: Path, progress: Progress) -> Iterator[None]:
    """A run that diverged says from which round on it is lost; numbers that are too large for scores have, too."""
    try:
        yield
    except (DivergedError, ScoreError) as bad:
        what = bad.what if isinstance(bad, DivergedError) else f"round {progress.round}: {bad.what}"
        state = read_json(folder / "state.json") if (folder / "state.json").is_file() else None
        kept = f"the tables of round {state['progress']['round']} are kept" if state else "no round was kept"
        raise DivergedError(what, where=folder, remedy=f"{bad.remedy}; {kept}") from None


def finish(
    folder: Path,
    party: Party,
    progress: Progress,
    config: dict[str, Any],
    rules: Rules | None = None,
    *,
    splits: Sequence[str] = ("valid", "test"),
) -> dict[str, Any]:
    state = checkpoints.tidy(folder)
    start = time.perf_counter()
    source = {"valid": ALL_OF_VALID, "test": "test"}
    found = {
        split: rounds.measure(party.server, party.transport, progress.round, source[split], best=True, rules=rules)
        for split in splits
    }
    metrics = {
        **found,
        "rounds": progress.round,
        "best_round": progress.best_round,
        "method": config["settings"]["method"],
        "model": config["settings"]["model"],
        "recipe": config["recipe"],
        "seed": config["settings"]["seed"],
        "federation": config["federation"],
        "fingerprint": config["fingerprint"],
        "skipped": config["skipped"],
        "fedlu": config["fedlu"],
        "seconds": {"learning": state["seconds"], "final_evaluation": time.perf_counter() - start},
    }
    write_json(folder / "metrics.json", metrics)
    return metrics
