"""Keys and sessions in PostgreSQL: SQL in, rows out. No function here ends a transaction.

The database's clock decides what has expired: it is the one clock that every web process shares.
"""

from __future__ import annotations

from typing import Any

from app.adapters import queries
from app.adapters.database import Connection

_sql = queries.load("access")


def find_key(conn: Connection, key_id: str) -> Any:
    """The key's row with its hash, why it has `ended`, and whether its use is worth noting; or None."""
    return _sql.find_key(conn, key_id=key_id)


def note_key_use(conn: Connection, key_id: str) -> None:
    """The key was used just now, to the minute."""
    _sql.note_key_use(conn, key_id=key_id)


def create_key(conn: Connection, **key: Any) -> bool:
    """The key stands; False when its public id is taken."""
    return bool(_sql.create_key(conn, **key))


def list_keys(conn: Connection, **filters: Any) -> list[Any]:
    """Keys without their hashes, oldest first."""
    return list(_sql.list_keys(conn, **filters))


def revoke_key(conn: Connection, key_id: str) -> bool:
    """The key is revoked, now or long since; False when there is none."""
    return bool(_sql.revoke_key(conn, key_id=key_id))


def create_session(conn: Connection, **session: Any) -> None:
    """The session stands."""
    _sql.create_session(conn, **session)


def find_session(conn: Connection, id_hash: bytes, *, idle_seconds: int, max_seconds: int) -> Any:
    """The session with its key, and whether it is worth extending; None when either has ended."""
    return _sql.find_session(conn, id_hash=id_hash, idle_seconds=idle_seconds, max_seconds=max_seconds)


def extend_session(conn: Connection, id_hash: bytes, *, idle_seconds: int, max_seconds: int) -> None:
    """The session goes on from now."""
    _sql.extend_session(conn, id_hash=id_hash, idle_seconds=idle_seconds, max_seconds=max_seconds)


def end_session(conn: Connection, id_hash: bytes) -> None:
    """The session is over."""
    _sql.end_session(conn, id_hash=id_hash)


def end_sessions_of_key(conn: Connection, key_id: str) -> None:
    """Every session of the key is over."""
    _sql.end_sessions_of_key(conn, key_id=key_id)


def drop_expired_sessions(conn: Connection) -> None:
    """Only sessions that go on are kept."""
    _sql.drop_expired_sessions(conn)
