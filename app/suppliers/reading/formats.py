"""What a list is, by its content: the name says nothing."""

from __future__ import annotations

import codecs
import contextlib
import lzma
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from app.kernel import errors
from app.suppliers.reading.limits import Limits
from app.suppliers.reading.sheets import refused

if TYPE_CHECKING:
    from app.suppliers.config import Input

SAMPLE_BYTES = 64 * 1024

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
BIFF = tuple(bytes.fromhex(start) for start in ("09081000", "09080800", "09040600", "09020600", "09000400"))
OTHER_ARCHIVES = {b"Rar!\x1a\x07": "rar", b"7z\xbc\xaf\x27\x1c": "7z", b"\x1f\x8b": "gzip"}
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))

PACKED = ("xlsx", "xlsb")
"""Formats that are archives themselves, of which the unpacked size counts."""

_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TABLES = ("csv", "txt", "tsv", "tab", "xml", "yml", "json", "xlsx", "xlsm", "xls", "xlsb", "htm", "html")


@dataclass(frozen=True, slots=True)
class Content:
    """A list ready to be read: its file, taken out of its archive, and its format."""

    path: Path
    format: str


def content(path: Path, settings: Input, *, limits: Limits, room: Path) -> Content:
    """The list in this file. `room` is a folder for what an archive holds."""
    found = _format(path, limits)
    zipped = found == "zip"
    if settings.zip == ("refuse" if zipped else "require"):
        raise refused("FORMAT_UNEXPECTED", format=found)
    if zipped:
        path = _only_table(path, settings.member, limits=limits, room=room)
        found = _format(path, limits)
        if found == "zip":
            raise refused("ZIP_MEMBERS")
    if found not in settings.formats:
        raise refused("FORMAT_UNEXPECTED", format=found)
    if found not in PACKED and (size := path.stat().st_size) > limits.unpacked_bytes:
        raise refused("FILE_TOO_LARGE", unpacked_bytes=size)
    return Content(path, found)


def _format(path: Path, limits: Limits) -> str:
    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    if not sample:
        raise refused("FILE_EMPTY")
    if sample.startswith(b"PK"):
        return _of_zip(path, limits)
    if sample.startswith(OLE):
        return _of_ole(path)
    if sample.startswith(BIFF):
        return "xls"
    for start, name in OTHER_ARCHIVES.items():
        if sample.startswith(start):
            raise refused("FORMAT_UNSUPPORTED", format=name)
    return _of_text(sample)


# -- archives


_DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, ValueError,
    NotImplementedError, RuntimeError,
)  # fmt: skip


@contextlib.contextmanager
def unpacking(format: str) -> Iterator[None]:
    """What an archive raises that is damaged, forged or locked is FILE_CORRUPT; a full disk stays one."""
    try:
        yield
    except _DAMAGED as error:
        if isinstance(error, OSError) and errors.is_disk_full(error):
            raise
        raise refused("FILE_CORRUPT", format=format, problem=type(error).__name__) from None


def _of_zip(path: Path, limits: Limits) -> str:
    with unpacking("zip"), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    _check_size(path, entries, limits)
    names = {entry.filename.replace("\\", "/").lower() for entry in entries}
    if "xl/workbook.bin" in names:
        return "xlsb"
    if "xl/workbook.xml" in names:
        return "xlsx"
    if "content.xml" in names and "mimetype" in names:
        raise refused("FORMAT_UNSUPPORTED", format="opendocument")
    if "[content_types].xml" in names:
        raise refused("FORMAT_UNKNOWN")
    return "zip"


def _check_size(path: Path, entries: list[zipfile.ZipInfo], limits: Limits) -> None:
    if len(entries) > limits.entries:
        raise refused("FILE_TOO_LARGE", entries=len(entries))
    unpacked = sum(entry.file_size for entry in entries)
    packed = max(path.stat().st_size, 1)
    swollen = unpacked > limits.ratio_from_bytes and unpacked > limits.ratio * packed
    if unpacked > limits.unpacked_bytes or swollen:
        raise refused("FILE_TOO_LARGE", unpacked_bytes=unpacked)


def _only_table(path: Path, pattern: str | None, *, limits: Limits, room: Path) -> Path:
    """The one table of the archive, unpacked into the room under a name of ours."""
    with unpacking("zip"), zipfile.ZipFile(path) as archive:
        tables = [entry for entry in archive.infolist() if _may_be_table(entry, pattern)]
        if len(tables) != 1:
            raise refused("ZIP_MEMBERS", tables=len(tables))
        if tables[0].flag_bits & 0x1:
            raise refused("FILE_ENCRYPTED")
        name = tables[0].filename.replace("\\", "/")
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise refused("ZIP_UNSAFE_NAME")
        target = room / "member"
        with archive.open(tables[0]) as source, target.open("wb") as unpacked:
            shutil.copyfileobj(source, unpacked, 1 << 20)
    if target.stat().st_size > limits.unpacked_bytes:
        raise refused("FILE_TOO_LARGE", unpacked_bytes=target.stat().st_size)
    return target


def _may_be_table(entry: zipfile.ZipInfo, pattern: str | None) -> bool:
    name = PurePosixPath(entry.filename.replace("\\", "/"))
    if (
        not name.name
        or entry.filename.endswith("/")
        or "__MACOSX" in name.parts
        or name.name.startswith((".", "~$"))
    ):
        return False
    if pattern is not None:
        return fnmatchcase(name.name.lower(), pattern.lower())
    return name.suffix.lower().lstrip(".") in (*_TABLES, "zip")


# -- everything else


def _of_ole(path: Path) -> str:
    content = path.read_bytes()
    if "EncryptedPackage".encode("utf-16-le") in content:
        raise refused("FILE_ENCRYPTED")
    if any(name.encode("utf-16-le") in content for name in ("Workbook", "Book")):
        return "xls"
    if len(content) % 512 or len(content) < 1536:
        raise refused("FILE_CORRUPT", format="xls")
    raise refused("FORMAT_UNKNOWN")


def _of_text(sample: bytes) -> str:
    for mark, encoding in MARKS:
        if sample.startswith(mark):
            text = sample[: len(sample) & ~1].decode(encoding, "ignore")
            break
    else:
        if _CONTROLS.search(sample) or sample.startswith(b"%PDF"):
            raise refused("FORMAT_UNKNOWN")
        text = sample.decode("latin-1")
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("<"):
        return _of_markup(start.lower())
    return "json" if start.startswith(("[", "{")) else "csv"


def _of_markup(start: str) -> str:
    if "<yml_catalog" in start or "<!doctype yml_catalog" in start:
        return "yml"
    if "urn:schemas-microsoft-com:office:spreadsheet" in start or 'progid="excel.sheet"' in start:
        return "spreadsheetml"
    if "<table" in start:
        return "html"
    if start.startswith("<?xml") and "<!doctype html" not in start and "<html" not in start:
        return "yml"  # a catalog whose root comes late, or is none: its reader says so
    raise refused("FORMAT_UNKNOWN")
