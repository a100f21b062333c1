"""What a workbook's own XML says and its reader does not: formats, formulas without a value, errors."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

import defusedxml
import defusedxml.ElementTree

from app.suppliers.reading.cells import CELL_ERROR, FORMULA_NO_VALUE, Fault
from app.suppliers.reading.limits import Limits
from app.suppliers.reading.sheets import refused

CHUNK_BYTES = 4 << 20
SMALL_PART_BYTES = 32 << 20
SAMPLE_BYTES = 64 << 10
_ZEROS = re.compile(r"0{2,}")
# Each begins with what is rare, since a sheet has millions of characters to look at.
_FAR_COLUMN = re.compile(rb'r="([A-Z]{2,3})\d')
_ROW = re.compile(rb'row [^>]*?\br="(\d+)"')
_ODD_TYPE = re.compile(rb't="([be])"')
# A cell with something in it, from its opening to its end; `<c/>` has nothing and ends by itself.
# It cannot hold the beginning of another: else cells that nothing closes would be looked through without end.
_CELL = re.compile(rb"<(?:\w+:)?c(?=[\s>])([^<>]*)(?<!/)>((?:[^<]++|<(?!/?(?:\w+:)?c[\s>]))*+)</(?:\w+:)?c>")
_REFERENCE = re.compile(rb'\br="([A-Z]{1,3})(\d{1,7})"')
_TYPE = re.compile(rb'\bt="(\w+)"')
_VALUE = re.compile(rb"<(?:\w+:)?v(?:\s[^<>]*)?>[^<]")


@dataclass(slots=True)
class Found:
    """What a scan of one sheet has found. Rows count from 1, columns from 0."""

    faults: dict[tuple[int, int], Fault] = field(default_factory=dict)
    last_row: int = 0
    last_column: int = 25
    zeros: dict[tuple[int, int], int] = field(default_factory=dict)  # how many digits the format shows
    truths: bool = False  # whether there may be cells that are true or false


class Parts:
    """The parts of one XLSX."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._limits = limits
        self._archive = zipfile.ZipFile(path)
        # Programs spell the names of parts in many ways.
        self._names = {
            entry.filename.replace("\\", "/").lower(): entry.filename for entry in self._archive.infolist()
        }
        for name in self._names:
            if name.endswith((".xml", ".rels")) and b"<!DOCTYPE" in self._beginning(name):
                raise refused("XML_ENTITY")
        self._sheets = self._sheet_parts()
        self._masks = self._zero_masks()

    def close(self) -> None:
        self._archive.close()

    def _beginning(self, name: str) -> bytes:
        with self._archive.open(self._names[name]) as part:
            return part.read(4096)

    def _tree(self, name: str) -> Element | None:
        if name not in self._names:
            return None
        info = self._archive.getinfo(self._names[name])
        if info.file_size > SMALL_PART_BYTES:
            raise refused("FILE_TOO_LARGE", part=name)
        try:
            found: Element = defusedxml.ElementTree.fromstring(self._archive.read(info), forbid_dtd=True)
        except defusedxml.DefusedXmlException:
            raise refused("XML_ENTITY") from None
        except ParseError:
            raise refused("FILE_CORRUPT", format="xlsx") from None
        return found

    def _sheet_parts(self) -> dict[str, str]:
        """The part of each sheet, by the sheet's name."""
        book, relations = self._tree("xl/workbook.xml"), self._tree("xl/_rels/workbook.xml.rels")
        if book is None or relations is None:
            return {}
        targets = targets_of(relations)
        found = {}
        for sheet in book.iter():
            if _local(sheet) == "sheet":
                key = next((v for k, v in sheet.attrib.items() if k.rpartition("}")[2] == "id"), "")
                found[sheet.get("name", "")] = part_of(targets.get(key, ""))
        return found

    def _zero_masks(self) -> dict[int, int]:
        """By the number of a cell's style: how many digits it shows, zeros in front included."""
        styles = self._tree("xl/styles.xml")
        if styles is None:
            return {}
        digits: dict[str, int] = {}
        for one in styles.iter():
            if _local(one) == "numFmt" and _ZEROS.fullmatch(one.get("formatCode", "")):
                digits[one.get("numFmtId", "")] = len(one.get("formatCode", ""))
        cell_formats = next((one for one in styles.iter() if _local(one) == "cellXfs"), ())
        return {
            style: digits[xf.get("numFmtId", "")]
            for style, xf in enumerate(cell_formats)
            if xf.get("numFmtId") in digits
        }

    def scan(self, sheet: str) -> Found:
        """What is odd in this sheet; FILE_TOO_LARGE when it reaches too far for its reader."""
        found = Found()
        part = self._sheets.get(sheet, "")
        if part not in self._names:
            return found
        mask = self._mask_pattern()
        for chunk in self._chunks(part):
            _look_for_end(chunk, found)
            if found.last_row * (found.last_column + 1) > self._limits.cells:
                raise refused("FILE_TOO_LARGE", rows=found.last_row, columns=found.last_column + 1)
            odd = set(_ODD_TYPE.findall(chunk))
            found.truths = found.truths or b"b" in odd
            if b"e" in odd or b"<f" in chunk or (b"</c>" not in chunk and b":f" in chunk):
                _look_for_faults(chunk, found)
            if mask:
                for match in mask.finditer(chunk):
                    place = int(match[3]), column_number(match[2])
                    found.zeros[place] = self._masks[int(match[1])]
        return found

    def _mask_pattern(self) -> re.Pattern[bytes] | None:
        if not self._masks:
            return None
        styles = b"|".join(str(style).encode() for style in self._masks)
        return re.compile(
            rb'<(?:\w+:)?c\s(?=[^<>]*\bs="(' + styles + rb')")(?=[^<>]*\br="([A-Z]{1,3})(\d{1,7})")'
        )

    def _chunks(self, part: str) -> Iterator[bytes]:
        """The part in pieces that end with a whole row."""
        rest = b""
        with self._archive.open(self._names[part]) as file:
            single = b"='" in file.read(SAMPLE_BYTES)
            file.seek(0)
            while data := file.read(CHUNK_BYTES):
                if single:  # a program that quotes its attributes so
                    data = data.replace(b"'", b'"')
                piece, end, rest = (rest + data).rpartition(b"</row>")
                if not end and len(rest) > 16 * CHUNK_BYTES:
                    piece, rest = rest, b""
                yield piece + end
        yield rest


