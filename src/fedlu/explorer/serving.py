"""Start the explorer: choose a port, tell the address, open a browser, and serve until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn

from fedlu.errors import InputError
from fedlu.explorer.api import Explorer, app_of
from fedlu.explorer.safety import ANYWHERE, LOOPBACK
from fedlu.results import prediction


def serve(
    run: Path,
    *,
    host: str,
    port: int,
    token: str | None,
    allow_forget: bool,
    browser: bool,
    tell: Callable[[str], object],
) -> None:
    """Serve a run; `tell` gets the address once it is listened to. Outside loopback, a token is demanded."""
    if host not in LOOPBACK and token is None:
        remedy = f"give --token, for example {secrets.token_urlsafe(16)}"
        raise InputError(f"--host {host} is open to others", remedy=remedy)
    if token is not None and len(token) < 12:
        raise InputError("the token is too short to keep anybody out", remedy="give at least 12 characters")
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise InputError("the token has letters that no header can carry", remedy="use letters and digits")
    listener = _listen(host, port)
    loaded = prediction.load(run)
    for desk in loaded.desks.values():
        desk.prepare()
    explorer = Explorer(loaded, allow_forget=allow_forget)
    app = app_of(explorer, host=host, token=token)
    address = _address(host, listener.getsockname()[1], token)
    tell(address)
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    options = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody stands between, and it costs something with every request
        ws="none",
        timeout_keep_alive=30,
    )
    with suppress(KeyboardInterrupt):  # the way to end it
        uvicorn.Server(options).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)  # from now on whoever knocks waits, and is not turned away
    except (OSError, OverflowError) as trouble:
        listener.close()
        remedy = "give another --host or --port; --port 0 takes any that is free"
        raise InputError(f"cannot listen to {host}:{port} ({trouble})", remedy=remedy) from None
    return listener


def _address(host: str, port: int, token: str | None) -> str:
    name = "127.0.0.1" if host in ANYWHERE else f"[{host}]" if ":" in host else host
    # after the hash, so that it is never sent nor logged; the page reads it there
    return f"http://{name}:{port}/" + (f"#token={token}" if token else "")
