"""`fedlu export` and `fedlu import-pykeen`: tables for other tools, and from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedlu.commands.predicting import VIEWS, clients_of_run
from fedlu.display import screen, working

FORMATS = ("safetensors", "pykeen", "tsv", "word2vec")


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")],
    client: Annotated[str, typer.Option(help="Whose tables.", autocompletion=clients_of_run)],
    out: Annotated[Path, typer.Option(help="The file or folder to write.")],
    kind: Annotated[
        str,
        typer.Option("--format", help="safetensors, pykeen, tsv or word2vec.", autocompletion=lambda: list(FORMATS)),
    ] = "safetensors",
    view: Annotated[
        str | None,
        typer.Option(help="local, global or blend.  [default: blend]", autocompletion=lambda: list(VIEWS)),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where the federation is now, if it was moved.")] = None,
) -> None:
    """Write a client's embeddings for other tools; no triple is in them, but every name is.

    **safetensors** is one file of tables and names, which `fedlu learn --start-from` reads, too. **pykeen** is a folder
    from which `fedlu.load_pykeen` makes a PyKEEN model that scores alike. **tsv** is a folder of two text files, and
    **word2vec** one text file of entities, which gensim reads. A blend comes as one model of twice the dimension.

    Examples:

    `fedlu export run --client client-0 --format pykeen --out model`

    `fedlu export run --client client-0 --view local --format word2vec --out entities.txt`
    """
    from fedlu.results import exchange
    from fedlu.results.prediction import load

    with working("reading the run"):
        learned = load(run, data)
    written = exchange.export(learned, client, out, kind=kind, view=view)
    screen.print(f"wrote {written}: the {learned.check_view(view)} tables of {client} as {kind}")


def import_pykeen(
    weights: Annotated[Path, typer.Argument(metavar="WEIGHTS", help="A saved state_dict (.pt or .safetensors).")],
    out: Annotated[Path, typer.Option(help="The file of tables to write.")],
    labels: Annotated[Path | None, typer.Option(help="PyKEEN's folder of names, training_triples.")] = None,
    model: Annotated[str, typer.Option(help="TransE, TransE-L2, DistMult, ComplEx or RotatE.")] = "TransE",
    reciprocal: Annotated[
        bool, typer.Option("--reciprocal", help="It was trained with create_inverse_triples.")
    ] = False,
) -> None:
    """Turn a trained PyKEEN model into tables that a run can start from.

    WEIGHTS holds tensors and nothing else: `torch.save(model.state_dict(), "weights.pt")`; a pickled model is refused,
    since it could run any code. The names come from the folder `training_triples` of a pipeline that PyKEEN saved. A
    folder made by `fedlu export --format pykeen` may stand for both. Give the result to `fedlu learn --start-from`.

    Examples:

    `fedlu import-pykeen weights.pt --labels saved/training_triples --model TransE --out tables.safetensors`

    `fedlu import-pykeen model --out tables.safetensors`
    """
    from fedlu.results import exchange

    with working("reading the weights"):
        tables = exchange.import_pykeen(weights, labels, model=model, reciprocal=reciprocal)
    exchange.save_tables(tables, out)
    shape = tables.shape
    settings = (
        f"--model {shape.model} --set dimension={shape.dimension} --set reciprocal={str(shape.reciprocal).lower()}"
    )
    screen.print(f"wrote {out}: {len(shape.entities):,} entities, {len(shape.relations):,} relations")
    screen.print(f"next: fedlu learn FEDERATION {settings} --start-from {out} --out RUN")
