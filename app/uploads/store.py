"""Uploads in PostgreSQL: SQL in, rows out. No function here ends a transaction.

Every change of an upload that a worker holds names the worker's claim epoch; when no row comes
back the upload has another owner by now, and the function raises Conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, Self
from uuid import UUID

from app.access.principal import NOT_FOUND
from app.adapters import queries
from app.adapters.database import Connection, json_value
from app.kernel import errors
from app.uploads.states import MAX_ACTIVE_PER_WORKSPACE, OWNED, UPLOAD

_sql = queries.load("uploads")

CLAIMED_STATUS = {"parse": "processing", "promote": "promoting"}
"""Where a claim for each stage moves an upload, unless it is there already."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An upload in the hands of one worker, as it was when it was claimed."""

    upload_id: UUID
    workspace_id: UUID
    client_id: UUID | None
    platform: str
    currency: str | None
    force_partial: bool
    file_url: str
    filename: str | None
    created_at: datetime
    owner_id: str
    claim_epoch: int
    attempts: int
    deferrals: int
    staged_on: date
    staged_rows: int
    total_rows: int
    valid_rows: int
    promoted_rows: int
    failed_rows: int
    promoting_type: str | None
    promoting_row: int
    only_failed: bool
    report: dict[str, Any]
    from_status: str

    @classmethod
    def from_row(cls, row: Any) -> Self:
        if row.created_at.tzinfo is None:
            raise ValueError("a naive time came out of the database")
        return cls(**{field.name: getattr(row, field.name) for field in fields(cls)})

    @property
    def scope(self) -> dict[str, Any]:
        """What begins every natural key: workspace, client and platform."""
        return {
            "workspace_id": self.workspace_id,
            "client_id": self.client_id,
            "platform": self.platform,
        }

    @property
    def staging(self) -> dict[str, Any]:
        """Where this upload's staging rows are."""
        return {"staged_on": self.staged_on, "upload_id": self.upload_id}

    @property
    def fence(self) -> dict[str, Any]:
        """What every write of this worker names."""
        return {"upload_id": self.upload_id, "claim_epoch": self.claim_epoch}


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
    add_audit(
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
) -> None:
    """The upload can be claimed from here on."""
    rows = _sql.set_upload_file(
        conn, upload_id=upload_id, file_url=file_url, sha256=sha256, size_bytes=size_bytes
    )
    if not rows:
        raise errors.Conflict("The upload was given up before its file was stored.")


# -- claims and leases (under the role that sees every workspace)


def claim_upload(conn: Connection, stage: str, *, owner_id: str, lease_seconds: float) -> Claim | None:
    """The upload that waits longest for this stage, in the workspace whose turn it is; None: no work.

    Never more than three uploads of a workspace are active: the workspace is locked first, and its
    active uploads are counted in a statement of their own, whose snapshot is younger than the lock.
    Conflict when the work went to somebody else while this transaction waited for that lock.
    """
    workspace_id = _sql.lock_next_workspace(conn, stage=stage)
    if workspace_id is None:
        return None
    slot = _sql.free_slot(conn, workspace_id=workspace_id, max_active=MAX_ACTIVE_PER_WORKSPACE)
    row = _sql.claim_upload(
        conn,
        workspace_id=workspace_id,
        stage=stage,
        claimed_status=CLAIMED_STATUS[stage],
        slot=slot,
        owner_id=owner_id,
        lease_seconds=lease_seconds,
    )
    if row is None:
        raise errors.Conflict("Another worker was faster in this workspace.")
    claim = Claim.from_row(row)
    moved = claim.from_status != CLAIMED_STATUS[stage]
    _audit_claim(conn, claim, "moved" if moved else "resumed", CLAIMED_STATUS[stage])
    return claim


def _audit_claim(conn: Connection, claim: Claim, action: str, to_status: str) -> None:
    add_audit(
        conn,
        claim.workspace_id,
        claim.upload_id,
        action=action,
        from_status=claim.from_status,
        to_status=to_status,
        owner_id=claim.owner_id,
        claim_epoch=claim.claim_epoch,
        why=f"attempt {claim.attempts}",
    )


