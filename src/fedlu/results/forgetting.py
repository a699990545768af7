"""`forget`: from a finished run to another one that has forgotten, with a ledger of what must not come back.

The new run is made beside its place and put there whole, so whoever is killed half-way leaves the old run as it was.
It knows nothing of names that only forgotten triples had, and holds no forgotten triple in any file.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

import fedlu
from fedlu.config import Settings
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import FilterIndex
from fedlu.errors import InputError
from fedlu.federated import rounds
from fedlu.federated.client import Client
from fedlu.federated.exams import Exam
from fedlu.federated.keepsakes import Snapshot
from fedlu.federated.rounds import ForgetEvent, Progress
from fedlu.graph.federation import ClientGraph, Federation, check_target, whole_folder
from fedlu.graph.ledger import LEDGER, Ledger, Marks
from fedlu.learning.knowledge import ENOUGH, family
from fedlu.learning.unlearning import GOALS, Request
from fedlu.results import checkpoints, files, runs
from fedlu.results.checkpoints import Party
from fedlu.results.requests import Wish, choose

CYCLES = 6
"""Of interference and decay, at most."""
TOLERANCE = 0.0025
"""How far the valid MRR of a view may stay below what it was: where it was nearer, one more cycle brought no more."""
TOLERANCE_OF_SUPPRESSED_ROTATIONS = 0.0018
"""There one more cycle did bring more (docs/results.md). A server between machines is not told the goal."""
GLANCE = 0.5
"""The part of the valid triples ranked while learning that tells how good a client is while it forgets."""
GLANCE_FOR_A_FEW = 0.1
"""The same where only a few triples go, and little can suffer: to rank would take most of the time ..."""
FEWEST_AT_A_GLANCE = 400
"""... but of a small graph not fewer than these."""
FORGETTING = "forgetting.json"

Watch = Callable[[ForgetEvent], object]


def forget(
    run: str | Path,
    out: str | Path,
    *,
    goal: str = "indistinguishable",
    without: str | None = None,
    purge: bool = False,
    data: str | Path | None = None,
    watch: Watch | None = None,
    **wish: Any,
) -> dict[str, Any]:
    """Forget what `wish` names (see `requests.Wish`) and leave the run in `out`; returns what `forgetting.json` holds.

    `goal` is "indistinguishable" (from true triples that were never learned) or "suppress" (below that). `without`
    leaves out "hard" or "soft" confusion. `purge` then deletes the checkpoints of the old run. `data` says where the
    run's federation is now, if it was moved.
    """
    run, out = Path(run), Path(out)
    refuse(run, out, goal, without)
    config, settings = runs.read_config(run), runs.saved_settings(run)
    if data is not None:
        config["data"] = str(Path(data).resolve())
    federation = runs.data_of(run, data)
    chosen = choose(federation, Wish(**wish))
    with files.alone(run):
        party, _, _ = runs.go_on(run, federation, settings)
    before = fingerprint(party.clients)
    few = sum(int(marks["train"].sum()) for marks in chosen.marks.values()) < ENOUGH
    for client, graph in zip(party.clients, federation.clients, strict=True):
        client.exams = [at_a_glance(exam, few=few) for exam in client.exams]
        if graph.name in chosen.marks:
            client.request = request_of(graph, chosen.marks[graph.name], goal, without)
    rotates = family(party.clients[0].learner) == "rotations"
    tolerance = TOLERANCE_OF_SUPPRESSED_ROTATIONS if rotates and goal == "suppress" else TOLERANCE
    start = time.perf_counter()
    events = []
    for event in rounds.forget(party.server, party.transport, cycles=CYCLES, tolerance=tolerance):
        events.append(event)
        if watch is not None:
            watch(event)
    seconds = time.perf_counter() - start
    former = runs.ledger_of(run) or Ledger()
    ledger = chosen.remember(former, federation)
    retained, _ = ledger.apply(federation)
    after = _retained_party(retained, settings, party.clients)
    facts = {
        "from": str(run.resolve()),
        "goal": goal,
        "without": without,
        "forgotten": {name: int(marks["train"].sum()) for name, marks in chosen.marks.items()},
        "dropped": chosen.count(),
        "reached": any(event.content for event in events),
        "restored": any(event.restored for event in events),
        "cycles": len(events),
        "seconds": seconds,
        "bytes": {
            "up": sum(sum(event.bytes_up.values()) for event in events),
            "down": sum(sum(event.bytes_down.values()) for event in events),
        },
        "hashes": {
            "request": request_hash(ledger.triples - former.triples),
            "config": hashlib.sha256(json.dumps(config["settings"], sort_keys=True).encode()).hexdigest(),
            "data before": federation.fingerprint,
            "data after": retained.fingerprint,
            "tables before": before,
            "tables after": fingerprint(after.clients),
        },
        "fedlu": fedlu.__version__,
    }
    _write(out, after, config, ledger, retained, events, facts)
    return {**facts, "purged": _purge(run, out) if purge else []}


def request_hash(hashes: Collection[str]) -> str:
    """Of the ledger's hashes of a request's triples."""
    return hashlib.sha256("".join(sorted(hashes)).encode()).hexdigest()


def check_goal(goal: str, without: str | None) -> None:
    if goal not in GOALS:
        raise InputError(f"no goal {goal!r}", remedy=f"choose one of {', '.join(GOALS)}")
    if without not in (None, "hard", "soft"):
        raise InputError(f"without {without!r}", remedy="choose hard or soft")


def refuse(run: Path, out: Path | None, goal: str, without: str | None) -> None:
    """What cannot be done, said before anything is read at length."""
    check_goal(goal, without)
    if runs.read_metrics(run)["method"] == "centralized":
        remedy = "re-train it without the triples: it has no clients that could forget"
        raise InputError("a centralized run", where=run, remedy=remedy)
    if out is None:
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("is in use", where=out, remedy="choose another --out")
    data = files.read_json(run / "config.json")["data"] or run
    files.refuse_inside(out, {"the run": run, "the data": data})  # or --purge would delete it
    check_target(out)


def _retained_party(retained: Federation, settings: Settings, forgot: list[Client]) -> Party:
    """The clients that forgot, numbered by what is retained, and a server with the rows that they share."""
    party = runs.gather(retained, settings)
    for client, old in zip(party.clients, forgot, strict=True):
        carry_over(client, old)
        party.server.table[party.server.rows[client.name]] = client.avatar.values[client.shared]
    return party


def at_a_glance(exam: Exam, *, few: bool = False) -> Exam:
    """Some valid triples are enough to see whether the rest has suffered, before and after; the same part of every
    client's, since the mean over clients is by their number, but for small ones where few triples go."""
    valid = exam.splits["valid"]
    number = math.ceil(GLANCE * len(valid))
    if few:
        number = min(number, max(FEWEST_AT_A_GLANCE, math.ceil(GLANCE_FOR_A_FEW * len(valid))))
    places = np.linspace(0, len(valid) - 1, number).astype(np.int64)
    return replace(exam, splits={**exam.splits, "valid": valid[places]})


