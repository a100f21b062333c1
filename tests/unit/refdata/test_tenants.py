"""Nobody acts for a tenant that is not theirs, whatever they send."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access import statuses
from app.kernel import errors
from app.kernel.clock import SystemClock
from app.refdata import callers, jwks, tokens
from app.refdata.tenants import (
    Caller,
    Rules,
    RulesRefused,
    Source,
    Tenants,
    Unauthorized,
    WrongTenant,
    received,
)
from tests.conftest import SetClock
from tests.unit.refdata import signing

ISSUER = "https://id.example/realms/one"
SECRET = b"a secret of development, 32 bytes or more"
RULES: dict[str, Any] = {
    "jwksFile": "/nowhere",
    "algorithms": ["RS256", "ES256", "PS256", "EdDSA"],
    "issuer": ISSUER,
    "audience": "refdata",
    "leewaySeconds": 10,
    "allowHeaderOverrideForTrustedClients": True,
    "trustedClients": ["gateway"],
}


class Clock(SetClock):
    """Stands still in both its times until it is moved."""

    def monotonic(self) -> float:
        return self.time.timestamp()

    def move(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Document:
    """A source of keys whose content the test sets."""

    name = "a document"
    every_seconds = again_seconds = 1.0
    follows_unknown_keys = False

    def __init__(self, content: bytes | None) -> None:
        self.content = content

    def read(self) -> bytes | None:
        return self.content


CLOCK = Clock()
NOW = int(CLOCK.now().timestamp())
KEYS = (signing.rsa_jwk("r1"), signing.ec_jwk("e1"), signing.ed_jwk("d1"), signing.rsa_jwk("r2"))


def checking(
    written: dict[str, Any] | None = None, *, clock: Clock = CLOCK, document: Document | None = None
) -> tuple[Tenants, jwks.Jwks]:
    """The check by these rules, and the keys it uses."""
    rules = Rules.of(written or RULES)
    keys = jwks.Jwks(document or Document(signing.jwks(*KEYS)), rules.algorithms, clock)
    keys.renew()
    return Tenants(rules, callers.Bearers(rules, keys, clock).identify), keys


def claims(**more: Any) -> dict[str, Any]:
    """Good claims, with these instead; None: without."""
    found = {"iss": ISSUER, "aud": "refdata", "sub": "somebody", "tenant_id": "acme", "exp": NOW + 60, **more}
    return {name: value for name, value in found.items() if value is not None}


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", **more}


def token(payload: Any = None, **header: Any) -> str:
    """A token that r1 has signed with RS256, whatever its header says."""
    return signing.compact(
        {"alg": "RS256", "kid": "r1", **header}, claims() if payload is None else payload, signing.rs256("r1")
    )


def code_of(tenants: Tenants, tenant: str, headers: dict[str, str], peer: str | None = "192.0.2.1") -> str:
    """The code of the refusal; "" when there is none."""
    try:
        tenants.check(tenant, headers, peer)
    except errors.HeadworksError as error:
        return error.code
    return ""


GOOD = {
    "RS256": signing.compact({"alg": "RS256", "kid": "r1"}, claims(), signing.rs256("r1")),
    "PS256": signing.compact({"alg": "PS256", "kid": "r2"}, claims(), signing.ps256("r2")),
    "ES256": signing.compact({"alg": "ES256", "kid": "e1"}, claims(), signing.es256("e1")),
    "EdDSA": signing.compact({"alg": "EdDSA", "kid": "d1"}, claims(), signing.eddsa("d1")),
    "the only key of its kind": signing.compact({"alg": "ES256"}, claims(), signing.es256("e1")),
    "an access token by its type": token(typ="at+jwt"),
    "an audience among others": token(claims(aud=["billing", "refdata"])),
    "expired within the leeway": token(claims(exp=NOW - 9)),
    "from a clock that is a little ahead": token(claims(nbf=NOW + 9, iat=NOW + 9)),
    "parts of seconds": token(claims(exp=NOW + 0.5)),
    "keys of its own bringing are not looked at": token(
        jku="https://evil.example/keys", x5u="https://evil.example/cert", jwk=signing.rsa_jwk("evil")
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_token_lets_its_tenant_in(name: str) -> None:
    tenants, _ = checking()
    expected = Caller("somebody", frozenset({"acme"}), Source.JWT_CLAIM)
    assert tenants.check("acme", bearer(GOOD[name]), "192.0.2.1") == expected
    assert code_of(tenants, "other", bearer(GOOD[name])) == "tenant_mismatch"


@pytest.mark.parametrize("scheme", ["bearer ", "BEARER ", "Bearer   "])
def test_the_scheme_is_known_in_any_case(scheme: str) -> None:
    tenants, _ = checking()
    assert code_of(tenants, "acme", {"authorization": f"{scheme}{GOOD['RS256']}"}) == ""


def evil_signed(**header: Any) -> str:
    return signing.compact({"alg": "RS256", **header}, claims(), signing.rs256("evil"))


def tampered(part: int) -> str:
    parts = GOOD["RS256"].split(".")
    parts[part] = parts[part][:10] + ("A" if parts[part][10] != "A" else "B") + parts[part][11:]
    return ".".join(parts)


NOTHING: signing.Sign = lambda _content: b""  # noqa: E731
PEM = signing.public_pem("r1")
DEEP = b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}"

ATTACKS = {
    # what it is                                      what is sent
    "no token": {},
    "an empty header": {"authorization": ""},
    "a scheme alone": {"authorization": "Bearer"},
    "a scheme and blanks": {"authorization": "Bearer  "},
    "another scheme": {"authorization": f"Basic {GOOD['RS256']}"},
    "no scheme": {"authorization": GOOD["RS256"]},
    "a tab between": {"authorization": f"Bearer\t{GOOD['RS256']}"},
    "two tokens": {"authorization": f"Bearer {GOOD['RS256']} {GOOD['RS256']}"},
    "two headers, both good": {"authorization": f"Bearer {GOOD['RS256']}, Bearer {GOOD['RS256']}"},
    "two headers, joined as gunicorn does": {
        "authorization": f"Bearer {GOOD['RS256']},Bearer {GOOD['RS256']}"
    },
    "a good header, then a bad one": {"authorization": f"Bearer {GOOD['RS256']}, Basic YTpi"},
    "an opaque token": bearer("2YotnFZFEjr1zCsicMWpAA"),
    "two parts": bearer(GOOD["RS256"].rpartition(".")[0]),
    "an empty signature": bearer(GOOD["RS256"].rpartition(".")[0] + "."),
    "four parts": bearer(f"{GOOD['RS256']}.AAAA"),
    "an encrypted token": bearer("eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.a.b.c.d"),
    "another spelling of the signature": bearer(GOOD["RS256"] + "="),
    "a changed header": bearer(tampered(0)),
    "changed claims": bearer(tampered(1)),
    "a changed signature": bearer(tampered(2)),
    "letters that are not ASCII": bearer(GOOD["RS256"][:-1] + "é"),
    "a lone surrogate": bearer("\udc80"),
    # algorithms
    "none": bearer(signing.compact({"alg": "none"}, claims(), NOTHING)),
    "none and a signature": bearer(
        signing.compact({"alg": "none", "kid": "r1"}, claims(), signing.rs256("r1"))
    ),
    "None": bearer(signing.compact({"alg": "None", "kid": "r1"}, claims(), signing.rs256("r1"))),
    "HS256 with the public key as secret": bearer(
        signing.compact({"alg": "HS256", "kid": "r1"}, claims(), signing.hs256(PEM))
    ),
    "HS256 with the public key, without its last line end": bearer(
        signing.compact({"alg": "HS256", "kid": "r1"}, claims(), signing.hs256(PEM.rstrip()))
    ),
    "RS256 said, HS256 done": bearer(
        signing.compact({"alg": "RS256", "kid": "r1"}, claims(), signing.hs256(PEM))
    ),
    "HS256 with nothing": bearer(signing.compact({"alg": "HS256"}, claims(), signing.hs256(b""))),
    "an algorithm of the library that is not taken here": bearer(token(alg="RS512")),
    "an algorithm in lower case": bearer(token(alg="rs256")),
    "an algorithm that is a list": bearer(token(alg=["RS256"])),
    "no algorithm": bearer(token(alg=None)),
    "ES256 with the RSA key": bearer(token(alg="ES256")),
    "an ES256 signature of zeros": bearer(
        signing.compact({"alg": "ES256", "kid": "e1"}, claims(), lambda _: b"\0" * 64)
    ),
    "PS256 said, RS256 done": bearer(token(alg="PS256")),
    # names of keys
    "somebody else's key": bearer(evil_signed(kid="r1")),
    "somebody else's key under its own name": bearer(evil_signed(kid="evil")),
    "a key that comes along": bearer(evil_signed(jwk=signing.rsa_jwk("evil"))),
    "a key at an address that comes along": bearer(evil_signed(kid="evil", jku="https://evil.example/keys")),
    "a certificate at an address that comes along": bearer(evil_signed(x5u="https://evil.example/cert")),
    "no name where there are two keys": bearer(
        signing.compact({"alg": "RS256"}, claims(), signing.rs256("r1"))
    ),
    "another's good name": bearer(token(kid="r2")),
    "a path as name": bearer(token(kid="../../../../dev/null")),
    "an address as name": bearer(token(kid="https://evil.example/keys")),
    "SQL as name": bearer(token(kid="x' UNION SELECT 'r1")),
    "a zero byte in the name": bearer(token(kid="r1\0")),
    "a huge name": bearer(token(kid="r" * 3000)),
    "an empty name": bearer(token(kid="")),
    "a number as name": bearer(token(kid=1)),
    "a list as name": bearer(token(kid=["r1"])),
    "an object as name": bearer(token(kid={"r1": 1})),
    # the header
    "crit": bearer(token(crit=["exp"], exp=NOW)),
    "crit that is empty": bearer(token(crit=[])),
    "b64": bearer(token(b64=False)),
    "zip": bearer(token(zip="DEF")),
    "a token for something else": bearer(token(typ="logout+jwt")),
    "a type that is a number": bearer(token(typ=1)),
    "a header that is a list": bearer(signing.compact(["RS256"], claims(), signing.rs256("r1"))),
    "a header that is no JSON": bearer(signing.compact(b"{", claims(), signing.rs256("r1"))),
    "a header that is no UTF-8": bearer(signing.compact(b'{"alg":"\xff"}', claims(), signing.rs256("r1"))),
    "alg twice": bearer(
        signing.compact(b'{"alg":"none","alg":"RS256","kid":"r1"}', claims(), signing.rs256("r1"))
    ),
    # size
    "a token of more than 8 KiB": bearer(token(claims(x="x" * 9000))),
    "a header of a megabyte": bearer("a" * 1_000_000),
    "nesting in the header": bearer(signing.compact(DEEP[:5000], claims(), signing.rs256("r1"))),
    # claims that the issuer has signed, and must not have
    "nesting in the claims": bearer(token(b'{"tenant_id":' + b"[" * 2500 + b"]" * 2500 + b"}")),
    "a number of thousands of digits": bearer(token(b'{"exp":' + b"9" * 5000 + b"}")),
    "an exp of 41 digits": bearer(token(b'{"tenant_id":"acme","exp":' + b"9" * 41 + b"}")),
    "claims that are a list": bearer(token([claims()])),
    "claims that are no JSON": bearer(token(b"acme")),
    "a tenant twice": bearer(token(json.dumps(claims()).encode()[:-1] + b', "tenant_id": "other"}')),
    "no exp": bearer(token(claims(exp=None))),
    "an exp that is null": bearer(token(json.dumps({**claims(), "exp": None}).encode())),
    "an exp as text": bearer(token(claims(exp=str(NOW + 60)))),
    "an exp that is true": bearer(token(claims(exp=True))),
    "an exp that is a list": bearer(token(claims(exp=[NOW + 60]))),
    "an exp that never comes": bearer(token(json.dumps(claims(exp=math.inf)).encode())),
    "an exp that overflows": bearer(token(b'{"tenant_id":"acme","exp":1e999}')),
    "an exp that is not a number": bearer(token(json.dumps(claims(exp=math.nan)).encode())),
    "an exp after the year 9999": bearer(token(claims(exp=10**18))),
    "a negative exp": bearer(token(claims(exp=-1))),
    "expired": bearer(token(claims(exp=NOW - 10))),
    "not yet valid": bearer(token(claims(nbf=NOW + 11))),
    "from the future": bearer(token(claims(iat=NOW + 11))),
    "an iat that is true": bearer(token(claims(iat=True))),
    "an iat as text": bearer(token(claims(iat="now"))),
    "another issuer": bearer(token(claims(iss="https://evil.example"))),
    "an issuer with a slash more": bearer(token(claims(iss=f"{ISSUER}/"))),
    "issuers in a list": bearer(token(claims(iss=[ISSUER]))),
    "no issuer": bearer(token(claims(iss=None))),
    "another audience": bearer(token(claims(aud="billing"))),
    "a part of the audience": bearer(token(claims(aud="ref"))),
    "no audience": bearer(token(claims(aud=None))),
    "an empty audience": bearer(token(claims(aud=[]))),
    "an audience that is an object": bearer(token(claims(aud={"refdata": 1}))),
    "an audience of numbers": bearer(token(claims(aud=["refdata", 1]))),
    "a subject that is a list": bearer(token(claims(sub=["gateway"]))),
    "a tenant that is a number": bearer(token(claims(tenant_id=1))),
    "a tenant that is an object": bearer(token(claims(tenant_id={"acme": 1}))),
    "tenants in a list of lists": bearer(token(claims(tenant_id=[["acme"]]))),
    "a tenant and a number": bearer(token(claims(tenant_id=["acme", 1]))),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_nobody(attack: str) -> None:
    """Twice: what was refused must not have been remembered as verified."""
    tenants, _ = checking()
    assert code_of(tenants, "acme", ATTACKS[attack]) == "unauthorized"
    assert code_of(tenants, "acme", ATTACKS[attack]) == "unauthorized"


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_sentence_repeats_a_part_of_the_token(attack: str) -> None:
    tenants, _ = checking()
    with pytest.raises(Unauthorized) as refusal:
        tenants.check("acme", ATTACKS[attack], "192.0.2.1")
    sent = ATTACKS[attack].get("authorization", "")
    assert not [
        part for part in re.split("[ .,=\t]", sent) if len(part) > 8 and part in refusal.value.sentence
    ]
    assert "evil" not in refusal.value.sentence
    # Nor does what a log writes of it, with all that led to it.
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__


class Asked:
    """A store of keys that has every key, and remembers what it was asked for."""

    generation = 1

    def __init__(self) -> None:
        self.names: list[tuple[str | None, str]] = []

    def find(self, kid: str | None, algorithm: str) -> Any:
        self.names.append((kid, algorithm))
        return signing.rsa_key("r1").public_key()


NOT_LOOKED_UP: list[dict[str, Any]] = [
    {"alg": "HS256"},
    {"alg": "RS512"},
    {"alg": "none"},
    {"crit": ["exp"], "exp": 1},
    {"crit": []},
    {"b64": False, "crit": ["b64"]},
    {"enc": "A256GCM"},
    {"typ": "logout+jwt"},
    {"kid": "r" * 257},
    {"kid": "r 1"},
    {"kid": "r\n1"},
    {"kid": "ключ"},
    {"kid": ""},
]


@pytest.mark.parametrize("header", NOT_LOOKED_UP)
def test_no_key_is_looked_up_for_what_is_not_taken_anyway(header: dict[str, Any]) -> None:
    """Whatever the store would say: it may be slow, or mean well."""
    store = Asked()
    demands = tokens.Demands(frozenset({"RS256", "ES256"}))
    with pytest.raises(Unauthorized):
        tokens.claims_of(token(**header), demands, store, CLOCK)
    assert store.names == []


def test_the_secret_is_for_its_algorithm_alone() -> None:
    store = tokens.Secret(SECRET)
    assert [store.find("r1", name) for name in ("HS256", "RS256", "none")] == [SECRET, None, None]


NO_TOKENS = [
    "a.b",
    "a.b.c.d",
    "a.b.c,d.e.f",
    "a.b.c, Bearer d.e.f",
    "a.b.c=",
    "a.b.c\n",
    "a..c",
    "a.b.",
    ".b.c",
    "é.b.c",
]


@pytest.mark.parametrize("text", NO_TOKENS)
def test_only_one_signed_token_stands_in_the_header(text: str) -> None:
    assert tokens.token_of("Bearer a.b-_9.c") == "a.b-_9.c"
    with pytest.raises(Unauthorized):
        tokens.token_of(f"Bearer {text}")


MISMATCHES = {
    # a good caller, and what it asks for          the claim
    "another tenant": "other",
    "no tenant at all": None,
    "no tenants": [],
    "an empty tenant": "",
    "every tenant, as some write it": "*",
    "a list as text": "acme,other",
    "the tenant in capitals": "ACME",
    "the tenant and a line end": "acme\n",
    "the tenant and a zero byte": "acme\0",
    "the beginning of the tenant": "acm",
    "more than the tenant": "acme2",
    "look-alikes": "аcme",  # with a Cyrillic а
    "in a list, other ones": ["other", "acme ", "*"],
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_caller_of_another_tenant_is_refused(name: str) -> None:
    tenants, _ = checking()
    sent = bearer(token(claims(tenant_id=MISMATCHES[name])))
    assert code_of(tenants, "acme", sent) == "tenant_mismatch"
    assert code_of(tenants, "acme", sent) == "tenant_mismatch"


NO_TENANTS = ["", "a" * 65, "a/b", "a b", "a%2fb", "acme\n", "акме", "a\0", "*", "a:b", "a;b", "{tenantId}"]


@pytest.mark.parametrize("tenant", NO_TENANTS)
def test_what_is_no_tenants_name_is_refused_before_anything_else(tenant: str) -> None:
    def identify(*_: Any) -> callers.Known:
        raise AssertionError("asked who it is")

    with pytest.raises(errors.Refused) as refusal:
        Tenants(Rules.of(RULES), identify).check(tenant, {}, None)
    assert statuses.status_of(refusal.value) == 422


def test_the_codes_have_their_statuses() -> None:
    assert [statuses.status_of(error()) for error in (Unauthorized, WrongTenant, jwks.KeysAway)] == [
        401,
        403,
        503,
    ]


PLACES = [
    # claim                      claims                                              tenants
    ("tenant_id", {"tenant_id": "acme"}, {"acme"}),
    ("tenant_id", {"tenant_id": ["acme", "other"]}, {"acme", "other"}),
    ("groups", {"groups": ["acme", "/admins", "a b"]}, {"acme"}),
    ("org.tenant", {"org": {"tenant": "acme"}}, {"acme"}),
    ("org.tenant", {"org.tenant": "acme"}, set()),
    ("org.tenant", {"org": "tenant"}, set()),
    ("org.tenant", {"org": [{"tenant": "acme"}]}, set()),
    ("org.tenant", {"tenant": "acme"}, set()),
    ("https://id.example/tenant", {"https://id.example/tenant": "acme"}, {"acme"}),
]


@pytest.mark.parametrize(("claim", "more", "expected"), PLACES)
def test_the_claim_is_where_the_rules_say(claim: str, more: dict[str, Any], expected: set[str]) -> None:
    tenants, _ = checking({**RULES, "claim": claim})
    sent = bearer(token({**claims(tenant_id=None), **more}))
    found = {tenant for tenant in ("acme", "other", "tenant") if code_of(tenants, tenant, sent) == ""}
    assert found == expected
    for tenant in found:
        assert tenants.check(tenant, sent, None).tenants == expected


OVERRIDES = [
    # sub, client_id, azp             claim    path     header    code
    ({"sub": "gateway"}, "acme", "other", "other", ""),
    ({"sub": "gateway"}, None, "other", "other", ""),
    ({"client_id": "gateway"}, None, "other", "other", ""),
    ({"azp": "gateway"}, None, "other", "other", ""),
    ({"sub": "gateway"}, "acme", "acme", "acme", ""),
    ({"sub": "gateway"}, "acme", "acme", None, ""),
    ({"sub": "gateway"}, "acme", "other", None, "tenant_mismatch"),  # nothing named
    ({"sub": "gateway"}, "acme", "other", "third", "tenant_mismatch"),
    ({"sub": "gateway"}, "acme", "acme", "other", "tenant_mismatch"),
    ({"sub": "gateway"}, "acme", "other", "other, acme", "tenant_mismatch"),  # the header twice
    ({"sub": "gateway"}, "acme", "other", "", "tenant_mismatch"),
    ({"sub": "somebody"}, "acme", "acme", "acme", ""),
    ({"sub": "somebody"}, "acme", "other", "other", "tenant_mismatch"),
    ({"sub": "somebody"}, "acme", "acme", "other", "tenant_mismatch"),
    ({"sub": "Gateway"}, "acme", "other", "other", "tenant_mismatch"),
    ({"sub": ""}, "acme", "other", "other", "tenant_mismatch"),
    ({"name": "gateway"}, "acme", "other", "other", "tenant_mismatch"),
    ({}, "acme", "other", "other", "tenant_mismatch"),
]


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize(("names", "claim", "path", "header", "code"), OVERRIDES)
def test_only_a_trusted_client_names_a_tenant_by_header(
    names: dict[str, str], claim: str | None, path: str, header: str | None, code: str, allowed: bool
) -> None:
    tenants, _ = checking({**RULES, "allowHeaderOverrideForTrustedClients": allowed})
    sent = bearer(token({**claims(sub=None, tenant_id=claim), **names}))
    if header is not None:
        sent["x-tenant-id"] = header
    needs_trust = claim != path
    assert code_of(tenants, path, sent) == (code if allowed or not needs_trust else "tenant_mismatch")


def test_a_tenant_that_was_named_by_header_is_no_other_requests_tenant() -> None:
    tenants, _ = checking()
    sent = bearer(token(claims(sub="gateway")))
    found = tenants.check("other", {**sent, "x-tenant-id": "other"}, None)
    assert found == Caller("gateway", frozenset({"other"}), Source.TRUSTED_HEADER)
    assert code_of(tenants, "other", sent) == "tenant_mismatch"


NAMES = st.text(st.sampled_from("ab.-_*, /A"), max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
HS256 = Tenants(
    Rules.of({"algorithms": ["HS256"], "secretFromEnv": "S", "claim": "a.b"}),
    callers.Bearers(
        Rules.of({"algorithms": ["HS256"], "secretFromEnv": "S", "claim": "a.b"}),
        tokens.Secret(SECRET),
        CLOCK,
    ).identify,
)


@given(
    payload=st.fixed_dictionaries(
        {"exp": st.just(NOW + 60)},
        optional={
            "a": st.fixed_dictionaries({}, optional={"b": JSON | st.lists(NAMES, max_size=4)}) | JSON,
            "b": JSON,
            "a.b": NAMES,
            "sub": JSON,
            "azp": NAMES,
            "tenant_id": NAMES,
        },
    ),
    tenant=NAMES,
    header=st.none() | NAMES,
)
def test_nobody_gets_a_tenant_that_is_not_in_the_claim(
    payload: dict[str, Any], tenant: str, header: str | None
) -> None:
    sent = bearer(signing.compact({"alg": "HS256"}, payload, signing.hs256(SECRET)))
    if header is not None:
        sent["x-tenant-id"] = header
    inner = payload.get("a")
    claim = inner.get("b") if isinstance(inner, dict) else None
    stated = {claim} if isinstance(claim, str) else set(claim) if _is_texts(claim) else set()
    try:
        found = HS256.check(tenant, sent, "192.0.2.1")
    except errors.Refused as error:
        named = header is None or header == tenant
        valid = all(isinstance(payload.get(name, ""), str) for name in ("sub", "azp"))
        assert not (tenant in stated and named and valid and error.code != "invalid_request")
    else:
        assert tenant in found.tenants <= stated


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


# What is remembered


def test_what_was_verified_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tenants, _ = checking()
    first = tenants.check("acme", bearer(GOOD["RS256"]), None)
    monkeypatch.setattr(tokens, "claims_of", lambda *_: pytest.fail("verified again"))
    assert tenants.check("acme", bearer(GOOD["RS256"]), None) is first


@pytest.mark.parametrize(("expires_in", "seconds"), [(60, 70), (3600, 300)])
def test_what_was_verified_is_forgotten_when_it_expires_and_after_five_minutes(
    expires_in: int, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    tenants, _ = checking(clock=clock)
    sent = bearer(token(claims(exp=NOW + expires_in)))
    tenants.check("acme", sent, None)
    looked: list[str] = []
    real = tokens.claims_of
    monkeypatch.setattr(tokens, "claims_of", lambda *given: looked.append(given[0]) or real(*given))
    clock.move(seconds - 1)
    tenants.check("acme", sent, None)
    assert looked == []
    clock.move(1)
    assert code_of(tenants, "acme", sent) == ("unauthorized" if expires_in < 300 else "")
    assert len(looked) == 1


def test_other_keys_make_everything_forgotten() -> None:
    document = Document(signing.jwks(*KEYS))
    tenants, keys = checking(document=document)
    sent = bearer(GOOD["RS256"])
    assert code_of(tenants, "acme", sent) == ""
    document.content = signing.jwks(signing.rsa_jwk("r2"))
    keys.renew()
    assert code_of(tenants, "acme", sent) == "unauthorized"


def test_keys_that_change_during_a_check_do_not_leave_it_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    document = Document(signing.jwks(*KEYS))
    tenants, keys = checking(document=document)
    real = tokens.claims_of

    def interrupted(*given: Any) -> dict[str, Any]:
        found = real(*given)
        document.content = signing.jwks(signing.rsa_jwk("r2"))
        keys.renew()
        return found

    monkeypatch.setattr(tokens, "claims_of", interrupted)
    assert code_of(tenants, "acme", bearer(GOOD["RS256"])) == ""  # it was good when it was checked
    monkeypatch.setattr(tokens, "claims_of", real)
    assert code_of(tenants, "acme", bearer(GOOD["RS256"])) == "unauthorized"


def test_no_more_is_remembered_than_fits_and_what_is_in_use_stays() -> None:
    verified = callers.Verified(100)
    known = callers.Known(Caller("", frozenset(), Source.NONE), may_name=False)
    for number in range(1000):
        verified.put(number.to_bytes(4), known)
        if number >= 10:
            assert verified.get((10).to_bytes(4)) is known
        assert len(verified) <= 100
    assert verified.get((11).to_bytes(4)) is None
    assert verified.get((999).to_bytes(4)) is known


def test_no_token_is_kept() -> None:
    rules = Rules.of(RULES)
    keys = jwks.Jwks(Document(signing.jwks(*KEYS)), rules.algorithms, CLOCK)
    keys.renew()
    bearers = callers.Bearers(rules, keys, CLOCK)
    Tenants(rules, bearers.identify).check("acme", bearer(GOOD["RS256"]), None)
    kept = repr(vars(bearers._verified))
    assert "acme" in kept
    assert not [part for part in GOOD["RS256"].split(".") if part in kept]


# Other ways to say who one is


MESH = {
    "source": "MTLS_HEADER",
    "trustedPeers": ["10.1.0.0/16", "::1"],
    "mtlsTenants": {"spiffe://prod/ns/a/sa/one": ["acme", "other"], "spiffe://prod/ns/a/sa/two": "third"},
    "trustedClients": ["spiffe://prod/ns/a/sa/gate"],
    "allowHeaderOverrideForTrustedClients": True,
}
ONE = "By=spiffe://prod/ns/r/sa/refdata;Hash=468ed33b;URI=spiffe://prod/ns/a/sa/one"
TWO = ONE.replace("sa/one", "sa/two")
GATE = ONE.replace("sa/one", "sa/gate")

IN_THE_MESH = [
    # header                          peer              tenant     code
    (ONE, "10.1.2.3", "acme", ""),
    (ONE, "::ffff:10.1.2.3", "other", ""),
    (ONE, "::1", "acme", ""),
    (ONE.replace("URI=", "uri="), "::1", "acme", ""),
    (ONE.replace("URI=", 'Subject="CN=a,b;c=\\"d\\"";URI='), "::1", "acme", ""),
    (f"{TWO},{ONE}", "10.1.2.3", "acme", ""),
    (f"{TWO}, {ONE}", "10.1.2.3", "acme", ""),
    (ONE, "10.1.2.3", "third", "tenant_mismatch"),
    (f"{ONE},{TWO}", "10.1.2.3", "acme", "tenant_mismatch"),  # the first is the client's own word
    (ONE.replace("sa/one", "sa/nobody"), "10.1.2.3", "acme", "tenant_mismatch"),
    (GATE, "10.1.2.3", "acme", "tenant_mismatch"),
    (ONE, "10.2.2.3", "acme", "unauthorized"),  # around the proxy
    (ONE, "192.0.2.1", "acme", "unauthorized"),
    (ONE, "::ffff:192.0.2.1", "acme", "unauthorized"),
    (ONE, "", "acme", "unauthorized"),
    (ONE, None, "acme", "unauthorized"),
    (ONE, "10.1.2.3, 192.0.2.1", "acme", "unauthorized"),
    (None, "10.1.2.3", "acme", "unauthorized"),
    ("", "10.1.2.3", "acme", "unauthorized"),
    (f"{ONE},", "10.1.2.3", "acme", "unauthorized"),
    (f"{ONE};URI=spiffe://prod/ns/a/sa/two", "10.1.2.3", "acme", "unauthorized"),
    (f"{ONE};URI=spiffe://prod/ns/a/sa/one", "10.1.2.3", "acme", "unauthorized"),
    (f"{ONE},By=x;Hash=y", "10.1.2.3", "acme", "unauthorized"),
    (f"{ONE},By=x;Hash=y;URI=", "10.1.2.3", "acme", "unauthorized"),
    (ONE.replace("spiffe:", "SPIFFE:"), "10.1.2.3", "acme", "unauthorized"),
    (ONE + "/../two", "10.1.2.3", "third", "tenant_mismatch"),
    (ONE + "?x=1", "10.1.2.3", "acme", "unauthorized"),
    # a quote that the client leaves open must not swallow what the proxy writes behind it
    (f'URI=spiffe://prod/ns/a/sa/one;Subject=",{TWO}', "10.1.2.3", "acme", "unauthorized"),
    (
        'By=x;URI=spiffe://prod/ns/a/sa/one;Subject=",By=y;Hash=z;Subject="";URI=spiffe://prod/ns/a/sa/two',
        "10.1.2.3", "acme", "unauthorized",
    ),
    (f'By="\\",{ONE}', "10.1.2.3", "acme", "unauthorized"),
    ("[{" + ONE + "}]", "10.1.2.3", "acme", "unauthorized"),
    (ONE + ";Chain=" + "x" * 40_000, "10.1.2.3", "acme", "unauthorized"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "peer", "tenant", "code"), IN_THE_MESH)
def test_the_mesh_says_who_calls(value: str | None, peer: str | None, tenant: str, code: str) -> None:
    tenants = Tenants.open(Rules.of(MESH), CLOCK, {}, embedded=False)
    sent = {} if value is None else {"x-forwarded-client-cert": value}
    assert code_of(tenants, tenant, sent, peer) == code
    assert code_of(tenants, tenant, sent, peer) == code


def test_a_trusted_client_in_the_mesh_names_its_tenant() -> None:
    tenants = Tenants.open(Rules.of(MESH), CLOCK, {}, embedded=False)
    sent = {"x-forwarded-client-cert": GATE, "x-tenant-id": "any"}
    expected = Caller("spiffe://prod/ns/a/sa/gate", frozenset({"any"}), Source.TRUSTED_HEADER)
    assert tenants.check("any", sent, "10.1.2.3") == expected
    assert code_of(tenants, "any", {**sent, "x-forwarded-client-cert": ONE}, "10.1.2.3") == "tenant_mismatch"
    assert code_of(tenants, "any", sent, "192.0.2.1") == "unauthorized"


BEHIND_A_GATEWAY = [
    # X-Tenant-Id    peer          tenant     code
    ("acme", "10.1.2.3", "acme", ""),
    ("acme", "10.1.2.3", "other", "tenant_mismatch"),
    ("acme", "10.2.2.3", "acme", "unauthorized"),
    ("acme", None, "acme", "unauthorized"),
    (None, "10.1.2.3", "acme", "unauthorized"),
    ("", "10.1.2.3", "acme", "unauthorized"),
    ("acme, other", "10.1.2.3", "acme", "unauthorized"),
]


@pytest.mark.parametrize(("value", "peer", "tenant", "code"), BEHIND_A_GATEWAY)
def test_a_gateway_says_the_tenant(value: str | None, peer: str | None, tenant: str, code: str) -> None:
    rules = Rules.of({"source": "TRUSTED_HEADER", "trustedPeers": "10.1.0.0/16"})
    tenants = Tenants.open(rules, CLOCK, {}, embedded=False)
    assert code_of(tenants, tenant, {} if value is None else {"x-tenant-id": value}, peer) == code


AT_THE_MACHINE = [
    # peer          more headers                          code
    ("127.0.0.1", {"host": "localhost:8000"}, ""),
    ("::1", {"host": "[::1]:8000"}, ""),
    ("127.0.0.1", {"host": "127.0.0.1", "x-tenant-id": "acme"}, ""),
    ("127.0.0.1", {"host": "127.0.0.1", "x-tenant-id": "other"}, "tenant_mismatch"),
    ("192.0.2.1", {"host": "localhost"}, "unauthorized"),
    ("127.0.0.1", {"host": "rebound.example"}, "unauthorized"),
    ("127.0.0.1", {}, "unauthorized"),
    ("127.0.0.1", {"host": "localhost", "x-forwarded-for": "127.0.0.1"}, "unauthorized"),
    ("127.0.0.1", {"host": "localhost", "forwarded": "for=127.0.0.1"}, "unauthorized"),
    (None, {"host": "localhost"}, "unauthorized"),
]


@pytest.mark.parametrize(("peer", "headers", "code"), AT_THE_MACHINE)
def test_without_proof_only_the_machine_itself_is_answered(
    peer: str | None, headers: dict[str, str], code: str
) -> None:
    tenants = Tenants.open(Rules.of({"source": "NONE"}), CLOCK, {}, embedded=True)
    assert code_of(tenants, "acme", headers, peer) == code


def test_without_proof_there_is_only_the_embedded_instance() -> None:
    with pytest.raises(RulesRefused, match="embedded"):
        Tenants.open(Rules.of({"source": "NONE"}), CLOCK, {}, embedded=False)


# The rules


REFUSED = [
    # written                                                what the sentence says
    ({}, "needs jwksFile, jwksUrl"),
    ({"jwksFile": "a", "jwksUrl": "https://id.example/"}, "one of them"),
    ({"jwksFile": "a", "clams": "x"}, "security.tenant.clams is not a setting."),
    ({"jwksFile": "a", "jwks_file": "a"}, "security.tenant.jwks_file is not a setting."),
    ({"source": "MAGIC"}, "security.tenant.source"),
    ({"jwksFile": "a", "algorithms": ["none"]}, "security.tenant.algorithms.0"),
    ({"jwksFile": "a", "algorithms": ["RS512"]}, "security.tenant.algorithms.0"),
    ({"jwksFile": "a", "algorithms": []}, "security.tenant.algorithms"),
    ({"jwksFile": "a", "algorithms": ["HS256"]}, "HS256 stands alone"),
    ({"secretFromEnv": "S", "algorithms": ["HS256", "RS256"]}, "HS256 stands alone"),
    ({"secretFromEnv": "S"}, "HS256 stands alone"),
    ({"secretFromEnv": "S", "jwksFile": "a", "algorithms": ["HS256"]}, "one of them"),
    ({"secretFromEnv": "lower", "algorithms": ["HS256"]}, "security.tenant.secretFromEnv"),
    ({"jwksFile": "a", "leewaySeconds": 301}, "security.tenant.leewaySeconds"),
    ({"jwksFile": "a", "leewaySeconds": -1}, "security.tenant.leewaySeconds"),
    ({"jwksFile": "a", "leewaySeconds": "10"}, "security.tenant.leewaySeconds"),
    ({"jwksFile": "a", "claim": ""}, "security.tenant.claim"),
    ({"jwksFile": "a", "claim": "a..b"}, "a part without a name"),
    ({"jwksFile": "a", "issuer": ""}, "security.tenant.issuer"),
    ({"jwksFile": "a", "audience": [1]}, "security.tenant.audience.0"),
    ({"jwksFile": "a", "allowHeaderOverrideForTrustedClients": True}, "needs trustedClients"),
    ({"jwksFile": "a", "trustedPeers": ["10.0.0.0/8"]}, "trustedPeers does nothing"),
    ({"jwksFile": "a", "mtlsTenants": {"spiffe://a/b": "c"}}, "mtlsTenants does nothing"),
    ({"jwksFile": "a", "jwksCaFile": "b"}, "jwksCaFile does nothing"),
    ({"jwksUrl": "http://id.example/keys"}, "https"),
    ({"jwksUrl": "http://127.0.0.1.evil.example/keys"}, "https"),
    ({"jwksUrl": "https://user:pass@id.example/keys"}, "without a password"),
    ({"jwksUrl": "file:///etc/passwd"}, "https"),
    ({"jwksUrl": "ftp://127.0.0.1/keys"}, "https"),
    ({"jwksUrl": "https:///keys"}, "https"),
    ({"jwksUrl": "https://id.example:port/"}, "https"),
    ({"source": "TRUSTED_HEADER"}, "needs trustedPeers"),
    ({"source": "TRUSTED_HEADER", "trustedPeers": ["0.0.0.0/0"]}, "trusts everybody"),
    ({"source": "TRUSTED_HEADER", "trustedPeers": ["::/0"]}, "trusts everybody"),
    ({"source": "TRUSTED_HEADER", "trustedPeers": ["gateway"]}, "an address or a network"),
    ({"source": "TRUSTED_HEADER", "trustedPeers": ["10.1.2.3/8"]}, "an address or a network"),
    ({"source": "TRUSTED_HEADER", "trustedPeers": "10.1.2.3", "tenantHeader": "X: Y"}, "tenantHeader"),
    (
        {"source": "TRUSTED_HEADER", "trustedPeers": "10.1.2.3", "trustedClients": ["a"]},
        "trustedClients does nothing",
    ),
    ({**MESH, "trustedPeers": []}, "needs trustedPeers"),
    ({**MESH, "mtlsTenants": {}}, "needs mtlsTenants"),
    ({**MESH, "mtlsTenants": {"spiffe://a/b": []}}, "mtlsTenants.spiffe://a/b"),
    ({**MESH, "mtlsTenants": {"spiffe://a/b": "c d"}}, "a tenant has to match"),
    ({**MESH, "mtlsTenants": {"spiffe://*/b": "c"}}, "SPIFFE URI"),
    ({**MESH, "issuer": "x"}, "issuer does nothing"),
    ({"source": "NONE", "jwksFile": "a"}, "jwksFile does nothing"),
]


@pytest.mark.parametrize(("written", "sentence"), REFUSED)
def test_rules_that_cannot_be_are_refused_with_a_sentence(written: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RulesRefused) as refusal:
        Rules.of(written)
    assert sentence in refusal.value.sentence
    assert "security.tenant" in refusal.value.sentence
    assert refusal.value.sentence.endswith(".")


def test_the_specs_example_needs_nothing_but_keys() -> None:
    written = {"source": "JWT_CLAIM", "claim": "tenant_id", "allowHeaderOverrideForTrustedClients": False}
    found = Rules.of({**written, "jwksUrl": "https://id.example/keys"})
    assert (found.source, found.place_of_claim, found.algorithms) == (
        Source.JWT_CLAIM,
        ("tenant_id",),
        ("RS256", "ES256"),
    )


@pytest.mark.parametrize("secret", ["", "short", "x" * 31])
def test_a_secret_that_can_be_guessed_is_refused_and_not_repeated(secret: str) -> None:
    rules = Rules.of({"algorithms": ["HS256"], "secretFromEnv": "TENANTS_SECRET"})
    with pytest.raises(RulesRefused, match="TENANTS_SECRET has") as refusal:
        Tenants.open(rules, CLOCK, {"TENANTS_SECRET": secret}, embedded=False)
    assert not secret or secret not in refusal.value.sentence


def test_a_secret_of_development_checks_its_tokens_and_no_others() -> None:
    rules = Rules.of({"algorithms": ["HS256"], "secretFromEnv": "S"})
    tenants = Tenants.open(rules, CLOCK, {"S": SECRET.decode()}, embedded=False)
    payload = claims(aud=None)
    for header, sign, code in (
        ({"alg": "HS256", "kid": "whatever"}, signing.hs256(SECRET), ""),
        ({"alg": "HS256"}, signing.hs256(SECRET[:-1]), "unauthorized"),
        ({"alg": "HS256"}, signing.hs256(b""), "unauthorized"),
        ({"alg": "RS256"}, signing.rs256("r1"), "unauthorized"),
        ({"alg": "none"}, NOTHING, "unauthorized"),
    ):
        assert code_of(tenants, "acme", bearer(signing.compact(header, payload, sign))) == code


def test_a_token_for_others_is_refused_where_no_audience_is_set() -> None:
    tenants, _ = checking({name: value for name, value in RULES.items() if name != "audience"})
    assert code_of(tenants, "acme", bearer(token(claims(aud="billing")))) == "unauthorized"
    assert code_of(tenants, "acme", bearer(token(claims(aud=None)))) == ""


def test_headers_that_come_twice_are_joined() -> None:
    pairs = [(b"Authorization", b"Bearer a.b.c"), (b"X-A", b"\xe9"), (b"AUTHORIZATION", b"Bearer d.e.f")]
    assert received(pairs) == {"authorization": "Bearer a.b.c, Bearer d.e.f", "x-a": "é"}


def test_a_check_needs_no_web_framework() -> None:
    code = "import sys, app.refdata.tenants; print({'flask', 'werkzeug', 'sqlalchemy'} & sys.modules.keys())"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "set()"


def test_a_remembered_token_costs_microseconds() -> None:
    """About 2 µs; a signature that is checked each time costs 90 and more."""
    tenants, _ = checking(clock=SystemLike())
    sent = bearer(GOOD["RS256"])
    assert _best_of(lambda: tenants.check("acme", sent, "192.0.2.1")) < 20e-6


class SystemLike(Clock):
    """Set for tokens, real for durations, as it costs."""

    monotonic = SystemClock.monotonic


def _best_of(call: Callable[[], object]) -> float:
    import timeit

    return min(timeit.repeat(call, number=2000, repeat=5)) / 2000
