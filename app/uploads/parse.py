"""Parse: from a stored file to validated staging rows (D6.6 §8, ParseWorker)."""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO

from app.adapters import metrics, retries
from app.adapters.database import Connection
from app.uploads import ended, lanes, staging_store, store, verdict
from app.uploads.claims import Claim
from app.uploads.lanes import Turn
from app.uploads.leases import Lease
from app.uploads.reading import duplicates, formats
from app.uploads.reading.entities import Staged
from app.uploads.reading.plan import Declared, Plan, make
from app.uploads.reading.records import BLOCK_RECORDS
from app.uploads.reading.rows import Rows
from app.uploads.services import Services
from app.uploads.staging_store import Chunk, Supply
from app.uploads.work import TASKS


def parse_upload(services: Services, claim: Claim, lease: Lease) -> None:
    """Every row of the file is staged, and the upload is staging_complete or failed."""
    with _uncollected():
        _stage_file(services, claim, lease)
    services.dispatch.send(TASKS["promote"])


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nobody looks for cycles of objects: a reading makes none, of much that it keeps in mind."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _stage_file(services: Services, claim: Claim, lease: Lease) -> None:
    with services.blobs.open(claim.file_url) as stored, _unpacked(services, stored) as file:
        plan = _plan(claim, file)
        scope = [
            str(claim.workspace_id), str(claim.client_id) if claim.client_id else None, claim.platform
        ]  # fmt: skip
        rows = Rows(plan, scope=scope, today=services.clock.now().date())
        Staging(services, claim, plan, rows, file).run(lease)


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
        self._copy_seconds = 2 * services.settings.lease_seconds  # who takes longer has lost the lease
        self._rejects: Sequence[verdict.Reject] = ()
        self._refused: str | None = None  # the code of a file that was refused when all was read

    def run(self, lease: Lease) -> None:
        """Every row is committed, in chunks and in order, after those of an earlier attempt (D6.6 §6.4)."""
        chunks = self._chunks(lease)
        first = next(chunks, None)
        if first is not None and first.first_row == 0 and first.is_last:
            self._call(functools.partial(self._stage_all, first))
        else:
            if first is not None:
                self.stage_side_by_side(itertools.chain([first], chunks))
            self._call(self._stage_end)
        self._count()

    def _chunks(self, lease: Lease) -> Iterator[Chunk]:
        """The rows that are not staged yet; those before are read again, for totals and entities."""
        limit = self._services.settings.staging_chunk_rows
        read = self._rows.read(self._file, at_once=min(limit, BLOCK_RECORDS))
        rest = Supply(_beginning_at(self._staged, read))
        for chunk in staging_store.chunks(self._claim, rest, limit=limit):
            lease.check()
            yield chunk

    def _stage_all(self, chunk: Chunk) -> None:
        """The only chunk is committed, and the end with it."""
        with self._transaction(timeout_seconds=self._copy_seconds) as conn:
            # Lost when it was tried before, and only the answer to its commit did not come.
            staging_store.staged_rows(conn, self._claim)
            staging_store.ensure_staging_day(conn, self._claim)
            staging_store.copy_chunk(conn, self._claim, chunk)
            self._finish(conn, chunk.end)
        metrics.rows_staged.inc(chunk.end)

    def stage_side_by_side(self, chunks: Iterable[Chunk]) -> None:
        """The chunks are committed in file order: while one is made, another is on its way."""
        if self._staged == 0:
            self._call(self._ensure_staging_day)
        turn = Turn(self._staged)
        try:
            lanes.side_by_side(chunks, functools.partial(self._stage_at_turn, turn), turn)
        finally:
            self._staged = turn.reached

    def _ensure_staging_day(self) -> None:
        with self._transaction() as conn:
            staging_store.ensure_staging_day(conn, self._claim)

    def _stage_at_turn(self, turn: Turn[int], chunk: Chunk) -> int:
        self._call(functools.partial(self._stage, turn, chunk))
        metrics.rows_staged.inc(chunk.end - chunk.first_row)
        return chunk.end

    def _stage(self, turn: Turn[int], chunk: Chunk) -> None:
        claim = self._claim
        with self._transaction(timeout_seconds=self._copy_seconds) as conn:
            if staging_store.staged_rows(conn, claim) >= chunk.end:
                return  # it was tried before, and only the answer to its commit was lost
            staging_store.copy_chunk(conn, claim, chunk)
            turn.wait_for(chunk.first_row)
            report = {"plan": self._plan.as_json()} if chunk.first_row == 0 else {}
            staging_store.set_staged(conn, claim, before=chunk.first_row, rows=chunk.end, report=report)

    def _stage_end(self) -> None:
        with self._transaction() as conn:
            self._finish(conn, self._staged)

    def _call(self, stage: Callable[[], None]) -> None:
        retries.call(stage, self._services.clock)

    def _transaction(self, *, timeout_seconds: float | None = None) -> AbstractContextManager[Connection]:
        # Not waited for until the disk has it. Each chunk follows the one before, so that one which a crash
        # takes back is missed; and the file is stored.
        return self._services.db.transaction(
            "parse", self._claim.workspace_id, timeout_seconds=timeout_seconds, durable=False
        )

    def _finish(self, conn: Connection, staged_rows: int) -> None:
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
            before=self._staged,
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
