"""Lists that are text: CSV with any delimiter, and JSON."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from app.suppliers.config import Input
from app.suppliers.reading.cells import Truth
from app.suppliers.reading.formats import MARKS
from app.suppliers.reading.sheets import KeyedRow, Merge, Row, Sheet, refused

DELIMITERS = (";", "\t", ",", "|")
LOOKED_AT_LINES = 20
CHUNK_BYTES = 1 << 20
END = "\0end of the list\0"
"""Read after the last line: unless it comes back as a record of its own, a quote was left open."""


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


class Csv:
    """One table of records."""

    format = "csv"

    def __init__(self, path: Path, settings: Input) -> None:
        self._path = path
        self.encoding: str | None = encoding_of(path, settings.encoding)
        self._delimiter = self._delimiter_of(settings.delimiter)

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
        try:
            with self._open() as file:
                yield from self._records(file)
        except (csv.Error, UnicodeDecodeError) as error:
            raise refused("FILE_CORRUPT", format="csv", problem=type(error).__name__) from None

    def _records(self, file: Iterable[str]) -> Iterator[Row]:
        """The records. A quote that nobody closes takes the rows behind it into one cell: it is refused."""
        number, row, end = 0, [""], [END]
        for row in csv.reader(itertools.chain(file, end), delimiter=self._delimiter):
            number += 1
            if row != end:
                yield number, row
        if row != end:
            raise refused("FILE_CORRUPT", format="csv", record=number)

    def keyed_rows(self, sheet: Sheet) -> Iterator[KeyedRow]:
        raise AssertionError("a CSV has a header")

    def merges(self, sheet: Sheet) -> list[Merge]:
        return []

    def keep_zeros(self, sheet: Sheet, columns: set[int]) -> None:
        """Texts keep their zeros by themselves."""


class Json:
    """An array of objects, or an object of such arrays, each of them a sheet."""

    format = "json"

    def __init__(self, path: Path, settings: Input) -> None:
        self.encoding: str | None = encoding_of(path, settings.encoding)
        try:
            text = path.read_bytes().decode(self.encoding or "utf-8")
            found = json.loads(text, parse_int=str, parse_float=_float, parse_constant=_refused)
        except (ValueError, RecursionError) as error:
            raise refused("FILE_CORRUPT", format="json", problem=type(error).__name__) from None
        # Half a character, as programs leave it that cut texts by length, is one that cannot be shown.
        self._tables = self._tables_of(_mended(found) if _HALF.search(text) else found)

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

    def rows(self, sheet: Sheet) -> Iterator[Row]:
        raise AssertionError("objects have names, not a header")

    def keyed_rows(self, sheet: Sheet) -> Iterator[KeyedRow]:
        for number, found in enumerate(self._tables[sheet.name], start=1):
            values = found if isinstance(found, dict) else {}
            yield number, {name: _plain(value) for name, value in values.items()}

    def merges(self, sheet: Sheet) -> list[Merge]:
        return []

    def keep_zeros(self, sheet: Sheet, columns: set[int]) -> None:
        """Texts keep their zeros by themselves."""


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
    return value if value is None or isinstance(value, str | float) else json.dumps(value)
