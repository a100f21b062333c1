"""Parse: from a stored file to validated staging rows (D6.6 §8, ParseWorker)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO

from app.adapters import metrics, retries
from app.uploads import staging_store, store
from app.uploads.codes import WARNINGS, file_sentence
from app.uploads.leases import Lease
from app.uploads.reading import duplicates, formats
from app.uploads.reading.cells import Problem
from app.uploads.reading.duplicates import KeyRow, Settlement
from app.uploads.reading.entities import Staged
from app.uploads.reading.plan import Plan, make
from app.uploads.reading.rows import Rows, Tally, rejection
from app.uploads.services import Services
from app.uploads.staging_store import ChunkFeed
from app.uploads.states import VALID_PERCENT
from app.uploads.store import Claim
from app.uploads.work import TASKS

TOTAL_TOLERANCE = Decimal("0.005")
"""By how much, for each row, a file's total may differ from its rows: platforms round both."""


def parse_upload(services: Services, claim: Claim, lease: Lease) -> None:
    """Every row of the file is staged, and the upload is staging_complete or failed."""
    with services.blobs.open(claim.file_url) as stored, _unpacked(services, stored) as file:
        plan = _plan(services, claim, file)
        rows = Rows(
            plan,
            scope=[
                str(claim.workspace_id),
                str(claim.client_id) if claim.client_id else None,
                claim.platform,
            ],
            today=services.clock.now().date(),
        )
        _stage(services, claim, lease, rows.read(file))
        retries.call(lambda: _finish(services, claim, plan, rows.tally, file), services.clock)
    services.dispatch.send(TASKS["promote"])


def _unpacked(services: Services, stored: BinaryIO) -> Any:
    return formats.unpacked(stored, max_bytes=services.settings.unpacked_bytes)


def _plan(services: Services, claim: Claim, file: BinaryIO) -> Plan:
    """The stored plan of a parse that is resumed, or a new one, which is stored."""
    if stored := claim.report.get("plan"):
        return Plan.from_json(stored)
    plan = make(file, platform=claim.platform, declared_currency=claim.currency)

    def keep() -> None:
        with services.db.transaction("parse", claim.workspace_id) as conn:
            staging_store.ensure_staging_day(conn, claim)
            staging_store.set_report(conn, claim, {"plan": plan.as_json()})

    retries.call(keep, services.clock)
    return plan


# -- staging


def _stage(services: Services, claim: Claim, lease: Lease, rows: Iterator[list[Staged]]) -> None:
    """Every row is committed, in chunks and in order, after those of an earlier attempt."""
    done = retries.call(lambda: _staged_before(services, claim), services.clock)
    # The rows before are read again, since totals and entities are known from all of them.
    rest = itertools.dropwhile(lambda staged: staged[-1].row_index < done, rows)
    while True:
        lease.check()
        feed = ChunkFeed(claim, rest, limit=services.settings.staging_chunk_rows)
        retries.call(lambda: _commit_chunk(services, claim, feed), services.clock)  # noqa: B023
        if feed.exhausted:
            return


def _staged_before(services: Services, claim: Claim) -> int:
    with services.db.transaction("parse", claim.workspace_id) as conn:
        staging_store.ensure_staging_day(conn, claim)
        return staging_store.last_staged_row(conn, claim) + 1


def _commit_chunk(services: Services, claim: Claim, feed: ChunkFeed) -> None:
    # A COPY waits for its client: one that froze must not keep the rows from the next owner.
    seconds = 2 * services.settings.lease_seconds
    with services.db.transaction("parse", claim.workspace_id, timeout_seconds=seconds) as conn:
        # When the connection broke while committing, the chunk may be there already.
        if 0 <= feed.last_row < staging_store.staged_rows(conn, claim):
            return
        staging_store.copy_chunk(conn, claim, feed)
    metrics.rows_staged.inc(feed.last_row - feed.first_row + 1)


# -- the end: what only shows when all rows are there


def _finish(services: Services, claim: Claim, plan: Plan, tally: Tally, file: BinaryIO) -> None:
    with services.db.transaction("parse", claim.workspace_id) as conn:
        outcome = _settle_repeated_keys(conn, claim, plan, file)
        rejects = staging_store.count_rejects(conn, claim)
        rows = _row_counts(tally, outcome, rejects)
        report = _report(plan, tally, outcome, rejects, rows)
        store.finish_staging(conn, claim, total_rows=rows["data"], valid_rows=rows["valid"], report=report)
        if not passes(rows, force_partial=claim.force_partial):
            code, sentence = _refusal(plan, rows, rejects)
            store.fail_upload(
                conn,
                workspace_id=claim.workspace_id,
                upload_id=claim.upload_id,
                claim_epoch=claim.claim_epoch,
                code=code,
                sentence=sentence,
            )


def passes(rows: dict[str, int], *, force_partial: bool) -> bool:
    """Whether enough rows are valid to promote them (D6.6 §4.4); an empty report passes."""
    if rows["data"] == 0:
        return True
    if rows["valid"] == 0:
        return False
    return force_partial or rows["valid"] * 100 >= rows["data"] * VALID_PERCENT


