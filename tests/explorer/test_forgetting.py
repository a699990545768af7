"""Forgetting from the page: one at a time, told as it goes, and what goes wrong is told too."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedlu.errors import InputError
from fedlu.explorer import forgetting
from fedlu.explorer.api import Explorer, app_of
from fedlu.results.prediction import LearnedRun, load

NORTH = "<b>north & 'co'"


@pytest.fixture
def run(hostile_run: Path, tmp_path: Path) -> LearnedRun:
    shutil.copytree(hostile_run, tmp_path / "run")
    return load(tmp_path / "run")


def learned(run: LearnedRun) -> list[tuple[str, str, str]]:
    graph = run.desk(NORTH).graph
    return graph.vocabulary.labels(graph.train[:2])


def talk(explorer: Explorer, conversation: Callable[[httpx.AsyncClient], Any]) -> Any:
    """A conversation in one loop, so that what was begun by one request is still there at the next."""

    async def talking() -> Any:
        way = httpx.ASGITransport(app=app_of(explorer))  # type: ignore[arg-type]
        try:
            async with httpx.AsyncClient(transport=way, base_url="http://localhost") as client:
                return await conversation(client)
        finally:
            explorer.batcher.close()

    return asyncio.run(talking())


async def outcome(client: httpx.AsyncClient) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = (await client.get("/api/forget")).json()
        if job["state"] != "working":
            return job
        await asyncio.sleep(0.05)


def test_it_hands_over_the_request_and_looks_at_the_new_run(run: LearnedRun) -> None:
    seen: dict[str, Any] = {}

    def forget(source: Path, out: Path, *, triples: Path, client: str, watch: Callable[[object], None]) -> None:
        seen.update(text=triples.read_text(encoding="utf-8"), path=triples, client=client, source=source)
        watch("a cycle")
        shutil.copytree(source, out)

    async def conversation(client: httpx.AsyncClient) -> dict[str, Any]:
        reply = await client.post("/api/forget", json={"client": NORTH, "triples": learned(run)})
        assert reply.status_code == 202
        job = await outcome(client)
        seen["about"] = (await client.get("/api/run")).json()["run"]
        return job

    job = talk(Explorer(run, allow_forget=True, forget=forget), conversation)
    assert job["state"] == "done"
    assert job["steps"] == 1
    assert [(each["head"], each["relation"], each["tail"]) for each in job["ranks"]] == learned(run)
    assert job["ranks"][0]["before"]["views"] == job["ranks"][0]["after"]["views"]  # this one forgets nothing
    assert seen["text"] == "".join("\t".join(triple) + "\n" for triple in learned(run))
    assert not seen["path"].exists()  # the request leaves no copy
    assert (seen["client"], seen["source"]) == (NORTH, run.folder)
    assert seen["about"] == "run-forgotten-1"


def test_one_at_a_time(run: LearnedRun) -> None:
    go_on = threading.Event()

    def forget(*_: Any, **__: Any) -> None:
        go_on.wait(60)
        raise InputError("the run is locked", remedy="wait")

    async def conversation(client: httpx.AsyncClient) -> tuple[int, str, dict[str, Any]]:
        body = {"client": NORTH, "triples": learned(run)[:1]}
        assert (await client.post("/api/forget", json=body)).status_code == 202
        second = await client.post("/api/forget", json=body)
        go_on.set()
        return second.status_code, second.json()["error"], await outcome(client)

    status, error, job = talk(Explorer(run, allow_forget=True, forget=forget), conversation)
    assert (status, error) == (409, "something is being forgotten; wait for it")
    assert (job["state"], job["message"]) == ("failed", "the run is locked; wait")
    assert job["ranks"] == []
    assert not (run.folder.parent / "run-forgotten-1").exists()


def test_a_fault_is_told_too(run: LearnedRun) -> None:
    job = forgetting.request(run, NORTH, learned(run))
    forgetting.carry_out(job, run, forget=lambda *_, **__: 1 / 0)
    assert (job.state, job.message) == ("failed", "ZeroDivisionError: division by zero")


def test_what_was_not_learned_cannot_be_forgotten(run: LearnedRun) -> None:
    graph = run.desk(NORTH).graph
    (test,) = graph.vocabulary.labels(graph.test[:1])
    with pytest.raises(InputError, match="has not learned"):
        forgetting.request(run, NORTH, [test])
    with pytest.raises(InputError, match="has not learned"):
        forgetting.request(run, NORTH, [("nobody", test[1], test[2])])
    with pytest.raises(InputError, match="0 triples; choose 1 to 200"):
        forgetting.request(run, NORTH, [])
    with pytest.raises(InputError, match="no client"):
        forgetting.request(run, "nobody", [test])
    (run.folder.parent / "run-forgotten-1").mkdir()
    assert forgetting.request(run, NORTH, learned(run)).out.name == "run-forgotten-2"
