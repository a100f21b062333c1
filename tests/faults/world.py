"""A fleet whose every part can be killed, a stream of uploads through it, and what must hold after."""

from __future__ import annotations

import datetime
import io
import itertools
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psycopg2

from app.adapters import blobs, database, dispatch, embedded, migrations, signals
from app.adapters.settings import Settings
from app.kernel.clock import SystemClock
from app.uploads import intake
from app.uploads.services import Services
from app.uploads.states import ACTIVE, MAX_ACTIVE_PER_WORKSPACE, UPLOAD
from tests import patience
from tests.conftest import RecordedHints, run_statement, work_off
from tests.faults.nodes import ROOT, WorkerContainer
from tests.faults.proxy import Proxy

LEASE_SECONDS = 2.0
SWEEP_SECONDS = 0.3
STATEMENT_SECONDS = 5.0
CHUNK_ROWS = 500
DEADLINE_SECONDS = 60.0

SEEDS = [int(seed) for seed in os.environ.get("FAULT_SEEDS", "1").split()]
"""Of faults at random moments; FAULT_SEEDS="2 3 4" tries others."""

_TERMINAL = ", ".join(f"'{status}'" for status in UPLOAD.terminal)


def report(seed: int, *, rows: int = 2_000) -> bytes:
    """A Meta report of daily ad rows; reports of one seed family overlap in entities and days.

    Its last row is its first one again: rows that stand twice are settled by questions of their own.
    """
    source = random.Random(seed)
    out = io.StringIO()
    out.write("Day,Campaign name,Campaign ID,Ad set name,Ad Set ID,Ad name,Ad ID,Impressions,")
    out.write("Clicks (all),Amount spent (USD),Purchases\n")
    first = datetime.date(2025, 1, 1)
    for number in range(rows - 1):
        day, ad = divmod(number, 50)
        purchases = source.choice(("", "--", "0", "3", "7"))
        out.write(
            f"{first + datetime.timedelta(day)},Camp {ad // 25},{100 + ad // 25},Set {ad // 5},"
            f"{1000 + ad // 5},Ad {ad},{10_000 + ad},{source.randint(0, 9999)},{source.randint(0, 300)},"
            f"{source.randint(0, 20000) / 100:.2f},{purchases}\n"
        )
    out.write(out.getvalue().splitlines(keepends=True)[1])
    return out.getvalue().encode()


