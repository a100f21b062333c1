"""One process that answers reads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from pathlib import Path

import uvloop

from app.access import origin
from app.adapters import logs
from app.refdata import door
from app.refdata.query import asgi, frames, protocol
from app.refdata.query.link import Link
from app.refdata.query.reads import Reads
from app.refdata.query.request import Headers, Request
from app.refdata.query.shelf import Shelf
from app.refdata.services import Services

log = logs.get(__name__)

TICK_SECONDS = 1.0
SERVERS = {"safe": asgi.serve, "fast": protocol.serve}


def run(of: Services, folder: Path, listening: socket.socket, server: str) -> None:
    """Reads are answered until SIGTERM, or until nobody holds the other end of the standard input."""
    uvloop.run(_run(of, folder, listening, server))


async def _run(of: Services, folder: Path, listening: socket.socket, server: str) -> None:
    def keep() -> tuple[int, float]:
        query = of.config.refdata.query
        return query.keep_versions, query.keep_seconds

    shelf = Shelf(of.clock, keep=keep)
    link = Link(frames.socket_in(folder), shelf)
    reads = Reads(shelf, link, Door(of).let_in, lambda: of.config, of.clock)
    stopping, stopped = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, of.live.reload)
    loop.add_reader(sys.stdin.fileno(), stopping.set)
    background = [asyncio.ensure_future(link.run()), asyncio.ensure_future(_tick(reads))]
    # What is there now stays; looking through it again and again would be felt by whoever is answered then.
    gc.freeze()
    serving = asyncio.ensure_future(SERVERS[server](reads, listening, stopped))
    await asyncio.wait([serving, asyncio.ensure_future(stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(sys.stdin.fileno())
    reads.is_draining = True
    shelf.wake_all()
    await asyncio.sleep(of.config.refdata.query.drain_seconds)
    stopped.set()
    await serving
    for task in background:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _tick(reads: Reads) -> None:
    while True:
        await asyncio.sleep(TICK_SECONDS)
        try:
            reads.tick()
        except Exception:  # whoever was let in is looked at again only as long as this goes on
            log.exception("refdata_tick_broke")


class Door:
    """Who may read what."""

    def __init__(self, of: Services) -> None:
        self._of = of

    def let_in(self, tenant_id: str, request: Request) -> None:
        """The caller may speak for this tenant. Refused, Unauthorized, WrongTenant, KeysAway."""
        headers = Headers(request.head.lines)
        own = origin.of_urls(f"http://{headers.get('host')}")
        door.let_in(self._of, tenant_id, headers, request.head.peer, own)
