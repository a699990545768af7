"""Charts as data: the numbers in them, and in their words, are those of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fedlu.errors import InputError
from fedlu.graph import describe, load, partition, read
from fedlu.results import charts, published
from fedlu.results.overview import read as read_runs
from fedlu.results.plots import plot
from tests.results.test_report import AUDIT


def test_convergence_is_that_of_the_events(hostile_run: Path) -> None:
    (run,) = read_runs([hostile_run])
    events = [json.loads(line) for line in (hostile_run / "events.jsonl").read_text().splitlines()]
    chart = charts.convergence([run], "hits@1")
    assert chart is not None
    assert [series["name"] for series in chart.spec["series"]] == ["local", "global", "blend"]
    measured = [event for event in events if event["valid"]]
    expected = [[event["round"], event["valid"]["global"]["weighted"]["hits@1"]] for event in measured]
    assert chart.spec["series"][1]["points"] == expected
    by_cost = charts.convergence([run], "mrr", "megabytes")
    assert by_cost is not None
    sent = sum(sum(event["bytes_up"].values()) + sum(event["bytes_down"].values()) for event in events)
    assert by_cost.spec["series"][0]["points"][-1][0] == pytest.approx(sent / 1e6)
    by_time = charts.convergence([run], "mrr", "seconds")
    assert by_time is not None
    assert by_time.spec["series"][0]["points"][-1][0] == pytest.approx(sum(event["seconds"] for event in events))


def test_federation_charts_count_every_triple() -> None:
    found = describe(partition(read("nations"), clients=3, by="random"))
    sizes = charts.client_sizes(found)
    assert sum(sum(series["values"]) for series in sizes.spec["series"]) == 1992
    table = charts.bars_table(sizes.spec)
    assert table.columns == ("", "train", "valid", "test")
    assert len(table.rows) == 3
    degrees = charts.degree_distributions(found)
    assert [series["name"] for series in degrees.spec["series"]] == [client.name for client in found.clients]


def test_forgetting_shows_what_was_audited() -> None:
    chart = charts.forgetting(AUDIT, "local")
    assert chart is not None
    assert chart.spec["groups"][0] == "forget"
    assert [series["values"][0] for series in chart.spec["series"]] == [0.45, 0.1, 0.11]
    assert "before 45.0, after forgetting 10.0, trained again without 11.0" in chart.text
    without = charts.forgetting({"raw": AUDIT["raw"], "forgotten": AUDIT["forgotten"]}, "global")
    assert without is not None
    assert [series["name"] for series in without.spec["series"]] == ["before", "after forgetting"]
    assert charts.forgetting(AUDIT, "sideways") is None


def test_the_paper_is_quoted_as_printed() -> None:
    c3 = next(key for key, name in published.FEDERATIONS.items() if name == "C3")
    assert published.learned(c3, "RotatE", "fedlu", "local") == pytest.approx(
        {"mrr": 0.3892, "hits@1": 0.268, "hits@3": 0.455, "hits@10": 0.6213}
    )
    assert published.forgotten(c3, "RotatE", "forgotten", "global", "forget")["hits@1"] == pytest.approx(0.2273)
    assert published.learned(c3, "DistMult", "fedlu", "local") == {}
    assert published.learned("0" * 64, "TransE", "fedlu", "local") == {}


@pytest.mark.slow
def test_published_federations_are_recognised(request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue("published")
    for name in ("C3", "R3"):
        assert published.name_of(load(folder / name).fingerprint) == name


@pytest.mark.parametrize("what", ["convergence", "tsne", "degrees", "forgetting"])
def test_every_figure_can_be_drawn(hostile_run: Path, tmp_path: Path, what: str) -> None:
    shutil.copytree(hostile_run, tmp_path / "run")
    (tmp_path / "run" / "audit.json").write_text(json.dumps(AUDIT))
    plot([hostile_run, tmp_path / "run"] if what != "forgetting" else [tmp_path / "run"], what, tmp_path / "f.svg")
    text = (tmp_path / "f.svg").read_text()
    assert text.startswith("<?xml")
    assert len(text) > 5_000


def test_figures_that_cannot_be_are_refused(hostile_run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no figure 'pie'; choose one of convergence, tsne, degrees, forgetting"):
        plot([hostile_run], "pie", tmp_path / "f.svg")
    with pytest.raises(InputError, match="has no audit"):
        plot([hostile_run], "forgetting", tmp_path / "f.svg")
    with pytest.raises(InputError, match="no metric"):
        plot([hostile_run], "convergence", tmp_path / "f.svg", metric="accuracy")
    with pytest.raises(InputError, match="unknown kind of picture"):
        plot([hostile_run], "convergence", tmp_path / "f.docx")
    assert list(tmp_path.iterdir()) == []
