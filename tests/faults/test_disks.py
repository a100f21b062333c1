"""Disks that are full: nothing half-written stays, nobody is lost, and with room the work goes on.

The small disks are tmpfs mounts, which only root may make.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

from app import web
from app.adapters import blobs, database, embedded, migrations
from app.kernel import errors
from app.uploads import intake, recover, store
from app.uploads.services import Services
from tests.acceptance.conftest import multipart
from tests.conftest import BEARER, Servers, SetClock, with_clock, work_off
from tests.faults.world import report

OwnerSql = Callable[[str], list[Any]]
WORKSPACE = UUID("11111111-1111-4111-8111-111111111111")
NO_ROOT = "only root may mount the small disk that this test fills"

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason=NO_ROOT)


@dataclass(frozen=True)
class Disk:
    """A file system of its own."""

    path: Path

    def resize(self, kib: int) -> None:
        """There is room for so much."""
        options = f"remount,size={kib}k"
        subprocess.run(["mount", "-o", options, str(self.path)], check=True, capture_output=True)

    def files(self) -> list[str]:
        return sorted(str(p.relative_to(self.path)) for p in self.path.rglob("*") if p.is_file())


def mounted(path: Path, kib: int) -> Iterator[Disk]:
    path.mkdir(parents=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=0755", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Half a megabyte for the files of the uploads."""
    yield from mounted(tmp_path / "disk", 512)


@pytest.fixture
def services(services: Services) -> Services:
    return with_clock(services, SetClock())


def slept(services: Services) -> list[float]:
    assert isinstance(services.clock, SetClock)
    return services.clock.slept


# -- the disk that metrics are on


COUNTING = """
import os, sys
from app.adapters import exposition, logs, metrics

logs.configure("test")

def count(said):
    for number in range(600):
        metrics.tasks.labels(f"{said} {number} {'x' * 200}", "success").inc(2)
        metrics.stage_seconds.labels(said).observe(0.3)

def fill():
    with open(sys.argv[1] + "/everything", "wb", 0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

for step in sys.stdin.read().split():
    if step == "fill":
        fill()
    elif step == "free":
        os.unlink(sys.argv[1] + "/everything")
    elif step == "scrape":
        text, _ = exposition.text()
        sys.stdout.write(text.decode())
    else:
        count(step)
print("alive")
"""


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Callable[..., tuple[str, str]]]:
    """A process that shares a folder of metrics on a small disk, and does this; its stdout and stderr."""
    disk = mounted(tmp_path / "small", 4096)
    folder = next(disk).path

    def process(*steps: str) -> tuple[str, str]:
        (folder / "metrics").mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", COUNTING, str(folder)], input=" ".join(steps), text=True,
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics")},
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout[-6:]) == (0, "alive\n"), done.stderr[-2000:]
        return done.stdout, done.stderr

    yield process
    for _ in disk:
        pass


def successes(scraped: str, said: str) -> list[str]:
    """The values of the tasks that were counted so."""
    lines = [line for line in scraped.splitlines() if line.startswith("headworks_tasks_total{")]
    return [line.rpartition(" ")[2] for line in lines if f'task="{said} ' in line]


def test_a_full_disk_costs_metrics_their_place_and_no_process_its_life(
    counting: Callable[..., tuple[str, str]],
) -> None:
    scraped, log = counting("fill", "one", "scrape")
    assert len(successes(scraped, "one")) < 600
    assert log.count("metrics_not_written") in (1, 2), "once for each kind of file"


def test_what_was_counted_meanwhile_is_there_when_there_is_room(
    counting: Callable[..., tuple[str, str]],
) -> None:
    scraped, _ = counting("fill", "one", "free", "two", "scrape")
    assert (successes(scraped, "one"), successes(scraped, "two")) == (["2.0"] * 600, ["2.0"] * 600)


