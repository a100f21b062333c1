"""Promotion: from staging to the production tables, in batches, each once (D6.6 §8, PromotionWorker)."""

from __future__ import annotations

from collections.abc import Sequence

from app.adapters import database, logs, metrics, retries
from app.adapters.database import Connection
from app.kernel import errors, retry
from app.uploads import events, production_store, store, work
from app.uploads.claims import Claim
from app.uploads.leases import Lease
from app.uploads.production_store import ENTITY_TABLES
from app.uploads.resolve import Incoming, resolve
from app.uploads.services import Services
from app.uploads.states import PROMOTION_BATCH_ROWS
from app.uploads.webhooks import deliver

log = logs.get(__name__)

ORDER = (*ENTITY_TABLES, "daily_metric")
"""Parents before children, facts last."""

DAILY_TABLE = "daily_metrics"


def promote_upload(services: Services, claim: Claim, lease: Lease) -> None:
    """Every valid row is in production or explained, and the upload is completed or partial."""
    reached, row = retries.call(lambda: _progress(services, claim), services.clock)
    for entity_type in ORDER[ORDER.index(reached or ORDER[0]) :]:
        after_row: int | None = row if entity_type == reached else -1
        while after_row is not None:
            lease.check()
            after_row = _promote_batch(services, claim, entity_type, after_row)
    webhooks = retries.call(lambda: _finish(services, claim), services.clock)
    services.dispatch.send("uploads.relay")
    if webhooks:
        services.dispatch.send(deliver.TASK)
    work.wake_others(services)


def _promote_batch(services: Services, claim: Claim, entity_type: str, after_row: int) -> int | None:
    """One batch stands in production; returns its last row, None when there was nothing left.

    A batch that keeps giving way to other transactions is failed, and the next one is tried.
    """
    promote = _promote_days if entity_type == "daily_metric" else _promote_entities
    try:
        return retries.call(lambda: promote(services, claim, entity_type, after_row), services.clock)
    except errors.Transient as error:
        if retry.policy_for(error).final is not retry.Final.FAIL_BATCH:
            raise
        code = error.code
    log.warning("batch_failed", upload_id=str(claim.upload_id), after_row=after_row, code=code)
    return retries.call(lambda: _fail_batch(services, claim, entity_type, after_row, code), services.clock)


def _progress(services: Services, claim: Claim) -> tuple[str | None, int]:
    with services.db.transaction("promote", claim.workspace_id) as conn:
        return production_store.promotion_progress(conn, claim)


def _done_before(conn: Connection, claim: Claim, entity_type: str, after_row: int) -> int | None:
    """Last row of a batch whose commit went through although its answer was lost, or None."""
    reached, row = production_store.promotion_progress(conn, claim)
    return row if reached == entity_type and row > after_row else None


# -- campaigns, ad sets, ads


def _promote_entities(services: Services, claim: Claim, entity_type: str, after_row: int) -> int | None:
    with services.db.transaction("promote", claim.workspace_id) as conn:
        if (done := _done_before(conn, claim, entity_type, after_row)) is not None:
            return done
        incoming = production_store.staged_entities(
            conn, claim, entity_type, after_row=after_row, limit=PROMOTION_BATCH_ROWS
        )
        if not incoming:
            return None
        production_store.lock_entities(conn, claim)
        upserted = _write_entities(conn, claim, entity_type, incoming)
        last_row = incoming[-1].row_index
        production_store.set_promoting(
            conn,
            claim,
            entity_type=entity_type,
            last_row=last_row,
            counted=ENTITY_TABLES[entity_type].table,
            upserted_rows=upserted,
        )
    return last_row


def _write_entities(conn: Connection, claim: Claim, entity_type: str, incoming: Sequence[Incoming]) -> int:
    """How many entities were written; one that the database refuses is marked with the reason.

    When the database refuses the batch, its halves are tried, until what it refuses stands alone.
    """
    try:
        return database.savepoint(conn, lambda: _resolve_and_write(conn, claim, entity_type, incoming))
    except errors.RowError as error:
        if len(incoming) > 1:
            middle = len(incoming) // 2
            left = _write_entities(conn, claim, entity_type, incoming[:middle])
            return left + _write_entities(conn, claim, entity_type, incoming[middle:])
        production_store.forget_missing(conn, claim)
        row = incoming[0].row_index
        log.warning("entity_failed", upload_id=str(claim.upload_id), row=row, code=error.code)
        production_store.save_resolutions(conn, claim, entity_type, {row: None}, codes={row: error.code})
        return 0


def _resolve_and_write(conn: Connection, claim: Claim, entity_type: str, incoming: Sequence[Incoming]) -> int:
    existing = production_store.find_entities(conn, claim, entity_type, incoming)
    claims = production_store.claimed_names(conn, claim, entity_type, existing)
    decided = resolve(incoming, existing, claims)
    production_store.adopt_entities(conn, claim, entity_type, decided.adopted)
    new = production_store.create_entities(conn, claim, entity_type, list(decided.created.values()))
    ids = {
        entity.row_index: decided.known.get(entity.row_index) or new.get(entity.external_id)
        for entity in incoming
    }
    said: dict[int, Incoming] = {}
    for entity in incoming:
        if (production_id := ids[entity.row_index]) is not None:
            said[production_id] = _with_what_was_said(entity, said.get(production_id))
    production_store.describe_entities(conn, claim, entity_type, said)
    production_store.save_resolutions(conn, claim, entity_type, ids, codes=decided.failed)
    return len(said)


