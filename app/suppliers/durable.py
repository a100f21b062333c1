"""File operations after which a power cut leaves the old or the new, whole, under its name.

A name is durable once its folder is synced, a content once its file is. Each function returns when
both are.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import itertools
import json
import os
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


def _written_aside(path: Path, value: dict[str, Any]) -> Path:
    aside = path.with_name(f".{path.name}.next")  # one writer at a time: whoever holds the lock
    with aside.open("w", encoding="utf-8") as file:
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


def write_lines(path: Path, values: list[dict[str, Any]]) -> None:
    """The file holds these objects, one a line; a reader sees all of them, or what was there before."""
    aside = path.with_name(f".{path.name}.next")
    with aside.open("w", encoding="utf-8") as file:
        file.writelines(
            json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values
        )
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(path.parent)


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
    free = next(name for name in _names(target) if rename_new(source, name))
    sync_folder(target.parent)
    sync_folder(source.parent)
    return free


def _names(target: Path) -> Iterator[Path]:
    yield target
    for number in itertools.count(2):
        yield target.with_name(f"{target.stem}.{number}{target.suffix}")


_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
_libc = ctypes.CDLL(None, use_errno=True)


def rename_new(source: Path, target: Path) -> bool:
    """The file has its new name; False when something has it already. In one step, unlike a question before.

    A link would tell as well, but may not be made to files of other people.
    """
    paths = os.fsencode(source), os.fsencode(target)
    if _libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    if code not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(code, os.strerror(code), str(source))
    if target.exists() or target.is_symlink():  # a file system without this step, such as NFS
        return False
    source.rename(target)
    return True


def sha256_of(path: Path) -> str:
    """SHA-256 of the content, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
