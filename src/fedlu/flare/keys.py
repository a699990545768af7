"""The sites' alignment key: a file that they share among themselves, and that the server never has."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fedlu.errors import InputError

KEY_BYTES = 32


def new_key(path: Path) -> None:
    """A key for the sites: they share it among themselves, and the server never has it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError("exists", where=path, remedy="choose another --out: a key is never replaced") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(KEY_BYTES) + "\n")


def read_key(path: Path) -> bytes:
    text = path.read_text(encoding="ascii", errors="replace").strip() if path.is_file() else ""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        remedy = "make one with `fedlu federation key`, and give the same to every site"
        raise InputError("not a key: expected 64 hexadecimal digits", where=path, remedy=remedy)
    return key