def request_of(graph: ClientGraph, marks: Marks, goal: str, without: str | None) -> Request:
    """In the ids of the graph before: the rows to be confused are still there."""
    kept = np.concatenate([graph.split(split)[~marks[split]] for split in ("train", "valid", "test")])
    return Request(
        forget=graph.train[marks["train"]],
        retained=graph.train[~marks["train"]],
        valid=graph.valid[~marks["valid"]],
        known=FilterIndex.of(kept, len(graph.vocabulary.entities), len(graph.vocabulary.relations)),
        goal=goal,
        hard=without != "hard",
        soft=without != "soft",
    )


def carry_over(new: Client, old: Client) -> None:
    """Give a client of the retained data the tables of the client that forgot; rows of vanished names are left behind.

    The optimizer's memory of single numbers tells of single triples, so only its mean goes along.
    """
    entities = [old.graph.vocabulary.entity_ids[label] for label in new.graph.vocabulary.entities]
    relations = [old.graph.vocabulary.relation_ids[label] for label in new.graph.vocabulary.relations]
    if old.settings.reciprocal:
        relations += [number + len(old.graph.vocabulary.relations) for number in relations]
    for view, snapshot in old.best.items():
        new.best[view] = Snapshot(snapshot.entities[entities], snapshot.relations[relations], snapshot.model)
    for view, name in (("local", "local"), ("global", "avatar")):
        table, last = getattr(new, name), getattr(old, name)
        table.values = new.best.get(view, next(iter(new.best.values()))).entities.copy()
        _blur(table, last)
    last_view = "global" if "global" in new.best else "local"
    new.relations.values = new.best[last_view].relations.copy()
    _blur(new.relations, old.relations)
    if new.local_relations is not None and old.local_relations is not None:
        new.local_relations.values = new.best["local"].relations.copy()
        _blur(new.local_relations, old.local_relations)
    new.learner.scorer.restore(old.learner.scorer.state())
    new.parted = old.parted
    if new.learner.scorer.parameters is not None and old.learner.scorer.parameters is not None:
        new.learner.scorer.parameters.values = old.learner.scorer.parameters.values.copy()


def _blur(table: Table, last: Table) -> None:
    table.memory = {name: np.full_like(table.values, each.mean()) for name, each in last.memory.items()}
    table.updates = last.updates


def fingerprint(clients: list[Client]) -> str:
    """A hash of the tables that predictions are made from."""
    digest = hashlib.sha256()
    for client in clients:
        for view, snapshot in sorted(client.best.items()):
            for array in (snapshot.entities, snapshot.relations):
                digest.update(view.encode() + np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest.hexdigest()


def _write(
    out: Path,
    party: Party,
    config: dict[str, Any],
    ledger: Ledger,
    retained: Federation,
    events: list[ForgetEvent],
    facts: dict[str, Any],
) -> None:
    progress = Progress(round=len(events), rounds=len(events), finished=True)
    config = {**config, "fingerprint": retained.fingerprint, "skipped": facts["dropped"], "fedlu": fedlu.__version__}
    with whole_folder(out) as new:
        ledger.save(new / LEDGER)
        files.write_json(new / "config.json", config)
        with (new / "events.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(event)) + "\n" for event in events)
        checkpoints.save(new, party, progress, (new / "events.jsonl").stat().st_size, facts["seconds"])
        files.write_json(new / FORGETTING, facts)
        runs.finish(new, party, progress, config)


def _purge(run: Path, out: Path) -> list[str]:
    """Delete what the old run could still be used with; its settings, events and metrics stay, and a note of why."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    files.write_json(run / checkpoints.PURGED, {"when": now, "replaced by": str(out.resolve())})
    folders = [run / "checkpoints", run / "retrained" / "checkpoints"]  # an audit's model knows what goes now, too
    folders = [folder for folder in folders if folder.exists()]
    found = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    for folder in folders:
        shutil.rmtree(folder)
    return [str(path) for path in found]
