"""The explorer's API: its answers are those of the run, its inputs are bounded, its refusals help."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlu.errors import UnavailableError
from fedlu.explorer import answers
from fedlu.explorer.api import Explorer, app_of
from fedlu.explorer.batching import Batcher
from fedlu.results.prediction import LearnedRun, load
from fedlu.results.runs import read_metrics
from tests.explorer.conftest import Asking

NORTH = "<b>north & 'co'"


@pytest.fixture(scope="module")
def run(hostile_run: Path) -> LearnedRun:
    return load(hostile_run)


def triple_of(run: LearnedRun, split: str = "train") -> tuple[str, str, str]:
    graph = run.desk(NORTH).graph
    return graph.vocabulary.labels(graph.split(split)[:1])[0]


def test_predictions_are_those_of_the_run(asking: Asking, run: LearnedRun) -> None:
    """By every view and both sides: the same labels, ranks and splits as `LearnedRun.predict`."""
    head, relation, tail = triple_of(run)
    for ends in ({"head": head}, {"tail": tail}):
        for new_only in (False, True):
            query: dict[str, Any] = {"client": NORTH, "relation": relation, **ends, "top": 5, "new_only": new_only}
            reply = asking.get("/api/predict", params=query)
            assert reply.status_code == 200, reply.text
            assert list(reply.json()) == ["local", "global", "blend"]
            for view, found in reply.json().items():
                expected = run.predict(NORTH, relation=relation, **ends, top=5, view=view, new_only=new_only)
                for name in ("label", "rank", "known"):
                    assert [each[name] for each in found] == expected[name].to_list()
                assert [each["score"] for each in found] == pytest.approx(expected["score"].to_list(), abs=1e-4)


def test_the_shortcut_answers_as_the_framework_does(
    asking: Asking, run: LearnedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, relation, tail = triple_of(run)
    questions: list[dict[str, Any]] = [
        {"client": NORTH, "relation": relation, **ends, **rest}
        for ends in ({"head": head}, {"tail": tail})
        for rest in ({}, {"top": 3}, {"new_only": "true"}, {"new_only": "false", "top": 100})
    ]
    assert all(answers.asked_plainly(run, {name: str(value) for name, value in q.items()}) for q in questions)
    short = [asking.get("/api/predict", params=question) for question in questions]
    with monkeypatch.context() as patched:
        patched.setattr("fedlu.explorer.answers.asked_plainly", lambda *_: None)
        long = [asking.get("/api/predict", params=question) for question in questions]
    assert [reply.content for reply in short] == [reply.content for reply in long]
    assert [dict(reply.headers) for reply in short] == [dict(reply.headers) for reply in long]
    known = {"client": NORTH, "relation": relation, "head": head}
    for unusual in ({"top": "07"}, {"top": "0"}, {"new_only": "yes"}, {"tail": tail}, {"head": ""}, {"more": "x"}):
        assert answers.asked_plainly(run, {**known, **unusual}) is None
    assert asking.get("/api/predict", params={**known, "new_only": "yes"}).json() == short[2].json()
    twice = asking.get("/api/predict", params=[*known.items(), ("top", "1"), ("top", "3")])
    assert [len(found) for found in twice.json().values()] == [3, 3, 3]


def test_every_model_can_be_asked_without_short_lists(run: LearnedRun) -> None:
    """As those that have none are asked: the same answers."""
    graph, desk = run.desk(NORTH).graph, run.desk(NORTH)
    asked = [
        answers.asked(run, NORTH, r, h, None, 4, n % 2 == 1)
        for n, (h, r, _) in enumerate(graph.vocabulary.labels(graph.known))
    ]
    plain = replace(desk)
    plain.__dict__["short_lists"] = None
    slow = replace(run, desks={NORTH: plain})
    assert desk.short_lists is not None
    assert answers.answer_together(slow, asked) == answers.answer_together(run, asked)


def test_questions_asked_at_once_are_answered_as_if_alone(run: LearnedRun) -> None:
    graph = run.desk(NORTH).graph
    labels = graph.vocabulary.labels(graph.known)
    asked = [answers.asked(run, NORTH, r, h, None, 4, False) for h, r, _ in labels]
    asked += [answers.asked(run, 'so"uth', r, None, t, 3, True) for _, r, t in labels]
    alone = [answers.answer_together(run, [question])[0] for question in asked]

    async def together() -> list[bytes]:
        batcher = Batcher(run)
        try:
            return await asyncio.gather(*(batcher.ask(question) for question in asked))
        finally:
            batcher.close()

    assert asyncio.run(together()) == alone


def test_all_that_wait_go_together_and_the_oldest_go_first(run: LearnedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is scored alone; what arrives meanwhile goes next, in order, as much as fits, no question twice."""
    h, r, t = triple_of(run)
    asked = [answers.asked(run, NORTH, r, h, None, top, False) for top in range(1, 8)]
    asked.insert(3, answers.asked(run, NORTH, r, None, t, 4, False))
    order = [*asked[1:3], asked[1], *asked[3:]]
    batches: list[list[answers.Asked]] = []

    def score(of: LearnedRun, questions: list[answers.Asked]) -> list[answers.Scored]:
        batches.append(questions)
        time.sleep(0.2)
        return answers.score_together(of, questions)

    async def together() -> list[bytes]:
        batcher = Batcher(run)
        try:
            first = asyncio.create_task(batcher.ask(asked[0]))
            await asyncio.sleep(0.05)  # it is being scored now
            return [*await asyncio.gather(*map(batcher.ask, order)), await first]
        finally:
            batcher.close()

    monkeypatch.setattr("fedlu.explorer.batching.score_together", score)
    monkeypatch.setattr("fedlu.explorer.batching.MOST_TOGETHER", 5)
    found = asyncio.run(together())
    assert found == answers.answer_together(run, [*order, asked[0]])
    assert [len(batch) for batch in batches] == [1, 4, 3]  # five asked, one of them twice
    assert [set(batch) for batch in batches] == [set(asked[:1]), set(asked[1:5]), set(asked[5:])]


