"""`fedlu forget` and `fedlu audit`: make a run forget, and show that it did."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedlu.display import Board, ForgettingBoard, notes, screen, show_audit, show_deducible, working

Triples = Annotated[Path | None, typer.Option(help="A file of triples of one client; needs --client.")]
ForgetSets = Annotated[bool, typer.Option("--forget-sets", help="Every client's forget.txt.")]
Fraction = Annotated[float, typer.Option(help="A sample of every client's train triples, e.g. 0.01.")]
Seed = Annotated[int, typer.Option(help="For --fraction: same seed, same sample.")]
Entity = Annotated[str | None, typer.Option(help="Everything about this entity; its rows are erased as well.")]
Relation = Annotated[str | None, typer.Option(help="Every triple of this relation.")]
Client = Annotated[str | None, typer.Option(help="Only at this client.")]


def forget(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run; it is not changed.")],
    out: Annotated[Path | None, typer.Option(help="The folder of the run that has forgotten.")] = None,
    triples: Triples = None,
    forget_sets: ForgetSets = False,
    fraction: Fraction = 0.0,
    seed: Seed = 0,
    entity: Entity = None,
    relation: Relation = None,
    client: Client = None,
    goal: Annotated[
        str,
        typer.Option(help="**indistinguishable** from what was never learned, or **suppress**: known even less."),
    ] = "indistinguishable",
    without: Annotated[str | None, typer.Option(help="Leave out hard or soft confusion, to study them.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and change nothing.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Afterwards, delete the checkpoints of RUN.")] = False,
) -> None:
    """Forget triples, an entity or a relation, at every client and in what they share.

    The clients concerned confuse what has to go, in their local and in their global rows, and rehearse what stays; the
    server averages after each step, so that the others receive rows that have forgotten. The new run keeps a ledger of
    salted hashes: `fedlu learn --ledger` will not learn these triples again. Remove them from your data as well, after
    `fedlu audit`, which compares with RUN as it was.

    Examples:

    `fedlu forget run --entity "Ada Lovelace" --dry-run`

    `fedlu forget run --triples erase.tsv --client north --out run-2`

    `fedlu forget run --forget-sets --goal suppress --purge --out run-2`
    """
    from fedlu.errors import InputError
    from fedlu.results import forgetting

    wish: dict[str, Any] = {
        "triples": triples,
        "forget_sets": forget_sets,
        "fraction": fraction,
        "seed": seed,
        "entity": entity,
        "relation": relation,
        "client": client,
    }
    if dry_run:
        forgetting.refuse(run, out, goal, without)
        _show_what_would_go(run, wish)
        return
    if out is None:
        raise InputError("no --out", remedy="name the folder of the run that has forgotten")
    with ForgettingBoard() as board:
        facts = forgetting.forget(run, out, goal=goal, without=without, purge=purge, watch=board.show, **wish)
    gone = ", ".join(f"{number:,} at {name}" for name, number in facts["forgotten"].items())
    took = f"in {facts['cycles']} cycles and {facts['seconds']:.1f} s"
    screen.print(f"forgot {gone} {took}; next: {_audit_command(out, wish)}")
    _remark(facts, entity)
    for path in facts["purged"]:
        screen.print(f"deleted {path}")


def _show_what_would_go(run: Path, wish: dict[str, Any]) -> None:
    from fedlu.results import runs
    from fedlu.results.requests import Wish, choose

    with working(f"reading {run}"):
        data = runs.data_of(run)
        chosen = choose(data, Wish(**wish))
    for name, labels in chosen.labels(data):
        screen.print(f"{name}: {' | '.join(labels)}")
    screen.print(f"{chosen.count():,} triples would go; nothing was changed")


def _remark(facts: dict[str, Any], entity: str | None) -> None:
    """What whoever asked would not guess."""
    if unseen := facts["dropped"] - sum(facts["forgotten"].values()):
        notes.print(f"{unseen:,} more stood in valid or test: never learned, they are out of the data from now on")
    if entity and not facts["reached"]:
        notes.print("its rows are erased; rows beside it were changed as far as the cycles allowed")
    elif not facts["reached"]:
        notes.print("the goal was not quite reached within the cycles allowed; the audit shows how close it is")
    if not facts["restored"]:
        notes.print("what is kept has suffered: the valid MRR did not come all the way back; the audit shows how much")


def _audit_command(out: Path, wish: dict[str, Any]) -> str:
    """With the request, which the run does not store."""
    words = ["fedlu", "audit", str(out)]
    for name, value in wish.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            words.append(option if value is True else f"{option}={value}")
    return shlex.join(words)


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that `fedlu forget` wrote.")],
    retrain: Annotated[
        bool,
        typer.Option(
            "--retrain/--no-retrain",
            help="Compare with a run re-trained on what is retained; if it is there already, in either case.",
        ),
    ] = True,
    retrained: Annotated[
        Path | None,
        typer.Option(help="Where the re-trained run is kept, so that audits of one request share it; else in RUN."),
    ] = None,
    triples: Triples = None,
    forget_sets: ForgetSets = False,
    fraction: Fraction = 0.0,
    seed: Seed = 0,
    entity: Entity = None,
    relation: Relation = None,
    client: Client = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print audit.json.")] = False,
) -> None:
    """Show what was forgotten and what it cost: evidence in RUN/audit.json and RUN/audit.md.

    Give the request again as it was given to `fedlu forget` (by default, the forget sets): the run does not store it,
    and checks it against its ledger. Re-training takes as long as learning did; it is kept, and resumed if stopped.

    Examples:

    `fedlu audit run-2`

    `fedlu audit run-2 --triples erase.tsv --client north --no-retrain --json`

    `fedlu audit run-3 --retrained run-2/retrained`
    """
    from fedlu.errors import InputError
    from fedlu.results import audit as audits

    given: dict[str, Any] = {
        "triples": triples,
        "forget_sets": forget_sets,
        "fraction": fraction,
        "entity": entity,
        "relation": relation,
        "client": client,
    }
    if retrained and not retrain:
        raise InputError("--retrained with --no-retrain", remedy="leave one of them out")
    wish = {name: value for name, value in given.items() if value}
    if wish:
        wish["seed"] = seed
    if set(wish) == {"client", "seed"}:
        wish["forget_sets"] = True
    with Board() as board:
        result, deducible = audits.audit(run, retrain=retrain, retrained=retrained, watch=board.show, **wish)
    if as_json:
        sys.stdout.write(json.dumps(audits.as_plain(result), indent=2, ensure_ascii=False) + "\n")
    else:
        show_audit(result, f"{run}: what was forgotten")
    show_deducible(deducible)
