"""The records of a CSV are those of the standard reader, however they are read and wherever a text is cut."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.suppliers.config import Input
from app.suppliers.failures import SupplierFailure
from app.suppliers.reading import cells, sheets, text
from app.suppliers.reading.sheets import blocks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


def shown(row: list[Any]) -> list[Any]:
    """A row without the blank cells at its end."""
    while row and cells.is_blank(row[-1]):
        row = row[:-1]
    return row


def expected(written: str) -> list[tuple[int, list[str]]] | None:
    """What the standard reader reads, which is strict about nothing; None where a quote is left open."""
    records = list(csv.reader(io.StringIO(written + "\n|end", newline=""), delimiter=";"))
    if records[-1] != ["|end"]:
        return None
    records = list(csv.reader(io.StringIO(written, newline=""), delimiter=";"))
    return [(number, shown(row)) for number, row in enumerate(records, start=1)]


def read(path: Path, *, one_by_one: int, width: int, at_once: int) -> list[tuple[int, list[Any]]] | None:
    """What the product reads: some records alone, the others many at a time."""
    source = text.Csv(path, Input(encoding="utf-8", delimiter=";"))
    sheet = source.sheets()[0]
    with mock.patch.object(text, "TEXT_CHARACTERS", at_once), contextlib.closing(source):
        rows = source.rows(sheet)
        try:
            found = [(number, shown(row)) for number, row in itertools.islice(rows, one_by_one)]
            for some in blocks(rows, width):
                assert some.width >= width
                found += [(number, shown(some.row(at))) for at, number in enumerate(some.numbers)]
                assert [row[0] for row in map(some.row, range(len(some.numbers)))] == some.column(0)
        except SupplierFailure as failure:
            assert failure.code == "FILE_CORRUPT"
            return None
    return found


LINE = st.lists(st.text("aя1 ", max_size=3), min_size=1, max_size=3).map(";".join)
TABLE = st.lists(LINE, max_size=12).map("\n".join)
ANYTHING = st.text('ab;;"\n\n\r\t|', max_size=40)


@settings(deadline=None, max_examples=600)
@given(
    TABLE | ANYTHING | st.tuples(TABLE, ANYTHING, TABLE).map("\r\n".join),
    st.integers(0, 3), st.integers(0, 4), st.integers(1, 30),
)  # fmt: skip
@example('a;b\nc;"d\ne";f\ng;h\n', 1, 2, 5)
@example('a;b\nc;"d', 1, 2, 5)
@example("a;b\r\nc;d\r\n\r\ne;f\r\n", 0, 2, 9)
@example("a;b;c\nd\ne;f;g;h;i", 0, 2, 100)  # as many cells as three rows of three have
def test_the_records_are_those_of_the_standard_reader(
    folder: Path, written: str, one_by_one: int, width: int, at_once: int
) -> None:
    path = folder / "list.csv"
    path.write_text(written, encoding="utf-8", newline="")
    with mock.patch.object(text._Records, "_swallows", return_value=False):  # stricter than the reader
        found = read(path, one_by_one=one_by_one, width=width, at_once=at_once)
    assert found == expected(written), repr((written, one_by_one, width, at_once))


def test_a_list_without_quotes_is_split_and_not_read_record_by_record(folder: Path) -> None:
    path = folder / "plain.csv"
    path.write_text("Code;Name\n" + "A-1;Bolt\r\n" * 10_000, encoding="utf-8", newline="")
    with mock.patch.object(text._Records, "_read", side_effect=AssertionError):
        found = read(path, one_by_one=1, width=2, at_once=text.TEXT_CHARACTERS)
    assert found is not None and found[-1] == (10_001, ["A-1", "Bolt"])


@pytest.mark.parametrize(("rows", "width"), [("\n" * 20_000, 3), ("a;b\n" * 9_000, 50_000)])
def test_one_wide_record_does_not_widen_its_neighbours(folder: Path, rows: str, width: int) -> None:
    path = folder / "wide.csv"
    path.write_text(f'"Code"\n{rows}A{";" * 100_000}"x"\n{rows}', encoding="utf-8", newline="")
    source = text.Csv(path, Input(encoding="utf-8", delimiter=";"))
    with contextlib.closing(source):
        found = [
            (len(some.numbers), len(some.cells)) for some in blocks(source.rows(source.sheets()[0]), width)
        ]
    assert sum(count for count, _ in found) == 2 * rows.count("\n") + 2
    assert max(size for _, size in found) <= sheets.MOST_CELLS


def test_wide_rows_of_any_source_come_a_few_at_a_time() -> None:
    rows = iter([(number, [None] * 16_384) for number in range(1, 40)])
    found = list(blocks(rows, 3))
    assert [number for some in found for number in some.numbers] == list(range(1, 40))
    assert max(len(some.cells) for some in found) <= 16_384
