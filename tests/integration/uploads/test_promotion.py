"""Promotion: newest number wins whatever the order, one bad row costs one row, a person may try again."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import hypothesis
import pytest
import structlog
from hypothesis import strategies

from app import web
from app.uploads import claims_store, lanes, leases, parse, production_store, promote, store, work
from app.uploads.claims import Claim
from app.uploads.production_store import Counts, Reached
from app.uploads.services import Services
from tests.conftest import BEARER, put_off, work_off
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.uploads.conftest import BAD, GOOD, WORKSPACE, Uploads, report
from tests.integration.uploads.test_lost_commits import losing

OwnerSql = Callable[[str], list[Any]]
Requeue = Callable[..., tuple[int, dict[str, Any]]]
METRICS = ("impressions", "clicks", "spend", "reach")
HEADER = "Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD),Reach"
NAMES_ONLY = "Day,Campaign name,Impressions,Clicks (all),Amount spent (USD)"


def promote_in_order(services: Services, ids: list[UUID]) -> None:
    """Parsed uploads, each put off until it is its turn, are promoted in just this order."""
    put_off(services, ids)
    for upload_id in ids:
        put_off(services, [upload_id], until="-infinity")
        assert work.run_next(services, "promote", promote.promote_upload)


# -- each metric has the newest number there is


def test_an_absent_metric_never_replaces_a_number_and_a_zero_does(
    uploads: Uploads, days: Callable[[], list[Any]]
) -> None:
    uploads.finished(report("2025-05-01,Spring,101,100,10,1.50,50", header=HEADER))
    uploads.finished(report("2025-05-01,Spring,101,--,0,,0", header=HEADER))
    assert days() == [("101", "2025-05-01", 1.5, 100, 0, 0, None)]


def test_an_older_upload_fills_in_what_the_newer_one_did_not_say(
    uploads: Uploads, services: Services, days: Callable[[], list[Any]]
) -> None:
    older = uploads.parsed(report("2025-05-01,Spring,101,100,10,1.50,50", header=HEADER))
    newer = uploads.parsed(report("2025-05-01,Spring,101,--,0,,7", header=HEADER))
    promote_in_order(services, [newer, older])
    assert days() == [("101", "2025-05-01", 1.5, 100, 0, 7, None)]


Cells = dict[str, int | None]
CELLS = strategies.fixed_dictionaries(
    {name: strategies.one_of(strategies.none(), strategies.integers(0, 9)) for name in METRICS}
)
UPLOAD = strategies.fixed_dictionaries({}, optional={date(2025, 5, 1): CELLS, date(2025, 5, 2): CELLS})
THREE = strategies.lists(UPLOAD.filter(bool), min_size=3, max_size=3)
ORDERS = strategies.permutations(range(3))


def newest_of_each(said: list[dict[date, Cells]]) -> dict[date, tuple[Any, ...]]:
    """What serial processing leaves: for each day the newest number of each metric, and who came last."""
    days: dict[date, tuple[Any, ...]] = {}
    for number, upload in enumerate(said):
        for day, cells in upload.items():
            *before, _ = days.get(day, (None,) * (len(METRICS) + 1))
            merged = [old if cells[m] is None else cells[m] for m, old in zip(METRICS, before, strict=True)]
            days[day] = (*merged, number)
    return days


def as_report(upload: dict[date, Cells], absent: str) -> bytes:
    def cell(value: int | None) -> str:
        return absent if value is None else str(value)

    return report(
        *[f"{day},Spring,101,{','.join(cell(cells[m]) for m in METRICS)}" for day, cells in upload.items()],
        header=HEADER,
    )


@hypothesis.settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
@hypothesis.given(said=THREE, order=ORDERS, absent=strategies.sampled_from(["", "--"]))
def test_three_uploads_in_any_order_leave_the_newest_number_of_each_metric(
    uploads: Uploads, services: Services, said: list[dict[date, Cells]], order: list[int], absent: str
) -> None:
    workspace_id = uuid.uuid4()
    ids = [uploads.pending(as_report(upload, absent), workspace_id=workspace_id) for upload in said]
    while work.run_next(services, "parse", parse.parse_upload):
        pass
    promote_in_order(services, [ids[number] for number in order])
    with services.db.transaction("read", workspace_id) as conn, conn.cursor() as cursor:
        cursor.execute(
            "SELECT metric_date, impressions, clicks, spend, reach, upload_id FROM daily_metrics"
            " WHERE workspace_id = %s",
            (workspace_id,),
        )
        found = {row[0]: (*row[1:5], ids.index(row[5])) for row in cursor.fetchall()}
    assert newest_of_each(said) == found


def test_an_older_upload_that_comes_late_renames_nothing(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    header = "Day,Campaign name,Campaign ID,Account ID,Impressions,Amount spent (USD)"
    older = uploads.parsed(report("2025-05-01,Old name,101,7001,100,1.50", header=header))
    newer = uploads.parsed(report("2025-05-01,New name,101,7002,100,1.50", header=header))
    promote_in_order(services, [newer, older])
    found = owner_sql("SELECT name, account_external_id, upload_id::text FROM campaigns")
    assert [("New name", "7002", str(newer))] == found


# -- batches


def many_rows(count: int, *, campaigns: int = 10) -> list[str]:
    """So many rows, each of a campaign and a day of its own; impressions are the row's number."""
    first = date(2024, 1, 1)
    return [
        f"{first + timedelta(days=number // campaigns)},Campaign {number % campaigns},"
        f"{100 + number % campaigns},{number},{number},1.50"
        for number in range(count)
    ]


