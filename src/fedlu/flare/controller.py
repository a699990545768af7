"""The server's part of a job: runs the rounds over FLARE's tasks, and answers the lead who watches."""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
from typing import Any

from nvflare.apis.client import Client as FlareClient
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

import fedlu
from fedlu.config import Settings
from fedlu.errors import FedluError
from fedlu.federated.arrivals import QuorumError, Rules
from fedlu.federated.messages import Begin
from fedlu.federated.rounds import Progress, RoundEvent
from fedlu.federated.wire import is_name
from fedlu.flare.processes import die_with_parent, server_folder
from fedlu.flare.transport import AbortedError, FlareTransport
from fedlu.results import hosted
from fedlu.results.files import read_json

STATUS = "fedlu.status"
PAUSE = "fedlu.pause"
LINGER = 20.0
"""Seconds that a job stays to be asked how it ended."""


class PausedError(FedluError):
    """The lead asked to stop after a round, to begin again with sites that came back."""


class RoundsController(Controller):  # type: ignore[misc]
    """What the job's configuration names; its arguments come from the lead."""

    def __init__(
        self,
        run: str,
        sites: list[str],
        settings: dict[str, Any],
        rules: dict[str, Any],
        deadline: int,
        silence: int,
        federation: str,
        recipe: str = "",
        evaluate: str = "",
        into: str = "",
    ):
        super().__init__(task_check_period=0.05)
        self.run_name, self.sites, self.settings = run, sites, settings
        self.rules = Rules(**{**rules, "averages_only": True})
        self.deadline, self.silence = deadline, silence
        self.federation, self.recipe, self.evaluate, self.into = federation, recipe, evaluate, into
        self.events: list[dict[str, Any]] = []
        self.progress = Progress()
        self.outcome: dict[str, Any] = {"state": "running"}
        self.pause, self.heard = threading.Event(), threading.Event()
        self.log = logging.getLogger(__name__)

    def start_controller(self, fl_ctx: FLContext) -> None:
        die_with_parent()
        # at the end of a job FLARE would load torch, for seconds and 200 MB, to look for tensors that nobody sends
        sys.modules.setdefault("nvflare.app_opt.pt.tensor_downloader", None)  # type: ignore[arg-type]
        engine = fl_ctx.get_engine()
        engine.register_app_command(STATUS, self._status)
        engine.register_app_command(PAUSE, self._pause)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        try:
            self.outcome = {"state": "finished", "result": self._work(abort_signal, fl_ctx)}
        except AbortedError:
            return
        except PausedError:
            self.outcome = {"state": "paused"}
        except QuorumError as short:
            self.outcome = {"state": "failed", "final": False, "reason": str(short)}
        except FedluError as refused:
            self.outcome = {"state": "failed", "final": True, "reason": str(refused), "code": refused.exit_code}
        except OSError as trouble:  # a full disk, say: what was saved is whole, so it can go on once there is room
            self.outcome = {"state": "failed", "final": False, "reason": f"the server: {trouble.strerror or trouble}"}
        except Exception as bug:  # the lead is to know of it, too
            self.log.exception("%s", self.run_name)
            self.outcome = {"state": "failed", "final": True, "reason": f"the server failed ({type(bug).__name__})"}
        self.log.info("%s: %s %s", self.run_name, self.outcome["state"], self.outcome.get("reason", ""))
        self.heard.wait(timeout=LINGER)
        if self.outcome["state"] == "failed":
            self.system_panic(self.outcome["reason"], fl_ctx)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        self.cancel_all_tasks()

    def process_result_of_unknown_task(
        self, client: FlareClient, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        self.log.warning("%s: dropped %s: a reply that nobody waits for", task_name, client.name)

    def _work(self, stop: Signal, fl_ctx: FLContext) -> dict[str, Any]:
        if not is_name(self.run_name) or (self.into and not is_name(self.into)):
            raise FedluError("the run has a name that is none")
        settings = Settings(**self.settings)
        folder = server_folder() / self.run_name
        if self.into or self.evaluate:  # with the settings that it was learned with
            settings = Settings(**read_json(folder / "config.json")["settings"])
        begin = Begin(self.run_name, dataclasses.asdict(settings), fedlu.__version__, self.into)
        transport = FlareTransport(self, fl_ctx, stop, begin, sorted(self.sites))
        transport.rules, transport.deadline, transport.silence = self.rules, self.deadline, self.silence
        if self.into:
            return hosted.forget(folder, server_folder() / self.into, transport, lambda: _after(transport), self.rules)
        if self.evaluate:
            return hosted.evaluate(folder, self.evaluate, transport, self.rules)
        return hosted.learn(
            folder,
            settings,
            sorted(self.sites),
            transport,
            rules=self.rules,
            name=self.federation,
            recipe=self.recipe,
            watch=self._watch,
        )

    # --- for the lead

    def _watch(self, event: RoundEvent, progress: Progress) -> None:
        for site, reason in sorted(event.dropped.items()):
            self.log.warning("round %d: dropped %s: %s", event.round, site, reason)
        self.events.append(dataclasses.asdict(event))
        self.progress = dataclasses.replace(progress)
        if self.pause.is_set() and not progress.finished:
            raise PausedError("paused")

    def _status(self, topic: str, data: Any, fl_ctx: FLContext, *_: Any, **__: Any) -> dict[str, Any]:
        since = data.get("since", 0) if isinstance(data, dict) else 0
        events = [event for event in list(self.events) if event["round"] > since]
        found = {**self.outcome, "events": events, "progress": dataclasses.asdict(self.progress)}
        if self.outcome["state"] != "running":
            self.heard.set()
        return found

    def _pause(self, topic: str, data: Any, fl_ctx: FLContext, *_: Any, **__: Any) -> dict[str, Any]:
        self.pause.set()
        return {}


def _after(transport: FlareTransport) -> FlareTransport:
    """The same sites, about the run that has forgotten."""
    transport.begin = dataclasses.replace(transport.begin, run=transport.begin.into, into="")
    return transport
