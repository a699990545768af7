"""Where triples come from: TSV, TXT and CSV files (plain or .gz), RDF files, and PyKEEN's datasets by name.

Every reader gives a polars frame of labels with the columns head, relation, tail.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import importlib.util
import io
import logging
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fedlu.errors import InputError, UnavailableError
from fedlu.graph.triples import COLUMNS

logger = logging.getLogger(__name__)

SEPARATORS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
RDF_FORMATS = {".nt": "N_TRIPLES", ".ttl": "TURTLE"}
EMBEDDED_DATASETS = ("kinships", "nations", "umls")
"""PyKEEN's wheel carries these, so they need no network."""

_HEADERS = ({"head", "subject"}, {"relation", "predicate"}, {"tail", "object"})


@dataclass(frozen=True)
class LabelledTriples:
    """Triples by name, as a source holds them."""

    frame: pl.DataFrame
    name: str
    skipped_literals: int = 0
    """RDF only: triples whose object is a literal, or not a plain node, which link prediction cannot use."""


def read(source: str | Path) -> LabelledTriples:
    """Read a file, or a PyKEEN dataset by its name (its splits taken together)."""
    path = Path(source)
    if path.is_dir() and str(source) not in EMBEDDED_DATASETS:
        raise InputError("is a folder", where=path, remedy="give a file of triples or the name of a dataset")
    if path.is_file():
        return read_file(path)
    if path.suffix or len(path.parts) > 1:
        known = ", ".join([*SEPARATORS, *RDF_FORMATS])
        raise InputError("no such file", where=path, remedy=f"give a file ({known}) or the name of a PyKEEN dataset")
    return read_dataset(str(source))


def read_file(path: Path) -> LabelledTriples:
    kind = _kind(path)
    data = _contents(path)
    if not data[:100].strip() and not data.strip():  # whole copies of a large file are spared
        raise InputError("the file is empty", where=path, remedy="expected one triple a line: head, relation, tail")
    if kind in SEPARATORS:
        if data.endswith((b"\n\n", b"\n\r\n")):
            data = data.rstrip(b"\r\n")
        frame = _read_columns(data, path, SEPARATORS[kind])
        if kind != ".txt":  # federations are saved as .txt, and there every line is a triple
            frame = _without_header(frame, path)
        return LabelledTriples(frame, name=path.name)
    return _read_rdf(data, path, RDF_FORMATS[kind])


def line_of(path: Path, triple: tuple[str, str, str]) -> int | None:
    """The number of the first line of a TSV or CSV file that holds this triple, for error messages; None if unsure."""
    for number, row in _rows(_contents(path), SEPARATORS[_kind(path)]):
        if tuple(row) == triple:
            return number
    return None


def _kind(path: Path) -> str:
    suffix = Path(path.stem).suffix if path.suffix.lower() == ".gz" else path.suffix
    if suffix.lower() not in SEPARATORS | RDF_FORMATS:
        known = ", ".join([*SEPARATORS, *RDF_FORMATS])
        raise InputError(f"unknown kind of file {suffix!r}", where=path, remedy=f"known are {known}, plain or .gz")
    return suffix.lower()


def _contents(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as bad:
        raise InputError(f"not a whole gzip file ({bad})", where=path, remedy="compress it again") from bad
    except OSError as bad:
        raise InputError(
            f"cannot be read ({bad.strerror})", where=path, remedy="check the path and its rights"
        ) from bad


# --- columns -----------------------------------------------------------------------------------------------------


def _read_columns(data: bytes, path: Path, separator: str) -> pl.DataFrame:
    """The fast path parses by columns; only a file that fails is read again line by line, to name the bad one."""
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            separator=separator,
            quote_char='"' if separator == "," else None,
            schema=dict.fromkeys(COLUMNS, pl.String),
        )
    except pl.exceptions.PolarsError:
        remedy = "expected one triple a line: head, relation, tail"
        raise _first_fault(data, path, separator) or InputError("cannot be parsed", where=path, remedy=remedy) from None
    odd = pl.all().is_null() | (pl.all() == "")
    if separator == "," or b"\r" in data:
        odd |= pl.all().str.contains(r"[\t\r\n]")
    if frame.select(pl.any_horizontal(odd).any()).item():
        fault = _first_fault(data, path, separator)
        if fault:
            raise fault
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines, which are no fault
    return frame


