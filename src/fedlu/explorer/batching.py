"""Questions that arrive while others are answered are answered together: a table is read once for all of them.

Two threads do all the scoring, so that one batch is scored while another is written and sent, and the loop that talks
to browsers is never held up. A model of PyKEEN's is in one hand: there is one thread for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fedlu.explorer.answers import Asked, answer_together
from fedlu.results.prediction import LearnedRun

MOST_TOGETHER = 16
"""Questions in a batch. More would save a little, and make everybody wait for everybody."""
REMEMBERED = 4096
"""Answers kept, the oldest going first; some ten megabytes."""

Result = TypeVar("Result")


class Batcher:
    """Answers for one run; `close` it with the server."""

    def __init__(self, run: LearnedRun) -> None:
        self.run = run
        self.waiting: list[tuple[Asked, asyncio.Future[bytes]]] = []
        self.busy: set[asyncio.Task[None]] = set()
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
        if len(self.busy) < self.hands:
            task = asyncio.create_task(self._serve())
            self.busy.add(task)
            task.add_done_callback(self.busy.discard)
        return await future

    async def work(self, function: Callable[..., Result], *values: Any) -> Result:
        """Something else for the threads that score, in its turn."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, function, *values)

    async def _serve(self) -> None:
        while self.waiting:
            batch = self._next()
            questions = list(dict.fromkeys(question for question, _ in batch))
            try:
                found = dict(zip(questions, await self.work(answer_together, self.run, questions), strict=True))
            except Exception as trouble:  # whoever asked is told
                for _, future in batch:
                    if not future.done():
                        future.set_exception(trouble)
                continue
            for question, future in batch:
                if not future.done():  # a reader may have left
                    future.set_result(found[question])
            self._keep(found)

    def _next(self) -> list[tuple[Asked, asyncio.Future[bytes]]]:
        """The oldest question and others like it, which are scored at once: of one client, side and length."""
        kind = self.waiting[0][0].kind
        alike = [place for place, (question, _) in enumerate(self.waiting) if question.kind == kind][:MOST_TOGETHER]
        batch = [self.waiting[place] for place in alike]
        for place in reversed(alike):
            del self.waiting[place]
        return batch

    def _keep(self, found: dict[Asked, bytes]) -> None:
        self.kept.update(found)
        while len(self.kept) > REMEMBERED:
            self.kept.popitem(last=False)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
