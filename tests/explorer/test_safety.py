"""Who may talk to the explorer, and who may not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from fedlu.explorer.safety import HEADERS, LARGEST_BODY, Guard, Message, _bounded, host_name
from tests.explorer.conftest import Asking, exploring
from tests.test_cli import run as command


async def nobody(*_: object) -> None:
    raise AssertionError("nothing is passed on here")


def guard(host: str = "127.0.0.1", token: str | None = None) -> Guard:
    return Guard(nobody, host=host, token=token)


def status(guard: Guard, path: str = "/api/run", method: str = "GET", query: bytes = b"", **headers: str) -> int | None:
    found = guard.refusal(method, path, query, {name.replace("_", "-"): value for name, value in headers.items()})
    return None if found is None else found[0]


@pytest.mark.parametrize("host", ["127.0.0.1:8237", "localhost", "LOCALHOST:1", "[::1]:8237"])
def test_this_machine_is_welcome(host: str) -> None:
    assert status(guard(), host=host) is None
    assert status(guard(), host=host, origin=f"http://{host}") is None


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8", "", "[::", "a@b"]
)
def test_other_names_for_this_machine_are_refused(host: str) -> None:
    """A foreign name may be made to resolve here; the browser would then let its page read the answers."""
    assert status(guard(), host=host) == 421
    assert status(guard(), "/", host=host) == 421


def test_other_sites_are_refused() -> None:
    local = "127.0.0.1:8237"
    assert status(guard(), host=local, origin="http://evil.example") == 403
    assert status(guard(), host=local, origin="null") == 403
    assert status(guard(), host=local, origin="http://127.0.0.1:9999") == 403  # another server of this machine
    assert status(guard(), host=local, sec_fetch_site="cross-site") == 403
    assert status(guard(), host=local, sec_fetch_site="same-site") == 403
    assert status(guard(), host=local, sec_fetch_site="same-origin") is None
    assert status(guard(), "/", host=local, sec_fetch_site="cross-site") is None  # a link to the page itself


def test_bodies_are_json_and_small() -> None:
    local = {"host": "localhost", "content_type": "application/json"}
    assert status(guard(), method="POST", **local) is None
    assert status(guard(), method="POST", host="localhost", content_type="text/plain") == 415
    assert status(guard(), method="POST", host="localhost") == 415
    for length in (str(LARGEST_BODY + 1), "9" * 30, "-1", "many"):
        assert status(guard(), method="POST", content_length=length, **local) == 413
    assert status(guard(), query=b"q" * 9000, host="localhost") == 413


def test_a_body_that_hides_its_length_is_cut_off() -> None:
    async def pieces() -> Message:
        return {"type": "http.request", "body": b" " * 1024, "more_body": True}

    async def read() -> list[str]:
        receive = _bounded(pieces)
        return [(await receive())["type"] for _ in range(66)]

    kinds = asyncio.run(read())
    assert kinds[:64] == ["http.request"] * 64
    assert kinds[64:] == ["http.disconnect"] * 2


def test_a_token_is_needed_where_it_is_set() -> None:
    secret = guard("0.0.0.0", "correct horse battery")
    assert status(secret, host="anything.example") == 401
    assert status(secret, host="anything.example", authorization="Bearer wrong") == 401
    assert status(secret, host="anything.example", authorization="Bearer correct horse battery") is None
    assert status(secret, host="anything.example", authorization="Bearer corréct") == 401
    assert status(secret, "/", host="anything.example") is None  # the page itself tells nothing
    assert host_name("[::") == ""


def test_every_answer_carries_the_headers(asking: Asking) -> None:
    for path in ("/", "/explore.js", "/api/run", "/api/nothing", "/api/predict"):
        reply = asking.get(path)
        for name, value in HEADERS.items():
            assert reply.headers[name] == value
        assert "access-control-allow-origin" not in reply.headers
    refused = asking.get("/api/run", headers={"host": "evil.example"})
    assert refused.status_code == 421
    assert refused.headers["x-content-type-options"] == "nosniff"
    preflight = asking.request("OPTIONS", "/api/forget", headers={"origin": "http://evil.example"})
    assert preflight.status_code == 403


def test_pages_hold_no_script_or_style_of_their_own(asking: Asking) -> None:
    """What the policy would refuse is not there; nothing is fetched from elsewhere."""
    for path in ("/", "/docs"):
        text = asking.get(path).text
        assert "<style" not in text
        assert " style=" not in text
        assert "onclick" not in text
        assert "//" not in text.replace("<!doctype html>", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "fedlu: --host 0.0.0.0 is open to others; give --token, for example "),
        (["--host", "0.0.0.0", "--token", "short"], "fedlu: the token is too short to keep anybody out"),
        (["--token", "with spaces in between"], "fedlu: the token has letters that no header can carry"),
        (["--host", "203.0.113.7", "--token", "long-enough-token"], "fedlu: cannot listen to 203.0.113.7:8237"),
    ],
)
def test_unsafe_starts_are_one_line(
    hostile_run: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    code, out, err = command("explore", hostile_run, "--no-browser", *options, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_without_its_packages_it_says_what_to_install(hostile_run: Path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None\nfrom fedlu.cli import main; main(['explore', sys.argv[1]])"
    done = subprocess.run([sys.executable, "-c", code, str(hostile_run)], capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr == "fedlu: uvicorn is not installed; pip install 'fedlu[explore]'\n"


def test_over_a_real_socket(hostile_run: Path) -> None:
    """Started as a person starts it: it answers here, refuses strangers, and Ctrl-C ends it."""
    with exploring(hostile_run, "--token", "a-token-for-the-test") as address:
        base, token = address.split("/#token=")
        assert base.startswith("http://127.0.0.1:")
        assert token == "a-token-for-the-test"
        assert httpx.get(f"{base}/").status_code == 200
        assert httpx.get(f"{base}/api/run").status_code == 401
        known = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{base}/api/run", headers=known).json()["method"] == "fedlu"
        assert httpx.get(f"{base}/api/run", headers={**known, "host": "evil.example"}).status_code == 421
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{base}/")