def _with_what_was_said(entity: Incoming, before: Incoming | None) -> Incoming:
    """The later of two rows about one entity, with what only the earlier one says."""
    if before is None:
        return entity
    return Incoming(
        entity.row_index,
        entity.external_id,
        entity.id_source,
        name=entity.name or before.name,
        status=entity.status or before.status,
        account=entity.account or before.account,
        campaign_id=entity.campaign_id or before.campaign_id,
        ad_set_id=entity.ad_set_id or before.ad_set_id,
    )


# -- daily metrics


def _promote_days(services: Services, claim: Claim, entity_type: str, after_row: int) -> int | None:
    with services.db.transaction("promote", claim.workspace_id) as conn:
        if (done := _done_before(conn, claim, entity_type, after_row)) is not None:
            return done
        last_row = production_store.next_daily_rows(
            conn, claim, after_row=after_row, limit=PROMOTION_BATCH_ROWS
        )
        if last_row is None:
            return None
        promoted, failed, upserted = _write_days(conn, claim, after_row, last_row)
        production_store.set_promoting(
            conn,
            claim,
            entity_type=entity_type,
            last_row=last_row,
            counted=DAILY_TABLE,
            upserted_rows=upserted,
            promoted=promoted,
            failed=failed,
        )
    metrics.rows_promoted.inc(promoted)
    return last_row


def _write_days(conn: Connection, claim: Claim, after_row: int, last_row: int) -> tuple[int, int, int]:
    """Rows promoted, rows failed, production rows written, of one range of staging rows.

    When the database refuses the range, its halves are tried, until a row that fails stands alone.
    """
    try:
        batch = database.savepoint(
            conn,
            lambda: production_store.promote_daily_metrics(
                conn, claim, after_row=after_row, last_row=last_row
            ),
        )
    except errors.RowError as error:
        if last_row - after_row > 1:
            middle = (after_row + last_row) // 2
            left = _write_days(conn, claim, after_row, middle)
            right = _write_days(conn, claim, middle, last_row)
            return (left[0] + right[0], left[1] + right[1], left[2] + right[2])
        if isinstance(error, errors.ForeignKeyMissing) and production_store.forget_missing(conn, claim):
            return _write_day_without(conn, claim, last_row)
        log.warning("row_failed", upload_id=str(claim.upload_id), row=last_row, code=error.code)
        return 0, production_store.fail_daily_row(conn, claim, last_row, error.code), 0
    if claim.only_failed:
        production_store.clear_promotion_errors(conn, claim, after_row=after_row, last_row=last_row)
    if batch.unresolved_rows:
        production_store.explain_unresolved(conn, claim, batch.unresolved_rows)
    return batch.promoted, batch.failed, batch.upserted


def _write_day_without(conn: Connection, claim: Claim, row: int) -> tuple[int, int, int]:
    """The day stands without a reference that is gone, and is warned of, or is refused (D6.6 §6.1)."""
    counts = _write_days(conn, claim, row - 1, row)
    promoted, *_ = counts
    if promoted:
        production_store.add_warning(conn, claim, "reference_missing")
    return counts


# -- batches that fail


def _fail_batch(services: Services, claim: Claim, entity_type: str, after_row: int, code: str) -> int | None:
    """The batch is passed over; its rows are marked with the reason."""
    failed = 0
    with services.db.transaction("promote", claim.workspace_id) as conn:
        if entity_type == "daily_metric":
            last_row = production_store.next_daily_rows(
                conn, claim, after_row=after_row, limit=PROMOTION_BATCH_ROWS
            )
        else:
            incoming = production_store.staged_entities(
                conn, claim, entity_type, after_row=after_row, limit=PROMOTION_BATCH_ROWS
            )
            last_row = incoming[-1].row_index if incoming else None
        if last_row is None:
            return None
        if entity_type == "daily_metric":
            failed = production_store.fail_daily_batch(
                conn, claim, after_row=after_row, last_row=last_row, code=code
            )
        else:
            production_store.fail_entity_batch(
                conn, claim, entity_type, after_row=after_row, last_row=last_row, code=code
            )
        production_store.set_promoting(
            conn,
            claim,
            entity_type=entity_type,
            last_row=last_row,
            counted=DAILY_TABLE,
            upserted_rows=0,
            failed=failed,
        )
    return last_row


# -- the end


def _finish(services: Services, claim: Claim) -> int:
    """The upload is terminal, and its event leaves with the same commit; returns for how many webhooks."""
    with services.db.transaction("promote", claim.workspace_id) as conn:
        dates = production_store.affected_dates(conn, claim)
        counts = store.get_upload(conn, claim.upload_id)
        if (missing := counts.valid_rows - counts.promoted_rows - counts.failed_rows) > 0:
            raise errors.Fatal(
                f"{missing} rows that were read are not in staging any more. Upload the file again.",
                code="staging_lost",
            )
        if counts.failed_rows and not counts.promoted_rows:
            raise errors.Fatal("Not one row could be promoted.", code="promotion_failed")
        status = "partial" if counts.failed_rows else "completed"
        emits, webhooks = events.is_emitted(status, counts.promoted_rows), 0
        sentence = f"{counts.failed_rows} rows could not be promoted." if counts.failed_rows else None
        final = store.finish_promotion(
            conn,
            claim,
            status=status,
            affected_dates=dates,
            emits_event=emits,
            code="rows_failed" if counts.failed_rows else None,
            sentence=sentence,
        )
        if emits:
            now = services.clock.now().isoformat()
            webhooks = events.emit(
                conn,
                claim,
                events.ingestion_complete(
                    claim, status=status, final=final, affected_dates=dates, timestamp=now
                ),
            )
    metrics.uploads_finished.labels(status).inc()
    return webhooks
