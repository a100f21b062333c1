"""Rankings as they were built (JOB-R-01)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from app.adapters import logs, queries
from app.adapters.database import Connection

_sql = queries.load("catalog")
log = logs.get(__name__)


class RankRepo:
    """Rankings, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def insert_rank_snapshot(
        self, *, run_id: UUID, genre_id: int, ranking_items: Sequence[Mapping[str, Any]],
        last_build_date: datetime | None, fetched_at: datetime,
    ) -> int:  # fmt: skip
        """The ranking stands as it was built; how many of its lines are new.

        The first that is seen of a build counts: one that says something else later is named in the log
        and not mixed with it. A ranking that does not say when it was built is of when it was fetched.
        """
        collected_at = last_build_date or fetched_at
        if last_build_date is None:
            log.info("ranking_without_build_date", genre_id=genre_id)
        lines = [(item["itemCode"], item["rank"]) for item in ranking_items]
        ranks = {rank for _, rank in lines}
        if len(ranks) < len(lines):
            log.warning("ranking_with_repeated_ranks", genre_id=genre_id)
        gaps = [before for before, rank in itertools.pairwise(sorted(ranks)) if rank > before + 1]
        if gaps:
            log.warning("ranking_with_missing_ranks", genre_id=genre_id, behind=gaps)
        standing = [
            (row.rakuten_item_code, row.rank)
            for row in _sql.rank_snapshot_select(
                self._conn, rakuten_genre_id=genre_id, collected_at=collected_at
            )
        ]
        if standing:
            if sorted(standing) != sorted(lines):
                log.warning(
                    "ranking_differs_from_its_build", genre_id=genre_id, collected_at=str(collected_at)
                )
            return 0
        rows: int = _sql.insert_rank_snapshot(
            self._conn, rakuten_genre_id=genre_id, collected_at=collected_at, last_build_date=last_build_date,
            fetched_at=fetched_at, run_id=run_id, codes=[code for code, _ in lines],
            ranks=[rank for _, rank in lines],
        )  # fmt: skip
        return rows
