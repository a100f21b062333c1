"""Transactions on a real PostgreSQL, and its errors in the product's words (D6.6 §6.1)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

from app.adapters import database
from app.adapters.database import Connection, Database
from app.kernel import errors
from tests.conftest import Servers
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.threads import at_once, wait_until

WORKSPACE = uuid.UUID("11111111-1111-4111-8111-111111111111")
OwnerSql = Callable[[str], list[Any]]


@pytest.fixture
def notes(owner_sql: OwnerSql) -> None:
    """A table with a constraint of every kind."""
    owner_sql(
        "DROP TABLE IF EXISTS notes;"
        " CREATE TABLE notes (id integer PRIMARY KEY, amount numeric(6, 2) CHECK (amount >= 0),"
        " parent integer REFERENCES notes, word text, CONSTRAINT one_word UNIQUE (word));"
        " GRANT ALL ON notes TO headworks_parse"
    )


@pytest.fixture
def make_database(database_url: str) -> Iterator[Callable[..., Database]]:  # noqa: F811
    made: list[Database] = []

    def make(url: str = database_url, **options: Any) -> Database:
        made.append(Database(url, **{"name": "tests", "pool_size": 1, **options}))
        return made[-1]

    yield make
    for db in made:
        db.close()


@pytest.fixture
def db(make_database: Callable[..., Database], notes: None) -> Database:
    return make_database()


def run(conn: Connection, statement: str) -> list[Any]:
    with conn.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def add(db: Database, statement: str) -> None:
    with db.transaction("parse") as conn:
        run(conn, statement)


def ids(owner_sql: OwnerSql) -> list[int]:
    return [number for (number,) in owner_sql("SELECT id FROM notes ORDER BY id")]


# -- transactions


def test_a_block_that_ends_is_committed(db: Database, owner_sql: OwnerSql) -> None:
    add(db, "INSERT INTO notes VALUES (1)")
    assert ids(owner_sql) == [1]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, errors.Conflict])
def test_a_block_that_raises_is_rolled_back_and_its_error_goes_on(
    error: type[BaseException], db: Database, owner_sql: OwnerSql
) -> None:
    with pytest.raises(error), db.transaction("parse") as conn:
        run(conn, "INSERT INTO notes VALUES (1)")
        raise error("no")
    assert ids(owner_sql) == []
    add(db, "INSERT INTO notes VALUES (2)")
    assert ids(owner_sql) == [2]


def test_a_transaction_has_its_role_and_its_workspace(db: Database) -> None:
    with db.transaction("relay", WORKSPACE) as conn:
        found = run(conn, "SELECT current_user::text, current_workspace()")
    assert found == [("headworks_relay", WORKSPACE)]
    with db.transaction("read") as conn:
        found = run(conn, "SELECT current_user::text, current_workspace()")
    assert found == [("headworks_read", None)]


@pytest.mark.parametrize("end", ["committed", "raised", "refused by the server"])
def test_a_transaction_leaves_nothing_behind_in_its_connection(end: str, db: Database) -> None:
    pids = []
    try:
        with db.transaction("parse", WORKSPACE) as conn:
            pids.append(conn.info.backend_pid)
            if end == "raised":
                raise ValueError
            if end == "refused by the server":
                run(conn, "INSERT INTO campaigns DEFAULT VALUES")
    except (ValueError, errors.AccessDenied):
        pass
    pooled = db._connect()
    (found,) = run(
        pooled.dbapi_connection,  # type: ignore[arg-type]
        "SELECT pg_backend_pid(), current_user::text,"
        " coalesce(current_setting('headworks.workspace_id'), ''), current_setting('statement_timeout')",
    )
    pooled.close()
    assert (pids[0], "headworks", "", "1min") == found  # the timeout is the connection's own


# -- a server that goes away


def terminate(servers: Servers, conn: Connection) -> None:
    pid = conn.info.backend_pid
    servers.sql(f"SELECT pg_terminate_backend({pid})")
    wait_until(lambda: not servers.sql(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"))


def test_a_terminated_connection_is_lost_and_the_next_transaction_works(
    db: Database, servers: Servers, owner_sql: OwnerSql
) -> None:
    with pytest.raises(errors.ConnectionLost), db.transaction("parse") as conn:
        run(conn, "INSERT INTO notes VALUES (1)")
        terminate(servers, conn)
        run(conn, "INSERT INTO notes VALUES (2)")
    add(db, "INSERT INTO notes VALUES (3)")
    assert ids(owner_sql) == [3]


def test_a_connection_lost_at_commit_is_said(db: Database, servers: Servers, owner_sql: OwnerSql) -> None:
    with pytest.raises(errors.ConnectionLost), db.transaction("parse") as conn:
        run(conn, "INSERT INTO notes VALUES (1)")
        terminate(servers, conn)
    assert ids(owner_sql) == []


def test_a_connection_that_died_in_the_pool_is_replaced_unseen(
    db: Database, servers: Servers, owner_sql: OwnerSql
) -> None:
    with db.transaction("parse") as conn:
        run(conn, "INSERT INTO notes VALUES (1)")
    terminate(servers, conn)
    add(db, "INSERT INTO notes VALUES (2)")
    assert ids(owner_sql) == [1, 2]


def test_a_connection_lost_in_a_savepoint_is_said(db: Database, servers: Servers) -> None:
    with pytest.raises(errors.ConnectionLost), db.transaction("parse") as conn:
        terminate(servers, conn)
        database.savepoint(conn, lambda: run(conn, "INSERT INTO notes VALUES (1)"))
    add(db, "INSERT INTO notes VALUES (2)")


def test_a_connection_lost_inside_of_a_savepoint_is_said(db: Database, servers: Servers) -> None:
    def work(conn: Connection) -> None:
        terminate(servers, conn)
        run(conn, "INSERT INTO notes VALUES (1)")

    with pytest.raises(errors.ConnectionLost), db.transaction("parse") as conn:
        database.savepoint(conn, lambda: work(conn))
    add(db, "INSERT INTO notes VALUES (2)")


def addresses(of_database: str) -> dict[str, sqlalchemy.URL]:
    url = sqlalchemy.engine.make_url(of_database)
    return {
        "wrong password": url.set(password="not-the-password"),
        "nobody listens": url.set(port=1),
        "no such database": url.set(database="no_such_database"),
        "no such user": url.set(username="no_such_user"),
    }


@pytest.mark.parametrize("address", ["wrong password", "nobody listens", "no such database", "no such user"])
def test_a_connection_that_cannot_be_made_is_lost_and_names_no_password(
    address: str,
    make_database: Callable[..., Database],
    database_url: str,  # noqa: F811
) -> None:
    url = addresses(database_url)[address]
    db = make_database(url.render_as_string(hide_password=False))
    with pytest.raises(errors.ConnectionLost) as raised, db.transaction("read"):
        pass
    assert url.password and url.password not in f"{raised.value} {raised.value!r} {raised.value.sentence}"


# -- time


def test_a_statement_that_takes_too_long_is_cut_off(
    make_database: Callable[..., Database], notes: None
) -> None:
    db = make_database(timeout_seconds=0.1)
    with pytest.raises(errors.TransactionTimeout), db.transaction("parse") as conn:
        run(conn, "SELECT pg_sleep(20)")
    add(db, "INSERT INTO notes VALUES (1)")


def test_a_lock_that_takes_too_long_is_given_up(make_database: Callable[..., Database], notes: None) -> None:
    waits, holds = make_database(timeout_seconds=0.1), make_database()
    with holds.transaction("parse") as conn:
        run(conn, "LOCK TABLE notes IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(errors.TransactionTimeout):
            add(waits, "INSERT INTO notes VALUES (1)")


def test_a_transaction_that_does_nothing_for_too_long_is_lost(
    make_database: Callable[..., Database], notes: None, servers: Servers
) -> None:
    db = make_database(idle_seconds=0.1)
    with pytest.raises(errors.ConnectionLost), db.transaction("parse") as conn:
        pid = conn.info.backend_pid
        wait_until(lambda: not servers.sql(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"))
        run(conn, "SELECT 1")
    add(db, "INSERT INTO notes VALUES (1)")


def test_a_transaction_of_which_only_the_beginning_arrived_ends_by_itself(
    make_database: Callable[..., Database], servers: Servers
) -> None:
    """The network fell silent behind the driver's own BEGIN, and nobody comes back to it."""
    db = make_database(idle_seconds=0.2)
    connection = db._connect().dbapi_connection
    assert connection is not None
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        (pid,) = cursor.fetchone()
    wait_until(lambda: servers.sql(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}") == [], seconds=5)


def test_what_sqlalchemy_asks_the_first_connection_is_bounded_too(
    make_database: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may swallow the very first answer: that of the question what server it is."""
    bounds: list[str] = []

    def ask(dialect: Any, connection: Any) -> None:
        bounds.append(connection.exec_driver_sql("show idle_in_transaction_session_timeout").scalar())
        initialize(dialect, connection)

    initialize = PGDialect_psycopg2.initialize
    monkeypatch.setattr(PGDialect_psycopg2, "initialize", ask)
    add(make_database(idle_seconds=0.2), "SELECT 1")
    assert bounds == ["200ms"]


def test_of_two_transactions_in_a_circle_one_gives_way(
    make_database: Callable[..., Database], notes: None, owner_sql: OwnerSql
) -> None:
    owner_sql("INSERT INTO notes VALUES (1, 0), (2, 0)")
    both_hold = threading.Barrier(2)
    db = make_database(pool_size=2)

    def change(first: int, second: int) -> None:
        with db.transaction("parse") as conn:
            run(conn, f"UPDATE notes SET amount = amount + 1 WHERE id = {first}")
            both_hold.wait(10)
            run(conn, f"UPDATE notes SET amount = amount + 1 WHERE id = {second}")

    ends = at_once(lambda: change(1, 2), lambda: change(2, 1))
    assert {type(None), errors.Deadlock} == {type(end) for end in ends}
    assert owner_sql("SELECT amount FROM notes") == [(1,), (1,)]


def test_a_transaction_that_came_too_late_counts_as_a_deadlock(db: Database, owner_sql: OwnerSql) -> None:
    owner_sql("INSERT INTO notes VALUES (1, 0)")
    with pytest.raises(errors.Deadlock), db.transaction("parse") as conn:
        run(conn, "SELECT 1")  # the transaction has begun, but sees nothing yet
        run(conn, "COMMIT")
        run(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL role headworks_parse")
        run(conn, "SELECT * FROM notes")
        owner_sql("UPDATE notes SET amount = 1")
        run(conn, "UPDATE notes SET amount = 2")


# -- what the server refuses


REFUSALS = [
    # statement                                              ours                       names
    ("INSERT INTO notes (id, word) VALUES (8, 'xyzzy')", errors.UniqueViolated, "one_word"),
    ("INSERT INTO notes (id) VALUES (7)", errors.UniqueViolated, "notes_pkey"),
    ("INSERT INTO notes (id, amount) VALUES (8, -4711)", errors.RowRefused, "notes_amount_check"),
    ("INSERT INTO notes (id, parent) VALUES (8, 4711)", errors.ForeignKeyMissing, "notes_parent_fkey"),
    ("INSERT INTO notes (id, amount) VALUES (8, 4711000)", errors.RowRefused, ""),  # numeric overflow
    ("INSERT INTO notes (word) VALUES ('4711')", errors.RowRefused, "notes"),  # NULL as key
    ("INSERT INTO notes (id) SELECT 'x4711'::text::integer", errors.RowRefused, ""),  # no number
    ("INSERT INTO notes (id) VALUES (4711000000000)", errors.RowRefused, ""),  # no integer
    ("SELECT 4711 / 0", errors.RowRefused, ""),
    (
        "INSERT INTO notes (id) VALUES (8), (8) ON CONFLICT (id) DO UPDATE SET word = '4711'",
        errors.RowRefused,  # one key twice in one statement
        "",
    ),
    ("SELECT * FROM campaigns WHERE name = '4711'", errors.AccessDenied, ""),  # permission denied
    (
        "INSERT INTO outbox (workspace_id, topic, key, payload)"
        " VALUES (gen_random_uuid(), '4711', '4711', '{}')",
        errors.AccessDenied,
        "",
    ),
]


@pytest.mark.parametrize(("statement", "ours", "names"), REFUSALS)
def test_a_refusal_of_the_server_becomes_our_error_and_names_no_value(
    statement: str, ours: type[errors.HeadworksError], names: str, db: Database, owner_sql: OwnerSql
) -> None:
    owner_sql("INSERT INTO notes (id, word) VALUES (7, 'xyzzy')")
    with pytest.raises(errors.HeadworksError) as raised:
        add(db, statement)
    assert ours is type(raised.value)
    assert names in raised.value.sentence
    assert "4711" not in raised.value.sentence and "xyzzy" not in raised.value.sentence
    assert ids(owner_sql) == [7]


@pytest.mark.parametrize(
    "statement", ["SELEC 1", "SELECT no_such_column FROM notes", "SELECT * FROM no_table"]
)
def test_a_mistake_in_our_own_sql_stays_what_it_is(statement: str, db: Database) -> None:
    with pytest.raises(psycopg2.ProgrammingError):
        add(db, statement)


# -- savepoints


def test_a_savepoint_returns_what_its_work_returned(db: Database) -> None:
    with db.transaction("parse") as conn:
        assert database.savepoint(conn, lambda: run(conn, "SELECT 1")) == [(1,)]


@pytest.mark.parametrize("error", ["the server's", "our own"])
def test_a_savepoint_undoes_its_own_part_alone(error: str, db: Database, owner_sql: OwnerSql) -> None:
    def fails() -> None:
        run(conn, "INSERT INTO notes VALUES (2)")
        if error == "our own":
            raise ValueError
        run(conn, "INSERT INTO notes VALUES (1)")

    with db.transaction("parse") as conn:
        run(conn, "INSERT INTO notes VALUES (1)")
        with pytest.raises((errors.UniqueViolated, ValueError)):
            database.savepoint(conn, fails)
        run(conn, "INSERT INTO notes VALUES (3)")
    assert ids(owner_sql) == [1, 3]


def test_savepoints_may_stand_inside_of_each_other(db: Database, owner_sql: OwnerSql) -> None:
    def inner() -> None:
        run(conn, "INSERT INTO notes VALUES (3)")
        raise ValueError

    def outer() -> None:
        run(conn, "INSERT INTO notes VALUES (2)")
        with pytest.raises(ValueError):
            database.savepoint(conn, inner)
        run(conn, "INSERT INTO notes VALUES (4)")

    with db.transaction("parse") as conn:
        run(conn, "INSERT INTO notes VALUES (1)")
        database.savepoint(conn, outer)
    assert ids(owner_sql) == [1, 2, 4]
