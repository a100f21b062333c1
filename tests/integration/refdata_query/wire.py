"""A small client of HTTP/1.1 over a socket: what it sends and what it is sent are seen byte for byte."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests import patience

HOST = "127.0.0.1"
PATIENCE_SECONDS = 15.0 * patience.PATIENCE

_STATUS = re.compile(rb"(HTTP/1\.[01]) ([1-5][0-9]{2}) [ -~]*")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\x00]*?)[ \t]*")


@dataclass(frozen=True)
class Answer:
    """One answer: its headers as they stood there, and its body without the framing."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    protocol: str = "HTTP/1.1"

    def __getitem__(self, name: str) -> str | None:
        """The header's value; None when there is none. One that stands twice is no answer."""
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) < 2, (name, found)
        return found[0] if found else None

    @property
    def json(self) -> Any:
        """What the body says, its numbers as they are written."""
        return json.loads(self.body, parse_float=str, parse_int=_whole, parse_constant=_no_number)

    @property
    def code(self) -> str:
        """The code of a refusal, whose every member has to be there."""
        assert self["Content-Type"] == "application/problem+json", self
        problem = json.loads(self.body)
        assert {"type", "title", "status", "code", "error_code", "detail"} <= set(problem), problem
        assert (problem["status"], problem["error_code"]) == (self.status, problem["code"])
        assert isinstance(problem["detail"], str) and problem["detail"]
        return str(problem["code"])

    @property
    def refusal(self) -> tuple[int, str]:
        """Its status and its code."""
        return self.status, self.code

    @property
    def version(self) -> int:
        """The version of the data in this answer."""
        found = self["X-Dict-Version"]
        assert found is not None and re.fullmatch("0|[1-9][0-9]*", found), self
        return int(found)


def _whole(text: str) -> int | str:
    return int(text) if len(text) < 19 else text


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def request(
    target: str | bytes,
    *,
    method: str = "GET",
    protocol: str = "HTTP/1.1",
    host: str | None = "127.0.0.1",
    headers: dict[str, Any] | list[tuple[str, Any]] | None = None,
    body: bytes = b"",
) -> bytes:
    """The bytes of one request. Headers that are None are left out; `body` comes without any word of it."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
    lines = [b" ".join((method.encode(), _bytes(target), protocol.encode()))]
    if host is not None:
        lines.append(b"Host: " + host.encode())
    lines += [_bytes(name) + b": " + _bytes(value) for name, value in pairs if value is not None]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("latin-1")


class Closed(Exception):
    """The server has closed the connection where an answer was to begin; no byte of it came."""


class Wire:
    """One connection."""

    def __init__(self, port: int, *, seconds: float = PATIENCE_SECONDS, receive_bytes: int = 0) -> None:
        """`receive_bytes`: how much the kernel takes for a client that does not read; 0: as it likes."""
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(seconds)
        try:
            self.socket.connect((HOST, port))
        except BaseException:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """All of it is on its way."""
        self.socket.sendall(data)

    def ask(self, target: str, **more: Any) -> Answer:
        """One request and its answer."""
        self.send(request(target, **more))
        return self.answer(to_head=more.get("method") == "HEAD")

    def answer(self, *, to_head: bool = False) -> Answer:
        """The next answer, whole; Closed when there is none."""
        found, is_open_ended = self.head()
        if to_head or found.status in (204, 304):
            return found
        assert found["Content-Type"] != "text/event-stream", "it has no end"
        if (found["Transfer-Encoding"] or "").lower() == "chunked":
            assert found["Content-Length"] is None, found
            return self._with(found, b"".join(iter(self.chunk, b"")))
        if is_open_ended:
            return self._with(found, self.rest())
        return self._with(found, self.take(int(found["Content-Length"] or "")))

    def _with(self, head: Answer, body: bytes) -> Answer:
        return Answer(head.status, head.headers, body, head.protocol)

    def head(self) -> tuple[Answer, bool]:
        """The head of the next answer, and whether its body ends with the connection; 1xx are passed."""
        while True:
            if not self._held and not self._more():
                raise Closed
            lines = self.until(b"\r\n\r\n").split(b"\r\n")
            status = _STATUS.fullmatch(lines[0])
            assert status, lines[0]
            headers = []
            for line in lines[1:]:
                header = _HEADER.fullmatch(line)
                assert header, line
                headers.append((header[1].decode(), header[2].decode("latin-1")))
            found = Answer(int(status[2]), headers, b"", status[1].decode())
            if found.status >= 200:
                ended = found["Content-Length"] is None and found["Transfer-Encoding"] is None
                return found, ended

    def chunk(self) -> bytes:
        """The next chunk of a body in chunks; empty at its end."""
        size = int(self.until(b"\r\n"), 16)
        data = self.take(size)
        assert self.take(2) == b"\r\n"
        return data

    def until(self, mark: bytes) -> bytes:
        """Everything before the mark, which is passed."""
        while mark not in self._held:
            assert self._more(), self._held[:200]
        found, _, self._held = self._held.partition(mark)
        return found

    def take(self, count: int) -> bytes:
        """So many bytes."""
        parts, missing = [], count
        while missing:
            if not self._held:
                assert self._more(), f"{missing} of {count} bytes did not come"
            parts.append(self._held[:missing])
            self._held = self._held[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)

    def piece(self) -> bytes:
        """Whatever comes next; empty at the end."""
        found, self._held = self._held or self._receive(), b""
        return found

    def rest(self) -> bytes:
        """Everything until the server closes."""
        parts = [self._held]
        self._held = b""
        while data := self._receive():
            parts.append(data)
        return b"".join(parts)

    def answers(self) -> list[Answer]:
        """Every answer until the server closes."""
        found = []
        while True:
            try:
                found.append(self.answer())
            except Closed:
                return found

    def is_closed(self) -> bool:
        """The server has closed without a word more; False when it stays open for 0.25 s."""
        self.socket.settimeout(0.25)
        try:
            return self.rest() == b""
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(PATIENCE_SECONDS)

    def _more(self) -> bool:
        data = self._receive()
        self._held += data
        return bool(data)

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(1 << 18)
        except (ConnectionResetError, BrokenPipeError):
            return b""