@dataclass
class World:
    """The servers, the workers and the uploads of one test."""

    postgres: embedded.Postgres
    valkey: embedded.Valkey
    folder: Path
    env: dict[str, str]
    workers: list[WorkerContainer] = field(default_factory=list)
    sent: list[tuple[uuid.UUID, uuid.UUID, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The workers reach their servers through networks that may break; the test itself directly.
        assert self.postgres.port is not None
        assert self.valkey.port is not None
        self.to_database = Proxy(self.postgres.port)
        self.to_broker = Proxy(self.valkey.port)
        settings = Settings.from_env(self.env)
        self.services = Services(
            settings,
            database.Database(settings.database_url, name="world"),
            blobs.connect(settings.storage),
            dispatch.CeleryDispatch(settings.broker_url, SystemClock()),
            signals.Streams(settings.broker_url),
            SystemClock(),
        )

    # -- the fleet

    def start_worker(self, name: str, queues: str, *options: str, **env: str) -> WorkerContainer:
        """One more worker, ready."""
        log = self.folder / f"{name}.log"
        worker = WorkerContainer(name, queues, {**self.env, **self.remote, **env}, log, options=options)
        self.workers.append(worker)
        worker.ready()
        return worker

    @property
    def remote(self) -> dict[str, str]:
        """Where the servers are for whom the networks lie in between."""
        return {
            "HEADWORKS_DATABASE_URL": self.to_database.leads_to(self.postgres.dsn),
            "HEADWORKS_BROKER_URL": self.to_broker.leads_to(self.valkey.url),
        }

    def begin_anew(self) -> None:
        """Every server, network and worker runs, and nothing was ever handed in."""
        for network in (self.to_database, self.to_broker):
            network.renew()
        for server in (self.postgres, self.valkey):
            if server.pid is None:
                server.stop()
                server.start()
        for worker in self.workers:
            if worker.status != "running":
                worker.restart()
            worker.signal_group(signal.SIGCONT)
        self.sent.clear()
        self.wait_for(self._empty, "the tables are empty")

    def _empty(self) -> bool:
        """Whether everything is gone; the workers sweep on, in another order of the tables."""
        try:
            self.sql(
                "TRUNCATE data_uploads, workspaces, staging_rows, staging_id_resolution, campaigns, ad_sets,"
                " ads, daily_metrics, outbox, audit"
            )
        except psycopg2.errors.DeadlockDetected:
            return False
        return True

    def _tend(self) -> None:
        """A worker that has ended by itself is started again, as by whatever runs a fleet."""
        for worker in self.workers:
            if worker.status != "running" and not worker.ended_on_purpose:
                worker.start()

    def close(self) -> None:
        """No process of this world runs."""
        for worker in self.workers:
            worker.teardown()
        self.services.db.close()
        self.to_database.close()
        self.to_broker.close()

    # -- work

    def hand_in(
        self,
        count: int = 4,
        *,
        workspaces: int = 1,
        workspace: int = 1,
        rows: int = 2_000,
        first_seed: int = 0,
    ) -> list[uuid.UUID]:
        """So many overlapping uploads are pending, in workspaces from this one on."""
        ids = []
        for number in range(count):
            workspace_id = uuid.UUID(int=workspace + number % workspaces)
            content = report(first_seed + number, rows=rows)
            receipt = intake.take_in(
                self.services,
                intake.Request(workspace_id=workspace_id, platform="meta", source="manual"),
                io.BytesIO(content),
            )
            self.sent.append((receipt.upload_id, workspace_id, content))
            ids.append(receipt.upload_id)
        return ids

    def sql(self, statement: str) -> list[Any]:
        """One statement as the owner of everything."""
        return run_statement(self.postgres.dsn, statement)

    def wait_for(self, condition: Callable[[], Any], what: str, *, seconds: float = DEADLINE_SECONDS) -> Any:
        """What the condition returns once it is true; it may fail while servers are away."""
        deadline = patience.deadline(seconds)
        while True:
            self._tend()
            try:
                if found := condition():
                    return found
            except psycopg2.OperationalError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} in {seconds} s: {self._situation()}")
            time.sleep(0.02)

    def _situation(self) -> str:
        try:
            uploads = self.sql(
                "SELECT id, status, attempts, owner_id, error_code, staged_rows, promoted_rows"
                " FROM data_uploads"
            )
        except psycopg2.OperationalError as error:
            uploads = [str(error)]
        logs = "\n".join(f"--- {w.name}\n{w.logs()[-1500:]}" for w in self.workers)
        return f"{uploads}\n{logs}"

    def wait_for_status(self, *statuses: str, seconds: float = DEADLINE_SECONDS) -> tuple[uuid.UUID, str]:
        """Id and owner of an upload that is in one of these states and owned."""
        names = ", ".join(f"'{status}'" for status in statuses)
        rows = self.wait_for(
            lambda: self.sql(
                f"SELECT id, owner_id FROM data_uploads WHERE status IN ({names}) AND owner_id IS NOT NULL"
            ),
            f"no upload is {names}",
            seconds=seconds,
        )
        return uuid.UUID(str(rows[0][0])), str(rows[0][1])

    def begin_work(self, *statuses: str) -> dict[str, str]:
        """Uploads are in each of these states at once; who owns one in each."""

        def owners() -> dict[str, str]:
            if not self.sql(f"SELECT 1 FROM data_uploads WHERE status NOT IN ({_TERMINAL})"):
                self.hand_in(6, rows=3_000, workspaces=2)  # again, if it went by between two looks
            rows = self.sql("SELECT status, owner_id FROM data_uploads WHERE owner_id IS NOT NULL")
            found = dict(rows)
            return found if found.keys() >= set(statuses) else {}

        return self.wait_for(owners, f"no uploads are {statuses} at once")  # type: ignore[no-any-return]

    def settle(self, *, seconds: float = DEADLINE_SECONDS) -> None:
        """Every upload is terminal."""
        self.wait_for(
            lambda: not self.sql(f"SELECT 1 FROM data_uploads WHERE status NOT IN ({_TERMINAL})"),
            "not every upload is terminal",
            seconds=seconds,
        )

    def worker_of(self, owner_id: str) -> WorkerContainer:
        """The worker whose pool process owns an upload."""
        return next(worker for worker in self.workers if self.is_of(owner_id, worker))

    def is_of(self, owner_id: str, worker: WorkerContainer) -> bool:
        """Whether the owner of an upload is a pool process of this worker."""
        return _group_of(int(owner_id.rsplit("/", 1)[1])) == worker.pid

    # -- what must hold

    def check(self, *, failed: Sequence[uuid.UUID] = ()) -> None:
        """All invariants: results, events, limits, locks and leftovers."""
        statuses = dict(self.sql("SELECT id, status FROM data_uploads"))
        wanted = {str(i): "failed" if i in failed else "completed" for i, _, _ in self.sent}
        assert {str(i): s for i, s in statuses.items()} == wanted, self._situation()
        self._check_events(failed)
        assert self.most_active() <= MAX_ACTIVE_PER_WORKSPACE
        assert self.sql(
            "SELECT count(*) FROM data_uploads WHERE owner_id IS NOT NULL OR slot IS NOT NULL"
        ) == [(0,)]
        self.wait_for(
            lambda: self.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)],
            "an advisory lock is left",
            seconds=5,
        )
        # The last one of a worker that gave up may have to run into its timeout first.
        self.wait_for(
            lambda: (
                self.sql(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%headworks%'"
                    f" AND clock_timestamp() - xact_start > make_interval(secs => {STATEMENT_SECONDS})"
                )
                == [(0,)]
            ),
            "a transaction is left open",
            seconds=2 * STATEMENT_SECONDS,
        )
        self._check_tables([entry for entry in self.sent if entry[0] not in failed])

    def _check_events(self, failed: Sequence[uuid.UUID]) -> None:
        told = [key for (key,) in self.sql("SELECT key FROM outbox ORDER BY key")]
        assert told == sorted(str(i) for i, _, _ in self.sent if i not in failed)

    def _check_tables(self, uploads: Sequence[tuple[uuid.UUID, uuid.UUID, bytes]]) -> None:
        found = production(self.sql)
        expected = undisturbed(self.postgres, self.folder, tuple((w, content) for _, w, content in uploads))
        for table, rows in expected.items():
            missing, surplus = set(rows) - set(found[table]), set(found[table]) - set(rows)
            assert found[table] == rows, (
                f"{table}: {len(found[table])} rows for {len(rows)}; missing {len(missing)}, such as"
                f" {sorted(missing, key=str)[:2]}, surplus {sorted(surplus, key=str)[:2]}"
            )

    def most_active(self) -> int:
        """The largest number of active uploads of any workspace at any time, from the audit log."""
        moves = self.sql(
            "SELECT workspace_id, upload_id, action, to_status FROM audit WHERE to_status IS NOT NULL"
            " AND action IN ('moved', 'resumed', 'deferred', 'requeued') ORDER BY at, id"
        )
        active: dict[Any, set[Any]] = {}
        most = 0
        for workspace_id, upload_id, action, status in moves:
            held = active.setdefault(workspace_id, set())
            holds = status in ACTIVE and action != "deferred"
            held.add(upload_id) if holds else held.discard(upload_id)
            most = max(most, len(held))
        return most

    def recovery_seconds(self) -> list[float]:
        """For each lease that expired, how long it took from then until the upload was claimed again."""
        rows = self.sql(
            "SELECT extract(epoch FROM (SELECT min(n.at) FROM audit n WHERE n.upload_id = a.upload_id"
            " AND n.id > a.id AND n.action = 'resumed') - a.at)::float FROM audit a"
            " WHERE a.action = 'lease_expired'"
        )
        return [seconds for (seconds,) in rows if seconds is not None]


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


