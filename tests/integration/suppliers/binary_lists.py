"""Lists in binary formats, written byte by byte where no library writes them: OLE containers, BIFF5, XLSB."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

SECTOR = 512
FREE, END_OF_CHAIN, OF_TABLE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
SMALL_STREAM = 4096  # of shorter ones there is another table; none is written here


# -- OLE containers


def ole(streams: dict[str, bytes]) -> bytes:
    """A container with these streams; as in many programs' files, its directory stands in front."""
    padded = {
        name: data.ljust(SMALL_STREAM, b"\0") + bytes(-max(len(data), SMALL_STREAM) % SECTOR)
        for name, data in sorted(streams.items(), key=lambda item: (len(item[0]), item[0]))
    }
    directory_sectors = (len(streams) + 1 + 3) // 4
    sectors = directory_sectors + sum(map(len, padded.values())) // SECTOR
    tables = 1
    while tables * (SECTOR // 4) < sectors + tables:
        tables += 1
    table = [*range(1, directory_sectors), END_OF_CHAIN, *[OF_TABLE] * tables]
    directory = _entry("Root Entry", kind=5, child=1 if streams else FREE)
    for number, (name, data) in enumerate(padded.items(), start=1):
        after = number + 1 if number < len(padded) else FREE
        directory += _entry(name, kind=2, right=after, start=len(table), size=len(data))
        table += [*range(len(table) + 1, len(table) + len(data) // SECTOR), END_OF_CHAIN]
    table += [FREE] * (-len(table) % (SECTOR // 4))
    directory = directory.ljust(directory_sectors * SECTOR, b"\0")
    start = struct.pack(
        "<8s16xHHHHH10xIIIIIIII", bytes.fromhex("d0cf11e0a1b11ae1"), 0x3E, 3, 0xFFFE, 9, 6,
        tables, 0, 0, SMALL_STREAM, END_OF_CHAIN, 0, END_OF_CHAIN, 0,
    )  # fmt: skip
    places = [*range(directory_sectors, directory_sectors + tables), *[FREE] * (109 - tables)]
    return b"".join(
        [start, struct.pack("<109I", *places), directory, struct.pack(f"<{len(table)}I", *table),
         *padded.values()]
    )  # fmt: skip


def _entry(
    name: str, *, kind: int, right: int = FREE, child: int = FREE, start: int = END_OF_CHAIN, size: int = 0
) -> bytes:
    spelled = name.encode("utf-16-le") + b"\0\0"
    return struct.pack(
        "<64sHBBIII16x4x16xIII", spelled, len(spelled), kind, 1, FREE, right, child, start, size, 0
    )


# -- the records of a workbook's stream

BOF, EOF, FILEPASS, CODEPAGE, BOUNDSHEET = 0x0809, 0x000A, 0x002F, 0x0042, 0x0085
FONT, FORMAT, XF, LABEL, NUMBER = 0x0031, 0x041E, 0x00E0, 0x0204, 0x0203


def record(kind: int, data: bytes = b"") -> bytes:
    return struct.pack("<HH", kind, len(data)) + data


def records(stream: bytes) -> Iterator[tuple[int, bytes]]:
    """The records of a stream up to the zeros that fill it."""
    at = 0
    while at + 4 <= len(stream) and stream[at : at + 4] != bytes(4):
        kind, size = struct.unpack_from("<HH", stream, at)
        yield kind, stream[at + 4 : at + 4 + size]
        at += 4 + size


def changed(stream: bytes, change: Callable[[int, bytes], bytes]) -> bytes:
    """The stream with other contents of the same length in its records."""
    found = list(records(stream))
    new = [(kind, change(kind, data)) for kind, data in found]
    assert [len(data) for _, data in new] == [len(data) for _, data in found]
    return b"".join(record(kind, data) for kind, data in new)


def with_formats_from(first: int, stream: bytes) -> bytes:
    """The stream of a BIFF8 with its own number formats from this number on instead of 164."""

    def change(kind: int, data: bytes) -> bytes:
        at = {FORMAT: 0, XF: 2}.get(kind)
        if at is None or (number := struct.unpack_from("<H", data, at)[0]) < 164:
            return data
        return data[:at] + struct.pack("<H", number - 164 + first) + data[at + 2 :]

    return changed(stream, change)


def encrypted(stream: bytes) -> bytes:
    """The stream as it begins where a workbook has a password; what follows is left as it is."""
    (first, data), *others = records(stream)
    key = record(FILEPASS, struct.pack("<HHH", 1, 1, 1) + bytes(48))
    return record(first, data) + key + b"".join(record(kind, data) for kind, data in others)


Table = list[list[Any]]
"""Rows of cells: texts, numbers, None."""


def biff5(tables: dict[str, Table], *, codepage: int | None, encoding: str = "cp1251") -> bytes:
    """The stream of an Excel 5 workbook whose texts are in this encoding."""
    beginning = record(BOF, struct.pack("<HHHH", 0x0500, 0x0005, 0x096C, 0x07C9))
    if codepage is not None:
        beginning += record(CODEPAGE, struct.pack("<H", codepage))
    for _ in range(4):
        beginning += record(FONT, struct.pack("<HHHHHBBBxB", 200, 0, 0x7FFF, 400, 0, 0, 0, 204, 5) + b"Arial")
    beginning += record(FORMAT, struct.pack("<HB", 50, 6) + b"000000")
    for number_format in (0, 50):
        beginning += record(XF, struct.pack("<HHH10x", 0, number_format, 1))
    names = [name.encode(encoding) for name in tables]
    at = len(beginning) + sum(11 + len(name) for name in names) + 4
    bodies = [_biff5_sheet(table, encoding) for table in tables.values()]
    for name, body in zip(names, bodies, strict=True):
        beginning += record(BOUNDSHEET, struct.pack("<iBBB", at, 0, 0, len(name)) + name)
        at += len(body)
    return beginning + record(EOF) + b"".join(bodies)


def _biff5_sheet(table: Table, encoding: str) -> bytes:
    body = record(BOF, struct.pack("<HHHH", 0x0500, 0x0010, 0x096C, 0x07C9))
    for row, cells in enumerate(table):
        for column, cell in enumerate(cells):
            # The second style shows six digits; a whole number in the first column has it.
            place = struct.pack("<HHH", row, column, int(column == 0 and isinstance(cell, int)))
            if isinstance(cell, str):
                text = cell.encode(encoding)
                body += record(LABEL, place + struct.pack("<H", len(text)) + text)
            elif cell is not None:
                body += record(NUMBER, place + struct.pack("<d", cell))
    return body + record(EOF)


# -- XLSB


@dataclass(frozen=True)
class Shared:
    """A text that stands in the table of texts and not in its cell."""

    text: str


@dataclass(frozen=True)
class Packed:
    """A number in the short form: a whole number, or a hundredth of one."""

    number: int
    hundredth: bool = False


@dataclass(frozen=True)
class Error:
    """A cell that shows an error, of a formula or by itself."""

    formula: bool = False


@dataclass(frozen=True)
class Shown:
    """A number under a format of its own."""

    number: float | Packed
    format: str


VISIBLE, HIDDEN, VERY_HIDDEN = 0, 1, 2
_PART = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
_RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_BINARY = "application/vnd.ms-excel"


def xlsb(
    tables: dict[str, Table], *, states: dict[str, int] | None = None, corner: tuple[int, int] | None = None
) -> bytes:
    """A binary workbook with these sheets, and a text in the corner of each."""
    shared: list[str] = []
    formats = ["General"]
    bodies = [_xlsb_sheet(table, corner, shared, formats) for table in tables.values()]
    book = _bin(131) + _bin(143)
    for number, name in enumerate(tables, start=1):
        state = (states or {}).get(name, VISIBLE)
        book += _bin(156, struct.pack("<II", state, number) + _wide(f"rId{number}") + _wide(name))
    book += _bin(144) + _bin(132)
    targets = [("worksheet", f"worksheets/sheet{number}.bin") for number in range(1, len(tables) + 1)]
    targets += [("sharedStrings", "sharedStrings.bin"), ("styles", "styles.bin")]
    texts = b"".join(_bin(19, b"\0" + _wide(text)) for text in shared)
    parts = {
        "[Content_Types].xml": _content_types(),
        "_rels/.rels": _relations([("officeDocument", "xl/workbook.bin")]),
        "xl/workbook.bin": book,
        "xl/_rels/workbook.bin.rels": _relations(targets),
        "xl/styles.bin": _styles(formats),
        "xl/sharedStrings.bin": _bin(159, struct.pack("<II", len(shared), len(shared))) + texts + _bin(160),
    }
    parts |= {f"xl/worksheets/sheet{number}.bin": body for number, body in enumerate(bodies, start=1)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return out.getvalue()


def _styles(formats: list[str]) -> bytes:
    """The cells' formats behind those of named styles, which are others and count from 0 as well."""
    numbers = [0, *range(164, 164 + len(formats) - 1)]
    named = list(zip(numbers, formats, strict=True))[1:]
    written = [_bin(44, struct.pack("<H", number) + _wide(code)) for number, code in named]
    styles, cells = (
        [_bin(47, struct.pack("<HH12x", 0, n)) for n in order] for order in (numbers[::-1], numbers)
    )
    parts = [(615, written, 616), (626, styles, 627), (617, cells, 618)]
    inner = b"".join(
        _bin(first, struct.pack("<I", len(some))) + b"".join(some) + _bin(last) for first, some, last in parts
    )
    return _bin(278) + inner + _bin(279)


def _content_types() -> str:
    return (
        f'{_PART}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Default Extension="bin" ContentType="{_BINARY}.sheet.binary.macroEnabled.main"/>'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        "</Types>"
    )


def _relations(targets: list[tuple[str, str]]) -> str:
    inner = "".join(
        f'<Relationship Id="rId{number}" Type="{_RELATION}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'{_PART}<Relationships xmlns="{space}">{inner}</Relationships>'


def _bin(kind: int, data: bytes = b"") -> bytes:
    """A record of XLSB: kind and size in seven bits a byte."""
    head = bytes([kind & 0x7F | 0x80, kind >> 7]) if kind > 0x7F else bytes([kind])
    size, rest = b"", len(data)
    while rest > 0x7F:
        size, rest = size + bytes([rest & 0x7F | 0x80]), rest >> 7
    return head + size + bytes([rest]) + data


def _wide(text: str) -> bytes:
    return struct.pack("<I", len(text.encode("utf-16-le")) // 2) + text.encode("utf-16-le")


def _xlsb_sheet(table: Table, corner: tuple[int, int] | None, shared: list[str], formats: list[str]) -> bytes:
    width = max((len(row) for row in table), default=1)
    body = _bin(129) + _bin(148, struct.pack("<IIII", 0, max(len(table) - 1, 0), 0, width - 1)) + _bin(145)
    for row, cells in enumerate(table):
        body += _row(row)
        for column, cell in enumerate(cells):
            style = 0
            if isinstance(cell, Shown):
                formats += [cell.format] if cell.format not in formats else []
                style, cell = formats.index(cell.format), cell.number
            if cell is not None:
                kind, data = _xlsb_cell(cell, shared)
                body += _bin(kind, struct.pack("<II", column, style) + data)
    if corner:
        body += _row(corner[0]) + _bin(6, struct.pack("<II", corner[1], 0) + _wide(" "))
    return body + _bin(146) + _bin(130)


def _row(number: int) -> bytes:
    return _bin(0, struct.pack("<IIHBBBI", number, 0, 300, 0, 0, 0, 0))


def _xlsb_cell(cell: Any, shared: list[str]) -> tuple[int, bytes]:
    if isinstance(cell, Error):
        return (11, b"\x2a" + struct.pack("<HII", 0, 0, 0)) if cell.formula else (3, b"\x2a")
    if isinstance(cell, bool):
        return 4, bytes([cell])
    if isinstance(cell, Shared):
        shared.append(cell.text)
        return 7, struct.pack("<I", len(shared) - 1)
    if isinstance(cell, Packed):
        return 2, struct.pack("<i", cell.number << 2 | 2 | cell.hundredth)
    return (6, _wide(cell)) if isinstance(cell, str) else (5, struct.pack("<d", cell))
