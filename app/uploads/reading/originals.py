"""The original cells of rows that were read before: staging keeps them only of what was rejected at once."""

from __future__ import annotations

from typing import BinaryIO

from app.uploads.reading.plan import Plan


class Originals:
    """One more pass over a file for the cells of some of its rows, which are asked for in file order.

    One row at a time is in memory, and the file is read no further than to the last row that is asked for.
    """

    def __init__(self, plan: Plan, file: BinaryIO) -> None:
        self._records = plan.records(file)
        self._width = len(plan.columns)

    def cells(self, line: int) -> list[str] | None:
        """The cells of the row that begins there, one for each column; None when there is no such row."""
        row = next((row for begin, row in self._records if begin == line), None)
        if not isinstance(row, list):
            return None
        # As it was read: what is missing at the end is empty, and what is beyond the last column was.
        return row[: self._width] + [""] * (self._width - len(row))
