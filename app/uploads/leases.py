"""Holding an upload: a heartbeat beside the work keeps the lease, and tells when it is lost."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.adapters import database, logs
from app.kernel import errors
from app.uploads import claims_store
from app.uploads.claims import Claim

log = logs.get(__name__)

BEATS_PER_LEASE = 4


class Interrupted(BaseException):
    """The worker is asked to stop: the upload is handed back, and nothing is lost or counted.

    No Exception, so that nobody on its way takes it for a failure of the work.
    """


@dataclass
class Wish:
    """Whether somebody has asked. No event: its lock may be held just where a signal strikes."""

    asked: bool = False


_stop = Wish()
_at_work = threading.Event()


def ask_to_stop() -> bool:
    """This process begins nothing more; whether it is at work that looks for the wish by itself.

    Only a wish, since it comes from a signal: an exception out of a handler could strike anywhere,
    also within the driver, which hides it. The work looks for the wish between its steps.
    """
    _stop.asked = True
    return _at_work.is_set()


def is_stopping() -> bool:
    """Whether this process is asked to stop."""
    return _stop.asked


@contextmanager
def at_work() -> Iterator[None]:
    """A wish to stop interrupts nothing while the block runs, which looks for it by itself."""
    _at_work.set()
    try:
        yield
    finally:
        _at_work.clear()


class Lease:
    """One worker's hold on one upload."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._lost = threading.Event()
        self._done = threading.Event()

    def check(self) -> None:
        """Returns while the upload is this worker's, and it may go on.

        Conflict once another worker may have it, Interrupted when this one is asked to stop.
        """
        if is_stopping():
            raise Interrupted
        if self._lost.is_set():
            raise errors.Conflict(f"The lease on upload {self._claim.upload_id} is lost.")

    def beat(self, db: database.Database, *, lease_seconds: float) -> None:
        """Extend the lease until the work is done or the lease is lost."""
        while not self._done.wait(lease_seconds / BEATS_PER_LEASE):
            try:
                with db.transaction("dispatch", timeout_seconds=lease_seconds) as conn:
                    claims_store.extend_lease(conn, self._claim, lease_seconds=lease_seconds)
            except errors.Conflict:
                self._lost.set()
                return
            except errors.HeadworksError as error:
                # The database is away: the lease runs out by itself, or the next beat is heard.
                log.warning("heartbeat_missed", code=error.code)

    def end(self) -> None:
        """The heart stops."""
        self._done.set()


@contextmanager
def held(db: database.Database, claim: Claim, *, lease_seconds: float) -> Iterator[Lease]:
    """The lease is extended in a thread of its own while the block runs.

    A thread, so that a long COPY cannot starve it; of this process, so that it stops with it.
    """
    lease = Lease(claim)
    heart = threading.Thread(
        target=contextvars.copy_context().run,
        args=(lease.beat, db),
        kwargs={"lease_seconds": lease_seconds},
        daemon=True,
    )
    heart.start()
    try:
        yield lease
    finally:
        lease.end()
        heart.join(timeout=lease_seconds)
