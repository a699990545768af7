"""A run whose clients are elsewhere: the server's side of it, which any transport can carry.

The folder is that of a run (`runs.py`) without anything of the clients': settings, progress, the global table, averaged
metrics, and `tokens.safetensors`, the tokens that each site registered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

import fedlu
from fedlu.config import Settings
from fedlu.embedding.models import size_of
from fedlu.errors import InputError
from fedlu.federated import rounds
from fedlu.federated.arrivals import QuorumError, Rules
from fedlu.federated.messages import Missing, Registration
from fedlu.federated.rounds import Progress
from fedlu.federated.server import Server
from fedlu.federated.transport import Transport
from fedlu.federated.wire import TOKEN_BYTES
from fedlu.graph.federation import whole_folder
from fedlu.results import checkpoints, files, runs
from fedlu.results.checkpoints import Party
from fedlu.results.files import alone, read_json
from fedlu.results.forgetting import CYCLES, FORGETTING, TOLERANCE
from fedlu.results.runs import Watch, open_folder, read_metrics

TOKENS = "tokens.safetensors"


def learn(
    folder: Path,
    settings: Settings,
    sites: list[str],
    transport: Transport,
    *,
    rules: Rules,
    name: str,
    recipe: str = "",
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Begin a run or go on with it, to its end; saved after every round."""
    if settings.method == "centralized":
        raise InputError("centralized needs all triples in one place", remedy="choose another method")
    config = {
        "settings": asdict(settings),
        "recipe": recipe,
        "data": None,
        "federation": name,
        "fingerprint": " ".join(sorted(sites)),
        "skipped": 0,
        "fedlu": fedlu.__version__,
    }
    open_folder(folder, config, resume=True)
    with alone(folder):
        if (folder / "metrics.json").exists():
            return read_metrics(folder)
        party = _gather(folder, settings, sites, transport, rules)
        progress, seconds = checkpoints.restore(folder, party)
        runs.run(folder, party, progress, settings, seconds, watch, rules=rules, every_round=True)
        return runs.finish(folder, party, progress, config, rules)


def evaluate(folder: Path, split: str, transport: Transport, rules: Rules) -> dict[str, Any]:
    """Let the sites rank a split again, with the best tables that they kept."""
    if split not in ("valid", "test"):
        raise InputError(f"no split {split!r}", remedy="choose valid or test")
    read_metrics(folder)
    config = read_json(folder / "config.json")
    with alone(folder):
        party = _gather(folder, Settings(**config["settings"]), config["fingerprint"].split(" "), transport, rules)
        progress = Progress(**read_json(folder / "state.json")["progress"])
        source = runs.ALL_OF_VALID if split == "valid" else split
        return rounds.measure(party.server, transport, progress.round, source, best=True, rules=rules)


def forget(
    source: Path, target: Path, before: Transport, after: Callable[[], Transport], rules: Rules
) -> dict[str, Any]:
    """Let the sites forget what they have to, together, and leave the run that has forgotten in `target`.

    `before` carries messages about the run as it is, `after` about the new one. Nothing is saved on the way: a
    forgetting that is broken off begins again, and ends the same.
    """
    read_metrics(source)
    if (target / "metrics.json").exists():
        return read_metrics(target)
    config = read_json(source / "config.json")
    settings, sites = Settings(**config["settings"]), config["fingerprint"].split(" ")
    full = replace(rules, quorum=1.0)  # who is away cannot have forgotten
    with alone(source):
        party = _gather(source, settings, sites, before, full)
        checkpoints.restore(source, party)
        start = time.perf_counter()
        events = list(rounds.forget(party.server, before, cycles=CYCLES, tolerance=TOLERANCE))
        seconds = time.perf_counter() - start
    with whole_folder(target) as new:
        files.write_json(new / "config.json", config)
        transport = after()
        forgotten = _gather(new, settings, sites, transport, full)
        _carry_over(forgotten.server, party.server)
        with (new / "events.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(event)) + "\n" for event in events)
        progress = Progress(round=len(events), rounds=len(events), finished=True)
        checkpoints.save(new, forgotten, progress, (new / "events.jsonl").stat().st_size, seconds)
        reached = any(event.content for event in events)
        facts = {"from": source.name, "cycles": len(events), "reached": reached, "seconds": seconds}
        files.write_json(new / FORGETTING, facts)
        return {**runs.finish(new, forgotten, progress, config, full), "forgetting": facts}


def _carry_over(new: Server, old: Server) -> None:
    """The rows that are still shared, by their tokens; what nobody names any more is gone."""
    number_of = {token: number for number, token in enumerate(old.tokens)}
    new.table = old.table[[number_of[token] for token in new.tokens]]


def _gather(folder: Path, settings: Settings, sites: list[str], transport: Transport, rules: Rules) -> Party:
    """The server with its sites registered. A run begins with all of them; later, some may be away."""
    width = size_of(settings.model, dimension=settings.dimension).entity_width
    server = Server(width, settings.start_range, settings.seed, settings.compress, settings.add_up)
    before = _read_tokens(folder / TOKENS)
    here = {each.client: each for each in transport.register() if not isinstance(each, Missing)}
    for name, old in before.items():
        if name in here and here[name] != old:
            raise InputError("has other entities than when the run began", where=name, remedy="begin another run")
    known = {**before, **here}
    needed = rules.needed(len(sites)) if before else len(sites)
    if len(here) < needed or set(known) != set(sites):
        away = ", ".join(sorted(set(sites) - set(here)))
        raise QuorumError(f"{len(here)} sites of {needed} needed are here; away: {away}")
    welcomes = server.register([known[name] for name in sorted(known)])
    if not before:
        _write_tokens(folder / TOKENS, known)
    transport.welcome({name: welcome for name, welcome in welcomes.items() if name in here})
    return Party(server, [], transport)


def _read_tokens(path: Path) -> dict[str, Registration]:
    if not path.is_file():
        return {}
    try:
        arrays = load_file(path)
    except SafetensorError as bad:
        raise InputError(f"the tokens are damaged ({bad})", where=path, remedy="begin another run") from bad
    found = {}
    for name, array in arrays.items():
        text = array.tobytes()
        parts = tuple(text[start : start + TOKEN_BYTES] for start in range(0, len(text), TOKEN_BYTES))
        found[name] = Registration(name, parts)
    return found


def _write_tokens(path: Path, known: dict[str, Registration]) -> None:
    arrays = {name: np.frombuffer(b"".join(each.tokens), dtype=np.uint8) for name, each in known.items()}
    scratch = path.with_suffix(".part")
    files.save_arrays(arrays, scratch)
    scratch.replace(path)
