"""Somebody on the line: forwards every connection to the server, and keeps every byte that passes, both ways."""

from __future__ import annotations

import socket
import threading
from types import TracebackType


class Wiretap:
    def __init__(self, port: int, *, keep: bool = True):
        self.port, self.keep = port, keep
        self.count = 0
        self.streams: list[bytearray] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.own_port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Wiretap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, bad: BaseException | None, where: TracebackType | None
    ) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:  # the server is not up yet; who calls will call again
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                stream = bytearray()
                self.streams.append(stream)
                threading.Thread(target=self._forward, args=(source, sink, stream), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, stream: bytearray) -> None:
        try:
            while data := source.recv(2**20):
                self.count += len(data)
                if self.keep:
                    stream += data
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                each.close()

    def heard(self, text: bytes) -> bool:
        return any(text in stream for stream in list(self.streams))
