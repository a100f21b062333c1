"""Bearer tokens, keys and the words of proxies: nobody is let in whom the key's holder has not signed for."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterator
from typing import Any

from app.access import keys
from app.kernel.clock import SystemClock
from app.refdata import client_certs, jwks, strict_json, tokens
from app.refdata.tokens import Demands, Secret, Unauthorized
from tests.fuzz.target import Target

KEY = b"a secret of these checks, of 32 bytes or more"
HOLDER = Secret(KEY)
DEMANDS = Demands(frozenset({"HS256"}), issuer="us", audiences=frozenset({"headworks"}))
CLAIMS = {"sub": "a", "iss": "us", "aud": ["headworks"], "exp": 4_000_000_000, "nbf": 1, "tenants": ["t"]}
CLOCK = SystemClock()
ED = {
    "kty": "OKP",
    "crv": "Ed25519",
    "kid": "k",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    "alg": "EdDSA",
}


def b64(content: bytes) -> bytes:
    """base64url without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def token(header: bytes, payload: bytes, key: bytes = KEY) -> bytes:
    """A token of these parts, signed with HS256."""
    signed = b64(header) + b"." + b64(payload)
    return signed + b"." + b64(hmac.digest(key, signed, "sha256"))


def claims(given: str) -> dict[str, Any] | None:
    """What a header is believed; None when it is not."""
    try:
        tokens.digest_of(given)
        return tokens.claims_of(tokens.token_of(given), DEMANDS, HOLDER, CLOCK)
    except Unauthorized as refusal:
        assert refusal.sentence
        assert len(given) < 30 or given[-30:] not in refusal.sentence, "the refusal repeats the token"
        return None


def _check_signed(given: str) -> None:
    found = claims(given)
    if found is not None:
        head, payload, signature = given.partition(" ")[2].strip(" ").split(".")
        expected = b64(hmac.digest(KEY, f"{head}.{payload}".encode(), "sha256")).decode()
        assert signature == expected, "a signature in another spelling, or none of ours"
        assert found["iss"] == "us" and found["exp"] > 0
        tokens.texts_at({"tenants": ["t"]}, ("tenants",))


def _check_own_words(data: bytes) -> None:
    """What a holder of the key may say: any header and payload that it signs."""
    header, _, payload = data.partition(b"\x00")
    found = claims("Bearer " + token(header, payload).decode())
    if found is not None:
        said = json.loads(payload)
        assert said["iss"] == "us" and "headworks" in said["aud"] and said["exp"] > 1_700_000_000
        assert json.loads(header)["alg"] == "HS256"


def _check_documents(data: bytes) -> None:
    try:
        found = strict_json.object_of(data)
    except ValueError:
        pass
    else:
        assert json.loads(data) == found
    try:
        read = jwks.keys_of(data, ("RS256", "PS256", "ES256", "EdDSA"))
    except jwks.BadKeys as refusal:
        assert refusal.sentence
    else:
        assert read.by_algorithm


def check(data: bytes) -> None:
    """The bytes are an Authorization header, what a token holds, a set of keys, and the header of a proxy."""
    text = data.decode("latin-1")
    _check_signed(text)
    _check_signed(f"Bearer {text}")
    _check_own_words(data)
    _check_documents(data)
    try:
        elements = client_certs.elements(text)
    except client_certs.Malformed:
        pass
    else:
        assert elements and all(key == key.lower() for one in elements for key, _ in one)
    found = keys.parse(text)
    assert found is None or found.text == text


def seeds() -> Iterator[bytes]:
    """A good token, its parts, a set of keys, and what Envoy writes."""
    header, payload = json.dumps({"alg": "HS256", "typ": "JWT"}).encode(), json.dumps(CLAIMS).encode()
    yield b"Bearer " + token(header, payload)
    yield token(header, payload)
    yield token(json.dumps({"alg": "none"}).encode(), payload).rpartition(b".")[0] + b"."
    yield header + b"\x00" + payload
    yield header + b"\x00" + json.dumps({**CLAIMS, "exp": 1e12, "aud": "headworks"}).encode()
    yield json.dumps({"keys": [ED]}).encode()
    yield b'By=spiffe://a/b;Hash=00;Subject="CN=x,O=\\"y\\"";URI=spiffe://a/ns/b/sa/c,By=x;URI=y'
    yield b"hw_abcd2345_" + b"x" * 43


TARGET = Target(
    check,
    seeds,
    words=(
        b"Bearer ", b".", b"eyJ", b'"alg"', b'"HS256"', b'"none"', b'"kid"', b'"crit"', b'"exp"', b'"nbf"',
        b'"iat"', b'"aud"',
        b'"iss"', b"1e400", b"NaN", b'"keys"', b'"kty"', b'"OKP"', b'"RSA"', b'"EC"', b'"n"', b'"e"',
        b'"crv"', b'"P-256"',
        b'"x"', b'"y"', b'"d"', b"\x00", b"=", b"==", b'"use"', b'"key_ops"', b";URI=", b',By=', b'\\"',
        b'";', b"hw_",
    ),
    most_bytes=1500,
)  # fmt: skip
