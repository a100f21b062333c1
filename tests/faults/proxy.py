"""A network that breaks: a TCP proxy in this process, between the fleet and one of its servers.

Bytes pass until it is told otherwise. A network that has gone silent is the worst of its ways: the
kernel acknowledges every byte, so that neither side sees that nothing arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import random
import socket
import struct
import threading
from collections.abc import Callable, Collection
from typing import Any

CHUNK_BYTES = 65_536
HELD_BYTES = 64 * 1024 * 1024
"""So much of a silent connection is kept until it goes on; a sender of more is held up."""

HOST = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing discards, and says so by RST

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _in_loop(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method runs in the proxy's own thread, and is done when the call returns."""

    @functools.wraps(method)
    def call(proxy: Proxy, *args: Any, **named: Any) -> Any:
        async def act() -> Any:
            done = method(proxy, *args, **named)
            return await done if inspect.isawaitable(done) else done

        return asyncio.run_coroutine_threadsafe(act(), proxy._loop).result()

    return call


class Proxy:
    """A port behind which a server stands, and the network in between."""

    def __init__(self, server_port: int) -> None:
        self.cuts = 0  # connections that were broken here
        self.lost = 0  # requests whose answer was withheld
        self.swallowed = 0  # bytes that did not arrive, or not yet
        self.delay_seconds = 0.0
        self.requests: list[Requests] = []
        self._home = self._server_port = server_port
        self._flows = True
        self._links: list[_Link] = []
        self._listener: asyncio.Server | None = None
        # It never listens: while nobody does, it keeps the port from other programs.
        self._placeholder = _bound(0)
        self.port: int = self._placeholder.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.heal()

    def leads_to(self, url: str) -> str:
        """The address of the server's url, by way of this proxy."""
        return url.replace(f":{self._home}/", f":{self.port}/")

    # -- what may happen to a network

    @_in_loop
    def refuse(self) -> None:
        """New connections are refused; those that are there go on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    @_in_loop
    def cut(self, within: random.Random | None = None) -> None:
        """Every connection is reset; or, with `within`, each at a random offset of the bytes to come.

        Small offsets are as likely as large ones, so that also an answer of a few bytes is torn.
        """
        for link in list(self._links):
            link.cut_after(_offset(within) if within else 0)

    @_in_loop
    def lose_answers(self, words: bytes, numbers: Collection[int], *, silently: bool = False) -> None:
        """Of the coming requests with these words, those of these numbers (from 0) are never answered.

        They reach the server and are carried out. Then their connection is reset; or `silently`, it
        says nothing any more.
        """
        self.requests.append(Requests(words, frozenset(numbers), silently))

    @_in_loop
    def silence(self, *, new: bool = True) -> None:
        """No byte arrives any more, either way, and nobody is told; `new`: nor on new connections."""
        self._flows = not new
        for link in self._links:
            link.flows.clear()

    @_in_loop
    def delay(self, seconds: float) -> None:
        """Each piece of what is sent arrives so much later."""
        self.delay_seconds = seconds

    @_in_loop
    def switch(self, server_port: int) -> None:
        """New connections lead to another server."""
        self._server_port = server_port

    @_in_loop
    async def heal(self, *, forget: bool = False) -> None:
        """New connections are taken, and bytes arrive again: late, on those that were silent.

        With `forget` these stay silent for ever, as after a firewall has lost its table.
        """
        self._flows = True
        for link in self._links:
            link.wake(forget=forget)
        if self._listener is None:
            self._listener = await asyncio.start_server(
                self._take, sock=_bound(self.port), limit=HELD_BYTES, backlog=128
            )

    def renew(self) -> None:
        """As new: what was silent is closed, and everything else passes to the first server."""
        self.heal(forget=True)
        self.delay(0)
        self.switch(self._home)
        self._close_forgotten()

    @_in_loop
    def _close_forgotten(self) -> None:
        self.requests.clear()
        for link in list(self._links):
            link.renew()

    def close(self) -> None:
        """No connection and no thread is left."""
        self.refuse()
        self._end_links()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._placeholder.close()

    @_in_loop
    async def _end_links(self) -> None:
        await asyncio.sleep(0.01)  # what was taken a moment ago is a link a turn later
        links = list(self._links)
        for link in links:
            link.task.cancel()
        await asyncio.gather(*(link.task for link in links), return_exceptions=True)
        for link in links:
            link.end()
        await asyncio.sleep(0.01)  # sockets close a turn after their transports

    # -- connections

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, (reader, writer), flows=self._flows)
        self._links.append(link)
        link.task.add_done_callback(lambda _: self._links.remove(link))

    async def connect(self) -> Stream:
        """A connection to the server of now."""
        return await asyncio.open_connection(HOST, self._server_port, limit=HELD_BYTES)


class _Link:
    """One connection: a client's half, a server's half, and what becomes of the bytes between them."""

    def __init__(self, proxy: Proxy, client: Stream, *, flows: bool) -> None:
        self.flows = asyncio.Event()
        if flows:
            self.flows.set()
        self._proxy = proxy
        self._client = client
        self._halves = [client]
        self._forgotten = False
        self._left: int | None = None  # bytes until it is cut
        self._loses_answer = False
        self.task = asyncio.get_running_loop().create_task(self._run())

    def cut_after(self, count: int) -> None:
        """It is reset once so many more bytes have passed."""
        self._left = count
        if not count:
            self._cut()

    def wake(self, *, forget: bool) -> None:
        """It goes on, or if it was silent and `forget` says so, never will."""
        self._forgotten |= forget and not self.flows.is_set()
        self.flows.set()

    def renew(self) -> None:
        """It goes on undisturbed, or it ends."""
        self._left, self._loses_answer = None, False
        if self._forgotten:
            self._reset()

    def end(self) -> None:
        """Both halves are closed; what nobody has read of them yet is thrown away, not waited for."""
        self._reset()

    async def _run(self) -> None:
        try:
            if await self._arrives():
                server = await self._proxy.connect()
                self._halves.append(server)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._carry(self._client, server, is_up=True))
                    both.create_task(self._carry(server, self._client, is_up=False))
            else:
                await self._carry(self._client, self._client, is_up=True)
        except* OSError:
            self._reset()  # one side was reset, or could not be reached: the other one sees the same
        finally:
            for _, writer in self._halves:
                writer.close()

    async def _carry(self, source: Stream, sink: Stream, *, is_up: bool) -> None:
        """What one side sends is delivered to the other one, until it ends."""
        while True:
            data = await self._read(source)
            if await self._arrives():
                if not data:
                    sink[1].close()
                    return
                if self._loses_answer and not is_up:
                    self._cut()
                    return
                if is_up:
                    self._note_request(data)
                await self._deliver(data, sink)
            elif not data:  # this side has given up, and nobody tells the other one
                source[1].close()
                return

    def _note_request(self, data: bytes) -> None:
        for requests in self._proxy.requests:
            if requests.is_to_be_lost(data):
                self._proxy.lost += 1
                self._forgotten |= requests.silently
                self._loses_answer |= not requests.silently

    async def _read(self, source: Stream) -> bytes:
        try:
            data = await source[0].read(CHUNK_BYTES)
        except OSError:
            if self._is_silent:
                return b""
            raise
        if self._is_silent:
            self._proxy.swallowed += len(data)
        return data

    @property
    def _is_silent(self) -> bool:
        return self._forgotten or not self.flows.is_set()

    async def _arrives(self) -> bool:
        """Whether bytes do, on this connection; known once the network speaks again."""
        if self._proxy.delay_seconds:
            await asyncio.sleep(self._proxy.delay_seconds)
        await self.flows.wait()
        return not self._forgotten

    async def _deliver(self, data: bytes, sink: Stream) -> None:
        passing = data[: self._left]
        sink[1].write(passing)
        await sink[1].drain()
        if self._left is not None:
            self._left -= len(passing)
            if self._left <= 0:
                self._cut()

    def _cut(self) -> None:
        self._proxy.cuts += 1
        self._reset()

    def _reset(self) -> None:
        for _, writer in self._halves:
            with contextlib.suppress(OSError):  # it is closed already
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Requests:
    """Which of the coming requests get no answer."""

    def __init__(self, words: bytes, numbers: frozenset[int], silently: bool) -> None:
        self.silently = silently
        self._words, self._numbers, self._seen = words, numbers, 0

    def is_to_be_lost(self, data: bytes) -> bool:
        """Whether these bytes are one of them."""
        if self._words not in data:
            return False
        self._seen += 1
        return self._seen - 1 in self._numbers


def _offset(source: random.Random) -> int:
    return source.randint(1, 2 ** source.randint(1, 17))


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    return bound
