"""`fedlu partition` and `fedlu describe`: from a graph to a federation, and a look at it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import fedlu
from fedlu.display import notes, screen, show_statistics, working


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
