"""Figures: what they show, not how they look (which a person judges)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from fedlu.errors import InputError
from fedlu.graph import describe, partition, read
from fedlu.results import figures


def test_one_panel_per_federation_one_line_per_client() -> None:
    found = [describe(partition(read("umls"), clients=3, by=by)) for by in ("cluster", "random")]
    figure = figures.degree_distributions(found)
    assert len(figure.axes) == 2
    for panel, federation in zip(figure.axes, found, strict=True):
        assert len(panel.lines) == 3
        assert federation.name in panel.get_title()
        labels = [line.get_label() for line in panel.lines]
        assert all(client.name in label for client, label in zip(federation.clients, labels, strict=True))


def test_any_name_can_be_drawn_and_ten_clients_told_apart(tmp_path: Path) -> None:
    names = ["a$\\foo$b", "_north", "北", "c\udcff", *"efghij"]
    found = describe(partition(read("umls"), clients=10, by="random"))
    clients = tuple(replace(client, name=name) for client, name in zip(found.clients, names, strict=True))
    figure = figures.degree_distributions([replace(found, name="$x$", clients=clients)])
    figures.save(figure, tmp_path / "a.png")
    (panel,) = figure.axes
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in panel.lines}
    assert len(looks) == 10
    assert len(panel.get_legend().get_texts()) == 10
    assert all(tick.get_parse_math() for tick in panel.get_xticklabels())  # powers of ten are formulas still


@pytest.mark.parametrize("degrees", [{1: 5}, {1: 5, 2: 3, 9: 1, 10: 1, 99: 2, 100: 1, 1000: 1}, {6133: 1, 4: 8}])
def test_bins_hold_every_entity_once(degrees: dict[int, int]) -> None:
    """Density times width, summed over the bins, is one; and the mean degree is kept."""
    centres, density = map(np.array, figures.log_bins(degrees, per_decade=5))
    edges = np.unique(np.ceil(10 ** (np.arange(30) / 5)))
    width = np.diff(edges)[np.digitize(centres, edges) - 1]
    total = sum(degrees.values())
    assert (density * width).sum() == pytest.approx(1)
    mean = sum(degree * count for degree, count in degrees.items()) / total
    assert (density * width * centres).sum() == pytest.approx(mean)


def test_saved_as_the_suffix_says(tmp_path: Path) -> None:
    figure = figures.degree_distributions([describe(partition(read("nations"), clients=2))])
    for name, magic in {"a.png": b"\x89PNG", "a.svg": b"<?xml", "a.pdf": b"%PDF"}.items():
        figures.save(figure, tmp_path / "new" / name)
        assert (tmp_path / "new" / name).read_bytes().startswith(magic)
    assert imread(tmp_path / "new" / "a.png").std() > 0.01  # not an empty page
    with pytest.raises(InputError, match=r"unknown kind of picture '\.docx'"):
        figures.save(figure, tmp_path / "a.docx")
    (tmp_path / "new" / "b.png").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        figures.save(figure, tmp_path / "new" / "b.png")
    (tmp_path / "new" / "b.png").rmdir()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.pdf", "a.png", "a.svg", "new"]
