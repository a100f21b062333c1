"""The failure table (D6.6 §6.1, §6.2), line by line, against real servers: what is slept, what is left.

Nothing here is ever really slept: the clock only notes for how long it was asked to.
"""

from __future__ import annotations

import gzip
import http.server
import io
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg2
import pytest
import structlog

from app import web
from app.adapters import bucket_blobs, database, embedded, migrations, retries
from app.kernel import errors, retry
from app.uploads import intake, lanes, leases, parse, promote, recover, store, work
from app.uploads.services import Services
from app.uploads.states import MAX_ACTIVE_PER_WORKSPACE, MAX_ATTEMPTS
from tests.conftest import BEARER, Servers, SetClock, with_clock, work_off
from tests.integration.one_bucket import CREDENTIALS
from tests.integration.threads import wait_until
from tests.integration.uploads.conftest import GOOD, WORKSPACE, Uploads, report

OwnerSql = Callable[[str], list[Any]]
Test = TypeVar("Test", bound=Callable[..., None])

SECONDS = [1.0, 2.0, 4.0]
MILLISECONDS = [0.1, 0.2, 0.4]

REPRODUCED: set[type[errors.HeadworksError]] = set()


def reproduces(*kinds: type[errors.HeadworksError]) -> Callable[[Test], Test]:
    """The test that follows makes these failures happen."""
    REPRODUCED.update(kinds)
    return lambda test: test


@dataclass
class ActingClock(SetClock):
    """Does something instead of each sleep: `act` is told how many there were."""

    act: Callable[[int], None] = lambda _: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.act(len(self.slept))


@pytest.fixture
def clock() -> ActingClock:
    return ActingClock()


@pytest.fixture
def services(services: Services, clock: ActingClock) -> Services:
    return with_clock(services, clock)


@pytest.fixture
def log() -> Iterator[list[Any]]:
    """What is logged from here on."""
    with structlog.testing.capture_logs() as lines:
        yield lines


COUNTS = {
    table: f"SELECT count(*) FROM {table}"
    for table in ("staging_rows", "campaigns", "ad_sets", "ads", "daily_metrics", "outbox")
}


def rows(owner_sql: OwnerSql) -> dict[str, int]:
    """How many rows each table holds; those that hold none are left out."""
    found = {table: owner_sql(count)[0][0] for table, count in COUNTS.items()}
    return {table: number for table, number in found.items() if number}


PROMOTED = {"staging_rows": 5, "campaigns": 2, "daily_metrics": 3, "outbox": 1}
"""What GOOD leaves: three days and two campaigns, staged and promoted, and one event."""


def said(upload: Any) -> tuple[str, str | None, str | None]:
    return upload.status, upload.error_code, upload.error_text


def assert_free(upload: Any) -> None:
    """Nobody holds the upload, and it takes no place of its workspace."""
    assert (upload.owner_id, upload.lease_expires_at, upload.slot) == (None, None, None)


def refused_rows(owner_sql: OwnerSql) -> list[Any]:
    return owner_sql(
        "SELECT row_index, validation_status, validation_errors -> 'errors' -> 0 ->> 'code', promotion_error"
        " FROM staging_rows WHERE entity_type = 'daily_metric'"
        " AND (validation_status <> 'valid' OR promotion_error IS NOT NULL) ORDER BY row_index"
    )


# -- §6.1 file not found: FATAL


