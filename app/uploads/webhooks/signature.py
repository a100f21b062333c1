"""Secrets of subscriptions, and what they sign (Standard Webhooks).

A secret must sign, so a hash of it will not do. It is kept sealed: encrypted with a key that follows
from HEADWORKS_SECRET, so that a copy of the database alone, a dump or a backup, signs nothing.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Sequence

import cryptography.fernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.adapters.settings import Settings
from app.kernel import errors

PREFIX = "whsec_"
SECRET_BYTES = 32
OVERLAP_SECONDS = 24 * 3600.0
"""So long the old secret signs beside the new one."""


class SecretUnreadable(errors.Fatal):
    """A secret was sealed under another HEADWORKS_SECRET."""

    code = "secret_unreadable"


class Seal:
    """Encrypts secrets for the database. The instance's own key serves where there is no secret."""

    def __init__(self, settings: Settings) -> None:
        keys = [text for text in (settings.secret, settings.api_key) if text]
        # What was sealed while the instance had only its own key is read after it got a secret.
        self._fernet = cryptography.fernet.MultiFernet([_fernet(key) for key in keys]) if keys else None

    def close(self, secret: str) -> str:
        """The secret, sealed."""
        if self._fernet is None:
            raise errors.Refused("Webhooks need HEADWORKS_SECRET, under which their secrets are kept.")
        return self._fernet.encrypt(secret.encode()).decode()

    def open(self, sealed: str) -> str:
        """The secret; SecretUnreadable when it was sealed by another instance."""
        try:
            if self._fernet is not None:
                return self._fernet.decrypt(sealed.encode()).decode()
        except cryptography.fernet.InvalidToken:
            pass
        raise SecretUnreadable

    def open_all(self, sealed: Sequence[str]) -> list[str]:
        """The newest secret, that must be readable, and those of the older ones that are."""
        older = []
        for text in sealed[1:]:
            with contextlib.suppress(SecretUnreadable):
                older.append(self.open(text))
        return [self.open(sealed[0]), *older]


def _fernet(key: str) -> cryptography.fernet.Fernet:
    derived = HKDF(hashes.SHA256(), length=32, salt=None, info=b"headworks webhook secrets")
    return cryptography.fernet.Fernet(base64.urlsafe_b64encode(derived.derive(key.encode())))


def new_secret() -> str:
    """A secret that nobody knows yet."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def headers(body: bytes, *, message_id: str, timestamp: int, signing: Sequence[str]) -> dict[str, str]:
    """What makes the body a signed message: one signature for each of the secrets `signing`."""
    content = b".".join((message_id.encode(), str(timestamp).encode(), body))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{_sign(secret, content)}" for secret in signing),
    }


def _sign(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
