"""Files of a run, written so that a reader sees the old one or the new one, whole; and one process at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import save_file

from fedlu.errors import InputError


def save_arrays(arrays: dict[str, Any], path: Path) -> None:
    try:
        save_file(arrays, path)
    except SafetensorError as bad:
        raise OSError(errno.EIO, f"cannot be written ({bad})", str(path)) from bad
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process, however it ends."""
    path = folder / ".lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError("another process is at this run", where=folder, remedy="wait for it, or stop it") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def read_json(path: Path, *parts: str) -> dict[str, Any]:
    """A file of a run, which is an object that has these parts, or it is refused."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or set(parts) - set(found):
            raise ValueError("no object" if not isinstance(found, dict) else f"no {min(set(parts) - set(found))}")
    except (ValueError, FileNotFoundError) as bad:
        raise InputError(f"not a file of a run ({bad})", where=path, remedy="start a new run") from None
    return found


def write_json(path: Path, value: Any) -> None:
    """Replace a file in one step; a reader sees the old one or the new one, whole."""
    scratch = path.with_name(f".{path.name}.part")
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def claim(path: Path, what: str, *, besides: Collection[str] = ()) -> None:
    """Make the folder of a file that comes first; it may be there if nothing is in it but `besides` and what whoever
    was killed meanwhile left."""
    folder = path.parent
    allowed = {f".{path.name}.part", *besides}
    if folder.exists() and (not folder.is_dir() or {entry.name for entry in folder.iterdir()} - allowed):
        raise InputError(f"is in use, and not by {what}", where=folder, remedy="choose another --out")
    folder.mkdir(parents=True, exist_ok=True)


def refuse_inside(out: Path, places: Mapping[str, str | Path]) -> None:
    """By what they are called: folders in which no --out may be, since whoever reads them would take it for theirs."""
    for what, place in places.items():
        if Path(place).resolve() in (out.resolve(), *out.resolve().parents):
            raise InputError(f"is inside {what}", where=out, remedy="choose an --out beside it")
