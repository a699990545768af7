"""The report: what it says, what it must not say, and that a real browser shows it."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedlu.errors import InputError
from fedlu.graph import load
from fedlu.results import published, runs
from fedlu.results.maps import entity_map
from fedlu.results.overview import labels_of, read
from fedlu.results.prediction import load as load_run
from fedlu.results.report import report, results_table
from tests.browsing import LAPTOP, PHONE, browser_page, overflows
from tests.conftest import HOSTILE


@pytest.fixture(scope="module")
def page(hostile_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run beside another that is under way, and of one that was audited; all names hostile."""
    folder = tmp_path_factory.mktemp("report")
    unfinished, audited = folder / "begun", folder / "forgotten"
    for copy in (unfinished, audited):
        shutil.copytree(hostile_run, copy)
    (unfinished / "metrics.json").unlink()
    (audited / "audit.json").write_text(json.dumps(AUDIT))
    report([hostile_run, unfinished, audited], folder / "report.html")
    return folder / "report.html"


def _states(forget: float) -> dict[str, Any]:
    splits = {"forget": forget, "test": 0.25, "retained": 0.5, "neighbourhood": 0.4}
    return {view: {s: {"mrr": v, "hits@1": v / 2} for s, v in splits.items()} for view in ("local", "global")}


AUDIT = {"raw": _states(0.9), "forgotten": _states(0.2), "retrained": _states(0.22)}


def test_it_holds_no_triple_and_no_entity(page: Path, hostile_run: Path) -> None:
    text = page.read_text(encoding="utf-8")
    seen = text + html.unescape(text)
    for client in load(hostile_run.parent / "data").clients:
        for label in (*client.vocabulary.entities, *client.vocabulary.relations):
            assert label not in seen
    assert HOSTILE[0] not in text


