"""A map of the entities: every client's rows laid out in the plane by t-SNE, once, and kept in the run's folder.

The rows are first reduced to their principal components, then laid out by openTSNE, whose forces between distant points
are interpolated: its time grows with the number of points, not with its square. One thread and one seed: the same map
again, wherever the arithmetic is the same.
"""

from __future__ import annotations

import base64
import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.kernels import Floats
from fedlu.results.prediction import LearnedRun
from fedlu.seeds import generator

MOST_POINTS = 14_541
"""As many as FB15k-237 has entities; of more, some are drawn by lot, so that a map takes a minute at most."""
COMPONENTS = 50
PERPLEXITY = 30
GRID = 65535
"""Coordinates are kept as 16-bit numbers: finer than any screen."""


@dataclass(frozen=True)
class EntityMap:
    view: str
    clients: tuple[str, ...]
    entities: int
    """How many there are in all, an entity counted once for each client that holds it."""
    client: NDArray[np.int32]  # (points,): number of the client
    entity: NDArray[np.int32]  # (points,): the entity's id at that client
    xy: NDArray[np.uint16]  # (points, 2)
    labels: tuple[str, ...] = field(repr=False)  # (points,)

    def packed(self, chosen: NDArray[np.bool_]) -> str:
        """Some points as base64 of x, y, x, y, ... in two bytes each, the lower first."""
        return base64.b64encode(self.xy[chosen].astype("<u2").tobytes()).decode("ascii")


def entity_map(run: LearnedRun, *, view: str | None = None, seed: int = 0, most: int = MOST_POINTS) -> EntityMap:
    """The map of a run's entities by their local rows, or global where there are no local ones."""
    view = view or ("local" if "local" in run.views else "global")
    run.check_view(view)
    tables = [run.desk(client).best[view].entities for client in run.clients]
    sizes = [len(table) for table in tables]
    client = np.repeat(np.arange(len(tables), dtype=np.int32), sizes)
    entity = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    if len(client) > most:
        chosen = np.sort(generator(seed, "map").choice(len(client), size=most, replace=False))
        client, entity = client[chosen], entity[chosen]
    rows = np.concatenate([table[entity[client == number]] for number, table in enumerate(tables)])
    names = [run.desk(each).graph.vocabulary.entities for each in run.clients]
    labels = tuple(names[c][e] for c, e in zip(client.tolist(), entity.tolist(), strict=True))
    xy = _kept(run.folder / "cache", rows, view, seed)
    return EntityMap(view, run.clients, sum(sizes), client, entity, xy, labels)


def _kept(folder: Path, rows: Floats, view: str, seed: int) -> NDArray[np.uint16]:
    """The layout of these very rows, from the folder if it is there; it holds coordinates only, no name."""
    print_of = hashlib.sha256(np.ascontiguousarray(rows).tobytes() + f"{rows.shape} {seed}".encode()).hexdigest()
    path = folder / f"map-{view}-{print_of[:16]}.npy"
    try:
        found = np.load(path, allow_pickle=False)
        if found.shape == (len(rows), 2) and found.dtype == np.uint16:
            kept: NDArray[np.uint16] = found
            return kept
    except (OSError, ValueError, EOFError):
        pass  # not there, or not whole
    xy = _on_grid(layout(rows, seed))
    _keep(path, xy)
    return xy


def _keep(path: Path, xy: NDArray[np.uint16]) -> None:
    """A run that cannot be written to is mapped again each time."""
    content = io.BytesIO()
    np.save(content, xy, allow_pickle=False)
    scratch = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(exist_ok=True)
        for old in path.parent.glob(f"{path.name.rsplit('-', 1)[0]}-*.npy"):
            old.unlink()  # of rows that are no more
        scratch.write_bytes(content.getvalue())
        scratch.replace(path)
    except OSError:
        return


def layout(rows: Floats, seed: int = 0) -> NDArray[np.float64]:
    """(points, 2): by t-SNE, in any unit."""
    from openTSNE import TSNE  # takes a second to import
    from sklearn.decomposition import PCA

    if len(rows) < 5:  # too few for neighbourhoods
        return np.stack([np.arange(len(rows)), np.zeros(len(rows))], axis=1)
    number = int(generator(seed, "t-SNE").integers(2**31))
    rows = rows.astype(np.float64)
    width = min(COMPONENTS, *rows.shape)
    reduced = PCA(width, svd_solver="randomized", random_state=number).fit_transform(rows)
    options: dict[str, Any] = {"neighbors": "exact"} if len(rows) < 1000 else {"neighbors": "annoy"}
    perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
    # early iterations find the clusters, later ones their shapes: fewer than usual already do
    model = TSNE(perplexity=perplexity, random_state=number, n_jobs=1, n_iter=300, **options)
    found: NDArray[np.float64] = np.asarray(model.fit(reduced), dtype=np.float64)
    return found


def _on_grid(xy: NDArray[np.float64]) -> NDArray[np.uint16]:
    low, high = xy.min(axis=0), xy.max(axis=0)
    scale = GRID / max(float((high - low).max()), 1e-12)
    found: NDArray[np.uint16] = np.rint((xy - low) * scale).astype(np.uint16)
    return found