def targets_of(relations: Element | None) -> dict[str, str]:
    """Where the relations of a workbook lead to, by their keys."""
    found = relations if relations is not None else ()
    return {one.get("Id", ""): one.get("Target", "").replace("\\", "/") for one in found}


def part_of(target: str) -> str:
    """The part that a relation of the workbook leads to, as names of parts are compared."""
    path = target.lstrip("/") if target.startswith("/") else posixpath.join("xl", target)
    return posixpath.normpath(path).lower()


def _look_for_end(chunk: bytes, found: Found) -> None:
    # Far rows stand last in any sheet that a program wrote; at a forged one the reader may die.
    start = max(chunk.rfind(b"<row "), chunk.rfind(b":row "))
    if start >= 0 and (last := _ROW.match(chunk, start + 1)):
        found.last_row = max(found.last_row, int(last[1]))
    for column in set(_FAR_COLUMN.findall(chunk)):
        found.last_column = max(found.last_column, column_number(column))


def _look_for_faults(chunk: bytes, found: Found) -> None:
    for match in _CELL.finditer(chunk):
        attributes, inside = match[1], match[2]
        kind = _TYPE.search(attributes)
        is_error = kind is not None and kind[1] == b"e"
        if not is_error and not _lacks_value(inside, kind[1] if kind else b"n"):
            continue
        reference = _REFERENCE.search(attributes)
        if reference is None:  # its place is not known, and another cell's would be a guess
            raise refused("FILE_CORRUPT", format="xlsx", problem="cell without a reference")
        place = int(reference[2]), column_number(reference[1])
        found.faults[place] = CELL_ERROR if is_error else FORMULA_NO_VALUE


def _lacks_value(inside: bytes, kind: bytes) -> bool:
    """Whether a cell holds a formula and nothing that it came to; an empty text is a value."""
    if b"<f" not in inside and b":f" not in inside:
        return False
    return kind != b"str" and not _VALUE.search(inside)


def column_number(letters: bytes) -> int:
    """The number of a column from 0: A is 0, AA is 26."""
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number - 1


def _local(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]