TABLES = {
    "campaigns": "SELECT workspace_id, external_id, id_source, name, status FROM campaigns ORDER BY 1, 2",
    "ad_sets": "SELECT a.workspace_id, a.external_id, a.name, c.external_id FROM ad_sets a"
    " JOIN campaigns c ON c.id = a.campaign_id ORDER BY 1, 2",
    "ads": "SELECT x.workspace_id, x.external_id, x.name, a.external_id FROM ads x"
    " JOIN ad_sets a ON a.id = x.ad_set_id ORDER BY 1, 2",
    "daily_metrics": "SELECT m.workspace_id, m.metric_date, c.external_id, a.external_id, x.external_id,"
    " m.currency, m.spend, m.impressions, m.clicks, m.reach, m.conversions, m.source_rows"
    " FROM daily_metrics m JOIN campaigns c ON c.id = m.campaign_id"
    " LEFT JOIN ad_sets a ON a.id = m.ad_set_id LEFT JOIN ads x ON x.id = m.ad_id ORDER BY 1, 2, 3, 4, 5",
}


def production(sql: Callable[[str], list[Any]]) -> dict[str, list[Any]]:
    """Every production row, in words that do not depend on the order of writing."""
    return {table: sql(statement) for table, statement in TABLES.items()}


@cache
def undisturbed(
    postgres: embedded.Postgres, folder: Path, uploads: tuple[tuple[uuid.UUID, bytes], ...]
) -> dict[str, list[Any]]:
    """The production rows that the same uploads leave when nothing happens to them."""
    with fresh_database(postgres) as dsn:
        settings = Settings(database_url=dsn, broker_url="redis://127.0.0.1:1/0", data_dir=folder / "calm")
        db = database.Database(dsn, name="calm")
        services = Services(
            settings,
            db,
            blobs.connect(settings.storage),
            RecordedHints(),
            signals.Streams(settings.broker_url),
            SystemClock(),
        )
        for workspace_id, content in uploads:
            request = intake.Request(workspace_id=workspace_id, platform="meta", source="manual")
            intake.take_in(services, request, io.BytesIO(content))
            work_off(services)
        connection = psycopg2.connect(dsn)
        try:
            with connection.cursor() as cursor:

                def sql(statement: str) -> list[Any]:
                    cursor.execute(statement)
                    return cursor.fetchall()

                return production(sql)
        finally:
            connection.close()
            db.close()


