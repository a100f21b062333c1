"""The schema's way forward: numbered migrations, never edited once released (Alembic)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import sqlalchemy

from app.adapters import patience, pooler
from app.kernel import errors
from app.kernel.clock import SystemClock

LOCK = 4_840_317
"""Key of the advisory lock under which one process migrates while others wait."""

MIGRATE_SECONDS = 600.0
"""As long may one step take that does not say otherwise."""

TURN_SECONDS = 0.2


class NotMigrated(errors.Fatal):
    """The database's schema is not the one that this release needs."""

    code = "not_migrated"


class PoolerBefore(errors.Fatal):
    """A pooler stands between here and the database."""

    code = "pooler_before_database"


class DatabaseUnreachable(errors.Fatal):
    """The database does not answer."""

    code = "database_unreachable"


def migrate(url: str) -> str:
    """The database has the schema of this release; returns its revision.

    Safe when several processes call it at once: each waits until no other migrates. Waits at most 4 s for a
    lock and 60 s for one statement, so that a migration never queues in front of a busy fleet; an index that
    is built beside it takes its time.
    """
    with _connect(url) as connection:
        driver: Any = connection.connection.dbapi_connection
        driver.answer_seconds = MIGRATE_SECONDS
        if pooler.is_before(driver):
            raise PoolerBefore(
                "HEADWORKS_DATABASE_URL leads to a pooler, through which no lock of the migrations holds:"
                " name the address of PostgreSQL itself for this command."
            )
        connection.rollback()
        _wait_for_turn(connection)
        connection.exec_driver_sql("set lock_timeout = '4s'")
        connection.exec_driver_sql("set statement_timeout = '60s'")
        connection.commit()
        try:
            _upgrade(connection)
            connection.commit()
        finally:
            connection.rollback()
            connection.exec_driver_sql("select pg_advisory_unlock(%s)", (LOCK,))
            connection.commit()
    return newest()


def _upgrade(connection: sqlalchemy.Connection) -> None:
    # Large, and every process that looks whether there is something to migrate would import it.
    import alembic.command
    import alembic.config

    config = alembic.config.Config()
    config.set_main_option("script_location", str(_folder()))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")


def _wait_for_turn(connection: sqlalchemy.Connection) -> None:
    # Asked again and again, without a transaction meanwhile: an index that is built beside the running
    # fleet waits for every transaction, and must not wait for one that waits for it.
    clock = SystemClock()
    while not connection.exec_driver_sql("select pg_try_advisory_lock(%s)", (LOCK,)).scalar():
        connection.rollback()
        clock.sleep(TURN_SECONDS)


def newest() -> str:
    """The revision that this release needs."""
    return max(path.stem[:4] for path in (_folder() / "versions").glob("[0-9]*.py"))  # they are numbered


def check(url: str) -> None:
    """Returns when the database is migrated to this release or a later one; else NotMigrated says what to do.

    A later one: the release before it runs on, and starts anew, while the next one is rolled out.
    """
    try:
        with _connect(url) as connection:
            found = connection.exec_driver_sql("select version_num from alembic_version").scalar()
    except sqlalchemy.exc.ProgrammingError:
        found = None
    if found is None or found < newest():  # four digits each
        raise NotMigrated(
            f"The database is at revision {found or 'none'}, this release needs {newest()}:"
            " run `headworks migrate`."
        )


def _connect(url: str) -> sqlalchemy.Connection:
    where = _driver_url(url)
    try:
        return sqlalchemy.create_engine(
            where,
            poolclass=sqlalchemy.NullPool,
            connect_args={
                "connect_timeout": 5,
                "connection_factory": patience.Connection,
                "cursor_factory": patience.Cursor,
            },
        ).connect()
    except sqlalchemy.exc.OperationalError as error:
        raise DatabaseUnreachable(
            f"The database at {where.host}:{where.port or 5432} does not answer, or not to this user:"
            " check HEADWORKS_DATABASE_URL."
        ) from error


def _driver_url(url: str) -> sqlalchemy.URL:
    return sqlalchemy.engine.make_url(url).set(drivername="postgresql+psycopg2")


def _folder() -> Path:
    return Path(str(resources.files("sql"))) / "migrations"
