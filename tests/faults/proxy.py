"""A proxy on a TCP port that can drop, refuse and swallow what passes through it.

A user process cannot lose packets: where it swallows, the peer's bytes are still acknowledged by this
machine. To its client that looks like a server, or a load balancer, that has frozen with open sockets.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16
NO_LINGER = struct.pack("ii", 1, 0)  # a close that resets


@dataclass(eq=False)
class _Link:
    """One connection of a client and its counterpart to the server."""

    client: socket.socket
    server: socket.socket | None = None
    open: threading.Event = field(default_factory=threading.Event)  # bytes pass while it is set
    ended: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        """Both ends are reset."""
        self.ended.set()
        self.open.set()
        for end in (self.client, self.server):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


class Proxy:
    """Listens on a port of its own and passes every connection on to one server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._refuses = self._swallows = False
        self._closed = False
        self.accepted = self.dropped = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    def before(cls, url: str) -> Self:
        """A proxy before the server of an address."""
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        return cls(parts.hostname, parts.port)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def of(self, url: str) -> str:
        """The address of the server, by way of this proxy."""
        parts = urlsplit(url)
        return url.replace(f"@{parts.hostname}:{parts.port}", f"@127.0.0.1:{self.port}")

    # -- what may happen to a network

    def heal(self) -> None:
        """New connections pass again; what was swallowed before stays so."""
        self._refuses = self._swallows = False

    def resume(self) -> None:
        """Everything passes again, also what was held back meanwhile."""
        self.heal()
        for link in self._all():
            link.open.set()

    def refuse(self) -> None:
        """New connections are reset at once; open ones pass."""
        self._refuses = True

    def blackhole(self) -> None:
        """Nothing passes any more, in either direction, and no connection ends."""
        self._swallows = True
        for link in self._all():
            link.open.clear()

    def drop(self, *, share: float = 1.0, source: random.Random | None = None) -> int:
        """About so many of the open connections are reset; how many that was."""
        chosen = [link for link in self._all() if source is None or source.random() < share]
        for link in chosen:
            link.end()
        self.dropped += len(chosen)
        return len(chosen)

    def close(self) -> None:
        """Nothing listens, and no connection is open."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- how

    def _all(self) -> list[_Link]:
        with self._lock:
            return list(self._links)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            link = _Link(client)
            if self._refuses:
                link.end()
                continue
            if not self._swallows:
                link.open.set()
            with self._lock:
                self._links.add(link)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: _Link) -> None:
        try:
            link.open.wait()  # one that is made while nothing passes reaches no server
            if link.ended.is_set():
                return
            link.server = socket.create_connection(self._target, timeout=10)
            link.server.settimeout(None)
            back = threading.Thread(target=self._pump, args=(link, link.server, link.client), daemon=True)
            back.start()
            self._pump(link, link.client, link.server)
            back.join()
        except OSError:
            pass
        finally:
            link.end()
            with self._lock:
                self._links.discard(link)

    def _pump(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                link.open.wait()
                target.sendall(data)
        # The end of one direction passes on like its bytes.
        link.open.wait()
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def cutting(proxy: Proxy, *, seed: int, seconds: float = 0.3, share: float = 0.3) -> Iterator[None]:
    """Meanwhile, again and again, some of the open connections are reset."""
    source, stop = random.Random(seed), threading.Event()

    def cut() -> None:
        while not stop.wait(seconds * source.uniform(0.5, 1.5)):
            proxy.drop(share=share, source=source)

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        yield
    finally:
        stop.set()
        cutter.join()
