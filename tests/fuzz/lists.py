"""Reading one list as the reading process does, twice: in one go, and cut into the smallest blocks."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from app.suppliers import codes, durable, extract
from app.suppliers.failures import SupplierFailure
from app.suppliers.reading import emit, payloads, sheets, sums, text
from app.suppliers.reading.job import Job, read
from app.suppliers.reading.limits import Limits
from tests.integration.suppliers.lists import rules

LIMITS = Limits(unpacked_bytes=8 << 20, cells=200_000, entries=50)
SMALLEST = (
    (text, "TEXT_CHARACTERS", 7),
    (text, "CHUNK_BYTES", 11),
    (sheets, "BLOCK_CELLS", 1),
    (payloads, "REMEMBERED", 1),
    (payloads, "MANY", 0),
    (sums, "AT_A_TIME", 1),
)
"""Constants that may only decide how fast a list is read."""

COLUMNS = {
    "sku": {"from": ["Code", "@id"]}, "name": {"from": "Name"}, "price": {"from": "Price", "group": ","},
    "qty": {"from": "Stock", "words": {"many": "10+"}},
}  # fmt: skip
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"duplicates": "sum"},
    {"duplicates": "first"},
    {"header": {"rows": 2}},
    {"columns": {**COLUMNS, "warehouse": {"from": "Name"}}, "key": ["sku", "warehouse"]},
    {"extra": {"size": {"from": "Size", "type": "code"}, "old": {"from": "Old", "type": "money"}}},
)


@cache
def config(number: int) -> Any:
    """The rules of this number, as the reading process gets them."""
    patch = VARIANTS[number % len(VARIANTS)]
    return extract._plain(rules(**{"columns": COLUMNS, **patch}))


@cache
def room() -> Path:
    """A folder in memory where there is one."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=shared if os.access(shared, os.W_OK) else None))


def outcome(content: bytes, number: int) -> tuple[str, dict[str, Any], bytes, bytes]:
    """The code of the failure or nothing, the counts, the facts and the bad rows."""
    with tempfile.TemporaryDirectory(dir=room()) as folder:
        into = Path(folder)
        source = into / "list"
        source.write_bytes(content)
        job = Job(source, into, config(number), "r", None, LIMITS, into, os.getpid())
        try:
            found = read(job).as_json()
        except SupplierFailure as failure:
            assert codes.registry()[failure.code].kind == "fail"
            assert all(isinstance(value, str | int) for value in failure.detail.values())
            json.dumps(failure.detail).encode()
            return failure.code, {}, b"", b""
        # Which of the bad rows of one block is told first is left open.
        bad = b"".join(sorted((into / "bad.ndjson").read_bytes().splitlines(keepends=True)))
        return "", found, (into / "facts.ndjson").read_bytes(), bad


@contextmanager
def _smallest() -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in SMALLEST]
    for module, name, value in SMALLEST:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


@contextmanager
def _in_memory() -> Iterator[None]:
    """What is written need not reach a disk."""
    synced, durable.sync_file = durable.sync_file, lambda _path: None
    try:
        yield
    finally:
        durable.sync_file = synced


def check_list(data: bytes) -> None:
    """The first byte chooses the rules; the rest is the list."""
    if not data:
        return
    with _in_memory():
        found = outcome(data[1:], data[0])
        with _smallest():
            assert outcome(data[1:], data[0]) == found, "in small blocks it is another list"
    failed, counts, facts, bad = found
    if not failed:
        _check_facts(counts, facts)
        assert len(bad.splitlines()) == counts["bad_rows"] == sum(counts["bad_by_reason"].values())
        for line in bad.splitlines():
            assert codes.registry()[orjson.loads(line)["reason_code"]].kind == "bad"


def _check_facts(counts: dict[str, Any], facts: bytes) -> None:
    lines = facts.splitlines()
    assert len(lines) == counts["facts"]
    digests = []
    for line in lines:
        fact = orjson.loads(line)
        payload = orjson.dumps(fact["payload"], option=orjson.OPT_SORT_KEYS)
        assert payload in line, "the payload is not in its one spelling"
        assert fact["row_id"] == hashlib.sha256(payload).hexdigest()
        assert 0 < fact["payload"]["price_minor"] < 2**53 and 0 <= fact["payload"]["qty"] < 2**53
        digests.append(fact["row_id"])
    assert len(set(digests)) <= counts["facts"]
    assert hashlib.sha256(facts).hexdigest() == counts["facts_sha256"]
    told = emit.Told(row_ids=[bytes.fromhex(one) for one in digests])
    assert told.content_sha256() == counts["content_sha256"]
