"""Who is let in, and what a party that turned bad can do: little, and it is logged with its name and the reason."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError, InternalError, NoConnection

from fedlu.federated.arrivals import Rules
from fedlu.flare import lead
from fedlu.flare.processes import kit_of
from fedlu.flare.provisioning import Person, Plan, Site, init
from tests.flare.conftest import options
from tests.flare.deployment import PATIENCE, Deployment, wait_until

pytestmark = pytest.mark.slow

BAD_SITE = """
    import time
    from dataclasses import replace
    import numpy as np
    import fedlu.flare.executor as executor

    honest = executor.to_shareable

    def hostile(message):
        if type(message).__name__ != "Trained":
            return honest(message)
        rows = message.rows
        if message.round == 8:
            time.sleep(SLEEP)
        return honest({
            2: lambda: replace(message, rows=np.full_like(rows, np.nan)),
            3: lambda: replace(message, rows=rows[:-1]),
            4: lambda: replace(message, rows=np.zeros((200_000, rows.shape[1]), np.float32)),
            5: lambda: replace(message, round=4),
            6: lambda: replace(message, rows=rows.astype(np.float64)),
            7: lambda: replace(message, rows=rows + np.float32(1e6)),
        }.get(message.round, lambda: message)())

    executor.to_shareable = hostile
"""


def test_a_site_that_turns_bad_is_dropped_with_its_reason(federation: Deployment) -> None:
    """Over the wire: NaN, wrong shapes, oversized, replayed, of another type, out of bounds, and too late."""
    deadline = int(PATIENCE / 24)
    federation.kill("client-2")
    federation.start("client-2", with_code=BAD_SITE.replace("SLEEP", str(1.3 * deadline)))
    federation.learn("hostile", *options(rounds=8), "--quorum", "0.6", "--deadline", str(deadline))
    federation.finish("hostile")
    events = federation.events("hostile")
    reasons = [event["dropped"].get("client-2", "") for event in events]
    expected = [
        "",
        "not finite",
        "rows of",
        "rows of",
        "round 4, asked for 5",
        "float64",
        "above the bound",
        "deadline",
    ]
    assert all(part in reason for part, reason in zip(expected, reasons, strict=True)), reasons
    assert all(set(event["dropped"]) <= {"client-2"} for event in events)
    assert "dropped client-2" in (federation.kits["localhost"] / "log.txt").read_text() or any(
        "dropped client-2" in path.read_text(errors="replace") for path in federation.kits["localhost"].rglob("log.txt")
    )
    metrics = json.loads((federation.runs / "hostile" / "metrics.json").read_text())
    assert 0 < metrics["test"]["global"]["weighted"]["mrr"] < 1
    federation.kill("client-2")
    federation.start("client-2")


def test_a_lost_site_is_done_without_and_rejoins(federation: Deployment) -> None:
    run = "rejoin"
    federation.learn(run, *options(rounds=2000), "--quorum", "0.6", "--silence", "4")
    federation.wait_for_round("client-0", run, 2)
    federation.kill("client-2")
    events = federation.runs / run / "events.jsonl"
    wait_until(lambda: "the site is gone" in events.read_text(), "a round without client-2")
    before = federation.round_of("client-2", run)
    federation.start("client-2")
    federation.wait_for_round("client-2", run, before + 1)
    wait_until(lambda: json.loads(events.read_text().splitlines()[-1])["dropped"] == {}, "a round with all")
    assert "sites came back" in federation.said(run)
    lead.stop(federation.lead, run)
    federation.processes[run].kill()
    federation.processes[run].wait()


# --- who is let in ------------------------------------------------------------------------------------------------


def talk(port: int, kit: Path | None, trust: Path) -> None:
    """A TLS handshake with this kit's certificate, and a first byte to see whether it was accepted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(trust / "startup" / "rootCA.pem")
    context.set_alpn_protocols(["h2"])
    if kit is not None:
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain, context.wrap_socket(plain) as line:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        if not line.recv(9):
            raise ConnectionError("closed")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory, federation: Deployment) -> dict[str, Path]:
    """Kits of the same names, by another authority."""
    sites = tuple(Site(name, f"org_{number}") for number, name in enumerate(federation.sites))
    plan = Plan("trial", "localhost", federation.port, "127.0.0.1", "lab", sites, (Person("lead@example.org", "lab"),))
    return init(plan, tmp_path_factory.mktemp("strangers") / "kits")


