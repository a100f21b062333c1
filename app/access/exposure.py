"""Whom an instance may serve without a key: the person at its machine, and that only while it is
the embedded one, which nobody else can reach.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from app.adapters import embedded
from app.adapters.settings import Settings
from app.kernel import errors

SECRET_CHARACTERS = 32
OWN_KEY_CHARACTERS = 20


class NotSafeToStart(errors.Fatal):
    """The instance can be reached by others, and has no secret to tell friend from foe."""

    code = "not_safe_to_start"


def check(settings: Settings) -> bool:
    """Whether pages opened at this machine need no key. NotSafeToStart says what is missing.

    They need none in the embedded default: bound to loopback, on the database and the broker of its
    own data folder, and without HEADWORKS_SECRET. Everything else needs that secret, and keys.
    """
    check_secret(settings.secret, reason=None if settings.secret else _reachable_by(settings))
    check_own_key(settings.api_key)
    if not settings.secret and not settings.api_key:
        raise NotSafeToStart(
            "HEADWORKS_API_KEY is not set: `headworks up` makes one, or set HEADWORKS_SECRET."
        )
    return not settings.secret


def is_alone(settings: Settings) -> bool:
    """Whether nobody but the person at this machine can reach the instance."""
    return not settings.secret and _reachable_by(settings) is None


def check_secret(secret: str, *, reason: str | None) -> None:
    """The secret is long enough, or there is no `reason` to need one; else NotSafeToStart."""
    if secret and len(secret) < SECRET_CHARACTERS:
        raise NotSafeToStart(
            f"HEADWORKS_SECRET has {len(secret)} characters and needs at least {SECRET_CHARACTERS}:"
            " `openssl rand -hex 32` prints a good one."
        )
    if reason and not secret:
        raise NotSafeToStart(
            f"HEADWORKS_SECRET is not set, and {reason}: set it to at least {SECRET_CHARACTERS} random"
            " characters (`openssl rand -hex 32`), so that nothing is shown without a key."
        )


def check_own_key(api_key: str) -> None:
    """The instance's own key, if it has one, is fit to open every workspace; else NotSafeToStart."""
    if api_key.startswith("hw_"):
        raise NotSafeToStart(
            "HEADWORKS_API_KEY is a key that `headworks keys create` made, and would open every workspace as"
            " the instance's own: start the instance from a shell that does not set it."
        )
    if api_key and len(api_key) < OWN_KEY_CHARACTERS:
        raise NotSafeToStart(
            f"HEADWORKS_API_KEY has {len(api_key)} characters and opens every workspace: it needs at least"
            f" {OWN_KEY_CHARACTERS}."
        )


def _reachable_by(settings: Settings) -> str | None:
    """Why others than the person at this machine may reach the instance; None: they cannot."""
    if not is_loopback(host_of(settings.bind)):
        return f"HEADWORKS_BIND is {settings.bind!r}, which is not only this machine"
    if not is_loopback(urlsplit(settings.url).hostname or ""):
        return f"HEADWORKS_URL is {settings.url}, which is not only this machine"
    postgres = embedded.Postgres(settings.data_dir / "postgres")
    if not postgres.is_named_by(settings.database_url):
        return "HEADWORKS_DATABASE_URL names a database of your own"
    if settings.pipeline_database_url and not postgres.is_named_by(settings.pipeline_database_url):
        return "HEADWORKS_PIPELINE_DATABASE_URL names a database of your own"
    if not embedded.Valkey(settings.data_dir / "valkey").is_named_by(settings.broker_url):
        return "HEADWORKS_BROKER_URL names a broker of your own"
    return None


def host_of(address: str) -> str:
    """The host of `host`, `host:port` or `[host]:port`; "" when it is none."""
    try:
        return urlsplit(f"//{address}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether the name or address can only be this machine.

    `localhost` by that very name: any other may be made to lead here by whoever owns it.
    """
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
