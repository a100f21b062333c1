"""The failure table: what is tried again, when, and what happens in the end (D6.6 §6.1, §6.2).

What is not listed is not tried again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from app.kernel import errors


class Final(Enum):
    """What is done when nothing more is tried."""

    FAIL_UPLOAD = "fail the upload"
    FAIL_DELIVERY = "fail the delivery of a webhook"
    FAIL_BATCH = "split the batch until the row that fails stands alone"
    SKIP_ROW = "skip the row"
    SET_NULL = "leave the reference empty and warn; a row that it identifies is skipped"


class Wait(Enum):
    """Where the time between two tries is spent."""

    IN_PROCESS = "in the worker, around one fresh transaction"
    RELEASED = "as next_attempt_at of the upload, which nobody holds meanwhile"


@dataclass(frozen=True, slots=True)
class Policy:
    """How one kind of failure is met; `delays_seconds` has one entry for each retry."""

    delays_seconds: tuple[float, ...]
    final: Final
    wait: Wait = Wait.IN_PROCESS
    resumable: bool = False

    @property
    def retries(self) -> int:
        return len(self.delays_seconds)


_SECONDS = (1.0, 2.0, 4.0)
_MILLISECONDS = (0.1, 0.2, 0.4)

POLICIES: dict[type[errors.HeadworksError], Policy] = {
    # failure                  delays              then                D6.6
    errors.FileGone:           Policy((),            Final.FAIL_UPLOAD),  # §6.1 file not found
    errors.FileRefused:        Policy((),            Final.FAIL_UPLOAD),  # §6.1 malformed file
    errors.AccessDenied:       Policy((),            Final.FAIL_UPLOAD),  # §6.1 RLS denied
    errors.AttemptsExhausted:  Policy((),            Final.FAIL_UPLOAD),
    errors.ConnectionLost:     Policy(_SECONDS,      Final.FAIL_UPLOAD, resumable=True),  # §6.2 connection
    errors.TransactionTimeout: Policy(_SECONDS,      Final.FAIL_UPLOAD, resumable=True),  # §6.1 timeout
    errors.Deadlock:           Policy(_MILLISECONDS, Final.FAIL_BATCH,  resumable=True),  # §6.2 deadlock
    errors.RateLimited:        Policy((60.0,) * 5,   Final.FAIL_UPLOAD, Wait.RELEASED, resumable=True),
    errors.DiskFull:           Policy((60.0,) * 5,   Final.FAIL_UPLOAD, Wait.RELEASED, resumable=True),
    errors.RowRefused:         Policy((),            Final.SKIP_ROW),     # §6.1 validation (row)
    errors.UniqueViolated:     Policy((),            Final.SKIP_ROW),     # §6.1 unexpected unique
    errors.ForeignKeyMissing:  Policy((),            Final.SET_NULL),     # §6.1 FK not found
}  # fmt: skip

_UNLISTED = Policy((), Final.FAIL_UPLOAD)


def policy_for(error: BaseException) -> Policy:
    """The line of the table that an error falls under; one that is not listed is not retried."""
    for kind in type(error).__mro__:
        if kind in POLICIES:
            return POLICIES[kind]
    return _UNLISTED


def delay(policy: Policy, failures: int) -> float | None:
    """Seconds to wait after so many failures (1 = the first), or None when it is not tried again."""
    return policy.delays_seconds[failures - 1] if failures <= policy.retries else None
