"""Who may talk to the explorer: this machine's own browser pages, or whoever has the token. A plain ASGI layer.

A page from elsewhere can make a browser send requests here. So the Host header must name this machine (a foreign name
that resolves here is refused), a request that says it comes from another site is refused, and no answer allows another
origin to read it. Where the explorer listens to the network, every question needs the token.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ANYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104, recognised here, not bound to
LARGEST_BODY = 64 * 1024
LONGEST_QUERY = 8 * 1024
MOST_WELCOME = 64
"""Sets of headers that are remembered as welcome."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
OURS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Guard:
    """Refuses before anything is read; puts the headers of safety on every answer."""

    def __init__(self, app: App, *, host: str, token: str | None) -> None:
        self.app, self.token = app, token
        self.hosts = None if host in ANYWHERE else LOOPBACK | {host.lower()}
        self.welcome: set[tuple[object, ...]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets here
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        await self.app(scope, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """A browser sends the same headers again and again: they are judged once. Tokens are not kept."""
        method, path, query = scope["method"], scope["path"], scope.get("query_string", b"")
        key = (method, path.startswith("/api"), *scope["headers"])
        is_usual = self.token is None and len(query) <= LONGEST_QUERY
        if is_usual and key in self.welcome:
            return None
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self.refusal(method, path, query, headers)
        if is_usual and refusal is None and len(self.welcome) < MOST_WELCOME:
            self.welcome.add(key)
        return refusal

    def refusal(self, method: str, path: str, query: bytes, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and reason, or None for a welcome guest."""
        if self.hosts is not None and host_name(headers.get("host", "")) not in self.hosts:
            return 421, "this is not the host you are looking for"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return 403, "requests from other sites are refused"
        if path.startswith("/api") and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests from other sites are refused"
        if len(query) > LONGEST_QUERY or not _is_small(headers.get("content-length", "0")):
            return 413, "the request is too large"
        if method == "POST" and headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return 415, "send application/json"
        if path.startswith("/api") and self.token is not None:
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not secrets.compare_digest(given.encode("utf-8"), self.token.encode("utf-8")):
                return 401, "the token is missing or wrong; open the address that `fedlu explore` printed"
        return None


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_small(length: str) -> bool:
    return length.isascii() and length.isdigit() and int(length[:12]) <= LARGEST_BODY


def _bounded(receive: Receive) -> Receive:
    """A body may be sent in pieces without saying how long it is: it ends at the bound."""
    left = LARGEST_BODY

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return bounded


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *OURS]
        await send(message)

    return sending


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await _with_headers(send)({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
