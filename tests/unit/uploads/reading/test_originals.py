"""Cells are read once more, as they were, and no further than they are asked for."""

from __future__ import annotations

import gzip
import io

import pytest

from app.uploads.reading import formats, plan
from app.uploads.reading.originals import Originals
from app.uploads.reading.plan import Declared, Plan

HEADER = "Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)"


class Counted(io.BytesIO):
    """A file that knows how far it was read."""

    furthest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.furthest = max(self.furthest, self.tell())
        return data


def report(*rows: str) -> Counted:
    return Counted("\n".join([HEADER, *rows, ""]).encode())


def plan_of(file: io.BytesIO) -> Plan:
    file.seek(0)
    return plan.make(file, platform="meta", declared=Declared())


def test_the_cells_are_as_many_as_the_columns() -> None:
    file = report("2025-05-01,A,1,5,1", "2025-05-01,B,2,6", "2025-05-01,C,3,7,1, ,", "", "2025-05-01,D,4,8,1")
    found = Originals(plan_of(file), file)
    assert [found.cells(line) for line in (2, 3, 4, 6)] == [
        ["2025-05-01", "A", "1", "5", "1"],
        ["2025-05-01", "B", "2", "6", ""],
        ["2025-05-01", "C", "3", "7", "1"],
        ["2025-05-01", "D", "4", "8", "1"],
    ]


def test_a_line_where_no_row_begins_has_no_cells() -> None:
    file = report("2025-05-01,A,1,5,1", "", "2025-05-01,B,2,6,1")
    assert Originals(plan_of(file), file).cells(3) is None


@pytest.mark.parametrize("packed", [False, True])
def test_the_rest_of_the_file_is_not_read(packed: bool) -> None:
    rows = [f"2025-05-01,Campaign {number * 7919 % 100_003},{number},5,1" for number in range(50_000)]
    file = report(*rows)
    of = plan_of(file)
    stored = Counted(gzip.compress(file.getvalue())) if packed else report(*rows)
    with formats.unpacking(stored) as content:
        cells = Originals(of, content).cells(1000)
    assert cells == rows[998].split(",")
    assert stored.furthest < len(stored.getvalue()) / 5
