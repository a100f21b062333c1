"""Rows of one natural key within a file: which is one row twice, a part of a sum, or a contradiction."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from app.uploads.reading import aliases, cells

NOT_ADDITIVE = ("reach",)
"""Metrics that must not be added up: the same person may be in two of the rows."""


FEW_KEYS = 4_000
"""So many keys are remembered as they are: cheaper than a page of memory that is taken for each."""


class Repeats:
    """The natural keys of a file that may stand in it more than once: all that do, and few others.

    The first ones as they are; from then on a bit for each of 2^27 places where a key's hash may fall: 16 MB
    however large the file is, which are only taken where bits are set.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._first: set[str] = set()
        self._seen: mmap.mmap | None = None

    def look_at(self, keys: Sequence[str]) -> None:
        """Take in the keys of some rows; each is a hash in hex."""
        if self._seen is None and len(self._first) + len(keys) <= FEW_KEYS:
            for key in keys:
                if key in self._first:
                    self.keys.append(key)
                self._first.add(key)
            return
        if self._seen is None:
            self._seen = mmap.mmap(-1, 1 << 24)  # the kernel gives a page when it is first written to
            self._mark(self._first, self._seen)
            self._first.clear()
        self._mark(keys, self._seen)

    def _mark(self, keys: Iterable[str], seen: mmap.mmap) -> None:
        repeated = self.keys
        for key in keys:
            place = int(key[:7], 16) >> 1
            bit = 1 << (place & 7)
            if seen[place >> 3] & bit:
                repeated.append(key)
            else:
                seen[place >> 3] |= bit


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One staged row of a key that has several; `raw` as staged, its numbers as Decimal."""

    row_index: int
    raw: dict[str, Any]

    @property
    def line(self) -> int:
        return int(self.raw["line"])

    @property
    def breakdown(self) -> tuple[str | None, ...]:
        return tuple(self.raw.get("breakdown", ()))

    @property
    def content(self) -> tuple[object, ...]:
        """Everything that makes two rows the same row."""
        metrics = tuple(self.raw.get(name) for name in aliases.METRICS)
        return (*metrics, self.raw.get("currency"), self.breakdown, self.raw.get("rest"))

    @property
    def totalled(self) -> tuple[int, ...]:
        """The breakdowns over which the row is a subtotal."""
        return tuple(at for at, value in enumerate(self.breakdown) if value and cells.is_all(value))


@dataclass(slots=True)
class Settlement:
    """What becomes of the rows of one key, by row_index."""

    merged: dict[int, int] = field(default_factory=dict)  # row → the row that carries its numbers
    identical: dict[int, int] = field(default_factory=dict)  # row → the row that it repeats
    subtotals: list[int] = field(default_factory=list)
    rejected: dict[int, tuple[str, int]] = field(default_factory=dict)  # row → (code, other line)
    leader: int | None = None
    leader_raw: dict[str, Any] | None = None  # when numbers were added up
    warning: str | None = None

    @property
    def carriers(self) -> dict[int, dict[str, Any]]:
        """The rows that stand for others, each with what it says now and did not, or not so, before."""
        carried = Counter([*self.merged.values(), *self.identical.values()])
        said = {row_index: {"carries": count} for row_index, count in carried.items()}
        if self.leader is not None and self.leader_raw is not None:
            said[self.leader] = {**self.leader_raw, **said[self.leader]}
        return said


def settle(rows: Sequence[KeyRow]) -> Settlement:
    """Decide about the rows of one key, given in row_index order."""
    result = Settlement()
    detail = _without_subtotals(rows, result)
    detail = _without_repeats(detail, result)
    if len(detail) < 2:
        return result
    if len({row.raw.get("currency") for row in detail}) > 1:
        _reject(detail, "currency_conflict", result)
    elif len({row.breakdown for row in detail}) == len(detail):
        _merge(detail, result)
    elif detail[0].raw.get("by_name"):
        result.warning = "merged_without_ids"
        _merge(detail, result)
    else:
        _reject(detail, "duplicate_key_conflict", result)
    return result


def _without_subtotals(rows: Sequence[KeyRow], result: Settlement) -> list[KeyRow]:
    """The rows less those of which another row is a part: equal elsewhere, and finer somewhere."""
    totalled = {row.row_index: row.totalled for row in rows}
    parts = {
        places: {_elsewhere(row, places) for row in rows if set(places) - set(totalled[row.row_index])}
        for places in set(totalled.values())
        if places
    }
    kept = []
    for row in rows:
        places = totalled[row.row_index]
        if places and _elsewhere(row, places) in parts[places]:
            result.subtotals.append(row.row_index)
        else:
            kept.append(row)
    return kept


def _elsewhere(row: KeyRow, places: tuple[int, ...]) -> tuple[str | None, ...]:
    return tuple(value for at, value in enumerate(row.breakdown) if at not in places)


def _without_repeats(rows: Sequence[KeyRow], result: Settlement) -> list[KeyRow]:
    first: dict[tuple[object, ...], KeyRow] = {}
    for row in rows:
        known = first.setdefault(row.content, row)
        if known is not row:
            result.identical[row.row_index] = known.row_index
    return list(first.values())


def _merge(rows: Sequence[KeyRow], result: Settlement) -> None:
    leader = rows[0]
    raw = {**leader.raw, "source_rows": len(rows)}
    for name in aliases.METRICS:
        values = [row.raw[name] for row in rows if row.raw.get(name) is not None]
        raw[name] = sum(values, Decimal(0)) if values and name not in NOT_ADDITIVE else None
    result.leader, result.leader_raw = leader.row_index, raw
    result.merged = {row.row_index: leader.row_index for row in rows[1:]}
    # What repeats a merged row is carried by the leader as well.
    result.identical = {row: result.merged.get(first, first) for row, first in result.identical.items()}


def _reject(rows: Sequence[KeyRow], code: str, result: Settlement) -> None:
    for row in rows:
        other = next(r for r in rows if r is not row)
        result.rejected[row.row_index] = (code, other.line)
    # A repeat of a contradicted row is no less contradicted.
    for row_index, first in list(result.identical.items()):
        result.rejected[row_index] = (code, result.rejected[first][1])
        del result.identical[row_index]
