"""What a job works on: today's, what is needed and missing, and what other code applied (seed §5)."""

from __future__ import annotations

from collections.abc import Iterable

from app.adapters.database import Database
from app.catalog.context import JobContext
from app.catalog.entities import RULES
from app.catalog.repos.target_repo import TargetRepo


class Policy:
    """The targets of each job, as the tables have them."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def targets_ranking_genre_ids(self, ctx: JobContext) -> Iterable[str]:
        """The genres whose rankings are wanted."""
        with self._db.transaction("catalog") as conn:
            return TargetRepo(conn).ranking_genre_ids()

    def targets_item_codes(self, ctx: JobContext) -> Iterable[str]:
        """The items of the day's rankings, and those whose last content this version has not applied."""
        with self._db.transaction("catalog") as conn:
            return TargetRepo(conn).item_codes(ctx.day, RULES["item"].apply_version)

    def targets_genre_ids_from_today_items(self, ctx: JobContext) -> Iterable[str]:
        """The genres of the day's items, those that are named and not known, and those to be reapplied."""
        with self._db.transaction("catalog") as conn:
            return TargetRepo(conn).genre_ids(ctx.day, RULES["genre"].apply_version)

    def targets_tag_ids_from_today_items(self, ctx: JobContext) -> Iterable[str]:
        """The tags of the day's items, those that are used and not known, and those to be reapplied."""
        with self._db.transaction("catalog") as conn:
            return TargetRepo(conn).tag_ids(ctx.day, RULES["tag"].apply_version)
