"""One run of a supplier at a time (ETL CANON §5)."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from app.adapters import database, logs
from app.kernel import errors
from app.suppliers import durable, store
from app.suppliers.layout import Layout

log = logs.get(__name__)

LEASE_SECONDS = 30.0
BEATS_PER_LEASE = 4


class Busy(errors.Conflict):
    """Another run of this supplier is at work; this one has changed nothing."""

    code = "supplier_busy"


class LockLost(errors.Conflict):
    """This run was away for so long that another one has taken its turn."""

    code = "supplier_lock_lost"


Check = Callable[[], None]
"""Returns while the lock is held; LockLost when somebody else has it."""


class Locks(Protocol):
    """Whoever changes a supplier's files or states holds its lock."""

    def hold(self, supplier: str) -> AbstractContextManager[Check]:
        """The lock is held until the end of the block; Busy when somebody else holds it.

        The block is given a check, to be made before each step that others can see.
        """


class FileLocks:
    """Locks of one host: the kernel takes them back from a process that dies, and never before."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @contextmanager
    def hold(self, supplier: str) -> Iterator[Check]:
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
            yield lambda: None
        finally:
            os.close(handle)


class LeaseLocks:
    """Locks of several hosts that share a bucket: leases in the database, each with a fencing token."""

    def __init__(self, db: database.Database, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._db = db
        self._lease_seconds = lease_seconds

    @contextmanager
    def hold(self, supplier: str) -> Iterator[Check]:
        owner_id = database.this_process()
        with self._db.transaction("suppliers") as conn:
            token = store.take_supplier_lock(
                conn, supplier, owner_id=owner_id, lease_seconds=self._lease_seconds
            )
        if token is None:
            raise Busy()
        done = threading.Event()
        heart = threading.Thread(target=self._beat, args=(supplier, token, done), daemon=True)
        heart.start()
        try:
            yield lambda: self._check(supplier, token)
        finally:
            done.set()
            heart.join(timeout=self._lease_seconds)
            with self._db.transaction("suppliers") as conn:
                store.release_supplier_lock(conn, supplier, token=token)

    def _check(self, supplier: str, token: int) -> None:
        if not self._extend(supplier, token):
            raise LockLost()

    def _extend(self, supplier: str, token: int) -> bool:
        with self._db.transaction("suppliers") as conn:
            return store.extend_supplier_lock(conn, supplier, token=token, lease_seconds=self._lease_seconds)

    def _beat(self, supplier: str, token: int, done: threading.Event) -> None:
        while not done.wait(self._lease_seconds / BEATS_PER_LEASE):
            try:
                if not self._extend(supplier, token):
                    return  # the next check of the run says so
            except errors.HeadworksError as error:
                log.warning("supplier_lock_not_extended", supplier=supplier, code=error.code)
