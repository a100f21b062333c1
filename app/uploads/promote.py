"""Promotion: from staging to the production tables, in batches, each once (D6.6 §8, PromotionWorker).

How far it has come stands with the upload, and each batch moves that on from where the batch began. One
that finds it elsewhere, after a commit whose answer was lost or that a crash took back, is undone, and
the promotion goes on from there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.adapters import logs, metrics, retries
from app.adapters.database import Connection
from app.kernel import errors, retry
from app.kernel.retry import Final
from app.uploads import batches, ended, events, lanes, production_store, store, work
from app.uploads.batches import NONE_LEFT, Batch, SideBySide
from app.uploads.claims import Claim
from app.uploads.lanes import Turn
from app.uploads.leases import Lease
from app.uploads.production_store import Counts, Displaced, Reached
from app.uploads.services import Services
from app.uploads.states import PROMOTION_BATCH_ROWS
from app.uploads.webhooks import deliver

log = logs.get(__name__)

PLACE_SECONDS = 0.03
"""So much later a place that is free among a workspace's active uploads may be told of."""

EVENT_SECONDS = 0.25
"""So much later the events of uploads that end one after the other may be published."""

Write = Callable[[Connection, Claim, Batch], Counts]


def promote_upload(services: Services, claim: Claim, lease: Lease) -> None:
    """Every valid row is in production or explained, and the upload is completed or partial."""
    promotion = Promotion(services, claim, lease)
    while promotion.end is None:
        lease.check()
        promotion.go_on()
    services.dispatch.send("uploads.relay", within=EVENT_SECONDS)
    if promotion.end.webhooks:
        services.dispatch.send(deliver.TASK)
    if promotion.end.others_wait:
        services.dispatch.send(work.TASKS["parse"], within=PLACE_SECONDS)


@dataclass(frozen=True, slots=True)
class End:
    """How the upload ended, how many webhooks tell of it, and whether its place is wanted."""

    status: str
    webhooks: int
    others_wait: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """What a transaction came to: where the upload stands, and the upload's end when nothing is left.

    `next` are the batches that may be written next, several at a time.
    """

    reached: Reached
    promoted: int = 0
    end: End | None = None
    next: SideBySide = NONE_LEFT


class _Refused(Exception):
    """Something of what was to be written at once came to nothing: it is to be tried by itself.

    `at` is how far the promotion had come before it, `error` what the database said.
    """

    def __init__(self, at: Reached, error: errors.HeadworksError) -> None:
        super().__init__(at, error)
        self.at, self.error = at, error


