"""A receiver of webhooks: a real HTTP or HTTPS server on loopback that answers as it is told."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Behaviour = Callable[[socket.socket], None]
"""What is done with a connection whose request has been read."""


@dataclass(frozen=True)
class Received:
    """One request, as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


def says(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """An answer in order; `retry_after="5"` is the header Retry-After."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-').title()}: {value}" for name, value in headers.items()]
    return sends("\r\n".join([*lines, "", ""]).encode() + body)


def sends(data: bytes) -> Behaviour:
    """These bytes, and the end of the connection."""
    return lambda connection: connection.sendall(data)


def drips(before: bytes = b"", *, seconds: float = 5.0) -> Behaviour:
    """These bytes, and then one more every 20 ms: each of them comes in time, the whole does not."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(before)
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            connection.sendall(b"x")
            time.sleep(0.02)

    return drip


def waits(for_this: threading.Event, *, seconds: float = 20.0) -> Behaviour:
    """200, once the event is set, or so much later."""

    def wait(connection: socket.socket) -> None:
        for_this.wait(seconds)
        says(200)(connection)

    return wait


@dataclass
class Receiver:
    """Takes one behaviour for each request from `answers`; the last one stays."""

    tls: ssl.SSLContext | None = None
    answers: list[Behaviour] = field(default_factory=lambda: [says(200)])
    received: list[Received] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def __enter__(self) -> Receiver:
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # shutdown, since close alone does not wake the thread that accepts
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?key=in-the-query"

    @property
    def ids(self) -> list[str]:
        """The webhook-id of each request."""
        return [request.headers["webhook-id"] for request in self.received]

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:  # the sender may well have gone
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection:
                request = _read(connection)
                with self._lock:
                    self.received.append(request)
                    behave = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                    self.in_flight += 1
                    self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    behave(connection)
                finally:
                    with self._lock:
                        self.in_flight -= 1


def _read(connection: socket.socket) -> Received:
    with connection.makefile("rb") as stream:
        line = stream.readline().decode().strip()
        headers: dict[str, str] = {}
        while text := stream.readline().decode().strip():
            name, _, value = text.partition(":")
            headers[name.lower()] = value.strip()
        return Received(line, headers, stream.read(int(headers.get("content-length", 0))))
