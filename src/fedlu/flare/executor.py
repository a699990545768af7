"""A site's part of a job: hands each task to the site's client, whose state is on disk, and sends back its answer."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

import fedlu
from fedlu.config import Settings
from fedlu.errors import FedluError, InputError
from fedlu.federated.messages import Begin, MessageError
from fedlu.flare.packets import refusal, to_message, to_shareable
from fedlu.flare.processes import SiteFiles, die_with_parent
from fedlu.flare.transport import TASKS
from fedlu.graph.federation import Federation, load_client, refuse_leaks
from fedlu.results.files import alone
from fedlu.results.memory import refuse_too_large
from fedlu.results.sites import Site

if TYPE_CHECKING:
    from fedlu.results.site_forgetting import ForgettingSite

PATIENCE = 30.0
KINDS = {name: name.capitalize() for name in TASKS}


class SiteExecutor(Executor):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        die_with_parent()
        self.files = SiteFiles.of_environment()
        self.key = self.files.read_key()
        self.site: Site | ForgettingSite | None = None
        self.held = ExitStack()
        self.log = logging.getLogger(__name__)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """What goes wrong is told in full to the site's own log; the server learns what kind of trouble it is."""
        try:
            message = to_message(shareable, KINDS.get(task_name, ""), "server")
            answer = self._answer(message, fl_ctx.get_identity_name())
        except MessageError as bad:
            self.log.warning("%s: refused: %s", task_name, bad)
            return refusal(bad.what)
        except FedluError as bad:
            self.log.error("%s: %s", task_name, bad)
            return refusal(f"{type(bad).__name__} at the site; its log says more")
        except OSError as trouble:
            self.log.error("%s: %s", task_name, trouble)
            return refusal(f"trouble with a file at the site ({trouble.strerror}); its log says more")
        return make_reply(ReturnCode.OK) if answer is None else to_shareable(answer)

    def _answer(self, message: Any, name: str) -> Any:
        if isinstance(message, Begin):
            self.site = self._begin(message, name)
            return self.site.register(self.key)
        if self.site is None:
            raise MessageError("asked before it began")
        handler = getattr(self.site, type(message).__name__.lower(), None)
        if handler is None:
            raise MessageError("asked for what has no place in this job")
        return handler(message)

    def _take_state(self) -> None:
        """Alone; the process of a job that was lost may need a moment to end."""
        self.held.close()
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.held.enter_context(alone(self.files.state))
                return
            except InputError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.2)

    def _begin(self, message: Begin, name: str) -> Site | ForgettingSite:
        if message.version != fedlu.__version__:
            raise MessageError(f"the server has fedlu {message.version[:20]}, this site {fedlu.__version__}")
        try:
            settings = Settings(**message.settings)
        except (TypeError, InputError):
            raise MessageError("settings that this site does not accept") from None
        self._take_state()
        graph = load_client(self.files.data)
        refuse_leaks(self.files.data.parent, (graph,))
        graph = replace(graph, name=name)  # draws are named by it: the same at every restart, wherever the data is
        refuse_too_large(Federation(name, (graph,)), settings)
        site = Site(graph, settings, self.files.state / message.run)
        if not message.into:
            return site
        from fedlu.results.site_forgetting import ForgettingSite  # with all that an audit needs

        return ForgettingSite(site, self.files.state / message.into)
