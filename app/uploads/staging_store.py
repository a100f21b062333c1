"""Staging in PostgreSQL: rows in by COPY, the settling of repeated keys, rejects out."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import groupby
from typing import Any

from app.adapters import queries
from app.adapters.database import Connection, json_value
from app.uploads.claims import Claim
from app.uploads.reading.duplicates import KeyRow
from app.uploads.reading.entities import Staged

_sql = queries.load("uploads")

BLOCK_ROWS = 250
"""Rows handed to the server at once: it works on one block while the next is made."""

_COPY_BEGIN = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_COPY_END = struct.pack("!h", -1)
_POSTGRES_EPOCH = date(2000, 1, 1)


class ChunkFeed:
    """The next chunk of staging rows as a file that COPY reads, made while it is read.

    After a failed COPY it can be read again from its beginning.
    """

    def __init__(self, claim: Claim, rows: Iterator[list[Staged]], *, limit: int) -> None:
        self.first_row = self.last_row = -1
        self.exhausted = False
        self.has_entities = False
        self._rows, self._limit = rows, limit
        self._pack = _packer(claim)
        self._taken = 0
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
        block: list[bytes] = [] if self._blocks else [_COPY_BEGIN]
        for _ in range(min(BLOCK_ROWS, self._limit - self._taken)):
            staged = next(self._rows, None)
            if staged is None:
                self.exhausted = True
                break
            self._taken += 1
            block.extend(map(self._pack, staged))
            self.has_entities = self.has_entities or len(staged) > 1
            self.last_row = staged[-1].row_index
            self.first_row = self.first_row if self.first_row >= 0 else self.last_row
        if self._done:
            block.append(_COPY_END)
        self._blocks.append(b"".join(block))
        return True

    @property
    def _done(self) -> bool:
        return self.exhausted or self._taken >= self._limit

    @property
    def empty(self) -> bool:
        return self._taken == 0


def _packer(claim: Claim) -> Any:
    """A function from a staged row to its bytes in PostgreSQL's binary COPY format."""
    begin = (
        struct.pack("!hi", 9, 16)
        + claim.upload_id.bytes
        + struct.pack("!i", 16)
        + claim.workspace_id.bytes
        + struct.pack("!i", 4)
    )
    types = {kind: _text(kind) for kind in ("campaign", "ad_set", "ad", "daily_metric")}
    end = struct.pack("!ii", 4, (claim.staged_on - _POSTGRES_EPOCH).days)
    valid = _text("valid") + struct.pack("!i", -1) + end
    invalid = _text("invalid")
    integer = struct.Struct("!i").pack

    def pack(row: Staged) -> bytes:
        key, raw = row.key_hash.encode(), row.raw.encode()
        parts = [
            begin, integer(row.row_index), types[row.entity_type], integer(len(key)), key,
            integer(len(raw) + 1), b"\x01", raw,
        ]  # fmt: skip
        if row.errors is None:
            parts.append(valid)
        else:
            why = row.errors.encode()
            parts += [invalid, integer(len(why) + 1), b"\x01", why, end]
        return b"".join(parts)

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


def last_staged_row(conn: Connection, claim: Claim) -> int:
    """Index of the last source row that is staged, -1 when none is (D6.6 §6.4)."""
    found = _sql.last_staged_row(conn, **claim.staging)
    return -1 if found is None else int(found)


def copy_chunk(conn: Connection, claim: Claim, feed: ChunkFeed) -> None:
    """The chunk is staged, unless another worker has the upload by now."""
    feed.rewind()
    with conn.cursor() as cursor:
        partition = f"staging_rows_{claim.staged_on:%Y%m%d}"
        copy = _sql.copy_staging_rows.sql.format(partition=partition)
        try:
            cursor.copy_expert(copy, feed, size=1 << 24)
        except Exception:
            feed.raise_error()
            raise
    if feed.empty:
        return
    if feed.has_entities:
        _sql.add_resolutions(conn, **claim.staging, first_row=feed.first_row, last_row=feed.last_row)
    if not _sql.set_staged_rows(conn, **claim.fence, staged_rows=feed.last_row + 1):
        raise claim.lost


def set_report(conn: Connection, claim: Claim, report: Mapping[str, Any]) -> None:
    """What was recognised in the file is kept with the upload."""
    if not _sql.set_report(conn, **claim.fence, report=json_value(dict(report))):
        raise claim.lost


def repeated_keys(conn: Connection, claim: Claim) -> Iterator[list[KeyRow]]:
    """The rows of each natural key that stands more than once, in file order; memory stays bounded."""
    with conn.cursor("repeated_keys") as cursor:  # a cursor of the server
        cursor.itersize = 5_000
        cursor.execute(_sql.rows_of_repeated_keys.sql, claim.staging)
        for _, rows in groupby(cursor, key=lambda row: row.natural_key_hash):
            yield [KeyRow(row.row_index, json.loads(row.raw_data, parse_float=Decimal)) for row in rows]


def mark_merged(conn: Connection, claim: Claim, into: Mapping[int, int]) -> None:
    """These rows are carried by others."""
    _sql.mark_merged(conn, **claim.staging, row_indexes=list(into), into_rows=list(into.values()))


def set_merged_values(conn: Connection, claim: Claim, raws: Mapping[int, Mapping[str, Any]]) -> None:
    """These rows carry the numbers of all rows of their keys."""
    _sql.set_merged_values(
        conn,
        **claim.staging,
        row_indexes=list(raws),
        raw_data=[_json_with_decimals(raw) for raw in raws.values()],
    )


def _json_with_decimals(raw: Mapping[str, Any]) -> str:
    """JSON in which a Decimal is a number with all of its digits, which json's own floats lose."""
    members = []
    for name, value in raw.items():
        text = format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
        members.append(f"{json.dumps(name)}:{text}")
    return "{" + ",".join(members) + "}"


def reject_rows(conn: Connection, claim: Claim, errors_of: Mapping[int, str]) -> None:
    """These rows are invalid; values are JSON texts for validation_errors."""
    _sql.reject_rows(
        conn,
        **claim.staging,
        row_indexes=list(errors_of),
        validation_errors=list(errors_of.values()),
    )


def drop_subtotals(conn: Connection, claim: Claim, row_indexes: Sequence[int]) -> None:
    """These rows are no data."""
    _sql.drop_subtotals(conn, **claim.staging, row_indexes=list(row_indexes))


def count_rejects(conn: Connection, claim: Claim) -> list[Any]:
    """For each code: code, rows, first_row and first_line, in file order."""
    return list(_sql.count_rejects(conn, **claim.staging))
