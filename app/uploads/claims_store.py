"""Claims and leases in PostgreSQL, under the role that sees every workspace. No transaction ends here.

Every change of an upload that a worker holds names the worker's claim epoch; when no row comes
back the upload has another owner by now, and the function raises Conflict.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.adapters import queries
from app.adapters.database import Connection
from app.kernel import errors
from app.uploads.audit import store as audit_store
from app.uploads.claims import Claim
from app.uploads.states import MAX_ACTIVE_PER_WORKSPACE

_sql = queries.load("uploads")

CLAIMED_STATUS = {"parse": "processing", "promote": "promoting"}
"""Where a claim for each stage moves an upload, unless it is there already."""


def claim_upload(conn: Connection, stage: str, *, owner_id: str, lease_seconds: float) -> Claim | None:
    """The upload that waits longest for this stage, in the workspace whose turn it is; None: no work.

    Never more than three uploads of a workspace are active: the workspace is locked first, and its
    active uploads are counted in a statement of their own, whose snapshot is younger than the lock.
    Conflict when the work went to somebody else while this transaction waited for that lock.
    """
    workspace_id = _sql.lock_next_workspace(conn, stage=stage)
    if workspace_id is None:
        return None
    slot = free_slot(conn, workspace_id=workspace_id)
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


def free_slot(conn: Connection, *, workspace_id: UUID) -> int | None:
    """A place among the active uploads of the workspace, whose lock the caller holds; None: all are taken."""
    return _sql.free_slot(  # type: ignore[no-any-return]
        conn, workspace_id=workspace_id, max_active=MAX_ACTIVE_PER_WORKSPACE
    )


def _audit_claim(conn: Connection, claim: Claim, action: str, to_status: str) -> None:
    audit_store.add_audit(
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
        raise claim.lost


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
        raise claim.lost
    audit_store.add_audit(
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
        audit_store.add_audit(
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
