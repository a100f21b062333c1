"""Lists that are web pages: programs that make «Excel files» out of a table often write HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

from app.suppliers.reading.limits import Limits
from app.suppliers.reading.sheets import refused
from app.suppliers.reading.tables import LAST_ROW, Table, Tables
from app.suppliers.reading.text import CHUNK_BYTES, encoding_of

if TYPE_CHECKING:
    from app.suppliers.config import Input

_NO_TEXT = ("script", "style", "title")


def opened(path: Path, settings: Input, limits: Limits) -> Tables:
    """The tables of the page that stand in no other table, in their order."""
    encoding = encoding_of(path, settings.encoding)
    page = _Page(limits)
    try:
        with path.open(encoding=encoding) as file:
            while text := file.read(CHUNK_BYTES):
                page.feed(text)
        page.close()
    except (UnicodeDecodeError, AssertionError) as error:  # the parser asserts where it gives up
        raise refused("FILE_CORRUPT", format="html", problem=type(error).__name__) from None
    page.end_cell()
    return Tables("html", encoding, [table for table in page.tables if table.rows])


class _Page(HTMLParser):
    """Puts what the cells show at their places; closing tags may be left out, as they may in HTML."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[Table] = []
        self._limits = limits
        self._depth = 0  # of tables within tables
        self._silent = 0  # of elements that show nothing
        self._row, self._column = 0, 0
        self._cell: list[str] | None = None
        self._span = (0, 0)
        self._reserved: dict[int, int] = {}  # by column: the last row that a cell from above covers

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._depth += 1
            if self._depth == 1:
                self.tables.append(Table(self._limits))
                self._row, self._reserved = 0, {}
        elif tag in _NO_TEXT:
            self._silent += 1
        elif tag == "br" and self._cell is not None:
            self._cell.append("\n")
        elif self._depth == 1 and tag == "tr":
            self.end_cell()
            self._row, self._column = self._row + 1, 0
        elif self._depth == 1 and tag in ("td", "th"):
            self._start_cell(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if tag in _NO_TEXT:
            self._silent = max(self._silent - 1, 0)
        elif self._depth == 1 and tag in ("td", "th", "tr", "table"):
            self.end_cell()
        if tag == "table":
            self._depth = max(self._depth - 1, 0)

    def handle_data(self, data: str) -> None:
        if self._cell is not None and not self._silent:
            self._cell.append(data)

    def _start_cell(self, attributes: dict[str, str | None]) -> None:
        self.end_cell()
        self._row = max(self._row, 1)
        while self._reserved.get(self._column, 0) >= self._row:
            self._column += 1
        self._cell = []
        self._span = (_span(attributes.get("rowspan")), _span(attributes.get("colspan")))

    def end_cell(self) -> None:
        """The cell that is open, if one is, stands at its place."""
        if self._cell is None:
            return
        down, across = self._span
        text = "".join(self._cell)
        self.tables[-1].put(self._row, self._column, text, down=down, across=across)
        for column in range(self._column, self._column + across + 1):
            self._reserved[column] = self._row + down
        self._column += across + 1
        self._cell = None


def _span(text: str | None) -> int:
    """How many further cells it covers; browsers take no more than so many either."""
    text = (text or "").strip()
    if not (text.isascii() and text.isdigit()):
        return 0
    return min(int(text[:7]), LAST_ROW, 1000) - 1 if int(text[:7]) else 0
