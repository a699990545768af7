"""Checkpoints of a run: all that its future depends on, in the folder `checkpoints`; `state.json` names the last one.

One is written whole before `state.json` names it, and those before it are deleted after that; so whoever is killed, or
reads meanwhile, finds one that is whole.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedlu.errors import InputError
from fedlu.federated.client import Client
from fedlu.federated.rounds import Progress
from fedlu.federated.server import Server
from fedlu.federated.transport import Transport
from fedlu.results.files import read_json, save_arrays, write_json

PURGED = "purged.json"
"""When the checkpoints of a run were deleted, and for which run."""


@dataclass
class Party:
    """A federation in one process, set up and ready to go on."""

    server: Server
    clients: list[Client]
    """Those of this process."""
    transport: Transport


def restore(folder: Path, party: Party) -> tuple[Progress, float]:
    """Bring a new party to where the last checkpoint left it; how far that was, and the seconds it took."""
    path = folder / "state.json"
    if not path.is_file():
        return Progress(), 0.0
    state = read_json(path, "checkpoint", "progress", "counters", "seconds")
    checkpoint = folder / "checkpoints" / state["checkpoint"]
    if not checkpoint.parent.is_dir():
        raise _purged(folder)
    try:
        party.server.restore(load_file(checkpoint / "server.safetensors"))
        for number, client in enumerate(party.clients):
            arrays = load_file(checkpoint / _client_file(number))
            _check_shapes(arrays, client.state()[0])
            client.restore(arrays, state["counters"][client.name])
        return Progress(**state["progress"]), state["seconds"]
    except (SafetensorError, KeyError, TypeError, ValueError, FileNotFoundError) as bad:
        if read_json(path)["checkpoint"] != state["checkpoint"]:  # it is learning, and was faster
            return restore(folder, party)
        raise InputError(f"the checkpoint is damaged ({bad})", where=checkpoint, remedy="start a new run") from bad


def _check_shapes(arrays: dict[str, Any], expected: dict[str, Any]) -> None:
    """Or the rows of one client would be taken for another's."""
    for name, mine in expected.items():
        if name.endswith(".values") and arrays[name].shape != mine.shape:
            raise ValueError(f"{name} of {arrays[name].shape}, expected {mine.shape}")


def _purged(folder: Path) -> InputError:
    """Why a run without checkpoints cannot be used, and which one can."""
    note = read_json(folder / PURGED) if (folder / PURGED).is_file() else {}
    when = f" on {note['when'][:10]}" if "when" in note else ""
    instead = f"use {note['replaced by']}, which has forgotten" if note else "use the run that has forgotten"
    return InputError(f"its checkpoints were deleted{when}, as by `fedlu forget --purge`", where=folder, remedy=instead)


def drop_later_events(folder: Path) -> None:
    """Those of rounds after the last checkpoint: they were lost, and come again."""
    kept = read_json(folder / "state.json")["events_bytes"] if (folder / "state.json").is_file() else 0
    if (folder / "events.jsonl").is_file():
        os.truncate(folder / "events.jsonl", kept)


def save(folder: Path, party: Party, progress: Progress, events_bytes: int, seconds: float) -> None:
    name = f"round-{progress.round:06}"
    checkpoint = folder / "checkpoints" / name
    scratch = checkpoint.with_suffix(".part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    save_arrays(party.server.state(), scratch / "server.safetensors")
    counters = {}
    for number, client in enumerate(party.clients):
        arrays, counters[client.name] = client.state()
        save_arrays(arrays, scratch / _client_file(number))
    shutil.rmtree(checkpoint, ignore_errors=True)
    scratch.rename(checkpoint)
    state = {"checkpoint": name, "progress": asdict(progress), "counters": counters}
    write_json(folder / "state.json", {**state, "events_bytes": events_bytes, "seconds": seconds})
    tidy(folder)


def tidy(folder: Path) -> dict[str, Any]:
    """Leave the last checkpoint alone in its folder; returns what `state.json` says."""
    state = read_json(folder / "state.json")
    for old in (folder / "checkpoints").iterdir():
        if old.name != state["checkpoint"]:
            shutil.rmtree(old)
    return state


def _client_file(number: int) -> str:
    """By number, since a client may be called anything, `server` included; the order is that of their names."""
    return f"client-{number:04}.safetensors"