class _Outcome:
    """What became of the rows whose key stands more than once."""

    def __init__(self) -> None:
        self.merged = self.identical = 0
        self.subtotal_spend = Decimal(0)
        self.subtotals: list[int] = []
        self.warnings: set[str] = set()

    def add(self, key_rows: list[KeyRow], settlement: Settlement) -> None:
        for row in key_rows:
            if row.row_index in settlement.subtotals:
                self.subtotal_spend += row.raw.get("spend") or 0
        self.merged += len(settlement.merged)
        self.identical += len(settlement.identical)
        self.subtotals += settlement.subtotals
        if settlement.warning:
            self.warnings.add(settlement.warning)


def _settle_repeated_keys(conn: Any, claim: Claim, plan: Plan, file: BinaryIO) -> _Outcome:
    outcome = _Outcome()
    into: dict[int, int] = {}
    leaders: dict[int, dict[str, Any]] = {}
    rejected: dict[int, tuple[str, int, int]] = {}
    for key_rows in staging_store.repeated_keys(conn, claim):
        settlement = duplicates.settle(key_rows)
        outcome.add(key_rows, settlement)
        into |= settlement.merged | settlement.identical
        leaders |= settlement.carriers(key_rows)
        lines = {row.row_index: row.line for row in key_rows}
        for row_index, (code, other) in settlement.rejected.items():
            rejected[row_index] = (code, other, lines[row_index])
    staging_store.drop_subtotals(conn, claim, outcome.subtotals)
    staging_store.mark_merged(conn, claim, into)
    staging_store.set_merged_values(conn, claim, leaders)
    staging_store.reject_rows(conn, claim, _explained(rejected, plan, file))
    return outcome


def _explained(rejected: dict[int, tuple[str, int, int]], plan: Plan, file: BinaryIO) -> dict[int, str]:
    """validation_errors of rows that are refused for another one's sake, with their cells."""
    if not rejected:
        return {}
    cells = _cells_of(plan, file, {line for _, _, line in rejected.values()})
    return {
        row_index: rejection(line, cells.get(line, []), [Problem(code, _place(other))])
        for row_index, (code, other, line) in rejected.items()
    }


def _place(line: int) -> str:
    return f"line {line}" if line > 0 else f"row {-line}"


def _cells_of(plan: Plan, file: BinaryIO, lines: set[int]) -> dict[int, list[str]]:
    return {line: row for line, row in plan.records(file) if line in lines and isinstance(row, list)}


# -- what is told about the file


def _row_counts(tally: Tally, outcome: _Outcome, rejects: list[Any]) -> dict[str, int]:
    data = tally.data - len(outcome.subtotals)
    rejected = sum(reject.rows for reject in rejects)
    return {
        "data": data,
        "valid": data - rejected,
        "rejected": rejected,
        "totals_skipped": tally.totals_skipped + len(outcome.subtotals),
        "merged": outcome.merged,
        "duplicates_identical": outcome.identical,
    }


def _report(
    plan: Plan, tally: Tally, outcome: _Outcome, rejects: list[Any], rows: dict[str, int]
) -> dict[str, Any]:
    row_sum = tally.spend - outcome.subtotal_spend
    check = _totals_check(plan, tally.file_total, row_sum, rows["data"])
    warnings = {*plan.warnings, *tally.warnings, *outcome.warnings}
    if check and not check["matches"]:
        warnings.add("totals_mismatch")
    first = rejects[0] if rejects else None
    return {
        "rows": rows,
        "totals_check": check,
        "warnings": sorted(warnings & WARNINGS.keys()),
        "reject_codes": {reject.code: reject.rows for reject in rejects},
        "first_reject": {"line": first.first_line, "code": first.code} if first else None,
    }


def _totals_check(
    plan: Plan, file_total: Decimal | None, row_sum: Decimal, data_rows: int
) -> dict[str, Any] | None:
    """The file's own total against its rows; None where it has none, or several currencies."""
    if file_total is None or len(plan.currency_found) > 1:
        return None
    difference = abs(file_total - row_sum)
    return {
        "file_total": _amount(file_total),
        "row_sum": _amount(row_sum),
        "matches": difference <= TOTAL_TOLERANCE * data_rows,
    }


def _amount(value: Decimal) -> str:
    return format(value.normalize() + 0, "f")


def _refusal(plan: Plan, rows: dict[str, int], rejects: list[Any]) -> tuple[str, str]:
    if [reject.code for reject in rejects] == ["date_range"] and rows["valid"] == 0:
        covered = plan.preamble[-1] if plan.preamble else "a whole period"
        advice = _DAILY_ADVICE[plan.platform]
        return "date_range", file_sentence("date_range", range=covered, advice=advice)
    sentence = file_sentence(
        "too_many_rejects", rejected=rows["rejected"], data=rows["data"], percent=VALID_PERCENT
    )
    return "too_many_rejects", sentence


_DAILY_ADVICE = {
    "meta": "in Ads Manager: Breakdown, By time, Day",
    "google": "in Google Ads: add the segment Time, Day",
    "tiktok": "in TikTok Ads Manager: add the dimension By Day",
}
