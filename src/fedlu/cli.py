"""The command line: options, progress, tables and exit codes. The work itself is done elsewhere, and imported late
so that `fedlu --help` answers at once.

Exit codes: 0 done; 1 failed; 2 wrong input or options; 3 something outside is missing; 4 unusable scores; 130 Ctrl-C.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fedlu
from fedlu.display import Board, notes, screen, show_metrics, show_statistics, working
from fedlu.errors import FedluError, InputError

if TYPE_CHECKING:
    pass

app = typer.Typer(
    name="fedlu",
    help="Federated knowledge-graph embeddings that learn together and forget on request.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def main_options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        screen.print(f"fedlu {fedlu.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        screen.print(context.get_help())


@app.command()
def partition(
    source: Annotated[str, typer.Argument(help="A file of triples, or the name of a PyKEEN dataset.")] = "umls",
    clients: Annotated[int, typer.Option("--clients", "-k", help="How many clients.")] = 3,
    by: Annotated[
        str, typer.Option(help="How relations are dealt out: **cluster** (alike together) or **random** (evenly).")
    ] = "cluster",
    seed: Annotated[int, typer.Option(help="Same seed, same federation, byte for byte.")] = 0,
    forget: Annotated[float, typer.Option(help="Also sample this share of train as forget.txt, e.g. 0.01.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="The folder to write.  [default: SOURCE-by-K]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a federation that is already there.")] = False,
) -> None:
    """Turn a knowledge graph into a federation of clients.

    Relations are dealt out to the clients, each with its triples; entities are shared by whoever mentions them. Every
    client's triples are split 8:1:1 into train, valid and test, keeping every entity and relation in train if possible.

    SOURCE is a .tsv, .txt, .csv, .nt or .ttl file, plain or .gz, or a dataset: umls, kinships and nations come with
    fedlu; fb15k237 and the other datasets of PyKEEN are downloaded.

    Examples:

    `fedlu partition umls --clients 3 --out umls-c3`

    `fedlu partition my-graph.tsv.gz --clients 5 --by random --seed 7 --forget 0.01 --out my-r5`
    """
    from fedlu import graph
    from fedlu.graph.federation import check_target

    target = out or Path(f"{Path(source).name.split('.')[0]}-{by}-{clients}")
    check_target(target, replace=force)
    with working(f"reading {source}"):
        triples = graph.read(source)
    with working("partitioning"):
        federation = graph.partition(triples, clients=clients, by=by, seed=seed, forget=forget)
    provenance = {"source": triples.name, "clients": clients, "by": by, "seed": seed, "forget": forget}
    graph.save(federation, target, {**provenance, "fedlu": fedlu.__version__}, replace=force)
    if triples.skipped_literals:
        notes.print(f"{triples.skipped_literals:,} triples with literals were skipped")
    sizes = ", ".join(f"{len(client.known):,}" for client in federation.clients)
    screen.print(f"wrote {target}: {clients} clients by {by}, {sizes} triples; next: fedlu describe {target}")


@app.command()
def describe(
    federations: Annotated[list[Path], typer.Argument(metavar="DIR...", help="One or more federations.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: an object, or a list of them for several.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw the degree distributions (.png, .svg, .pdf).")] = None,
) -> None:
    """Show how large the clients of a federation are, and how unlike each other.

    Degrees and clustering coefficients are over all splits of a client; overlap is the number of entities that a pair
    of clients both hold. Warnings name entities that only valid or test mention, and triples in two splits; if a
    triple is in both train and test, the exit code is 2, since no command would train on such data.

    Examples:

    `fedlu describe umls-c3`

    `fedlu describe C3 R3 --plot degrees.png`
    """
    from fedlu import graph
    from fedlu.graph.federation import refuse_leaks

    if plot is not None:
        from fedlu.results import figures

        figures.check_target(plot)
    loaded = []
    for folder in federations:
        with working(f"reading {folder}"):
            loaded.append(graph.load(folder, allow_leaks=True))
    with working("counting"):
        statistics = [graph.describe(federation) for federation in loaded]
    if plot is not None:
        with working("drawing"):
            figures.save(figures.degree_distributions(statistics), plot)
    if as_json:
        found = [asdict(each) for each in statistics]
        sys.stdout.write(json.dumps(found[0] if len(found) == 1 else found, indent=2, ensure_ascii=False) + "\n")
    else:
        for each in statistics:
            show_statistics(each)
        if plot is not None:
            screen.print(f"wrote {plot}")
    for folder, federation in zip(federations, loaded, strict=True):
        refuse_leaks(folder, federation.clients)


@app.command()
def learn(
    federation: Annotated[Path, typer.Argument(metavar="FEDERATION", help="A folder of clients.")],
    out: Annotated[Path, typer.Option(help="The folder of the run.")],
    method: Annotated[str, typer.Option(help="independent, centralized, fede, fedprox, fedec or fedlu.")] = "fedlu",
    model: Annotated[
        str, typer.Option(help="TransE, TransE-L2, DistMult, ComplEx, RotatE, or pykeen:NAME.")
    ] = "TransE",
    recipe: Annotated[str, typer.Option(help="fast, paper or strong; `fedlu recipes` shows them.")] = "fast",
    seed: Annotated[int, typer.Option(help="Same seed and data, same embeddings.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard events to the run.")
    ] = False,
) -> None:
    """Train embeddings over a federation; no triple leaves its client.

    The run folder keeps settings, an event per round, a checkpoint and the metrics. A run that was stopped, even
    killed, goes on with --resume and ends with the same embeddings, bit for bit.

    Examples:

    `fedlu learn umls-r3 --out run`

    `fedlu learn umls-r3 --method fede --model ComplEx --set rounds=20 --set learning_rate=0.01 --out run-fede`
    """
    from fedlu.config import parse_overrides
    from fedlu.results import runs
    from fedlu.results.tensorboard import tensorboard_watch

    overrides = {**parse_overrides(settings or []), "seed": seed}
    with Board() as board:
        watchers = [board.show, *([tensorboard_watch(out)] if tensorboard else [])]
        metrics = runs.learn(
            federation,
            method=method,
            model=model,
            recipe=recipe,
            out=out,
            resume=resume,
            watch=lambda event, progress_: [watch(event, progress_) for watch in watchers],
            **overrides,
        )
    show_metrics(metrics["test"], f"{out}: test, after {metrics['rounds']} rounds")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")],
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, by view, in fractions.")] = False,
) -> None:
    """Rank a split with the best tables of a run.

    Example:

    `fedlu evaluate run --split valid --json`
    """
    from fedlu.results import runs

    with working("ranking"):
        found = runs.evaluate(run, split)
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    else:
        show_metrics(found, f"{run}: {split}")


@app.command()
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


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every refusal is one line on stderr and an exit code, never a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that nothing half-written stays
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no reason to fail
    try:
        code: Any = app(args=arguments, prog_name="fedlu", standalone_mode=False)
        sys.stdout.flush()
        if code == 130:
            raise KeyboardInterrupt
    except FedluError as refusal:
        fail(str(refusal), refusal.exit_code)
    except typer.TyperException as usage:  # a wrong option or argument
        context = getattr(usage, "ctx", None)
        command = "fedlu" if context is None else context.command_path
        message = " ".join(getattr(usage, "format_message", usage.__str__)().split()).rstrip(".")
        fail(f"{message}; see `{command} --help`", InputError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted", 130)
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError as trouble:
        fail(f"not enough memory ({' '.join(str(trouble).split())[:120]}); give smaller settings", 1)
    except OSError as trouble:
        remedy = "check the path, its rights and the space left"
        fail(f"{trouble.filename or 'system'}: {trouble.strerror or trouble}; {remedy}", InputError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str, code: int) -> None:
    sys.stderr.write(f"fedlu: {' '.join(message.splitlines())}\n")
    sys.exit(code)