@reproduces(errors.FileGone)
def test_an_upload_whose_file_is_gone_fails_at_once(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    upload_id = uploads.pending()
    services.blobs.delete(uploads.show(upload_id).file_url)
    work_off(services)
    upload = uploads.show(upload_id)
    assert said(upload) == ("failed", "file_not_found", "The stored file is gone. Upload it again.")
    assert_free(upload)
    assert (rows(owner_sql), clock.slept) == ({}, [])


# -- §6.1 malformed file: FATAL

MALFORMED = {
    "no known header": (b"Colour,Size\nred,1\n", "unknown_header", "No row of column names"),
    "a broken document": (b'[{"campaign_name": "Spring", "impressions": 1', "malformed_json", "broken"),
    "a gzip archive cut off": (gzip.compress(GOOD * 9)[:-12], "malformed_file", "damaged or cut off"),
}


@reproduces(errors.FileRefused)
@pytest.mark.parametrize(("content", "code", "words"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_fails_at_once_and_leaves_no_row(
    content: bytes, code: str, words: str, uploads: Uploads, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    upload = uploads.show(uploads.finished(content))
    assert (upload.status, upload.error_code) == ("failed", code)
    assert words in upload.error_text
    assert_free(upload)
    assert (rows(owner_sql), clock.slept) == ({}, [])


# -- §6.1 parse error and validation error of one row: ROW

ELEVEN = [f"2025-05-{day:02},Spring,101,{day},1,1.50" for day in range(1, 12)]
BAD_ROWS = {
    "cells without a column (parse)": ("2025-05-12,Spring,101,12,1,1.50,surplus", "too_many_columns"),
    "a word for a number (validation)": ("2025-05-12,Spring,101,many,1,1.50", "invalid_number"),
    "no such day (validation)": ("2025-02-31,Spring,101,12,1,1.50", "invalid_date"),
    "a negative count (validation)": ("2025-05-12,Spring,101,-12,1,1.50", "negative_count"),
}


@pytest.mark.parametrize(("row", "code"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_of_the_file_is_marked_and_the_others_go_on(
    row: str, code: str, uploads: Uploads, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    content = report(*ELEVEN[:5], row, *ELEVEN[5:])
    upload = uploads.show(uploads.finished(content))
    assert said(upload) == ("completed", None, None)
    assert (upload.total_rows, upload.valid_rows, upload.promoted_rows, upload.failed_rows) == (12, 11, 11, 0)
    assert refused_rows(owner_sql) == [(5, "invalid", code, None)]
    ((why,),) = owner_sql("SELECT validation_errors FROM staging_rows WHERE validation_status = 'invalid'")
    assert (why["line"], why["cells"]) == (7, row.split(","))
    assert rows(owner_sql) == {"staging_rows": 13, "campaigns": 1, "daily_metrics": 11, "outbox": 1}
    assert clock.slept == []


# -- a database that is struck at a chosen moment


class Struck:
    """A database whose transactions of one role are met by `strike` while they are open.

    `first` is the first that is struck, counted from 1; `times` how many in a row.
    """

    def __init__(
        self, db: database.Database, role: str, strike: Callable[[Any], None], *, first: int, times: int
    ) -> None:
        self._db, self._role, self._strike = db, role, strike
        self._at = range(first, first + times)
        self.count = self.struck = 0

    @contextmanager
    def transaction(self, role: str, workspace_id: UUID | None = None, **how: Any) -> Iterator[Any]:
        with self._db.transaction(role, workspace_id, **how) as conn:
            # Beats of the lease have a role of their own, and are let through.
            self.count += role == self._role
            if role == self._role and self.count in self._at:
                self.struck += 1
                self._strike(conn)
            yield conn


def struck(
    services: Services, role: str, strike: Callable[[Any], None], *, first: int, times: int
) -> Services:
    db = Struck(services.db, role, strike, first=first, times=times)
    return replace(services, db=db)  # type: ignore[arg-type]


def terminate(owner_sql: OwnerSql) -> Callable[[Any], None]:
    """Ends the very backend that serves a connection."""

    def strike(conn: Any) -> None:
        owner_sql(f"SELECT pg_terminate_backend({conn.info.backend_pid})")
        wait_until(
            lambda: not owner_sql(f"SELECT 1 FROM pg_stat_activity WHERE pid = {conn.info.backend_pid}")
        )

    return strike


# Each transaction of an undisturbed upload of GOOD, in order.
STEPS = [
    ("whole", "parse", 1, "all of it"),
    ("whole", "promote", 1, "all of it"),
    ("in parts", "parse", 1, "the day of staging"),
    ("in parts", "parse", 2, "the plan and a chunk of rows"),
    ("in parts", "parse", 3, "the last chunk"),
    ("in parts", "parse", 4, "the end of staging"),
    ("in parts", "promote", 1, "the campaigns"),
    ("in parts", "promote", 2, "a batch of days"),
    ("in parts", "promote", 3, "the last days and the end"),
]
_steps = pytest.mark.parametrize(
    ("size", "role", "first"),
    [step[:3] for step in STEPS],
    ids=[f"{size}, {role}: {what}" for size, role, _, what in STEPS],
    indirect=["size"],
)


@pytest.fixture
def size(request: pytest.FixtureRequest, services: Services, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Services by which a report goes through as a whole, or in parts, one of them after the other."""
    monkeypatch.setattr(lanes, "LANES", 1)  # of two at a time it would not be known which is struck
    found = request.getfixturevalue("in_parts") if request.param == "in parts" else services
    assert isinstance(found, Services)
    return found


@pytest.mark.parametrize("size", ["whole", "in parts"], indirect=True)
def test_an_undisturbed_upload_has_the_transactions_that_are_struck_here(
    size: Services, request: pytest.FixtureRequest
) -> None:
    counted: list[tuple[str, str, int]] = []
    name = request.node.callspec.params["size"]
    for role in ("parse", "promote"):
        watched = struck(size, role, lambda _: None, first=0, times=0)
        Uploads(watched).finished(workspace_id=uuid.uuid4())
        counts = range(1, watched.db.count + 1)  # type: ignore[attr-defined]
        counted += [(name, role, count) for count in counts]
    assert counted == [step[:3] for step in STEPS if step[0] == name]


# -- §6.1 and §6.2 connection lost: TRANSIENT, after 1, 2 and 4 s


@reproduces(errors.ConnectionLost)
@_steps
@pytest.mark.parametrize("times", [1, 2, 3])
def test_work_whose_connection_is_cut_up_to_three_times_goes_on_after_one_two_and_four_seconds(
    times: int, size: Services, role: str, first: int, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    unlucky = struck(size, role, terminate(owner_sql), first=first, times=times)
    upload = Uploads(unlucky).show(Uploads(unlucky).finished())
    assert clock.slept == SECONDS[:times]
    assert said(upload) == ("completed", None, None)
    assert (upload.attempts, upload.deferrals) == (0, 0)
    assert_free(upload)
    assert rows(owner_sql) == PROMOTED


@_steps
def test_work_whose_connection_is_cut_a_fourth_time_fails_the_upload(
    size: Services, role: str, first: int, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    unlucky = struck(size, role, terminate(owner_sql), first=first, times=4)
    upload = Uploads(unlucky).show(Uploads(unlucky).finished())
    assert clock.slept == SECONDS
    assert said(upload) == (
        "failed",
        "connection_lost",
        "The connection to a server is lost or cannot be made.",
    )
    assert_free(upload)
    assert rows(owner_sql).get("outbox") is None


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[embedded.Postgres]:
    """A PostgreSQL that this test may stop."""
    with embedded.Postgres(tmp_path / "postgres", durable=False) as server:
        migrations.migrate(server.dsn)
        yield server


@pytest.fixture
def on_own_server(services: Services, own_server: embedded.Postgres) -> Iterator[Services]:
    db = database.Database(own_server.dsn, name="tests")
    yield replace(services, db=db, settings=replace(services.settings, database_url=own_server.dsn))
    db.close()


@pytest.mark.parametrize("comes_back", [1, 3])
def test_a_server_that_is_stopped_and_comes_back_in_time_costs_only_the_wait(
    comes_back: int, on_own_server: Services, own_server: embedded.Postgres, clock: ActingClock
) -> None:
    clock.act = lambda sleeps: own_server.start() if sleeps == comes_back else None
    unlucky = struck(on_own_server, "promote", lambda _: own_server.stop(), first=1, times=1)
    uploads = Uploads(unlucky)
    upload_id = uploads.finished()
    assert said(uploads.show(upload_id)) == ("completed", None, None)
    # Between the first failure and the start of the server every try fails.
    assert clock.slept == SECONDS[:comes_back]
    with closing(psycopg2.connect(own_server.dsn)) as conn, conn.cursor() as cursor:
        cursor.execute("SELECT count(*), sum(impressions) FROM daily_metrics")
        assert cursor.fetchone() == (3, 600)


def test_a_server_that_stays_away_leaves_the_upload_to_the_sweep(
    on_own_server: Services, own_server: embedded.Postgres, clock: ActingClock, log: list[Any]
) -> None:
    unlucky = struck(on_own_server, "promote", lambda _: own_server.stop(), first=1, times=1)
    uploads = Uploads(on_own_server)
    upload_id = uploads.parsed()
    work.run_next(unlucky, "promote", promote.promote_upload)
    # Three waits for the batch, and three more for the record of its failure.
    assert clock.slept == [*SECONDS, *SECONDS]
    assert "failure_not_recorded" in [line["event"] for line in log]
    own_server.start()
    left = uploads.show(upload_id)
    assert (left.status, left.owner_id) == ("promoting", on_own_server.owner_id)
    with closing(psycopg2.connect(own_server.dsn)) as conn, conn, conn.cursor() as cursor:
        cursor.execute("UPDATE data_uploads SET lease_expires_at = now() - interval '1 s'")
    assert recover.sweep(on_own_server) == 1
    work_off(on_own_server)
    assert said(uploads.show(upload_id)) == ("completed", None, None)


def test_a_claim_without_a_server_is_tried_three_times_and_changes_nothing(
    on_own_server: Services, own_server: embedded.Postgres, clock: ActingClock
) -> None:
    upload_id = Uploads(on_own_server).pending()
    own_server.stop()
    with pytest.raises(errors.ConnectionLost):
        work.run_next(on_own_server, "parse", parse.parse_upload)
    assert clock.slept == SECONDS
    own_server.start()
    upload = Uploads(on_own_server).show(upload_id)
    assert (upload.status, upload.attempts, upload.claim_epoch) == ("pending", 0, 0)


# -- §6.1 transaction timeout: TRANSIENT, 3 retries


@dataclass
class Holder:
    """Another session, which locks something and holds on to it."""

    dsn: str
    sessions: list[Any] = field(default_factory=list)

    def hold(self, statement: str) -> Any:
        session = psycopg2.connect(self.dsn)
        self.sessions.append(session)
        with session.cursor() as cursor:
            cursor.execute(statement)
        return session

    def let_go(self) -> None:
        while self.sessions:
            self.sessions.pop().close()


@pytest.fixture
def holder(database_url: str) -> Iterator[Holder]:
    found = Holder(database_url)
    yield found
    found.let_go()


@pytest.fixture
def impatient(services: Services, database_url: str) -> Iterator[Services]:
    """The same services, with half a second for a statement."""
    db = database.Database(database_url, name="impatient", timeout_seconds=0.5)
    yield replace(services, db=db)
    db.close()


HELD = {
    # where           what another session has
    "campaigns": "LOCK TABLE campaigns IN ACCESS EXCLUSIVE MODE",
    "days": "LOCK TABLE daily_metrics IN ACCESS EXCLUSIVE MODE",
    "one day": "UPDATE daily_metrics SET clicks = clicks WHERE metric_date = '2025-05-02'",
    "outbox": "LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE",
}
_held = pytest.mark.parametrize("lock", HELD.values(), ids=HELD)


@reproduces(errors.TransactionTimeout)
@pytest.mark.parametrize("times", [1, 3])
@_held
def test_a_batch_that_waits_too_long_for_a_lock_is_tried_again_after_one_two_and_four_seconds(
    lock: str, times: int, impatient: Services, owner_sql: OwnerSql, clock: ActingClock, holder: Holder
) -> None:
    uploads = Uploads(impatient)
    uploads.finished()
    upload_id = uploads.parsed()
    clock.act = lambda sleeps: holder.let_go() if sleeps == times else None
    holder.hold(lock)
    work_off(impatient)
    assert clock.slept == SECONDS[:times]
    assert said(uploads.show(upload_id)) == ("completed", None, None)
    assert owner_sql("SELECT count(*) FROM daily_metrics") == [(3,)]


def test_a_batch_that_never_gets_its_lock_fails_the_upload(
    impatient: Services, owner_sql: OwnerSql, clock: ActingClock, holder: Holder
) -> None:
    uploads = Uploads(impatient)
    upload_id = uploads.parsed()
    holder.hold(HELD["days"])
    work_off(impatient)
    holder.let_go()
    assert clock.slept == SECONDS
    upload = uploads.show(upload_id)
    assert said(upload) == (
        "failed",
        "transaction_timeout",
        "A statement or a lock took longer than it may.",
    )
    assert_free(upload)
    assert rows(owner_sql) == {"staging_rows": 5}


LIMITS = {"55P03": "lock_timeout", "25P04": "transaction_timeout", "57014": "statement_timeout"}


@pytest.mark.parametrize("setting", LIMITS.values())
def test_every_kind_of_timeout_of_the_server_is_a_transaction_timeout(
    setting: str, services: Services, clock: ActingClock, holder: Holder
) -> None:
    def hurry(conn: Any) -> None:
        with conn.cursor() as cursor:
            cursor.execute(f"SET LOCAL {setting} = '200ms'")

    uploads = Uploads(services)
    upload_id = uploads.parsed()
    clock.act = lambda _: holder.let_go()
    holder.hold(HELD["days"])
    work_off(struck(services, "promote", hurry, first=1, times=1))
    assert (clock.slept, uploads.show(upload_id).status) == ([1.0], "completed")


@pytest.mark.parametrize("size", ["whole", "in parts"], indirect=True)
def test_a_chunk_that_cannot_be_staged_in_time_is_tried_again(
    size: Services, owner_sql: OwnerSql, clock: ActingClock, holder: Holder, request: pytest.FixtureRequest
) -> None:
    quick = replace(size, settings=replace(size.settings, lease_seconds=0.5))
    uploads = Uploads(quick)
    uploads.finished()  # the day's partition is there
    clock.act = lambda _: holder.let_go()
    limits: list[str] = []

    def block(conn: Any) -> None:
        with conn.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            limits.append(cursor.fetchone()[0])
        ((day,),) = owner_sql("SELECT max(inhrelid::regclass::text) FROM pg_inherits"
                              " WHERE inhparent = 'staging_rows'::regclass")  # fmt: skip
        holder.hold(f"LOCK TABLE {day} IN SHARE MODE")

    copies = {"whole": 1, "in parts": 2}  # which of parse's transactions is the first to copy: see STEPS
    first = copies[request.node.callspec.params["size"]]
    unlucky = struck(quick, "parse", block, first=first, times=1)
    upload_id = Uploads(unlucky).finished(GOOD.replace(b"2025", b"2024"))
    assert (clock.slept, uploads.show(upload_id).status) == ([1.0], "completed")
    assert owner_sql("SELECT count(*) FROM daily_metrics") == [(6,)]
    assert limits == ["1s"]  # twice the lease: whoever takes longer has lost it


# -- §6.2 deadlock: after 0.1, 0.2 and 0.4 s


@dataclass
class Crosser:
    """Another session that waits in a circle with promotion, which is always the one to give way.

    It has the last day of a batch and, once promotion waits for it, wants the first one.
    """

    dsn: str
    owner_sql: OwnerSql
    first_day: str
    last_day: str
    session: Any = None
    thread: threading.Thread | None = None

    def arm(self) -> None:
        self.session = psycopg2.connect(self.dsn, options="-c deadlock_timeout=30s")
        self._take(self.last_day)
        self.thread = threading.Thread(target=self._cross)
        self.thread.start()

    def _take(self, day: str) -> None:
        with self.session.cursor() as cursor:
            cursor.execute(f"UPDATE daily_metrics SET clicks = clicks WHERE metric_date = '{day}'")

    def _cross(self) -> None:
        mine = self.session.info.backend_pid
        with suppress(AssertionError):  # nobody waits: the test sees that nothing was slept
            wait_until(
                lambda: self.owner_sql(
                    f"SELECT 1 FROM pg_stat_activity a WHERE {mine} = ANY(pg_blocking_pids(a.pid))"
                )
            )
            self._take(self.first_day)

    def disarm(self) -> None:
        if self.thread is not None:
            self.thread.join()
            self.session.close()
            self.thread = None


@pytest.fixture
def crossing(
    servers: Servers, services: Services, database_url: str, owner_sql: OwnerSql, clock: ActingClock
) -> Iterator[Callable[..., None]]:
    """From now on so many tries of a batch that ends with these days run into a deadlock."""
    name = database_url.rsplit("/", 1)[1]
    servers.sql(f"ALTER DATABASE {name} SET deadlock_timeout = '400ms'")
    crossers: list[Crosser] = []

    def arm(times: int, first_day: str, last_day: str) -> None:
        services.db.close()  # the setting counts for new connections
        crosser = Crosser(database_url, owner_sql, first_day, last_day)
        crossers.append(crosser)

        def act(sleeps: int) -> None:
            crosser.disarm()
            if sleeps < times:
                crosser.arm()

        clock.act = act
        crosser.arm()

    yield arm
    for crosser in crossers:
        crosser.disarm()


@reproduces(errors.Deadlock)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_batch_that_runs_into_deadlocks_is_tried_again_after_tenths_of_a_second(
    times: int, services: Services, owner_sql: OwnerSql, clock: ActingClock, crossing: Callable[..., None]
) -> None:
    uploads = Uploads(services)
    uploads.finished(report(*ELEVEN))
    upload_id = uploads.parsed(report(*[row.replace(",1.50", ",2.50") for row in ELEVEN]))
    crossing(times, "2025-05-01", "2025-05-11")
    work_off(services)
    assert clock.slept == MILLISECONDS[:times]
    assert said(uploads.show(upload_id)) == ("completed", None, None)
    assert owner_sql("SELECT count(*), sum(spend) FROM daily_metrics") == [(11, 11 * 2.5)]


def many_days(count: int, spend: str) -> bytes:
    """So many rows, one for each day of one campaign."""
    first = date(2020, 1, 1)
    return report(*[f"{first + timedelta(n)},Spring,101,{n},1,{spend}" for n in range(count)])


def test_a_batch_that_never_gets_out_of_its_deadlock_fails_alone(
    services: Services, owner_sql: OwnerSql, clock: ActingClock, crossing: Callable[..., None], log: list[Any]
) -> None:
    uploads = Uploads(services)
    uploads.finished(many_days(1500, "1.50"))
    upload_id = uploads.parsed(many_days(1500, "2.50"))
    crossing(4, "2020-01-01", "2022-09-26")  # the first and the last of the first thousand
    work_off(services)
    upload = uploads.show(upload_id)
    assert clock.slept == MILLISECONDS
    assert (upload.status, upload.error_code) == ("partial", "rows_failed")
    assert (upload.promoted_rows, upload.failed_rows) == (500, 1000)
    assert owner_sql(
        "SELECT min(row_index), max(row_index), count(*), min(promotion_error), max(promotion_error)"
        f" FROM staging_rows WHERE upload_id = '{upload_id}' AND promotion_error IS NOT NULL"
    ) == [(0, 999, 1000, "deadlock", "deadlock")]
    assert owner_sql("SELECT spend::float, count(*) FROM daily_metrics GROUP BY 1 ORDER BY 1") == [
        (1.5, 1000),
        (2.5, 500),
    ]
    assert rows(owner_sql)["outbox"] == 2


def test_entities_that_run_into_a_deadlock_are_tried_again(
    services: Services, clock: ActingClock, owner_sql: OwnerSql
) -> None:
    # A serialization failure stands on the same line; the server is made to raise one.
    owner_sql("CREATE SEQUENCE raised")
    owner_sql(
        "CREATE FUNCTION give_way() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
        " IF nextval('raised') <= 2 THEN RAISE serialization_failure; END IF; RETURN NEW; END $$;"
        " CREATE TRIGGER give_way BEFORE INSERT ON campaigns FOR EACH ROW EXECUTE FUNCTION give_way()"
    )
    uploads = Uploads(services)
    upload = uploads.show(uploads.finished())
    assert (upload.status, clock.slept) == ("completed", MILLISECONDS[:2])
    assert rows(owner_sql) == PROMOTED


# -- §6.2 rate limit: fixed 60 s, five times, without anybody waiting


@dataclass
class ObjectStore:
    """A small S3: keeps what is put, and refuses what is asked for while `refuses` is set."""

    server: http.server.ThreadingHTTPServer
    kept: dict[str, bytes]
    refuses: tuple[int, str] | None = None
    methods: tuple[str, ...] = ("GET",)
    asked: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _handle(self) -> None:
            body = self._body()
            if store.refuses and self.command in store.methods:
                store.asked += 1
                status, code = store.refuses
                self._answer(status, f"<Error><Code>{code}</Code></Error>".encode() if code else b"")
            elif self.command == "PUT":
                store.kept[self.path] = body
                self._answer(200)
            elif self.path in store.kept:
                self._answer(200, store.kept[self.path])
            else:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

        do_GET = do_PUT = _handle

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                return _unchunked(data) if "x-amz-decoded-content-length" in self.headers else data
            pieces = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return pieces

        def log_message(self, *_: Any) -> None:
            pass

    store = ObjectStore(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler), {})
    thread = threading.Thread(target=store.server.serve_forever, args=(0.01,))
    thread.start()
    yield store
    store.server.shutdown()
    thread.join()
    store.server.server_close()


def _unchunked(data: bytes) -> bytes:
    """The content of a body in S3's own chunks, each behind a line with its size."""
    source, content = io.BytesIO(data), b""
    while size := int(source.readline().split(b";")[0], 16):
        content += source.read(size)
        source.readline()
    return content


@pytest.fixture
def on_s3(services: Services, object_store: ObjectStore) -> Iterator[Services]:
    store = bucket_blobs.S3Blobs("bucket", "files", endpoint_url=object_store.url)
    yield replace(services, blobs=store)
    store._client.close()


def let_time_pass(owner_sql: OwnerSql) -> None:
    """The minute of every upload that waits is over."""
    owner_sql("UPDATE data_uploads SET next_attempt_at = '-infinity' WHERE next_attempt_at > now()")


def wait_seconds(owner_sql: OwnerSql, upload_id: UUID) -> float:
    """Until when the upload waits, in seconds from now."""
    return float(
        owner_sql(
            "SELECT extract(epoch FROM next_attempt_at - clock_timestamp()) FROM data_uploads"
            f" WHERE id = '{upload_id}'"
        )[0][0]
    )


LIMITED = {"SlowDown": (503, "SlowDown"), "503": (503, ""), "TooManyRequests": (429, "TooManyRequests"),
           "429": (429, "")}  # fmt: skip


@reproduces(errors.RateLimited)
@pytest.mark.parametrize("refusal", LIMITED.values(), ids=LIMITED)
def test_an_upload_that_a_service_puts_off_waits_a_minute_five_times_and_then_fails(
    refusal: tuple[int, str],
    on_s3: Services,
    object_store: ObjectStore,
    owner_sql: OwnerSql,
    clock: ActingClock,
) -> None:
    uploads = Uploads(on_s3)
    upload_id = uploads.pending()
    object_store.refuses = refusal
    for put_off in range(1, 6):
        assert work.run_next(on_s3, "parse", parse.parse_upload)
        upload = uploads.show(upload_id)
        assert 55 < wait_seconds(owner_sql, upload_id) <= 60
        assert (upload.status, upload.owner_id, upload.lease_expires_at) == ("processing", None, None)
        assert (upload.attempts, upload.deferrals, object_store.asked) == (0, put_off, put_off)
        assert uploads.history(upload_id)[-1].why == "rate_limited"
        assert not work.run_next(on_s3, "parse", parse.parse_upload)  # not before the minute is over
        assert recover.sweep(on_s3) == 0
        let_time_pass(owner_sql)
    work_off(on_s3)
    upload = uploads.show(upload_id)
    assert said(upload) == ("failed", "rate_limited", "A service asks to be called less often.")
    assert_free(upload)
    assert (rows(owner_sql), clock.slept, object_store.asked) == ({}, [], 6)


def test_an_upload_that_is_put_off_goes_on_when_the_service_answers_again(
    on_s3: Services, object_store: ObjectStore, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    uploads = Uploads(on_s3)
    upload_id = uploads.pending()
    object_store.refuses = LIMITED["SlowDown"]
    for _ in range(5):
        work_off(on_s3)
        let_time_pass(owner_sql)
    object_store.refuses = None
    work_off(on_s3)
    assert said(uploads.show(upload_id)) == ("completed", None, None)
    assert uploads.show(upload_id).deferrals == 0
    assert (rows(owner_sql), clock.slept) == (PROMOTED, [])


@pytest.mark.parametrize("put_off", [1, MAX_ACTIVE_PER_WORKSPACE])
def test_other_uploads_of_the_workspace_go_on_while_some_are_put_off(
    put_off: int, services: Services, on_s3: Services, object_store: ObjectStore, owner_sql: OwnerSql
) -> None:
    limited = [Uploads(on_s3).pending() for _ in range(put_off)]
    object_store.refuses = LIMITED["SlowDown"]
    work_off(on_s3)
    other = Uploads(services).finished(GOOD.replace(b"2025", b"2024"))  # its file is on disk
    assert {Uploads(services).show(upload_id).owner_id for upload_id in limited} == {None}
    assert min(wait_seconds(owner_sql, upload_id) for upload_id in limited) > 0
    assert Uploads(services).show(other).status == "completed"


def test_a_request_whose_file_a_service_does_not_take_is_answered_with_try_later(
    on_s3: Services, object_store: ObjectStore, clock: ActingClock
) -> None:
    object_store.refuses, object_store.methods = LIMITED["SlowDown"], ("PUT",)
    status, problem = post_report(on_s3, GOOD)
    assert (status, problem["code"]) == (503, "rate_limited")
    assert (object_store.kept, clock.slept) == ({}, [])
    object_store.refuses = None
    assert post_report(on_s3, GOOD)[0] == 201


def post_report(services: Services, content: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """Status and body of the answer to a report that is handed in over HTTP."""
    app = web.create_app(services.settings)
    app.extensions["services"].db.close()
    app.extensions["services"] = services
    fields = {"workspace_id": str(WORKSPACE), "platform": "meta", "source": "manual"}
    answer = app.test_client().post(
        "/v1/uploads",
        data={**fields, "file": (io.BytesIO(content), "report.csv")},
        headers={**BEARER, **headers},
    )
    structlog.reset_defaults()
    return answer.status_code, json.loads(answer.data)


# -- the disk: as a rate limit (the real disks are in tests/faults)


@reproduces(errors.DiskFull)
def test_an_upload_for_which_the_database_has_no_room_waits_a_minute_five_times_and_then_fails(
    services: Services, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    refuse(owner_sql, "daily_metrics", "disk_full")
    uploads = Uploads(services)
    upload_id = uploads.parsed()
    for put_off in range(1, 6):
        work_off(services)
        upload = uploads.show(upload_id)
        assert (upload.status, upload.owner_id, upload.deferrals) == ("promoting", None, put_off)
        assert 55 < wait_seconds(owner_sql, upload_id) <= 60
        let_time_pass(owner_sql)
    work_off(services)
    upload = uploads.show(upload_id)
    assert said(upload) == ("failed", "disk_full", "No room is left to store into.")
    assert_free(upload)
    assert clock.slept == []


def refuse(owner_sql: OwnerSql, table: str, condition: str, when: str = "true") -> None:
    """From now on the table answers with an error to rows for which `when` holds."""
    owner_sql(
        f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {when} THEN"
        f" RAISE {condition}; END IF; RETURN NEW; END $$;"
        f" CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
    )


# -- §6.1 RLS denied: FATAL

DENIED = {
    "campaigns": ("DROP POLICY own_workspace ON campaigns", {"staging_rows": 5}),
    "days": ("DROP POLICY own_workspace ON daily_metrics", {"staging_rows": 5}),
    "days, by a policy": (
        "CREATE POLICY never ON daily_metrics AS RESTRICTIVE FOR INSERT WITH CHECK (false)",
        {"staging_rows": 5},
    ),
    "days, by a grant": (
        "REVOKE INSERT ON daily_metrics FROM headworks_promote",
        {"staging_rows": 5},
    ),
    "the event": ("DROP POLICY own_workspace ON outbox", None),
}


@reproduces(errors.AccessDenied)
@pytest.mark.parametrize(("statement", "left"), DENIED.values(), ids=DENIED)
def test_promotion_that_the_database_denies_fails_at_once(
    statement: str,
    left: dict[str, int] | None,
    uploads: Uploads,
    services: Services,
    owner_sql: OwnerSql,
    clock: ActingClock,
) -> None:
    upload_id = uploads.parsed()
    owner_sql(statement)
    work_off(services)
    upload = uploads.show(upload_id)
    assert (upload.status, upload.error_code) == ("failed", "access_denied")
    assert upload.error_text.startswith("The database refuses this role or this workspace.")
    assert_free(upload)
    assert left is None or rows(owner_sql) == left
    assert rows(owner_sql).get("outbox") is None
    assert clock.slept == []


def test_parsing_that_the_database_denies_fails_at_once(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    owner_sql("CREATE POLICY never ON staging_id_resolution AS RESTRICTIVE FOR INSERT WITH CHECK (false)")
    upload = uploads.show(uploads.finished())
    assert (upload.status, upload.error_code) == ("failed", "access_denied")
    assert_free(upload)
    assert (rows(owner_sql), clock.slept) == ({}, [])


HIDDEN = {
    "from promotion": ("CREATE POLICY hidden ON staging_rows AS RESTRICTIVE FOR SELECT TO headworks_promote"
                       " USING (false)"),
    "by their loss": "TRUNCATE staging_rows, staging_id_resolution",
}  # fmt: skip


@pytest.mark.parametrize("statement", HIDDEN.values(), ids=HIDDEN)
def test_rows_that_promotion_does_not_find_any_more_are_never_called_completed(
    statement: str, uploads: Uploads, services: Services, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    upload_id = uploads.parsed()
    owner_sql(statement)
    work_off(services)
    upload = uploads.show(upload_id)
    assert owner_sql("SELECT count(*) FROM daily_metrics") == [(0,)]
    assert upload.valid_rows == 3
    assert upload.status == "failed"
    assert clock.slept == []


# -- §6.1 unexpected unique violation: ROW, skip row, log


@reproduces(errors.UniqueViolated, errors.RowRefused)
@pytest.mark.parametrize("how", ["unique_violation", "check_violation", "numeric_value_out_of_range"])
def test_a_day_that_the_database_refuses_is_skipped_alone_and_logged(
    how: str, uploads: Uploads, services: Services, owner_sql: OwnerSql, clock: ActingClock, log: list[Any]
) -> None:
    content = report(*[row for row in ELEVEN if ",7,1," not in row], "2025-06-01,Summer,102,3,1,9.50")
    if how == "unique_violation":
        # Two days have the same impressions: the later of the two is refused.
        owner_sql("CREATE UNIQUE INDEX unexpected ON daily_metrics (impressions)")
    else:
        refuse(owner_sql, "daily_metrics", how, "NEW.spend = 9.50")
    upload = uploads.show(uploads.finished(content))
    code = "unique_violation" if how == "unique_violation" else "row_refused"
    assert said(upload) == ("partial", "rows_failed", "1 rows could not be promoted.")
    assert (upload.valid_rows, upload.promoted_rows, upload.failed_rows) == (11, 10, 1)
    assert refused_rows(owner_sql) == [(10, "valid", None, code)]
    assert [(line["row"], line["code"]) for line in log if line["event"] == "row_failed"] == [(10, code)]
    assert rows(owner_sql) == {"staging_rows": 13, "campaigns": 2, "daily_metrics": 10, "outbox": 1}
    assert clock.slept == []


@pytest.mark.parametrize("how", ["unique_violation", "check_violation"])
def test_an_entity_that_the_database_refuses_costs_its_own_rows_alone(
    how: str, uploads: Uploads, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    if how == "unique_violation":
        owner_sql("CREATE UNIQUE INDEX unexpected ON campaigns (left(name, 1)) WHERE name <> 'Autumn'")
    else:
        refuse(owner_sql, "campaigns", how, "NEW.name = 'Summer'")
    upload = uploads.show(uploads.finished(report(*ELEVEN, "2025-06-01,Summer,102,3,1,9.50")))
    code = "unique_violation" if how == "unique_violation" else "row_refused"
    assert (upload.status, upload.error_code) == ("partial", "rows_failed")
    assert (upload.promoted_rows, upload.failed_rows) == (11, 1)
    assert refused_rows(owner_sql) == [(11, "valid", None, code)]
    assert clock.slept == []


# -- §6.1 foreign key not found: ROW

AD_HEADER = "Day,Campaign name,Campaign ID,Ad set name,Ad Set ID,Ad name,Ad ID,Impressions,Amount spent (USD)"
AD_ROWS = [
    f"2025-05-{day:02},Spring,101,Set,201,Ad {ad},{300 + ad},{day},1.50" for day in (1, 2) for ad in (1, 2)
]


def gone_before_the_days(in_parts: Services, owner_sql: OwnerSql, table: str, external_id: str) -> UUID:
    """An upload one of whose entities was deleted after it was resolved."""
    upload_id = Uploads(in_parts).parsed(report(*AD_ROWS, header=AD_HEADER))
    lose = f"DELETE FROM {table} WHERE external_id = '{external_id}'"
    work_off(struck(in_parts, "promote", lambda _: owner_sql(lose), first=3, times=1))
    return upload_id


@reproduces(errors.ForeignKeyMissing)
def test_a_day_whose_ad_set_is_gone_from_production_loses_the_reference_and_is_warned_of(
    uploads: Uploads, in_parts: Services, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    owner_sql("ALTER TABLE ads DROP CONSTRAINT ads_ad_set_id_fkey")  # else the ads would keep their set
    upload_id = gone_before_the_days(in_parts, owner_sql, "ad_sets", "201")
    upload = uploads.show(upload_id)
    assert clock.slept == []
    assert owner_sql("SELECT count(ad_id), count(ad_set_id), sum(spend)::float FROM daily_metrics") == [
        (4, 0, 6.0)
    ]
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == ("completed", 4, 0)
    assert upload.report["warnings"] == ["reference_missing"]


def test_a_day_whose_ad_is_gone_from_production_is_refused_until_it_is_tried_again(
    uploads: Uploads, in_parts: Services, services: Services, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    # Without its ad the day would stand under the key of its ad set: as another entity's number.
    upload_id = gone_before_the_days(in_parts, owner_sql, "ads", "302")
    upload = uploads.show(upload_id)
    assert said(upload) == ("partial", "rows_failed", "2 rows could not be promoted.")
    assert refused_rows(owner_sql) == [
        (1, "valid", None, "foreign_key_missing"),
        (3, "valid", None, "foreign_key_missing"),
    ]
    assert owner_sql("SELECT count(*) FROM daily_metrics WHERE ad_id IS NOT NULL") == [(2,)]
    with services.db.transaction("requeue", WORKSPACE) as conn:
        store.requeue(conn, upload_id, workspace_id=WORKSPACE, who="a test", why="the ad was deleted")
    work_off(services)
    upload = uploads.show(upload_id)
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == ("completed", 4, 0)
    assert owner_sql("SELECT count(*) FROM ads WHERE external_id = '302'") == [(1,)]
    assert owner_sql("SELECT count(ad_id), count(*) FROM daily_metrics") == [(4, 4)]


def test_a_day_whose_campaign_is_gone_from_production_is_refused_alone(
    in_parts: Services, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    # Without its campaign a day cannot stand: the column may not be NULL.
    def lose_a_campaign(_conn: Any) -> None:
        owner_sql("DELETE FROM campaigns WHERE external_id = '102'")

    uploads = Uploads(in_parts)
    upload_id = uploads.parsed()
    work_off(struck(in_parts, "promote", lose_a_campaign, first=2, times=1))
    upload = uploads.show(upload_id)
    assert said(upload) == ("partial", "rows_failed", "1 rows could not be promoted.")
    assert refused_rows(owner_sql) == [(2, "valid", None, "foreign_key_missing")]
    assert clock.slept == []


def test_a_day_whose_ad_has_several_namesakes_is_refused_with_the_reason(
    uploads: Uploads, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    uploads.finished(report(*[row.replace("Ad 2", "Ad 1") for row in AD_ROWS], header=AD_HEADER))
    by_name = report(
        "2025-05-03,Spring,Set,Ad 1,5,1.50",
        "2025-05-04,Spring,Set,Ad 9,5,1.50",
        header="Day,Campaign name,Ad set name,Ad name,Impressions,Amount spent (USD)",
    )
    upload = uploads.show(uploads.finished(by_name))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == ("partial", 1, 1)
    assert refused_rows(owner_sql) == [(0, "valid", None, "ambiguous_name")]
    assert clock.slept == []


def test_days_whose_ads_were_never_resolved_are_not_counted_as_promoted_while_they_are_not_there(
    in_parts: Services, owner_sql: OwnerSql
) -> None:
    # Two ads on one day would both stand under the key of the campaign, the one over the other.
    def forget_the_ads(_conn: Any) -> None:
        owner_sql("DELETE FROM staging_id_resolution WHERE entity_type = 'ad'")

    uploads = Uploads(in_parts)
    upload_id = uploads.parsed(report(*AD_ROWS, header=AD_HEADER))
    work_off(struck(in_parts, "promote", forget_the_ads, first=3, times=1))
    upload = uploads.show(upload_id)
    ((count, spend),) = owner_sql("SELECT count(*), coalesce(sum(spend), 0)::float FROM daily_metrics")
    assert (upload.promoted_rows, upload.failed_rows) == (count, 4 - count)
    assert spend == 1.5 * count


# -- attempts


@reproduces(errors.AttemptsExhausted)
def test_an_upload_that_was_begun_five_times_is_given_up(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, clock: ActingClock
) -> None:
    upload_id = uploads.pending()
    owner_sql(f"UPDATE data_uploads SET attempts = {MAX_ATTEMPTS}")
    work_off(services)
    upload = uploads.show(upload_id)
    assert (upload.status, upload.error_code) == ("failed", "attempts_exhausted")
    assert "stopped its worker again and again" in upload.error_text
    assert_free(upload)
    assert (rows(owner_sql), clock.slept) == ({}, [])


# -- nothing else is tried again


def all_kinds(kind: type[errors.HeadworksError] = errors.HeadworksError) -> set[type[errors.HeadworksError]]:
    """Every error of the tree."""
    return {kind}.union(*[all_kinds(narrower) for narrower in kind.__subclasses__()])


WHAT_UPLOADS_MEET = ("app.kernel.", "app.adapters.", "app.access.", "app.uploads.")
WAITING = {kind for kind, policy in retry.POLICIES.items() if policy.retries}
NEVER = [
    *sorted(
        (
            kind
            for kind in all_kinds()
            if not issubclass(kind, tuple(WAITING)) and kind.__module__.startswith(WHAT_UPLOADS_MEET)
        ),
        key=lambda kind: kind.__name__,
    ),
    ValueError,
    MemoryError,
    RecursionError,
    OSError,
]


@pytest.mark.parametrize("kind", NEVER, ids=lambda kind: kind.__name__)
def test_what_is_not_listed_as_transient_is_done_once(
    kind: type[BaseException], uploads: Uploads, services: Services, clock: ActingClock
) -> None:
    done: list[int] = []

    def once() -> None:
        done.append(1)
        raise kind("it happened")

    def step(services: Services, *_: Any) -> None:
        retries.call(once, services.clock)

    upload_id = uploads.pending()
    listed = issubclass(kind, errors.HeadworksError)
    with suppress(() if listed else kind):
        work.run_next(services, "parse", step)
    upload = uploads.show(upload_id)
    assert (done, clock.slept, upload.deferrals) == ([1], [], 0)
    if not issubclass(kind, errors.Conflict):
        assert (upload.status, upload.error_code) == (
            "failed",
            getattr(kind, "code", "internal_error"),
        )


@pytest.mark.parametrize("asked", ["before", "at work"])
def test_a_process_that_is_asked_to_stop_gives_back_and_begins_nothing(
    asked: str, uploads: Uploads, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_stop", leases.Wish())
    upload_id = uploads.pending()
    begun: list[int] = []

    def step(_services: Services, _claim: Any, lease: Any) -> None:
        begun.append(1)
        assert leases.ask_to_stop()  # the work looks for it
        lease.check()
        begun.append(2)

    if asked == "before":
        assert not leases.ask_to_stop()
    assert work.run_next(services, "parse", step) == (asked == "at work")
    assert not work.run_next(services, "parse", step)
    assert begun == ([1] if asked == "at work" else [])
    upload = uploads.show(upload_id)
    # Given back it stands where it stood, and is anybody's.
    assert upload.status == ("processing" if asked == "at work" else "pending")
    assert (upload.owner_id, upload.error_code) == (None, None)
    assert not leases.ask_to_stop()  # nothing is held any more


MISTAKES = {
    "a table that is not there": "ALTER TABLE daily_metrics RENAME TO away",
    "a column that is not there": "ALTER TABLE daily_metrics RENAME COLUMN clicks TO taps",
    "an error inside of the server": ("daily_metrics", "internal_error"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_state_of_the_server_that_is_not_listed_fails_the_upload_without_a_retry(
    mistake: str | tuple[str, str],
    uploads: Uploads,
    services: Services,
    owner_sql: OwnerSql,
    clock: ActingClock,
) -> None:
    upload_id = uploads.parsed()
    owner_sql(mistake) if isinstance(mistake, str) else refuse(owner_sql, *mistake)
    with pytest.raises(psycopg2.Error):
        work.run_next(services, "promote", promote.promote_upload)
    upload = uploads.show(upload_id)
    assert said(upload) == (
        "failed",
        "internal_error",
        "Something unexpected went wrong; it is in the log.",
    )
    assert_free(upload)
    assert clock.slept == []


def test_a_failed_intake_is_only_tried_again_for_a_lost_connection(
    services: Services, clock: ActingClock, owner_sql: OwnerSql
) -> None:
    request = intake.Request(WORKSPACE, "meta", "manual")
    unlucky = struck(services, "intake", terminate(owner_sql), first=1, times=3)
    intake.take_in(unlucky, request, io.BytesIO(GOOD))
    assert clock.slept == SECONDS
    clock.slept.clear()
    owner_sql("DROP POLICY own_workspace ON data_uploads")
    with pytest.raises(errors.AccessDenied):
        intake.take_in(services, request, io.BytesIO(GOOD))
    assert clock.slept == []


def test_every_line_of_the_table_is_reproduced_here() -> None:
    assert set(retry.POLICIES) == REPRODUCED
