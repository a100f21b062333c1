"""Whether a pooler that shares connections by the transaction stands before PostgreSQL, as PgBouncer does.

Behind one, nothing that belongs to a session lasts: its settings, its locks, LISTEN. Its clients are given
numbers of processes that are not PostgreSQL's own, and by that it is known, without a setting.
"""

from __future__ import annotations

from typing import Any


def is_before(connection: Any) -> bool:
    """Whether this connection, outside of a transaction, leads to a pooler."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        (pid,) = cursor.fetchone()
    return bool(pid != connection.info.backend_pid)
