"""The one shape that every format is read into: sheets of rows of cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

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


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table of a list; `keyed` when its cells come under names instead of below a header."""

    name: str
    visible: bool = True
    keyed: bool = False


class Source(Protocol):
    """A list of one format."""

    format: str
    encoding: str | None

    def sheets(self) -> list[Sheet]:
        """The sheets in their order; empty ones too."""

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        """The rows of a sheet from its first one, blank ones too."""

    def keyed_rows(self, sheet: Sheet) -> Iterator[KeyedRow]:
        """The rows of a keyed sheet."""

    def merges(self, sheet: Sheet) -> list[Merge]:
        """The merged ranges of a sheet, for the header."""

    def keep_zeros(self, sheet: Sheet, columns: set[int]) -> None:
        """From here on codes in these columns come with the zeros that their format shows."""
