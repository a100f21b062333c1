"""One run of a supplier at a time (ETL CANON §5)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from app.kernel import errors
from app.suppliers import durable
from app.suppliers.layout import Layout


class Busy(errors.Conflict):
    """Another run of this supplier is at work; this one has changed nothing."""

    code = "supplier_busy"


class Locks(Protocol):
    """Whatever a supplier's files or states are changed by holds its lock."""

    def hold(self, supplier: str) -> AbstractContextManager[None]:
        """The lock is held until the end of the block; Busy when somebody else holds it."""


class FileLocks:
    """Locks of one host: the kernel takes them back from a process that dies."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @contextmanager
    def hold(self, supplier: str) -> Iterator[None]:
        path = self._layout.lock(supplier)
        durable.make_folder(path.parent)
        # Never removed: whoever waits on a removed file and whoever makes it anew would both hold it.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise Busy() from None
        try:
            yield
        finally:
            os.close(handle)
