"""A server that says nothing: a frozen backend, whose kernel goes on answering for it."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.adapters import database, patience
from app.kernel import errors
from tests.conftest import Servers
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.threads import wait_until

CALLS: dict[str, Callable[[database.Connection], Any]] = {
    "execute": lambda conn: conn.cursor().execute("SELECT 1"),
    "executemany": lambda conn: conn.cursor().executemany("SELECT %s", [(1,)]),
    "copy": lambda conn: conn.cursor().copy_expert("COPY pg_class TO STDOUT", io.StringIO()),
    "commit": lambda conn: conn.commit(),
    "rollback": lambda conn: conn.rollback(),
}


@pytest.fixture
def db(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[database.Database]:  # noqa: F811
    """A pool of one connection that waits for half a second beyond the server's own timeout."""
    monkeypatch.setattr(patience, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(patience, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(patience.Connection, "answer_seconds", 0.5)
    monkeypatch.setattr(patience, "LOOK_SECONDS", 0.05)
    db = database.Database(database_url, pool_size=1, timeout_seconds=0.5)
    yield db
    db.close()


@pytest.fixture
def freeze() -> Iterator[Callable[[database.Connection], None]]:
    """The server's process of a connection stands still until the end of the test."""
    frozen = []

    def stop(conn: database.Connection) -> None:
        frozen.append(conn.get_backend_pid())
        os.kill(frozen[-1], signal.SIGSTOP)

    yield stop
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("call", CALLS)
def test_no_call_waits_for_a_silent_server_for_ever(
    call: str, db: database.Database, freeze: Callable[[database.Connection], None]
) -> None:
    with pytest.raises(errors.ConnectionLost), db.transaction("dispatch") as conn:
        freeze(conn)
        CALLS[call](conn)
    assert conn.closed


def test_a_connection_that_fell_silent_in_the_pool_is_replaced(
    db: database.Database, freeze: Callable[[database.Connection], None]
) -> None:
    with db.transaction("dispatch") as conn:
        silent = conn
    freeze(silent)
    with db.transaction("dispatch") as conn:
        conn.cursor().execute("SELECT 1")
    assert conn is not silent


def test_an_answer_that_comes_in_time_is_taken(db: database.Database) -> None:
    with db.transaction("dispatch", timeout_seconds=5) as conn, conn.cursor() as cursor:
        for _ in range(3):  # together they take longer than one may
            cursor.execute("SELECT pg_sleep(0.4)")
        assert cursor.fetchall() == [("",)]


def test_a_process_that_was_forked_looks_after_its_own_calls(
    db: database.Database, freeze: Callable[[database.Connection], None]
) -> None:
    with db.transaction("dispatch"):
        pass  # the parent's thread runs
    child = os.fork()
    if not child:
        db.forget_connections()
        code = 1
        try:
            with db.transaction("dispatch") as conn:
                os.kill(conn.get_backend_pid(), signal.SIGSTOP)
                pid = conn.get_backend_pid()
                conn.cursor().execute("SELECT 1")
        except errors.ConnectionLost:
            os.kill(pid, signal.SIGCONT)
            code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_cursor_of_the_server_does_not_wait_for_it_for_ever(
    db: database.Database, freeze: Callable[[database.Connection], None]
) -> None:
    for ask in (
        lambda cursor: cursor.fetchmany(10),
        lambda cursor: cursor.fetchone(),
        lambda cursor: cursor.fetchall(),
        lambda cursor: next(iter(cursor)),
        lambda cursor: cursor.close(),
    ):
        with pytest.raises(errors.ConnectionLost), db.transaction("dispatch") as conn:
            cursor = conn.cursor("rows")
            cursor.execute("SELECT generate_series(1, 100)")
            freeze(conn)
            ask(cursor)


class Stalled(io.RawIOBase):
    """A COPY's source that brings one row, and then says nothing until it is let go."""

    def __init__(self) -> None:
        self.brought, self.let_go = threading.Event(), threading.Event()

    def read(self, size: int = -1) -> str:  # type: ignore[override]
        if not self.brought.is_set():
            self.brought.set()
            return "1\n" * 20_000  # enough for the server to take some in
        self.let_go.wait(20)
        raise OSError("the source is gone")


@pytest.mark.parametrize("how", ["abandoned", "of an owner that is lost"])
def test_a_copy_that_nobody_goes_on_with_is_ended_at_the_server(
    how: str,
    db: database.Database,
    servers: Servers,
    database_url: str,  # noqa: F811
) -> None:
    servers.sql(
        "CREATE TABLE copied (n integer); GRANT ALL ON copied TO headworks_dispatch", dsn=database_url
    )
    source = Stalled()
    backends: list[int] = []

    def copy() -> None:
        with contextlib.suppress(errors.HeadworksError, OSError), db.transaction("dispatch") as conn:
            backends.append(conn.info.backend_pid)
            conn.cursor().copy_expert("COPY copied FROM STDIN", source)

    copying = threading.Thread(target=copy)
    copying.start()
    assert source.brought.wait(5)
    (backend,) = backends
    other = database.Database(database_url, timeout_seconds=5)
    if how == "abandoned":
        other._abandoned.add(backend)
        with other.transaction("dispatch"):
            pass
    else:
        other.end_backends(database.this_process())
    wait_until(lambda: not servers.sql(f"SELECT 1 FROM pg_stat_activity WHERE pid = {backend}"))
    source.let_go.set()
    copying.join()
    other.close()
    servers.sql("DROP TABLE copied", dsn=database_url)
