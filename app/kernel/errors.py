"""The error tree: what went wrong decides what is done about it (D6.6 §6.1).

Three verbs and a refusal: `Fatal` stops the unit of work, `Transient` is tried again by the
table in `retry`, `RowError` skips one row, `Conflict` means that somebody else has moved the
thing on. Every error carries a code for programs and a sentence for people.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class HeadworksError(Exception):
    """An error with a code; its text is a sentence that a person may be shown."""

    code = "internal_error"

    def __init__(self, sentence: str = "", *, code: str | None = None) -> None:
        super().__init__(sentence or self.__doc__ or "")
        if code is not None:
            self.code = code

    @property
    def sentence(self) -> str:
        return str(self.args[0])


class Fatal(HeadworksError):
    """The work cannot succeed, however often it is tried."""


class Transient(HeadworksError):
    """The work may succeed when it is tried again."""


class RowError(HeadworksError):
    """One row is lost; its neighbours are not."""


class Conflict(HeadworksError):
    """The thing is no longer in the state, or with the owner, that this work began from."""

    code = "conflict"


class NotFound(HeadworksError):
    """There is no such thing, or it belongs to somebody else."""

    code = "not_found"


class Refused(HeadworksError):
    """A request that is not taken, as it was made."""

    code = "invalid_request"


class FileGone(Fatal):
    """The stored file is gone. Upload it again."""

    code = "file_not_found"


class FileRefused(Fatal):
    """The file as a whole cannot be read as a report."""

    code = "malformed_file"


class AccessDenied(Fatal):
    """The database refuses this role or this workspace."""

    code = "access_denied"


class AttemptsExhausted(Fatal):
    """The work was begun too often and never finished."""

    code = "attempts_exhausted"


class ConnectionLost(Transient):
    """The connection to a server is lost or cannot be made."""

    code = "connection_lost"


class TransactionTimeout(Transient):
    """A statement or a lock took longer than it may."""

    code = "transaction_timeout"


class Deadlock(Transient):
    """Two transactions waited for each other, and this one was chosen to give way."""

    code = "deadlock"


class RateLimited(Transient):
    """A service asks to be called less often."""

    code = "rate_limited"


class DiskFull(Transient):
    """No room is left to store into."""

    code = "disk_full"


class MemoryFull(DiskFull):
    """Redis has no memory left to store into. Give it more (maxmemory); delete nothing by hand."""

    code = "memory_full"


class ForeignKeyMissing(RowError):
    """A row names a parent that is not there."""

    code = "foreign_key_missing"


class UniqueViolated(RowError):
    """A row is there already under a key where none was expected."""

    code = "unique_violation"


class RowRefused(RowError):
    """The database refuses the values of one row."""

    code = "row_refused"


def is_disk_full(error: OSError) -> bool:
    """Whether the disk, or the share of it that one may use, has no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def disk_errors() -> Iterator[None]:
    """An operating system that finds no room raises DiskFull."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise DiskFull() from error
        raise
