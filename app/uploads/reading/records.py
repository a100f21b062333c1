"""Records of a file, whatever its format: cells in the order of the columns, with their line."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from app.kernel import errors
from app.uploads.codes import file_sentence
from app.uploads.reading import json_text

CELL_CHARACTERS = 128 * 1024
RECORD_LINES = 2_000
MAX_UNCLOSED_QUOTES = 20
MAX_DEPTH = 20

csv.field_size_limit(CELL_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Broken:
    """A record that cannot be read: why, and what stands there. It has no cells."""

    why: str
    text: str

    def __len__(self) -> int:
        return 0


Cells = list[str] | Broken
Block = tuple[Sequence[int], Sequence[Cells]]
"""Some records that follow each other: where each begins, and its cells. That is the physical line, or
minus the number of a row of a JSON document, which has no lines."""

BLOCK_RECORDS = 500
"""Records that are worked on at once: enough that what is done once for all of them counts for little."""

BLOCK_CHARACTERS = 8 << 20
"""Of their lines, unless one alone is longer: a few can have more cells than fit into memory at once."""


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
        self.taken = 0
        self.since_mark: list[str] = []
        self.ended_within = False  # a record began, and the text ended before it did

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._back.pop() if self._back else next(self._text, None)
        if line is None:
            self.ended_within = bool(self.since_mark)
            raise StopIteration
        self.taken += 1
        self.since_mark.append(line)
        if len(self.since_mark) > RECORD_LINES:
            raise _Runaway
        return line

    def step_back(self) -> str:
        """Give back every line since the mark but the first, which is returned."""
        self.ended_within = False
        first, *others = self.since_mark
        self._back.extend(reversed(others))
        self.taken -= len(others)
        self.since_mark = []
        return first

    @property
    def given_back(self) -> list[str]:
        """The lines that are read next, before those of the text."""
        return self._back[::-1]


class _Runaway(Exception):
    """A record goes on for thousands of lines: its quote was never closed."""


class _CsvReading:
    """One reading of a CSV file, block by block."""

    def __init__(self, text: Iterator[str], delimiter: str) -> None:
        self._text = text
        self._delimiter = delimiter
        self._line = 0
        self._unclosed = 0

    def blocks(self, size: int) -> Iterator[Block]:
        """Every record that is not blank, in order."""
        while lines := self._some_lines(size):
            begins, rows = self._one_each(lines) or self._one_by_one(lines)
            filled = [any(cells) if isinstance(cells, list) else True for cells in rows]
            if not all(filled):
                begins, rows = (
                    list(itertools.compress(begins, filled)),
                    list(itertools.compress(rows, filled)),
                )
            if rows:
                yield begins, rows

    def _some_lines(self, size: int) -> list[str]:
        """The next lines, so many or as many as may be worked on at once."""
        lines = list(itertools.islice(self._text, size))
        if sum(map(len, lines)) > BLOCK_CHARACTERS:
            ends = itertools.accumulate(map(len, lines))
            few = max(1, sum(1 for end in ends if end <= BLOCK_CHARACTERS))
            self._text = itertools.chain(lines[few:], self._text)
            del lines[few:]
        return lines

    def _one_each(self, lines: list[str]) -> Block | None:
        """The records of these lines, each of them one; None when some of them is not, as most are."""
        # The blank line tells whether a quote of the last line is still open: then it is part of that.
        try:
            rows = list(csv.reader(itertools.chain(lines, ("\n",)), delimiter=self._delimiter))
        except csv.Error:
            return None
        if len(rows) != len(lines) + 1 or rows.pop():
            return None
        begin = self._line + 1
        self._line += len(lines)
        return range(begin, begin + len(lines)), rows

    def _one_by_one(self, first: list[str]) -> Block:
        """The records of these lines, and of as many more as the last one of them goes on for.

        A quote that is never closed costs its own line, not the rest of the file.
        """
        begins: list[int] = []
        rows: list[Cells] = []
        lines = _Lines(itertools.chain(first, self._text))
        reader = csv.reader(lines, delimiter=self._delimiter)
        while lines.taken < len(first):
            begins.append(self._line + 1)
            try:
                rows.append(next(reader))
                if lines.ended_within:
                    del rows[-1]
                    raise _Runaway
                self._line += len(lines.since_mark)
                lines.since_mark.clear()
            except (csv.Error, _Runaway):
                self._count_unclosed()
                self._line += 1
                rows.append(Broken("a quote is never closed", lines.step_back().rstrip("\r\n")[:1000]))
                reader = csv.reader(lines, delimiter=self._delimiter)
        if rest := lines.given_back:  # a quote that nobody closed reached beyond these lines
            self._text = itertools.chain(rest, self._text)
        return begins, rows

    def _count_unclosed(self) -> None:
        self._unclosed += 1
        if self._unclosed > MAX_UNCLOSED_QUOTES:
            raise errors.FileRefused(
                file_sentence("malformed_file", what="quotes are opened and never closed"),
                code="malformed_file",
            )


def csv_blocks(
    file: BinaryIO, encoding: str, delimiter: str, *, size: int = BLOCK_RECORDS
) -> Iterator[Block]:
    """Every record that is not blank, in order, up to so many at a time."""
    return _CsvReading(iter(text_of(file, encoding)), delimiter).blocks(size)


def ndjson_objects(file: BinaryIO, encoding: str) -> Iterator[tuple[int, dict[str, Any] | Broken]]:
    """Every line that is not blank, as an object or as broken."""
    for number, line in enumerate(text_of(file, encoding), start=1):
        if line := line.strip("\ufeff \t\r\n"):
            try:
                value = json_text.decode(line)
            except json_text.JsonError:
                value = None
            yield number, _row(value, "the line is no JSON object", line)


def json_objects(
    file: BinaryIO, encoding: str, rows_at: str | None
) -> Iterator[tuple[int, dict[str, Any] | Broken]]:
    """Every row of a JSON document, with minus its number in place of a line."""
    with _json_errors():
        if rows_at is None:
            yield -1, json_text.decode(text_of(file, encoding).read(json_text.VALUE_CHARACTERS))
            return
        number = 0
        for found in json_text.walk(text_of(file, encoding)):
            if found.what == "row" and found.place == rows_at:
                number += 1
                yield -number, _row(found.value, "the row is no object", str(found.value))


def _row(value: object, why: str, text: str) -> dict[str, Any] | Broken:
    return value if isinstance(value, dict) else Broken(why, text[:1000])


@dataclass(frozen=True, slots=True)
class Document:
    """What a JSON document is besides its rows."""

    rows_at: str | None  # one of json_text.ROW_PLACES; None when the document is one row itself
    beside: dict[str, Any]  # the values beside the rows, by their place

    @property
    def more_pages(self) -> bool:
        """Whether the platform says that rows are left out."""
        paging = self.beside.get("paging")
        info = self.beside.get("data.page_info") or self.beside.get("page_info")
        pages = str(info.get("total_page", "1")) if isinstance(info, dict) else "1"
        return bool(
            (isinstance(paging, dict) and paging.get("next"))
            or self.beside.get("nextPageToken")
            or (pages.isdigit() and len(pages) < 10 and int(pages) > 1)
        )

    @property
    def error(self) -> str:
        """The platform's message when the document is an error answer, else empty."""
        failure = self.beside.get("error")
        if isinstance(failure, dict):
            return str(failure.get("message") or failure.get("error_user_msg") or failure)[:1000]
        if isinstance(failure, str) and failure and self.rows_at is None:
            return failure[:1000]
        code = str(self.beside.get("code", "0"))
        if code not in ("0", "") and "message" in self.beside:
            return f"{str(self.beside['message'])[:1000]} (code {code[:20]})"
        return ""


