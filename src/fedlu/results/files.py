"""Files of a run, written so that a reader sees the old one or the new one, whole; and one process at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
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
        yield
        path.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
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
