"""A batch of entities reads what it needs, however much its upload has and whatever the planner has seen."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from app.uploads.services import Services
from tests.integration.uploads.conftest import Uploads, report

OwnerSql = Callable[[str], list[Any]]

HEADER = "Day,Campaign name,Campaign ID,Ad set name,Ad set ID,Ad name,Ad ID,Amount spent (USD)"
ROWS = 6_000
PRODUCTION = ("campaigns", "ad_sets", "ads", "daily_metrics")
READS_PER_ROW = 40
"""Of index entries and rows: each of four tables is asked a few times, and so are the staged rows."""


def names(rows: int, *, begin: int, of_one: bool) -> bytes:
    """Each row is of an ad of its own; in an ad set of its own, too, or all in one."""
    lines = []
    for number in range(begin, begin + rows):
        ad_set = begin if of_one else number
        lines.append(
            f"2025-05-01,Camp {ad_set},1{ad_set:06},Set {ad_set},2{ad_set:06},Ad {number},3{number:06},1.50"
        )
    return report(*lines, header=HEADER)


def rows_read(owner_sql: OwnerSql, services: Services, *, ads: int) -> int:
    """How many index entries and rows were read so far, when so many ads were written."""
    services.db.close()  # a session counts at its end
    counted = 0
    deadline = time.monotonic() + 20
    while counted < ads:
        assert time.monotonic() < deadline, counted
        counted = owner_sql("SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'ads'")[0][0]
        time.sleep(0.05)
    tables = f"relname IN {PRODUCTION} OR relname LIKE 'staging%'"
    [(indexes,)] = owner_sql(f"SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE {tables}")
    [(scans,)] = owner_sql(f"SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE {tables}")
    return int(indexes + scans)


@pytest.mark.parametrize("of_one", [True, False], ids=["of one ad set", "of many"])
@pytest.mark.parametrize("seen", ["nothing", "another workspace"])
def test_a_batch_does_not_read_all_of_its_upload(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, seen: str, of_one: bool
) -> None:
    known = 0
    if seen == "another workspace":
        known = 300
        uploads.finished(names(known, begin=500_000, of_one=False), workspace_id=uuid.uuid4())
        owner_sql(f"ANALYZE {', '.join(PRODUCTION)}")
    before = rows_read(owner_sql, services, ads=known)
    uploads.finished(names(ROWS, begin=0, of_one=of_one))
    read = rows_read(owner_sql, services, ads=known + ROWS) - before
    assert owner_sql("SELECT count(*) FROM daily_metrics") == [(known + ROWS,)]
    assert read <= READS_PER_ROW * ROWS
