"""Who makes a request: by a token, by the word of a gateway or of the mesh, or at the machine itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from app.access import origin
from app.kernel.clock import Clock
from app.refdata import client_certs, tokens
from app.refdata.tenant_rules import SPIFFE, TENANT_ID, Rules, Source
from app.refdata.tokens import Unauthorized

MOST_CACHED = 10_000
LONGEST_CACHED_SECONDS = 300.0
"""What was verified is verified again after this time: so long may a withdrawn key or client live on."""


class Headers(Protocol):
    """A request's headers, found by names in lower case.

    What came in several lines is one value, joined with a comma (RFC 9110 §5.2), as WSGI servers
    do: `received` makes such headers. Otherwise a second Authorization could hide behind the first.
    """

    def get(self, name: str, /) -> str | None:
        """The header's value; None when there is none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who may act for these tenants. `source` says how that is known."""

    subject: str
    tenants: frozenset[str]
    source: Source


@dataclass(frozen=True, slots=True)
class Known:
    """A caller, and whether it may name any tenant by header."""

    caller: Caller
    may_name: bool
    generation: int = 0  # of the keys that it was verified with
    until: float = 0.0  # on the monotonic clock


class Verified:
    """What was verified lately, by a digest, so that no token is kept.

    Two halves: when the new one is full it becomes the old one, and what is asked for moves back. So
    whatever was used among the last MOST_CACHED/2 is there, as with an LRU, without a lock.
    """

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._new: dict[bytes, Known] = {}
        self._old: dict[bytes, Known] = {}

    def get(self, digest: bytes) -> Known | None:
        found = self._new.get(digest)
        if found is None:
            found = self._old.get(digest)
            if found is not None:
                self.put(digest, found)
        return found

    def put(self, digest: bytes, known: Known) -> None:
        if len(self._new) >= self._half:
            self._old, self._new = self._new, {}
        self._new[digest] = known

    def clear(self) -> None:
        self._new, self._old = {}, {}

    def __len__(self) -> int:
        return len(self._new.keys() | self._old.keys())


Identify = Callable[[str, Headers, str | None], Known]
"""Who makes a request for this tenant, with these headers, from this address; Unauthorized: nobody."""


class Bearers:
    """Callers by their tokens."""

    def __init__(self, rules: Rules, keys: tokens.KeyStore, clock: Clock) -> None:
        self._demands = tokens.Demands(
            frozenset(rules.algorithms), rules.issuer, frozenset(rules.audience), rules.leeway_seconds
        )
        self._place = rules.place_of_claim
        self._trusted = _trusted_clients(rules)
        self._keys = keys
        self._clock = clock
        self._verified = Verified(MOST_CACHED)
        self._generation = 0

    def identify(self, _tenant_id: str, headers: Headers, _peer: str | None) -> Known:
        """The caller that the Authorization header proves; Unauthorized."""
        given = headers.get("authorization")
        if given is None:
            raise Unauthorized("This needs a token: send it as `Authorization: Bearer <token>`.")
        digest = tokens.digest_of(given)
        known = self._verified.get(digest)
        if (
            known is not None
            and known.generation == self._keys.generation
            and self._clock.monotonic() < known.until
        ):
            return known
        return self._verify(given, digest)

    def _verify(self, given: str, digest: bytes) -> Known:
        """The caller by a token that is looked at for the first time, or again after some minutes."""
        token = tokens.token_of(given)
        # Before the check: keys that change meanwhile must not make it look like one of the new.
        generation = self._keys.generation
        claims = tokens.claims_of(token, self._demands, self._keys, self._clock)
        names = _names_of(claims)
        tenants = frozenset(filter(TENANT_ID.fullmatch, tokens.texts_at(claims, self._place)))
        caller = Caller(names[0] if names else "", tenants, Source.JWT_CLAIM)
        seconds = min(LONGEST_CACHED_SECONDS, tokens.good_for_seconds(claims, self._demands, self._clock))
        known = Known(
            caller, not self._trusted.isdisjoint(names), generation, self._clock.monotonic() + seconds
        )
        if generation != self._generation:
            self._verified.clear()
            self._generation = generation
        self._verified.put(digest, known)
        return known