def test_a_process_that_starts_on_a_full_disk_counts_as_soon_as_there_is_room(
    counting: Callable[..., tuple[str, str]],
) -> None:
    counting("fill")
    scraped, _ = counting("one", "free", "two", "scrape")
    assert (successes(scraped, "one"), successes(scraped, "two")) == (["2.0"] * 600, ["2.0"] * 600)


def test_what_the_dead_have_counted_is_told_from_a_full_disk(
    counting: Callable[..., tuple[str, str]],
) -> None:
    counting("one")
    scraped, log = counting("fill", "scrape")
    assert successes(scraped, "one") == ["2.0"] * 600
    assert "metric_files_not_merged" in log
    scraped, log = counting("free", "scrape")
    assert successes(scraped, "one") == ["2.0"] * 600
    assert "metric_files_not_merged" not in log


# -- the disk that stores the files


@pytest.fixture
def on_disk(services: Services, disk: Disk) -> Services:
    settings = replace(services.settings, storage_url=disk.path.as_uri())
    return replace(services, settings=settings, blobs=blobs.connect(settings.storage))


@pytest.fixture
def post(on_disk: Services) -> Iterator[Callable[..., tuple[int, dict[str, Any]]]]:
    """Hands a report in over HTTP: the status of the answer and what it says."""
    app = web.create_app(on_disk.settings)
    app.extensions["services"].db.close()
    app.extensions["services"] = on_disk
    client = app.test_client()
    fields = {"workspace_id": str(WORKSPACE), "platform": "meta", "source": "manual"}

    def send(content: bytes, key: str | None = None) -> tuple[int, dict[str, Any]]:
        body, content_type = multipart(content, fields)
        headers = {"Content-Type": content_type, **BEARER, **({"Idempotency-Key": key} if key else {})}
        answer = client.post("/v1/uploads", data=body, headers=headers)
        if answer.status_code >= 400:
            assert answer.content_type == "application/problem+json"
        return answer.status_code, json.loads(answer.data)

    yield send
    structlog.reset_defaults()


LARGE = report(1, rows=20_000)
"""About 1.4 MB, more than fits on the disk."""


@pytest.mark.parametrize("key", [None, "one and only"], ids=["without a key", "with an idempotency key"])
def test_a_report_for_which_there_is_no_room_is_answered_with_try_later_and_taken_when_there_is(
    key: str | None,
    on_disk: Services,
    disk: Disk,
    owner_sql: OwnerSql,
    post: Callable[..., tuple[int, dict[str, Any]]],
) -> None:
    status, problem = post(LARGE, key)
    assert (status, problem["status"], problem["code"]) == (503, 503, "disk_full")
    assert "No room is left" in problem["detail"]
    assert disk.files() == []
    assert owner_sql("SELECT status, file_url FROM data_uploads") == [("pending", None)]
    work_off(on_disk)  # what has no file is claimed by nobody
    assert slept(on_disk) == []
    disk.resize(8_192)
    status, answer = post(LARGE, key)
    assert status in (200, 201)
    work_off(on_disk)
    done = owner_sql("SELECT id::text, status, promoted_rows FROM data_uploads WHERE file_url IS NOT NULL")
    assert done == [(answer["upload_id"], "completed", 20_000)]
    assert len(disk.files()) == 1
    assert owner_sql("SELECT count(*) FROM data_uploads") == [(1 if key else 2,)]


def test_a_small_report_is_still_taken_when_a_large_one_had_no_room(
    on_disk: Services,
    disk: Disk,
    owner_sql: OwnerSql,
    post: Callable[..., tuple[int, dict[str, Any]]],
) -> None:
    assert post(LARGE)[0] == 503
    status, answer = post(report(2, rows=100))
    assert status == 201
    work_off(on_disk)
    found = owner_sql(f"SELECT status, promoted_rows FROM data_uploads WHERE id = '{answer['upload_id']}'")
    assert found == [("completed", 100)]


