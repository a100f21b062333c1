"""JSON that every reader takes for the same thing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.refdata import strict_json

REFUSED = [
    b"",
    b"1",
    b"[]",
    b'"a"',
    b"null",
    b"{",
    b"{} {}",
    b"{'a':1}",
    b'{"a":1,"a":1}',
    b'{"a":1,"\\u0061":2}',
    b'{"b":{"a":1,"a":2}}',
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b'{"a":1e999}',
    b'{"a":' + b"1" * 41 + b"}",
    b'{"a":0.' + b"1" * 41 + b"}",
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"a":"\xff"}',
    b"\xef\xbb\xbf{}",
    '{"a":1}'.encode("utf-16"),
]


@pytest.mark.parametrize("content", REFUSED)
def test_what_could_be_two_things_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        strict_json.object_of(content)


NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=3))
def test_all_else_is_read_as_ever(value: dict[str, object]) -> None:
    assert strict_json.object_of(json.dumps(value).encode()) == value
