"""Questions that arrive while others are answered are answered together: a table is read once for all of them.

Those who have waited longest make the next batch, so whoever came first is never passed by. Two threads score a half of
it each; they begin and end together, so that they do not fight the loop that talks to browsers for Python's lock while
it writes and sends the answers of the batch before. A model of PyKEEN's is in one hand: there is one thread for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from fedlu.errors import UnavailableError
from fedlu.explorer.answers import Asked, Scored, score_together, written
from fedlu.results.prediction import LearnedRun

MOST_TOGETHER = 64
"""Questions in a batch: as many as may wait for each other. Whoever comes after them waits for the next."""
FEWEST_APART = 8
"""Questions that are worth a second thread."""
REMEMBERED = 4096
"""Answers kept, the oldest going first; some ten megabytes."""

CLOSED = UnavailableError("the explorer was closed", remedy="start it again")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Batch:
    asked: list[tuple[Asked, asyncio.Future[bytes]]]
    parts: list[list[Asked]]
    """The questions, each once, like ones together; a part for each thread."""
    scored: asyncio.Future[list[list[Scored] | BaseException]]


class Batcher:
    """Answers for one run; `close` it with the server."""

    def __init__(self, run: LearnedRun) -> None:
        self.run = run
        self.waiting: list[tuple[Asked, asyncio.Future[bytes]]] = []
        self.serving: asyncio.Task[None] | None = None
        self.kept: OrderedDict[Asked, bytes] = OrderedDict()
        self.hands = 2 if all(desk.short_lists for desk in run.desks.values()) else 1
        self.threads = ThreadPoolExecutor(self.hands, thread_name_prefix="scores")

    async def ask(self, question: Asked) -> bytes:
        kept = self.kept.get(question)
        if kept is not None:
            self.kept.move_to_end(question)
            return kept
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append((question, future))
        if self.serving is None or self.serving.done():
            self.serving = asyncio.create_task(self._serve())
        return await future

    def work(self, function: Callable[..., Result], *values: Any) -> asyncio.Future[Result]:
        """Something else for the threads that score, in its turn."""
        return asyncio.get_running_loop().run_in_executor(self.threads, function, *values)

    async def _serve(self) -> None:
        batch = self._begin()
        while batch is not None:
            scored = await batch.scored
            following = self._begin()  # before these are written: the threads need not wait for that
            self._hand_out(batch, scored)
            batch = following

    def _begin(self) -> Batch | None:
        """Let the threads score those who have waited longest, if there are any."""
        asked, self.waiting = self.waiting[:MOST_TOGETHER], self.waiting[MOST_TOGETHER:]
        if not asked:
            return None
        questions = sorted(dict.fromkeys(question for question, _ in asked), key=attrgetter("client", "side", "top"))
        hands = self.hands if len(questions) >= FEWEST_APART else 1
        size = -(-len(questions) // hands)
        parts = [questions[start : start + size] for start in range(0, len(questions), size)]
        try:
            scoring = [self.work(score_together, self.run, part) for part in parts]
        except RuntimeError:  # closed: no new work is taken
            _answer(asked, dict.fromkeys(questions, CLOSED))
            return None
        return Batch(asked, parts, asyncio.gather(*scoring, return_exceptions=True))

    def _hand_out(self, batch: Batch, scored: list[list[Scored] | BaseException]) -> None:
        """A part that failed is told to those who asked for it, and to nobody else."""
        found: dict[Asked, bytes | Exception] = {}
        for part, outcome in zip(batch.parts, scored, strict=True):
            try:
                if isinstance(outcome, asyncio.CancelledError):
                    raise CLOSED
                if isinstance(outcome, BaseException):
                    raise outcome
                found.update(zip(part, written(self.run, outcome), strict=True))
            except Exception as trouble:
                found.update(dict.fromkeys(part, trouble))
        _answer(batch.asked, found)
        self._keep({question: answer for question, answer in found.items() if isinstance(answer, bytes)})

    def _keep(self, found: dict[Asked, bytes]) -> None:
        self.kept.update(found)
        while len(self.kept) > REMEMBERED:
            self.kept.popitem(last=False)

    def close(self) -> None:
        """With the server. One that is merely replaced answers those who wait, and ends when nobody needs it."""
        self.threads.shutdown(wait=False, cancel_futures=True)


def _answer(asked: list[tuple[Asked, asyncio.Future[bytes]]], found: Mapping[Asked, bytes | Exception]) -> None:
    for question, future in asked:
        answer = found[question]
        if future.done():  # a reader may have left
            continue
        if isinstance(answer, bytes):
            future.set_result(answer)
        else:
            future.set_exception(answer)
