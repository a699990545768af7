"""Print a table of measurements and keep it as JSON, with what is needed to read it later."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent / "results"


def report(name: str, rows: list[dict[str, object]], **facts: object) -> None:
    """Rows share their keys; facts say what was measured."""
    table = Table(title=name)
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(f"{value:,.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for fact, value in facts.items():
        console.print(f"{fact}: {value}")
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {package: version(package) for package in ("fedlu", "numba", "numpy", "pykeen", "torch")}
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {"name": name, "when": when, **machine, "python": platform.python_version(), "versions": versions}
    path.write_text(json.dumps({**record, **facts, "rows": rows}, indent=2) + "\n")
    console.print(f"saved {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
