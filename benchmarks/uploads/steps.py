"""Each step of one upload by itself, in this process: store, plan, read, stage, promote."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from app.adapters import embedded, migrations
from app.adapters.settings import Settings
from app.uploads import intake, parse, promote, services, staging_store, work
from app.uploads.claims import Claim
from app.uploads.reading import plan
from app.uploads.reading.entities import Staged
from app.uploads.reading.rows import Rows
from app.uploads.services import Services
from app.uploads.staging_store import ChunkFeed, Supply
from benchmarks.uploads.report import PLATFORM


class Unheard:
    """Hints go nowhere: all the work is done here."""

    def send(self, task: str, *, within: float = 0.0) -> None: ...


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
            of, "parse", lambda _, claim, lease: timed("stage ready rows", lambda: _stage(of, claim, staged))
        )
        staged.clear()
        with of.db.transaction(None) as conn, conn.cursor() as cursor:
            cursor.execute("TRUNCATE data_uploads, staging_rows, staging_id_resolution CASCADE")
        _take_in(of, file)
        timed("ParseWorker: all of it", lambda: work.run_next(of, "parse", parse.parse_upload))
        timed("PromotionWorker: all of it", lambda: work.run_next(of, "promote", promote.promote_upload))
        of.db.close()
    return seconds


def _take_in(of: Services, file: Path) -> None:
    with file.open("rb") as content:
        intake.take_in(of, intake.Request(uuid.uuid4(), PLATFORM, "manual", currency="USD"), content)


def _stage(of: Services, claim: Claim, staged: list[list[Staged]]) -> None:
    """Rows that are ready are staged in chunks, as a parse stages them."""
    supply, done, exhausted = Supply(iter(staged)), 0, False
    while not exhausted:
        feed = ChunkFeed(claim, supply, limit=of.settings.staging_chunk_rows)
        with of.db.transaction("parse", claim.workspace_id, durable=False) as conn:
            if done == 0:
                staging_store.ensure_staging_day(conn, claim)
            staging_store.copy_chunk(conn, claim, feed)
            staging_store.set_staged(conn, claim, before=done, rows=done + feed.source_rows, report={})
        done, exhausted = done + feed.source_rows, feed.exhausted