def test_rows_are_promoted_a_thousand_at_a_time(
    uploads: Uploads, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions: list[Any] = []
    set_promoting = production_store.set_promoting

    def noting(
        conn: Any, claim: Claim, before: Reached, after: Reached, written: Mapping[str, Counts]
    ) -> Any:
        transactions.append((*before, *after, {kind: counts.promoted for kind, counts in written.items()}))
        return set_promoting(conn, claim, before, after, written)

    monkeypatch.setattr(production_store, "set_promoting", noting)
    upload_id = uploads.finished(report(*many_rows(3500)))
    days = "daily_metric"
    assert transactions == [
        (None, -1, days, 999, {"campaign": 0, days: 1000}),
        (days, 999, days, 1999, {days: 1000}),
        (days, 1999, days, 2999, {days: 1000}),
        (days, 2999, days, 3499, {days: 500}),
        (days, 3499, days, 3499, {}),  # the end
    ]
    assert (uploads.show(upload_id).status, uploads.show(upload_id).row_count) == ("completed", 3500)


# -- rows that the database refuses


def events(owner_sql: OwnerSql) -> list[dict[str, Any]]:
    return [payload for (payload,) in owner_sql("SELECT payload FROM outbox ORDER BY id")]


def errors_of(services: Services, upload: Any) -> list[tuple[int, str]]:
    with services.db.transaction("read", upload.workspace_id) as conn:
        rows = store.rejected_rows(conn, upload, after_row=-1, limit=2000)
        return [(row.row_index, row.promotion_error) for row in rows]


def test_one_bad_row_among_a_thousand_costs_one_row(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, refuse_one: Callable[..., None]
) -> None:
    refuse_one()
    upload = uploads.show(uploads.finished(report(*many_rows(1000, campaigns=1))))
    assert (
        upload.status,
        upload.error_code,
        upload.row_count,
        upload.promoted_rows,
        upload.failed_rows,
        upload.total_rows,
    ) == ("partial", "rows_failed", 999, 999, 1, 1000)
    assert errors_of(services, upload) == [(BAD, "row_refused")]
    assert owner_sql(f"SELECT count(*), count(*) FILTER (WHERE impressions = {BAD}) FROM daily_metrics") == [
        (999, 0)
    ]
    (event,) = events(owner_sql)
    assert event["status"] == "partial"
    assert event["metrics"] == {
        "total_rows": 1000,
        "promoted_rows": 999,
        "failed_rows": 1,
        "campaigns_upserted": 1,
        "ad_sets_upserted": 0,
        "ads_upserted": 0,
        "daily_metrics_upserted": 999,
    }
    days = [str(date(2024, 1, 1) + timedelta(days=number)) for number in range(1000) if number != BAD]
    assert days == event["affected_dates"]


def test_a_bad_row_takes_those_with_it_whose_numbers_it_carries(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, refuse_one: Callable[..., None]
) -> None:
    refuse_one()
    upload = uploads.show(uploads.finished(WITH_BREAKDOWN))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == ("partial", 4, 2)
    assert errors_of(services, upload) == [(2, "row_refused"), (3, "row_refused")]


# Two rows of one day, by age, become one with BAD impressions.
WITH_BREAKDOWN = report(
    "2025-05-01,Spring,101,18-24,100,1,1.50",
    "2025-05-02,Spring,101,18-24,100,1,1.50",
    "2025-05-03,Spring,101,18-24,400,1,1.50",
    "2025-05-03,Spring,101,25-34,37,1,1.50",
    "2025-05-04,Spring,101,18-24,100,1,1.50",
    "2025-05-05,Spring,101,18-24,100,1,1.50",
    header="Day,Campaign name,Campaign ID,Age,Impressions,Clicks (all),Amount spent (USD)",
)


def test_when_every_row_is_refused_the_upload_is_failed_without_an_event(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, refuse_one: Callable[..., None]
) -> None:
    refuse_one()
    upload = uploads.show(uploads.finished(report(f"2025-05-01,Spring,101,{BAD},1,1.50")))
    assert (upload.status, upload.error_code, upload.promoted_rows) == ("failed", "promotion_failed", 0)
    assert errors_of(services, upload) == [(0, "row_refused")]
    assert events(owner_sql) == []


# -- once more, by a person's command


@pytest.fixture
def requeue(services: Services) -> Iterator[Requeue]:
    """POST /v1/uploads/<id>/requeue: the status of the answer and what it says."""
    client = web.create_app(services.settings).test_client()

    def post(upload_id: UUID, reason: str | None = "the table is mended") -> tuple[int, dict[str, Any]]:
        answer = client.post(f"/v1/uploads/{upload_id}/requeue", json={"reason": reason}, headers=BEARER)
        return answer.status_code, json.loads(answer.data)

    yield post
    client.application.extensions["services"].db.close()
    structlog.reset_defaults()


def test_a_partial_upload_is_completed_by_its_failed_rows_alone(
    uploads: Uploads,
    services: Services,
    owner_sql: OwnerSql,
    refuse_one: Callable[..., None],
    requeue: Requeue,
) -> None:
    refuse_one()
    upload_id = uploads.finished(report(*many_rows(1000)))
    written = owner_sql("SELECT impressions, updated_at FROM daily_metrics ORDER BY 1")
    refuse_one(False)
    assert (
        (answer := requeue(upload_id))[0],
        answer[1].get("status", answer[1]),
    ) == (202, "staging_complete")
    assert uploads.show(upload_id).status == "staging_complete"
    work_off(services)
    upload = uploads.show(upload_id)
    assert (
        upload.status,
        upload.error_code,
        upload.row_count,
        upload.promoted_rows,
        upload.failed_rows,
    ) == ("completed", None, 1000, 1000, 0)
    others = f"SELECT impressions, updated_at FROM daily_metrics WHERE impressions <> {BAD} ORDER BY 1"
    assert written == owner_sql(others)
    assert owner_sql(f"SELECT count(*) FROM daily_metrics WHERE impressions = {BAD}") == [(1,)]
    assert errors_of(services, upload) == []
    assert upload.upserted == {"campaigns": 10, "daily_metrics": 1000}
    assert len(events(owner_sql)) == 1  # its end was told once already


def test_a_partial_upload_that_is_tried_in_vain_is_as_it_was(
    uploads: Uploads,
    services: Services,
    owner_sql: OwnerSql,
    refuse_one: Callable[..., None],
    requeue: Requeue,
) -> None:
    refuse_one()
    upload_id = uploads.finished(WITH_BREAKDOWN)
    before = uploads.show(upload_id)
    assert requeue(upload_id)[0] == 202
    work_off(services)
    after = uploads.show(upload_id)
    for name in ("status", "error_code", "row_count", "promoted_rows", "failed_rows", "affected_dates"):
        assert getattr(before, name) == getattr(after, name), name
    assert errors_of(services, before) == errors_of(services, after)
    assert len(events(owner_sql)) == 1


def test_a_failed_upload_is_read_anew(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, requeue: Requeue, days: Callable[[], list[Any]]
) -> None:
    upload_id = uploads.pending()
    stored = Path(uploads.show(upload_id).file_url.removeprefix("file://"))
    stored.rename(stored.with_suffix(".away"))
    work_off(services)
    assert (
        uploads.show(upload_id).status,
        uploads.show(upload_id).error_code,
    ) == ("failed", "file_not_found")
    stored.with_suffix(".away").rename(stored)
    assert requeue(upload_id, "the disk is back")[0] == 202
    work_off(services)
    upload = uploads.show(upload_id)
    assert (upload.status, upload.error_code, upload.row_count) == ("completed", None, 3)
    assert len(days()) == 3
    assert len(events(owner_sql)) == 1


def test_a_failed_upload_that_was_staged_begins_with_empty_staging(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, requeue: Requeue
) -> None:
    bad = report("2025-05-01,Spring,101,x,10,1.50", "2025-05-02,Spring,101,1,10,1.50")
    upload_id = uploads.finished(bad)
    assert uploads.show(upload_id).error_code == "too_many_rejects"
    assert requeue(upload_id)[0] == 202
    for table in ("staging_rows", "staging_id_resolution"):
        assert owner_sql(f"SELECT count(*) FROM {table}") == [(0,)], table
    upload = uploads.show(upload_id)
    assert (upload.status, upload.total_rows, upload.attempts, upload.report) == ("pending", 0, 0, {})
    work_off(services)
    assert (
        uploads.show(upload_id).status,
        uploads.show(upload_id).error_code,
    ) == ("failed", "too_many_rejects")


def test_an_upload_that_waits_may_be_claimed_at_once(
    uploads: Uploads, services: Services, requeue: Requeue
) -> None:
    upload_id = uploads.pending()
    put_off(services, [upload_id])
    assert ((answer := requeue(upload_id))[0], answer[1].get("status", answer[1])) == (202, "pending")
    work_off(services)
    assert uploads.show(upload_id).status == "completed"


def test_an_upload_that_is_done_is_not_requeued(uploads: Uploads, requeue: Requeue) -> None:
    upload_id = uploads.finished()
    before = uploads.show(upload_id)
    status, body = requeue(upload_id)
    assert (status, body["code"]) == (409, "conflict")
    assert "completed" in body["detail"]
    assert before == uploads.show(upload_id)


def test_an_upload_in_a_workers_hands_is_not_requeued(
    uploads: Uploads, services: Services, requeue: Requeue
) -> None:
    upload_id = uploads.pending()
    with services.db.transaction("dispatch") as conn:
        claims_store.claim_upload(conn, "parse", owner_id="a worker", lease_seconds=60)
    before = uploads.show(upload_id)
    status, body = requeue(upload_id)
    assert (status, body["code"]) == (409, "conflict")
    assert "worker" in body["detail"]
    assert before == uploads.show(upload_id)


def test_a_partial_upload_waits_while_three_others_are_active(
    uploads: Uploads, services: Services, refuse_one: Callable[..., None], requeue: Requeue
) -> None:
    refuse_one()
    upload_id = uploads.finished(WITH_BREAKDOWN)
    for _ in range(3):
        uploads.parsed()
    status, body = requeue(upload_id)
    assert (status, body["code"]) == (409, "conflict")
    assert uploads.show(upload_id).status == "partial"


def test_a_requeue_without_a_reason_is_refused(uploads: Uploads, requeue: Requeue) -> None:
    upload_id = uploads.pending()
    for reason in (None, "", "   "):
        status, body = requeue(upload_id, reason)
        assert (status, "reason" in body["detail"]) == (422, True)


def test_a_requeue_of_no_upload_is_not_found(requeue: Requeue) -> None:
    status, body = requeue(uuid.uuid4())
    assert (status, body["code"]) == (404, "not_found")


def test_a_requeue_stands_in_the_history_with_who_and_why(
    uploads: Uploads, services: Services, requeue: Requeue
) -> None:
    upload_id = uploads.finished(b"Day,Campaign name\n1,2\n")
    assert uploads.show(upload_id).status == "failed"
    assert requeue(upload_id, "a better release reads it")[0] == 202
    entry = uploads.history(upload_id)[-1]
    assert (
        entry.action,
        entry.from_status,
        entry.to_status,
        entry.why,
    ) == ("requeued", "failed", "pending", "a better release reads it")
    assert entry.owner_id  # who it was


# -- names without ids


def test_a_name_that_two_campaigns_bear_fails_its_rows_alone(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    uploads.finished(report("2025-05-01,Spring,101,1,1,1.50", "2025-05-01,Spring,102,2,1,1.50"))
    upload = uploads.show(
        uploads.finished(
            report("2025-05-02,Spring,9,1,1.50", "2025-05-02,Summer,8,1,1.50", header=NAMES_ONLY)
        )
    )
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == ("partial", 1, 1)
    assert errors_of(services, upload) == [(0, "ambiguous_name")]
    assert owner_sql("SELECT impressions FROM daily_metrics ORDER BY 1") == [(1,), (2,), (8,)]


def test_a_report_of_ambiguous_names_alone_is_failed(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    uploads.finished(report("2025-05-01,Spring,101,1,1,1.50", "2025-05-01,Spring,102,2,1,1.50"))
    upload = uploads.show(uploads.finished(report("2025-05-02,Spring,9,1,1.50", header=NAMES_ONLY)))
    assert (upload.status, upload.promoted_rows) == ("failed", 0)
    assert errors_of(services, upload) == [(0, "ambiguous_name")]
    assert len(events(owner_sql)) == 1  # that of the first upload


def test_a_name_is_not_adopted_when_two_ids_claim_it(uploads: Uploads, owner_sql: OwnerSql) -> None:
    uploads.finished(report("2025-05-01,Spring,1,1,1.50", header=NAMES_ONLY))
    uploads.finished(report("2025-05-01,Spring,101,1,1,1.50", "2025-05-01,Spring,102,2,1,1.50"))
    found = owner_sql("SELECT id_source, count(*) FROM campaigns GROUP BY 1 ORDER BY 1")
    assert found == [("name", 1), ("platform", 2)]


def test_a_name_is_not_adopted_when_two_ids_of_a_long_report_claim_it(
    uploads: Uploads, owner_sql: OwnerSql
) -> None:
    uploads.finished(report("2025-05-01,Spring,1,1,1.50", header=NAMES_ONLY))
    between = [f"2025-05-01,Campaign {n},{10_000 + n},1,1,1.50" for n in range(1000)]
    uploads.finished(report("2025-05-01,Spring,101,1,1,1.50", *between, "2025-05-01,Spring,102,2,1,1.50"))
    found = owner_sql("SELECT id_source FROM campaigns WHERE name = 'Spring' ORDER BY 1")
    assert found == [("name",), ("platform",), ("platform",)]


def test_promotion_repeated_from_any_batch_leaves_the_same(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, days: Callable[[], list[Any]]
) -> None:
    upload_id = uploads.finished(GOOD)
    before = days()
    for place in itertools.product(("campaign", "daily_metric"), (-1, 0, 2)):
        owner_sql(
            "UPDATE data_uploads SET status = 'staging_complete', slot = 0, finished_at = NULL,"
            f" promoting_type = '{place[0]}', promoting_row = {place[1]} WHERE id = '{upload_id}'"
        )
        work_off(services)
        assert before == days()
    assert [(Decimal("7.5"),)] == owner_sql("SELECT sum(spend) FROM daily_metrics")
    assert uploads.show(upload_id).workspace_id == WORKSPACE


# -- many days, written side by side


def promoted(owner_sql: OwnerSql, upload_id: UUID) -> tuple[Any, ...]:
    """The upload's end, and what production holds of it: how many days, and the sum of their numbers."""
    [upload] = owner_sql(
        "SELECT status, promoted_rows, failed_rows, upserted, workspace_id FROM data_uploads"
        f" WHERE id = '{upload_id}'"
    )
    held = "SELECT count(*), sum(impressions)::int FROM daily_metrics WHERE workspace_id ="
    return (*upload[:4], *owner_sql(f"{held} '{upload[4]}'")[0])


def whole(rows: int, *, failed: int = 0) -> tuple[Any, ...]:
    """What is promoted of so many of `many_rows`; the last ones failed."""
    kept = rows - failed
    written = {"campaigns": 10, "daily_metrics": kept}
    return "partial" if failed else "completed", kept, failed, written, kept, sum(range(kept))


def test_batches_written_side_by_side_are_committed_in_order(
    uploads: Uploads, services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    begun = threading.Barrier(lanes.LANES, timeout=20)
    real = production_store.promote_daily_metrics

    def meeting(conn: Any, claim: Claim, *, after_row: int, last_row: int) -> Any:
        if 999 <= after_row < 4999:  # a batch of each lane is under way before any of them ends
            begun.wait()
            together.append(after_row)
        return real(conn, claim, after_row=after_row, last_row=last_row)

    monkeypatch.setattr(production_store, "promote_daily_metrics", meeting)
    upload_id = uploads.finished(report(*many_rows(5500)))
    assert sorted(together) == [999, 1999, 2999, 3999]
    assert promoted(owner_sql, upload_id) == whole(5500)


def test_a_lost_answer_among_batches_written_side_by_side_changes_nothing(
    services: Services, owner_sql: OwnerSql
) -> None:
    for nth in range(1, 8):
        unlucky, db = losing(services, "promote", nth)
        workspace_id = uuid.uuid4()
        uploads = Uploads(unlucky)
        upload_id = uploads.finished(report(*many_rows(5500)), workspace_id=workspace_id)
        assert promoted(owner_sql, upload_id) == whole(5500), f"transaction {nth}"
        assert db.left <= 0


@pytest.mark.parametrize("at", [1999, 2999, 4999, 5499])  # the last: when nothing is left to be done
def test_commits_that_a_crash_takes_back_are_made_again(
    at: int, uploads: Uploads, services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the last commit is waited for until the disk has it: a crash undoes some before it, and no others.
    taken_back: list[int] = []
    real = production_store.set_promoting

    def after_a_crash(conn: Any, claim: Claim, before: Reached, *how: Any) -> Any:
        if before == ("daily_metric", at) and not taken_back:
            taken_back.append(at)
            owner_sql("DELETE FROM daily_metrics WHERE impressions > 999")
            owner_sql(
                "UPDATE data_uploads SET promoting_row = 999, promoted_rows = 1000,"
                " upserted = jsonb_set(upserted, '{daily_metrics}', '1000')"
            )
        return real(conn, claim, before, *how)

    monkeypatch.setattr(production_store, "set_promoting", after_a_crash)
    upload_id = uploads.finished(report(*many_rows(5500)))
    assert taken_back == [at]
    assert promoted(owner_sql, upload_id) == whole(5500)


def test_a_bad_row_among_batches_written_side_by_side_costs_one_row(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    owner_sql("ALTER TABLE daily_metrics ADD CONSTRAINT not_the_last CHECK (impressions <> 5499)")
    try:
        upload_id = uploads.finished(report(*many_rows(5500)))
    finally:
        owner_sql("ALTER TABLE daily_metrics DROP CONSTRAINT not_the_last")
    assert promoted(owner_sql, upload_id) == whole(5500, failed=1)
    assert errors_of(services, uploads.show(upload_id)) == [(5499, "row_refused")]


# -- many entities, written side by side

OF_ADS = "Day,Campaign name,Campaign ID,Ad set name,Ad Set ID,Ad name,Ad ID,Impressions,Amount spent (USD)"
ADS_BY_NAME = "Day,Campaign name,Ad set name,Ad name,Impressions,Amount spent (USD)"


def many_ads(count: int) -> list[str]:
    """So many rows, each about an ad of its own."""
    return [f"2025-05-01,Spring,1,Set {n % 9},{n % 9},Ad {n},{1000 + n},{n},1.50" for n in range(count)]


@pytest.fixture
def meetings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Where the batches of ads began that were looked for while another one was, too."""
    met: list[int] = []
    under_way = threading.Barrier(lanes.LANES)
    real = production_store.find_entities

    def meeting(conn: Any, claim: Claim, entity_type: str, wanted: list[Any]) -> Any:
        if entity_type == "ad" and len(wanted) == 1000:
            try:
                under_way.wait(0.5)
            except threading.BrokenBarrierError:
                under_way.reset()
            else:
                met.append(wanted[0].row_index)
        return real(conn, claim, entity_type, wanted)

    monkeypatch.setattr(production_store, "find_entities", meeting)
    yield met


def of_ads(owner_sql: OwnerSql, upload_id: UUID) -> tuple[Any, ...]:
    """The upload's end, how many ads there are, how many days of how many ads have the ad's own number."""
    [upload] = owner_sql(f"SELECT status, promoted_rows, upserted FROM data_uploads WHERE id = '{upload_id}'")
    [[ads]] = owner_sql("SELECT count(*) FROM ads")
    [days] = owner_sql(
        "SELECT count(*), count(DISTINCT ad_id) FROM daily_metrics d JOIN ads a ON a.id = d.ad_id"
        " WHERE a.name = 'Ad ' || d.impressions"
    )
    return (*upload, ads, *days)


def test_batches_of_ads_are_looked_for_side_by_side(
    uploads: Uploads, owner_sql: OwnerSql, meetings: list[int]
) -> None:
    upload_id = uploads.finished(report(*many_ads(5500), header=OF_ADS))
    written = {"campaigns": 1, "ad_sets": 9, "ads": 5500, "daily_metrics": 5500}
    assert of_ads(owner_sql, upload_id) == ("completed", 5500, written, 5500, 5500, 5500)
    assert sorted(meetings) == [1000, 2000, 3000, 4000]


def test_batches_of_ads_are_written_side_by_side_where_none_is_named_twice(
    uploads: Uploads, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[int] = []
    begun = threading.Barrier(lanes.LANES, timeout=20)
    real = production_store.create_entities

    def meeting(conn: Any, claim: Claim, entity_type: str, new: list[Any]) -> Any:
        if entity_type == "ad" and 1000 <= new[0].row_index < 5000:
            begun.wait()
            met.append(new[0].row_index)
        return real(conn, claim, entity_type, new)

    monkeypatch.setattr(production_store, "create_entities", meeting)
    upload_id = uploads.finished(report(*many_ads(5500), header=OF_ADS))
    assert sorted(met) == [1000, 2000, 3000, 4000]
    assert of_ads(owner_sql, upload_id)[3:] == (5500, 5500, 5500)


def test_batches_of_ads_are_written_one_after_the_other_where_one_is_named_twice(
    uploads: Uploads, monkeypatch: pytest.MonkeyPatch, meetings: list[int]
) -> None:
    # One that held an ad which an earlier batch names, too, would wait for its turn, and that one for it.
    written: list[int] = []
    real = production_store.create_entities

    def noting(conn: Any, claim: Claim, entity_type: str, new: list[Any]) -> Any:
        if entity_type == "ad":
            if new[0].row_index in (1000, 3000):
                time.sleep(0.5)
            written.append(new[0].row_index)
        return real(conn, claim, entity_type, new)

    monkeypatch.setattr(production_store, "create_entities", noting)
    rows = many_ads(5500)
    rows[5400] = rows[5400].replace("Ad 5400,6400", "Renamed,6300")
    uploads.finished(report(*rows, header=OF_ADS))
    assert written == [0, 1000, 2000, 3000, 4000, 5000]
    assert len(meetings) == 4


def test_ads_without_ids_are_looked_for_one_batch_after_another(
    uploads: Uploads, owner_sql: OwnerSql, meetings: list[int]
) -> None:
    # What an earlier batch makes of a name is whom a later one means by it.
    rows = [f"2025-05-01,Spring,Set,Ad {n},{n},1.50" for n in range(5500)]
    upload_id = uploads.finished(report(*rows, header=ADS_BY_NAME))
    assert of_ads(owner_sql, upload_id)[3:] == (5500, 5500, 5500)
    assert meetings == []


def test_an_ad_that_two_batches_name_is_one_ad(
    uploads: Uploads, owner_sql: OwnerSql, meetings: list[int]
) -> None:
    rows = many_ads(4500)
    # Said anew: rows 1,500 and 2,500 are of two batches that are looked for at the same time.
    rows[2500] = "2025-05-02,Spring,1,Set 0,0,Renamed,2500,7,1.50"
    upload_id = uploads.finished(report(*rows, header=OF_ADS))
    assert of_ads(owner_sql, upload_id)[:2] == ("completed", 4500)
    assert owner_sql("SELECT count(*), count(DISTINCT external_id) FROM ads") == [(4499, 4499)]
    assert owner_sql("SELECT name FROM ads WHERE external_id = '2500'") == [("Renamed",)]
    assert 1000 in meetings and 2000 in meetings


def test_an_ad_known_by_name_is_taken_over_by_one_of_many(
    uploads: Uploads, owner_sql: OwnerSql, meetings: list[int]
) -> None:
    known = [f"2025-04-01,Spring,1,Set {n % 9},{n % 9},Ad {n},,1,1.50" for n in (1200, 2200, 3200)]
    uploads.finished(report(*known, header=OF_ADS))
    assert owner_sql("SELECT DISTINCT id_source FROM ads") == [("name",)]
    upload_id = uploads.finished(report(*many_ads(4500), header=OF_ADS))
    assert of_ads(owner_sql, upload_id)[:2] == ("completed", 4500)
    assert owner_sql("SELECT id_source, count(*) FROM ads GROUP BY 1") == [("platform", 4500)]
    assert len(meetings) == 2 * lanes.LANES or len(meetings) == lanes.LANES


def test_a_bad_ad_among_batches_written_side_by_side_costs_its_row(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    owner_sql("ALTER TABLE ads ADD CONSTRAINT not_that_one CHECK (external_id <> '4400')")
    try:
        upload_id = uploads.finished(report(*many_ads(4500), header=OF_ADS))
    finally:
        owner_sql("ALTER TABLE ads DROP CONSTRAINT not_that_one")
    assert errors_of(services, uploads.show(upload_id)) == [(3400, "row_refused")]
    assert of_ads(owner_sql, upload_id)[3:] == (4499, 4499, 4499)


def test_a_lost_answer_among_batches_of_ads_changes_nothing(services: Services, owner_sql: OwnerSql) -> None:
    for nth in range(1, 12):
        owner_sql("TRUNCATE daily_metrics, ads, ad_sets, campaigns")
        unlucky, db = losing(services, "promote", nth)
        uploads = Uploads(unlucky)
        upload_id = uploads.finished(report(*many_ads(4500), header=OF_ADS), workspace_id=uuid.uuid4())
        written = {"campaigns": 1, "ad_sets": 9, "ads": 4500, "daily_metrics": 4500}
        found = of_ads(owner_sql, upload_id)
        assert found == ("completed", 4500, written, 4500, 4500, 4500), f"transaction {nth}"
        assert db.left <= 0


@pytest.mark.parametrize("row", [1500, 3500])
def test_work_that_is_interrupted_among_batches_written_side_by_side_goes_on(
    row: int, uploads: Uploads, services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_id = uploads.parsed(report(*many_rows(5500)))
    real = production_store.promote_daily_metrics

    def asked_to_stop(conn: Any, claim: Claim, *, after_row: int, last_row: int) -> Any:
        if after_row < row <= last_row:
            raise leases.Interrupted
        return real(conn, claim, after_row=after_row, last_row=last_row)

    with monkeypatch.context() as patched:
        patched.setattr(production_store, "promote_daily_metrics", asked_to_stop)
        assert work.run_next(services, "promote", promote.promote_upload)
    left = uploads.show(upload_id)
    assert (left.status, left.owner_id, left.attempts) == ("promoting", None, 0)
    assert left.promoted_rows == row // 1000 * 1000
    work_off(services)
    assert promoted(owner_sql, upload_id) == whole(5500)
