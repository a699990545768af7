"""Tables that leave a run for other tools, and tables of other tools for a run to start from.

    safetensors   one file: tables and names, which `fedlu learn --start-from` reads as well
    pykeen        a folder: the weights of a PyKEEN model that scores alike, and what `load_pykeen` needs to make it
    tsv           a folder: entities.tsv and relations.tsv, a name and its numbers a line
    word2vec      one text file of the entities, as gensim and others read it

No triple is in any of them. Nothing is pickled.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

import fedlu
from fedlu.embedding.kernels import Floats
from fedlu.embedding.models import PYKEEN
from fedlu.embedding.scorers import MODELS
from fedlu.errors import InputError
from fedlu.results.prediction import LearnedRun, load
from fedlu.results.tables import Shape, Tables, write_tables

WEIGHTS, ABOUT = "model.safetensors", "model.json"


def tables_of(run: LearnedRun, client: str, view: str | None = None) -> Tables:
    """The best tables of a client. A blend is one model, too: its rows are the local ones, continued by the global."""
    desk, view, settings = run.desk(client), run.check_view(view), run.settings
    labels, model = desk.graph.vocabulary, settings.model
    shape = Shape(model, settings.dimension, settings.margin, settings.reciprocal, labels.entities, labels.relations)
    if view != "blend":
        best = desk.best[view]
        return Tables(shape, best.entities, best.relations, best.model)
    if model not in MODELS or model == "TransE-L2":
        remedy = "export it with --view local or --view global"
        raise InputError(f"a blend of {model} is not a {model}", where=run.folder, remedy=remedy)
    both = [desk.best[each] for each in ("local", "global")]
    is_complex = MODELS[model].entity_width == 2
    halves = MODELS[model].relation_width == 2
    return Tables(
        Shape(model, 2 * shape.dimension, 2 * shape.margin, shape.reciprocal, shape.entities, shape.relations),
        _side_by_side([each.entities for each in both], is_complex),
        _side_by_side([each.relations for each in both], halves),
    )


def _side_by_side(tables: list[Floats], is_complex: bool) -> Floats:
    """Rows one after another; of complex ones, all real parts before all imaginary ones."""
    parts = [np.split(table, 2, axis=1) if is_complex else [table] for table in tables]
    return np.concatenate([part for place in zip(*parts, strict=True) for part in place], axis=1)


# --- out ----------------------------------------------------------------------------------------------------------


def export(
    run: LearnedRun | str | Path, client: str, out: str | Path, *, kind: str = "safetensors", view: str | None = None
) -> Path:
    """Write a client's tables as safetensors, pykeen, tsv or word2vec, whole or not at all."""
    if kind not in FORMATS:
        raise InputError(f"no format {kind!r}", remedy=f"choose one of {', '.join(FORMATS)}")
    tables = tables_of(run if isinstance(run, LearnedRun) else load(run), client, view)
    return _write(tables, Path(out), FORMATS[kind])


def save_tables(tables: Tables, out: str | Path) -> Path:
    """One file, for `fedlu learn --start-from`."""
    return _write(tables, Path(out), write_tables)


def _write(tables: Tables, target: Path, write: Callable[[Tables, Path], None]) -> Path:
    if target.exists():
        raise InputError("is there already", where=target, remedy="choose another --out")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.part")
    _remove(scratch)
    try:
        write(tables, scratch)
        scratch.replace(target)
    finally:
        _remove(scratch)
    return target


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_pykeen(tables: Tables, folder: Path) -> None:
    from fedlu.embedding.pykeen_exchange import weights_of

    shape = tables.shape
    state = weights_of(
        shape.model,
        dimension=shape.dimension,
        entities=tables.entities,
        relations=tables.relations,
        reciprocal=shape.reciprocal,
        own=tables.own,
    )
    folder.mkdir()
    save_file({name: np.ascontiguousarray(each) for name, each in state.items()}, folder / WEIGHTS)
    about = {"fedlu": fedlu.__version__, **asdict(shape)}
    (folder / ABOUT).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tsv(tables: Tables, folder: Path) -> None:
    folder.mkdir()
    names = tables.shape.relations
    both = (*names, *(f"{name} (inverse)" for name in names)) if tables.shape.reciprocal else names
    for file, labels, rows in (
        ("entities", tables.shape.entities, tables.entities),
        ("relations", both, tables.relations),
    ):
        _frame(labels, rows).write_csv(folder / f"{file}.tsv", separator="\t", include_header=False)


def write_word2vec(tables: Tables, path: Path) -> None:
    """A line with the size, then a name and its numbers a line; as blanks separate, those of a name become `_`."""
    words = ["_".join(label.split()) for label in tables.shape.entities]
    if len(set(words)) < len(words):
        twice = next(word for place, word in enumerate(words) if word in words[:place])
        raise InputError(f"two entities would be {twice!r} without blanks", remedy="export them as tsv")
    with path.open("wb") as file:
        file.write(f"{len(words)} {tables.entities.shape[1]}\n".encode())
        _frame(words, tables.entities).write_csv(file, separator=" ", include_header=False, quote_style="never")


