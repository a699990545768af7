"""The transport of `rounds.py` over FLARE: a task for each site with a payload of its own, and a deadline for all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedlu.errors import FedluError
from fedlu.federated.arrivals import QuorumError, Rules
from fedlu.federated.messages import (
    Begin,
    Keep,
    Measure,
    Measured,
    MessageError,
    Missing,
    Recall,
    Registration,
    Train,
    Trained,
    Unlearn,
    Unlearned,
    Welcome,
)
from fedlu.federated.wire import Message
from fedlu.flare.packets import reason_of, to_message, to_shareable

BEGIN, WELCOME, TRAIN, MEASURE, KEEP, RECALL, UNLEARN = TASKS = (
    "begin",
    "welcome",
    "train",
    "measure",
    "keep",
    "recall",
    "unlearn",
)
LATE = "no reply before the deadline"
GONE = "the site is gone"


class AbortedError(FedluError):
    """The job was stopped from outside."""


class FlareTransport:
    def __init__(self, controller: Controller, context: FLContext, stop: Signal, begin: Begin, sites: list[str]):
        self.controller, self.context, self.stop = controller, context, stop
        self.begin, self.sites = begin, sites
        self.rules, self.deadline, self.silence = Rules(), 3600, 60
        self.log = logging.getLogger(__name__)
        self.heard = dict.fromkeys(sites, time.monotonic())
        """When each site last gave a sign of life."""
        self._listen()

    def register(self) -> Sequence[Registration | Missing]:
        found = self._ask(BEGIN, dict.fromkeys(self.sites, self.begin), "Registration")
        return list(found.values())

    def welcome(self, messages: dict[str, Welcome]) -> None:
        self._tell(WELCOME, dict(messages))

    def train(self, messages: dict[str, Train]) -> Sequence[Trained | Missing]:
        asked: dict[str, Message] = {site: messages.pop(site) for site in list(messages)}
        return list(self._ask(TRAIN, asked, "Trained").values())

    def measure(self, messages: dict[str, Measure]) -> Sequence[Measured | Missing]:
        return list(self._ask(MEASURE, dict(messages), "Measured").values())

    def keep(self, message: Keep) -> None:
        self._tell(KEEP, dict.fromkeys(self.sites, message))

    def recall(self, message: Recall) -> Sequence[Unlearned | Missing]:
        return list(self._ask(RECALL, dict.fromkeys(self.sites, message), "Unlearned").values())

    def unlearn(self, messages: dict[str, Unlearn]) -> Sequence[Unlearned | Missing]:
        return list(self._ask(UNLEARN, dict(messages), "Unlearned").values())

    # --- inside

    def _listen(self) -> None:
        """FLARE tells its communicator of every heartbeat of a job; a site restarted meanwhile has none."""
        communicator = self.controller.communicator
        told = communicator.client_is_active

        def client_is_active(client_name: str, reason: str, fl_ctx: FLContext) -> None:
            self.heard[client_name] = time.monotonic()
            told(client_name, reason, fl_ctx)

        communicator.client_is_active = client_is_active

    def _is_gone(self, site: str) -> bool:
        silent = time.monotonic() - self.heard.get(site, 0.0) > self.silence
        return silent or bool(self.controller.get_client_disconnect_time(site))

    def _tell(self, name: str, messages: dict[str, Message]) -> None:
        """Send what needs no answer but has to arrive, at a quorum at least."""
        found = self._exchange(name, messages, lambda shareable, site: None)
        missing = {site: reply.reason for site, reply in found.items() if isinstance(reply, Missing)}
        if len(found) - len(missing) < self.rules.needed(len(found)):
            reasons = "; ".join(f"{site}: {reason}" for site, reason in sorted(missing.items()))
            raise QuorumError(f"{name}: not heard by enough sites ({reasons})")

    def _ask(self, name: str, messages: dict[str, Message], kind: str) -> dict[str, Any]:
        return self._exchange(name, messages, lambda shareable, site: to_message(shareable, kind, site))

    def _exchange(
        self, name: str, messages: dict[str, Message], read: Callable[[Shareable, str], Any]
    ) -> dict[str, Any]:
        """Each site's answer, or why there is none. Who answered is said by the certificate, not by the answer.

        Messages are taken out of the dictionary, so that nothing but the task holds their rows.
        """
        answers: dict[str, Any] = {}
        changed = threading.Condition()

        def arrived(client_task: ClientTask, fl_ctx: FLContext) -> None:
            site, result = client_task.client.name, client_task.result
            client_task.result = None  # the rows are read once; FLARE need not keep them
            reason = reason_of(result)
            try:
                answer = Missing(site, reason) if reason is not None else read(result, site)
            except MessageError as bad:
                answer = Missing(site, bad.what)
            with changed:
                answers[site] = answer
                changed.notify()
            client_task.task.data = Shareable()  # nor what was asked

        tasks = {site: self._send(name, site, messages.pop(site), arrived) for site in list(messages)}
        end = time.monotonic() + self.deadline
        with changed:
            while len(answers) < len(tasks) and time.monotonic() < end:
                changed.wait(timeout=0.2)
                if self.stop.triggered:
                    raise AbortedError("the job was aborted")
                for site in tasks.keys() - answers.keys():
                    if self._is_gone(site):
                        answers[site] = Missing(site, GONE)
            found = {**{site: Missing(site, LATE) for site in tasks}, **answers}
            answers.clear()  # FLARE keeps its tasks, and they know `arrived`, for some rounds
        for site, answer in sorted(found.items()):
            if isinstance(answer, Missing):
                self.controller.cancel_task(tasks[site])
                self.log.warning("%s: dropped %s: %s", name, site, answer.reason)
        return found

    def _send(self, name: str, site: str, message: Message, arrived: Callable[[ClientTask, FLContext], None]) -> Task:
        task = Task(name, to_shareable(message), timeout=self.deadline, result_received_cb=arrived)
        self.controller.send(task, self.context, targets=[site])  # a broadcast would copy the rows
        return task
