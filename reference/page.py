"""Markdown, as far as the pages of the reference need it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 120
MADE = "<!-- Made from the code by ./scripts/reference: whatever is changed here by hand is lost. -->"


def page(title: str, *parts: str) -> str:
    """A whole page: its title, then its parts with an empty line before each."""
    return "\n\n".join((f"# {title}", MADE, *(_wrapped(part.strip("\n")) for part in parts))) + "\n"


def _wrapped(part: str) -> str:
    """A sentence of one long line on several; whatever has lines of its own as it is."""
    if "\n" in part:
        return part
    return textwrap.fill(part, WIDTH, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a cell may hold any text, line breaks become spaces."""
    lines = [_row(head), "|" + "---|" * len(head)]
    return "\n".join([*lines, *(_row([cell(value) for value in row]) for row in rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(value: object) -> str:
    """A value as a cell of a table: one line, and no end of the cell within it."""
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    """A name as it is typed; nothing for nothing."""
    return f"`{value}`" if str(value) else ""


def codes(values: Iterable[object]) -> str:
    """Names as they are typed, with commas."""
    return ", ".join(code(value) for value in values)


def fence(language: str, text: str) -> str:
    """A block of text in some language."""
    return f"```{language}\n{text.rstrip()}\n```"
