"""What the pages ask beside the API's questions: SQL in, rows out. No function here ends a transaction."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.adapters import queries
from app.adapters.database import Connection
from app.kernel import errors

_sql = queries.load("uploads")

MOST = 200
"""Workspaces or clients that are offered in a list."""


def workspaces(conn: Connection) -> list[Any]:
    """Workspaces with id and last_upload_at, the one used last first; for a role that sees them all."""
    return list(_sql.workspaces(conn, limit=MOST))


def clients(conn: Connection) -> list[Any]:
    """Clients of the transaction's workspace with id, uploads and last_upload_at."""
    return list(_sql.clients(conn, limit=MOST))


def readings(conn: Connection, upload_id: UUID) -> list[Any]:
    """The upload and all others of its content and client, oldest first."""
    return list(_sql.readings(conn, upload_id=upload_id, limit=MOST))


def promotion_errors(conn: Connection, upload: Any) -> dict[str, int]:
    """For each reason the number of rows that failed promotion; empty once staging is cleaned up."""
    if upload.staged_on is None or not upload.failed_rows:
        return {}
    rows = _sql.promotion_errors(conn, staged_on=upload.staged_on, upload_id=upload.id)
    return {row.code: row.rows for row in rows}


def upload_progress(conn: Connection, upload_id: UUID) -> Any:
    """How far the upload has come; NotFound when the transaction's workspace has none of this id."""
    row = _sql.upload_progress(conn, upload_id=upload_id)
    if row is None:
        raise errors.NotFound("There is no such upload in this workspace.")
    return row


def performance_span(conn: Connection, **filters: Any) -> Any:
    """first_day and last_day of the data; both None where there is none."""
    return _sql.performance_span(conn, **filters)
