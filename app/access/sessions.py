"""Sessions of people at a browser: a random id in a cookie, of which only a hash is kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Any

from app.access import keys, store
from app.access.principal import LOCAL_KEY, Principal
from app.adapters import database

IDLE_SECONDS = 12 * 3600
"""So long after its last request a session ends."""

MAX_SECONDS = 7 * 24 * 3600
"""So long after its login it ends in any case."""

_ID = re.compile(r"[A-Za-z0-9_-]{43}")


def open_session(db: database.Database, *, key_id: str | None, local_key: str, ends: str) -> str:
    """The id of a new session of this key; None as key: of the instance's own.

    The session `ends`, if there is one, is over: nobody who knows it knows the new one.
    """
    session_id = secrets.token_urlsafe(32)
    with db.transaction("access") as conn:
        store.drop_expired_sessions(conn)
        store.end_session(conn, keys.digest(ends))
        store.create_session(
            conn,
            id_hash=keys.digest(session_id),
            key_id=key_id,
            local_key_hash=None if key_id else keys.digest(local_key),
            idle_seconds=IDLE_SECONDS,
        )
    return session_id


def identify(
    db: database.Database, session_id: str, *, local_key: str
) -> tuple[str | None, Principal] | None:
    """Public id of the key and principal of a session that goes on; None when it has ended.

    It ends with its key, that is looked at each time.
    """
    if not _ID.fullmatch(session_id):
        return None
    with db.transaction("access") as conn:
        row = store.find_session(
            conn, keys.digest(session_id), idle_seconds=IDLE_SECONDS, max_seconds=MAX_SECONDS
        )
        if row is None or not _is_of_this_instance(row, local_key):
            return None
        if row.use_is_news:
            store.extend_session(
                conn, keys.digest(session_id), idle_seconds=IDLE_SECONDS, max_seconds=MAX_SECONDS
            )
            if row.key_id:
                store.note_key_use(conn, row.key_id)
    return row.key_id, keys.principal_of(row) if row.key_id else LOCAL_KEY


def _is_of_this_instance(row: Any, local_key: str) -> bool:
    # A session of the instance's own key ends when that is another one.
    return row.key_id is not None or hmac.compare_digest(bytes(row.local_key_hash), keys.digest(local_key))


def close_session(db: database.Database, session_id: str) -> None:
    """The session is over."""
    with db.transaction("access") as conn:
        store.end_session(conn, keys.digest(session_id))


# -- what a page of this session proves with a form


def csrf_token(secret: str, session_id: str) -> str:
    """What only a page of this session knows; it does not tell the session's id."""
    return _sign(secret, "form", session_id)


def new_visitor(secret: str) -> str:
    """A cookie for somebody who needs no login: it binds their forms to their browser."""
    visitor = secrets.token_urlsafe(24)
    return f"{visitor}.{_sign(secret, 'visitor', visitor)}"


def is_visitor(secret: str, cookie: str) -> bool:
    """Whether the cookie was made here."""
    visitor, _, signature = cookie.partition(".")
    return hmac.compare_digest(signature.encode(), _sign(secret, "visitor", visitor).encode())


def _sign(secret: str, purpose: str, text: str) -> str:
    message = f"headworks {purpose}: {text}".encode("utf-8", "surrogatepass")
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
