"""Errors that a person can act on: each says what is wrong, where, and what to do about it."""

from __future__ import annotations

from pathlib import Path


class FedluError(Exception):
    """Anything fedlu refuses or cannot do. The command line prints it as one line and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | Path | None = None, line: int | None = None, remedy: str = ""):
        self.what, self.where, self.line, self.remedy = what, where, line, remedy
        place = "" if where is None else f"{where}: " if line is None else f"{where}:{line}: "
        super().__init__(place + what + (f"; {remedy}" if remedy else ""))


class InputError(FedluError):
    """A file, a folder or an option is not what it has to be."""

    exit_code = 2


class UnavailableError(FedluError):
    """Something outside is missing: a download that fails, an optional package that is not installed."""

    exit_code = 3


class ScoreError(FedluError):
    """A model gave scores that cannot be ranked, such as NaN."""

    exit_code = 4
