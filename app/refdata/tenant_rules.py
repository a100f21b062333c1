"""How callers prove which tenants they may act for, as it is configured."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import pydantic
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.access import exposure
from app.kernel import errors

TENANT_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What a tenant may be called, all of it. The one place that says so."""

SPIFFE = re.compile(r"spiffe://[a-z0-9._-]{1,255}(?:/[A-Za-z0-9._-]+)+")
"""The identity of a workload, as its certificate names it."""


class RulesRefused(errors.Refused):
    """The rules of tenants cannot be used as they are written."""

    code = "invalid_config"


class Source(enum.StrEnum):
    """What the tenants of a caller are known from."""

    JWT_CLAIM = "JWT_CLAIM"
    TRUSTED_HEADER = "TRUSTED_HEADER"
    MTLS_HEADER = "MTLS_HEADER"
    NONE = "NONE"


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else _tuple(value)


def _tenant(value: str) -> str:
    if TENANT_ID.fullmatch(value) is None:
        raise ValueError(f"a tenant has to match {TENANT_ID.pattern}")
    return value


def _spiffe(value: str) -> str:
    if len(value) > 2048 or SPIFFE.fullmatch(value) is None:
        raise ValueError("an identity has to be a SPIFFE URI such as spiffe://cluster.local/ns/a/sa/b")
    return value


def _network(value: str) -> str:
    try:
        network = ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("a trusted peer has to be an address or a network such as 10.1.0.0/16") from None
    if network.prefixlen == 0:
        raise ValueError("a network of all addresses trusts everybody")
    return value


_COMMON = {"source", "tenant_header"}
_PEERS = {"trusted_peers"}
_OVERRIDE = {"allow_header_override_for_trusted_clients", "trusted_clients"}
_MEANT_FOR = {
    Source.JWT_CLAIM: _COMMON | _OVERRIDE | {
        "claim", "algorithms", "jwks_file", "jwks_url", "jwks_ca_file", "jwks_refresh_seconds",
        "secret_from_env", "issuer", "audience", "leeway_seconds",
    },
    Source.TRUSTED_HEADER: _COMMON | _PEERS,
    Source.MTLS_HEADER: _COMMON | _OVERRIDE | _PEERS | {"mtls_tenants"},
    Source.NONE: _COMMON,
}  # fmt: skip
"""The settings that do something. Any other is refused: whoever wrote it expects it to."""

Text = Annotated[str, Field(min_length=1, max_length=500)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_texts), Field(max_length=1000)]
Network = Annotated[str, AfterValidator(_network)]
Tenant = Annotated[str, AfterValidator(_tenant)]
Identity = Annotated[str, AfterValidator(_spiffe)]
TenantsOfOne = Annotated[tuple[Tenant, ...], BeforeValidator(_texts), Field(min_length=1)]
Algorithm = Literal["RS256", "ES256", "PS256", "EdDSA", "HS256"]


class Rules(pydantic.BaseModel):
    """How callers prove their tenants: `security.tenant` of the configuration, in its own spelling.

    `claim` is a path through objects, parted by dots; a name with `://` in it is one name, dots and
    all. Its value is a text or a list of texts. HS256 is for development, with its secret in an
    environment variable, and never beside the public keys of the others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)

    source: Annotated[Source, Field(strict=False)] = Source.JWT_CLAIM
    claim: Text = "tenant_id"
    algorithms: Annotated[tuple[Algorithm, ...], BeforeValidator(_tuple), Field(min_length=1)] = (
        "RS256",
        "ES256",
    )
    jwks_file: Text | None = None
    jwks_url: Text | None = None
    jwks_ca_file: Text | None = None
    jwks_refresh_seconds: Annotated[int, Field(ge=30, le=3600)] = 300
    secret_from_env: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,99}$")] | None = None
    issuer: Text | None = None
    audience: Texts = ()
    leeway_seconds: Annotated[int, Field(ge=0, le=300)] = 30
    tenant_header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")] = "X-Tenant-Id"
    allow_header_override_for_trusted_clients: bool = False
    trusted_clients: Texts = ()
    trusted_peers: Annotated[tuple[Network, ...], BeforeValidator(_texts)] = ()
    mtls_tenants: dict[Identity, TenantsOfOne] = {}

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Rules:
        """The rules as they are written; RulesRefused names the first that cannot be, and why."""
        try:
            return cls.model_validate(dict(written))
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(["security.tenant", *(str(part) for part in first["loc"])])
        if first["type"] == "extra_forbidden":
            raise RulesRefused(f"{place} is not a setting.")
        raise RulesRefused(f"{place}: {first['msg'].removeprefix('Value error, ')}.")

    @pydantic.model_validator(mode="after")
    def _is_coherent(self) -> Rules:
        idle = sorted(self.model_fields_set - _MEANT_FOR[self.source])
        if idle:
            raise ValueError(f"{to_camel(idle[0])} does nothing when the source is {self.source}")
        if self.source is Source.JWT_CLAIM:
            self._has_keys()
        if self.source in (Source.TRUSTED_HEADER, Source.MTLS_HEADER) and not self.trusted_peers:
            raise ValueError(f"{self.source} needs trustedPeers: anybody else can write headers, too")
        if self.source is Source.MTLS_HEADER and not self.mtls_tenants:
            raise ValueError("MTLS_HEADER needs mtlsTenants: the tenants of each identity")
        if self.allow_header_override_for_trusted_clients and not self.trusted_clients:
            raise ValueError("allowHeaderOverrideForTrustedClients needs trustedClients: who they are")
        return self

    def _has_keys(self) -> None:
        if [self.jwks_file, self.jwks_url, self.secret_from_env].count(None) != 2:
            raise ValueError("JWT_CLAIM needs jwksFile, jwksUrl or, with HS256, secretFromEnv: one of them")
        if ("HS256" in self.algorithms) != (self.secret_from_env is not None) or (
            "HS256" in self.algorithms and len(self.algorithms) > 1
        ):
            raise ValueError("HS256 stands alone in algorithms, with secretFromEnv and without public keys")
        if self.jwks_url is not None and not _is_safe_url(self.jwks_url):
            raise ValueError("jwksUrl has to be https (http at this machine only) and without a password")
        if self.jwks_ca_file is not None and self.jwks_url is None:
            raise ValueError("jwksCaFile does nothing without jwksUrl")
        if not all(self.place_of_claim):
            raise ValueError("claim has a part without a name")

    @property
    def place_of_claim(self) -> tuple[str, ...]:
        """The names that lead to the claim."""
        return (self.claim,) if "://" in self.claim else tuple(self.claim.split("."))


def _is_safe_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        return False
    if not host or port == 0 or "@" in parts.netloc or parts.fragment or not url.isascii() or " " in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and exposure.is_loopback(host))
