"""Keys and tokens made by hand: an encoder that also makes what no library would."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

Sign = Callable[[bytes], bytes]


def b64(content: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def number(value: int, length: int | None = None) -> str:
    return b64(value.to_bytes(length or (value.bit_length() + 7) // 8))


def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The RSA key of this name, the same for the whole run."""
    return _rsa_key(name, bits)


@cache
def _rsa_key(name: str, bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key(name: str) -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def rsa_jwk(name: str, *, bits: int = 2048, **more: Any) -> dict[str, Any]:
    public = rsa_key(name, bits).public_key().public_numbers()
    return {"kty": "RSA", "kid": name, "n": number(public.n), "e": number(public.e), "use": "sig", **more}


def ec_jwk(name: str, **more: Any) -> dict[str, Any]:
    public = ec_key(name).public_key().public_numbers()
    return {
        "kty": "EC", "crv": "P-256", "kid": name, "x": number(public.x, 32), "y": number(public.y, 32), **more
    }  # fmt: skip


def ed_jwk(name: str, **more: Any) -> dict[str, Any]:
    raw = ed_key(name).public_key().public_bytes_raw()
    return {"kty": "OKP", "crv": "Ed25519", "kid": name, "x": b64(raw), **more}


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def rs256(name: str, bits: int = 2048) -> Sign:
    return lambda content: rsa_key(name, bits).sign(content, padding.PKCS1v15(), hashes.SHA256())


def ps256(name: str) -> Sign:
    salted = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    return lambda content: rsa_key(name).sign(content, salted, hashes.SHA256())


def es256(name: str) -> Sign:
    def sign(content: bytes) -> bytes:
        r, s = decode_dss_signature(ec_key(name).sign(content, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)

    return sign


def eddsa(name: str) -> Sign:
    return lambda content: ed_key(name).sign(content)


def hs256(secret: bytes) -> Sign:
    return lambda content: hmac.digest(secret, content, hashlib.sha256)


def public_pem(name: str) -> bytes:
    """What everybody knows of an RSA key, as text: the secret of whoever confuses the algorithms."""
    return (
        rsa_key(name)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def compact(header: Any, payload: Any, sign: Sign) -> str:
    """A token of these parts; text and bytes are taken as they are."""
    parts = [
        b64(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in (header, payload)
    ]
    signed = ".".join(parts)
    return f"{signed}.{b64(sign(signed.encode()))}"