def extend_lease(conn: Connection, claim: Claim, *, lease_seconds: float) -> None:
    """The lease runs from now on again."""
    if not _sql.extend_lease(conn, **claim.fence, lease_seconds=lease_seconds):
        raise _lost(claim)


def release_upload(conn: Connection, claim: Claim, *, why: str) -> None:
    """Nobody owns the upload, and it may be claimed at once; the attempt does not count against the file."""
    row = _sql.release_upload(conn, **claim.fence)
    _audit_handed_back(conn, claim, row, "released", why)


def defer_upload(conn: Connection, claim: Claim, *, why: str, delay_seconds: float) -> None:
    """Nobody owns the upload, and it may be claimed again after the delay.

    It gives its place among the active ones of its workspace to another until then.
    """
    row = _sql.defer_upload(conn, **claim.fence, delay_seconds=delay_seconds)
    _audit_handed_back(conn, claim, row, "deferred", why)


def _audit_handed_back(conn: Connection, claim: Claim, row: Any, action: str, why: str) -> None:
    if row is None:
        raise _lost(claim)
    add_audit(
        conn,
        claim.workspace_id,
        claim.upload_id,
        action=action,
        from_status=row.status,
        to_status=row.status,
        owner_id=claim.owner_id,
        claim_epoch=claim.claim_epoch,
        why=why,
    )


def take_expired_leases(conn: Connection) -> list[Any]:
    """Uploads whose owner is gone belong to nobody; rows with upload_id, status, attempts, lost_owner."""
    rows = list(_sql.take_expired_leases(conn))
    for row in rows:
        add_audit(
            conn,
            row.workspace_id,
            row.upload_id,
            action="lease_expired",
            from_status=row.status,
            to_status=row.status,
            owner_id=row.lost_owner,
            claim_epoch=row.claim_epoch,
            why="the owner was not heard of in time",
        )
    return rows


def abandoned_intakes(conn: Connection, *, after_seconds: float) -> list[Any]:
    """Pending uploads that never got their file."""
    return list(_sql.abandoned_intakes(conn, after_seconds=after_seconds))


def stages_with_work(conn: Connection) -> list[str]:
    """The stages that could claim an upload now."""
    return [row.stage for row in _sql.stages_with_work(conn)]


def owners(conn: Connection) -> list[str]:
    """Who holds an upload now."""
    return [row.owner_id for row in _sql.owners(conn)]


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
    add_audit(
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
    conn: Connection, claim: Claim, *, total_rows: int, valid_rows: int, report: Mapping[str, Any]
) -> None:
    """The upload waits for promotion, owned by nobody."""
    row = _sql.finish_staging(
        conn,
        **claim.fence,
        sources=list(UPLOAD.sources("staging_complete")),
        total_rows=total_rows,
        valid_rows=valid_rows,
        report=json_value(dict(report)),
    )
    if row is None:
        raise _lost(claim)
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
        raise _lost(claim)
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
    add_audit(
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
    slot = _sql.free_slot(conn, workspace_id=upload.workspace_id, max_active=MAX_ACTIVE_PER_WORKSPACE)
    if slot is None:
        raise errors.Conflict("Three uploads of this workspace are active: try again in a moment.")
    return _sql.requeue_partial(conn, upload_id=upload.id, slot=slot)


def add_audit(
    conn: Connection,
    workspace_id: UUID,
    upload_id: UUID | None,
    *,
    action: str,
    from_status: str | None = None,
    to_status: str | None = None,
    owner_id: str | None = None,
    claim_epoch: int | None = None,
    why: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """The audit log knows of it, together with what it is about."""
    _sql.add_audit(
        conn,
        workspace_id=workspace_id,
        upload_id=upload_id,
        action=action,
        from_status=from_status,
        to_status=to_status,
        owner_id=owner_id,
        claim_epoch=claim_epoch,
        why=why,
        detail=json_value(dict(detail or {})),
    )


def _audit_move(conn: Connection, claim: Claim, source: str, target: str, why: str) -> None:
    add_audit(
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


def _lost(claim: Claim) -> errors.Conflict:
    return errors.Conflict(f"Upload {claim.upload_id} is not with {claim.owner_id} any more.")


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
