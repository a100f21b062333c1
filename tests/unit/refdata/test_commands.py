"""What is a command, and what is not; the same command is known however it is spelt."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.refdata import commands
from app.refdata.commands import BadJson, Command, Malformed, TooMany, decode

NOW = datetime(2026, 2, 27, 12, tzinfo=UTC)
SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schemas/refdata-command.schema.json").read_text())
VALID: dict[str, Any] = {
    "eventId": "8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b10", "tenantId": "tenant-a", "source": "REST",
    "dictCode": "COUNTRY", "eventType": "DELTA", "sourceRevision": 987654321, "snapshotId": None,
    "chunkIndex": None, "chunksTotal": None, "occurredAt": "2026-02-27T12:00:00Z",
    "items": [{"key": "RU", "op": "UPSERT", "payload": {"name": "Russia"}}],
}  # fmt: skip
SNAPSHOT = VALID | {
    "eventType": "SNAPSHOT", "snapshotId": "8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b11", "chunkIndex": 1,
    "chunksTotal": 2,
}  # fmt: skip


def read(body: Any, **given: str) -> Command:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decode(content, now=NOW, given=given)


def test_the_command_of_the_contract_is_read() -> None:
    found = read(VALID)
    assert (found.key, found.source_revision, found.chunk) == ("tenant-a:COUNTRY", 987654321, None)
    assert found.items == (commands.Item("RU", b'{"name": "Russia"}'),)
    assert found.occurred_at == NOW
    chunk = read(SNAPSHOT).chunk
    assert chunk == commands.Chunk(uuid.UUID(SNAPSHOT["snapshotId"]), 1, 2)


@pytest.mark.parametrize("body", [VALID, SNAPSHOT], ids=["delta", "snapshot"])
def test_a_command_that_went_through_its_topic_is_the_same_command(body: dict[str, Any]) -> None:
    found = read(body)
    jsonschema.validate(json.loads(found.encoded()), SCHEMA)
    again = read(found.encoded())
    assert (again, again.digest) == (found, found.digest)


TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
).filter(lambda value: value is not None)  # fmt: skip


@given(PAYLOADS)
def test_payloads_stay_as_they_were_sent(payload: Any) -> None:
    text = json.dumps(payload, ensure_ascii=False)
    body = json.dumps(VALID).replace('{"name": "Russia"}', text).encode()
    assert read(body).items[0].payload == text.encode()


@given(st.dictionaries(st.text("abc", min_size=1), st.integers() | st.text("xyz"), min_size=2, max_size=5))
def test_the_same_command_spelt_in_another_way_is_the_same(payload: dict[str, Any]) -> None:
    turned = {"payload": dict(reversed(payload.items())), "op": "UPSERT", "key": "k"}
    one = json.dumps(VALID | {"items": [{"key": "k", "payload": payload}]})
    other = json.dumps(VALID | {"source": "KAFKA", "items": [turned]}, indent=2, ensure_ascii=False)
    assert len({read(text.encode()).digest for text in (one, other)}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"dictCode": "OTHER"},
        {"sourceRevision": 1},
        {"sourceRevision": None},
        {"items": [{"key": "RU", "op": "UPSERT", "payload": {"name": "Rus"}}]},
        {"items": [{"key": "RU", "op": "DELETE"}]},
        {"items": [{"key": "R", "op": "UPSERT", "payload": {"name": "Russia"}}]},
        {"items": VALID["items"] * 2},
        {"eventType": "SNAPSHOT"},
    ],
)
def test_a_command_that_says_something_else_is_another_one(change: dict[str, Any]) -> None:
    assert read(VALID | change).digest != read(VALID).digest


def item(**members: Any) -> dict[str, Any]:
    return {"items": [{"key": "RU", "op": "UPSERT", "payload": {}} | members]}


REFUSED: dict[str, tuple[Any, type[Malformed], str]] = {
    "no JSON": (b"{", BadJson, "no JSON"),
    "not in UTF-8": (json.dumps(VALID).encode().replace(b"Russia", b"\xff"), BadJson, "UTF-8"),
    "a list": ([], Malformed, "object"),
    "deep": (b"[" * 100_000, Malformed, "object"),
    "deep inside": (b'{"x":' * 100_000, BadJson, "JSON"),
    "no items": ({**VALID, "items": []}, Malformed, "at least one"),
    "items missing": ({k: v for k, v in VALID.items() if k != "items"}, Malformed, "items"),
    "another event type": (VALID | {"eventType": "PATCH"}, Malformed, "eventType"),
    "no tenant": (VALID | {"tenantId": None}, Malformed, "tenantId is missing"),
    "a tenant with a colon": (VALID | {"tenantId": "a:b"}, Malformed, "tenantId"),
    "a long tenant": (VALID | {"tenantId": "a" * 65}, Malformed, "tenantId"),
    "a dictionary with a newline": (VALID | {"dictCode": "A\n"}, Malformed, "dictCode"),
    "another source": (VALID | {"source": "FTP"}, Malformed, "source"),
    "an id that is none": (VALID | {"eventId": "1"}, Malformed, "eventId"),
    "an id in braces": (VALID | {"eventId": "{8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b}"}, Malformed, "eventId"),
    "a fraction": (VALID | {"sourceRevision": 1.5}, Malformed, "sourceRevision"),
    "a number as text": (VALID | {"sourceRevision": "1"}, Malformed, "source"),
    "a bool": (VALID | {"sourceRevision": True}, Malformed, "source"),
    "beyond bigint": (VALID | {"sourceRevision": 1 << 63}, Malformed, "sourceRevision"),
    "below zero": (VALID | {"sourceRevision": -1}, Malformed, "sourceRevision"),
    "a local time": (VALID | {"occurredAt": "2026-02-27T12:00:00"}, Malformed, "occurredAt"),
    "no time": (VALID | {"occurredAt": "yesterday"}, Malformed, "occurredAt"),
    "an empty key": (VALID | item(key=""), Malformed, "items[0].key"),
    "a long key": (VALID | item(key="é" * 129), Malformed, "items[0].key"),
    "a key with a NUL": (VALID | item(key="a\x00"), Malformed, "items[0].key"),
    "a key with a newline": (VALID | item(key="a\n"), Malformed, "items[0].key"),
    "a key with half a pair": (VALID | item(key="\ud800"), BadJson, "JSON"),
    "another op": (VALID | item(op="MERGE"), Malformed, "op"),
    "no payload": (VALID | item(payload=None), Malformed, "payload"),
    "a payload with a NUL": (VALID | item(payload={"a": "\x00"}), Malformed, "NUL"),
    "a name with a NUL": (VALID | item(payload={"\x00": 1}), Malformed, "NUL"),
    "half a pair": (VALID | item(payload={"a": "\ud83d x"}), BadJson, "JSON"),
    "the other half of a pair": (VALID | item(payload={"a": "\ude00 x"}), BadJson, "JSON"),
    "a deep payload": (VALID | item(payload=json.loads("[" * 65 + "]" * 65)), Malformed, "deeper"),
    "a vast number": (json.dumps(VALID).replace('"Russia"', "1e99999").encode(), Malformed, "1e"),
    "a vast number behind a text": (
        json.dumps(VALID).replace('"Russia"', '"a,b", "c": -1E+12345').encode(), Malformed, "1e",
    ),
    "many items": (VALID | {"items": VALID["items"] * 10_001}, TooMany, "10,000"),
    "many bytes": (VALID | item(payload={"a": "x" * commands.MOST_BYTES}), TooMany, "5 MiB"),
    "a chunk without a snapshot": (SNAPSHOT | {"snapshotId": None}, Malformed, "snapshotId"),
    "a chunk without an index": (SNAPSHOT | {"chunkIndex": None}, Malformed, "chunkIndex"),
    "a chunk behind the last": (SNAPSHOT | {"chunkIndex": 3}, Malformed, "chunkIndex"),
    "a snapshot whose id is none": (SNAPSHOT | {"snapshotId": ""}, Malformed, "snapshotId"),
    "a delta whose snapshot has no id": (VALID | {"snapshotId": "1"}, Malformed, "snapshotId"),
    "chunk zero": (SNAPSHOT | {"chunkIndex": 0}, Malformed, "chunkIndex"),
    "a snapshot that deletes": (SNAPSHOT | item(op="DELETE"), Malformed, "DELETE"),
    "a key twice in a snapshot": (SNAPSHOT | {"items": VALID["items"] * 2}, Malformed, "once"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_command_is_refused_with_what_is_wrong(name: str) -> None:
    body, kind, word = REFUSED[name]
    with pytest.raises(Malformed, match=word.replace("[", r"\[").replace("+", r"\+")) as refused:
        read(body)
    assert isinstance(refused.value, kind)


STRANGE_BUT_FINE = {
    "a whole number with a point": VALID | {"sourceRevision": 5.0},
    "an escaped backslash before u0000": VALID | item(payload={"a": "\\u0000"}),
    "a whole pair": VALID | item(payload={"a": "😀"}),
    "an exponent in a text": VALID | item(payload={"a": "1e99999", "b": 1e300}),
    "brackets in a text": VALID | item(payload={"a": "[" * 500 + '"' + "{" * 500}),
    "64 deep": VALID | item(payload=json.loads("[" * 64 + "]" * 64)),
    "any JSON but null": VALID | item(payload=[1, "two", False]),
    "members that nobody knows": VALID | {"colour": "red"},
    "a snapshot in one piece": VALID | {"eventType": "SNAPSHOT"},
    "an empty snapshot": VALID | {"eventType": "SNAPSHOT", "items": []},
    "another time zone": VALID | {"occurredAt": "2026-02-27T13:00:00+01:00"},
}


@pytest.mark.parametrize("name", STRANGE_BUT_FINE)
def test_what_is_strange_and_fine_is_taken(name: str) -> None:
    found = read(STRANGE_BUT_FINE[name])
    assert read(found.encoded()) == found


def test_a_key_of_256_bytes_is_taken() -> None:
    assert read(VALID | item(key="é" * 128)).items[0].key == "é" * 128


@pytest.mark.parametrize("name", ["tenantId", "source", "dictCode", "eventId"])
def test_what_is_known_already_has_to_be_the_same(name: str) -> None:
    others = {"tenantId": "tenant-b", "source": "KAFKA", "dictCode": "X", "eventId": str(uuid.uuid4())}
    assert read(VALID, **{name: VALID[name]}) == read(VALID)
    with pytest.raises(Malformed, match=name):
        read(VALID, **{name: others[name]})
    without = {key: value for key, value in VALID.items() if key != name}
    assert read(without, **{name: VALID[name]}) == read(VALID)


@pytest.mark.parametrize("name", REFUSED)
def test_the_schema_and_the_code_refuse_the_same(name: str) -> None:
    """What a schema can say at all: bytes, sizes and repeated keys are beyond it."""
    beyond = (
        "many bytes", "a chunk behind the last", "a key twice in a snapshot", "beyond bigint", "a long key",
        "a payload with a NUL", "a name with a NUL", "half a pair", "a deep payload",
        "a key with half a pair", "the other half of a pair",
    )  # fmt: skip
    body = REFUSED[name][0]
    if name in beyond or isinstance(body, bytes):
        return
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, SCHEMA, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("name", STRANGE_BUT_FINE)
def test_the_schema_takes_what_the_code_takes(name: str) -> None:
    jsonschema.validate(STRANGE_BUT_FINE[name], SCHEMA)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"18446744073709551617", b"18446744073709551618"),
        (b"0.1", b"0.1000000000000000055"),
        (b"1e-400", b"1e-401"),
        (b"123456789012345678901234567890", b'"123456789012345678901234567890"'),
        (b"[1234567890123456789.1]", b"[1234567890123456789.2]"),
    ],
)
def test_numbers_that_are_one_double_are_two_commands(one: bytes, other: bytes) -> None:
    found = [
        read(json.dumps(VALID).encode().replace(b'{"name": "Russia"}', payload)) for payload in (one, other)
    ]
    assert found[0].digest != found[1].digest


def test_a_long_number_is_the_same_however_it_is_spelt() -> None:
    spellings = (b'{"b":1.50,"a":12345678901234567890}', b'{"a": 12345678901234567890, "b": 1.5}')
    found = [read(json.dumps(VALID).encode().replace(b'{"name": "Russia"}', one)).digest for one in spellings]
    assert found[0] == found[1]
