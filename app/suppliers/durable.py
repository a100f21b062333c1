"""File operations after which a power cut leaves the old or the new, whole, under its name.

A name is durable once its folder is synced, a content once its file is. Each function returns when
both are.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20


def make_folder(path: Path) -> None:
    """The folder stands, with every folder above it."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """The names in the folder outlive a power cut."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """The content of the file outlives a power cut."""
    _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """The file holds this object; a reader sees it whole, or what was there before."""
    make_folder(path.parent)
    aside = _written_aside(path, value)
    aside.replace(path)
    sync_folder(path.parent)


def create_json(path: Path, value: dict[str, Any]) -> bool:
    """The file holds an object; False when it was there before, and stays as it was."""
    make_folder(path.parent)
    aside = _written_aside(path, value)
    try:
        path.hardlink_to(aside)  # unlike a rename, it never replaces
    except FileExistsError:
        return False
    finally:
        aside.unlink()
        sync_folder(path.parent)
    return True


def _written_aside(path: Path, value: dict[str, Any]) -> Path:
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with aside.open("x", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
    return aside


def append_line(path: Path, value: dict[str, Any]) -> None:
    """The object is the file's last line. A line that a power cut has torn before is closed first."""
    make_folder(path.parent)
    new = not path.exists()
    with path.open("ab") as file:
        torn = file.tell() > 0 and not _ends_with_newline(path)
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        file.write(b"\n" + line if torn else line)
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(path.parent)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in the file's lines, in order; a torn line is passed over."""
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:
                    continue
    except FileNotFoundError:
        return


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None when there is no such file."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def move(source: Path, target: Path) -> Path:
    """The file stands in its new folder alone; where the name is taken there, under a numbered one.

    Nothing is ever overwritten. FileNotFoundError when there is no `source`.
    """
    make_folder(target.parent)
    # A link would say in one step whether the name is free, and is denied for other people's files.
    reserved = next(name for name in _names(target) if _reserve(name))
    try:
        source.replace(reserved)
    except OSError:
        reserved.unlink()
        raise
    sync_folder(target.parent)
    sync_folder(source.parent)
    return reserved


def _names(target: Path) -> Iterator[Path]:
    yield target
    for number in itertools.count(2):
        yield target.with_name(f"{target.stem}.{number}{target.suffix}")


def _reserve(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def sha256_of(path: Path) -> str:
    """SHA-256 of the content, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
