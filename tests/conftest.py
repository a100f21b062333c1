"""Servers, databases and the product's services for every kind of test."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hypothesis
import psycopg2
import pytest

from app.adapters import blobs, database, embedded, migrations, signals
from app.adapters.settings import Settings
from app.kernel.clock import SystemClock
from app.uploads import parse, promote, work
from app.uploads.services import Services
from tests import in_memory

SECRET = "a secret of this test run, long enough"
KEY = "a-key-of-this-test-run"
BEARER = {"Authorization": f"Bearer {KEY}"}

# How long an example takes depends on what else runs on the machine.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

CORPUS = Path(__file__).parent / "corpus" / "ads"


def run_statement(dsn: str, statement: str) -> list[Any]:
    """What one statement returns, in a connection of its own that commits at once."""
    connection = psycopg2.connect(dsn, connect_timeout=5)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


@dataclass(frozen=True)
class Servers:
    """The PostgreSQL and Valkey of this test run."""

    postgres: embedded.Postgres
    valkey: embedded.Valkey

    def sql(self, statement: str, *, dsn: str | None = None) -> list[Any]:
        """Run one statement as the owner of everything."""
        return run_statement(dsn or self.postgres.dsn, statement)

    def dsn_of(self, name: str) -> str:
        return f"{self.postgres.dsn.rsplit('/', 1)[0]}/{name}"


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the servers of this run keep their files, each in a folder of its own."""
    with in_memory.folder(tmp_path_factory.mktemp("servers")) as folder:
        yield folder


@pytest.fixture(scope="session")
def servers(server_folder: Path) -> Iterator[Servers]:
    """One server of each kind for the whole run, with a migrated database as template."""
    with (
        embedded.Postgres(server_folder / "postgres", durable=False) as postgres,
        embedded.Valkey(server_folder / "valkey") as valkey,
    ):
        found = Servers(postgres, valkey)
        found.sql("CREATE DATABASE template_migrated")
        migrations.migrate(found.dsn_of("template_migrated"))
        yield found


@pytest.fixture
def database_url(servers: Servers) -> Iterator[str]:
    """A migrated database of this test's own."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name} TEMPLATE template_migrated")
    yield servers.dsn_of(name)
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def owner_sql(servers: Servers, database_url: str) -> Callable[[str], list[Any]]:
    """Run one statement in this test's database, past roles and policies."""
    return lambda statement: servers.sql(statement, dsn=database_url)


@dataclass
class RecordedHints:
    """A dispatch that only remembers what was sent."""

    sent: list[str] = field(default_factory=list)

    def send(self, task: str, *, within: float = 0.0) -> None:
        self.sent.append(task)


@dataclass
class SetClock(SystemClock):
    """A clock that stands still and remembers how long it was asked to sleep."""

    time: datetime = datetime(2026, 1, 15, 12, tzinfo=UTC)
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def services(servers: Servers, database_url: str, tmp_path: Path) -> Iterator[Services]:
    """The product's services on a database, a file store and event streams of their own."""
    settings = Settings(
        database_url=database_url,
        broker_url=servers.valkey.url,
        data_dir=tmp_path,
        secret=SECRET,
        api_key=KEY,
    )
    db = database.Database(database_url, name="tests")
    yield Services(
        settings,
        db,
        blobs.connect(settings.storage),
        RecordedHints(),
        signals.Streams(servers.valkey.url, prefix=f"test-{uuid.uuid4().hex[:8]}:"),
        SystemClock(),
    )
    db.close()


def work_off(services: Services) -> None:
    """Every upload that can go on has gone on, in this process and in order."""
    while work.run_next(services, "parse", parse.parse_upload) or work.run_next(
        services, "promote", promote.promote_upload
    ):
        pass


def put_off(services: Services, ids: Sequence[uuid.UUID], *, until: str = "infinity") -> None:
    """Uploads that nobody holds are tried again at this time, and have no slot before."""
    with services.db.transaction("dispatch") as conn, conn.cursor() as cursor:
        cursor.execute(
            "UPDATE data_uploads SET next_attempt_at = %s, slot = NULL, deferrals = 1 WHERE id = ANY(%s)",
            (until, list(ids)),
        )


def with_clock(services: Services, clock: SystemClock) -> Services:
    """The same services with another clock."""
    return replace(services, clock=clock)


def corpus_cases() -> list[dict[str, Any]]:
    """What each corpus file must lead to."""
    return json.loads((CORPUS / "expected.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def corpus_sequences() -> list[dict[str, Any]]:
    """What two uploads in a row must lead to."""
    return json.loads((CORPUS / "expected_sequences.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]
