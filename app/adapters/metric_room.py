"""Room for what a process counts: a full disk costs a metric its place in a file, and no process its life.

prometheus_client maps files that have holes into memory. The first write into a hole for which the disk has
no room is no error that could be caught: the kernel ends the process (SIGBUS). Here the disk gives the room
first.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from prometheus_client import mmap_dict, values

from app.adapters import logs

log = logs.get(__name__)

# Its own types say nothing.
_MmapedDict: Any = mmap_dict.MmapedDict

FIRST_BYTES: int = mmap_dict._INITIAL_MMAP_SIZE

_CANNOT = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""Of file systems that give no room beforehand; some of them never do, whatever was asked."""


class Roomy(_MmapedDict):  # type: ignore[misc]
    """A dict of doubles in a mapped file all of whose pages are there. OSError where there is no room."""

    def __init__(self, filename: str) -> None:
        reserve(filename, FIRST_BYTES)
        super().__init__(filename)

    def _init_value(self, key: str) -> None:
        encoded = len(key.encode())
        # As they are laid out there: a length, the key filled up to a multiple of 8, two doubles.
        needed, capacity = self._used + encoded + 12 + 16, self._capacity
        while capacity < needed:
            capacity *= 2
        if capacity > self._capacity:
            reserve(self._fname, capacity)
        super()._init_value(key)


class Patient:
    """What prometheus_client keeps values in: in the file, or in memory until the file has room.

    What is written is always the whole value, so that nothing is missing once there is room again.
    """

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._file: Roomy | None = None
        self._waiting: dict[str, tuple[float, float]] = {}
        self._is_well = True

    def read_value(self, key: str) -> tuple[float, float]:
        """The value and when it was set; both 0 for a new key."""
        file = self._with_room_for(key)
        found: tuple[float, float] = file.read_value(key) if file else self._waiting.get(key, (0.0, 0.0))
        return found

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """The value stands in the file, with all that waited; or it waits for room."""
        self._waiting[key] = value, timestamp
        while self._waiting and (file := self._with_room_for(key)):
            file.write_value(key, *self._waiting.pop(key))
            key = next(iter(self._waiting), key)
        self._is_well = self._is_well or not self._waiting

    def close(self) -> None:
        """Nothing more is written."""
        if self._file is not None:
            self._file.close()

    def _with_room_for(self, key: str) -> Roomy | None:
        try:
            if self._file is None:
                self._file = Roomy(self._filename)
            if key not in self._file._positions:
                self._file._init_value(key)
        except OSError as error:
            if self._is_well:
                log.warning("metrics_not_written", reason=error.strerror)
            self._is_well = False
            return None
        return self._file


def install() -> None:
    """Every value that is made from here on is kept so, where processes share a folder."""
    values.MmapedDict = Patient  # type: ignore[assignment, attr-defined]


def reserve(filename: str, size: int) -> None:
    """The file is so long at least, and the disk has room for all of it. OSError; a new one is gone then."""
    handle = os.open(filename, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        before = os.fstat(handle).st_size
        try:
            _allocate(handle, before, max(size, before))
        except OSError as error:
            if error.errno not in _CANNOT:
                if not before:
                    Path(filename).unlink()  # an empty one is none that could be read
                raise
    finally:
        os.close(handle)


def _allocate(handle: int, before: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    elif size > before:  # macOS
        os.pwrite(handle, bytes(size - before), before)