def _without_header(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    if not all(str(cell).lower() in names for cell, names in zip(frame.row(0), _HEADERS, strict=True)):
        return frame
    if len(frame) == 1:
        raise InputError("no triples, only a header", where=path, remedy="expected one triple a line")
    return frame.slice(1)


def _rows(data: bytes, separator: str) -> list[tuple[int, list[str]]]:
    """Every row with the number of its first line, blank lines left out; slow, and only used to explain a fault."""
    text = data.decode("utf-8-sig")
    if separator != ",":
        lines = enumerate((line.removesuffix("\r") for line in text.split("\n")), start=1)
        return [(number, line.split(separator)) for number, line in lines if line]
    csv.field_size_limit(len(data) + 1)
    reader, rows, number = csv.reader(io.StringIO(text, newline="")), [], 1
    for row in reader:
        if row:
            rows.append((number, row))
        number = reader.line_num + 1
    return rows


def _first_fault(data: bytes, path: Path, separator: str) -> InputError | None:
    """What is wrong with the first bad line, if any is."""
    try:
        rows = _rows(data, separator)
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        return InputError(
            f"byte 0x{data[bad.start]:02x} is not UTF-8", where=path, line=line, remedy="save the file as UTF-8"
        )
    except csv.Error as bad:
        return InputError(f"not a CSV file ({bad})", where=path, remedy="check its quotes")
    name = "commas" if separator == "," else "tabs"
    for number, row in rows:
        if len(row) != 3:
            what = f"{len(row)} column{'s' * (len(row) != 1)}, expected 3 (head, relation, tail)"
            return InputError(what, where=path, line=number, remedy=f"separate the columns by {name}")
        if "" in row:
            what = f"the {COLUMNS[row.index('')]} is empty"
            return InputError(what, where=path, line=number, remedy="name it or remove the line")
        if any(set(cell) & set("\t\r\n") for cell in row):
            what = "a label holds a tab or a line break"
            return InputError(what, where=path, line=number, remedy="replace it by a space")
    return None


# --- RDF ---------------------------------------------------------------------------------------------------------


def _read_rdf(data: bytes, path: Path, rdf_format: str) -> LabelledTriples:
    try:
        import pyoxigraph
    except ImportError:
        raise UnavailableError(
            "RDF needs the package pyoxigraph", where=path, remedy="pip install 'fedlu[rdf]'"
        ) from None
    node = (pyoxigraph.NamedNode, pyoxigraph.BlankNode)
    blanks: dict[str, str] = {}  # parsers name blank nodes at random; we number them as they come

    def label(term: pyoxigraph.NamedNode | pyoxigraph.BlankNode) -> str:
        if isinstance(term, pyoxigraph.NamedNode):
            return term.value
        return blanks.setdefault(term.value, f"_:b{len(blanks)}")

    heads, relations, tails, skipped = [], [], [], 0
    try:
        for quad in pyoxigraph.parse(data, getattr(pyoxigraph.RdfFormat, rdf_format)):
            if isinstance(quad.subject, node) and isinstance(quad.object, node):
                heads.append(label(quad.subject))
                relations.append(quad.predicate.value)
                tails.append(label(quad.object))
            else:
                skipped += 1
    except SyntaxError as bad:
        what = str(bad.msg).split(": ", 1)[-1]
        raise InputError(what, where=path, line=bad.lineno, remedy="correct the RDF syntax there") from None
    if not heads:
        raise InputError(
            f"no triples between nodes ({skipped} with literals)",
            where=path,
            remedy="links between entities are needed",
        )
    frame = pl.DataFrame(dict(zip(COLUMNS, (heads, relations, tails), strict=True)))
    logger.info("%s: %d triples with literals skipped", path, skipped)
    return LabelledTriples(frame, name=path.name, skipped_literals=skipped)


# --- PyKEEN's datasets -------------------------------------------------------------------------------------------


def read_dataset(name: str) -> LabelledTriples:
    """A PyKEEN dataset by name; nations, kinships and umls are read from the installed wheel, others are downloaded."""
    wanted = "".join(c for c in name.lower() if c.isalnum())
    if wanted in EMBEDDED_DATASETS:
        spec = importlib.util.find_spec("pykeen")  # found, not imported: PyKEEN takes seconds to load
        if spec is None or not spec.submodule_search_locations:
            raise UnavailableError("PyKEEN is not installed", where=name, remedy="pip install pykeen")
        folder = Path(spec.submodule_search_locations[0], "datasets", wanted)
        frames = [read_file(folder / f"{split}.txt").frame for split in ("train", "valid", "test")]
        return LabelledTriples(pl.concat(frames), name=wanted)
    return _download(name, wanted)


def _download(name: str, wanted: str) -> LabelledTriples:
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # PyKEEN's progress bars would litter a log
    from pykeen.datasets import dataset_resolver, get_dataset

    known = sorted(dataset_resolver.lookup_dict)
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=3) or list(EMBEDDED_DATASETS)
        raise InputError(f"no file and no dataset named {name!r}", remedy=f"did you mean {' or '.join(near)}?")
    try:
        dataset = get_dataset(dataset=wanted)
        factories = [dataset.training, dataset.validation, dataset.testing]
        rows = np.concatenate([factory.triples for factory in factories if factory is not None])  # (n, 3) labels
    except Exception as bad:  # PyKEEN raises whatever its downloaders raise
        reason = str(bad).splitlines()[0] if str(bad) else type(bad).__name__
        remedy = f"check the network, or use a dataset that needs none: {', '.join(EMBEDDED_DATASETS)}"
        raise UnavailableError(f"cannot be loaded ({reason[:120]})", where=name, remedy=remedy) from bad
    frame = pl.DataFrame({column: rows[:, place].astype(object) for place, column in enumerate(COLUMNS)})
    return LabelledTriples(frame.cast(pl.String), name=wanted)
