"""The audit log in PostgreSQL: SQL in, rows out."""

from __future__ import annotations

from typing import Any

from app.adapters import queries
from app.adapters.database import Connection

_sql = queries.load("audit")


def list_audit(conn: Connection, **filters: Any) -> list[Any]:
    """Entries of the transaction's workspace, newest first; every filter that is None is off."""
    return list(_sql.list_audit(conn, **filters))
