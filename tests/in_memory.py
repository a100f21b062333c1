"""Files of the tests' servers are kept in memory, where there is enough of it.

A database is some three hundred files, and nearly every test has one of its own: to make it on a busy disk
takes ten times the processor that it takes in memory, and longer than most tests do.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.adapters import embedded

MEMORY = Path("/dev/shm")
PREFIX = "headworks-tests-"
FREE_BYTES = 6 << 30
"""Measured: the servers of promotion and of the faults took 0.8 GB together, those of reads 0.2 GB.
The seven groups of `./scripts/test` at once have room in this. A container often has 64 MB there."""


@contextmanager
def folder(otherwise: Path) -> Iterator[Path]:
    """An empty folder in memory, gone afterwards; `otherwise` where there is too little."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < FREE_BYTES:
        yield otherwise
        return
    remove_leftovers()
    found = Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY))
    lock = embedded.FolderLock(found)
    lock.acquire()
    try:
        yield found
    finally:
        shutil.rmtree(found)
        lock.release()


def remove_leftovers() -> None:
    """Folders of runs that were killed are gone."""
    for found in MEMORY.glob(f"{PREFIX}*"):
        lock = embedded.FolderLock(found)
        # In use; or just being made, or somebody else's.
        with suppress(embedded.FolderInUse, OSError):
            if (found / "lock").exists():
                lock.acquire()
                shutil.rmtree(found)
        lock.release()
