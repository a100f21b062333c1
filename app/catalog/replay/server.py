"""The replayed API on a socket of this machine.

    with server.ReplayServer() as api:
        api.fault(faults.too_many_requests({"itemCode": "book:17924463"}, times=3, retry_after="2"))
        …  # requests to api.url
        assert len(api.requests) == 4

Requests are read by hand and answers sent in one piece: the standard handler parses headers as mail, which
costs more than all the rest, and a load test wants thousands of small answers a second.
"""

from __future__ import annotations

import collections
import dataclasses
import socket
import socketserver
import sys
import threading
import urllib.parse
from collections.abc import Mapping
from http.client import responses
from http.server import ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

from app.catalog.replay import answers, faults
from app.catalog.replay.shapes import Record
from app.kernel.clock import Clock, SystemClock

MOST_REQUESTS = 100_000
MOST_HEADERS = 100
LINE_BYTES = 65_536
LAST = {"Connection": "close"}
IDLE_SECONDS = 120.0
POLL_SECONDS = 0.02  # between two looks whether it is told to stop


class Request(NamedTuple):
    """A request that came in: when (monotonic seconds), and what; names of headers are in lower case."""

    at: float
    path: str
    query: dict[str, str]
    headers: dict[str, str]


class ReplayServer:
    """A server that answers from entering the context until leaving it, on 127.0.0.1 alone."""

    def __init__(self, port: int = 0, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._answers = answers.Answers()
        self._lock = threading.Lock()
        self._requests: collections.deque[Request] = collections.deque(maxlen=MOST_REQUESTS)
        self._faults: list[faults.Fault] = []
        self._stopped = threading.Event()
        self._listener = _Listener(port, self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(POLL_SECONDS,), name="replay", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._listener.end_connections()
        self._thread.join()

    @property
    def url(self) -> str:
        """Of the host, without a slash at its end."""
        return f"http://127.0.0.1:{self._listener.server_port}"

    @property
    def requests(self) -> list[Request]:
        """The newest requests, the oldest first."""
        with self._lock:
            return list(self._requests)

    def put(self, entity: str, record_id: str, record: Record) -> None:
        """The id is answered with this flat record from now on.

        An item's record is the item; those of rankings (by genre), genres and tags are whole answers.
        """
        self._answers.put(entity, record_id, record)

    def remove(self, entity: str, record_id: str) -> None:
        """The id is unknown from now on. KeyError when it was before."""
        self._answers.remove(entity, record_id)

    def record(self, entity: str, record_id: str) -> Record:
        """A copy of what the id is answered with, to be changed and put. KeyError when there is none."""
        return self._answers.record(entity, record_id)

    def ids(self, entity: str) -> list[str]:
        """The ids that there are of an entity: item, ranking, genre or tag."""
        return self._answers.ids(entity)

    def fault(self, fault: faults.Fault) -> None:
        """The next requests that match are answered with it; of several faults the first is used up first."""
        with self._lock:
            self._faults.append(fault)

    def clear_faults(self) -> None:
        """No fault is waiting any more."""
        with self._lock:
            self._faults.clear()

    def reply(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[bytes, bool]:
        """The bytes to send, and whether the connection goes on after them; the request is noted."""
        fault = self._note(Request(self._clock.monotonic(), path, query, headers))
        if fault is None:
            return _encoded(self._answers.answer(path, query, headers.get("accesskey"))), True
        if fault.delay_seconds:
            self._stopped.wait(fault.delay_seconds)
        whole = _encoded(self._faulty(fault, path, query, headers), fault.headers)
        return whole[: fault.cut_after_bytes], fault.cut_after_bytes is None

    def _note(self, request: Request) -> faults.Fault | None:
        """The fault whose turn it is, used up by one."""
        with self._lock:
            self._requests.append(request)
            for at, fault in enumerate(self._faults):
                if fault.matches(request.path, request.query):
                    left = dataclasses.replace(fault, times=fault.times - 1)
                    self._faults[at : at + 1] = [left] if left.times else []
                    return fault
        return None

    def _faulty(
        self, fault: faults.Fault, path: str, query: dict[str, str], headers: dict[str, str]
    ) -> answers.Answer:
        if fault.body is not None:
            return answers.Answer(fault.status or 200, fault.body)
        if fault.items is not None:
            true = self._answers.items(fault.items, query)
        else:
            true = self._answers.answer(path, query, headers.get("accesskey"))
        return answers.Answer(fault.status or true.status, true.body)


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128  # the default of 5 turns a burst of new connections away
    daemon_threads = True

    def __init__(self, port: int, api: ReplayServer) -> None:
        self.api = api
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        # not that of HTTPServer, which asks the resolver for the name of the machine
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def end_connections(self) -> None:
        """Kept-alive connections would go on answering from a server that is no more."""
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client was first

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is none; anything else is reported."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(socketserver.StreamRequestHandler):
    server: _Listener
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.closed(self.connection)
        super().finish()

    def handle(self) -> None:
        goes_on = True
        while goes_on:
            line = self.rfile.readline(LINE_BYTES)
            if not line:
                return
            sent, goes_on = self._reply(line)
            self.wfile.write(sent)

    def _reply(self, line: bytes) -> tuple[bytes, bool]:
        parts = line.decode("latin-1").split()
        headers = self._headers()
        if len(parts) != 3 or headers is None or not parts[2].startswith("HTTP/1."):
            return _encoded(answers.Answer(400, b""), LAST), False
        method, target, version = parts
        if method != "GET":
            return _encoded(answers.Answer(405, b""), {"Allow": "GET", **LAST}), False
        path, _, query = target.partition("?")
        sent, goes_on = self.server.api.reply(
            urllib.parse.unquote(path), dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), headers
        )
        asked = headers.get("connection", "keep-alive" if version == "HTTP/1.1" else "close")
        return sent, goes_on and asked.lower() != "close"

    def _headers(self) -> dict[str, str] | None:
        """None when they are not headers, or too many."""
        headers: dict[str, str] = {}
        for _ in range(MOST_HEADERS):
            line = self.rfile.readline(LINE_BYTES)
            if line in (b"\r\n", b"\n", b""):
                return headers
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                return None
            headers[name.strip().lower()] = value.strip()
        return None


def _encoded(answer: answers.Answer, headers: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """The whole answer with its head."""
    named = {"Content-Type": "application/json;charset=utf-8", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    status = f"{answer.status} {responses.get(answer.status, 'Unknown')}"
    head = f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(answer.body)}\r\n\r\n"
    return head.encode("latin-1") + answer.body
