"""API keys: `hw_<public id>_<secret>`, of which only a hash of the secret is kept.

The hash is plain SHA-256. A secret has 256 random bits, so nobody finds it by trying, however fast
the hash: a slow one would only cost every request its time. A pepper would protect nothing more,
and whoever changed HEADWORKS_SECRET would end every key with it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.access import store
from app.access.principal import Principal
from app.adapters import database
from app.kernel import errors

PUBLIC_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Without l, o, 0 and 1: public ids are read out on the telephone."""

_KEY = re.compile(r"hw_([a-z0-9]{8})_([A-Za-z0-9_-]{32,128})")


@dataclass(frozen=True, slots=True)
class Key:
    """A key in full, as its holder has it."""

    public_id: str
    secret: str

    @property
    def text(self) -> str:
        """What the holder sends."""
        return f"hw_{self.public_id}_{self.secret}"


class KeyRefused(errors.Refused):
    """A key opens nothing; `reason` is one word for the log, `public_id` whose, if its secret was shown."""

    code = "unauthorized"

    def __init__(self, sentence: str = "", *, reason: str = "unknown", public_id: str | None = None) -> None:
        super().__init__(sentence or SENTENCES[reason])
        self.reason = reason
        self.public_id = public_id


SENTENCES = {
    # reason    what is said; the last two only to whoever holds the secret
    "malformed": (
        "This is no key: one is sent as `Authorization: Bearer <key>` and looks like hw_<id>_<secret>."
        " `headworks env` prints the key of a local instance."
    ),
    "unknown": "This key is not known here. `headworks keys create` makes one.",
    "revoked": "This key was revoked. Ask whoever runs this instance for a new one.",
    "expired": "This key has expired. Ask whoever runs this instance for a new one.",
}


def new() -> Key:
    """A key that nobody has."""
    public_id = "".join(secrets.choice(PUBLIC_ALPHABET) for _ in range(8))
    return Key(public_id, secrets.token_urlsafe(32))


def parse(text: str) -> Key | None:
    """The parts of a key; None when it is none."""
    found = _KEY.fullmatch(text)
    return Key(*found.groups()) if found else None


def digest(text: str) -> bytes:
    """The hash under which a secret, or a session's id, is kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def equal(one: str, other: str) -> bool:
    """Whether two secrets are the same; how long it takes tells neither content nor length."""
    return hmac.compare_digest(digest(one), digest(other))


def identify(db: database.Database, text: str) -> tuple[str, Principal]:
    """Public id and principal of a valid key, asked of the database each time; else KeyRefused."""
    given = parse(text)
    if given is None:
        raise KeyRefused(reason="malformed")
    with db.transaction("access") as conn:
        row = store.find_key(conn, given.public_id)
        kept = bytes(row.secret_hash) if row else bytes(32)
        if not hmac.compare_digest(kept, digest(given.secret)):
            raise KeyRefused(reason="unknown")
        if row.ended:
            raise KeyRefused(reason=row.ended, public_id=given.public_id)
        if row.use_is_news:
            store.note_key_use(conn, given.public_id)
    return given.public_id, principal_of(row)


def principal_of(row: Any) -> Principal:
    """Whom a key's row stands for."""
    return Principal(f"key hw_{row.id} ({row.name})", row.workspace_id, frozenset(row.scopes))


def create(
    db: database.Database,
    *,
    workspace_id: UUID | None,
    scopes: frozenset[str],
    name: str,
    created_by: str,
    expires_days: int | None = None,
) -> Key:
    """A new key; this is the only time that its secret is known."""
    while True:
        key = new()
        with db.transaction("access") as conn:
            if store.create_key(
                conn,
                key_id=key.public_id,
                secret_hash=digest(key.secret),
                workspace_id=workspace_id,
                scopes=sorted(scopes),
                name=name,
                created_by=created_by,
                expires_days=expires_days,
            ):
                return key


def revoke(db: database.Database, public_id: str) -> None:
    """The key opens nothing any more, and its sessions have ended; NotFound when there is none."""
    with db.transaction("access") as conn:
        if not store.revoke_key(conn, public_id):
            raise errors.NotFound(f"There is no key hw_{public_id}: `headworks keys list` shows them.")
        store.end_sessions_of_key(conn, public_id)
