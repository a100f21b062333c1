"""The audit log in PostgreSQL: SQL in, rows out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.adapters import queries
from app.adapters.database import Connection, json_value

_sql = queries.load("audit")


def list_audit(conn: Connection, **filters: Any) -> list[Any]:
    """Entries of the transaction's workspace, newest first; every filter that is None is off."""
    return list(_sql.list_audit(conn, **filters))


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
