"""Tags in their groups, under their parents (JOB-T-01)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.adapters import queries
from app.adapters.database import Connection
from app.catalog.failures import TargetFailure

_sql = queries.load("catalog")


class TagRepo:
    """Tags, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def upsert_tag_group(self, *, normalized_tag: Mapping[str, Any]) -> int:
        """The tag's group is known; 0 when it was."""
        rows: int = _sql.upsert_tag_group(
            self._conn, rakuten_tag_group_id=normalized_tag["tagGroupId"],
            tag_group_name=normalized_tag.get("tagGroupName") or "",
        )  # fmt: skip
        return rows

    def upsert_tag(self, *, normalized_tag: Mapping[str, Any]) -> int:
        """The tag stands in its group. TargetFailure `parent_missing` when nobody knows its parent yet."""
        parent = normalized_tag.get("parentTagId") or None  # 0 is none
        rows: int = _sql.upsert_tag(
            self._conn, rakuten_tag_id=normalized_tag["tagId"], tag_name=normalized_tag.get("tagName") or "",
            parent_tag_id=parent, rakuten_tag_group_id=normalized_tag["tagGroupId"],
        )  # fmt: skip
        if not rows:
            raise TargetFailure("parent_missing", excerpt=f"parent tag {parent}", needs=str(parent))
        return rows
