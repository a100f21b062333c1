"""What lies in a supplier's inbox, and which of it is ready to be taken (ETL CANON §4)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from app.suppliers import durable

UNFINISHED = (".tmp", ".part", ".crdownload")
"""Endings under which transfer programs and browsers write what is not complete yet."""

HIDDEN = (".", "~$")
"""Beginnings of names that are no list: hidden files, and the locks of office programs."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A file that is ready to be taken."""

    path: Path
    mtime_ns: int  # as it came, but never in the future: a sender's clock may be wrong
    size_bytes: int
    identity: str  # of this very file in this place: another copy, or one moved here again, has another
    sha256: str = ""  # empty when the file cannot be read

    @property
    def name(self) -> str:
        """The file's name for people and logs: bytes that are no text are spelled out."""
        return printable(self.path.name)


def printable(name: str) -> str:
    """The name as text; a byte that is no UTF-8 reads \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Inbox:
    """The inbox at one moment."""

    ready: tuple[Arrival, ...] = ()  # newest first
    unstable: tuple[str, ...] = ()  # may still be growing
    odd: tuple[str, ...] = ()  # no plain files: never opened, followed or moved


def look(folder: Path, *, now: datetime, window_seconds: float) -> Inbox:
    """The files of the inbox, the ready ones newest first and with their content's hash.

    Ready is what has not changed for `window_seconds`. The inode's change counts beside the content's:
    programs that copy a file give it the time of the original.
    """
    ready, unstable, odd = _sorted_out(folder, now=now, window_seconds=window_seconds)
    hashed = [replace(arrival, sha256=_hash(arrival.path)) for arrival in ready]
    hashed.sort(key=lambda arrival: (arrival.mtime_ns, arrival.path.name, arrival.sha256), reverse=True)
    return Inbox(tuple(hashed), tuple(sorted(unstable)), tuple(sorted(odd)))


def has_ready(folder: Path, *, now: datetime, window_seconds: float) -> bool:
    """Whether some file is ready; nothing is read for that."""
    return bool(_sorted_out(folder, now=now, window_seconds=window_seconds)[0])


def _sorted_out(
    folder: Path, *, now: datetime, window_seconds: float
) -> tuple[list[Arrival], list[str], list[str]]:
    ready, unstable, odd = [], [], []
    for entry in _entries(folder):
        if entry.name.startswith(HIDDEN) or entry.name.lower().endswith(UNFINISHED):
            continue
        found = _regular(entry)
        if found is None:
            odd.append(printable(entry.name))
        elif now.timestamp() - _changed(found, now) < window_seconds:
            unstable.append(printable(entry.name))
        else:
            mtime_ns = min(found.st_mtime_ns, int(now.timestamp() * 1e9))
            identity = f"{found.st_dev}:{found.st_ino}:{found.st_ctime_ns}"
            ready.append(Arrival(Path(entry.path), mtime_ns, found.st_size, identity))
    return ready, unstable, odd


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _regular(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _changed(found: os.stat_result, now: datetime) -> float:
    """When the file changed last; a time in the future says nothing."""
    return max(found.st_ctime, found.st_mtime if found.st_mtime <= now.timestamp() else 0)


def _hash(path: Path) -> str:
    try:
        return durable.sha256_of(path)
    except OSError:
        return ""
