"""`fedlu reproduce` and `fedlu tune`: the paper's tables as commands, and settings found by trying."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedlu.display import Board, MatrixBoard, notes, screen, show_comparison

ALL_METHODS = "independent,centralized,fede,fedprox,fedec,fedlu"


def reproduce(
    table: Annotated[str, typer.Option(help="**link-prediction**, **unlearning** or **ablation**.")],
    federation: Annotated[Path, typer.Option(help="A folder of clients.")],
    out: Annotated[Path, typer.Option(help="The folder of the runs and tables; an old one is continued.")],
    models: Annotated[str, typer.Option(help="Which models, with commas between them.")] = "TransE,ComplEx,RotatE",
    methods: Annotated[
        str | None, typer.Option(help="Which methods, with commas; by default all, and of unlearning FedLU alone.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="fast, paper or strong, the same for every method.")] = "fast",
    seeds: Annotated[int, typer.Option(help="Repeat with this many seeds, for mean and deviation.")] = 1,
    budget: Annotated[
        str | None, typer.Option(help="Begin only what should end within this time: 90s, 60m, 2h.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of every cell.")
    ] = None,
    tuned: Annotated[
        list[Path] | None, typer.Option(help="The best.toml of a study of `fedlu tune`; may be repeated.")
    ] = None,
    paper: Annotated[
        str | None, typer.Option(help="Compare with the paper's C3, C5, C10, R3, R5 or R10; C3 and R3 are recognised.")
    ] = None,
    goal: Annotated[
        str, typer.Option(help="Of forgetting: suppress, as the paper, or indistinguishable.")
    ] = "suppress",
    target: Annotated[
        float | None, typer.Option(help="MRR in percent for the table of convergence; by default the paper's FedLU.")
    ] = None,
) -> None:
    """Run a table of the paper, cell by cell, and set our figures beside its own.

    Each cell is a run of its own; one that is done is never repeated, and what was stopped or killed goes on with the
    same command. At the end there are tables as Markdown, CSV and LaTeX, and what a given MRR cost each method.

    Examples:

    `fedlu reproduce --table link-prediction --federation C3 --out c3`

    `fedlu reproduce --table link-prediction --federation C3 --models TransE --seeds 3 --budget 60m --out c3`

    `fedlu reproduce --table ablation --federation C3 --models TransE --out c3`
    """
    from fedlu.config import parse_overrides
    from fedlu.results.matrix import Matrix
    from fedlu.results.reproduction import parse_budget, read_tuned
    from fedlu.results.reproduction import reproduce as carry_out

    matrix = Matrix(
        table=table,
        federation=federation,
        out=out,
        models=_listed(models),
        methods=_listed((ALL_METHODS if table == "link-prediction" else "fedlu") if methods is None else methods),
        seeds=seeds,
        recipe=recipe,
        overrides=parse_overrides(settings or []),
        tuned=read_tuned(tuned or [], recipe),
        goal=goal,
    )
    seconds = None if budget is None else parse_budget(budget)
    with MatrixBoard() as board:
        wished = None if target is None else target / 100
        done = carry_out(matrix, paper=paper, budget=seconds, target=wished, watch=board.show)
    show_comparison(done.comparison)
    for line in done.comparison.missing:
        notes.print(f"not there: {line}")
    screen.print("wrote " + ", ".join(str(path) for path in done.files))
    if any(state.what == "failed" for state in done.states.values()):
        raise typer.Exit(1)


def tune(
    federation: Annotated[Path, typer.Argument(metavar="FEDERATION", help="A folder of clients.")],
    out: Annotated[Path, typer.Option(help="The folder of the study; an old one is continued.")],
    method: Annotated[str, typer.Option(help="independent, centralized, fede, fedprox, fedec or fedlu.")] = "fedlu",
    model: Annotated[str, typer.Option(help="TransE, TransE-L2, DistMult, ComplEx or RotatE.")] = "TransE",
    trials: Annotated[int, typer.Option(help="How many trials the study has in the end.")] = 20,
    recipe: Annotated[str, typer.Option(help="What is not tuned: fast, paper or strong.")] = "fast",
    seed: Annotated[int, typer.Option(help="Same seed and data, same trials.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Hold a setting; it is not tuned then.")
    ] = None,
) -> None:
    """Search for settings, judged by valid MRR alone, over a space that is declared for each method and model.

    The first trial is the recipe as it is, the next three are random places, and then it is tried what a model of the
    trials so far (a Gaussian process) thinks is best, and no place twice. The study goes on where it was stopped, or
    gets more trials.
    Give the best.toml that it leaves to `fedlu reproduce --tuned`. It has what was tuned, not what --set held: so a
    study may be of a small dimension, and the table of the recipe's.

    Examples:

    `fedlu tune umls-r3 --method fede --model TransE --trials 30 --out study-fede`

    `fedlu tune umls-r3 --method fedlu --set rounds=20 --set dimension=64 --out study-fedlu`
    """
    from fedlu.config import parse_overrides
    from fedlu.results import tuning

    held = parse_overrides(settings or [])
    with Board() as board:
        study = tuning.tune(
            federation,
            out,
            method=method,
            model=model,
            trials=trials,
            recipe=recipe,
            seed=seed,
            overrides=held,
            watch=board.show,
        )
    for trial in study.trials:
        screen.print(f"trial {trial.number}: {trial.said}")
    if len(study.trials) < trials:
        screen.print("all of the space was tried: hold fewer settings with --set for more trials")
    screen.print(f"best: trial {study.best.number}, valid MRR {study.best.mrr:.4f}; wrote {out / 'best.toml'}")
    words = ["fedlu", "learn", str(federation), "--method", method, "--model", model, "--recipe", recipe]
    words += ["--seed", str(seed)] * bool(seed)
    for key, value in {**held, **study.best.settings}.items():
        words += ["--set", f"{key}={value}"]
    screen.print(shlex.join([*words, "--out", "RUN"]), soft_wrap=True)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
