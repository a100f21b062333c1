"""The fast profile: HTTP/1.1 by httptools' parser on uvloop, with nothing between it and the reads."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncGenerator
from email.utils import formatdate

import httptools

from app.adapters import logs
from app.refdata.query.answers import Answer
from app.refdata.query.reads import Reads
from app.refdata.query.replies import (
    BROKE,
    HEADER_TOO_LARGE,
    MALFORMED,
    SLOW,
    TOO_LONG,
    Reply,
    what_is_wrong,
)
from app.refdata.query.request import (
    GRACE_SECONDS,
    HEAD_SECONDS,
    IDLE_SECONDS,
    LONGEST_BODY,
    LONGEST_HEAD,
    LONGEST_HEADER,
    LONGEST_TARGET,
    Alike,
    Head,
    Request,
    add_line,
    is_plain,
)

log = logs.get(__name__)

MOST_PIPELINED = 64
"""So many requests of a connection may wait for their turn before nothing more is read from it."""

_END = b"\r\n\r\n"


class Server:
    """The connections of one reader."""

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self.connections: set[Connection] = set()
        self.date = b""
        self.loop = asyncio.get_running_loop()
        self.tick()

    def tick(self) -> None:
        """Once a second: the time of the answers, and an end to connections that keep still too long."""
        self._timer = self.loop.call_later(1.0, self.tick)  # first: whatever breaks, it goes on
        self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        now = self.now = self.loop.time()
        for connection in list(self.connections):
            connection.look(now)

    def close(self) -> None:
        """The second hand stands still."""
        self._timer.cancel()


class _Turn:
    """A request that is answered when those before it are."""

    __slots__ = ("answer", "is_kept", "request")

    def __init__(self, request: Request, is_kept: bool) -> None:
        self.request = request
        self.is_kept = is_kept
        self.answer: Answer | None = None


class _Last:
    """The last request for an item: one that has the same bytes but for its key is answered in short."""

    __slots__ = ("_alike", "_reads", "before", "begin", "behind", "find", "generation", "start", "stop")

    def __init__(self, before: bytes, behind: bytes, alike: Alike, reads: Reads) -> None:
        self.before = before  # what stands before the key
        self.behind = behind
        self.start, self.stop = len(before), -len(behind)
        self._alike = alike
        self._reads = reads
        self.generation = -1

    @classmethod
    def of(cls, data: bytes, turn: _Turn, reads: Reads) -> _Last | None:
        """None: these bytes are not this one request, or it is none whose likes can be answered in short."""
        alike, start = turn.request.head.alike, b"GET %b HTTP/1.1\r\n" % turn.request.target
        is_alone = data.startswith(start) and data.find(_END) == len(data) - len(_END)
        if alike is None or not (is_alone and turn.is_kept and turn.request.is_modern):
            return None
        return cls(b"GET " + alike.path, data[4 + len(turn.request.target) :], alike, reads)

    def renew(self, date: bytes) -> bool:
        """Whether it still holds; what answers begin with is as it is now."""
        served = self._reads.alike(self._alike)
        if served is None:
            return False
        self.generation = self._reads.generation
        self.find = served.find
        self.begin = b"%b%bcontent-length: " % (served.found.raw, date)
        return True


class Connection(asyncio.Protocol):
    """One connection. Its requests are answered in their order; while one waits, the others do."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._reads = server.reads
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[_Turn] = deque()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._since = server.now
        self._is_in_head = False
        self._is_closing = False
        self._is_held_back = False
        self._head_bytes = self._received = 0
        self._head_began = server.now
        self._body_bytes = 0
        self._target = b""
        self._lines: dict[bytes, bytes] = {}
        self._out: list[bytes] = []
        self._data = b""
        self._last: _Last | None = None

    # -- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self._peer: str | None = peer[0] if peer else None
        self._head = Head({}, self._peer)
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone, and nobody is answered any more."""
        self._server.connections.discard(self)
        self._is_closing = True
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """The client does not take what it has asked for: nothing more is read from it meanwhile."""
        self._last = None
        self._writable.clear()
        self._hold_back()

    def resume_writing(self) -> None:
        """The client takes again."""
        self._writable.set()
        self._let_go()

    def data_received(self, data: bytes) -> None:
        """Some bytes of requests."""
        last = self._last
        if last is not None and data.startswith(last.before) and data.endswith(last.behind):
            key = data[last.start : last.stop]
            if (key.isalnum() or is_plain(key)) and (
                last.generation == self._reads.generation or last.renew(self._server.date)
            ):
                payload = last.find(b',"%b":' % key)
                if payload is not None:
                    self._transport.write(b"%b%d\r\n\r\n%b" % (last.begin, len(payload), payload))
                    self._since = self._server.now
                    self._reads.items_alike += 1
                    return
        self._last = None
        self._data = data
        self._since = self._server.now
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_closing = True  # it was answered as if it had not asked for another protocol
        except httptools.HttpParserError:
            if not self._is_closing:
                self._refuse(MALFORMED)
        self._received = self._received + len(data) if self._is_in_head else 0
        if self._received > LONGEST_HEAD and not self._is_closing:  # a line of it may have no end
            self._refuse(HEADER_TOO_LARGE)
        self._flush()

    def eof_received(self) -> bool:
        """The client sends nothing more; what it asked for is still answered."""
        self._last = None
        self._is_closing = True
        return self._task is not None

    def look(self, now: float) -> None:
        """A connection that keeps still too long ends."""
        if self._is_in_head and now - self._head_began > HEAD_SECONDS and not self._is_closing:
            self._refuse(SLOW)
            self._flush()
        elif self._task is None and now - self._since > IDLE_SECONDS:
            self._transport.close()

    def shut(self) -> None:
        """Nothing more is taken; what was asked for is still answered."""
        self._last = None
        self._is_closing = True
        if self._task is None:
            self._transport.close()

    # -- the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._last = None
        self._is_in_head = True
        self._head_began = self._server.now
        self._head_bytes = 0
        self._body_bytes = 0
        self._target = b""
        self._lines = {}

    def on_url(self, target: bytes) -> None:
        """A part of its target."""
        self._target += target
        if len(self._target) > LONGEST_TARGET and not self._is_closing:
            self._refuse(TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of its header, or of its trailer, which says nothing to us."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > LONGEST_HEADER:
            if not self._is_closing:
                self._refuse(HEADER_TOO_LARGE)
        elif self._is_in_head:
            add_line(self._lines, name, value)

    def on_headers_complete(self) -> None:
        """Its head is over."""
        self._is_in_head = False

    def on_body(self, body: bytes) -> None:
        """A part of its body, which nobody reads."""
        self._body_bytes += len(body)
        if self._body_bytes > LONGEST_BODY and not self._is_closing:
            self._take(is_kept=False)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._is_in_head = False
        if not self._is_closing:
            self._take(is_kept=self._parser.should_keep_alive())

    # -- answers

    def _take(self, *, is_kept: bool) -> None:
        """The request is answered, or will be when those before it are."""
        parser = self._parser
        self._is_closing = not is_kept
        if self._head.lines != self._lines:  # clients send the same header again and again
            self._head = Head(self._lines, self._peer)
        version = parser.get_http_version()
        request = Request(parser.get_method(), self._target, self._head, is_modern=version == "1.1")
        turn = _Turn(request, is_kept)
        if (wrong := what_is_wrong(version, self._lines)) is not None:
            turn.is_kept, turn.answer = False, wrong
            self._is_closing = True
        if self._task is None and self._writable.is_set():
            turn.answer = turn.answer or self._answer(turn)
            if isinstance(turn.answer, Reply) and turn.answer.stream is None:
                self._put(turn, turn.answer)
                self._last = _Last.of(self._data, turn, self._reads)
                return
        self._waiting.append(turn)
        if self._task is None:
            self._task = self._server.loop.create_task(self._work_off())
        if len(self._waiting) >= MOST_PIPELINED:
            self._hold_back()

    def _answer(self, turn: _Turn) -> Answer:
        try:
            return self._reads.answer(turn.request)
        except Exception:
            log.exception("refdata_read_broke")
            return BROKE

    def _put(self, turn: _Turn, reply: Reply) -> None:
        """The answer goes out with the next flush, or with the next write."""
        out = self._out
        out.append(reply.fields.raw)
        out.append(self._server.date)
        if reply.length is not None:
            if reply.status != 304:
                out.append(b"content-length: %d\r\n" % reply.length)
        elif turn.request.is_modern:
            out.append(b"transfer-encoding: chunked\r\n")
        else:
            turn.is_kept = False  # its end is that of the connection
        if not turn.is_kept or (self._reads.is_draining and not self._waiting):
            self._is_closing = True
            out.append(b"connection: close\r\n")
        elif not turn.request.is_modern:
            out.append(b"connection: keep-alive\r\n")
        out.append(b"\r\n")
        if turn.request.method != b"HEAD":
            out.append(reply.body)

    async def _work_off(self) -> None:
        """Whoever waits for a turn is answered, one after the other."""
        try:
            while self._waiting:
                await self._writable.wait()
                turn = self._waiting.popleft()
                answer = turn.answer or self._answer(turn)
                try:
                    reply = answer if isinstance(answer, Reply) else await answer
                except Exception:
                    log.exception("refdata_read_broke")
                    reply = BROKE
                self._put(turn, reply)
                if reply.stream is not None:
                    await self._pour(
                        turn, reply.stream, is_chunked=reply.length is None and turn.request.is_modern
                    )
                self._write()
                if len(self._waiting) < MOST_PIPELINED:
                    self._let_go()
        finally:
            self._task = None
        self._is_closing = self._is_closing or self._reads.is_draining
        self._let_go()
        self._flush()

    async def _pour(self, turn: _Turn, stream: AsyncGenerator[bytes, None], *, is_chunked: bool) -> None:
        """The stream goes out as fast as the client takes it."""
        async with contextlib.aclosing(stream):
            if turn.request.method == b"HEAD":
                return
            self._write()
            async for part in stream:
                self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
                await self._writable.wait()
                if self._transport.is_closing():
                    return
        if is_chunked:
            self._transport.write(b"0\r\n\r\n")

    def _refuse(self, reply: Reply) -> None:
        """The last answer of this connection."""
        self._is_closing = True
        turn = _Turn(Request(b"GET", b"", self._head, is_modern=True), False)
        if self._task is None and self._writable.is_set():
            self._put(turn, reply)
        else:
            turn.answer = reply
            self._waiting.append(turn)

    def _write(self) -> None:
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out = []

    def _flush(self) -> None:
        self._write()
        if self._is_closing and self._task is None:
            self._transport.close()

    def _hold_back(self) -> None:
        if not self._is_held_back and not self._transport.is_closing():
            self._is_held_back = True
            self._transport.pause_reading()

    def _let_go(self) -> None:
        if self._is_held_back and self._writable.is_set() and len(self._waiting) < MOST_PIPELINED:
            if not self._transport.is_closing():
                self._is_held_back = False
                self._transport.resume_reading()


async def serve(reads: Reads, listening: socket.socket, stopped: asyncio.Event) -> None:
    """Requests are answered until it is stopped; those under way then end."""
    loop = asyncio.get_running_loop()
    server = Server(reads)
    listener = await loop.create_server(lambda: Connection(server), sock=listening, backlog=4096)
    await stopped.wait()
    listener.close()
    for connection in list(server.connections):
        connection.shut()
    deadline = loop.time() + GRACE_SECONDS
    while server.connections and loop.time() < deadline:
        await asyncio.sleep(0.02)
    server.close()
