"""Each step of one upload by itself, in this process: store, plan, read, stage, promote."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

from app.adapters import database, embedded, migrations
from app.adapters.settings import Settings
from app.uploads import intake, parse, promote, services, staging_store, work
from app.uploads.claims import Claim
from app.uploads.reading import plan
from app.uploads.reading.entities import Staged
from app.uploads.reading.rows import Rows
from app.uploads.services import Services
from app.uploads.staging_store import Supply
from benchmarks.uploads import limit
from benchmarks.uploads.report import PLATFORM


class Unheard:
    """Hints go nowhere: all the work is done here."""

    def send(self, task: str, *, within: float = 0.0) -> None: ...


@dataclass(frozen=True)
class Server:
    """The database of the steps, as its owner sees it."""

    db: database.Database
    dsn: str
    room: Path

    def sql(self, statement: str) -> list[Any]:
        """What the statement returns."""
        with self.db.statement() as conn, conn.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []


def measure(file: Path) -> dict[str, float]:
    """Seconds of each step, on a database of its own."""
    seconds: dict[str, float] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        began = time.monotonic()
        found = work()
        seconds[step] = time.monotonic() - began
        return found

    with (
        tempfile.TemporaryDirectory() as name,
        embedded.Postgres(Path(name) / "postgres") as postgres,
        file.open("rb") as content,
    ):
        migrations.migrate(postgres.dsn)
        settings = Settings(database_url=postgres.dsn, broker_url="redis://127.0.0.1:1", data_dir=Path(name))
        of = replace(services.connect(settings, name="benchmark"), dispatch=Unheard())
        timed("store the file", lambda: of.blobs.put("report", content))
        declared = plan.Declared(currency="USD")
        found = timed(
            "decide how it is read", lambda: plan.make(content, platform=PLATFORM, declared=declared)
        )
        timed("parse alone", lambda: sum(len(rows) for _, rows in found.blocks(content)))
        rows = Rows(found, scope=[str(uuid.uuid4()), None, PLATFORM], today=date.today())  # noqa: DTZ011
        staged = timed("parse, normalise, validate, hash", lambda: list(rows.read(content)))
        _take_in(of, file)
        work.run_next(
            of,
            "parse",
            lambda _, claim, lease: timed(
                "stage ready rows", lambda: _stage(of, claim, found, rows, staged, content)
            ),
        )
        staged.clear()
        server = Server(of.db, postgres.dsn, Path(name))
        [upload] = server.sql("SELECT id FROM data_uploads")
        seconds["\\\\copy of the same rows"] = limit.copy(server, limit.prepare(server, upload.id))
        server.sql("TRUNCATE data_uploads, staging_rows, staging_id_resolution CASCADE")
        _take_in(of, file)
        timed("ParseWorker: all of it", lambda: work.run_next(of, "parse", parse.parse_upload))
        timed("PromotionWorker: all of it", lambda: work.run_next(of, "promote", promote.promote_upload))
        of.db.close()
    return seconds


def _take_in(of: Services, file: Path) -> None:
    with file.open("rb") as content:
        intake.take_in(of, intake.Request(uuid.uuid4(), PLATFORM, "manual", currency="USD"), content)


def _stage(
    of: Services, claim: Claim, found: plan.Plan, rows: Rows, staged: list[list[Staged]], content: BinaryIO
) -> None:
    """Rows that are ready are staged in chunks, as a parse stages them."""
    chunks = staging_store.chunks(claim, Supply(iter(staged)), limit=of.settings.staging_chunk_rows)
    parse.Staging(of, claim, found, rows, content).stage_side_by_side(chunks)