def environment(
    postgres: embedded.Postgres, valkey: embedded.Valkey, folder: Path, *, defaults: bool = False
) -> dict[str, str]:
    """What the workers of a world find in their environment; unless `defaults`, faster leases."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    quick = {
        "HEADWORKS_LEASE_SECONDS": str(LEASE_SECONDS),
        "HEADWORKS_SWEEP_SECONDS": str(SWEEP_SECONDS),
        "HEADWORKS_STATEMENT_TIMEOUT_SECONDS": str(STATEMENT_SECONDS),
        "HEADWORKS_STAGING_CHUNK_ROWS": str(CHUNK_ROWS),
    }
    return {
        **kept,
        **({} if defaults else quick),
        "PYTHONPATH": str(ROOT),
        "HEADWORKS_DATABASE_URL": postgres.dsn,
        "HEADWORKS_BROKER_URL": valkey.url,
        "HEADWORKS_DATA_DIR": str(folder),
        "REMAP_SIGTERM": "SIGQUIT",
    }


_numbers = itertools.count()


@contextmanager
def fresh_database(postgres: embedded.Postgres) -> Iterator[str]:
    """A migrated database beside the world's own."""
    name = f"calm_{next(_numbers)}"
    connection = psycopg2.connect(postgres.dsn)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        dsn = f"{postgres.dsn.rsplit('/', 1)[0]}/{name}"
        migrations.migrate(dsn)
        yield dsn
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        connection.close()


def stop_immediately(postgres: embedded.Postgres) -> None:
    """PostgreSQL ends at once, as after a crash: its clients' connections break."""
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGQUIT)
    deadline = patience.deadline(10)
    while postgres.pid is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    postgres.stop()
