"""Suppliers' lists that are XLS, of Excel 5 to 2003."""

from __future__ import annotations

import io
from collections.abc import Iterator

import xlwt

from tests.fuzz.lists import check_list
from tests.fuzz.target import Target
from tests.integration.suppliers.binary_lists import biff5, ole

ROWS = [["Code", "Name", "Price", "Stock"], ["A-1", "Bolt", 10.5, 5], [17, "Nut", 3, 2]]


def check(data: bytes) -> None:
    """The first byte chooses the rules and whether the rest is a whole file or a stream of BIFF in one."""
    if not data:
        return
    in_container = data[0] >= 128 and len(data) > 1
    content = ole({"Workbook": data[1:]}) if in_container else data[1:]
    check_list(data[:1] + content)


def seeds() -> Iterator[bytes]:
    """A workbook of Excel 97 with dates and errors, and streams of Excel 5."""
    book = xlwt.Workbook()
    sheet = book.add_sheet("S")
    for row, cells in enumerate(ROWS):
        for column, cell in enumerate(cells):
            sheet.write(row, column, cell)
    sheet.write(3, 0, 7, xlwt.easyxf(num_format_str="000000"))
    sheet.write(3, 1, 45000.5, xlwt.easyxf(num_format_str="YYYY-MM-DD"))
    sheet.write(3, 2, xlwt.Formula("1/0"))
    out = io.BytesIO()
    book.save(out)
    yield b"\x00" + out.getvalue()
    for codepage in (None, 1251):
        yield b"\x80" + biff5({"S": ROWS}, codepage=codepage)
        yield b"\x01" + biff5({"S": ROWS}, codepage=codepage)


TARGET = Target(
    check,
    seeds,
    words=(
        b"\x09\x08\x10\x00", b"\x09\x08\x08\x00", b"\x85\x00", b"\xfc\x00", b"\x3c\x00",
        b"\xfd\x00\x0a\x00", b"\x04\x02",
        b"\x03\x02\x0e\x00", b"\x7e\x02\x0a\x00", b"\xbd\x00", b"\x05\x02\x08\x00", b"\x06\x00",
        b"\xe5\x00", b"\x2f\x00",
        b"\x42\x00\x02\x00", b"\xe0\x00\x14\x00", b"\x1e\x04", b"\x31\x00", b"\x0a\x00\x00\x00",
        b"\x18\x00", b"\xff\xff",
    ),
    most_bytes=12 * 1024,
)  # fmt: skip
