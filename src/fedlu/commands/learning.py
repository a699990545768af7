"""`fedlu learn`, `evaluate` and `recipes`: from a federation to a run, and how good it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedlu.config import METHODS, RECIPES
from fedlu.display import Board, notes, screen, show_metrics, working


def learn(
    federation: Annotated[Path, typer.Argument(metavar="FEDERATION", help="A folder of clients.")],
    out: Annotated[Path, typer.Option(help="The folder of the run.")],
    method: Annotated[
        str,
        typer.Option(
            help="independent, centralized, fede, fedprox, fedec or fedlu.", autocompletion=lambda: list(METHODS)
        ),
    ] = "fedlu",
    model: Annotated[
        str, typer.Option(help="TransE, TransE-L2, DistMult, ComplEx, RotatE, or pykeen:NAME.")
    ] = "TransE",
    recipe: Annotated[
        str,
        typer.Option(help="fast, paper or strong; `fedlu recipes` shows them.", autocompletion=lambda: list(RECIPES)),
    ] = "fast",
    seed: Annotated[int, typer.Option(help="Same seed and data, same embeddings.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated.")
    ] = None,
    start_from: Annotated[
        list[str] | None,
        typer.Option(metavar="[CLIENT=]FILE", help="Begin with these tables, of `fedlu export` or import-pykeen."),
    ] = None,
    compress: Annotated[
        str | None, typer.Option(help="Rows on the wire: none, fp16 (half the bytes) or int8 (a quarter).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="A run that forgot: what stands in its ledger is not learned again.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard events to the run.")
    ] = False,
) -> None:
    """Train embeddings over a federation; no triple leaves its client, but for `centralized`, a rival to compare with.

    The run folder keeps settings, an event per round, a checkpoint and the metrics. A run that was stopped, even
    killed, goes on with --resume and ends with the same embeddings, bit for bit.

    Examples:

    `fedlu learn umls-r3 --out run`

    `fedlu learn umls-r3 --method fede --model ComplEx --set rounds=20 --set learning_rate=0.01 --out run-fede`

    `fedlu learn umls-r3 --start-from client-0=tables.safetensors --out run-warm`
    """
    from fedlu.config import parse_overrides
    from fedlu.errors import InputError
    from fedlu.results import runs
    from fedlu.results.tensorboard import tensorboard_watch

    overrides: dict[str, Any] = {**parse_overrides(settings or []), "seed": seed}
    if compress is not None and overrides.setdefault("compress", compress) != compress:
        what = f"--compress {compress} and --set compress={overrides['compress']}"
        raise InputError(what, remedy="give one of them")
    with Board() as board:
        watchers = [board.show, *([tensorboard_watch(out)] if tensorboard else [])]
        metrics = runs.learn(
            federation,
            method=method,
            model=model,
            recipe=recipe,
            out=out,
            resume=resume,
            ledger=ledger,
            start_from=start_from or (),
            watch=lambda event, progress_: [watch(event, progress_) for watch in watchers],
            **overrides,
        )
    if metrics["skipped"]:
        notes.print(f"{metrics['skipped']:,} forgotten triples in the data were skipped")
    elif ledger is not None:
        notes.print("nothing of the ledger is in this data: it knows triples by their client's name as well")
    show_metrics(metrics["test"], f"{out}: test, after {metrics['rounds']} rounds")


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, finished or not.")],
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    data: Annotated[Path | None, typer.Option(help="Where the federation is now, if it was moved.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, by view, in fractions.")] = False,
) -> None:
    """Rank a split with the best tables of a run; of one that still learns, or was stopped, with the best so far.

    Example:

    `fedlu evaluate run --split valid --json`
    """
    from fedlu.results import runs

    with working("ranking"):
        found = runs.evaluate(run, split, data=data)
    if said := runs.how_far(run):
        notes.print(said)
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    else:
        show_metrics(found, f"{run}: {split}")


def recipes(
    name: Annotated[str | None, typer.Argument(help="Show this one in full.")] = None,
) -> None:
    """List the recipes: settings by name, for `fedlu learn --recipe`.

    Example:

    `fedlu recipes fast`
    """
    from fedlu.config import RECIPES, read_recipe, recipe_text

    if name is not None:
        screen.print(recipe_text(name))
        return
    for each in RECIPES:
        screen.print(f"{each:8} {read_recipe(each)['about']}")
