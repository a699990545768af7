"""The map of the entities: like rows lie together, the same seed gives the same map, and a run is not disturbed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedlu.errors import InputError
from fedlu.results import maps, runs
from fedlu.results.prediction import load


def test_what_is_alike_lies_together(random: np.random.Generator) -> None:
    """Three clouds far apart: the nearest points in the plane are of the same cloud."""
    cloud = np.repeat(np.arange(3), 60)
    rows = (10 * random.normal(size=(3, 16))[cloud] + random.normal(size=(180, 16))).astype(np.float32)
    xy = maps.layout(rows, seed=1)
    apart = np.linalg.norm(xy[:, None] - xy[None], axis=-1) + 1e9 * np.eye(len(xy))
    assert (cloud[apart.argmin(axis=1)] == cloud).mean() > 0.97
    assert np.array_equal(xy, maps.layout(rows, seed=1))
    assert not np.array_equal(xy, maps.layout(rows, seed=2))


@pytest.mark.parametrize("points", [1, 4, 5, 9])
def test_few_points_have_a_map_too(points: int, random: np.random.Generator) -> None:
    xy = maps.layout(random.normal(size=(points, 3)).astype(np.float32))
    assert xy.shape == (points, 2)
    assert np.isfinite(xy).all()


def test_it_is_kept_and_found_again(hostile_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    shutil.copytree(hostile_run, folder, ignore=shutil.ignore_patterns("cache"))
    run = load(folder)
    first = maps.entity_map(run)
    assert set(first.clients) == set(run.clients)
    assert (
        len(first.client) == first.entities == sum(len(desk.graph.vocabulary.entities) for desk in run.desks.values())
    )
    (kept,) = (folder / "cache").iterdir()
    for label in first.labels:
        assert label.encode() not in kept.read_bytes()

    def refuse(*_: object) -> None:
        raise AssertionError("laid out again")

    with monkeypatch.context() as patched:
        patched.setattr(maps, "layout", refuse)
        assert np.array_equal(maps.entity_map(load(folder)).xy, first.xy)
    kept.write_bytes(kept.read_bytes()[:-7])  # damaged: it is made anew
    assert np.array_equal(maps.entity_map(run).xy, first.xy)
    assert runs.evaluate(folder) == runs.read_metrics(folder)["test"]  # and the run is as good as before


def test_of_too_many_some_are_drawn(hostile_run: Path) -> None:
    run = load(hostile_run)
    some = maps.entity_map(run, most=8, seed=3)
    assert len(some.client) == len(some.labels) == 8 < some.entities
    names = [run.desk(client).graph.vocabulary.entities for client in run.clients]
    for client, entity, label in zip(some.client, some.entity, some.labels, strict=True):
        assert names[client][entity] == label
    with pytest.raises(InputError, match="no view"):
        maps.entity_map(run, view="sideways")


def test_packing_is_two_bytes_a_number(hostile_run: Path) -> None:
    import base64

    found = maps.entity_map(load(hostile_run))
    mine = found.client == 1
    unpacked = np.frombuffer(base64.b64decode(found.packed(mine)), dtype="<u2").reshape(-1, 2)
    assert np.array_equal(unpacked, found.xy[mine])
    assert found.xy.max() == maps.GRID