def test_it_asks_nothing_of_the_network(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    assert not re.search(r"@import|url\((?!#)", text)
    assert "default-src 'none'" in text


def test_names_are_shown_only_when_asked_for(hostile_run: Path, tmp_path: Path) -> None:
    report([hostile_run], tmp_path / "named.html", names=True)
    text = (tmp_path / "named.html").read_text(encoding="utf-8")
    assert r"\u003c/script\u003e\u003cscript\u003ewindow.hacked" in text  # as data that cannot end its script
    with browser_page() as (page, troubles):
        page.goto((tmp_path / "named.html").as_uri())
        chart = page.locator(".chart:has(canvas)")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box is not None
        side = min(box["width"], box["height"]) - 12
        drawn = entity_map(load_run(hostile_run))
        xy = drawn.xy[0] / 65535  # the first client's first entity, as the page places it
        x = box["x"] + (box["width"] - side) / 2 + xy[0] * side
        y = box["y"] + (box["height"] - side) / 2 + (1 - xy[1]) * side
        page.mouse.move(x, y)
        assert f"{drawn.labels[0]} (<b>north & 'co')" in chart.locator(".tip").inner_text()
        assert page.evaluate("window.hacked") is None
        assert troubles == []


@pytest.mark.parametrize(("size", "scheme"), [(LAPTOP, "light"), (PHONE, "dark")])
def test_a_browser_shows_it(page: Path, size: tuple[int, int], scheme: str) -> None:
    with browser_page(size=size, scheme=scheme) as (shown, troubles):
        shown.goto(page.as_uri())
        shown.wait_for_selector(".chart svg")
        for section in ("results", "convergence", "forgetting", "federation", "entities", "facts"):
            assert shown.locator(f"h2#{section}").count() == 1
        assert shown.evaluate("window.hacked") is None
        assert "<b>north & 'co'" in shown.locator("main").inner_text()  # as text, not as markup
        for figure in shown.locator(".chart").all():
            assert len(figure.get_attribute("aria-label") or "") > 30  # each chart has words
        assert not overflows(shown)
        ground = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        assert troubles == []


def test_charts_answer_to_a_person(page: Path) -> None:
    """Hover, hide a line, zoom by a box and by a key, and back again."""
    with browser_page() as (shown, troubles):
        shown.goto(page.as_uri())
        figure = shown.locator("figure", has_text="Valid MRR by round").first
        chart = figure.locator(".chart")
        chart.wait_for()
        lines = chart.locator("g path[fill=none]")
        before = lines.count()
        assert before == 9  # three runs, three views
        button = figure.locator(".legend button").first
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        assert lines.count() == before - 1
        button.click()
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box is not None

        def drawn() -> str:
            return chart.locator("svg").evaluate("svg => svg.outerHTML.replace(/clip-\\d+/g, '')")

        whole = drawn()
        shown.mouse.move(box["x"] + 80, box["y"] + 50)
        shown.mouse.down()
        shown.mouse.move(box["x"] + 200, box["y"] + 150, steps=4)
        shown.mouse.up()
        assert drawn() != whole
        figure.get_by_role("button", name="show all").click()
        assert drawn() == whole
        chart.focus()
        shown.keyboard.press("+")
        assert drawn() != whole
        shown.keyboard.press("0")
        assert drawn() == whole
        dot = chart.locator("g path").nth(1).bounding_box()
        assert dot is not None
        shown.mouse.move(dot["x"] + 3, dot["y"] + dot["height"] - 3)
        assert re.search(r"run: local: [\d.]+ at round 2", figure.locator(".tip").inner_text())
        assert troubles == []


def test_it_prints_light_and_whole(page: Path) -> None:
    with browser_page(scheme="dark") as (shown, troubles):
        shown.goto(page.as_uri())
        shown.wait_for_selector(".chart svg")
        shown.emulate_media(media="print", color_scheme="dark")
        assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert len(shown.pdf()) > 20_000
        assert troubles == []


def test_figures_are_those_of_the_run(hostile_run: Path, tmp_path: Path) -> None:
    content = report([hostile_run], tmp_path / "r.html", maps=False)
    test = runs.read_metrics(hostile_run)["test"]
    for row in content["results"]["rows"]:
        mrr, hits1, hits3, hits10 = (float(cell["ours"]) for cell in row["cells"])
        found = test[row["view"]]["weighted"]
        assert [mrr, hits1, hits3, hits10] == pytest.approx(
            [100 * found[name] for name in ("mrr", "hits@1", "hits@3", "hits@10")], abs=0.006
        )
    assert content["maps"] == []
    assert not content["paper"]


def test_the_papers_figures_stand_beside_ours(hostile_run: Path, tmp_path: Path) -> None:
    """A run on the published C3 is known by its fingerprint, and by that alone."""
    shutil.copytree(hostile_run, tmp_path / "run")
    for name in ("config.json", "metrics.json"):
        found = json.loads((tmp_path / "run" / name).read_text())
        found["fingerprint"] = next(key for key, value in published.FEDERATIONS.items() if value == "C3")
        (tmp_path / "run" / name).write_text(json.dumps(found))
    table = results_table(read([tmp_path / "run"]))
    beside = {row["view"]: [cell["paper"] for cell in row["cells"]] for row in table["rows"]}
    assert beside["local"] == ["33.71", "21.27", "40.21", "57.53"]
    assert beside["global"][0] == "33.30"
    assert beside["blend"] == ["", "", "", ""]


def test_runs_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    assert labels_of([Path("a/run"), Path("b/run")]) == ["a/run", "b/run"]
    assert labels_of([Path("a/one"), Path("b/two")]) == ["one", "two"]
    with pytest.raises(InputError, match="named twice"):
        labels_of([Path("a/run"), Path("a/../a/run")])


def test_what_is_missing_is_said_not_hidden(hostile_run: Path, tmp_path: Path) -> None:
    """Data that has gone, a run that has just begun: a report all the same."""
    gone, begun = tmp_path / "gone", tmp_path / "begun"
    for copy in (gone, begun):
        shutil.copytree(hostile_run, copy)
        config = json.loads((copy / "config.json").read_text())
        config["data"] = str(tmp_path / "nowhere")
        (copy / "config.json").write_text(json.dumps(config))
    for name in ("metrics.json", "state.json", "events.jsonl"):
        (begun / name).unlink()
    content = report([gone, begun], tmp_path / "r.html")
    assert [note.split(" ")[0] for note in content["notes"]] == ["begun"]
    assert "nowhere" in content["federations"][0]["missing"]
    assert len(content["map_notes"]) == 2
    assert "cannot be described" in (tmp_path / "r.html").read_text()


def test_bad_requests_are_refused_before_work(hostile_run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run"):
        report([tmp_path], tmp_path / "r.html")
    with pytest.raises(InputError, match="unknown kind of report"):
        report([hostile_run], tmp_path / "r.pdf")
    with pytest.raises(InputError, match="is a folder"):
        report([hostile_run], tmp_path)
    assert list(tmp_path.iterdir()) == []
