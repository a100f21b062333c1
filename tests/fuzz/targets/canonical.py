"""Canonical JSON: one spelling for equal values, and never one for two different ones."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from app.kernel.canonical import MOST_ZEROS, canonical_json, content_hash, name_key
from tests.fuzz.target import Target

MOST_GROWTH = 500


def meaning(value: Any) -> Any:
    """A form of the value of which two are equal only if they mean the same; made without the kernel."""
    if isinstance(value, bool) or value is None:
        return ("word", value)
    if isinstance(value, str):
        return ("text", unicodedata.normalize("NFC", value))
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        text = "".join(map(str, digits)).lstrip("0")
        short = text.rstrip("0")
        exponent += len(text) - len(short)
        return ("decimal", short and sign, short, exponent if short else 0)
    if isinstance(value, dict):
        return ("object", tuple(sorted((meaning(key), meaning(item)) for key, item in value.items())))
    if isinstance(value, list):
        return ("list", tuple(map(meaning, value)))
    return (type(value).__name__, repr(value))


def with_texts(value: Any) -> Any:
    """The value with the text of each decimal in its place: "0" and 0.0 are the same, as the kernel says."""
    if isinstance(value, Decimal):
        _, sign, digits, exponent = meaning(value)
        return ("-" if sign else "") + _plain(digits, exponent)
    if isinstance(value, dict):
        return {key: with_texts(item) for key, item in value.items()}
    return [with_texts(item) for item in value] if isinstance(value, list) else value


def _plain(digits: str, exponent: int) -> str:
    if not digits:
        return "0"
    whole = len(digits) + exponent
    if abs(whole - 1) > MOST_ZEROS:
        return digits[0] + ("." + digits[1:] if digits[1:] else "") + f"E{whole - 1:+d}"
    if whole <= 0:
        return "0." + "0" * -whole + digits
    rest = digits[whole:]
    return digits[:whole].ljust(whole, "0") + (f".{rest}" if rest else "")


def read(text: bytes) -> Any:
    """The JSON value, fractions with all their digits; ValueError or ArithmeticError when it is none."""
    return json.loads(text, parse_float=Decimal, parse_constant=Decimal)


def check(data: bytes) -> None:
    """Two values, separated by a zero byte."""
    found = []
    for part in data.split(b"\x00", 1):
        try:
            value = read(part)
        except (ValueError, ArithmeticError, RecursionError):
            continue
        try:
            spelled = canonical_json(value)
        except ValueError:
            continue
        assert len(spelled) <= MOST_GROWTH * max(1, len(part)), "a few bytes became very many"
        again = json.loads(spelled)
        assert canonical_json(again) == spelled, "the spelling of its spelling is another one"
        assert len(content_hash(value)) == 64
        found.append((spelled, meaning(with_texts(value))))
    if len(found) == 2:
        (one, means), (other, also_means) = found
        assert (one == other) == (means == also_means), "equal and spelled differently, or the reverse"
    name = data.decode("utf-8", "replace")
    assert name_key(name_key(name)) == name_key(name)


def seeds() -> Iterator[bytes]:
    """Values of every kind, and pairs that are the same or nearly so."""
    for text in (
        '{"b":1,"a":[true,null,"é"]}', "1.50\x001.5", "0.10\x00-0.0", "1e400\x001e401", "1E+999999999",
        "1.00000000000000000000000000000001\x001.00000000000000000000000000000002", '"e\u0301"\x00"é"',
        '{"e\u0301":1,"é":2}', "[[[[[[1]]]]]]", '"\\ud800"', "NaN", "12345678901234567890", '{"a":{"b":2.0}}',
    ):  # fmt: skip
        yield text.encode()


TARGET = Target(
    check,
    seeds,
    words=(
        b'{"', b'":', b"[", b"]", b"\x00", b"1e", b"E+999999999", b"e-999", b"0.0", b"-0", b"\\u0301",
        b"\\ud83d",
        "é".encode(), "e\u0301".encode(), "한".encode(), b"NaN", b"Infinity", b"true", b"null", b"00000000",
    ),
    most_bytes=600,
)  # fmt: skip
