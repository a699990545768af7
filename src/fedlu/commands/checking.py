"""`fedlu doctor`: is this installation well?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from fedlu.display import screen, show_findings, working


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a list of findings.")] = False,
) -> None:
    """Check this installation: versions, cores, memory, compiled loops and their cache, threads, BLAS.

    It learns on a tiny federation with every model, which also compiles the loops if they are not in the cache yet;
    that takes a while, once. What is not well comes with what to do. Exit code 1 if something does not work, else 0.

    Examples:

    `fedlu doctor`

    `fedlu doctor --json`
    """
    with working("looking; the first time, the loops are compiled, which takes a while"):
        from fedlu.results.checkup import examine

        findings = examine()
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for each in findings], indent=2, ensure_ascii=False) + "\n")
    else:
        show_findings(findings)
        wrong = sum(each.status != "ok" for each in findings)
        screen.print("all is well" if not wrong else f"{wrong} to look at")
    if any(each.status == "fail" for each in findings):
        raise typer.Exit(1)
