"""A catalog of one's own: its database, its raw store, and an API that answers as recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.adapters.database import Database
from app.adapters.settings import Settings
from app.catalog import jobs, runs
from app.catalog.jobs import Outcome
from app.catalog.replay.server import ReplayServer
from app.catalog.services import Services
from app.kernel.clock import SystemClock

START = datetime(2026, 11, 28, 3, 0, 0, tzinfo=UTC)

EMPTY = """
TRUNCATE apl.staging, apl.shop, apl.item, apl.item_rank_snapshot, apl.target_genre_config, apl.genre,
    apl.tag_group, apl.tag, apl.etl_net, apl.etl_run CASCADE
"""


TABLES = (
    *("staging", "shop", "item", "item_image", "item_tag", "item_market_snapshot", "item_review_snapshot"),
    *("item_rank_snapshot", "genre", "tag_group", "tag"),
)


class Clock(SystemClock):
    """The machine's clock, but of the day of START, and no wait takes time; the waits are noted."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._offset = START - super().now()

    def now(self) -> datetime:
        return super().now() + self._offset

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@dataclass
class World:
    """One catalog, and what one asks of it."""

    db: Database
    api: ReplayServer
    folder: Path
    settings: Settings
    clock: Clock = field(default_factory=Clock)
    start: datetime = START

    @property
    def services(self) -> Services:
        return Services(self.settings, self.db, self.clock)

    def run(self, job_id: str, **options: Any) -> Outcome:
        """The job has been done; a second later than the one before."""
        self.start += timedelta(seconds=1)
        return jobs.run_job(self.services, job_id, **{"job_start_at": self.start, **options})

    def sql(self, statement: str, **parameters: Any) -> list[Any]:
        """What the owner of the database sees."""
        with self.db.transaction(None) as conn, conn.cursor() as cursor:
            cursor.execute(statement, parameters)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def wanted(self, *genre_ids: int) -> None:
        """The rankings of these genres are wanted."""
        for genre_id in genre_ids:
            self.sql(
                "INSERT INTO apl.target_genre_config VALUES (%(id)s) ON CONFLICT DO NOTHING", id=genre_id
            )

    def item(self, code: str, **values: Any) -> dict[str, Any]:
        """The API's item says this as well."""
        record = {**self.api.record("item", code), **values}
        self.api.put("item", code, {name: value for name, value in record.items() if value is not ...})
        return record

    def table(self, name: str) -> list[Any]:
        """The rows of a table without what differs from run to run."""
        columns = [
            column for (column,) in self.sql(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'apl'"
                " AND table_name = %(name)s ORDER BY ordinal_position", name=name,
            )
            if column not in ("created_at", "updated_at", "applied_at", "saved_at", "run_id", "id", "item_id")
        ]  # fmt: skip
        return self.sql(f"SELECT {', '.join(columns)} FROM apl.{name} ORDER BY {', '.join(columns)}")

    def raw_objects(self) -> dict[str, Any]:
        """Every raw object by its key, where the store is a folder."""
        root = self.folder / "raw"
        return {
            str(path.relative_to(self.folder / "raw")): json.loads(path.read_bytes())
            for path in sorted(root.rglob("*.json"))
        }  # fmt: skip

    def tables(self) -> dict[str, list[Any]]:
        """Every table that jobs write to, and the raw objects."""
        return {**{name: self.table(name) for name in TABLES}, "raw": sorted(self.raw_objects().items())}

    def ledger(self, entity: str, source_id: str) -> tuple[str, int | None, str]:
        """The hash, the version that applied it and the key that the ledger names."""
        ((content_hash, version, key),) = self.sql(
            "SELECT content_hash, applied_version, s3_key FROM apl.staging"
            " WHERE entity = %(entity)s AND source_id = %(id)s", entity=entity, id=source_id,
        )  # fmt: skip
        return content_hash, version, key

    def ends(self, outcome: Outcome) -> Mapping[str, tuple[str, str | None]]:
        """How each target of a run ended, and of what category that was."""
        return {row.target: (row.outcome, row.category) for row in runs.targets(self.db, outcome.run_id)}
