"""Cleanup: expired staging goes, whole days at a time, and never under an upload on its way (D6.6 §8)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.uploads import cleanup, parse, work
from app.uploads.services import Services
from tests.conftest import SetClock, work_off
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.threads import at_once, wait_until
from tests.integration.uploads.conftest import GOOD, WORKSPACE, Uploads, report

OwnerSql = Callable[[str], list[Any]]


def days_ago(count: int) -> date:
    return datetime.now(UTC).date() - timedelta(days=count)


OLD = 30


class Aged:
    """Uploads that were staged some days ago."""

    def __init__(self, uploads: Uploads, owner_sql: OwnerSql) -> None:
        self.uploads, self.owner_sql = uploads, owner_sql

    def pending(self, age: int, content: bytes = GOOD) -> UUID:
        upload_id = self.uploads.pending(content)
        self.owner_sql(f"UPDATE data_uploads SET staged_on = '{days_ago(age)}' WHERE id = '{upload_id}'")
        return upload_id

    def parsed(self, age: int) -> UUID:
        upload_id = self.pending(age)
        assert work.run_next(self.uploads.services, "parse", parse.parse_upload)
        return upload_id

    def finished(self, age: int, content: bytes = GOOD) -> UUID:
        upload_id = self.pending(age, content)
        work_off(self.uploads.services)
        return upload_id


@pytest.fixture
def aged(uploads: Uploads, owner_sql: OwnerSql) -> Aged:
    return Aged(uploads, owner_sql)


def days_kept(owner_sql: OwnerSql) -> dict[str, set[str]]:
    """The days for which each staging table has a place."""
    return {
        table: {
            name.removeprefix(f"{table}_")
            for (name,) in owner_sql(
                f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{table}'::regclass"
            )
        }
        for table in ("staging_rows", "staging_id_resolution")
    }


def both(*ages: int) -> dict[str, set[str]]:
    kept = {f"{days_ago(age):%Y%m%d}" for age in ages}
    return {"staging_rows": kept, "staging_id_resolution": kept}


def production(owner_sql: OwnerSql) -> list[Any]:
    return [
        owner_sql(f"SELECT t::text FROM {table} t ORDER BY 1")
        for table in ("campaigns", "ad_sets", "ads", "daily_metrics", "outbox")
    ]


AGES = [
    # days, kept?
    (0, True),
    (6, True),
    (7, True),  # rows of that day may be younger than seven times 24 hours
    (8, False),
    (9, False),
    (400, False),
]


@pytest.mark.parametrize(("age", "kept"), AGES)
def test_a_day_goes_when_all_of_it_has_expired(
    age: int, kept: bool, aged: Aged, services: Services, owner_sql: OwnerSql
) -> None:
    aged.finished(age)
    before = production(owner_sql)
    assert int(not kept) == cleanup.drop_expired(services)
    assert both(*([age] if kept else [])) == days_kept(owner_sql)
    assert before == production(owner_sql)


def test_only_expired_days_go(aged: Aged, services: Services, owner_sql: OwnerSql) -> None:
    for age in (1, 5, 10, 20, OLD):
        aged.finished(age)
    assert cleanup.drop_expired(services) == 3
    assert both(1, 5) == days_kept(owner_sql)


def test_a_second_run_finds_nothing(aged: Aged, services: Services) -> None:
    aged.finished(OLD)
    assert [cleanup.drop_expired(services) for _ in range(3)] == [1, 0, 0]


def test_two_runs_at_once_drop_a_day_once(aged: Aged, services: Services, owner_sql: OwnerSql) -> None:
    for age in (OLD, OLD + 1, OLD + 2):
        aged.finished(age)
    assert sum(at_once(*[lambda: cleanup.drop_expired(services)] * 3)) == 3
    assert both() == days_kept(owner_sql)


@pytest.mark.parametrize("state", ["pending", "processing", "staging_complete", "promoting"])
def test_a_day_with_an_upload_on_its_way_stays_whatever_its_age(
    state: str, aged: Aged, services: Services, owner_sql: OwnerSql
) -> None:
    aged.finished(OLD)
    upload_id = aged.parsed(OLD)
    slot = "NULL" if state == "pending" else "0"
    owner_sql(f"UPDATE data_uploads SET status = '{state}', slot = {slot} WHERE id = '{upload_id}'")
    assert cleanup.drop_expired(services) == 0
    assert both(OLD) == days_kept(owner_sql)
    owner_sql(
        "UPDATE data_uploads SET status = 'failed', error_code = 'x', slot = NULL, finished_at = now()"
        f" WHERE id = '{upload_id}'"
    )
    assert cleanup.drop_expired(services) == 1
    assert both() == days_kept(owner_sql)


def test_an_upload_whose_staging_is_gone_is_still_shown(
    aged: Aged, uploads: Uploads, services: Services
) -> None:
    bad = report(*[f"2025-05-{n:02},Spring,101,{'x' if n == 1 else n},1,1.50" for n in range(1, 12)])
    upload_id = aged.finished(OLD, bad)
    before = uploads.show(upload_id)
    assert before.status == "completed"
    cleanup.drop_expired(services)
    assert before == uploads.show(upload_id)


def test_a_day_that_is_made_while_others_are_dropped_is_not_disturbed(
    aged: Aged, uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    aged.finished(OLD)
    results = at_once(lambda: cleanup.drop_expired(services), lambda: uploads.parsed())
    assert results[0] == 1
    assert uploads.show(results[1]).status == "staging_complete"


def test_cleanup_gives_way_to_a_copy_and_holds_nobody_up(
    aged: Aged, uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    aged.finished(OLD)
    uploads.finished()  # the place of today is there
    patient = replace(services, clock=SetClock())
    insert = (
        "INSERT INTO staging_rows (upload_id, workspace_id, row_index, entity_type, natural_key_hash,"
        f" raw_data, validation_status, staged_on) VALUES (gen_random_uuid(), '{WORKSPACE}', 0,"
        f" 'daily_metric', 'k', '{{}}', 'valid', '{days_ago(0)}')"
    )
    dropped: list[int] = []
    cleaner = threading.Thread(target=lambda: dropped.append(cleanup.drop_expired(patient)))
    with services.db.transaction("parse", WORKSPACE) as conn, conn.cursor() as cursor:
        cursor.execute(insert)  # as a long COPY would, this holds the table until its end
        began = time.monotonic()
        cleaner.start()
        wait_until(lambda: owner_sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
        waited = time.monotonic()
        with services.db.transaction("parse", WORKSPACE) as other, other.cursor() as another:
            another.execute(insert)
        waited = time.monotonic() - waited
        cleaner.join(20)
        took = time.monotonic() - began
    assert dropped == [0]
    assert waited < 1.5, f"a second COPY waited {waited:.1f} s"
    assert took < 6, f"cleanup waited {took:.1f} s"
    assert cleanup.drop_expired(services) == 1
    assert both(0) == days_kept(owner_sql)


def test_cleanup_that_cannot_have_one_day_goes_on_with_the_next_run(
    aged: Aged, services: Services, owner_sql: OwnerSql
) -> None:
    aged.finished(OLD)
    claim_row = owner_sql("SELECT id FROM data_uploads")[0][0]
    patient = replace(services, clock=SetClock())
    with services.db.transaction("read", WORKSPACE) as conn, conn.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM staging_rows WHERE upload_id = %s", (claim_row,))
        assert cleanup.drop_expired(patient) == 0
    assert cleanup.drop_expired(patient) == 1
