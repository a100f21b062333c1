"""The ledger: which raw object of a thing is the newest, and which code applied it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from app.adapters import database, queries
from app.adapters.database import Connection

_sql = queries.load("catalog")

PAGE_ROWS = 500


class Decision(Enum):
    """What a fetched content leads to (seed §2.1)."""

    STORE_AND_APPLY = "it is new, or another than the last"
    REAPPLY = "it is the last one, applied by other code or by none"
    SKIP = "it is the last one, and applied"


@dataclass(frozen=True, slots=True)
class StagingRow:
    """A line of the ledger that is to be written."""

    source: str
    entity: str
    source_id: str
    content_hash: str
    s3_key: str
    etag: str | None
    saved_at: datetime
    field_hashes: Mapping[str, str] = field(default_factory=dict)
    applied_version: int | None = None


@dataclass(frozen=True, slots=True)
class Latest:
    """What the ledger says of one thing."""

    content_hash: str
    field_hashes: Mapping[str, str]
    s3_key: str
    applied_version: int | None
    saved_at: datetime

    def decide(self, content_hash: str, apply_version: int) -> Decision:
        """What this content leads to, for code of this version."""
        if self.content_hash != content_hash:
            return Decision.STORE_AND_APPLY
        return Decision.SKIP if self.applied_version == apply_version else Decision.REAPPLY


class StagingRepo:
    """The ledger, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def latest(self, *, source: str, entity: str, source_ids: Sequence[str]) -> dict[str, Latest]:
        """What the ledger says of these things; those that it does not know are missing."""
        rows = _sql.staging_select_latest(
            self._conn, source=source, entity=entity, source_ids=list(source_ids)
        )
        return {row.source_id: _latest(row) for row in rows}

    def exists_hash(self, *, source: str, entity: str, source_id: str, content_hash: str) -> bool:
        """Whether the newest content of a thing is this one, applied or not."""
        found = self.latest(source=source, entity=entity, source_ids=[source_id]).get(source_id)
        return found is not None and found.content_hash == content_hash

    def batch_upsert(self, *, rows: Sequence[StagingRow]) -> int:
        """The ledger names these objects, each applied as its row says; how many are new to it."""
        return sum(
            _sql.staging_batch_upsert(
                self._conn, source=row.source, entity=row.entity, source_id=row.source_id,
                content_hash=row.content_hash, field_hashes=database.json_value(row.field_hashes),
                s3_key=row.s3_key, etag=row.etag, saved_at=row.saved_at, applied_version=row.applied_version,
            )
            for row in rows
        )  # fmt: skip

    def applied(
        self, *, source: str, entity: str, source_id: str, content_hash: str, apply_version: int
    ) -> bool:
        """The ledger knows that this content was applied again; False when it names another by now."""
        return bool(
            _sql.staging_applied(
                self._conn, source=source, entity=entity, source_id=source_id, content_hash=content_hash,
                apply_version=apply_version,
            )
        )  # fmt: skip

    def page(
        self, *, source: str, entity: str, behind: str, outdated: bool, apply_version: int,
        limit: int = PAGE_ROWS,
    ) -> list[tuple[str, Latest]]:  # fmt: skip
        """Lines of the ledger of an entity behind an id: all, or those that another version applied."""
        rows = _sql.staging_select_entity(
            self._conn, source=source, entity=entity, behind=behind, outdated=outdated,
            apply_version=apply_version, limit=limit,
        )  # fmt: skip
        return [(row.source_id, _latest(row)) for row in rows]


def _latest(row: Any) -> Latest:
    return Latest(row.content_hash, row.field_hashes, row.s3_key, row.applied_version, row.saved_at)