def document(file: BinaryIO, encoding: str) -> Document:
    """The shape of a JSON document, from one pass in bounded memory; FileRefused when it is broken."""
    beside: dict[str, Any] = {}
    arrays: set[str] = set()
    with _json_errors():
        for found in json_text.walk(text_of(file, encoding)):
            if found.what == "array":
                arrays.add(found.place)
            elif found.what == "value" and len(beside) < 1000:
                # What stands beside the rows of a batch says as much as beside those of a document.
                beside.setdefault(found.place.removeprefix("item."), found.value)
            elif found.what == "row" and found.place == "" and not beside:
                beside |= _error_in_a_list(found.value)
    return Document(next((place for place in json_text.ROW_PLACES if place in arrays), None), beside)


def _error_in_a_list(row: object) -> dict[str, Any]:
    """searchStream answers an error with a list of one object with the error in it."""
    return {"error": row["error"]} if isinstance(row, dict) and set(row) == {"error"} else {}


@contextmanager
def _json_errors() -> Iterator[None]:
    try:
        yield
    except (json_text.JsonError, UnicodeDecodeError) as error:
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
            yield name, json.dumps(item, ensure_ascii=False)
        else:
            yield name, cell(item)


def cell(value: Any) -> str:
    """A JSON scalar as the text of a cell; numbers are texts already."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
