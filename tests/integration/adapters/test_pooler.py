"""PostgreSQL behind a PgBouncer that shares its connections by the transaction."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.adapters import database, migrations
from app.adapters.notices import Notices
from app.kernel import errors
from tests.conftest import Servers, run_statement
from tests.engines import pgbouncer
from tests.integration.threads import wait_until

CONNECTIONS = 3
SESSION = (
    "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'),"
    " current_setting('role'), current_setting('headworks.workspace_id', true)"
)


@pytest.fixture(scope="module")
def pool(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pgbouncer.PgBouncer]:
    if not pgbouncer.BINARY.exists():
        pytest.skip("pgbouncer is not installed: see .ci/run")
    folder = tmp_path_factory.mktemp("pgbouncer")
    with pgbouncer.PgBouncer(folder, servers.postgres.dsn, pool_size=CONNECTIONS) as found:
        yield found


@pytest.fixture
def pooled(pool: pgbouncer.PgBouncer, database_url: str) -> Iterator[Callable[..., database.Database]]:
    """Makes the databases of processes that reach this test's database by way of the pool."""
    opened = []

    def connect(**more: Any) -> database.Database:
        opened.append(database.Database(pool.leads_to(database_url), **more))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def ask(conn: Any, statement: str) -> Any:
    with conn.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_a_pooler_is_known_without_being_told(
    pooled: Callable[..., database.Database], database_url: str
) -> None:
    direct = database.Database(database_url)
    with pooled().transaction(None) as one, direct.transaction(None) as other:
        assert (one.is_pooled, other.is_pooled) == (True, False)
        # It is PostgreSQL's process that is ended when a connection breaks, not the pooler's number.
        assert one.backend == ask(one, "SELECT pg_backend_pid()") != one.info.backend_pid
        assert other.backend == other.info.backend_pid
    with pooled().statement() as one, direct.statement() as other:
        assert one.backend == ask(one, "SELECT pg_backend_pid()") != one.info.backend_pid
        assert other.backend == ask(other, "SELECT pg_backend_pid()")
    direct.close()


def test_nothing_of_a_transaction_is_left_for_the_next_one(
    pooled: Callable[..., database.Database], pool: pgbouncer.PgBouncer, database_url: str
) -> None:
    hasty, patient = pooled(timeout_seconds=2), pooled(timeout_seconds=60)
    for _ in range(3 * CONNECTIONS):
        with hasty.transaction("read", uuid.uuid4()) as conn:
            assert ask(conn, "SELECT current_user") == "headworks_read"
            assert ask(conn, "SHOW statement_timeout") == "2s"
        with patient.statement() as conn:
            assert ask(conn, "SHOW statement_timeout") == "1min"
            assert ask(conn, "SELECT current_user") != "headworks_read"
    for _ in range(3 * CONNECTIONS):
        [found] = run_statement(pool.leads_to(database_url), SESSION)
        assert tuple(found)[:3] == ("0", "0", "none") and not found[3]


def test_more_work_at_a_time_than_connections_waits_its_turn(
    pooled: Callable[..., database.Database],
) -> None:
    db = pooled(pool_size=4 * CONNECTIONS)
    seen: list[int] = []

    def work() -> None:
        with db.transaction("read") as conn:
            seen.append(ask(conn, "SELECT pg_backend_pid() FROM pg_sleep(0.1)"))

    threads = [threading.Thread(target=work) for _ in range(4 * CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4 * CONNECTIONS
    assert len(set(seen)) <= CONNECTIONS


def test_a_statement_that_takes_too_long_is_ended(pooled: Callable[..., database.Database]) -> None:
    db = pooled(timeout_seconds=0.5)
    with pytest.raises(errors.TransactionTimeout), db.statement() as conn:
        ask(conn, "SELECT 1 FROM pg_sleep(20)")
    with db.statement() as conn:  # and its connection goes on
        assert ask(conn, "SELECT 1") == 1
    with pytest.raises(errors.TransactionTimeout), db.transaction("read") as conn:
        ask(conn, "SELECT 1 FROM pg_sleep(20)")


def test_what_a_statement_wrote_stays(
    pooled: Callable[..., database.Database], owner_sql: Callable[[str], list[Any]]
) -> None:
    owner_sql("CREATE TABLE noted (n integer)")
    db = pooled()
    with db.statement() as conn, conn.cursor() as cursor:
        cursor.execute("INSERT INTO noted VALUES (1)")
    assert owner_sql("SELECT n FROM noted") == [(1,)]
    with pytest.raises(errors.RowRefused), db.statement() as conn, conn.cursor() as cursor:
        cursor.execute("INSERT INTO noted VALUES (2)")
        cursor.execute("INSERT INTO noted SELECT 1 / 0")
    assert owner_sql("SELECT n FROM noted") == [(1,)]


def test_whoever_waits_for_a_notice_looks_by_itself(pool: pgbouncer.PgBouncer, database_url: str) -> None:
    looked: list[None] = []
    notices = Notices(pool.leads_to(database_url), ["any"], lambda _: None, lambda: looked.append(None))
    wait_until(lambda: len(looked) >= 4)
    notices.close()


def test_a_migration_is_not_begun_where_its_lock_would_not_hold(
    pool: pgbouncer.PgBouncer, database_url: str
) -> None:
    with pytest.raises(migrations.PoolerBefore, match="PostgreSQL itself"):
        migrations.migrate(pool.leads_to(database_url))
    migrations.check(pool.leads_to(database_url))