def _names_of(claims: dict[str, Any]) -> list[str]:
    """What the caller is called in its token, the subject first."""
    found = [claims[name] for name in ("sub", "client_id", "azp") if name in claims]
    if not all(isinstance(name, str) for name in found):
        raise Unauthorized("The sub, client_id or azp of the token is no text.")
    return found


def _trusted_clients(rules: Rules) -> frozenset[str]:
    allowed = rules.allow_header_override_for_trusted_clients
    return frozenset(rules.trusted_clients) if allowed else frozenset()


def by_header(rules: Rules) -> Identify:
    """A gateway has checked the caller, and says its tenant."""
    is_trusted = _peers(rules.trusted_peers)
    name = rules.tenant_header.lower()

    def identify(_tenant_id: str, headers: Headers, peer: str | None) -> Known:
        tenant = headers.get(name)
        if not is_trusted(peer) or tenant is None or TENANT_ID.fullmatch(tenant) is None:
            raise Unauthorized("This is answered through the gateway only, which says the tenant.")
        return Known(Caller("", frozenset((tenant,)), Source.TRUSTED_HEADER), may_name=False)

    return identify


def by_client_cert(rules: Rules) -> Identify:
    """Our proxy has seen the caller's certificate, and says its identity."""
    is_trusted = _peers(rules.trusted_peers)
    trusted_clients = _trusted_clients(rules)
    tenants = {identity: frozenset(names) for identity, names in rules.mtls_tenants.items()}

    @lru_cache(1024)
    def of_value(value: str) -> Known:
        identity = _identity_in(value)
        caller = Caller(identity, tenants.get(identity, frozenset()), Source.MTLS_HEADER)
        return Known(caller, identity in trusted_clients)

    def identify(_tenant_id: str, headers: Headers, peer: str | None) -> Known:
        value = headers.get("x-forwarded-client-cert")
        if not is_trusted(peer) or value is None:
            raise Unauthorized("This is answered through the mesh only, which says the client's identity.")
        return of_value(value)

    return identify


def _identity_in(value: str) -> str:
    """The SPIFFE URI that the nearest proxy has seen.

    One URI, as a SPIFFE certificate has: Envoy writes the URIs of a certificate as they are, so that
    one with a semicolon in it looks like two.
    """
    try:
        uris = client_certs.all_of(client_certs.elements(value)[-1], "uri")
    except client_certs.Malformed:
        raise Unauthorized("The header X-Forwarded-Client-Cert cannot be read.") from None
    if len(uris) != 1 or len(uris[0]) > 2048 or SPIFFE.fullmatch(uris[0]) is None:
        raise Unauthorized("The client's certificate names no SPIFFE identity, or more than one.")
    return uris[0]


def _peers(networks: Iterable[str]) -> Callable[[str | None], bool]:
    """Whether an address is in one of the networks."""
    of = tuple(ipaddress.ip_network(network) for network in networks)

    @lru_cache(4096)
    def is_in(peer: str | None) -> bool:
        try:
            address = ipaddress.ip_address(peer or "")
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in of)

    return is_in


def person_here(tenant_id: str, headers: Headers, peer: str | None) -> Known:
    """The person at the machine of an embedded instance, who may act for every tenant."""
    if not origin.is_at_this_machine(peer, _AnyCase(headers)):
        raise Unauthorized("Without a token this is answered at its own machine only.")
    return Known(Caller("local", frozenset((tenant_id,)), Source.NONE), may_name=False)


class _AnyCase:
    """Headers that are found by names in any case."""

    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    def get(self, name: str, /) -> str | None:
        return self._headers.get(name.lower())
