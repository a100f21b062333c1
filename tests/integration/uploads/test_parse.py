"""Parse: chunks in order, resumed to the row; the threshold; and which ends are told (D6.6 §4.4, §6, §7)."""

from __future__ import annotations

import io
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from app.kernel import errors
from app.uploads import parse, recover, staging_store, work
from app.uploads.claims import Claim
from app.uploads.services import Services
from app.uploads.staging_store import Chunk
from tests.conftest import SetClock, work_off
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.uploads.conftest import GOOD, HEADER, WORKSPACE, Uploads, report
from tests.integration.uploads.test_lost_commits import losing

OwnerSql = Callable[[str], list[Any]]
CHUNKS = 5


def a_long_report() -> bytes:
    """2,300 rows with what a resumed parse could get wrong: names that change, rejects, repeated keys."""
    rows = []
    for number in range(2300):
        campaign, day = number % 23, 1 + number // 23 % 28
        month = 1 + number // (23 * 28)
        name = f"Campaign {campaign}" + (" renamed" if number > 1200 else "")
        spend = "x" if number % 97 == 5 else f"{number}.25"
        rows.append(f"2025-{month:02}-{day:02},{name},{100 + campaign},{number},{number % 7},{spend}")
    rows[2100] = rows[40]  # the same row again, chunks later
    rows[2200] = rows[50].rsplit(",", 1)[0] + ",99999"  # the same key with another number
    return report(*rows)


LONG = a_long_report()


@pytest.fixture
def in_chunks(services: Services) -> Services:
    """The services, with chunks of which the long report needs five."""
    return replace(services, settings=replace(services.settings, staging_chunk_rows=500))


def staged(owner_sql: OwnerSql, upload_id: UUID) -> dict[str, list[Any]]:
    """Everything that parse wrote, without the upload's own id and without times."""
    return {
        "rows": owner_sql(
            "SELECT row_index, entity_type, natural_key_hash, raw_data::text, validation_status,"
            " validation_errors::text, merged_into FROM staging_rows"
            f" WHERE upload_id = '{upload_id}' ORDER BY row_index, entity_type"
        ),
        "entities": owner_sql(
            "SELECT row_index, entity_type, natural_key_hash FROM staging_id_resolution"
            f" WHERE upload_id = '{upload_id}' ORDER BY row_index, entity_type"
        ),
        "upload": owner_sql(
            "SELECT status, total_rows, valid_rows, staged_rows, report::text FROM data_uploads"
            f" WHERE id = '{upload_id}'"
        ),
    }


def undisturbed(services: Services, owner_sql: OwnerSql) -> dict[str, list[Any]]:
    """What one parse in one piece leaves of the long report."""
    found = staged(owner_sql, Uploads(services).parsed(LONG))
    rejected = sum(row[4] == "invalid" for row in found["rows"])
    assert (2300 + 2 * 23, rejected > 20) == (len(found["rows"]), True)
    return found


def resume(services: Services, owner_sql: OwnerSql) -> None:
    owner_sql("UPDATE data_uploads SET lease_expires_at = now() WHERE owner_id IS NOT NULL")
    assert recover.sweep(services) == 1
    assert work.run_next(services, "parse", parse.parse_upload)


def test_rows_are_committed_chunk_by_chunk_in_order(
    uploads: Uploads, in_chunks: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[int, int]] = []
    set_staged = staging_store.set_staged

    def noting(*args: Any, before: int, rows: int, **what: Any) -> None:
        set_staged(*args, before=before, rows=rows, **what)
        ends.append((before, rows))

    monkeypatch.setattr(staging_store, "set_staged", noting)
    Uploads(in_chunks).parsed(LONG)
    assert ends == [(0, 500), (500, 1000), (1000, 1500), (1500, 2000), (2000, 2300)]


