"""Parse: from a stored file to validated staging rows (D6.6 §8, ParseWorker)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, BinaryIO

from app.adapters import metrics, retries
from app.uploads import staging_store, store, verdict
from app.uploads.claims import Claim
from app.uploads.leases import Lease
from app.uploads.reading import duplicates, formats
from app.uploads.reading.entities import Staged
from app.uploads.reading.plan import Declared, Plan, make
from app.uploads.reading.rows import Rows, Tally
from app.uploads.services import Services
from app.uploads.staging_store import ChunkFeed
from app.uploads.work import TASKS


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
    declared = Declared(claim.currency, claim.date_order, claim.decimal_mark)
    plan = make(file, platform=claim.platform, declared=declared)

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
    # Whoever takes longer has lost the lease; where the server waits for the rest of a COPY, it is the
    # sweep that ends it.
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
        rows = verdict.row_counts(tally, outcome, rejects)
        report = verdict.report(plan, tally, outcome=outcome, rejects=rejects, rows=rows)
        store.finish_staging(conn, claim, total_rows=rows["data"], valid_rows=rows["valid"], report=report)
        if not verdict.passes(rows, force_partial=claim.force_partial):
            code, sentence = verdict.refusal(plan, rows, rejects)
            store.fail_upload(
                conn,
                workspace_id=claim.workspace_id,
                upload_id=claim.upload_id,
                claim_epoch=claim.claim_epoch,
                code=code,
                sentence=sentence,
            )


def _settle_repeated_keys(conn: Any, claim: Claim, plan: Plan, file: BinaryIO) -> verdict.Outcome:
    outcome = verdict.Outcome()
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
    staging_store.reject_rows(conn, claim, verdict.explained(rejected, plan, file))
    return outcome
