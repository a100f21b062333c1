"""Lists that are workbooks: XLSX and XLSB by calamine, XLS by xlrd.

Not calamine for XLS: the numbers of 1C's exports become dates in it. Not openpyxl for XLSX: it believes
what a sheet says of its own size, and is ten times slower.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import python_calamine
import xlrd

from app.suppliers.failures import SupplierFailure
from app.suppliers.reading.binary_parts import BinaryParts
from app.suppliers.reading.cells import CELL_ERROR, LONG_NUMBER, Truth
from app.suppliers.reading.formats import unpacking
from app.suppliers.reading.limits import Limits
from app.suppliers.reading.sheets import Merge, Row, Sheet, Source, refused
from app.suppliers.reading.workbook_parts import Found, Parts

if TYPE_CHECKING:
    from app.suppliers.config import Input

_ZEROS = re.compile(r"0{2,}")


class Calamine(Source):
    """An XLSX or XLSB."""

    def __init__(self, path: Path, format: str, limits: Limits) -> None:
        self.format = format
        with contextlib.ExitStack() as unless_read, _calamine(format):
            self._file = unless_read.enter_context(path.open("rb"))
            self._parts = Parts(path, limits) if format == "xlsx" else BinaryParts(path, limits)
            # By its content: given a path, calamine believes the name.
            self._book = python_calamine.CalamineWorkbook.from_filelike(self._file)
            unless_read.pop_all()
        self._open: tuple[str, Any, Found] | None = None  # the sheet that is read now
        self._coded: set[int] = set()

    def close(self) -> None:
        self._file.close()
        self._parts.close()

    def sheets(self) -> list[Sheet]:
        visible = python_calamine.SheetVisibleEnum.Visible
        tables = python_calamine.SheetTypeEnum.WorkSheet
        return [
            Sheet(one.name, visible=one.visible == visible)
            for one in self._book.sheets_metadata
            if one.typ == tables
        ]

    def _sheet(self, sheet: Sheet) -> tuple[Any, Found]:
        if self._open is None or self._open[0] != sheet.name:
            self._open = None
            with _calamine(self.format):
                found = self._parts.scan(sheet.name)
                self._open = sheet.name, self._book.get_sheet_by_name(sheet.name), found
            self._coded = set()
        return self._open[1], self._open[2]

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        with _calamine(self.format):
            yield from self._rows(sheet)

    def _rows(self, sheet: Sheet) -> Iterator[Row]:
        opened, found = self._sheet(sheet)
        if opened.start is None:
            return
        indent = [None] * opened.start[1]
        if not (indent or found.truths or found.faults or found.zeros):
            yield from enumerate(opened.iter_rows(), start=1)  # as most sheets are
            return
        odd_rows = {row for row, _ in found.faults}
        for number, cells in enumerate(opened.iter_rows(), start=1):
            row = indent + cells if indent else cells
            if found.truths:
                row = [_TRUTHS[cell] if type(cell) is bool else cell for cell in row]
            if number in odd_rows:
                _put_faults(row, number, found)
            if self._coded:
                _put_zeros(row, number, self._coded, found)
            yield number, row

    def merges(self, sheet: Sheet) -> list[Merge]:
        opened, _ = self._sheet(sheet)
        with _calamine(self.format):
            ranges = opened.merged_cell_ranges or []
        return [(top + 1, bottom + 1, left, right) for (top, left), (bottom, right) in ranges]

    def keep_zeros(self, sheet: Sheet, columns: set[int]) -> None:
        self._coded = columns if self._sheet(sheet)[1].zeros else set()


@contextlib.contextmanager
def _calamine(format: str) -> Iterator[None]:
    """What is wrong with a workbook is a refusal; so is a panic, the end of all it knows of forged ones."""
    try:
        with unpacking(format):
            yield
    except python_calamine.PasswordError:
        raise refused("FILE_ENCRYPTED") from None
    except python_calamine.CalamineError as error:
        raise refused("FILE_CORRUPT", format=format, problem=type(error).__name__) from None
    except BaseException as error:
        if (
            type(error).__name__ != "PanicException"
        ):  # it has no other name, and no parent but the root of all
            raise
        raise refused("FILE_CORRUPT", format=format, problem="panic") from None


_TRUTHS = {True: Truth.TRUE, False: Truth.FALSE}


def _put_faults(row: list[Any], number: int, found: Found) -> None:
    for at in range(len(row)):
        fault = found.faults.get((number, at))
        if fault is not None:
            row[at] = fault


def _put_zeros(row: list[Any], number: int, columns: set[int], found: Found) -> None:
    for at in columns:
        digits = found.zeros.get((number, at))
        if digits and at < len(row):
            row[at] = _padded(row[at], digits)


def _padded(cell: Any, digits: int) -> Any:
    """A code as its format shows it; numbers that are no code stay what they are."""
    if isinstance(cell, int | float) and 0 <= cell < LONG_NUMBER and cell == int(cell):
        return str(int(cell)).zfill(digits)
    return cell


class Xls(Source):
    """An XLS of Excel 5 to 2003."""

    format = "xls"

    def __init__(self, path: Path, settings: Input) -> None:
        self.encoding: str | None = None
        with _xlrd():
            self._book = self._opened(path, settings.encoding)
            self._formats = {key: found.format_str for key, found in self._book.format_map.items()}
        self._coded: set[int] = set()

    def _opened(self, path: Path, encoding: str) -> Any:
        asked = None if encoding == "auto" else encoding
        book = _open_xls(path, asked)
        # Old Russian programs leave the code page out, and mean their own.
        if asked is None and book.biff_version < 80 and book.codepage is None:
            return _open_xls(path, "cp1251")
        return book

    def sheets(self) -> list[Sheet]:
        return [Sheet(one.name, visible=one.visibility == 0) for one in self._book.sheets()]

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        with _xlrd():
            yield from self._rows(sheet)

    def _rows(self, sheet: Sheet) -> Iterator[Row]:
        opened = self._book.sheet_by_name(sheet.name)
        for index in range(opened.nrows):
            cells = opened.row_values(index)
            if not _PLAIN.issuperset(opened.row_types(index)):
                cells = [self._cell(cell) for cell in opened.row(index)]
            for at in self._coded:
                if at < len(cells):
                    cells[at] = self._code(opened.cell(index, at), cells[at])
            yield index + 1, cells

    def _cell(self, cell: Any) -> Any:
        kind = cell.ctype
        if kind in (xlrd.XL_CELL_TEXT, xlrd.XL_CELL_NUMBER):
            return cell.value
        if kind == xlrd.XL_CELL_BOOLEAN:
            return _TRUTHS[bool(cell.value)]
        if kind == xlrd.XL_CELL_DATE:
            return self._moment(cell.value)
        return CELL_ERROR if kind == xlrd.XL_CELL_ERROR else None

    def _moment(self, value: float) -> Any:
        try:
            found = xlrd.xldate.xldate_as_datetime(value, self._book.datemode)
        except (ValueError, OverflowError):  # no day of any calendar: programs show `#####`
            return CELL_ERROR
        return moment(found, has_day=value >= 1)

    def _code(self, cell: Any, value: Any) -> Any:
        if cell.ctype != xlrd.XL_CELL_NUMBER or cell.xf_index is None:
            return value
        shown = self._formats.get(self._book.xf_list[cell.xf_index].format_key, "")
        return _padded(value, len(shown)) if _ZEROS.fullmatch(shown) else value

    def merges(self, sheet: Sheet) -> list[Merge]:
        opened = self._book.sheet_by_name(sheet.name)
        return [(top + 1, bottom, left, right - 1) for top, bottom, left, right in opened.merged_cells]

    def keep_zeros(self, sheet: Sheet, columns: set[int]) -> None:
        self._coded = columns


@contextlib.contextmanager
def _xlrd() -> Iterator[None]:
    """Whatever xlrd raises is a refusal: it believes its files, and stumbles in any way over a forged one."""
    try:
        yield
    except xlrd.XLRDError as error:
        code = "FILE_ENCRYPTED" if "encrypt" in str(error).lower() else "FILE_CORRUPT"
        raise refused(code, format="xls") from None
    except (MemoryError, SupplierFailure):
        raise
    except Exception as error:
        raise refused("FILE_CORRUPT", format="xls", problem=type(error).__name__) from None


def _open_xls(path: Path, encoding: str | None) -> Any:
    with path.open("rb") as file, open("/dev/null", "w") as nowhere:  # noqa: PTH123
        return xlrd.open_workbook(
            file_contents=file.read(), formatting_info=True, ragged_rows=True,
            encoding_override=encoding, logfile=nowhere,
        )  # fmt: skip


_PLAIN = frozenset((xlrd.XL_CELL_TEXT, xlrd.XL_CELL_NUMBER, xlrd.XL_CELL_EMPTY, xlrd.XL_CELL_BLANK))


def moment(found: datetime, *, has_day: bool = True) -> date | time:
    """A cell that is a date, a time of a day or both, as calamine gives it."""
    if not has_day:
        return found.time()
    return found if found.time() != time() else found.date()
