"""Uploads in PostgreSQL: SQL in, rows out. No function here ends a transaction.

Every change of an upload that a worker holds names the worker's claim epoch; when no row comes
back the upload has another owner by now, and the function raises Conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any
from uuid import UUID

from app.access.principal import NOT_FOUND
from app.adapters import queries
from app.adapters.database import Connection, json_value
from app.kernel import errors
from app.uploads import claims_store
from app.uploads.audit import store as audit_store
from app.uploads.claims import Claim
from app.uploads.states import OWNED, UPLOAD

_sql = queries.load("uploads")

# -- intake


def create_upload(conn: Connection, *, who: str | None, **upload: Any) -> bool:
    """A new pending upload stands, without its file; False when its idempotency key was used before.

    Twice is as good as once: the answer to the first commit may have been lost.
    """
    _sql.ensure_workspace(conn, workspace_id=upload["workspace_id"])
    if _sql.create_upload(conn, **upload) is None:
        if _sql.get_upload(conn, upload_id=upload["upload_id"]) is not None:
            return True
        if upload["idempotency_key"] is None:
            raise errors.Deadlock("Two uploads of a workspace came in the same microsecond.")
        return False
    audit_store.add_audit(
        conn,
        upload["workspace_id"],
        upload["upload_id"],
        action="created",
        to_status="pending",
        owner_id=who,
    )
    return True


def upload_of_idempotency_key(conn: Connection, *, workspace_id: UUID, key: str) -> UUID:
    """The upload that this key made."""
    return _sql.upload_of_idempotency_key(  # type: ignore[no-any-return]
        conn, workspace_id=workspace_id, idempotency_key=key
    )


def set_upload_file(
    conn: Connection, upload_id: UUID, *, file_url: str, sha256: str, size_bytes: int
) -> UUID | None:
    """The upload can be claimed from here on; returns the earlier upload of the same content."""
    row = _sql.set_upload_file(
        conn, upload_id=upload_id, file_url=file_url, sha256=sha256, size_bytes=size_bytes
    )
    if row is None:
        raise errors.Conflict("The upload was given up before its file was stored.")
    return row.duplicate_of  # type: ignore[no-any-return]


# -- moves along the edges


def fail_upload(
    conn: Connection,
    *,
    workspace_id: UUID,
    upload_id: UUID,
    claim_epoch: int,
    code: str,
    sentence: str,
    report: Mapping[str, Any] | None = None,
) -> str:
    """The upload is failed, for this reason; returns the state that it was in."""
    row = _sql.fail_upload(
        conn,
        upload_id=upload_id,
        claim_epoch=claim_epoch,
        sources=list(UPLOAD.sources("failed")),
        error_code=code,
        error_text=sentence,
        report=json_value(dict(report or {})),
    )
    if row is None:
        raise errors.Conflict(f"Upload {upload_id} is not with this worker any more.")
    audit_store.add_audit(
        conn,
        workspace_id,
        upload_id,
        action="moved",
        from_status=row.from_status,
        to_status="failed",
        owner_id=row.owner_id,
        claim_epoch=claim_epoch,
        why=code,
    )
    return str(row.from_status)


def finish_staging(
    conn: Connection,
    claim: Claim,
    *,
    before: int,
    staged_rows: int,
    total_rows: int,
    valid_rows: int,
    report: Mapping[str, Any],
) -> None:
    """The upload, `before` rows of which were staged, waits for promotion, owned by nobody."""
    row = _sql.finish_staging(
        conn,
        **claim.fence,
        sources=list(UPLOAD.sources("staging_complete")),
        before=before,
        staged_rows=staged_rows,
        total_rows=total_rows,
        valid_rows=valid_rows,
        report=json_value(dict(report)),
    )
    if row is None:
        raise claim.lost
    _audit_move(conn, claim, "processing", "staging_complete", f"{valid_rows} of {total_rows} rows valid")


def finish_promotion(
    conn: Connection,
    claim: Claim,
    *,
    status: str,
    affected_dates: Sequence[date],
    emits_event: bool,
    code: str | None = None,
    sentence: str | None = None,
) -> Any:
    """The upload is completed or partial; returns its final counts."""
    row = _sql.finish_promotion(
        conn,
        **claim.fence,
        sources=list(UPLOAD.sources(status)),
        status=status,
        affected_dates=list(affected_dates),
        emits_event=emits_event,
        error_code=code,
        error_text=sentence,
    )
    if row is None:
        raise claim.lost
    why = f"{row.promoted_rows} rows promoted, {row.failed_rows} failed"
    _audit_move(conn, claim, "promoting", status, why)
    return row


def requeue(conn: Connection, upload_id: UUID, *, workspace_id: UUID, who: str, why: str) -> str:
    """The upload is on its way again; returns the state in which it now waits.

    A failed one begins anew, of a partial one only the failed rows are tried, and one on its way
    that nobody owns may be claimed at once. Conflict when it needs no help, or is past it.
    """
    _sql.lock_workspace(conn, workspace_id=workspace_id)
    upload = get_upload(conn, upload_id)
    before: str = upload.status
    if before == "failed":
        row = _requeue_failed(conn, upload_id)
    elif before == "partial":
        row = _requeue_partial(conn, upload)
    else:
        row = _sql.requeue_ownerless(
            conn, upload_id=upload_id, sources=["pending", *OWNED, "staging_complete"]
        )
    if row is None:
        raise errors.Conflict(
            f"The upload is {before}"
            + (" and a worker has it." if upload.owner_id else ": there is nothing to try again.")
        )
    after = {"failed": "pending", "partial": "staging_complete"}.get(before, before)
    audit_store.add_audit(
        conn,
        workspace_id,
        upload_id,
        action="requeued",
        from_status=before,
        to_status=after,
        owner_id=who,
        claim_epoch=row.claim_epoch,
        why=why,
    )
    return after


def _requeue_failed(conn: Connection, upload_id: UUID) -> Any:
    row = _sql.requeue_failed(conn, upload_id=upload_id)
    if row is not None:
        _sql.clear_staging(conn, upload_id=upload_id)
        _sql.clear_resolution(conn, upload_id=upload_id)
    return row


def _requeue_partial(conn: Connection, upload: Any) -> Any:
    failed = list(rejected_rows(conn, upload, after_row=-1, limit=1))
    if not failed:
        raise errors.Conflict("The failed rows of this upload are kept no longer: upload the file again.")
    slot = claims_store.free_slot(conn, workspace_id=upload.workspace_id)
    if slot is None:
        raise errors.Conflict("Three uploads of this workspace are active: try again in a moment.")
    return _sql.requeue_partial(conn, upload_id=upload.id, slot=slot)


def _audit_move(conn: Connection, claim: Claim, source: str, target: str, why: str) -> None:
    audit_store.add_audit(
        conn,
        claim.workspace_id,
        claim.upload_id,
        action="moved",
        from_status=source,
        to_status=target,
        owner_id=claim.owner_id,
        claim_epoch=claim.claim_epoch,
        why=why,
    )


# -- cleanup and questions


def expired_staging_days(conn: Connection, *, keep_days: int) -> list[date]:
    """Days of staging that are older and hold no upload on its way."""
    return [row.day for row in _sql.expired_staging_days(conn, keep_days=keep_days)]


def drop_staging_day(conn: Connection, day: date, *, keep_days: int) -> bool:
    """The day's staging is gone; False when an upload has taken it into use meanwhile."""
    return bool(_sql.drop_staging_day(conn, day=day, keep_days=keep_days))


