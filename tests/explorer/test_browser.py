"""What a person does with the explorer, in a real browser: search, predict, ask why, look around, forget."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from fedlu.results.prediction import load
from tests.browsing import PATIENCE, PHONE, browser_page, overflows
from tests.conftest import HOSTILE
from tests.explorer.conftest import exploring

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def hostile(hostile_run: Path) -> Iterator[str]:
    with exploring(hostile_run) as address:
        yield address


def begin(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#relation option").first).to_be_attached()


def choose(page: Page, text: str, label: str) -> None:
    """Type a part of a name, and take a suggestion with the keys."""
    page.locator("#entity-name").press_sequentially(text)
    option = page.locator("#suggestions li", has_text=label).first
    expect(option).to_be_visible()
    for _ in range(24):  # the list may still change while one types
        if option.get_attribute("aria-selected") == "true":
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#entity-name")).to_have_value(label)
    expect(page.locator("#suggestions")).to_be_hidden()


@pytest.mark.parametrize(("size", "scheme"), [((1280, 900), "light"), (PHONE, "dark")])
def test_a_person_looks_around(hostile: str, hostile_run: Path, size: tuple[int, int], scheme: str) -> None:
    """Names that are hostile to a page are shown as they are, and do nothing."""
    run = load(hostile_run)
    client = run.clients[0]
    with browser_page(size=size, scheme=scheme) as (page, troubles):
        begin(page, hostile)
        expect(page.locator("#answers .empty")).to_contain_text("Choose an entity")
        choose(page, "</scr", HOSTILE[0])
        relation = page.locator("#relation").input_value()
        card = page.locator(".card[data-view=local]")
        expect(card.locator("li").first).to_be_visible()
        entity = page.locator("#entity-name").input_value()
        expected = run.predict(client, head=entity, relation=relation, view="local")
        assert card.locator("button.link").all_inner_texts() == expected["label"].to_list()
        assert page.locator(".card[data-view]").count() == 3
        known = expected["known"].fill_null("new").to_list()
        assert card.locator(".known, .new").all_inner_texts() == known
        card.locator("button.link").first.click()
        expect(page.locator("#evidence h3").first).to_contain_text("Why (")
        page.get_by_label("only what is not known yet").check()
        expect(page.locator(".known")).to_have_count(0)
        page.get_by_text("(?, relation, entity)").click()
        heads = run.predict(client, tail=entity, relation=relation, view="local", new_only=True)["label"].to_list()
        if heads:
            expect(card.locator("button.link").first).to_have_text(heads[0])
        for tab, sign in (
            ("Entity", "#neighbours h2"),
            ("Map", "#map-chart canvas"),
            ("Quality", "#quality-table .empty"),
        ):
            page.get_by_role("tab", name=tab).click()
            expect(page.locator(sign)).to_be_visible()
            assert not overflows(page)
        assert not page.get_by_role("tab", name="Forget").is_visible()  # read-only
        assert page.evaluate("window.hacked") is None
        assert troubles == []


def test_troubles_are_told(hostile_run: Path) -> None:
    """No such entity; a relation chosen first; and the server gone: each in words, in its place."""
    with browser_page() as (page, troubles):
        with exploring(hostile_run) as address:
            begin(page, address)
            page.locator("#entity-name").fill("nobody at all")
            expect(page.locator("#suggestions")).to_contain_text("No entity has a name like that.")
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_contain_text("no entity 'nobody at all'")
            page.locator("#entity-name").fill("east <b>2</b>")
            page.get_by_role("button", name="Predict").click()  # the list of names does not lie over it
            expect(page.locator(".card[data-view=local] li").first).to_be_visible()
            expect(page.get_by_role("alert")).to_be_hidden()
        page.get_by_role("button", name="Predict").click()
        expect(page.get_by_role("alert")).to_contain_text("Is `fedlu explore` still running?")
        refusals = [each for each in troubles if "Failed to load resource" not in each]
        assert refusals == []  # the browser notes refused requests itself; nothing else is amiss


def test_a_token_travels_in_the_address(hostile_run: Path) -> None:
    with exploring(hostile_run, "--token", "a-token-for-the-test") as address, browser_page() as (page, troubles):
        begin(page, address)
        page.get_by_role("link", name="the API").click()
        expect(page.get_by_text("GET /api/predict")).to_be_visible()
        assert troubles == []
        page.goto("about:blank")
        page.goto(address.split("#")[0])
        expect(page.get_by_role("alert")).to_contain_text("the token is missing or wrong")


@pytest.mark.slow
def test_a_person_forgets(umls_run: Path, tmp_path: Path) -> None:
    """Search, predict, see a known triple high up, forget it, and see its rank fall; the run itself is untouched."""
    folder = tmp_path / "run"
    shutil.copytree(umls_run, folder)
    run = load(folder)
    client = run.clients[0]
    head, relation, tail = well_known(run, client)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts}
    with exploring(folder, "--allow-forget") as address, browser_page() as (page, troubles):
        begin(page, address)
        page.locator("#relation").select_option(relation)
        choose(page, head, head)
        answer = page.locator(".card[data-view=local] li", has_text=tail).first
        expect(answer.locator(".known")).to_have_text("train")
        answer.locator("button.link").click()
        page.locator("#evidence").get_by_role("button", name="forget", exact=True).first.click()
        page.get_by_role("tab", name="Forget (1)").click()
        expect(page.locator("#basket")).to_contain_text(f"{head} {relation} {tail}")
        page.get_by_role("button", name=f"Forget 1 triple of {client}").click()
        ranks = page.locator("#ranks tbody tr", has_text="local")
        expect(ranks).to_be_visible()
        was, now = (float(each) for each in re.findall(r"[\d.]+", ranks.locator("[data-end=tail]").inner_text()))
        assert was == 1
        assert now > was
        expect(page.locator("h1")).to_have_text("run-forgotten-1")
        assert troubles == []
    assert {path: path.read_bytes() for path in before} == before
    assert load(tmp_path / "run-forgotten-1").desk(client).graph.train.shape[0] == len(run.desk(client).graph.train) - 1


def well_known(run, client: str) -> tuple[str, str, str]:  # type: ignore[no-untyped-def]
    """A learned triple whose tail the local rows put first, filtered or not."""
    graph = run.desk(client).graph
    for head, relation, tail in graph.vocabulary.labels(graph.train):
        found = run.predict(client, head=head, relation=relation, top=1, view="local")
        if found["label"][0] == tail:
            return head, relation, tail
    raise AssertionError("nothing was learned")
