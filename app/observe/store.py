"""What the database says of the work that waits, each under the role that sees it in every workspace."""

from __future__ import annotations

from typing import Any

from app.adapters import queries
from app.adapters.database import Connection

_sql = queries.load("observe")


def uploads_by_status(conn: Connection) -> list[Any]:
    """Of each status on the way how many uploads there are, and how long one is in it; role dispatch."""
    return list(_sql.uploads_by_status(conn))


def uploads_waiting(conn: Connection) -> list[Any]:
    """Of each stage how many uploads a worker could take, and how long the oldest waits; role dispatch."""
    return list(_sql.uploads_waiting(conn))


def uploads_put_off(conn: Connection) -> int:
    """Uploads whose next try lies ahead; role dispatch."""
    return int(_sql.uploads_put_off(conn))


def webhooks_waiting(conn: Connection) -> Any:
    """How many deliveries are due, and since when; role dispatch."""
    return _sql.webhooks_waiting(conn)


def events_waiting(conn: Connection) -> Any:
    """How many events are on no stream yet, and how long the oldest waits; role relay."""
    return _sql.events_waiting(conn)


def connections(conn: Connection) -> Any:
    """How many connections the server has, and how many it takes; any role."""
    return _sql.connections(conn)


def nets(conn: Connection, *, env: str) -> Any:
    """Since when no net of the catalog has been a success, and how long one is at work; role catalog."""
    return _sql.nets(conn, env=env)
