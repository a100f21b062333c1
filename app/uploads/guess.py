"""Whose report a file is, from the names of its columns: a sure answer is right, or there is none."""

from __future__ import annotations

import codecs
import io
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.kernel import errors
from app.uploads.reading import aliases, encodings, formats, header, json_text, records
from app.uploads.reading.plan import json_column

LINES = 200
ROWS = 20
"""Rows of a JSON document whose keys are looked at."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The platform when it is sure; else those that it may be, and why nothing more is known."""

    platform: str | None
    possible: tuple[str, ...] = ()
    code: str | None = None  # of codes.FILE_CODES, when the beginning alone refuses the file
    sentence: str | None = None


def guess(beginning: bytes) -> Guess:
    """Whose report this is, from the first bytes of the file as it is stored (64 KB are enough)."""
    try:
        sample = formats.sample(io.BytesIO(beginning))
        formats.check(sample)
    except errors.FileRefused as error:
        return Guess(None, code=error.code, sentence=error.sentence)
    return _decide({platform: _known(platform, sample) for platform in aliases.table()})


def _decide(known: dict[str, frozenset[str]]) -> Guess:
    """One platform is sure when it knows columns that no other does, and the reverse is not so."""
    possible = tuple(platform for platform, names in known.items() if names)
    for platform in possible:
        others = [names for other, names in known.items() if other != platform]
        if all(names < known[platform] for names in others):
            return Guess(platform, possible)
    return Guess(None, possible)


def _known(platform: str, sample: bytes) -> frozenset[str]:
    """The names in the file that are columns of this platform; none when it is no report of it."""
    return max((_known_in(platform, text) for text in _texts(sample)), key=len, default=frozenset())


def _known_in(platform: str, text: str) -> frozenset[str]:
    if formats.kind(text) == "csv":
        found = header.find(platform, list(itertools.islice(io.StringIO(text, newline=""), LINES)))
        columns: Iterable[header.Column] = found.columns if found else ()
    else:
        columns = [json_column(platform, index, key) for index, key in enumerate(_keys(text))]
        columns = columns if header.is_header(platform, tuple(columns)) else ()
    return frozenset(column.header for column in columns if column.field)


def _texts(sample: bytes) -> Iterator[str]:
    """The beginning in the encoding that it is in, or in each of those that it may be in."""
    certain = encodings.of_beginning(sample)
    for name in (certain,) if certain else ("utf-8", *encodings.LEGACY):
        try:
            # Not final: the sample may end within a character.
            text = codecs.getincrementaldecoder(name)("strict").decode(sample)
        except UnicodeDecodeError:
            continue
        yield text.removeprefix("\ufeff")
        if name == "utf-8":
            return


def _keys(text: str) -> dict[str, None]:
    """The keys of the first rows of a JSON document or of lines of JSON."""
    keys: dict[str, None] = {}
    for row in itertools.islice(_rows(text), ROWS):
        if isinstance(row, dict):
            keys.update(dict.fromkeys(key for key, _ in records.flat(row)))
    return keys


def _rows(text: str) -> Iterator[object]:
    try:
        if formats.kind(text) == "ndjson":
            for line in text.splitlines():
                yield json_text.decode(line)
            return
        for found in json_text.walk(io.StringIO(text)):
            if found.what == "row":
                yield found.value
    except json_text.JsonError:  # the sample ends here
        return
