"""PostgreSQL connections that give up on a server that says nothing.

libpq waits for an answer without end, and the server's own timeouts are no help when it is the
server, or the network before it, that fell silent: keepalives are answered by a kernel, also for a
process that is frozen. So a thread looks after every call that waits, and shuts the connection's
socket down when the answer is overdue: the call ends as it does when a connection breaks.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psycopg2.extensions
import psycopg2.extras

from app.adapters import logs
from app.kernel.clock import SystemClock

log = logs.get(__name__)

GRACE_SECONDS = 5.0
"""An answer may be that much later than the server's own timeout makes it."""

IDLE_SECONDS = 5.0
"""How long a connection of the pool, outside of a transaction, may take to show that it lives."""

LOOK_SECONDS = 0.5


class _Guard:
    """The calls of this process that wait for PostgreSQL, and the thread that looks after them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, float] = {}  # a duplicate of the socket's descriptor → deadline
        self._thread: threading.Thread | None = None
        self._clock = SystemClock()

    def limit(self, connection: Connection) -> AbstractContextManager[None]:
        """The block's wait ends after the connection's `answer_seconds`."""
        if connection.closed:
            return nullcontext()  # the driver has its own sentence for that
        return _Wait(self, connection)

    def begin(self, descriptor: int, seconds: float) -> None:
        """What waits at the descriptor is looked after from now on."""
        with self._lock:
            self._waiting[descriptor] = self._clock.monotonic() + seconds
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, daemon=True)
                self._thread.start()

    def end(self, descriptor: int) -> None:
        """Nothing waits at the descriptor any more."""
        with self._lock:
            del self._waiting[descriptor]

    def _look(self) -> None:
        while True:
            self._clock.sleep(LOOK_SECONDS)
            now = self._clock.monotonic()
            with self._lock:
                for descriptor, deadline in self._waiting.items():
                    if deadline < now:
                        self._waiting[descriptor] = float("inf")
                        _shut_down(descriptor)
                        log.warning("answer_overdue", seconds_late=round(now - deadline, 1))


class _Wait:
    """One call that waits. Written out, since every statement of the product is one."""

    __slots__ = ("_connection", "_descriptor", "_guard")

    def __init__(self, guard: _Guard, connection: Connection) -> None:
        self._guard = guard
        self._connection = connection

    def __enter__(self) -> None:
        # A duplicate: when libpq closes the socket itself, its number may be another's at once.
        self._descriptor = os.dup(self._connection.fileno())
        self._guard.begin(self._descriptor, self._connection.answer_seconds)

    def __exit__(self, *_: object) -> None:
        self._guard.end(self._descriptor)
        os.close(self._descriptor)


def _shut_down(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it broke at this very moment
    finally:
        connection.detach()


_guard = _Guard()
# Threads do not survive a fork, and a lock may be held by one of them then.
os.register_at_fork(after_in_child=_guard.__init__)  # type: ignore[misc]


class Connection(psycopg2.extensions.connection):  # type: ignore[misc]
    """A connection none of whose calls waits for longer than `answer_seconds`."""

    answer_seconds = IDLE_SECONDS
    backend = 0  # PostgreSQL's process that has the present transaction
    is_pooled = False  # a pooler stands between: see app/adapters/pooler.py

    def commit(self) -> None:
        with _guard.limit(self):
            super().commit()

    def rollback(self) -> None:
        with _guard.limit(self):
            super().rollback()


class Cursor(psycopg2.extras.NamedTupleCursor):  # type: ignore[misc]
    """A cursor of such a connection; rows are named tuples."""

    connection: Connection

    def execute(self, query: Any, vars: Any = None) -> None:
        with _guard.limit(self.connection):
            super().execute(query, vars)

    def executemany(self, query: Any, vars: Any) -> None:
        with _guard.limit(self.connection):
            super().executemany(query, vars)

    def callproc(self, procname: Any, vars: Any = None) -> Any:
        with _guard.limit(self.connection):
            return super().callproc(procname, vars)

    def copy_expert(self, *args: Any, **options: Any) -> None:
        with _guard.limit(self.connection):
            super().copy_expert(*args, **options)

    # What follows asks the server only where the cursor is one of the server's.

    def fetchone(self) -> Any:
        with self._limit_of_server_cursor():
            return super().fetchone()

    def fetchmany(self, size: Any = None) -> Any:
        with self._limit_of_server_cursor():
            return super().fetchmany(size)

    def fetchall(self) -> Any:
        with self._limit_of_server_cursor():
            return super().fetchall()

    def scroll(self, *args: Any, **options: Any) -> None:
        with self._limit_of_server_cursor():
            super().scroll(*args, **options)

    def close(self) -> None:
        with self._limit_of_server_cursor():
            super().close()

    def __next__(self) -> Any:
        with self._limit_of_server_cursor():
            return super().__next__()

    def _limit_of_server_cursor(self) -> AbstractContextManager[None]:
        return _guard.limit(self.connection) if self.name else nullcontext()
