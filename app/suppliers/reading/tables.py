"""Lists whose tables are all in memory once they are opened: those of HTML and of SpreadsheetML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from app.suppliers.reading.limits import Limits
from app.suppliers.reading.sheets import Merge, Row, Sheet, Source, refused

LAST_ROW, LAST_COLUMN = 1_048_576, 16_384


@dataclass(slots=True)
class Table:
    """One table as it grows: cells at their places, rows from 1, columns from 0."""

    limits: Limits
    name: str = ""
    visible: bool = True
    rows: dict[int, dict[int, Any]] = field(default_factory=dict)
    merges: list[Merge] = field(default_factory=list)
    last_row: int = 0
    width: int = 0

    def put(self, row: int, column: int, cell: Any, *, down: int = 0, across: int = 0) -> None:
        """The cell stands at its place, and its range is merged when it has one."""
        bottom, right = min(row + down, LAST_ROW), min(column + across, LAST_COLUMN - 1)
        self.last_row, self.width = max(self.last_row, row), max(self.width, right + 1)
        if row > LAST_ROW or column >= LAST_COLUMN or self.last_row * self.width > self.limits.cells:
            raise refused("FILE_TOO_LARGE", rows=self.last_row, columns=self.width)
        self.rows.setdefault(row, {})[column] = cell
        if (bottom, right) != (row, column):
            self.merges.append((row, bottom, column, right))


class Tables(Source):
    """A list of such tables, each of them a sheet."""

    def __init__(self, format: str, encoding: str | None, tables: list[Table]) -> None:
        self.format = format
        self.encoding = encoding
        self._tables = {
            Sheet(table.name or f"Table {number}", visible=table.visible): table
            for number, table in enumerate(tables, start=1)
        }

    def sheets(self) -> list[Sheet]:
        return list(self._tables)

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        table = self._tables[sheet]
        for number in range(1, table.last_row + 1):
            cells = table.rows.get(number, {})
            yield number, [cells.get(column) for column in range(table.width)]

    def merges(self, sheet: Sheet) -> list[Merge]:
        return self._tables[sheet].merges
