"""Staging in PostgreSQL: rows in by COPY, the settling of repeated keys, rejects out."""

from __future__ import annotations

import bisect
import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import groupby
from typing import Any

from app.adapters import queries, tracing
from app.adapters.database import Connection, json_value
from app.uploads.claims import Claim
from app.uploads.reading.duplicates import KeyRow
from app.uploads.reading.entities import Staged

_sql = queries.load("uploads")

_COPY_BEGIN = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_COPY_END = struct.pack("!h", -1)
_POSTGRES_EPOCH = date(2000, 1, 1)

CHUNK_BYTES = 2 << 20
"""A chunk of so many bytes takes no further rows: memory does not grow with what the rows say."""


class Supply:
    """Staging rows that are made some at a time, and taken some others."""

    def __init__(self, made: Iterator[list[Staged]]) -> None:
        self._made = made
        self._left: list[Staged] = []

    def take(self, source_rows: int) -> list[Staged]:
        """The next rows, of up to so many rows of the file; none at its end."""
        rows = self._left or next(self._made, [])
        end = rows[0].row_index + source_rows if rows else 0
        if rows and rows[-1].row_index >= end:
            cut = bisect.bisect_left(rows, end, key=lambda row: row.row_index)
            self._left = rows[cut:]
            return rows[:cut]
        self._left = []
        return rows


@dataclass(frozen=True, slots=True)
class Chunk:
    """Staging rows of some rows of the file, from `first_row` up to `end`, as COPY reads them.

    `is_last`: the file is known to have no more.
    """

    first_row: int
    end: int
    content: bytes
    has_entities: bool
    is_last: bool


def chunks(claim: Claim, rows: Supply, *, limit: int) -> Iterator[Chunk]:
    """The rows in chunks of up to so many rows of the file each, and of bounded size."""
    pack, is_last = _packer(claim), False
    while not is_last:
        blocks, size, has_entities = [_COPY_BEGIN], 0, False
        first_row = end = -1
        while size < CHUNK_BYTES and end - first_row < limit:
            staged = rows.take(limit - (end - first_row))
            if not staged:
                is_last = True
                break
            first_row = staged[0].row_index if end < 0 else first_row
            # More staging rows than source rows: some of them are entities.
            has_entities = has_entities or len(staged) > staged[-1].row_index - staged[0].row_index + 1
            end = staged[-1].row_index + 1
            blocks.append(pack(staged))
            size += len(blocks[-1])
        if size:
            yield Chunk(first_row, end, b"".join([*blocks, _COPY_END]), has_entities, is_last)


def _packer(claim: Claim) -> Callable[[list[Staged]], bytes]:
    """A function from staging rows to their bytes in PostgreSQL's binary COPY format.

    What most rows have alike comes first, as one piece.
    """
    begin = (
        struct.pack("!hi", 9, 16) + claim.upload_id.bytes
        + struct.pack("!i", 16) + claim.workspace_id.bytes
        + struct.pack("!ii", 4, (claim.staged_on - _POSTGRES_EPOCH).days)
    )  # fmt: skip
    types = {kind: begin + _text(kind) for kind in ("campaign", "ad_set", "ad", "daily_metric")}
    valid = {kind: known + _text("valid") + struct.pack("!i", -1) for kind, known in types.items()}
    numbers = struct.Struct("!iii").pack
    json_header = struct.Struct("!iB").pack

    def pack(rows: list[Staged]) -> bytes:
        parts: list[bytes] = []
        for kind, row_index, key_hash, raw, errors in rows:
            if errors is None:
                parts.append(valid[kind])
            else:
                why = errors.encode()
                parts += (types[kind], invalid, json_header(len(why) + 1, 1), why)
            key, body = key_hash.encode(), raw.encode()
            parts += (numbers(4, row_index, len(key)), key, json_header(len(body) + 1, 1), body)
        return b"".join(parts)

    invalid = _text("invalid")
    return pack


