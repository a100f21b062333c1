"""Which tenants a caller may act for: everything under /v1/tenants/{tenantId} asks here first.

A plain object that knows nothing of the web framework and does no input or output while it checks:
the processes that answer reads from memory ask it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from app.kernel import errors
from app.kernel.clock import Clock
from app.refdata import callers, jwks, tokens
from app.refdata.callers import Caller, Headers
from app.refdata.tenant_rules import TENANT_ID, Rules, RulesRefused, Source
from app.refdata.tokens import Unauthorized

__all__ = [
    "TENANT_ID",
    "Caller",
    "Headers",
    "Rules",
    "RulesRefused",
    "Source",
    "Tenants",
    "Unauthorized",
    "WrongTenant",
    "check_name",
    "received",
]


class WrongTenant(errors.Refused):
    """The caller may not act for this tenant."""

    code = "tenant_mismatch"


class Tenants:
    """Says of each request whether its caller may act for its tenant."""

    def __init__(
        self, rules: Rules, identify: callers.Identify, *, close: Callable[[], None] = lambda: None
    ) -> None:
        self._identify = identify
        self._header = rules.tenant_header.lower()
        self._close = close

    @classmethod
    def open(
        cls,
        rules: Rules,
        clock: Clock,
        environ: Mapping[str, str],
        *,
        embedded: bool,
        patience_seconds: float = 0.0,
    ) -> Tenants:
        """The check by these rules, ready; `close` ends what it does in the background.

        embedded: the instance is the embedded one (`exposure.check` says so), the only that may do
        without proof. patience_seconds: how long a request may wait for a key that is not known yet;
        0 in a process where a wait would hold up others. RulesRefused when the rules need what is
        not there.
        """
        if rules.source is Source.NONE:
            if not embedded:
                raise RulesRefused(
                    "security.tenant.source: NONE is for the embedded instance, which nobody else can reach."
                )
            return cls(rules, callers.person_here)
        if rules.source is Source.TRUSTED_HEADER:
            return cls(rules, callers.by_header(rules))
        if rules.source is Source.MTLS_HEADER:
            return cls(rules, callers.by_client_cert(rules))
        if rules.secret_from_env is not None:
            return cls(rules, callers.Bearers(rules, _secret(rules.secret_from_env, environ), clock).identify)
        keys = jwks.Jwks(_source(rules, clock), rules.algorithms, clock, patience_seconds=patience_seconds)
        keys.start()
        return cls(rules, callers.Bearers(rules, keys, clock).identify, close=keys.close)

    def close(self) -> None:
        """Nothing is done in the background any more."""
        self._close()

    def check(self, tenant_id: str, headers: Headers, peer: str | None) -> Caller:
        """Who makes a request for this tenant, allowed to.

        Args:
            tenant_id: as it stands in the path, decoded.
            peer: the address at the other end of the connection, whatever headers say.

        Refused (`invalid_request`) for what is no tenant's name, before anything else is looked at;
        Unauthorized; WrongTenant; KeysAway (transient) while there are no keys to check with.
        """
        check_name(tenant_id)
        known = self._identify(tenant_id, headers, peer)
        named = headers.get(self._header)
        if named is not None and named != tenant_id:
            raise WrongTenant("The header of the tenant and the address name two tenants.")
        if tenant_id in known.caller.tenants:
            return known.caller
        if named is not None and known.may_name:
            return Caller(known.caller.subject, frozenset((tenant_id,)), Source.TRUSTED_HEADER)
        raise WrongTenant()


def check_name(tenant_id: str) -> None:
    """A tenant may be called so; Refused (`invalid_request`) otherwise."""
    if TENANT_ID.fullmatch(tenant_id) is None:
        raise errors.Refused("A tenant has 1 to 64 letters, digits, dots, underscores and hyphens.")


def _secret(name: str, environ: Mapping[str, str]) -> tokens.Secret:
    secret = environ.get(name, "").encode()
    if len(secret) < tokens.SECRET_BYTES:
        raise RulesRefused(
            f"security.tenant.secretFromEnv: {name} has {len(secret)} bytes and needs at least"
            f" {tokens.SECRET_BYTES}: `openssl rand -hex 32` prints a good one."
        )
    return tokens.Secret(secret)


def _source(rules: Rules, clock: Clock) -> jwks.Source:
    if rules.jwks_file is not None:
        return jwks.FileSource(Path(rules.jwks_file), clock)
    return jwks.HttpSource(
        rules.jwks_url or "",
        clock,
        every_seconds=rules.jwks_refresh_seconds,
        ca_file=rules.jwks_ca_file or "",
    )


def received(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The header lines of a request as `Tenants.check` wants them: names in lower case, repeats joined."""
    found: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
