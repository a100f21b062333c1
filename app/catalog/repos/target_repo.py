"""Which things a job is to work on (seed §5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from app.adapters import queries
from app.adapters.database import Connection
from app.catalog.context import SOURCE

_sql = queries.load("catalog")


class TargetRepo:
    """Targets, within a transaction, each in the order in which it is worked on."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def ranking_genre_ids(self) -> list[str]:
        """The genres whose rankings are wanted."""
        return [row.target for row in _sql.targets_ranking_genre_ids(self._conn)]

    def genres(self) -> list[Any]:
        """The genres that are or were wanted, with their names where they are known."""
        return list(_sql.select_target_genres(self._conn))

    def want_genre(self, genre_id: int, *, wanted: bool) -> None:
        """The ranking of this genre is wanted from now on, or not any more."""
        _sql.set_target_genre(self._conn, rakuten_genre_id=genre_id, is_enabled=wanted)

    def item_codes(self, day: tuple[datetime, datetime], apply_version: int) -> list[str]:
        """The items of the day's rankings, and those to be applied again."""
        return self._of_day(_sql.targets_item_codes, day, apply_version)

    def genre_ids(self, day: tuple[datetime, datetime], apply_version: int) -> list[str]:
        """The genres of the day's items, those that are missing, and those to be applied again."""
        return self._of_day(_sql.targets_genre_ids, day, apply_version)

    def tag_ids(self, day: tuple[datetime, datetime], apply_version: int) -> list[str]:
        """The tags of the day's items, those that are missing, and those to be applied again."""
        return self._of_day(_sql.targets_tag_ids, day, apply_version)

    def _of_day(
        self, query: Callable[..., Any], day: tuple[datetime, datetime], apply_version: int
    ) -> list[str]:
        rows = query(self._conn, source=SOURCE, day_start=day[0], day_end=day[1], apply_version=apply_version)
        return [row.target for row in rows]
