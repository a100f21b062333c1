"""What the database says of itself and of the work that waits."""

from __future__ import annotations

from typing import Any

from app.adapters import queries
from app.adapters.database import Connection

_sql = queries.load("doctor")


def server(conn: Connection, *, roles: list[str]) -> Any:
    """Version, time, and the roles that this user lacks."""
    return _sql.server(conn, roles=roles)


def backlog(conn: Connection) -> Any:
    """How much waits, and for how long; under the role that sees every workspace."""
    return _sql.backlog(conn)
