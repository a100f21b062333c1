"""What the parts of an XLSB say and its reader does not: formats that show zeros, and error values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.suppliers.reading.cells import CELL_ERROR
from app.suppliers.reading.sheets import refused
from app.suppliers.reading.workbook_parts import Found, Parts, part_of, targets_of

_ZEROS = re.compile(r"0{2,}")

# Kinds of records.
ROW, ERROR, BOOLEAN, FORMULA_BOOLEAN, FORMULA_ERROR = 0, 3, 4, 10, 11
CELLS = range(1, 12)
NUMBER_FORMAT, CELL_FORMAT, SHEET = 44, 47, 156
BEGIN_CELL_FORMATS, END_CELL_FORMATS = 617, 618


class BinaryParts(Parts):
    """The parts of one XLSB."""

    def _sheet_parts(self) -> dict[str, str]:
        targets = targets_of(self._tree("xl/_rels/workbook.bin.rels"))
        found = {}
        for kind, data in self._records("xl/workbook.bin"):
            if kind == SHEET:
                relation, end = _text(data, 8)
                found[_text(data, end)[0]] = part_of(targets.get(relation, ""))
        return found

    def _zero_masks(self) -> dict[int, int]:
        if "xl/styles.bin" not in self._names:
            return {}
        digits: dict[int, int] = {}
        formats: list[int] = []
        of_cells = False
        for kind, data in self._records("xl/styles.bin"):
            if kind == NUMBER_FORMAT:
                code, _ = _text(data, 2)
                if _ZEROS.fullmatch(code):
                    digits[_number(data, 0, 2)] = len(code)
            elif kind in (BEGIN_CELL_FORMATS, END_CELL_FORMATS):
                of_cells = kind == BEGIN_CELL_FORMATS
            elif kind == CELL_FORMAT and of_cells:
                formats.append(_number(data, 2, 2))
        return {style: digits[one] for style, one in enumerate(formats) if one in digits}

    def scan(self, sheet: str) -> Found:
        """What is odd in this sheet; FILE_TOO_LARGE when it reaches too far for its reader."""
        part = self._sheets.get(sheet, "")
        if part not in self._names:
            raise refused("FILE_CORRUPT", format="xlsb", problem="sheet without a part")
        found = Found()
        row = 0
        for kind, data in self._records(part):
            if kind == ROW:
                row = _number(data, 0, 4) + 1
                found.last_row = max(found.last_row, row)
            elif kind in CELLS:
                self._look_at(kind, data, row, found)
        if found.last_row * (found.last_column + 1) > self._limits.cells:
            raise refused("FILE_TOO_LARGE", rows=found.last_row, columns=found.last_column + 1)
        return found

    def _look_at(self, kind: int, data: bytes, row: int, found: Found) -> None:
        column = _number(data, 0, 4)
        found.last_column = max(found.last_column, column)
        if kind in (ERROR, FORMULA_ERROR):
            found.faults[row, column] = CELL_ERROR
        elif kind in (BOOLEAN, FORMULA_BOOLEAN):
            found.truths = True
        if digits := self._masks.get(_number(data, 4, 3)):
            found.zeros[row, column] = digits

    def _records(self, part: str) -> Iterator[tuple[int, bytes]]:
        """The records of a part: a kind and a size of seven bits a byte, and so much data."""
        content = self._archive.read(self._names[part])
        at = 0
        while at < len(content):
            kind, at = _sevens(content, at, most=2)
            size, at = _sevens(content, at, most=4)
            yield kind, content[at : at + size]
            at += size


def _sevens(content: bytes, at: int, *, most: int) -> tuple[int, int]:
    """A number whose bytes say whether another one follows, and where it ends."""
    number = 0
    for shift, byte in enumerate(content[at : at + most]):
        at += 1
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            break
    return number, at


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _text(data: bytes, at: int) -> tuple[str, int]:
    """A text that stands behind its length, and where it ends."""
    end = at + 4 + 2 * _number(data, at, 4)
    return data[at + 4 : end].decode("utf-16-le", "replace"), end
