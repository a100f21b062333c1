"""Which text encoding a file is in; what cannot be decided safely is refused, never mangled."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable
from typing import BinaryIO

import charset_normalizer

from app.kernel import errors
from app.uploads.codes import file_sentence
from app.uploads.reading.formats import CHUNK_BYTES, SAMPLE_BYTES
from app.uploads.reading.plausibility import oddities

BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
LEGACY = ("cp1252", "cp932", "cp1251", "gb18030", "cp949", "big5", "cp1250")
"""Encodings of the machines on which people save reports again, the most frequent first."""
SINGLE_BYTE = ("cp1252", "cp1251", "cp1250")
MAX_LINE_BYTES = 4 << 20


def decide(file: BinaryIO, known_headers: Callable[[list[str]], int]) -> str:
    """The encoding of the whole content: it decodes to its end without one damaged character.

    `known_headers(cells)` counts the known column names in a record: among the legacy encodings
    the one under which the report's own header can be read is right.
    """
    file.seek(0)
    sample = file.read(SAMPLE_BYTES)
    encoding = of_beginning(sample)
    if encoding is None and _decodes(file, "utf-8"):
        encoding = "utf-8"
    if encoding is None:
        encoding = _legacy(file, sample, known_headers)
    elif encoding != "utf-8" and not _decodes(file, encoding):
        raise _undecodable(f"it begins as {encoding.upper()} and does not go on so")
    return encoding


def of_beginning(sample: bytes) -> str | None:
    """The encoding that the first bytes tell of by a mark or by their zeros; None: they say nothing."""
    return _from_bom(sample) or _from_zero_bytes(sample)


def _from_bom(sample: bytes) -> str | None:
    return next((encoding for bom, encoding in BOMS if sample.startswith(bom)), None)


def _from_zero_bytes(sample: bytes) -> str | None:
    """UTF-16 text of western letters has a zero in every other byte; one stray NUL is no pattern."""
    half = len(sample) // 2
    if half < 2:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > half * 0.4 and even < half * 0.1:
        return "utf-16-le"
    if even > half * 0.4 and odd < half * 0.1:
        return "utf-16-be"
    return None


def _decodes(file: BinaryIO, encoding: str) -> bool:
    """Whether the whole content is valid; U+FFFD in it means that it was damaged before."""
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    file.seek(0)
    length = 0
    try:
        while chunk := file.read(CHUNK_BYTES):
            text = decoder.decode(chunk)
            if "\ufffd" in text:
                raise _undecodable("it holds replacement characters (�) instead of letters")
            ends = max(text.rfind("\n"), text.rfind("\r"))
            length = length + len(text) if ends < 0 else len(text) - ends
            if length > MAX_LINE_BYTES:
                raise errors.FileRefused(
                    file_sentence("malformed_file", what="it has a line of more than 4 MB"),
                    code="malformed_file",
                )
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _legacy(file: BinaryIO, sample: bytes, known_headers: Callable[[list[str]], int]) -> str:
    possible = [encoding for encoding in LEGACY if _decodes(file, encoding)]
    if not possible:
        raise _undecodable("it is in no known text encoding")
    known = {name: _known_in(sample.decode(name, "ignore"), known_headers) for name in possible}
    best = max(known.values())
    candidates = [name for name in possible if known[name] == best]
    if len(candidates) == 1 and best > 0:
        return candidates[0]
    return _most_plausible(sample, candidates)


def _known_in(text: str, known_headers: Callable[[list[str]], int]) -> int:
    lines = text.splitlines()[:20]
    return max(
        (known_headers(record) for delimiter in ",;\t|" for record in csv.reader(lines, delimiter=delimiter)),
        default=0,
    )


def _most_plausible(sample: bytes, candidates: list[str]) -> str:
    """The header is plain ASCII in every candidate: the letters in the cells decide."""
    odd = {name: oddities(sample.decode(name, "ignore")) for name in candidates}
    best = [name for name in candidates if odd[name] == min(odd.values())]
    if best[0] in SINGLE_BYTE:
        return best[0]
    # East Asian encodings make letters of each other: how frequent those are tells them apart.
    match = charset_normalizer.from_bytes(sample, cp_isolation=best).best()
    found = codecs.lookup(match.encoding).name if match else ""
    return next((name for name in best if codecs.lookup(name).name == found), best[0])


def _undecodable(what: str) -> errors.FileRefused:
    return errors.FileRefused(file_sentence("undecodable_text", what=what), code="undecodable_text")
