"""The lead's side: submit a run as a job, follow it, and submit it again from its checkpoints whenever it breaks.

FLARE gives a job up when a worker dies, and loses it when its server does. Our state is on the disks of server and
sites, so a new job of the same run goes on from the last round, and ends with the same bits.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.api_spec import (
    AuthenticationError,
    AuthorizationError,
    InternalError,
    JobNotFound,
    JobNotRunning,
    NoConnection,
)
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fedlu.errors import FedluError, InputError, UnavailableError
from fedlu.federated.arrivals import Rules
from fedlu.federated.rounds import Progress, RoundEvent
from fedlu.flare.controller import PAUSE, STATUS
from fedlu.flare.processes import HEARTBEAT_SECONDS, kit_of
from fedlu.flare.transport import GONE, TASKS
from fedlu.results.runs import Watch

POLL_SECONDS = 0.5
CONNECT_SECONDS = 10.0
LONGEST_PAUSE = 10.0
Say = Callable[[str], object]


@dataclass
class Order:
    """A run as the lead wants it."""

    run: str
    settings: dict[str, Any]
    rules: Rules
    deadline: int = 3600
    silence: int = 60
    recipe: str = ""
    evaluate: str = ""
    into: str = ""
    """The run that shall have forgotten."""
    sites: list[str] = field(default_factory=list)
    """Those of the kit, unless said otherwise."""
    everywhere: bool = True


@dataclass
class _Seen:
    """What the lead knows of a run so far."""

    round: int = 0
    away: dict[str, float] = field(default_factory=dict)  # site -> when it was first missed
    outcome: dict[str, Any] = field(default_factory=dict)


def learn(
    folder: Path, order: Order, *, watch: Watch | None = None, say: Say = lambda text: None, patience: float = 3600.0
) -> dict[str, Any]:
    """Until the run is done; `patience` is how many seconds without a new round are borne."""
    kit = kit_of(folder, "person")
    strangers = set(order.sites) - set(kit["sites"])
    if strangers:
        raise InputError(f"no site {min(strangers)!r}", remedy=f"choose from {', '.join(kit['sites'])}")
    order.everywhere, order.sites = not order.sites, order.sites or list(kit["sites"])
    seen, pause, last = _Seen(), 1.0, time.monotonic()
    while True:
        before = seen.round
        try:
            with _session(folder, kit) as session:
                job = _running(session, order) or _submit(session, order, kit)
                _follow(session, job, order, seen, watch)
        except UnavailableError as away:
            seen.outcome = {"state": "failed", "final": False, "reason": away.what}
        state = seen.outcome.get("state")
        if state == "finished":
            result: dict[str, Any] = seen.outcome["result"]
            return result
        reason = seen.outcome.get("reason", "the job broke off")
        if seen.outcome.get("final"):
            raise _refusal(reason, seen.outcome.get("code", 1))
        if seen.round > before:
            pause, last = 1.0, time.monotonic()
        if time.monotonic() - last > patience:
            raise FedluError(f"no progress in {patience:.0f} s: {reason}", where=order.run, remedy="learn again later")
        say("sites came back; going on with them" if state == "paused" else f"{reason}; trying again")
        if state != "paused":
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _refusal(reason: str, code: int) -> FedluError:
    refusal = FedluError(reason)
    refusal.exit_code = code
    return refusal


def _follow(session: Session, job: str, order: Order, seen: _Seen, watch: Watch | None) -> None:
    """Hand on the rounds until the job has an outcome, or is no more."""
    seen.outcome, seen.away, asked = {}, {}, False
    while True:
        try:
            status = session.do_app_command(job, STATUS, {"since": seen.round})
        except (NoConnection, AuthorizationError):
            raise
        except Exception as trouble:  # not begun yet, or over
            if _is_over(session, job):
                seen.outcome = seen.outcome or {"state": "failed", "final": False, "reason": _ending(session, job)}
                return
            logging.getLogger(__name__).debug("%s", trouble)
            time.sleep(POLL_SECONDS)
            continue
        for event in status.get("events", []):
            seen.round = event["round"]
            gone = [site for site, reason in event["dropped"].items() if reason == GONE]
            seen.away = {site: seen.away.get(site, time.time()) for site in gone}
            if watch is not None:
                watch(RoundEvent(**event), Progress(**status["progress"]))
        if status["state"] != "running":
            seen.outcome = status
            if status["state"] != "finished":
                _wait_until_over(session, job)
            return
        if not asked and seen.away and _back(session, seen.away):
            session.do_app_command(job, PAUSE, {})
            asked = True
        time.sleep(POLL_SECONDS)


def _back(session: Session, away: dict[str, float]) -> bool:
    """Whether a site that the job lost is connected again: it beats, after it was missed."""
    now = time.time()
    beats = {client.name: client.last_connect_time or 0.0 for client in session.get_connected_client_list()}
    fresh = (site for site, missed in away.items() if beats.get(site, 0.0) > missed + HEARTBEAT_SECONDS)
    return any(now - beats[site] < 3 * HEARTBEAT_SECONDS for site in fresh)


def _is_over(session: Session, job: str) -> bool:
    """Also if the server was restarted: it still lists the job as running then, but runs it no more."""
    try:
        status = str(session.get_job_meta(job).get("status", ""))
    except JobNotFound:
        return True
    if status.startswith("FINISHED"):
        return True
    running = {each.job_id for each in session.get_system_info().job_info}
    return status.startswith("RUNNING") and job not in running


def _ending(session: Session, job: str) -> str:
    try:
        return f"the job ended ({session.get_job_meta(job).get('status')})"
    except JobNotFound:
        return "the job is gone"


def _wait_until_over(session: Session, job: str, seconds: float = 60.0) -> None:
    """The sites' state is free for the next job only then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not _is_over(session, job):
        time.sleep(POLL_SECONDS)


