"""The safe profile: a bare ASGI callable on uvicorn, whose protocol gets the limits that it lacks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.adapters import logs
from app.refdata.query.reads import Reads
from app.refdata.query.replies import (
    BROKE,
    HEADER_TOO_LARGE,
    MALFORMED,
    SLOW,
    TOO_LONG,
    Reply,
    last_words,
    what_is_wrong,
)
from app.refdata.query.request import (
    GRACE_SECONDS,
    HEAD_SECONDS,
    IDLE_SECONDS,
    LONGEST_HEAD,
    LONGEST_HEADER,
    LONGEST_TARGET,
    Head,
    Lines,
    Request,
    add_line,
    is_plain,
)

log = logs.get(__name__)

MOST_HEADS = 1000


class Application:
    """The reads as ASGI has it."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._heads: dict[tuple[Any, ...], Head] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request is answered."""
        head = self._head(scope)
        query, target = scope["query_string"], scope["raw_path"]
        if not query and (alike := head.alike) is not None and target.startswith(alike.path):
            key, served = target[len(alike.path) :], self._reads.alike(alike)
            if served is not None and is_plain(key) and (payload := served.find(b',"%b":' % key)) is not None:
                self._reads.items_alike += 1
                await send({
                    "type": "http.response.start", "status": 200,
                    "headers": [*served.found.pairs, (b"content-length", b"%d" % len(payload))],
                })  # fmt: skip
                await send({"type": "http.response.body", "body": payload})
                return
        target = target + b"?" + query if query else target
        is_modern = scope["http_version"] == "1.1"
        request = Request(scope["method"].encode(), target, head, is_modern=is_modern)
        wrong = what_is_wrong(scope["http_version"], head.lines)
        reply = wrong or await self._reply(request)
        pairs = list(reply.fields.pairs)
        if reply.length is not None and reply.status != 304:
            pairs.append((b"content-length", b"%d" % reply.length))
        if self._reads.is_draining or wrong is not None:
            pairs.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": pairs})
        if reply.stream is None or request.method == b"HEAD":
            await send({"type": "http.response.body", "body": reply.body})
            return
        await _pour(reply.stream, receive, send)

    async def _reply(self, request: Request) -> Reply:
        try:
            answer = self._reads.answer(request)
            return answer if isinstance(answer, Reply) else await answer
        except Exception:
            log.exception("refdata_read_broke")
            return BROKE

    def _head(self, scope: Any) -> Head:
        """The header of the request, which clients send again and again."""
        same = (scope["method"], scope["http_version"], scope["client"], *scope["headers"])
        known = self._heads.get(same)
        if known is None:
            lines: Lines = {}
            for name, value in scope["headers"]:
                add_line(lines, name, value)
            if len(self._heads) >= MOST_HEADS:
                self._heads.clear()
            client = scope["client"]
            known = self._heads[same] = Head(lines, client[0] if client else None)
        return known


async def _pour(stream: AsyncGenerator[bytes, None], receive: Any, send: Any) -> None:
    """The stream is sent, as long as somebody is there."""
    gone = asyncio.ensure_future(_gone(receive))
    part: asyncio.Future[bytes | None] = asyncio.ensure_future(anext(stream, None))
    try:
        while True:
            both: list[asyncio.Future[Any]] = [part, gone]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() or (content := part.result()) is None:
                break
            await send({"type": "http.response.body", "body": content, "more_body": True})
            part = asyncio.ensure_future(anext(stream, None))
    finally:  # also when this is cut off: the stream can end only when nothing is asked of it any more
        for one in (gone, part):
            one.cancel()
        await asyncio.gather(gone, part, return_exceptions=True)
        await stream.aclose()
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Any) -> None:
    """The client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class _Protocol(HttpToolsProtocol):
    """uvicorn's own, with limits, and with refusals that come behind the answers before them."""

    _head_bytes = 0
    _received = 0
    _is_in_head = False
    _head_timer: asyncio.TimerHandle | None = None
    _refusal: Reply | None = None
    reads: Reads

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        super().data_received(data)
        self._received += len(data)
        if not self._is_in_head or self._refusal is not None:
            self._received = 0
        elif self._received > LONGEST_HEAD:  # a line of it may have no end
            self._refuse(HEADER_TOO_LARGE)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._refuse, SLOW)

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > LONGEST_TARGET:
            self._refuse(TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # of a trailer, which is not to pass for a header
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > LONGEST_HEADER:
            self._refuse(HEADER_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._forget_timer()
        if self._refusal is None:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refusal is None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif self.reads.is_draining and not self.pipeline and not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(MALFORMED)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        super().connection_lost(exc)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, reply: Reply) -> None:
        """The last answer of this connection, once those to the requests before it are out."""
        self._refusal = self._refusal or reply
        is_busy = self.cycle is not None and not self.cycle.response_complete
        if not is_busy and not self.pipeline and not self.transport.is_closing():
            self.transport.write(last_words(self._refusal))
            self.transport.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the reader's own matter."""
        yield


async def serve(reads: Reads, listening: socket.socket, stopped: asyncio.Event) -> None:
    """Requests are answered until it is stopped; those under way then end."""
    _Protocol.reads = reads
    config = uvicorn.Config(
        Application(reads), http=_Protocol, loop="none", lifespan="off", ws="none", access_log=False,
        log_config=None, server_header=False, proxy_headers=False, timeout_keep_alive=int(IDLE_SECONDS),
        backlog=4096, timeout_graceful_shutdown=int(GRACE_SECONDS),
    )  # fmt: skip
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    await asyncio.wait([serving, asyncio.ensure_future(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
