"""What a command says (section 8.1): read from its bytes, checked, and told apart from another one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec
import orjson

from app.kernel import errors
from app.kernel.canonical import plain_decimal
from app.refdata.tenant_rules import TENANT_ID

MOST_BYTES = 5 << 20
WIRE_BYTES = MOST_BYTES + (1 << 20)
"""As it goes to the topic a command may be a little longer: what was left out stands there."""

MOST_ITEMS = 10_000
LONGEST_KEY = 256  # bytes
DEEPEST = 64
MOST_CHUNKS = 100_000
LARGEST = (1 << 63) - 1

DICTIONARY = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

_NUL = re.compile(rb"\\u0000")
_EXPONENT = re.compile(rb"[eE][+-]?[0-9]{4}")
_LONG_NUMBER = re.compile(rb"[0-9.]{16}|[0-9][eE][+-]?[0-9]{3}")
"""Where two numbers may be one double, or where a text looks so."""


class Malformed(errors.Refused):
    """The body is no command."""

    code = "MALFORMED_COMMAND"


class BadJson(Malformed):
    """The body is no JSON."""

    code = "invalid_json"


class TooMany(Malformed):
    """The command is larger than one may be."""

    code = "COMMAND_TOO_LARGE"


class _Item(msgspec.Struct, frozen=True):
    key: str
    op: Literal["UPSERT", "DELETE"] = "UPSERT"
    payload: msgspec.Raw = msgspec.Raw(b"")


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    event_type: Literal["SNAPSHOT", "DELTA"]
    items: list[_Item]
    dict_code: str | None = None
    event_id: str | None = None
    tenant_id: str | None = None
    source: str | None = None
    source_revision: int | float | None = None
    snapshot_id: str | None = None
    chunk_index: int | float | None = None
    chunks_total: int | float | None = None
    occurred_at: str | None = None


_decoder = msgspec.json.Decoder(_Wire)


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a dictionary, as it is to be: `payload` is JSON as it was sent; None: it is to be gone."""

    key: str
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Which part of which snapshot a command holds; the index counts from 1."""

    snapshot_id: UUID
    index: int
    total: int


@dataclass(frozen=True, slots=True)
class Command:
    """A change of one dictionary of one tenant; a snapshot replaces every entry, a delta those it names."""

    tenant_id: str
    dict_code: str
    event_id: UUID
    source: str
    source_revision: int | None
    occurred_at: datetime
    chunk: Chunk | None  # None: a delta
    items: tuple[Item, ...]

    @property
    def key(self) -> str:
        """The key of its message: all of one dictionary of one tenant stay in one order."""
        return f"{self.tenant_id}:{self.dict_code}"

    @property
    def event(self) -> tuple[str, UUID]:
        """Under what it is known, however often it comes."""
        return self.tenant_id, self.event_id

    @property
    def digest(self) -> bytes:
        """SHA-256 of what it says: the same for the same command sent again, however it is spelt."""
        chunk = self.chunk and (str(self.chunk.snapshot_id), self.chunk.index, self.chunk.total)
        head = orjson.dumps((self.dict_code, self.source_revision, chunk))
        return hashlib.sha256(head + self.digest_of_items).digest()

    @property
    def digest_of_items(self) -> bytes:
        """SHA-256 of its items in their order."""
        whole = hashlib.sha256()
        for item in self.items:
            whole.update(orjson.dumps((item.key, item.payload is None)))
            whole.update(_spelt_one_way(item.payload or b""))
        return whole.digest()

    def encoded(self) -> bytes:
        """The command as it goes to the topic."""
        wire = {
            "eventId": str(self.event_id), "tenantId": self.tenant_id, "source": self.source,
            "dictCode": self.dict_code, "eventType": "SNAPSHOT" if self.chunk else "DELTA",
            "sourceRevision": self.source_revision,
            "snapshotId": self.chunk and str(self.chunk.snapshot_id),
            "chunkIndex": self.chunk.index if self.chunk else None,
            "chunksTotal": self.chunk.total if self.chunk else None,
            "occurredAt": self.occurred_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "items": [
                {"key": item.key, "op": "DELETE"} if item.payload is None
                else {"key": item.key, "op": "UPSERT", "payload": msgspec.Raw(item.payload)}
                for item in self.items
            ],
        }  # fmt: skip
        return msgspec.json.encode(wire)


def decode(
    content: bytes,
    *,
    now: datetime,
    given: Mapping[str, str] | None = None,
    event_id: UUID | None = None,
    most_bytes: int = MOST_BYTES,
) -> Command:
    """The command in these bytes; `given` is what is known of it from elsewhere, by its names.

    `event_id` is that of a command that has none.

    BadJson, Malformed or TooMany with what is wrong with it; a name that is both given and in the bytes has
    to be the same. Items are what is refused first, by their index from 0.
    """
    if len(content) > most_bytes:
        raise TooMany(f"A command has at most {most_bytes >> 20} MiB: send several.")
    wire = _wire(content)
    found = {
        "tenantId": wire.tenant_id, "dictCode": wire.dict_code, "source": wire.source,
        "eventId": wire.event_id,
    }  # fmt: skip
    for name, value in (given or {}).items():
        if found[name] not in (None, value):
            raise Malformed(f"{name} is another one than that of the request.")
        found[name] = value
    if found["eventId"] is not None or event_id is None:
        event_id = _id(found["eventId"], "eventId")
    return Command(
        tenant_id=_matching(TENANT_ID, found["tenantId"], "tenantId"),
        dict_code=_matching(DICTIONARY, found["dictCode"], "dictCode"),
        event_id=event_id,
        source=_matching(re.compile("REST|KAFKA"), found["source"], "source"),
        source_revision=_whole(wire.source_revision, "sourceRevision", least=0),
        occurred_at=_moment(wire.occurred_at) if wire.occurred_at is not None else now,
        chunk=_chunk(wire, event_id),
        items=_items(wire),
    )


def _wire(content: bytes) -> _Wire:
    try:
        content.decode("utf-8")
        return _decoder.decode(content)
    except (UnicodeDecodeError, RecursionError):
        raise BadJson("The body is no JSON in UTF-8.") from None
    except msgspec.ValidationError as error:
        raise Malformed(f"{error}.") from None
    except msgspec.DecodeError as error:
        raise BadJson(f"The body is no JSON: {error}.") from None


def _items(wire: _Wire) -> tuple[Item, ...]:
    if len(wire.items) > MOST_ITEMS:
        raise TooMany(f"A command has at most {MOST_ITEMS:,} items: send several.")
    if not wire.items and wire.event_type == "DELTA":
        raise Malformed("items: a delta has at least one.")
    found = tuple(_item(index, item) for index, item in enumerate(wire.items))
    if wire.event_type == "SNAPSHOT":
        if any(item.payload is None for item in found):
            raise Malformed("items: a snapshot names what is there, and has no DELETE.")
        if len({item.key for item in found}) < len(found):
            raise Malformed("items: a snapshot has each key once.")
    return found


def _item(index: int, item: _Item) -> Item:
    key, payload = item.key, bytes(item.payload)
    if not key or len(key.encode()) > LONGEST_KEY:
        raise Malformed(f"items[{index}].key has 1 to {LONGEST_KEY} bytes.")
    if not key.isprintable():
        raise Malformed(f"items[{index}].key has a character that is not printable.")
    if item.op == "DELETE":
        return Item(key, None)
    if payload in (b"", b"null"):
        raise Malformed(
            f"items[{index}].payload is missing; whoever takes an entry away sends the op DELETE."
        )
    if payload.count(b"{") + payload.count(b"[") > DEEPEST and _depth(payload) > DEEPEST:
        raise Malformed(f"items[{index}].payload is nested deeper than {DEEPEST}.")
    if _NUL.search(payload) and _has_nul(payload):
        raise Malformed(f"items[{index}].payload has a NUL, which the database cannot store.")
    if _EXPONENT.search(payload) and _has_vast_number(payload):
        raise Malformed(f"items[{index}].payload has a number beyond 1e±999.")
    return Item(key, payload)


def _depth(payload: bytes) -> int:
    """How deep it is nested."""
    deepest = depth = 0
    for sign in re.findall(rb'"(?:[^"\\]|\\.)*"|[][{}]', payload):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(sign, 0)
        deepest = max(deepest, depth)
    return deepest


def _has_nul(payload: bytes) -> bool:
    return any("\x00" in json.loads(text) for text in re.findall(rb'"(?:[^"\\]|\\.)*"', payload))


def _has_vast_number(payload: bytes) -> bool:
    return any(_EXPONENT.search(part) for part in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", payload).split(b","))


def _chunk(wire: _Wire, event_id: UUID) -> Chunk | None:
    places = {
        "snapshotId": wire.snapshot_id,
        "chunkIndex": wire.chunk_index,
        "chunksTotal": wire.chunks_total,
    }
    total = _whole(wire.chunks_total, "chunksTotal", least=1, most=MOST_CHUNKS) or 1
    index = _whole(wire.chunk_index, "chunkIndex", least=1, most=MOST_CHUNKS) or 1
    # A snapshot that comes whole needs no name of its own.
    snapshot_id = event_id if wire.snapshot_id is None else _id(wire.snapshot_id, "snapshotId")
    if wire.event_type == "DELTA":
        return None
    if total > 1 and None in places.values():
        missing = ", ".join(name for name, value in places.items() if value is None)
        raise Malformed(f"A snapshot of several chunks names each one: {missing} is missing.")
    if index > total:
        raise Malformed("chunkIndex is above chunksTotal.")
    return Chunk(snapshot_id, index, total)


def _matching(pattern: re.Pattern[str], value: str | None, name: str) -> str:
    if value is None:
        raise Malformed(f"{name} is missing.")
    if pattern.fullmatch(value) is None:
        raise Malformed(f"{name} does not match {pattern.pattern}.")
    return value


def _id(value: str | None, name: str) -> UUID:
    if value is None:
        raise Malformed(f"{name} is missing.")
    try:
        if len(value) != 36:
            raise ValueError
        return UUID(value)
    except ValueError:
        raise Malformed(f"{name} is no UUID.") from None


def _whole(value: float | None, name: str, *, least: int, most: int = LARGEST) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and not value.is_integer():
        raise Malformed(f"{name} is no whole number.")
    if not least <= value <= most:
        raise Malformed(f"{name} is not between {least} and {most}.")
    return int(value)


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Malformed("occurredAt is no time such as 2026-02-27T12:00:00Z.") from None


def _spelt_one_way(payload: bytes) -> bytes:
    if _LONG_NUMBER.search(payload):
        return _exact(json.loads(payload, parse_int=Decimal, parse_float=Decimal)).encode()
    try:
        found: Any = orjson.loads(payload) if payload else None
    except orjson.JSONDecodeError:  # a number that is beyond orjson, and not beyond JSON
        return payload
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def _exact(value: Any) -> str:
    """The one spelling of a payload whose numbers are more than a double can tell apart."""
    if isinstance(value, dict):
        members = (f"{json.dumps(key)}:{_exact(one)}" for key, one in sorted(value.items()))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_exact, value)) + "]"
    return plain_decimal(value) if isinstance(value, Decimal) else json.dumps(value)