def test_a_large_batch_is_cut_in_two_with_like_questions_together(
    run: LearnedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    h, r, t = triple_of(run)
    asked = [answers.asked(run, NORTH, r, *ends, top, False) for top in range(1, 7) for ends in ((h, None), (None, t))]
    parts: list[list[answers.Asked]] = []

    def score(of: LearnedRun, questions: list[answers.Asked]) -> list[answers.Scored]:
        parts.append(questions)
        return answers.score_together(of, questions)

    async def together() -> list[bytes]:
        batcher = Batcher(run)
        try:
            return await asyncio.gather(*map(batcher.ask, asked))
        finally:
            batcher.close()

    monkeypatch.setattr("fedlu.explorer.batching.score_together", score)
    assert asyncio.run(together()) == answers.answer_together(run, asked)
    assert sorted((part[0].side, len(part), len({each.side for each in part})) for part in parts) == [
        (answers.Side.HEAD, 6, 1),
        (answers.Side.TAIL, 6, 1),
    ]


def many(run: LearnedRun) -> list[answers.Asked]:
    """Enough for two threads: six for tails, then six for heads."""
    h, r, t = triple_of(run)
    return [answers.asked(run, NORTH, r, *ends, top, False) for ends in ((h, None), (None, t)) for top in range(1, 7)]


@pytest.mark.parametrize("step", ["score_together", "written"])
def test_one_bad_question_does_not_stop_the_others(run: LearnedRun, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Those that a thread failed at are told so; the rest of the batch and whoever asks later are answered."""
    asked, good = many(run), getattr(answers, step)

    def bad_at_heads(of: LearnedRun, given: Any) -> Any:
        return 1 / 0 if given[0].side == answers.Side.HEAD else good(of, given)

    async def twice() -> list[Any]:
        batcher = Batcher(run)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(f"fedlu.explorer.batching.{step}", bad_at_heads)
                first = await asyncio.wait_for(asyncio.gather(*map(batcher.ask, asked), return_exceptions=True), 30)
            return [*first, *await asyncio.gather(*map(batcher.ask, asked))]
        finally:
            batcher.close()

    found, right = asyncio.run(twice()), answers.answer_together(run, asked)
    assert found[:6] == right[:6]
    assert all(isinstance(each, ZeroDivisionError) for each in found[6:12])
    assert found[12:] == right


@pytest.mark.parametrize("busy", [False, True])
def test_nobody_waits_for_a_batcher_that_was_closed(
    run: LearnedRun, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """Closed while some are scored, or before the threads came to them, while others wait: all hear of it."""
    asked = many(run)

    def slow(of: LearnedRun, questions: list[answers.Asked]) -> list[answers.Scored]:
        time.sleep(0.2)
        return answers.score_together(of, questions)

    async def closing() -> list[Any]:
        batcher = Batcher(run)
        others = [batcher.work(time.sleep, 0.3) for _ in range(batcher.hands if busy else 0)]
        asking = [asyncio.create_task(batcher.ask(question)) for question in asked[:6]]
        await asyncio.sleep(0.05)
        asking += [asyncio.create_task(batcher.ask(question)) for question in asked[6:]]
        await asyncio.sleep(0.05)
        batcher.close()
        found = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 30)
        await asyncio.gather(*others)
        return found

    monkeypatch.setattr("fedlu.explorer.batching.score_together", slow)
    found = asyncio.run(closing())
    if not busy:
        assert found[:6] == answers.answer_together(run, asked[:6])
    assert all(isinstance(each, UnavailableError) for each in found[0 if busy else 6 :])


def test_ranks_agree_with_the_predictions(asking: Asking, run: LearnedRun) -> None:
    """The filtered rank of a true tail: its place among what is new, were it new."""
    head, relation, tail = triple_of(run, "test")
    found = asking.get("/api/rank", params={"client": NORTH, "head": head, "relation": relation, "tail": tail}).json()
    assert found["known"] == "test"
    fresh = run.predict(NORTH, relation=relation, head=head, top=100, view="local", new_only=True)
    all_of_it = run.predict(NORTH, relation=relation, head=head, top=100, view="local")
    score = all_of_it.filter(all_of_it["label"] == tail)["score"][0]
    above, equal = (fresh["score"] > score).sum(), (fresh["score"] == score).sum()
    assert found["views"]["local"]["tail"] == 1 + above + equal / 2
    gone = asking.get("/api/rank", params={"client": NORTH, "head": "nobody", "relation": relation, "tail": tail})
    assert gone.json()["views"] is None


def test_search_begins_with_the_beginning(asking: Asking) -> None:
    def search(text: str, limit: int = 10) -> list[str]:
        found = asking.get("/api/entities", params={"client": NORTH, "q": text, "limit": limit})
        return [each["label"] for each in found.json()]

    assert search("NORTH") == ["north <b>0</b>"]
    assert search("</b>")[0].endswith("</b>")
    assert len(search("")) == 7
    assert search("", 2) == search("")[:2]
    assert "south <b>1</b>" in search("sotuh <b>1</b>")  # a typo
    assert search("\u0000zzzzzz") == []


def test_neighbours_and_evidence_are_triples_of_the_client(asking: Asking, run: LearnedRun) -> None:
    graph = run.desk(NORTH).graph
    known = set(graph.vocabulary.labels(graph.known))
    head, relation, tail = triple_of(run)
    found = asking.get("/api/neighbours", params={"client": NORTH, "entity": head}).json()
    about = {(each["head"], each["relation"], each["tail"]) for each in found["triples"]}
    assert about == {triple for triple in known if head in (triple[0], triple[2])}
    assert found["count"] == len(about)
    assert head not in [each["label"] for each in found["alike"]]
    cosines = [each["cosine"] for each in found["alike"]]
    assert cosines == sorted(cosines, reverse=True)
    why = {"client": NORTH, "head": head, "relation": relation, "tail": tail}
    spoken = asking.get("/api/evidence", params=why).json()
    told = [
        *spoken["direct"],
        *spoken["same_tail"],
        *spoken["same_head"],
        *(each for path in spoken["paths"] for each in path),
    ]
    assert told
    for each in told:
        assert (each["head"], each["relation"], each["tail"]) in known - {(head, relation, tail)}
    for first, second in spoken["paths"]:
        middle = {first["head"], first["tail"]} & {second["head"], second["tail"]} - {head, tail}
        assert head in (first["head"], first["tail"])
        assert tail in (second["head"], second["tail"])
        assert middle


def test_quality_by_relation_adds_up_to_the_whole(umls_run: Path) -> None:
    """Relations with enough test triples: their mean, weighted, is the run's own figure over those triples."""
    run = load(umls_run)
    explorer, name = Explorer(run), run.clients[0]
    rows = Asking(app_of(explorer)).get("/api/quality", params={"client": name}).json()
    explorer.batcher.close()
    whole = read_metrics(umls_run)["test"]["blend"]["clients"][name]
    judged = sum(row["test"] for row in rows)
    assert whole["count"] - judged < 0.2 * whole["count"]
    mean = np.average([row["views"]["blend"]["mrr"] for row in rows], weights=[row["test"] for row in rows])
    assert mean == pytest.approx(whole["mrr"], abs=0.05)
    assert all(row["ranked"] == row["test"] for row in rows)


def test_the_run_and_the_map_are_told(asking: Asking, run: LearnedRun) -> None:
    about = asking.get("/api/run").json()
    assert [client["name"] for client in about["clients"]] == list(run.clients)
    assert about["allow_forget"] is False
    assert about["test"]["local"]["mrr"] == read_metrics(run.folder)["test"]["local"]["weighted"]["mrr"]
    drawn = asking.get("/api/map").json()
    assert [series["name"] for series in drawn["spec"]["series"]] == list(run.clients)
    assert sorted(drawn["spec"]["series"][0]["labels"]) == sorted(run.desk(NORTH).graph.vocabulary.entities)
    counts = {each["label"]: each["triples"] for each in asking.get("/api/relations", params={"client": NORTH}).json()}
    assert sum(counts.values()) == len(run.desk(NORTH).graph.known)


@pytest.mark.parametrize(
    ("path", "query", "status", "words"),
    [
        ("predict", {"client": "nobody", "relation": "r", "head": "h"}, 400, "no client 'nobody'"),
        ("predict", {"client": NORTH, "relation": "<i>likes</i> 0", "head": "nort <b>0</b>"}, 400, "did you mean"),
        ("predict", {"client": NORTH, "relation": "<i>likes</i> 0"}, 400, "either a head or a tail"),
        ("predict", {"client": NORTH, "relation": "r", "head": "h", "top": 101}, 422, "top: "),
        ("predict", {"client": NORTH, "relation": "r" * 2001, "head": "h"}, 422, "relation: "),
        ("entities", {"client": NORTH, "q": "x" * 201}, 422, "q: "),
        ("entities", {"client": NORTH, "limit": 0}, 422, "limit: "),
        ("neighbours", {"client": NORTH, "entity": "nobody"}, 400, "no entity 'nobody'"),
        ("quality", {"client": "nobody"}, 400, "no client"),
        ("entities", {"client": NORTH, "q": "x" * 9000}, 413, "too large"),
        ("nothing", {}, 404, ""),
    ],
)
def test_bad_questions_get_a_helpful_no(
    asking: Asking, path: str, query: dict[str, Any], status: int, words: str
) -> None:
    reply = asking.get(f"/api/{path}", params=query)
    assert reply.status_code == status
    assert words in reply.json().get("error", "")


def test_it_is_read_only_unless_allowed(asking: Asking, run: LearnedRun) -> None:
    before = sorted(path.name for path in run.folder.parent.iterdir())
    reply = asking.post("/api/forget", json={"client": NORTH, "triples": [triple_of(run)]})
    assert reply.status_code == 403
    assert "--allow-forget" in reply.json()["error"]
    assert sorted(path.name for path in run.folder.parent.iterdir()) == before


def test_the_api_describes_itself(asking: Asking) -> None:
    paths = asking.get("/api/openapi.json").json()["paths"]
    named = {"run", "predict", "rank", "evidence", "entities", "relations", "neighbours", "quality", "map", "forget"}
    assert set(paths) == {f"/api/{name}" for name in named}
    assert all(each["summary"] for methods in paths.values() for each in methods.values())