def _text(value: str) -> bytes:
    return struct.pack("!i", len(value)) + value.encode()


def ensure_staging_day(conn: Connection, claim: Claim) -> None:
    """There is a place for this upload's staging."""
    _sql.ensure_staging_day(conn, staged_on=claim.staged_on)


def staged_rows(conn: Connection, claim: Claim) -> int:
    """How many source rows are committed."""
    found = _sql.staged_rows(conn, **claim.fence)
    if found is None:
        raise claim.lost
    return int(found)


def copy_chunk(conn: Connection, claim: Claim, chunk: Chunk) -> None:
    """The chunk is staged, once a write that names the claim follows in the same transaction."""
    partition = f"staging_rows_{claim.staged_on:%Y%m%d}"
    copy = _sql.copy_staging_rows.sql.format(partition=partition)
    with conn.cursor() as cursor, tracing.query("copy_staging_rows"):
        cursor.copy_expert(copy, io.BytesIO(chunk.content), size=len(chunk.content))
    if chunk.has_entities:
        _sql.add_resolutions(conn, **claim.staging, first_row=chunk.first_row, last_row=chunk.end - 1)


def set_staged(conn: Connection, claim: Claim, *, before: int, rows: int, report: Mapping[str, Any]) -> None:
    """So many source rows are staged where it were `before`, and this was recognised in the file."""
    found = json_value(dict(report))
    if not _sql.set_staged(conn, **claim.fence, before=before, staged_rows=rows, report=found):
        raise claim.lost


def repeated_keys(conn: Connection, claim: Claim, keys: Sequence[str]) -> Iterator[list[KeyRow]]:
    """The rows of each of these natural keys that stands more than once, in file order.

    Memory stays bounded.
    """
    if not keys:
        return
    with conn.cursor("repeated_keys") as cursor:  # a cursor of the server
        cursor.itersize = 5_000
        cursor.execute(_sql.rows_of_repeated_keys.sql, {**claim.staging, "keys": list(keys)})
        for _, rows in groupby(cursor, key=lambda row: row.natural_key_hash):
            yield [KeyRow(row.row_index, json.loads(row.raw_data, parse_float=Decimal)) for row in rows]


def settle_rows(
    conn: Connection,
    claim: Claim,
    *,
    merged_into: Mapping[int, int],
    said: Mapping[int, Mapping[str, Any]],
    errors_of: Mapping[int, str],
) -> None:
    """Rows are carried by others, rows say something new of those, and rows are invalid after all.

    Values of `errors_of` are JSON texts for validation_errors.
    """
    row_indexes = list({**merged_into, **said, **errors_of})
    if not row_indexes:
        return
    settled = []
    for row in row_indexes:
        members = [f'"into":{merged_into[row]}'] if row in merged_into else []
        if row in said:
            members.append(f'"said":{_json_with_decimals(said[row])}')
        if row in errors_of:
            members.append(f'"errors":{errors_of[row]}')
        settled.append(f'"{row}":{{{",".join(members)}}}')
    _sql.settle_rows(
        conn, **claim.staging, row_indexes=row_indexes, settled="{" + ",".join(settled) + "}"
    )  # fmt: skip


def _json_with_decimals(raw: Mapping[str, Any]) -> str:
    """JSON in which a Decimal is a number with all of its digits, which json's own floats lose."""
    members = []
    for name, value in raw.items():
        text = format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
        members.append(f"{json.dumps(name)}:{text}")
    return "{" + ",".join(members) + "}"


def drop_subtotals(conn: Connection, claim: Claim, row_indexes: Sequence[int]) -> None:
    """These rows are no data."""
    if row_indexes:
        _sql.drop_subtotals(conn, **claim.staging, row_indexes=list(row_indexes))


def count_rejects(conn: Connection, claim: Claim) -> list[Any]:
    """For each code: code, rows, first_row and first_line, in file order."""
    return list(_sql.count_rejects(conn, **claim.staging))