def _frame(labels: tuple[str, ...] | list[str], rows: Floats) -> pl.DataFrame:
    numbers = pl.DataFrame(rows, schema=[f"{place}" for place in range(rows.shape[1])])
    return numbers.insert_column(0, pl.Series("label", labels, dtype=pl.String))


FORMATS: dict[str, Callable[[Tables, Path], None]] = {
    "safetensors": write_tables,
    "pykeen": write_pykeen,
    "tsv": write_tsv,
    "word2vec": write_word2vec,
}


# --- in -----------------------------------------------------------------------------------------------------------


def load_pykeen(folder: str | Path) -> Any:
    """The PyKEEN model of a folder that `fedlu export --format pykeen` wrote; ids are places in `labels_of(folder)`."""
    from fedlu.embedding.pykeen_exchange import empty_model, fill

    folder, shape = Path(folder), labels_of(folder)
    model = empty_model(
        shape.model,
        dimension=shape.dimension,
        margin=shape.margin,
        entities=len(shape.entities),
        relations=len(shape.relations),
        reciprocal=shape.reciprocal,
    )
    try:
        return fill(model, load_file(folder / WEIGHTS))
    except (SafetensorError, RuntimeError, KeyError, FileNotFoundError) as bad:
        raise InputError(f"the weights do not fit ({bad})", where=folder / WEIGHTS, remedy="export it again") from None


def labels_of(folder: str | Path) -> Shape:
    """Names and shape of an exported PyKEEN model."""
    path = Path(folder) / ABOUT
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        about = {
            key: tuple(value) if isinstance(value, list) else value for key, value in about.items() if key != "fedlu"
        }
        return Shape(**about)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            "no exported model", where=folder, remedy="make one with `fedlu export --format pykeen`"
        ) from None
    except (ValueError, TypeError) as bad:
        raise InputError(f"not an exported model ({bad})", where=path, remedy="export it again") from None


def import_pykeen(
    weights: str | Path, labels: str | Path | None = None, *, model: str = "TransE", reciprocal: bool = False
) -> Tables:
    """Tables from a trained PyKEEN model, to start from.

    `weights` is a `state_dict`, as torch or safetensors save it, and `labels` the folder in which PyKEEN keeps names
    (`training_triples` of a saved pipeline); or `weights` is a folder of `fedlu export --format pykeen`: it has both.
    """
    from fedlu.embedding.pykeen_exchange import read_weights, rows_of

    path, margin = Path(weights), 0.0
    if path.is_dir() and (path / ABOUT).is_file():
        shape = labels_of(path)
        model, reciprocal, margin = shape.model, shape.reciprocal, shape.margin
        entities_, relations_, path = shape.entities, shape.relations, path / WEIGHTS
    elif labels is None:
        raise InputError("weights have no names", where=path, remedy="give --labels, PyKEEN's training_triples folder")
    else:
        entities_, relations_ = (
            _pykeen_names(Path(labels) / f"{kind}_to_id.tsv.gz") for kind in ("entity", "relation")
        )
    if model.startswith(PYKEEN):
        raise InputError(f"cannot import {model}", remedy=f"only {', '.join(MODELS)} can be imported")
    found = _read_safetensors(path) if path.suffix == ".safetensors" else read_weights(path)
    entities, relations = rows_of(model, found, reciprocal=reciprocal, where=path)
    if (len(entities), len(relations)) != (len(entities_), len(relations_) * (2 if reciprocal else 1)):
        what = f"{len(entities):,} and {len(relations):,} rows for {len(entities_):,} and {len(relations_):,} names"
        remedy = "check --labels, and say --reciprocal if it was trained with inverse triples"
        raise InputError(what, where=path, remedy=remedy)
    dimension = entities.shape[1] // MODELS[model].entity_width
    return Tables(Shape(model, dimension, margin, reciprocal, entities_, relations_), entities, relations)


def _read_safetensors(path: Path) -> dict[str, Floats]:
    try:
        found: dict[str, Floats] = load_file(path)
    except FileNotFoundError:
        raise InputError("no such file", where=path, remedy="give the weights of a PyKEEN model") from None
    except SafetensorError as bad:
        raise InputError(f"not a safetensors file ({bad})", where=path, remedy="save the model again") from None
    return found


def _pykeen_names(path: Path) -> tuple[str, ...]:
    """PyKEEN's file of names: columns id and label, under a header; ids from 0 on."""
    if not path.is_file():
        raise InputError("no such file", where=path, remedy="give the training_triples folder of a saved pipeline")
    try:
        frame = pl.read_csv(path, separator="\t", schema_overrides={"label": pl.String}).sort("id")
        if frame["id"].to_list() != list(range(len(frame))):
            raise ValueError("ids do not run from 0")
        return tuple(frame["label"].fill_null("").to_list())
    except (pl.exceptions.PolarsError, ValueError) as bad:
        reason = str(bad).splitlines()[0]
        raise InputError(f"not PyKEEN's names ({reason})", where=path, remedy="save the pipeline again") from None
