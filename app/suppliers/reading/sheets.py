"""The one shape that every format is read into: sheets of rows of cells."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.suppliers.failures import SupplierFailure

Row: TypeAlias = tuple[int, list[Any]]
"""The number of a row in its file, from 1, and its cells."""

KeyedRow: TypeAlias = tuple[int, dict[str, Any]]
"""The number of an object in its file, from 1, and its cells by their names."""

Merge: TypeAlias = tuple[int, int, int, int]
"""A merged range: first row, last row, first column, last column; rows from 1, columns from 0."""


def refused(code: str, **detail: str | int) -> SupplierFailure:
    """The failure of a list that cannot be read."""
    return SupplierFailure(code, stage="gate", **detail)


BLOCK_CELLS = 4096
"""Of the rows that are looked at together: many for speed, few enough for a processor's own memory."""

MOST_CELLS = 1 << 20
"""Of such rows with the blanks that even them."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Some rows of equal width; their cells stand row after row."""

    numbers: Sequence[int]
    width: int
    cells: list[Any]

    def row(self, at: int) -> list[Any]:
        return self.cells[at * self.width : (at + 1) * self.width]

    def column(self, at: int) -> list[Any]:
        return self.cells[at :: self.width]

    def some(self, places: list[int]) -> Cells:
        """The rows at these places."""
        cells = [cell for at in places for cell in self.row(at)]
        return Cells([self.numbers[at] for at in places], self.width, cells)


class InBlocks(ABC, Iterator[Row]):
    """Rows whose source can give many of them at once."""

    @abstractmethod
    def blocks(self, width: int) -> Iterator[Cells]:
        """The rows that are left, each with so many cells at least."""


def blocks(rows: Iterator[Row], width: int) -> Iterator[Cells]:
    """The rows that are left, many at a time, each with so many cells at least."""
    if isinstance(rows, InBlocks):
        yield from rows.blocks(width)
        return
    for number, row in rows:
        size = max(1, BLOCK_CELLS // max(1, width, len(row)))
        yield from evened([(number, row), *itertools.islice(rows, size - 1)], width)


def evened(rows: list[Row], width: int) -> Iterator[Cells]:
    """These rows, each with so many cells at least; together, unless one is so wide that the others' blanks
    would fill the memory."""
    widest = max(width, *(len(row) for _, row in rows)) if rows else 0
    if widest * len(rows) <= MOST_CELLS:
        if rows:
            yield block(rows, widest)
        return
    for cells, alike in itertools.groupby(rows, key=lambda row: len(row[1])):
        size = max(1, MOST_CELLS // max(1, width, cells))
        while some := list(itertools.islice(alike, size)):
            yield block(some, max(width, cells))


def block(rows: list[Row], width: int) -> Cells:
    """These rows, each filled up to this width; none is wider."""
    width = max(1, width)
    cells: list[Any] = []
    for _, row in rows:
        cells += row
        if len(row) < width:
            cells += [None] * (width - len(row))
    return Cells([number for number, _ in rows], width, cells)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table of a list; `keyed` when its cells come under names instead of below a header."""

    name: str
    visible: bool = True
    keyed: bool = False


class Source:
    """A list of one format. Most have no more than sheets and rows, or sheets and keyed rows."""

    format: str
    encoding: str | None = None

    def sheets(self) -> list[Sheet]:
        """The sheets in their order; empty ones too."""
        raise NotImplementedError

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        """The rows of a sheet from its first one, blank ones too."""
        raise NotImplementedError

    def keyed_rows(self, sheet: Sheet) -> Iterator[KeyedRow]:
        """The rows of a keyed sheet."""
        raise NotImplementedError

    def merges(self, sheet: Sheet) -> list[Merge]:
        """The merged ranges of a sheet, for the header."""
        return []

    def keep_zeros(self, sheet: Sheet, columns: set[int]) -> None:
        """From here on codes in these columns come with the zeros that their format shows."""

    def close(self) -> None:
        """The file is closed."""
