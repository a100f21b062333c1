"""The suppliers' locks in PostgreSQL: SQL in, rows out. No function here ends a transaction."""

from __future__ import annotations

from app.adapters import queries
from app.adapters.database import Connection

_sql = queries.load("suppliers")


def take_supplier_lock(conn: Connection, supplier: str, *, owner_id: str, lease_seconds: float) -> int | None:
    """The token of the new holder; None when somebody else holds the lock."""
    return _sql.take_supplier_lock(  # type: ignore[no-any-return]
        conn, supplier=supplier, owner_id=owner_id, lease_seconds=lease_seconds
    )


def extend_supplier_lock(conn: Connection, supplier: str, *, token: int, lease_seconds: float) -> bool:
    """Whether this holder still holds the lock; if so, for so long from now."""
    return bool(_sql.extend_supplier_lock(conn, supplier=supplier, token=token, lease_seconds=lease_seconds))


def release_supplier_lock(conn: Connection, supplier: str, *, token: int) -> None:
    """The lock is free, if it was still this holder's."""
    _sql.release_supplier_lock(conn, supplier=supplier, token=token)
