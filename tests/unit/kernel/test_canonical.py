"""Equal values have one spelling and one hash, different ones have two."""

from __future__ import annotations

import hashlib
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from app.kernel.canonical import canonical_json, content_hash, name_key, natural_key_hash

SPELLINGS: list[tuple[Any, bytes]] = [
    ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),  # keys sorted, no blanks
    ({"é": "é"}, '{"é":"é"}'.encode()),  # decomposed accents are composed
    (Decimal("12.340"), b'"12.34"'),  # trailing zeros say nothing
    (Decimal("1E+3"), b'"1000"'),
    (Decimal("-0.00"), b'"0"'),
    (date(2025, 3, 1), b'"2025-03-01"'),
    (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
    ("🔥\n", '"🔥\\n"'.encode()),
    (Decimal("1.00000000000000000000000000000000000010"), b'"1.0000000000000000000000000000000000001"'),
    (Decimal("-123456789012345678901234567890.5"), b'"-123456789012345678901234567890.5"'),
    (Decimal("1E+400"), b'"1' + b"0" * 400 + b'"'),
    (Decimal("10E+400"), b'"1E+401"'),  # a few characters never become very many
    (Decimal("120E+999999999"), b'"1.2E+1000000001"'),
    (Decimal("1E-999999999"), b'"1E-999999999"'),
    (Decimal("0E+999999999"), b'"0"'),
]


@pytest.mark.parametrize(("value", "spelling"), SPELLINGS)
def test_a_value_has_one_spelling(value: Any, spelling: bytes) -> None:
    assert canonical_json(value) == spelling


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), Decimal("NaN"), Decimal("Infinity"),
        {"é": 1, "e\u0301": 2},  # two keys that are one
        {1: "a", "1": "b"},
        "\ud800",
        nested(100_000),
    ],
    ids=["nan", "inf", "NaN", "Infinity", "keys", "numbers for keys", "half a character", "nesting"],
)  # fmt: skip
def test_what_has_no_one_spelling_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        canonical_json([value])


def test_a_hash_is_that_of_the_spelling() -> None:
    assert content_hash({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


KEYS: list[list[str | None]] = [
    ["a", "b"],
    ["ab"],
    ["a", "b", None],
    ["a", "b", ""],
    ["a", None, "b"],
    ["a,b"],
]


def test_different_keys_never_share_a_hash() -> None:
    assert len({natural_key_hash(key) for key in KEYS}) == len(KEYS)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Café", "Cafe\u0301", True),  # composed and decomposed
        (" Sale ", "Sale", True),  # blanks around it
        ("Sale", "sale", False),  # case is kept
        ("Sale  1", "Sale 1", False),  # blanks inside are kept
    ],
)
def test_names_are_the_same_after_normalising(one: str, other: str, same: bool) -> None:
    assert (name_key(one) == name_key(other)) is same
