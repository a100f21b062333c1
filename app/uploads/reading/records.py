"""Records of a file, whatever its format: cells in the order of the columns, with their line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, BinaryIO

import ijson

from app.kernel import errors
from app.uploads.codes import file_sentence

CELL_CHARACTERS = 128 * 1024
RECORD_LINES = 2_000
MAX_UNCLOSED_QUOTES = 20
MAX_DEPTH = 20

csv.field_size_limit(CELL_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Broken:
    """A record that cannot be read: why, and what stands there."""

    why: str
    text: str


Record = tuple[int, list[str] | Broken]
"""Where a record begins, and its cells: the physical line, or minus the number of a row of a JSON
document, which has no lines."""


def text_of(file: BinaryIO, encoding: str) -> io.TextIOWrapper:
    """The content as text from its beginning; `file` stays open when the wrapper goes."""
    file.seek(0)
    raw = _Unclosed(file)
    text = io.TextIOWrapper(io.BufferedReader(raw, 1 << 16), encoding=encoding, newline="")
    if encoding in ("utf-16-le", "utf-16-be") and text.read(1) != "\ufeff":
        text.seek(0)
    return text


class _Unclosed(io.RawIOBase):
    """A view of a file that is not closed with its wrapper."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Lines:
    """The lines of a text, remembering those since the last mark so that reading can step back."""

    def __init__(self, text: Iterator[str]) -> None:
        self._text = text
        self._back: list[str] = []
        self.since_mark: list[str] = []

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._back.pop() if self._back else next(self._text)
        self.since_mark.append(line)
        if len(self.since_mark) > RECORD_LINES:
            raise _Runaway
        return line

    def step_back(self) -> str:
        """Give back every line since the mark but the first, which is returned."""
        first, *others = self.since_mark
        self._back.extend(reversed(others))
        self.since_mark = []
        return first


class _Runaway(Exception):
    """A record goes on for thousands of lines: its quote was never closed."""


def csv_records(file: BinaryIO, encoding: str, delimiter: str) -> Iterator[Record]:
    """Every record that is not blank, in order.

    A quote that is never closed costs its own line, not the rest of the file.
    """
    lines = _Lines(iter(text_of(file, encoding)))
    line, unclosed = 0, 0
    reader = csv.reader(lines, delimiter=delimiter)
    since_mark = lines.since_mark
    while True:
        try:
            cells = next(reader)
            if len(since_mark) > 1 and _is_unclosed(since_mark):
                raise _Runaway
        except StopIteration:
            return
        except (csv.Error, _Runaway):
            unclosed += 1
            if unclosed > MAX_UNCLOSED_QUOTES:
                raise errors.FileRefused(
                    file_sentence("malformed_file", what="quotes are opened and never closed"),
                    code="malformed_file",
                ) from None
            yield (
                line + 1,
                Broken("a quote is never closed", lines.step_back().rstrip("\r\n")[:1000]),
            )
            line += 1
            reader = csv.reader(lines, delimiter=delimiter)
            since_mark = lines.since_mark
            continue
        begin = line + 1
        line += len(since_mark)
        since_mark.clear()
        if cells and (cells[0] or any(cells)):
            yield begin, cells


def _is_unclosed(lines: list[str]) -> bool:
    # The reader ends a record of several lines at a closing quote, or at the end of the file.
    return sum(line.count('"') for line in lines) % 2 == 1


def ndjson_objects(file: BinaryIO, encoding: str) -> Iterator[tuple[int, dict[str, Any] | Broken]]:
    """Every line that is not blank, as an object or as broken."""
    for number, line in enumerate(text_of(file, encoding), start=1):
        if line.strip("\ufeff \t\r\n"):
            yield number, _object(line.strip("\ufeff \t\r\n"))


def _object(line: str) -> dict[str, Any] | Broken:
    try:
        value = json.loads(line, parse_float=str, parse_int=str, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Broken("the line is no JSON object", line[:1000])
    return value if isinstance(value, dict) else Broken("the line is no JSON object", line[:1000])


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


JSON_ROWS = ("data.list", "data", "rows", "results", "list", "item.results", "")
"""Arrays that hold the rows of a JSON document, in ijson's words; an earlier one beats a later."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a JSON document is besides its rows."""

    rows_at: str  # where ijson finds each row; empty when the document is one row itself
    scalars: dict[str, str]  # top-level values, dotted, as text

    @property
    def more_pages(self) -> bool:
        pages = self.scalars.get("data.page_info.total_page", "1")
        return bool(
            self.scalars.get("paging.next")
            or self.scalars.get("nextPageToken")
            or (pages.isdigit() and int(pages) > 1)
        )

    @property
    def error(self) -> str:
        """The platform's message when the document is an error answer, else empty."""
        for key in ("error.message", "error.error_user_msg", "errors", "error"):
            if self.scalars.get(key):
                return self.scalars[key]
        code = self.scalars.get("code", "0")
        if code not in ("0", "") and "message" in self.scalars:
            return f"{self.scalars['message']} (code {code})"
        return ""


def document(file: BinaryIO, encoding: str) -> Document:
    """The shape of a JSON document, from one pass in bounded memory; FileRefused when it is broken."""
    scalars: dict[str, str] = {}
    arrays: set[str] = set()
    with _json_errors():
        for prefix, event, value in ijson.parse(_Utf8(file, encoding)):
            if prefix.count(".") > MAX_DEPTH:
                raise ijson.JSONError("it is nested too deeply")
            if event == "start_array" and prefix in JSON_ROWS:
                arrays.add(prefix)
            elif event in ("string", "number", "boolean") and len(scalars) < 1000:
                # searchStream answers an error with a list of one object
                key = prefix.removeprefix("item.") if prefix.startswith("item.error") else prefix
                if "item" not in key.split("."):
                    scalars[key] = str(value)[:1000]
    found = [place for place in JSON_ROWS if place in arrays]
    return Document(f"{found[0]}.item".lstrip(".") if found else "", scalars)


def json_objects(
    file: BinaryIO, encoding: str, rows_at: str
) -> Iterator[tuple[int, dict[str, Any] | Broken]]:
    """Every row of a JSON document, with minus its number in place of a line."""
    with _json_errors():
        for number, value in enumerate(ijson.items(_Utf8(file, encoding), rows_at), start=1):
            row = value if isinstance(value, dict) else Broken("the row is no object", str(value)[:1000])
            yield -number, row


class _Utf8:
    """A text of any encoding as the UTF-8 bytes that ijson reads."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._text = text_of(file, encoding)

    def read(self, size: int) -> bytes:
        return self._text.read(size).encode("utf-8", "surrogatepass")


@contextmanager
def _json_errors() -> Iterator[None]:
    try:
        yield
    except (ijson.JSONError, UnicodeDecodeError) as error:
        raise errors.FileRefused(
            file_sentence("malformed_json", what=str(error)[:200]), code="malformed_json"
        ) from None


def flat(value: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Keys and cells of a row: nested objects by dotted keys, numbers by their own digits.

    Lists of objects (`actions`) stay together as JSON text under their key.
    """
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and depth < MAX_DEPTH:
            yield from flat(item, f"{name}.", depth + 1)
        elif isinstance(item, list | dict):
            yield name, json.dumps(item, ensure_ascii=False, default=str)
        else:
            yield name, cell(item)


def cell(value: Any) -> str:
    """A JSON scalar as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)