def test_an_upload_that_never_got_its_file_is_given_up_after_an_hour(
    on_disk: Services, owner_sql: OwnerSql, post: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    post(LARGE)
    owner_sql("UPDATE data_uploads SET created_at = now() - interval '61 minutes'")
    recover.sweep(on_disk)
    assert owner_sql("SELECT status, error_code FROM data_uploads") == [("failed", "file_not_found")]


# -- the disk that holds temporary files


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_request_that_cannot_be_spooled_for_want_of_room_is_answered_with_try_later(
    disk: Disk,
    owner_sql: OwnerSql,
    post: Callable[..., tuple[int, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
    status, problem = post(LARGE)
    assert (status, problem["code"]) == (503, "disk_full")
    assert owner_sql("SELECT count(*) FROM data_uploads") == [(0,)]
    assert disk.files() == []


@pytest.mark.parametrize(
    ("rows", "content"),
    [(20_000, LARGE), (2_000, report(1, rows=2_000).ljust((512 << 10) + 100, b"\n"))],
    ids=["by far", "by its last bytes"],
)
def test_a_packed_report_that_cannot_be_unpacked_for_want_of_room_waits_for_it(
    rows: int,
    content: bytes,
    services: Services,
    disk: Disk,
    owner_sql: OwnerSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upload_id = hand_in(services, gzip.compress(content))
    monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
    work_off(services)
    assert_waits(owner_sql, upload_id, "processing")
    disk.resize(8_192)
    go_on(services, owner_sql)
    assert_whole(services, owner_sql, upload_id, rows)


# -- the disk of the database


@pytest.fixture
def small_tablespace(servers: Servers, tmp_path: Path) -> Iterator[tuple[str, Disk]]:
    """A tablespace of one megabyte; its name and its disk."""
    name = f"small_{uuid.uuid4().hex[:8]}"
    mounts = mounted(tmp_path / "tablespace", 1_024)
    disk = next(mounts)
    try:
        folder = disk.path / "data"
        folder.mkdir(mode=0o700)
        owner = servers.postgres.data.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        servers.sql(f"CREATE TABLESPACE {name} LOCATION '{folder}'")
        try:
            yield name, disk
        finally:
            servers.sql(f"DROP TABLESPACE {name}")
    finally:
        next(mounts, None)


@pytest.fixture
def database_url(servers: Servers, small_tablespace: tuple[str, Disk]) -> Iterator[str]:
    """A migrated database of this test's own, which is gone before the small disk is."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name} TEMPLATE template_migrated")
    yield servers.dsn_of(name)
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def hand_in(services: Services, content: bytes) -> UUID:
    request = intake.Request(WORKSPACE, "meta", "manual")
    return intake.take_in(services, request, io.BytesIO(content)).upload_id


def assert_waits(owner_sql: OwnerSql, upload_id: UUID, status: str) -> None:
    """Nobody has the upload, and it is tried again in a minute."""
    assert owner_sql(
        "SELECT status, error_code, owner_id, attempts, deferrals,"
        " next_attempt_at - clock_timestamp() BETWEEN interval '40 s' AND interval '60 s'"
        f" FROM data_uploads WHERE id = '{upload_id}'"
    ) == [(status, None, None, 0, 1, True)]


def go_on(services: Services, owner_sql: OwnerSql) -> None:
    """The minute is over."""
    owner_sql("UPDATE data_uploads SET next_attempt_at = '-infinity'")
    work_off(services)


def assert_whole(services: Services, owner_sql: OwnerSql, upload_id: UUID, rows: int) -> None:
    """Every row of the report is in production, once, and its end was told once.

    The last row is the first one again, which carries it.
    """
    with services.db.transaction("read", WORKSPACE) as conn:
        upload = store.get_upload(conn, upload_id)
    assert (upload.status, upload.error_code) == ("completed", None)
    assert (upload.total_rows, upload.promoted_rows, upload.failed_rows) == (rows, rows, 0)
    assert owner_sql("SELECT count(*) FROM daily_metrics") == [(rows - 1,)]
    assert owner_sql(
        "SELECT count(*), count(DISTINCT row_index) FROM staging_rows WHERE entity_type = 'daily_metric'"
    ) == [(rows, rows)]
    assert owner_sql("SELECT count(*) FROM outbox") == [(1,)]
    assert slept(services) == []


@pytest.mark.parametrize(
    ("table", "status"), [("staging_rows", "processing"), ("daily_metrics", "promoting")]
)
def test_a_database_without_room_hands_the_upload_back_until_there_is_some(
    table: str,
    status: str,
    services: Services,
    owner_sql: OwnerSql,
    small_tablespace: tuple[str, Disk],
) -> None:
    tablespace, disk = small_tablespace
    quick = replace(services, settings=replace(services.settings, staging_chunk_rows=500))
    owner_sql(f"ALTER TABLE {table} SET TABLESPACE {tablespace}")
    upload_id = hand_in(quick, report(3, rows=20_000))
    work_off(quick)
    assert_waits(owner_sql, upload_id, status)
    before = owner_sql(f"SELECT count(*) FROM {table}")[0][0]
    assert 0 < before < 20_000  # what was committed before the disk was full stays
    disk.resize(65_536)
    go_on(quick, owner_sql)
    assert_whole(quick, owner_sql, upload_id, 20_000)


def test_other_workspaces_go_on_while_the_room_is_made(
    services: Services, owner_sql: OwnerSql, small_tablespace: tuple[str, Disk]
) -> None:
    tablespace, disk = small_tablespace
    owner_sql(f"ALTER TABLE daily_metrics SET TABLESPACE {tablespace}")
    large = hand_in(services, report(3, rows=20_000))
    work_off(services)
    assert_waits(owner_sql, large, "promoting")
    disk.resize(2_048)
    request = intake.Request(uuid.UUID(int=7), "meta", "manual")
    small = intake.take_in(services, request, io.BytesIO(report(4, rows=200))).upload_id
    work_off(services)
    assert owner_sql(f"SELECT status FROM data_uploads WHERE id = '{small}'") == [("completed",)]
    assert_waits(owner_sql, large, "promoting")


# -- the disk of the whole server, with its write-ahead log


@pytest.fixture
def cramped_server(tmp_path: Path) -> Iterator[tuple[embedded.Postgres, Disk]]:
    """A PostgreSQL whose every file is on one small disk."""
    mounts = mounted(tmp_path / "server", 200 * 1_024)
    disk = next(mounts)
    try:
        with embedded.Postgres(disk.path / "postgres", durable=False) as server:
            migrations.migrate(server.dsn)
            yield server, disk
    finally:
        next(mounts, None)


def test_a_server_whose_disk_is_full_loses_nothing_and_goes_on_when_there_is_room(
    services: Services, cramped_server: tuple[embedded.Postgres, Disk], servers: Servers
) -> None:
    server, disk = cramped_server
    db = database.Database(server.dsn, name="cramped")
    settings = replace(services.settings, database_url=server.dsn, staging_chunk_rows=500)
    cramped = replace(services, db=db, settings=settings)

    def sql(statement: str) -> list[Any]:
        return servers.sql(statement, dsn=server.dsn)

    upload_id = hand_in(cramped, report(5, rows=20_000))
    ballast = disk.path / "ballast"
    room = shutil.disk_usage(disk.path).free - (2 << 20)
    ballast.write_bytes(bytes(room))
    with suppress(errors.HeadworksError):  # also the claim may meet a server that is away
        work_off(cramped)
    before = [] if server.pid is None else sql("SELECT status FROM data_uploads")
    assert before in ([], [("pending",)], [("processing",)], [("promoting",)])
    ballast.unlink()
    if server.pid is None:
        server.stop()
        server.start()
    # Who was cut off had no room to say so: its lease runs out.
    sql("UPDATE data_uploads SET next_attempt_at = '-infinity'")
    sql(
        "UPDATE data_uploads SET lease_expires_at = now() - interval '1 s' WHERE lease_expires_at IS NOT NULL"
    )
    slept(cramped).clear()
    recover.sweep(cramped)
    work_off(cramped)
    assert_whole(cramped, sql, upload_id, 20_000)
    db.close()
