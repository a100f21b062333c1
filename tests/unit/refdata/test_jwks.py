"""Sets of keys: which are taken, and what stays when one is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog

from app.refdata import jwks
from tests.conftest import SetClock
from tests.unit.refdata import signing

ALL = ("RS256", "PS256", "ES256", "EdDSA")
GOOD = signing.rsa_jwk("good")

REFUSED = {
    # what it is                          the document
    "nothing": b"",
    "no JSON": b"<html>",
    "a list": json.dumps([GOOD]).encode(),
    "one key alone": json.dumps(GOOD).encode(),
    "keys that are an object": json.dumps({"keys": {"good": GOOD}}).encode(),
    "a key that is text": signing.jwks(GOOD, "key"),
    "no keys": signing.jwks(),
    "a key twice": b'{"keys":[],"keys":' + json.dumps([GOOD]).encode() + b"}",
    "too large": signing.jwks({**GOOD, "x": "x" * jwks.MOST_BYTES}),
    "too many": signing.jwks(*(signing.rsa_jwk("good", kid=str(n)) for n in range(101))),
    "a private key": signing.jwks(
        GOOD, {**signing.ed_jwk("d"), "d": signing.b64(signing.ed_key("d").private_bytes_raw())}
    ),
    "a secret": signing.jwks(GOOD, {"kty": "oct", "k": signing.b64(b"\1" * 32), "kid": "s"}),
    "two keys of one name": signing.jwks(GOOD, signing.rsa_jwk("other", kid="good")),
    "a name that is a number": signing.jwks({**GOOD, "kid": 1}),
    "a name that is a list": signing.jwks({**GOOD, "kid": ["good"]}),
    "a modulus that is a number": signing.jwks({**GOOD, "n": 5}),
    "no modulus": signing.jwks({name: value for name, value in GOOD.items() if name != "n"}),
    "no exponent": signing.jwks({name: value for name, value in GOOD.items() if name != "e"}),
    "an even exponent": signing.jwks({**GOOD, "e": signing.number(2)}),
    "a point off the curve": signing.jwks({**signing.ec_jwk("e"), "y": signing.number(5, 32)}),
    "an Ed25519 key that is too short": signing.jwks({**signing.ed_jwk("d"), "x": signing.b64(b"\1" * 31)}),
    "RSA of 1024 bits only": signing.jwks(signing.rsa_jwk("weak", bits=1024)),
    "RSA of 2047 bits only": signing.jwks({**GOOD, "n": signing.number((1 << 2047) - 1)}),
    "RSA of 16384 bits only": signing.jwks({**GOOD, "n": signing.number((1 << 16384) - 1)}),
    "keys for encryption only": signing.jwks({**GOOD, "use": "enc"}),
    "keys of other curves only": signing.jwks({**signing.ec_jwk("e"), "crv": "P-384"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_set_is_refused(name: str) -> None:
    with pytest.raises(jwks.BadKeys) as refusal:
        jwks.keys_of(REFUSED[name], ALL)
    assert refusal.value.sentence.endswith(".")
    assert "\n" not in refusal.value.sentence


PASSED_OVER: list[dict[str, Any]] = [
    signing.rsa_jwk("x", use="enc"),
    signing.rsa_jwk("x", key_ops=["encrypt"]),
    signing.rsa_jwk("x", key_ops="verify"),
    signing.rsa_jwk("x", alg="RS512"),
    signing.rsa_jwk("x", alg="RSA-OAEP"),
    signing.rsa_jwk("x", bits=1024),
    {"kty": "EC", "crv": "secp256k1", "kid": "x"},
    {"kty": "unheard of", "kid": "x"},
    {"kid": "x"},
    {"kty": ["RSA"], "kid": "x"},
]


@pytest.mark.parametrize("entry", PASSED_OVER)
def test_a_key_for_something_else_is_passed_over(entry: dict[str, Any]) -> None:
    found = jwks.keys_of(signing.jwks(entry, GOOD), ALL)
    assert found.by_name.keys() == {("good", "RS256"), ("good", "PS256")}


FOUND = [
    # key                                      kid      algorithm   there
    (GOOD, "good", "RS256", True),
    (GOOD, "good", "PS256", True),
    (GOOD, "good", "ES256", False),
    (GOOD, "Good", "RS256", False),
    (GOOD, None, "RS256", True),
    (signing.rsa_jwk("good", alg="RS256"), "good", "PS256", False),
    (signing.rsa_jwk("good", key_ops=["verify"]), "good", "RS256", True),
    (signing.rsa_jwk("good", x5c=["junk"], x5u="https://evil.example"), "good", "RS256", True),
    (signing.ec_jwk("e"), "e", "ES256", True),
    (signing.ed_jwk("d"), "d", "EdDSA", True),
    ({name: value for name, value in GOOD.items() if name != "kid"}, "good", "RS256", False),
    ({name: value for name, value in GOOD.items() if name != "kid"}, None, "RS256", True),
]


@pytest.mark.parametrize(("entry", "kid", "algorithm", "there"), FOUND)
def test_a_key_is_found_by_its_name_and_for_what_it_is_for(
    entry: dict[str, Any], kid: str | None, algorithm: str, there: bool
) -> None:
    assert (jwks.keys_of(signing.jwks(entry), ALL).find(kid, algorithm) is not None) == there


def test_no_key_is_found_without_a_name_where_there_are_two() -> None:
    found = jwks.keys_of(signing.jwks(GOOD, signing.rsa_jwk("other")), ALL)
    assert found.find(None, "RS256") is None


def test_only_keys_for_what_the_rules_allow_are_taken() -> None:
    found = jwks.keys_of(signing.jwks(GOOD, signing.ec_jwk("e")), ["ES256"])
    assert found.by_name.keys() == {("e", "ES256")}


def test_a_key_that_is_too_short_is_logged_by_its_name() -> None:
    with structlog.testing.capture_logs() as lines:
        jwks.keys_of(signing.jwks(GOOD, signing.rsa_jwk("weak", bits=1024)), ["RS256"])
    (line,) = lines
    assert (line["event"], line["kid"], line["bits"]) == ("jwks_key_refused", "weak", 1024)


class Script:
    """A source that answers one thing after the other."""

    name = "a script"
    every_seconds = 300.0
    again_seconds = 30.0
    follows_unknown_keys = False

    def __init__(self, *answers: bytes | Exception | None) -> None:
        self._answers = list(answers)

    def read(self) -> bytes | None:
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def test_old_keys_stay_and_one_line_says_why() -> None:
    away, bad, other = jwks.KeysAway("Away."), b"nonsense", signing.jwks(signing.rsa_jwk("other"))
    script = Script(signing.jwks(GOOD), away, away, bad, None, bad, signing.jwks(GOOD), away, other)
    keys = jwks.Jwks(script, ["RS256"], SetClock())
    with structlog.testing.capture_logs() as lines:
        waits = [keys.renew() for _ in range(9)]
    assert waits == [300, 30, 30, 30, 300, 30, 300, 30, 300]
    assert [(line["event"], line.get("reason")) for line in lines] == [
        ("jwks_read", None),
        ("jwks_refused", "Away."),
        ("jwks_refused", "The set of keys is no JSON object."),
        ("jwks_back", None),
        ("jwks_refused", "Away."),
        ("jwks_read", None),
        ("jwks_back", None),
    ]
    assert keys.current.by_name.keys() == {("other", "RS256")}
    assert keys.generation == 2


def test_while_no_key_was_ever_read_nobody_is_called_unauthorized() -> None:
    keys = jwks.Jwks(Script(jwks.KeysAway("Away.")), ["RS256"], SetClock())
    keys.renew()
    with pytest.raises(jwks.KeysAway):
        keys.find("good", "RS256")


def test_a_key_in_memory_is_found_without_a_look_at_the_source() -> None:
    keys = jwks.Jwks(Script(signing.jwks(GOOD)), ["RS256"], SetClock())
    keys.renew()
    assert keys.find("good", "RS256") is not None
    assert keys.find("unknown", "RS256") is None
