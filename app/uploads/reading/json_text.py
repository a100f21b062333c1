"""JSON read piece by piece: every row of a document in bounded memory, numbers with all their digits.

The standard library's decoder does the decoding, one value at a time; this module only finds its way
through the levels above the rows. No number is converted, so none is too long and none loses a digit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

VALUE_CHARACTERS = 1 << 20
"""The largest single row, or value beside the rows, that is read."""

CHUNK_CHARACTERS = 1 << 16

DEEPEST = 200
"""Levels of nesting in one value: no platform has ten, and what goes through a value goes in as deep."""

CONTAINERS = ("", "data", "item")
"""Objects that may hold the rows, in dots; `item` is an element of a top-level array."""

ROW_PLACES = ("data.list", "data", "rows", "results", "list", "item.results", "")
"""Arrays that may be the rows; an earlier one beats a later."""


class JsonError(ValueError):
    """The text is not JSON; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Found:
    """One thing met on the way: an array of rows, a row in it, or a value beside the rows."""

    what: str  # array, row or value
    place: str
    value: Any = None


def decode(text: str) -> Any:
    """One JSON value, its numbers as texts; JsonError when it is none."""
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise JsonError(_reason(error)) from None
    _check_depth(found, text)
    return found


def walk(source: TextIO) -> Iterator[Found]:
    """Everything in a document, in order; JsonError where it breaks off or is no JSON."""
    text = _Text(source)
    opening = text.peek()
    if opening == "[":
        yield from _array(text, "")
    elif opening == "{":
        yield from _object(text, "")
    else:
        yield Found("value", "", text.value())
    if text.peek():
        raise JsonError(f"something follows the document: {text.shown()}")


def _object(text: _Text, place: str) -> Iterator[Found]:
    """The members of an object that may hold the rows."""
    text.take("{")
    if text.skip("}"):
        return
    while True:
        name = text.value()
        if not isinstance(name, str):
            raise JsonError(f"a name is missing before {text.shown()}")
        text.take(":")
        inner = f"{place}.{name}" if place else name
        opening = text.peek()
        if opening == "[" and inner in ROW_PLACES:
            yield from _array(text, inner)
        elif opening == "{" and inner in CONTAINERS:
            yield from _object(text, inner)
        else:
            yield Found("value", inner, text.value())
        if text.skip("}"):
            return
        text.take(",")


def _array(text: _Text, place: str) -> Iterator[Found]:
    """The rows of an array; an element of a top-level one may hold rows itself."""
    yield Found("array", place)
    text.take("[")
    if text.skip("]"):
        return
    while True:
        if place == "" and text.peek() == "{" and text.is_batch():
            yield from _object(text, "item")
        else:
            yield Found("row", place, text.value())
        if text.skip("]"):
            return
        text.take(",")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_no_constant)


_TOO_DEEP = "it is nested too deeply"


def _check_depth(value: Any, text: str) -> None:
    """JsonError when the value, which stands in this text, is nested deeper than it may be."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    level = [value]
    for _ in range(DEEPEST + 1):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for some in inner for one in some if isinstance(one, dict | list)]
        if not level:
            return
    raise JsonError(_TOO_DEEP)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    return str(error).partition(": line")[0]


class _Text:
    """A document of which a part is in memory, and the place in it that is read next."""

    def __init__(self, source: TextIO) -> None:
        self._source = source
        self._buffer = ""
        self._at = 0
        self._ended = False

    def peek(self) -> str:
        """The next character that is not blank, or nothing at the end."""
        while True:
            rest = self._buffer[self._at : self._at + 1]
            if rest and rest not in " \t\r\n\ufeff":
                return rest
            if rest:
                self._at += 1
            elif not self._more():
                return ""

    def skip(self, character: str) -> bool:
        """Whether the next character was this one; then it is passed."""
        if self.peek() != character:
            return False
        self._at += 1
        return True

    def take(self, character: str) -> None:
        """The next character was this one, and is passed."""
        if not self.skip(character):
            raise JsonError(f"{character} is missing before {self.shown()}")

    def value(self) -> Any:
        """The value that begins here, whole."""
        self.peek()
        size = CHUNK_CHARACTERS
        while True:
            self._fill(size)
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError) as error:
                # It may be whole with more of the text, unless there is no more, or it is too long.
                if self._ended or size >= VALUE_CHARACTERS or isinstance(error, RecursionError):
                    raise JsonError(_reason(error)) from None
            else:
                # A number may go on behind the end of what is in memory.
                if self._ended or end < len(self._buffer):
                    _check_depth(value, self._buffer[self._at : end])
                    self._at = end
                    return value
            size *= 2

    def is_batch(self) -> bool:
        """Whether the object here is one of several answers with rows in it, not a row."""
        self._fill(CHUNK_CHARACTERS)
        beginning = self._buffer[self._at : self._at + CHUNK_CHARACTERS]
        return '"results"' in beginning and "[" in beginning.partition('"results"')[2][:16]

    def shown(self) -> str:
        """What stands here, for a message."""
        return repr(self._buffer[self._at : self._at + 20]) if self.peek() else "the end"

    def _fill(self, size: int) -> None:
        while len(self._buffer) - self._at < size and self._more():
            pass

    def _more(self) -> bool:
        chunk = "" if self._ended else self._source.read(CHUNK_CHARACTERS)
        if not chunk:
            self._ended = True
            return False
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return True
