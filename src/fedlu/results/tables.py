"""Tables under names, as one file: what `fedlu export` writes and `fedlu learn --start-from` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

import fedlu
from fedlu.embedding.kernels import Floats
from fedlu.errors import InputError


@dataclass(frozen=True)
class Shape:
    """What scores are made of besides numbers: enough to make the model again."""

    model: str
    dimension: int
    margin: float
    reciprocal: bool
    entities: tuple[str, ...]
    relations: tuple[str, ...]
    """Names, without the inverses that a reciprocal model has rows for, too."""


@dataclass(frozen=True)
class Tables:
    """One model of one client: rows under names."""

    shape: Shape
    entities: Floats
    relations: Floats
    own: Mapping[str, Floats] = field(default_factory=dict)
    """What a model of PyKEEN's learned besides rows."""


def write_tables(tables: Tables, path: Path) -> None:
    arrays = {"entities": tables.entities, "relations": tables.relations}
    own = {f"own.{name}": array for name, array in tables.own.items()}
    about = {"fedlu": fedlu.__version__, "about": json.dumps(asdict(tables.shape), ensure_ascii=False)}
    save_file({name: np.ascontiguousarray(each) for name, each in {**arrays, **own}.items()}, path, metadata=about)


def read_tables(path: str | Path) -> Tables:
    """A file of `write_tables`; what is in it is checked, since it may come from anywhere."""
    path = Path(path)
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["about"])
        about = {**about, **{key: tuple(about[key]) for key in ("entities", "relations")}}
        shape, arrays = Shape(**about), load_file(path)
        entities, relations = arrays["entities"], arrays["relations"]
    except FileNotFoundError:
        raise InputError("no such file", where=path, remedy="make one with `fedlu export` or import-pykeen") from None
    except (SafetensorError, KeyError, TypeError, ValueError) as bad:
        what = f"not tables of fedlu ({type(bad).__name__}: {bad})"
        raise InputError(what, where=path, remedy="make one with `fedlu export --format safetensors`") from None
    wanted = (len(shape.entities), len(shape.relations) * (2 if shape.reciprocal else 1))
    if (len(entities), len(relations)) != wanted or not all(np.isfinite(each).all() for each in (entities, relations)):
        raise InputError("names and rows do not fit, or are not finite", where=path, remedy="make it again")
    own = {name.removeprefix("own."): array for name, array in arrays.items() if name.startswith("own.")}
    return Tables(shape, entities.astype(np.float32), relations.astype(np.float32), own)