class Promotion:
    """One promotion of one upload; `end` is there when it has come to its end."""

    def __init__(self, services: Services, claim: Claim, lease: Lease) -> None:
        self._services, self._claim, self._lease = services, claim, lease
        self._last = Committed(Reached(claim.promoting_type, claim.promoting_row))

    @property
    def end(self) -> End | None:
        return self._last.end

    def go_on(self) -> None:
        """The next batches are committed, each once."""
        try:
            if len(self._last.next.begins) > lanes.LANES:
                self._write_side_by_side(self._last.next)
            else:
                self._write_together()
        except Displaced as elsewhere:
            self._last = Committed(elsewhere.reached)

    def _write_together(self) -> None:
        """Small batches are committed as one, with the end of the upload when nothing is left."""
        try:
            self._last = self._call(self._last.reached, batches.write, rows=PROMOTION_BATCH_ROWS)
        except _Refused as refused:
            while self._last.reached != refused.at:
                self._last = self._write_alone(self._last.reached)
            self._last = self._write_alone(self._last.reached, failed=refused.error)

    def _write_alone(
        self,
        reached: Reached,
        turn: Turn[Reached] | None = None,
        *,
        failed: errors.HeadworksError | None = None,
    ) -> Committed:
        """The next batch is committed, without the rows that the database refuses.

        A batch that keeps giving way to other transactions is failed, and the next one is tried. `failed`:
        what it gave way to a moment ago.
        """
        try:
            return self._call(reached, batches.write_what_can_be, turn=turn, failed=failed)
        except errors.Transient as error:
            if retry.policy_for(error).final is not Final.FAIL_BATCH:
                raise
            code = error.code
        log.warning("batch_failed", after_row=reached.row, code=code)
        return self._call(reached, functools.partial(batches.fail, code=code), turn=turn)

    def _call(
        self,
        reached: Reached,
        write: Write,
        *,
        rows: int = 1,
        turn: Turn[Reached] | None = None,
        failed: errors.HeadworksError | None = None,
    ) -> Committed:
        """Batches of so many rows at least are committed."""

        def attempt() -> Committed:
            return self._attempt(reached, write, rows, turn)

        committed = retries.call(attempt, self._services.clock, failed=failed)
        metrics.rows_promoted.inc(committed.promoted)
        if committed.end is not None:
            ended.count(self._services.clock, committed.end.status, created_at=self._claim.created_at)
        return committed

    def _attempt(self, reached: Reached, write: Write, rows: int, turn: Turn[Reached] | None) -> Committed:
        begin, taken, nothing_left, apart = reached, 0, False, self._last.next.apart
        written: dict[str, Counts] = {}
        end: End | None = None
        next_ones = NONE_LEFT
        # What a crash of the server takes back is missed by the next batch, and by the end at last.
        durable = turn is None
        try:
            with self._services.db.transaction("promote", self._claim.workspace_id, durable=durable) as conn:
                for batch in batches.after(conn, self._claim, reached):
                    if turn is not None and not apart:
                        # Two batches may name one entity: the second writes when the first has committed.
                        turn.wait_for(begin)
                    counts = write(conn, self._claim, batch)
                    written[batch.entity_type] = written.get(batch.entity_type, Counts()) + counts
                    reached, taken = batch.reached, taken + batch.rows
                    if taken >= rows or counts.failed:  # what failed is told, even if the end fails, too
                        break
                else:
                    nothing_left = True
                if turn is not None:
                    turn.wait_for(begin)
                upload = production_store.set_promoting(conn, self._claim, begin, reached, written)
                if nothing_left:
                    end = _finish(self._services, conn, self._claim, upload)
                elif turn is None:
                    next_ones = batches.side_by_side(conn, self._claim, reached)
        except errors.HeadworksError as error:
            final = retry.policy_for(error).final
            if write is batches.write and (isinstance(error, errors.RowError) or final is Final.FAIL_BATCH):
                raise _Refused(reached, error) from error
            raise
        return Committed(reached, sum(counts.promoted for counts in written.values()), end, next_ones)

    # -- many batches of one type

    def _write_side_by_side(self, parts: SideBySide) -> None:
        """The batches are committed in file order, while several of them are worked on at a time."""
        turn = Turn(self._last.reached)
        try:
            lanes.side_by_side(parts.begins, functools.partial(self._write_at_turn, turn), turn)
        finally:
            self._last = Committed(turn.reached)

    def _write_at_turn(self, turn: Turn[Reached], reached: Reached) -> Reached:
        self._lease.check()
        try:
            return self._call(reached, batches.write, turn=turn).reached
        except _Refused as refused:
            return self._write_alone(reached, turn, failed=refused.error).reached


def _finish(services: Services, conn: Connection, claim: Claim, counts: Any) -> End:
    """The upload is terminal, and its event leaves with the same commit."""
    dates = production_store.affected_dates(conn, claim)
    if (missing := counts.valid_rows - counts.promoted_rows - counts.failed_rows) > 0:
        raise errors.Fatal(
            f"{missing} rows that were read are not in staging any more. Upload the file again.",
            code="staging_lost",
        )
    if counts.failed_rows and not counts.promoted_rows:
        raise errors.Fatal("Not one row could be promoted.", code="promotion_failed")
    status = "partial" if counts.failed_rows else "completed"
    emits, webhooks = events.is_emitted(status, counts.promoted_rows), 0
    final = store.finish_promotion(
        conn,
        claim,
        status=status,
        affected_dates=dates,
        emits_event=emits,
        code="rows_failed" if counts.failed_rows else None,
        sentence=f"{counts.failed_rows} rows could not be promoted." if counts.failed_rows else None,
    )
    if emits:
        event = events.ingestion_complete(
            claim,
            status=status,
            final=final,
            affected_dates=dates,
            timestamp=services.clock.now().isoformat(),
        )
        webhooks = events.emit(conn, claim, event)
    return End(status, webhooks, others_wait=final.others_wait)
