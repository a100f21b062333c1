"""Bearer tokens: signed JSON (RFC 7519), taken only as RFC 8725 says they may be."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import jwt

from app.kernel import errors
from app.kernel.clock import Clock
from app.refdata import strict_json

MOST_BYTES = 8 * 1024
MOST_KID_CHARACTERS = 256
SECRET_BYTES = 32  # RFC 7518 §3.2: as long as the hash

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_KID = re.compile(rf"[\x21-\x7e]{{1,{MOST_KID_CHARACTERS}}}")
_TYPES = ("jwt", "at+jwt", "application/jwt", "application/at+jwt")
_YEAR_10000 = 253_402_300_800


class Unauthorized(errors.Refused):
    """The caller does not say who it is, or not so that it can be believed."""

    code = "unauthorized"


class KeyStore(Protocol):
    """Where the keys are that tokens are checked with."""

    @property
    def generation(self) -> int:
        """Grows whenever a key is no longer what it was."""

    def find(self, kid: str | None, algorithm: str) -> Any:
        """The key of this name and for this algorithm, or None."""


class Secret:
    """The one secret of HS256, whatever a token calls its key."""

    generation = 1

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def find(self, kid: str | None, algorithm: str) -> Any:
        """The secret, for HS256 alone."""
        return self._secret if algorithm == "HS256" else None


@dataclass(frozen=True, slots=True)
class Demands:
    """What a token has to fulfil. Without an issuer any is taken; without audiences, only tokens for none."""

    algorithms: frozenset[str]
    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    leeway_seconds: int = 0


def digest_of(authorization: str) -> bytes:
    """What stands for an Authorization header where the token itself is not kept; Unauthorized: too long."""
    if len(authorization) > MOST_BYTES + len("Bearer "):
        raise Unauthorized(f"The token is longer than {MOST_BYTES} bytes.")
    return hashlib.sha256(authorization.encode("utf-8", "surrogatepass")).digest()


def token_of(authorization: str) -> str:
    """The token of an Authorization header; Unauthorized when it holds anything but one bearer token.

    A header that came twice has been joined with a comma, which no token has.
    """
    scheme, _, token = authorization.partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not _COMPACT.fullmatch(token):
        raise Unauthorized("The Authorization header has to be `Bearer` and one signed token.")
    return token


def claims_of(token: str, demands: Demands, keys: KeyStore, clock: Clock) -> dict[str, Any]:
    """The claims of a token that is signed with a known key and valid now; else Unauthorized.

    No sentence repeats anything of the token. KeysAway while there are no keys at all.
    """
    algorithm, kid = _header_of(token, demands.algorithms)
    key = keys.find(kid, algorithm)
    if key is None:
        raise Unauthorized(
            "The token is signed with a key that is not known here. Keys are read again every few minutes."
        )
    claims = _payload_of(token, algorithm, key)
    _check_time(claims, clock.now().timestamp(), demands.leeway_seconds)
    _check_issuer(claims, demands)
    return claims


def _header_of(token: str, algorithms: Collection[str]) -> tuple[str, str | None]:
    """Which algorithm and key the token asks for.

    `jku`, `x5u`, `jwk` and `x5c` name keys too; nobody is let in on a key of their own bringing,
    so they are not even read.
    """
    try:
        header = strict_json.object_of(jwt.utils.base64url_decode(token.partition(".")[0]))
    except ValueError:
        raise Unauthorized("The header of the token is no JSON object.") from None
    if header.keys() & {"crit", "b64", "zip", "enc"}:
        raise Unauthorized("The header of the token asks for something that is not done here.")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise Unauthorized("The token is of a type that is for something else.")
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise Unauthorized("The token is signed with an algorithm that is not taken here.")
    if kid is not None and not (isinstance(kid, str) and _KID.fullmatch(kid)):
        raise Unauthorized("The header of the token has a kid that no key could have.")
    return algorithm, kid


def _payload_of(token: str, algorithm: str, key: Any) -> dict[str, Any]:
    try:
        content: bytes = _SIGNATURES[algorithm].decode(token, key, algorithms=[algorithm])
    except jwt.PyJWTError:
        raise Unauthorized("The signature of the token is wrong.") from None
    try:
        return strict_json.object_of(content)
    except ValueError:
        raise Unauthorized("The claims of the token are no JSON object.") from None


_SIGNATURES = {name: jwt.PyJWS([name]) for name in ("RS256", "PS256", "ES256", "EdDSA", "HS256")}


def _check_time(claims: dict[str, Any], now: float, leeway: int) -> None:
    if "exp" not in claims:
        raise Unauthorized("The token has no exp: it would never expire.")
    if _moment(claims, "exp") <= now - leeway:
        raise Unauthorized("The token has expired.")
    for name in ("nbf", "iat"):
        if name in claims and _moment(claims, name) > now + leeway:
            raise Unauthorized(f"The token is not valid yet: its {name} is in the future.")


def _moment(claims: dict[str, Any], name: str) -> float:
    found = claims[name]
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < _YEAR_10000:
        raise Unauthorized(f"The {name} of the token is no time.")
    return found


def _check_issuer(claims: dict[str, Any], demands: Demands) -> None:
    if demands.issuer is not None and claims.get("iss") != demands.issuer:
        raise Unauthorized("The token is of another issuer.")
    named = claims.get("aud", [])
    named = [named] if isinstance(named, str) else named
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise Unauthorized("The aud of the token is neither text nor a list of texts.")
    # RFC 7519 §4.1.3: whoever is not among the audience must not take the token.
    if (named or demands.audiences) and not demands.audiences.intersection(named):
        raise Unauthorized("The token is for another audience.")


def good_for_seconds(claims: dict[str, Any], demands: Demands, clock: Clock) -> float:
    """For how long from now the token does not expire."""
    return _moment(claims, "exp") + demands.leeway_seconds - clock.now().timestamp()


def texts_at(claims: dict[str, Any], place: tuple[str, ...]) -> tuple[str, ...]:
    """The texts at this path of the claims, of which there may be none; Unauthorized when it holds others."""
    found: Any = claims
    for name in place:
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        return ()
    if isinstance(found, str):
        return (found,)
    if isinstance(found, list) and all(isinstance(one, str) for one in found):
        return tuple(found)
    raise Unauthorized("The claim of the tenant is neither text nor a list of texts.")
