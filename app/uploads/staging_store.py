"""Staging in PostgreSQL: rows in by COPY, the settling of repeated keys, rejects out."""

from __future__ import annotations

import bisect
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
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


class ChunkFeed:
    """The next chunk of staging rows as a file that COPY reads, made while it is read.

    It has `limit` rows of the file, or what is left of it. After a failed COPY it can be read again from
    its beginning.
    """

    def __init__(self, claim: Claim, rows: Supply, *, limit: int) -> None:
        self.first_row = self.last_row = -1
        self.exhausted = False
        self.has_entities = False
        self._rows, self._limit = rows, limit
        self._pack = _packer(claim)
        self._blocks: list[bytes] = []
        self._at = 0
        self._error: BaseException | None = None

    def rewind(self) -> None:
        """Begin again; raises what ended the reading of the file, if something did."""
        self.raise_error()
        self._at = 0

    def raise_error(self) -> None:
        """Raise what making a block raised: COPY hides it behind an error of its own."""
        if self._error is not None:
            raise self._error

    def read(self, _size: int = -1) -> bytes:
        try:
            if self._at == len(self._blocks) and not self._make_block():
                return b""
        except BaseException as error:
            self._error = error
            raise
        self._at += 1
        return self._blocks[self._at - 1]

    def _make_block(self) -> bool:
        if self._blocks and self._done:
            return False
        block = b"" if self._blocks else _COPY_BEGIN
        staged = self._rows.take(self._limit - self.source_rows)
        if not staged:
            self.exhausted = True
        else:
            self.first_row = staged[0].row_index if self.empty else self.first_row
            self.last_row = staged[-1].row_index
            # More staging rows than source rows: some of them are entities.
            self.has_entities = self.has_entities or len(staged) > self.last_row - staged[0].row_index + 1
            block += self._pack(staged)
        if self._done:
            block += _COPY_END
        self._blocks.append(block)
        return True

    @property
    def _done(self) -> bool:
        return self.exhausted or self.source_rows >= self._limit

    @property
    def empty(self) -> bool:
        return self.first_row < 0

    @property
    def source_rows(self) -> int:
        """How many rows of the file it has."""
        return 0 if self.empty else self.last_row - self.first_row + 1


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


def copy_chunk(conn: Connection, claim: Claim, feed: ChunkFeed) -> None:
    """The chunk is staged, once a write that names the claim follows in the same transaction."""
    feed.rewind()
    with conn.cursor() as cursor:
        partition = f"staging_rows_{claim.staged_on:%Y%m%d}"
        copy = _sql.copy_staging_rows.sql.format(partition=partition)
        try:
            with tracing.query("copy_staging_rows"):
                cursor.copy_expert(copy, feed, size=1 << 24)
        except Exception:
            feed.raise_error()
            raise
    if feed.empty:
        return
    if feed.has_entities:
        _sql.add_resolutions(conn, **claim.staging, first_row=feed.first_row, last_row=feed.last_row)


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
    if row_indexes:
        _sql.settle_rows(
            conn,
            **claim.staging,
            row_indexes=row_indexes,
            into_rows=[merged_into.get(row) for row in row_indexes],
            said=[_json_with_decimals(said[row]) if row in said else "{}" for row in row_indexes],
            validation_errors=[errors_of.get(row) for row in row_indexes],
        )


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
