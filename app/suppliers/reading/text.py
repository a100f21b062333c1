"""Lists that are text: CSV with any delimiter, and JSON."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.suppliers.reading.cells import Truth
from app.suppliers.reading.formats import MARKS
from app.suppliers.reading.sheets import Cells, InBlocks, KeyedRow, Row, Sheet, Source, evened, refused

if TYPE_CHECKING:
    from app.suppliers.config import Input

DELIMITERS = (";", "\t", ",", "|")
LOOKED_AT_LINES = 20
CHUNK_BYTES = 1 << 20
TEXT_CHARACTERS = 32 << 10
END = "\0end of the list\0"
"""Read twice after the last line. As part of a record it shows a quote that nobody closes, which would take
all the rows behind it into one cell; twice, since one alone may become a record as it is."""


def encoding_of(path: Path, asked: str) -> str:
    """The encoding of a text: what the config says, else a mark, else UTF-8 if it is, else windows-1251."""
    with path.open("rb") as file:
        start = file.read(4)
        for mark, name in MARKS:
            if start.startswith(mark):
                return name
        if asked != "auto":
            return asked
        file.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while chunk := file.read(CHUNK_BYTES):
                decoder.decode(chunk)
            decoder.decode(b"", True)
        except UnicodeDecodeError:
            return "cp1251"
        return "utf-8"


class Csv(Source):
    """One table of records."""

    format = "csv"

    def __init__(self, path: Path, settings: Input) -> None:
        self._path = path
        self.encoding: str | None = encoding_of(path, settings.encoding)
        self._delimiter = self._delimiter_of(settings.delimiter)
        self._file = self._open()

    def _open(self) -> io.TextIOWrapper:
        return self._path.open(encoding=self.encoding, newline="", errors="strict")

    def _delimiter_of(self, asked: str) -> str:
        if asked != "auto":
            return asked
        try:
            with self._open() as file:
                counts = Counter(
                    letter
                    for line in itertools.islice(file, LOOKED_AT_LINES)
                    for letter in line[: csv.field_size_limit()]
                    if letter in DELIMITERS
                )
        except UnicodeDecodeError:
            raise refused("FILE_CORRUPT", encoding=str(self.encoding)) from None
        return max(DELIMITERS, key=lambda letter: counts[letter])

    def sheets(self) -> list[Sheet]:
        return [Sheet("")]

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        self._file.seek(0)
        return _Records(self._file, self._delimiter)

    def close(self) -> None:
        self._file.close()


class _Records(InBlocks):
    """The records of a CSV, by the standard reader; texts without a quote in them are just split."""

    def __init__(self, file: io.TextIOWrapper, delimiter: str) -> None:
        self._file = file
        self._delimiter = delimiter
        self._last = 0  # the number of the last record
        self._widest = 0  # of the records so far, in cells
        self._one_by_one = self._records(file)

    def __next__(self) -> Row:
        with _reading():
            self._last += 1
            return self._last, next(self._one_by_one)

    def _records(self, lines: Iterator[str]) -> Iterator[list[str]]:
        records = csv.reader(itertools.chain(lines, (END, END)), delimiter=self._delimiter)
        read = 0
        for row in iter(records.__next__, [END]):
            several_lines = records.line_num > read + 1
            if several_lines and (row[-1].endswith(END) or self._swallows(row)):
                raise refused("FILE_CORRUPT", format="csv", record=self._last)
            read, self._widest = records.line_num, max(self._widest, len(row))
            yield row

    def _swallows(self, row: list[str]) -> bool:
        """Whether a record of several lines is several records, taken into one cell by a stray quote.

        Its lines are then whole rows by themselves; those of a long text are not.
        """
        marks = self._widest - 1
        for before, cell in enumerate(row):
            first, *others = (line.count(self._delimiter) for line in _ENDS.split(cell))
            if others and marks > 1 and ((first and before + first == marks) or marks in others[:-1]):
                return True
        return False

    def blocks(self, width: int) -> Iterator[Cells]:
        with _reading():
            while text := self._file.read(TEXT_CHARACTERS):
                text += self._file.readline()
                found = self._split(text, width)
                yield from (found,) if found else evened(self._read(text), width)

    def _split(self, text: str, width: int) -> Cells | None:
        """The records of a text in which lines are records of equal width; None when they may not be."""
        text = text.replace("\r\n", "\n").removesuffix("\n")
        if '"' in text or "\r" in text or len(text) > csv.field_size_limit():
            return None
        # The ends of the lines stay as a blank column of their own: that they are one proves the width.
        end = f"{self._delimiter}\n{self._delimiter}"
        cells = (text.replace("\n", end) + end[:2]).split(self._delimiter)
        rows = text.count("\n") + 1
        columns = len(cells) // rows
        if columns <= width or cells[columns - 1 :: columns] != ["\n"] * rows:
            return None
        first, self._last = self._last + 1, self._last + rows
        self._widest = max(self._widest, columns - 1)
        return Cells(range(first, first + rows), columns, cells)

    def _read(self, text: str) -> list[Row]:
        """The records that begin in the text; the last one may end behind it."""
        own = io.StringIO(text, newline="")
        records = self._records(itertools.chain(own, self._file))
        rows: list[Row] = []
        while own.tell() < len(text):
            self._last += 1
            rows.append((self._last, next(records)))
        return rows


_ENDS = re.compile(r"\r\n|\r|\n")


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (csv.Error, UnicodeDecodeError) as error:
        raise refused("FILE_CORRUPT", format="csv", problem=type(error).__name__) from None


class Json(Source):
    """An array of objects, or an object of such arrays, each of them a sheet."""

    format = "json"

    def __init__(self, path: Path, settings: Input) -> None:
        self.encoding: str | None = encoding_of(path, settings.encoding)
        try:
            text = path.read_bytes().decode(self.encoding or "utf-8")
            found = json.loads(text, parse_int=str, parse_float=_float, parse_constant=_refused)
            # Half a character, as programs leave it that cut texts by length, is one that cannot be shown.
            found = _mended(found) if _HALF.search(text) else found
        except (ValueError, RecursionError) as error:
            raise refused("FILE_CORRUPT", format="json", problem=type(error).__name__) from None
        self._tables = self._tables_of(found)

    @staticmethod
    def _tables_of(found: Any) -> dict[str, list[Any]]:
        tables = {"": found} if isinstance(found, list) else found
        if not isinstance(tables, dict):
            raise refused("HEADER_NOT_FOUND")
        arrays = {name: value for name, value in tables.items() if isinstance(value, list)}
        if not arrays:
            raise refused("HEADER_NOT_FOUND")
        return arrays

    def sheets(self) -> list[Sheet]:
        return [Sheet(name, keyed=True) for name in self._tables]

    def keyed_rows(self, sheet: Sheet) -> Iterator[KeyedRow]:
        for number, found in enumerate(self._tables[sheet.name], start=1):
            values = found if isinstance(found, dict) else {}
            yield number, {name: _plain(value) for name, value in values.items()}


def _float(text: str) -> float | str:
    # An amount is read by its digits, however many there are; the rules take texts.
    return float(text) if len(text) < 16 else text


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return Truth.TRUE if value else Truth.FALSE
    if value is None or isinstance(value, str | float):
        return value
    try:
        return json.dumps(value)
    except RecursionError:
        raise refused("FILE_CORRUPT", format="json", problem="RecursionError") from None
