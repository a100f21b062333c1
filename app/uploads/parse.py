"""Parse: from a stored file to validated staging rows (D6.6 §8, ParseWorker)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

from app.adapters import metrics, retries
from app.adapters.database import Connection
from app.uploads import ended, staging_store, store, verdict
from app.uploads.claims import Claim
from app.uploads.leases import Lease
from app.uploads.reading import duplicates, formats
from app.uploads.reading.entities import Staged
from app.uploads.reading.plan import Declared, Plan, make
from app.uploads.reading.records import BLOCK_RECORDS
from app.uploads.reading.rows import Rows
from app.uploads.services import Services
from app.uploads.staging_store import ChunkFeed, Supply
from app.uploads.work import TASKS


def parse_upload(services: Services, claim: Claim, lease: Lease) -> None:
    """Every row of the file is staged, and the upload is staging_complete or failed."""
    with services.blobs.open(claim.file_url) as stored, _unpacked(services, stored) as file:
        plan = _plan(claim, file)
        scope = [
            str(claim.workspace_id), str(claim.client_id) if claim.client_id else None, claim.platform
        ]  # fmt: skip
        rows = Rows(plan, scope=scope, today=services.clock.now().date())
        Staging(services, claim, plan, rows, file).run(lease)
    services.dispatch.send(TASKS["promote"])


def _unpacked(services: Services, stored: BinaryIO) -> Any:
    return formats.unpacked(stored, max_bytes=services.settings.unpacked_bytes)


def _plan(claim: Claim, file: BinaryIO) -> Plan:
    """The stored plan of a parse that is resumed, or a new one."""
    if stored := claim.report.get("plan"):
        return Plan.from_json(stored)
    declared = Declared(claim.currency, claim.date_order, claim.decimal_mark)
    return make(file, platform=claim.platform, declared=declared)


class Staging:
    """One file on its way into staging."""

    def __init__(self, services: Services, claim: Claim, plan: Plan, rows: Rows, file: BinaryIO) -> None:
        self._services, self._claim = services, claim
        self._plan, self._rows, self._file = plan, rows, file
        self._staged = claim.staged_rows
        self._rejects: Sequence[verdict.Reject] = ()
        self._refused: str | None = None  # the code of a file that was refused when all was read

    def run(self, lease: Lease) -> None:
        """Every row is committed, in chunks and in order, after those of an earlier attempt (D6.6 §6.4)."""
        limit = self._services.settings.staging_chunk_rows
        staged = self._rows.read(self._file, at_once=min(limit, BLOCK_RECORDS))
        # The rows before are read again, since totals and entities are known from all of them.
        rest = Supply(_beginning_at(self._staged, staged))
        finished = exhausted = False
        while not exhausted:
            lease.check()
            feed = ChunkFeed(self._claim, rest, limit=limit)
            finished = retries.call(lambda: self._commit(feed), self._services.clock)  # noqa: B023
            self._staged += feed.source_rows
            metrics.rows_staged.inc(feed.source_rows)
            exhausted = feed.exhausted
        if not finished:
            retries.call(self._commit_end, self._services.clock)
        self._count()

    def _commit(self, feed: ChunkFeed) -> bool:
        """The chunk is committed; True when it is the whole file, and the end is committed with it."""
        # Whoever takes longer has lost the lease; where the server waits for the rest of a COPY, it is
        # the sweep that ends it.
        seconds = 2 * self._services.settings.lease_seconds
        with self._transaction(timeout_seconds=seconds) as conn:
            if feed.empty:
                before = self._staged
            else:  # it was tried before: when the connection broke while committing, it may be there already
                before = staging_store.staged_rows(conn, self._claim)
                if feed.last_row < before:
                    return False
                if before != self._staged:  # a crash took back the chunk before
                    raise self._claim.lost
            if before == 0:
                staging_store.ensure_staging_day(conn, self._claim)
            staging_store.copy_chunk(conn, self._claim, feed)
            rows = max(before, feed.last_row + 1)
            whole = feed.exhausted and before == 0
            if whole:
                self._finish(conn, before, rows)
            else:
                report = {"plan": self._plan.as_json()} if before == 0 else {}
                staging_store.set_staged(conn, self._claim, before=before, rows=rows, report=report)
            return whole

    def _commit_end(self) -> None:
        with self._transaction() as conn:
            self._finish(conn, self._staged, self._staged)

    def _transaction(self, *, timeout_seconds: float | None = None) -> AbstractContextManager[Connection]:
        # Not waited for until the disk has it. Each chunk follows the one before, so that one which a crash
        # takes back is missed; and the file is stored.
        return self._services.db.transaction(
            "parse", self._claim.workspace_id, timeout_seconds=timeout_seconds, durable=False
        )

    def _finish(self, conn: Connection, before: int, staged_rows: int) -> None:
        """What only shows when all rows are there."""
        claim, plan, tally = self._claim, self._plan, self._rows.tally
        outcome = self._settle_repeated_keys(conn)
        some = tally.rejected or outcome.rejected
        rejects = staging_store.count_rejects(conn, claim) if some else []
        self._rejects, self._refused = rejects, None
        rows = verdict.row_counts(tally, outcome, rejects)
        report = verdict.report(plan, tally, outcome=outcome, rejects=rejects, rows=rows)
        store.finish_staging(
            conn,
            claim,
            before=before,
            staged_rows=staged_rows,
            total_rows=rows["data"],
            valid_rows=rows["valid"],
            report={"plan": plan.as_json(), **report},
        )
        if not verdict.passes(rows, force_partial=claim.force_partial):
            self._refused, sentence = verdict.refusal(plan, rows, rejects)
            store.fail_upload(
                conn,
                workspace_id=claim.workspace_id,
                upload_id=claim.upload_id,
                claim_epoch=claim.claim_epoch,
                code=self._refused,
                sentence=sentence,
            )

    def _count(self) -> None:
        """What was refused is in the metrics, now that it is committed."""
        for reject in self._rejects:
            metrics.rows_rejected.labels(reject.code).inc(reject.rows)
        if self._refused is not None:
            created_at = self._claim.created_at
            ended.count(self._services.clock, "failed", created_at=created_at, code=self._refused)

    def _settle_repeated_keys(self, conn: Connection) -> verdict.Outcome:
        outcome = verdict.Outcome()
        into: dict[int, int] = {}
        said: dict[int, dict[str, Any]] = {}
        rejected: dict[int, tuple[str, int, int]] = {}
        for key_rows in staging_store.repeated_keys(conn, self._claim, self._rows.repeats.keys):
            settlement = duplicates.settle(key_rows)
            outcome.add(key_rows, settlement)
            into |= settlement.merged | settlement.identical
            said |= settlement.carriers
            lines = {row.row_index: row.line for row in key_rows}
            for row_index, (code, other) in settlement.rejected.items():
                rejected[row_index] = (code, other, lines[row_index])
        staging_store.drop_subtotals(conn, self._claim, outcome.subtotals)
        why = verdict.explained(rejected, self._plan, self._file)
        staging_store.settle_rows(conn, self._claim, merged_into=into, said=said, errors_of=why)
        return outcome


def _beginning_at(row_index: int, staged: Iterator[list[Staged]]) -> Iterator[list[Staged]]:
    """What is staged of this source row and those after it."""
    for rows in staged:
        if rows[0].row_index >= row_index:
            yield rows
        elif rows[-1].row_index >= row_index:
            yield [row for row in rows if row.row_index >= row_index]