def test_only_certificates_of_the_federation_are_let_in(federation: Deployment, strangers: dict[str, Path]) -> None:
    own = federation.kits["client-0"]
    wait_until(lambda: _connects(federation.port), "the server")
    talk(federation.port, own, trust=own)
    for kit in (None, strangers["client-0"], strangers["lead@example.org"]):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            talk(federation.port, kit, trust=own)
    with pytest.raises(ssl.SSLCertVerificationError):  # nor does a site believe a server of another authority
        talk(federation.port, own, trust=strangers["client-0"])


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_site_cannot_pass_for_another(federation: Deployment, tmp_path: Path) -> None:
    """The kit of client-1, with its name changed to client-0: its certificate says otherwise."""
    import shutil

    kit = tmp_path / "kit"
    shutil.copytree(federation.kits["client-1"], kit, ignore=shutil.ignore_patterns("running.json", "log*"))
    description = json.loads((kit / "fedlu.json").read_text())
    (kit / "fedlu.json").write_text(json.dumps({**description, "name": "client-0"}))
    words = ["site", "start", kit, "--data", federation.folder / "data" / "client-1"]
    with (tmp_path / "out").open("wb") as out:
        impostor = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "fedlu",
                *map(str, [*words, "--key", federation.key, "--state", tmp_path / "state"]),
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        said = wait_until(
            lambda: _refused((tmp_path / "out").read_text(errors="replace"), impostor.poll()), "a refusal"
        )
        assert "Successfully registered" not in said
    finally:
        impostor.kill()
        impostor.wait()


def _refused(said: str, code: int | None) -> str:
    marks = ("rejected", "not match", "UNAUTHENTICATED", "unauthenticated", "invalid", "Login failed", "does not")
    return said if code is not None or any(mark in said for mark in marks) else ""


def job_with(folder: Path, federation: Deployment, **changes: Any) -> Path:
    """A job as ours, but for something foreign in it."""
    order = lead.Order("foreign", {}, Rules(), sites=list(federation.sites))
    lead.write_job(folder, order, "trial")
    for side in ("server", "client"):
        path = folder / "app" / "config" / f"config_fed_{side}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes.get(side, {})}))
    return folder


def session_of(kit: Path) -> Any:
    """As soon as the server is up."""

    def attempt() -> Any:
        try:
            return lead.connect(kit, kit_of(kit, "person"))
        except NoConnection:
            return None

    return wait_until(attempt, "a session")


def test_a_member_cannot_submit_a_job(federation: Deployment, tmp_path: Path) -> None:
    session = session_of(federation.kits["member@example.org"])
    try:
        with pytest.raises(AuthorizationError):
            session.submit_job(str(job_with(tmp_path / "job", federation)))
    finally:
        session.close()


def test_foreign_code_is_never_run_even_for_the_lead(federation: Deployment, tmp_path: Path) -> None:
    """Code in the job, and a class of the library that could run any program."""
    mark = tmp_path / "mark"
    own = job_with(tmp_path / "own", federation, **on_both_sides({"id": "evil", "path": "evil.Evil", "args": {}}))
    (own / "app" / "custom").mkdir()
    evil = f"class Evil:\n    def __init__(self):\n        open({str(mark)!r}, 'w').close()\n"
    (own / "app" / "custom" / "evil.py").write_text(evil)
    touch = {"id": "evil", "path": "subprocess.Popen", "args": {"args": ["touch", str(mark)]}}
    library = job_with(tmp_path / "library", federation, **on_both_sides(touch))
    session = session_of(federation.lead)
    try:
        for folder in (own, library):
            try:
                job = session.submit_job(str(folder))
            except (AuthorizationError, InternalError):
                continue  # refused at the door
            status = wait_until(lambda job=job: ended(session, job), "the end of a foreign job")
            assert "COMPLETED" not in status
        time.sleep(1)
        assert not mark.exists()
        with pytest.raises((AuthorizationError, InternalError)):  # nor can the lead look into a site's files
            session.ls_target("client-0")
    finally:
        session.close()


def on_both_sides(component: dict[str, Any]) -> dict[str, Any]:
    return {side: {"components": [component]} for side in ("client", "server")}


def ended(session: Any, job: str) -> str:
    status = str(session.get_job_meta(job).get("status"))
    return status if status.startswith(("FINISHED", "FAILED", "REJECTED", "ABANDONED")) else ""
