"""Sending one message to one receiver: to an address that was judged, within ten seconds in all.

The protocol is h11's, the socket is ours: so every step of it, from the name to the last byte, ends by
the same deadline, and no redirect, proxy or second look at the name can lead elsewhere.
"""

from __future__ import annotations

import functools
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

import certifi
import h11

from app.kernel import errors
from app.kernel.clock import Clock, SystemClock
from app.uploads.webhooks import address
from app.uploads.webhooks.address import Resolve, Target

T = TypeVar("T")

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 10.0
ANSWER_BYTES = 16 * 1024
CHUNK_BYTES = 4096
EXCERPT_CHARACTERS = 500
USER_AGENT = "Headworks-Webhooks/1"


class NotSent(errors.Transient):
    """The receiver did not answer; the code says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver said."""

    status_code: int
    retry_after: str | None
    excerpt: str  # the beginning of the body, printable


@functools.cache
def public_trust() -> ssl.SSLContext:
    """The certificates that this machine trusts, and those that browsers do."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


@dataclass(frozen=True, slots=True)
class Wire:
    """How receivers are reached."""

    to_loopback: bool = False
    resolve: Resolve = address.resolve_host
    trust: ssl.SSLContext = field(default_factory=public_trust)
    clock: Clock = field(default_factory=SystemClock)
    connect_seconds: float = CONNECT_SECONDS
    total_seconds: float = TOTAL_SECONDS

    def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        """The receiver's answer; NotSent when there is none, AddressRefused when nothing was sent."""
        began = self.clock.monotonic()
        connecting = _Deadline(self.clock, began + self.connect_seconds)
        with _connected(self, target, connecting) as connection:
            return _Exchange(connection, _Deadline(self.clock, began + self.total_seconds)).run(
                target, headers, body
            )


class _Deadline:
    """One instant by which several steps must be done."""

    def __init__(self, clock: Clock, at: float) -> None:
        self._clock, self._at = clock, at

    def left(self) -> float:
        """Seconds until then; NotSent when it has passed."""
        seconds = self._at - self._clock.monotonic()
        if seconds <= 0:
            raise NotSent(code="timeout")
        return seconds


# -- the connection


def _connected(wire: Wire, target: Target, deadline: _Deadline) -> socket.socket:
    addresses = _addresses(wire, target, deadline)
    connection = _connect(addresses, target.port, deadline)
    if target.scheme == "http":
        return connection
    try:
        connection.settimeout(deadline.left())
        return wire.trust.wrap_socket(connection, server_hostname=target.host)
    except TimeoutError:
        raise NotSent(code="timeout") from None
    except ssl.SSLError as error:
        raise NotSent(code="tls_failed") from error
    except OSError as error:
        raise NotSent(code="connection_lost") from error
    finally:
        if connection.fileno() != -1:  # not taken over by TLS
            connection.close()


def _addresses(wire: Wire, target: Target, deadline: _Deadline) -> list[str]:
    """In a thread, since the system's resolver knows no deadline: it is left behind when it is late."""
    found: Future[list[str]] = Future()

    def resolve() -> None:
        try:
            found.set_result(address.addresses(target, wire.resolve, to_loopback=wire.to_loopback))
        except Exception as error:  # it is raised where the result is awaited
            found.set_exception(error)

    threading.Thread(target=resolve, daemon=True, name="webhook-resolver").start()
    try:
        return found.result(deadline.left())
    except TimeoutError:
        raise NotSent(code="timeout") from None
    except (OSError, UnicodeError) as error:
        raise NotSent(code="host_not_found") from error


def _connect(addresses: list[str], port: int, deadline: _Deadline) -> socket.socket:
    code = "connect_failed"
    for found in addresses:
        try:
            return socket.create_connection((found, port), timeout=deadline.left())
        except TimeoutError:
            code = "timeout"
        except OSError:
            code = "connect_failed"
    raise NotSent(code=code)


# -- request and answer


class _Exchange:
    """One request and its answer on a connection that is used for nothing else."""

    def __init__(self, connection: socket.socket, deadline: _Deadline) -> None:
        self._socket, self._deadline = connection, deadline
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_BYTES)
        self._bytes_left = ANSWER_BYTES

    def run(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        """The status decides: once it is there, a body that breaks off or drips only ends the excerpt."""
        self._write(target, headers, body)
        response, excerpt = self._head(), bytearray()
        try:
            while isinstance(event := self._next(), h11.Data):
                excerpt += event.data
        except NotSent:
            pass
        retry_after = [value for name, value in response.headers if name == b"retry-after"]
        return Answer(
            response.status_code,
            retry_after[0].decode("ascii", "replace") if retry_after else None,
            printable(bytes(excerpt)),
        )

    def _write(self, target: Target, headers: Mapping[str, str], body: bytes) -> None:
        request = h11.Request(
            method="POST",
            target=target.path,
            headers=[
                ("Host", target.authority),
                ("User-Agent", USER_AGENT),
                ("Accept-Encoding", "identity"),
                ("Connection", "close"),
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                *headers.items(),
            ],
        )
        events = (request, h11.Data(data=body), h11.EndOfMessage())
        rest = memoryview(b"".join(self._protocol.send(event) or b"" for event in events))
        while rest:
            rest = rest[self._timed(functools.partial(self._socket.send, rest)) :]

    def _head(self) -> h11.Response:
        while isinstance(event := self._next(), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise NotSent(code="connection_lost")
        return event

    def _next(self) -> object:
        """The next part of the answer; NotSent when none comes that could be read."""
        closed = False
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                if not self._bytes_left:
                    raise NotSent(code="bad_answer")
                size = min(CHUNK_BYTES, self._bytes_left)
                data = self._timed(functools.partial(self._socket.recv, size))
                closed = not data
                self._bytes_left -= len(data)
                self._protocol.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise NotSent(code="connection_lost" if closed else "bad_answer") from error
        return event

    def _timed(self, step: Callable[[], T]) -> T:
        self._socket.settimeout(self._deadline.left())
        try:
            return step()
        except TimeoutError:
            raise NotSent(code="timeout") from None
        except OSError as error:
            raise NotSent(code="connection_lost") from error


def printable(body: bytes) -> str:
    """The beginning of a body, as text that is safe to show: no control characters, no line ends."""
    text = "".join(c if c.isprintable() else " " for c in body.decode("utf-8", "replace"))
    return " ".join(text.split())[:EXCERPT_CHARACTERS]
