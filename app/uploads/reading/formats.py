"""What a file is: its content decides, never its name."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from app.kernel import errors
from app.uploads.codes import file_sentence

SAMPLE_BYTES = 64 * 1024
CHUNK_BYTES = 1 << 20

_CSV_ADVICE = "Export the report as CSV (“.csv”, not “Excel”) and upload that."
_SIGN_IN_ADVICE = "Sign in to the platform, export the report again and look into the file first."
_OTHER = "Upload the report itself, as the platform exported it."

# beginning of the content      what it is                        what to do
SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "an Excel workbook or a ZIP archive", _CSV_ADVICE),
    (b"PK\x05\x06", "an empty ZIP archive", _OTHER),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook", _CSV_ADVICE),
    (b"%PDF-", "a PDF document", _CSV_ADVICE),
    (b"{\\rtf", "a text document (RTF)", _CSV_ADVICE),
    (b"\x89PNG\r\n\x1a\n", "a picture (PNG)", _CSV_ADVICE),
    (b"\xff\xd8\xff", "a picture (JPEG)", _CSV_ADVICE),
    (b"GIF8", "a picture (GIF)", _CSV_ADVICE),
    (b"RIFF", "a sound, picture or video file", _OTHER),
    (b"BM", "a picture (BMP)", _CSV_ADVICE),
    (b"II*\x00", "a picture (TIFF)", _CSV_ADVICE),
    (b"MM\x00*", "a picture (TIFF)", _CSV_ADVICE),
    (b"BZh", "a bzip2 archive", "Unpack it first."),
    (b"\xfd7zXZ\x00", "an xz archive", "Unpack it first."),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "Unpack it first."),
    (b"Rar!\x1a\x07", "a RAR archive", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive", "Unpack it first."),
    (b"PAR1", "a Parquet file", _CSV_ADVICE),
    (b"SQLite format 3\x00", "a database file", _CSV_ADVICE),
    (b"\x7fELF", "a program", _OTHER),
    (b"MZ", "a program", _OTHER),
)
_BINARY_ONLY = (b"BM", b"MZ", b"RIFF", b"GIF8")
"""Signatures that are also letters: they count only when control characters follow."""

_MARKUP = (
    ("<!doctype html", "a web page", _SIGN_IN_ADVICE),
    ("<html", "a web page", _SIGN_IN_ADVICE),
    ("<head", "a web page", _SIGN_IN_ADVICE),
    ("<body", "a web page", _SIGN_IN_ADVICE),
    ("<script", "a web page", _SIGN_IN_ADVICE),
    ("<table", "a web page with a table", _CSV_ADVICE),
    ("<svg", "a picture (SVG)", _CSV_ADVICE),
    ("<?xml", "an XML document", _CSV_ADVICE),
    ("<workbook", "an XML workbook", _CSV_ADVICE),
    ("mime-version:", "a saved web page", _SIGN_IN_ADVICE),
)


def check(sample: bytes) -> None:
    """Returns when the beginning of a file may be that of a report; else FileRefused says why not."""
    if not sample.strip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n"):
        raise errors.FileRefused(file_sentence("empty_file"), code="empty_file")
    for signature, what, advice in SIGNATURES:
        if sample.startswith(signature) and (signature not in _BINARY_ONLY or _is_binary(sample)):
            raise _unsupported(what, advice)
    beginning = as_text(sample[:2048]).lstrip("\ufeff \t\r\n").casefold()
    if beginning.startswith("<!--"):
        beginning = beginning.partition("-->")[2].lstrip()
    for tag, what, advice in _MARKUP:
        if beginning.startswith(tag):
            raise _unsupported(what, advice)


def as_text(sample: bytes) -> str:
    """The beginning of a file as text, well enough to recognise ASCII in it."""
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return sample.decode("utf-16", "replace")
    return sample.replace(b"\x00", b"").decode("utf-8-sig", "replace")


def is_gzip(sample: bytes) -> bool:
    """Whether the content is packed with gzip."""
    return sample.startswith(b"\x1f\x8b")


def sample(file: BinaryIO) -> bytes:
    """The beginning of the content itself, unpacked."""
    file.seek(0)
    beginning = file.read(SAMPLE_BYTES)
    if not is_gzip(beginning):
        return beginning
    with gzip_errors():
        return zlib.decompressobj(wbits=31).decompress(beginning, SAMPLE_BYTES)


@contextmanager
def unpacked(file: BinaryIO, *, max_bytes: int) -> Iterator[BinaryIO]:
    """The content itself, seekable and rewound: `file`, or what a gzip file holds."""
    file.seek(0)
    sample = file.read(2)
    file.seek(0)
    if not is_gzip(sample):
        yield file
        return
    # Around all of it: the last bytes may find no room as late as when the file is rewound.
    with errors.disk_errors(), tempfile.TemporaryFile() as target:
        _unpack(file, cast(BinaryIO, target), max_bytes)
        target.seek(0)
        yield cast(BinaryIO, target)


@contextmanager
def unpacking(file: BinaryIO) -> Iterator[BinaryIO]:
    """The content itself, rewound and unpacked while it is read; whoever reads needs `gzip_errors`."""
    file.seek(0)
    packed = is_gzip(file.read(2))
    file.seek(0)
    if not packed:
        yield file
        return
    with gzip.GzipFile(fileobj=file) as content:
        yield cast(BinaryIO, content)


def _unpack(file: BinaryIO, target: BinaryIO, max_bytes: int) -> None:
    size = 0
    with gzip_errors(), gzip.GzipFile(fileobj=file) as packed:
        while chunk := packed.read(CHUNK_BYTES):
            size += len(chunk)
            if size > max_bytes:
                limit = f"{max_bytes // 2**20} MB when unpacked"
                raise errors.FileRefused(file_sentence("file_too_large", limit=limit), code="file_too_large")
            target.write(chunk)


@contextmanager
def gzip_errors() -> Iterator[None]:
    """An archive that is damaged or ends too early is FileRefused."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise errors.FileRefused(
            file_sentence("malformed_file", what="the gzip archive is damaged or cut off"),
            code="malformed_file",
        ) from None


def kind(text: str) -> str:
    """`csv`, `json` or `ndjson`, from the beginning of the decoded content."""
    beginning = text.lstrip("\ufeff \t\r\n")
    if not beginning.startswith(("{", "[")):
        return "csv"
    lines = [line for line in beginning.splitlines() if line.strip()]
    if beginning.startswith("{") and _is_document(lines[0]) and (len(lines) > 1):
        return "ndjson"
    # `[2025] Brand,12,3` is a table whose first cell begins with a bracket.
    if beginning.startswith("[") and beginning[1:].lstrip()[:1] not in ("{", "[", "]", '"', ""):
        return "csv"
    return "json"


def _is_document(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_binary(sample: bytes) -> bool:
    return any(byte < 9 for byte in sample[:512])


def _unsupported(what: str, advice: str) -> errors.FileRefused:
    return errors.FileRefused(
        file_sentence("unsupported_format", what=what, advice=advice), code="unsupported_format"
    )