def test_two_chunks_are_on_their_way_at_a_time(
    in_chunks: Services, services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    # And the later one is ready first: it is committed second all the same.
    expected = undisturbed(services, owner_sql)
    copy_chunk, second_is_there = staging_store.copy_chunk, threading.Event()

    def late_or_early(conn: Any, claim: Claim, chunk: Chunk) -> None:
        if chunk.first_row == 0:
            assert second_is_there.wait(20)
        copy_chunk(conn, claim, chunk)
        if chunk.first_row == 500:
            second_is_there.set()

    monkeypatch.setattr(staging_store, "copy_chunk", late_or_early)
    assert expected == staged(owner_sql, Uploads(in_chunks).parsed(LONG))


def test_a_chunk_ends_where_its_rows_are_large(
    services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or a chunk of rows with much to say would be kept in memory whole.
    expected = undisturbed(services, owner_sql)
    monkeypatch.setattr(staging_store, "CHUNK_BYTES", 300_000)
    sizes: list[int] = []
    copy_chunk = staging_store.copy_chunk

    def noting(conn: Any, claim: Claim, chunk: Chunk) -> None:
        copy_chunk(conn, claim, chunk)
        sizes.append(len(chunk.content))

    monkeypatch.setattr(staging_store, "copy_chunk", noting)
    assert expected == staged(owner_sql, Uploads(services).parsed(LONG))
    block = 500 * max(sizes) // 2300
    assert len(sizes) > 1
    assert max(sizes) < 300_000 + block * 3


def give_up(owner_sql: OwnerSql) -> None:
    """Every upload on its way has ended, and takes no slot."""
    owner_sql(
        "UPDATE data_uploads SET status = 'failed', error_code = 'x', slot = NULL, owner_id = NULL,"
        " lease_expires_at = NULL, finished_at = now() WHERE finished_at IS NULL"
    )


class Killed(BaseException):
    """The process is gone: nothing runs any more that could clean up."""


@pytest.mark.parametrize("when", ["before its commit", "after its commit"])
def test_a_parse_killed_at_any_chunk_resumes_to_the_row(
    when: str,
    in_chunks: Services,
    services: Services,
    owner_sql: OwnerSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = undisturbed(services, owner_sql)
    before = when == "before its commit"
    module, name = (staging_store, "copy_chunk") if before else (parse.Staging, "_stage")
    real = getattr(module, name)
    for chunk in range(CHUNKS):

        def killed_at_last(*args: Any, chunk: int = chunk) -> None:
            real(*args)
            if args[-1].first_row == 500 * chunk:
                raise Killed

        upload_id = Uploads(in_chunks).pending(LONG)
        with monkeypatch.context() as patched:
            patched.setattr(module, name, killed_at_last)
            with pytest.raises(Killed):
                work.run_next(in_chunks, "parse", parse.parse_upload)
        committed = min(2300, 500 * (chunk + (when == "after its commit")))
        assert owner_sql(
            "SELECT staged_rows, (SELECT count(*)::int FROM staging_rows s WHERE s.upload_id = u.id"
            f" AND entity_type = 'daily_metric') FROM data_uploads u WHERE id = '{upload_id}'"
        ) == [(committed, committed)]
        resume(in_chunks, owner_sql)
        assert staged(owner_sql, upload_id) == expected, f"chunk {chunk}"
        give_up(owner_sql)


def test_a_parse_killed_again_and_again_resumes_every_time(
    in_chunks: Services, services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(services, owner_sql)
    upload_id = Uploads(in_chunks).pending(LONG)
    stage = parse.Staging._stage

    def killed_after(*args: Any) -> None:
        stage(*args)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(parse.Staging, "_stage", killed_after)
        for _ in range(3):
            with pytest.raises(Killed):
                work.run_next(in_chunks, "parse", parse.parse_upload)
            owner_sql("UPDATE data_uploads SET lease_expires_at = now() WHERE owner_id IS NOT NULL")
            recover.sweep(in_chunks)
    assert work.run_next(in_chunks, "parse", parse.parse_upload)
    assert expected == staged(owner_sql, upload_id)


def test_a_resumed_parse_reads_as_the_first_one_did(
    in_chunks: Services, services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What was decided about the file is stored with the first chunk and never decided again.
    upload_id = Uploads(in_chunks).pending(LONG)
    stage = parse.Staging._stage

    def killed_after(*args: Any) -> None:
        stage(*args)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(parse.Staging, "_stage", killed_after)
        with pytest.raises(Killed):
            work.run_next(in_chunks, "parse", parse.parse_upload)

    def decides_again(*_: Any, **__: Any) -> None:
        raise AssertionError("the plan is made a second time")

    monkeypatch.setattr(parse, "make", decides_again)
    resume(in_chunks, owner_sql)
    assert Uploads(services).show(upload_id).status == "staging_complete"


def test_an_answer_lost_while_committing_loses_and_doubles_no_row(
    in_chunks: Services, services: Services, owner_sql: OwnerSql
) -> None:
    expected = undisturbed(services, owner_sql)
    for nth in range(1, 7):  # five chunks, and the end
        unlucky, db = losing(in_chunks, "parse", nth)
        # This clock stands still: what is a future date must not change by it.
        unlucky = replace(unlucky, clock=SetClock(time=services.clock.now()))
        upload_id = Uploads(unlucky).parsed(LONG)
        assert db.left <= 0
        assert staged(owner_sql, upload_id) == expected, f"transaction {nth}"
        give_up(owner_sql)


def test_a_connection_that_breaks_while_copying_loses_and_doubles_no_row(
    in_chunks: Services, services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(services, owner_sql)
    for last in range(1, 5):
        clock = SetClock(time=services.clock.now())
        reads: list[int] = []

        class Breaking(io.BytesIO):
            def read(self, *size: Any, reads: list[int] = reads, last: int = last) -> bytes:
                reads.append(1)
                if len(reads) == last:
                    owner_sql(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE query LIKE 'COPY%' AND datname = current_database()"
                    )
                return super().read(*size)

        upload_id = Uploads(in_chunks).pending(LONG)
        with monkeypatch.context() as patched:
            patched.setattr(staging_store, "io", SimpleNamespace(BytesIO=Breaking))
            assert work.run_next(replace(in_chunks, clock=clock), "parse", parse.parse_upload)
        assert set(clock.slept) == {1.0}  # both of those on their way may have been struck
        assert staged(owner_sql, upload_id) == expected, f"read {last}"
        give_up(owner_sql)


# -- repeated keys


def twice(count: int) -> bytes:
    """So many keys that stand once, and half as many that stand twice."""
    rows = [f"2025-05-{1 + n % 28:02},Campaign {n // 28},{100 + n // 28},{n},1,1.50" for n in range(count)]
    return report(*rows, *rows[: count // 2])


def rows_looked_at(node: dict[str, Any]) -> int:
    """By all steps of a plan that was carried out, also for nothing."""
    own = sum(
        node.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
    )
    return int(own * node["Actual Loops"]) + sum(map(rows_looked_at, node.get("Plans", ())))


@pytest.mark.parametrize("planner", ["knows nothing of the day", "knows the day without this upload"])
def test_only_rows_of_repeated_keys_are_looked_at_to_settle_them(
    planner: str, uploads: Uploads, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A join of what is settled with what is staged was one of each with each, or read all of the upload's.
    if planner != "knows nothing of the day":
        uploads.finished(twice(20_000))
        owner_sql("ANALYZE staging_rows")
    looked_at: list[int] = []
    real = staging_store._sql.settle_rows

    def explained(conn: Any, **given: Any) -> None:
        with conn.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {real.sql}", given)
            looked_at.append(rows_looked_at(cursor.fetchone()[0][0]["Plan"]))

    monkeypatch.setattr(staging_store._sql, "settle_rows", explained)
    upload_id = uploads.finished(twice(8_000))
    [rows] = owner_sql(f"SELECT total_rows, valid_rows FROM data_uploads WHERE id = '{upload_id}'")
    assert rows == (12_000, 12_000)
    assert owner_sql(f"SELECT count(merged_into) FROM staging_rows WHERE upload_id = '{upload_id}'") == [
        (4_000,)
    ]
    assert len(looked_at) == 1 and looked_at[0] < 4 * 8_000


# -- the threshold


def rows_with_bad(count: int, bad: int) -> bytes:
    return report(
        *[
            f"2025-05-{1 + number % 28:02},Campaign {number // 28},{100 + number // 28},"
            f"{'x' if number < bad else number},1,1.50"
            for number in range(count)
        ]
    )


THRESHOLD = [
    # rows, bad, force_partial → status, code, promoted rows
    (10, 0, False, "completed", None, 10),
    (10, 1, False, "completed", None, 9),  # exactly 90 % passes
    (10, 2, False, "failed", "too_many_rejects", 0),
    (100, 10, False, "completed", None, 90),
    (100, 11, False, "failed", "too_many_rejects", 0),
    (1, 1, False, "failed", "too_many_rejects", 0),
    (10, 2, True, "completed", None, 8),
    (10, 9, True, "completed", None, 1),
    (10, 10, True, "failed", "too_many_rejects", 0),  # not one row is valid: force_partial cannot help
]


@pytest.mark.parametrize(("count", "bad", "force", "status", "code", "promoted"), THRESHOLD)
def test_enough_valid_rows_go_on_to_promotion(
    count: int,
    bad: int,
    force: bool,
    status: str,
    code: str | None,
    promoted: int,
    uploads: Uploads,
    owner_sql: OwnerSql,
) -> None:
    upload = uploads.show(uploads.finished(rows_with_bad(count, bad), force_partial=force))
    assert (status, code, promoted) == (upload.status, upload.error_code, upload.promoted_rows)
    assert (count, count - bad) == (upload.total_rows, upload.valid_rows)
    assert [(promoted,)] == owner_sql("SELECT count(*) FROM daily_metrics")


def test_a_report_below_the_threshold_keeps_its_rejects_for_its_reader(
    uploads: Uploads, services: Services
) -> None:
    upload = uploads.show(uploads.finished(rows_with_bad(10, 3)))
    assert "7" not in (upload.error_text or "") and "3 of 10" in upload.error_text
    assert upload.report["reject_codes"] == {"invalid_number": 3}
    moves = [(entry.from_status, entry.to_status) for entry in uploads.history(upload.id)]
    assert moves == [
        (None, "pending"),
        ("pending", "processing"),
        ("processing", "staging_complete"),
        ("staging_complete", "failed"),
    ]


# -- which ends are told


UNREADABLE = b"Nothing,that,is known\n1,2,3\n"
ENDS = [
    # what happens              report                   status       told as
    ("all rows are promoted", GOOD, "completed", "completed"),
    ("some fail promotion", "ambiguous", "partial", "partial"),
    ("all are invalid", rows_with_bad(3, 3), "failed", None),
    ("too many are invalid", rows_with_bad(10, 5), "failed", None),
    ("all fail promotion", "all ambiguous", "failed", None),
    ("the file is no report", UNREADABLE, "failed", None),
    ("the report is empty", f"{HEADER}\n".encode(), "completed", None),
]


@pytest.mark.parametrize(("what", "content", "status", "told"), ENDS, ids=[end[0] for end in ENDS])
def test_an_end_is_told_if_and_only_if_rows_were_promoted(
    what: str,
    content: bytes | str,
    status: str,
    told: str | None,
    uploads: Uploads,
    owner_sql: OwnerSql,
) -> None:
    if isinstance(content, str):
        uploads.finished(report("2025-05-01,Spring,101,1,1,1.50", "2025-05-01,Spring,102,2,1,1.50"))
        lines = ["2025-05-02,Spring,9,1.50", "2025-05-02,Summer,8,1.50"]
        count = 1 if content == "all ambiguous" else 2
        content = report(*lines[:count], header="Day,Campaign name,Impressions,Amount spent (USD)")
    upload = uploads.show(uploads.finished(content))
    found = owner_sql(f"SELECT payload FROM outbox WHERE key = '{upload.id}'")
    assert (status, told is not None) == (upload.status, upload.event_emitted)
    assert ([told] if told else []) == [payload["status"] for (payload,) in found]


def test_an_empty_report_is_completed_without_rows(uploads: Uploads) -> None:
    upload = uploads.show(uploads.finished(f"{HEADER}\n".encode()))
    assert (
        upload.status,
        upload.error_code,
        upload.row_count,
        upload.total_rows,
    ) == ("completed", None, 0, 0)


def test_the_event_says_exactly_what_was_done(uploads: Uploads, owner_sql: OwnerSql) -> None:
    client_id = uuid.uuid4()
    upload_id = uploads.finished(GOOD, client_id=client_id)
    (payload,) = owner_sql("SELECT payload FROM outbox")[0]
    assert payload.pop("timestamp")
    assert {
        "upload_id": str(upload_id),
        "workspace_id": str(WORKSPACE),
        "client_id": str(client_id),
        "platform": "meta",
        "status": "completed",
        "metrics": {
            "total_rows": 3,
            "promoted_rows": 3,
            "failed_rows": 0,
            "campaigns_upserted": 2,
            "ad_sets_upserted": 0,
            "ads_upserted": 0,
            "daily_metrics_upserted": 3,
        },
        "affected_dates": ["2025-05-01", "2025-05-02"],
    } == payload


def test_rows_that_were_rejected_by_parse_are_no_failed_rows(uploads: Uploads, owner_sql: OwnerSql) -> None:
    uploads.finished(rows_with_bad(10, 1))
    (payload,) = owner_sql("SELECT payload FROM outbox")[0]
    counts = payload["metrics"]
    assert (payload["status"], counts["total_rows"], counts["promoted_rows"]) == ("completed", 10, 9)


def test_no_second_worker_helps_with_an_upload(uploads: Uploads, services: Services) -> None:
    uploads.pending()
    seen: list[bool] = []

    def meanwhile(inner: Services, claim: Any, lease: Any) -> None:
        seen.append(work.run_next(inner, "parse", parse.parse_upload))
        parse.parse_upload(inner, claim, lease)

    assert work.run_next(services, "parse", meanwhile)
    work_off(services)
    assert seen == [False]


@pytest.mark.parametrize("breaks", [False, True], ids=["goes on", "is cut off"])
@pytest.mark.parametrize("last", [1500, 2000, 2300])
def test_a_chunk_that_a_crash_takes_back_is_staged_again(
    last: int,
    breaks: bool,
    in_chunks: Services,
    services: Services,
    owner_sql: OwnerSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No commit of a parse is waited for until the disk has it: what follows one that is gone is refused.
    expected = undisturbed(services, owner_sql)
    upload_id = Uploads(in_chunks).pending(LONG)
    set_staged, taken_back = staging_store.set_staged, []

    def crashing(*args: Any, rows: int, **what: Any) -> None:
        if rows == last and not taken_back:
            taken_back.append(last)
            gone = f"WHERE upload_id = '{upload_id}' AND row_index >= {last // 2}"
            owner_sql(f"DELETE FROM staging_rows {gone}")
            owner_sql(f"DELETE FROM staging_id_resolution {gone}")
            owner_sql(f"UPDATE data_uploads SET staged_rows = {last // 2} WHERE id = '{upload_id}'")
            if breaks:
                raise errors.ConnectionLost
        set_staged(*args, rows=rows, **what)

    with monkeypatch.context() as patched:
        patched.setattr(staging_store, "set_staged", crashing)
        unlucky = replace(in_chunks, clock=SetClock(time=services.clock.now()))
        assert work.run_next(unlucky, "parse", parse.parse_upload)
    assert taken_back == [last]
    resume(in_chunks, owner_sql)
    assert staged(owner_sql, upload_id) == expected
