"""Where a table begins: the delimiter and the row of column names, and what each column is."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from app.uploads.reading import aliases
from app.uploads.reading.aliases import Alias

DELIMITERS = (",", ";", "\t", "|")
SEARCHED_RECORDS = 20
MOST_COLUMNS = 16_384
"""As many as a spreadsheet has: a record of more cells is no header."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its place, its name, and what it means (an empty field: not known)."""

    index: int
    header: str
    field: str = ""
    type: str = ""
    currency: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class Found:
    """The row of column names of a table."""

    delimiter: str
    line: int  # physical, 1-based
    record: int  # 0-based, blank records counted
    columns: tuple[Column, ...]
    preamble: tuple[str, ...]

    @property
    def known(self) -> int:
        return sum(1 for column in self.columns if column.field)


def find(platform: str, lines: list[str]) -> Found | None:
    """The first of the first 20 records that names an entity or date and a metric.

    Of the four delimiters the one under which most column names are known is right; cells hold
    commas and pipes of their own, so counting characters decides nothing.
    """
    found = [hit for delimiter in DELIMITERS if (hit := _find_with(platform, lines, delimiter))]
    return max(found, key=lambda hit: hit.known, default=None)


def _find_with(platform: str, lines: list[str], delimiter: str) -> Found | None:
    reader = csv.reader(lines, delimiter=delimiter)
    preamble: list[str] = []
    begin = seen = 0
    for number, record in enumerate(_bounded(reader)):
        if any(record):
            seen += 1
            columns = name_columns(platform, record) if len(record) <= MOST_COLUMNS else ()
            if is_header(platform, columns):
                return Found(delimiter, begin + 1, number, columns, tuple(preamble))
            preamble.append(delimiter.join(record).strip()[:300])
        begin = reader.line_num
        if seen >= SEARCHED_RECORDS:
            break
    return None


def _bounded(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error:  # a cell longer than the reader takes: no header lies behind it
        return


def name_columns(platform: str, names: Iterable[str]) -> tuple[Column, ...]:
    """A column for each name, known or not."""
    return tuple(_column(platform, index, name) for index, name in enumerate(names))


def _column(platform: str, index: int, name: str) -> Column:
    header = aliases.header(name)
    alias = aliases.lookup(platform, header)
    field, kind = (alias.field, alias.type) if alias else ("", "")
    return Column(index, name.strip()[:300], field, kind, header.currency)


def is_header(platform: str, columns: tuple[Column, ...]) -> bool:
    """Whether the names are those of a report: an entity or a date, and a metric."""
    found = [Alias(column.field, column.type, "") for column in columns if column.field]
    names = {alias.field for alias in found}
    return any(alias.is_metric for alias in found) and bool(
        names & {*aliases.ENTITY_FIELDS, *aliases.DATE_FIELDS}
    )


def count_known(platform: str, record: list[str]) -> int:
    """How many cells of a record are known column names."""
    return sum(1 for name in record if aliases.lookup(platform, aliases.header(name)))


def fits_another_better(platform: str, columns: tuple[Column, ...]) -> bool:
    """Whether clearly more of the columns are known by the names of another platform."""
    names = [column.header for column in columns]
    known = {
        other: sum(1 for column in name_columns(other, names) if column.field) for other in aliases.table()
    }
    return any(known[other] >= known[platform] + CLEARLY_MORE for other in known if other != platform)


CLEARLY_MORE = 2


def other_platforms(platform: str, lines: list[str]) -> list[str]:
    """Platforms whose report this may be instead."""
    return [other for other in aliases.table() if other != platform and find(other, lines)]
