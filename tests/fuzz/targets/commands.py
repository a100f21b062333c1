"""Commands of reference data: refused with a declared error, or the same behind their topic."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from app.refdata import commands
from app.refdata.commands import Command, Malformed
from tests.fuzz.target import Target
from tests.fuzz.targets.canonical import meaning

NOW = datetime(2026, 2, 27, 12, tzinfo=UTC)
EVENT = uuid.UUID("8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b12")
DELTA: dict[str, Any] = {
    "eventId": "8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b10", "tenantId": "tenant-a", "source": "REST",
    "dictCode": "COUNTRY", "eventType": "DELTA", "sourceRevision": 987654321, "snapshotId": None,
    "chunkIndex": None, "chunksTotal": None, "occurredAt": "2026-02-27T12:00:00Z",
    "items": [{"key": "RU", "op": "UPSERT", "payload": {"name": "Russia", "n": 1.50}}, {"key": "X",
    "op": "DELETE"}],
}  # fmt: skip
SNAPSHOT = DELTA | {
    "eventType": "SNAPSHOT", "snapshotId": "8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b11", "chunkIndex": 1,
    "chunksTotal": 2, "items": [{"key": "RU", "payload": [1, "\u00e9", {"a": None}]}],
}  # fmt: skip
GIVEN = ({}, {"tenantId": "tenant-a", "source": "REST"})


def read(content: bytes, number: int) -> Command | None:
    """The command; None where it is refused, as it may be."""
    try:
        return commands.decode(content, now=NOW, given=GIVEN[number % 2], event_id=EVENT, most_bytes=8192)
    except Malformed as refusal:
        assert refusal.code in ("MALFORMED_COMMAND", "invalid_json", "COMMAND_TOO_LARGE")
        refusal.sentence.encode()
        return None


def check(data: bytes) -> None:
    """The first byte chooses what is known before; the rest is a body, or two with a zero byte between."""
    found = [read(part, data[0]) for part in data[1:].split(b"\x00", 1)] if data else []
    for command in found:
        if command is not None:
            _check(command)
    if len(found) == 2 and found[0] and found[1] and found[0].digest == found[1].digest:
        assert _meaning(found[0]) == _meaning(found[1]), "two commands are taken for one"


def _check(command: Command) -> None:
    again = commands.decode(command.encoded(), now=NOW, most_bytes=commands.WIRE_BYTES)
    assert again == command, "behind its topic it is another command"
    assert again.digest == command.digest
    assert command.occurred_at.tzinfo is not None
    for item in command.items:
        assert 0 < len(item.key.encode()) <= commands.LONGEST_KEY and item.key.isprintable()
        if item.payload is not None:
            assert "\x00" not in json.dumps(json.loads(item.payload), ensure_ascii=False)


def _meaning(command: Command) -> Any:
    return [
        (item.key, None if item.payload is None else _of_json(item.payload)) for item in command.items
    ]  # fmt: skip


def _of_json(payload: bytes) -> Any:
    try:
        return meaning(json.loads(payload, parse_float=Decimal, parse_int=Decimal))
    except (ValueError, ArithmeticError):
        return payload


def seeds() -> Iterator[bytes]:
    """The two commands of the contract, and some that are nearly the same."""
    delta, snapshot = json.dumps(DELTA).encode(), json.dumps(SNAPSHOT).encode()
    for body in (delta, snapshot):
        yield b"\x00" + body
        yield b"\x01" + body
    yield b"\x00" + delta + b"\x00" + delta.replace(b"1.5", b"1.50")
    item = b'{"eventType":"DELTA","tenantId":"a","dictCode":"D","source":"REST","items":['
    item += b'{"key":"k","payload":%b}]}'
    for one, other in (
        (b"1", b"1.0"),
        (b"18446744073709551617", b"18446744073709551618"),
        (b'"\\u0041"', b'"A"'),
    ):
        yield b"\x00" + item % one + b"\x00" + item % other


TARGET = Target(
    check,
    seeds,
    words=(
        b'"eventType"', b'"DELTA"', b'"SNAPSHOT"', b'"items"', b'"key"', b'"op"', b'"payload"',
        b'"UPSERT"', b'"DELETE"',
        b'"tenantId"', b'"dictCode"', b'"source"', b'"REST"', b'"KAFKA"', b'"chunkIndex"', b'"chunksTotal"',
        b'"snapshotId"', b'"occurredAt"', b'"sourceRevision"', b"\\u0000", b"\\ud800", b"1e9999", b"-0",
        b"null",
        b"18446744073709551616", b"[[[[[[[[", b"\x00", b"1.0", b"9223372036854775807", b"+99:99",
    ),
    most_bytes=2500,
)  # fmt: skip