def get_upload(conn: Connection, upload_id: UUID) -> Any:
    """The upload's row; NotFound when the transaction's workspace has none of this id."""
    row = _sql.get_upload(conn, upload_id=upload_id)
    if row is None:
        raise errors.NotFound(NOT_FOUND)
    return row


def upload_workspace(conn: Connection, upload_id: UUID) -> UUID:
    """The workspace of an upload, for a role that sees them all."""
    found = _sql.upload_workspace(conn, upload_id=upload_id)
    if found is None:
        raise errors.NotFound(NOT_FOUND)
    return found  # type: ignore[no-any-return]


def list_uploads(conn: Connection, **filters: Any) -> list[Any]:
    """Uploads of the transaction's workspace, newest first."""
    return list(_sql.list_uploads(conn, **filters))


def upload_history(conn: Connection, upload_id: UUID) -> list[Any]:
    """What happened to the upload, in order."""
    return list(_sql.upload_history(conn, upload_id=upload_id))


def rejected_rows(conn: Connection, upload: Any, *, after_row: int, limit: int) -> Iterator[Any]:
    """Rows that were rejected or failed promotion, in file order; none once staging is cleaned up."""
    if upload.staged_on is None:
        return iter(())
    return _sql.rejected_rows(  # type: ignore[no-any-return]
        conn,
        staged_on=upload.staged_on,
        upload_id=upload.id,
        after_row=after_row,
        limit=limit,
    )


def performance(conn: Connection, **filters: Any) -> list[Any]:
    """Sums from daily_performance, for each currency."""
    return list(_sql.performance(conn, **filters))