# --- jobs ---------------------------------------------------------------------------------------------------------


def job_name(order: Order) -> str:
    return f"{order.run}.{'evaluate' if order.evaluate else 'forget' if order.into else 'learn'}"


def _running(session: Session, order: Order) -> str | None:
    """A job of this run that is at work or waits for its turn, to be followed rather than sent twice."""
    running = {each.job_id for each in session.get_system_info().job_info}
    for job in session.list_jobs():
        if job.get("job_name") != job_name(order):
            continue
        number, status = str(job["job_id"]), str(job.get("status", ""))
        if number in running or status.startswith(("SUBMITTED", "APPROVED", "DISPATCHED")):
            return number
        if status.startswith("RUNNING"):  # left behind by a server that was killed; it may know that it is over
            with suppress(JobNotRunning, InternalError):
                session.abort_job(number)
    return None


def _submit(session: Session, order: Order, kit: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        write_job(Path(scratch) / "job", order, kit["federation"])
        number: str = session.submit_job(str(Path(scratch) / "job"))
        return number


def write_job(folder: Path, order: Order, federation: str) -> None:
    """The job that FLARE is given: which of our components to run, and with what; no code."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    needed = order.rules.needed(len(order.sites))
    meta = {
        "name": job_name(order),
        "resource_spec": {},
        "deploy_map": {"app": ["@ALL"] if order.everywhere else ["server", *order.sites]},
        "min_clients": needed,
        "mandatory_clients": order.sites if needed == len(order.sites) else [],
    }
    arguments = {
        "run": order.run,
        "sites": order.sites,
        "settings": order.settings,
        "rules": _plain_rules(order.rules),
        "deadline": order.deadline,
        "silence": order.silence,
        "federation": federation,
        "recipe": order.recipe,
        "evaluate": order.evaluate,
        "into": order.into,
    }
    workflow = {"id": "rounds", "path": "fedlu.flare.controller.RoundsController", "args": arguments}
    executor = {"path": "fedlu.flare.executor.SiteExecutor", "args": {}}
    server = {"format_version": 2, "server": {"task_request_interval": 0.1}, "components": [], "workflows": [workflow]}
    client = {"format_version": 2, "components": [], "executors": [{"tasks": list(TASKS), "executor": executor}]}
    filters: dict[str, Any] = {"task_data_filters": [], "task_result_filters": []}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    (config / "config_fed_server.json").write_text(json.dumps({**server, **filters}), encoding="utf-8")
    (config / "config_fed_client.json").write_text(json.dumps({**client, **filters}), encoding="utf-8")


def _plain_rules(rules: Rules) -> dict[str, Any]:
    """Without what JSON cannot say."""
    return {name: value for name, value in vars(rules).items() if value != float("inf")}


# --- sessions -----------------------------------------------------------------------------------------------------


@contextmanager
def _session(folder: Path, kit: dict[str, Any]) -> Iterator[Session]:
    """A session in which whatever FLARE raises is a refusal or an absence of the server, said in a line."""
    session = None
    try:
        session = connect(folder, kit)
        yield session
    except FedluError:
        raise
    except (AuthenticationError, AuthorizationError) as refused:
        raise FedluError(f"the server refuses {kit['name']} ({refused})", remedy="ask who made the kits") from None
    except Exception as away:
        raise UnavailableError(f"no connection to the server ({away})", remedy="is it running?") from None
    finally:
        with suppress(Exception):  # it is being left anyway
            if session is not None:
                session.close()


def connect(folder: Path, kit: dict[str, Any]) -> Session:
    here = Path.cwd()
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        os.chdir(folder)  # FLARE puts its transfer folder into the working one
        with redirect_stdout(StringIO()):  # and talks
            return new_secure_session(
                kit["name"], str(here / folder), timeout=CONNECT_SECONDS, command_timeout=20.0, auto_login_max_tries=2
            )
    finally:
        os.chdir(here)


def status(folder: Path) -> dict[str, Any]:
    """Who is connected, and what is being learned."""
    kit = kit_of(folder, "person")
    with _session(folder, kit) as session:
        info = session.get_system_info()
        jobs = [{"name": job.get("job_name"), "status": job.get("status")} for job in session.list_jobs()]
        running = []
        for job in info.job_info:
            with suppress(Exception):  # it has not begun, or is about to end; the connection is fine
                running.append(session.do_app_command(job.job_id, STATUS, {"since": 10**9})["progress"])
    heard = {client.name: client.last_connect_time for client in info.client_info}
    sites = {site: time.time() - heard[site] if heard.get(site) else None for site in kit["sites"]}
    return {"federation": kit["federation"], "sites": sites, "jobs": jobs, "running": running}


def stop(folder: Path, run: str) -> int:
    """Abort the jobs of a run; how many there were. What was learned is kept."""
    names, number = {f"{run}.{what}" for what in ("learn", "evaluate", "forget")}, 0
    with _session(folder, kit_of(folder, "person")) as session:
        for job in session.list_jobs():
            if job.get("job_name") not in names or str(job.get("status", "")).startswith("FINISHED"):
                continue
            if str(job.get("status", "")).startswith("RUNNING") and _ends_by_itself(session, str(job["job_id"])):
                continue
            with suppress(JobNotRunning, InternalError):
                session.abort_job(job["job_id"])
                number += 1
    return number


def _ends_by_itself(session: Session, job: str, seconds: float = 10.0) -> bool:
    """Whether a job has its result already: FLARE lists it as running for seconds after its last answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not _is_over(session, job):
        try:
            state: str = session.do_app_command(job, STATUS, {"since": 10**9})["state"]
            return state == "finished"
        except (NoConnection, AuthorizationError):
            raise
        except Exception as trouble:  # it has not begun, or is being cleared away
            logging.getLogger(__name__).debug("%s", trouble)
            time.sleep(POLL_SECONDS)
    return _is_over(session, job)
