"""A server that says nothing: a frozen backend, whose kernel goes on answering for it."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.adapters import database, patience
from app.kernel import errors
from tests.integration.one_database import database_url, emptied  # noqa: F401

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
