"""Suppliers' lists in archives: XLSX and XLSB, of which one part at a time is made up, and ZIP."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import cache

import openpyxl

from tests.fuzz.lists import check_list
from tests.fuzz.target import Target
from tests.integration.suppliers.binary_lists import Error, Packed, Shared, Shown, xlsb

ROWS = [["Code", "Name", "Price", "Stock"], ["A-1", "Bolt", 10.5, 5], [17, "Nut", "3,10", True]]
PARTS = (
    (0, "xl/worksheets/sheet1.xml"), (0, "xl/workbook.xml"), (0, "xl/styles.xml"), (0,
    "xl/sharedStrings.xml"),
    (0, "xl/_rels/workbook.xml.rels"), (0, "[Content_Types].xml"), (1, "xl/worksheets/sheet1.bin"),
    (1, "xl/workbook.bin"), (1, "xl/styles.bin"), (1, "xl/sharedStrings.bin"),
)  # fmt: skip
RAW, PACKED = len(PARTS), len(PARTS) + 1


@cache
def _books() -> tuple[dict[str, bytes], dict[str, bytes]]:
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append(row)
    book.active["A3"].number_format = "000000"
    book.active["C4"] = "=1/0"
    out = io.BytesIO()
    book.save(out)
    table = [
        [Shared("Code"), "Name", "Price", "Stock"],
        [Shown(17, "000000"), "Bolt", Packed(1050, hundredth=True), 5],
        ["A-1", "Nut", Error(formula=True), True],
    ]
    return _parts(out.getvalue()), _parts(xlsb({"S": table}))


def _parts(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def check(data: bytes) -> None:
    """The first byte chooses the rules, the second what the rest is: a part, an archive, what is packed."""
    if len(data) < 2:
        return
    rule, kind, content = data[:1], data[1] % (PACKED + 1), data[2:]
    if kind == PACKED:
        content = _zipped({"list.csv": content})
    elif kind != RAW:
        place, name = PARTS[kind]
        content = _zipped(_books()[place] | {name: content})
    check_list(rule + content)


def seeds() -> Iterator[bytes]:
    """Every part of two workbooks, and whole archives."""
    for kind, (place, name) in enumerate(PARTS):
        if name in _books()[place]:
            yield bytes([0, kind]) + _books()[place][name]
    for parts in (*_books(), {"list.csv": b"Code;Name;Price;Stock\nA-1;Bolt;1;5\n"}):
        yield bytes([0, RAW]) + _zipped(parts)
    yield bytes([0, PACKED]) + b"Code;Name;Price;Stock\nA-1;Bolt;1;5\n"


TARGET = Target(
    check,
    seeds,
    words=(
        b'<row r="2">', b'<c r="A2"', b' t="e">', b' t="b">', b' t="s">', b' t="str">', b' t="inlineStr">',
        b' s="1"',
        b"<v>1</v>", b"<f>1/0</f>", b"<is><t>x</t></is>", b"</c>", b"</row>", b"XFD1048576",
        b"<mergeCell ref=",
        b'formatCode="000"', b"<!DOCTYPE x>", b"<!ENTITY", b"<x:c ", b'state="hidden"', b"../", b"PK\x03\x04",
        b"PK\x01\x02", b"PK\x05\x06", b"\x08\x00", b"\x0c\x00", b"\x0e\x00", b"\x01\x00", b"\xff\xff\xff\xff",
    ),
)  # fmt: skip
