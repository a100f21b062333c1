"""The states of one delivery, and when it is tried again."""

from __future__ import annotations

from app.kernel import errors, retry
from app.kernel.retry import Final, Policy, Wait
from app.kernel.states import Edge, Machine

DELIVERY = Machine(
    "pending",
    ("pending", "delivered", "failed"),
    (
        # from       to           owner        when
        Edge("pending", "delivered", "webhooks", "the receiver answers 2xx"),
        Edge("pending", "failed", "webhooks", "the answer is final, or every wait is used up"),
        Edge("delivered", "pending", "redeliver", "a person asks for it", manual=True),
        Edge("failed", "pending", "redeliver", "a person asks for it", manual=True),
    ),
)

LONG_WAITS_SECONDS = (300.0, 1800.0, 7200.0, 21_600.0, 43_200.0)
"""After the waits of the failure table (D6.6 §6.2): a receiver that is away for a night is told."""

RETRY_AFTER_SECONDS = 3600.0
"""So long at most a receiver may ask for a pause."""


def _patient(failure: type[errors.HeadworksError]) -> Policy:
    delays = retry.POLICIES[failure].delays_seconds + LONG_WAITS_SECONDS
    return Policy(delays, Final.FAIL_DELIVERY, Wait.RELEASED, resumable=True)


UNREACHED = _patient(errors.ConnectionLost)
"""The receiver cannot be reached, or says that something is wrong with itself."""

BUSY = _patient(errors.RateLimited)
"""The receiver asks to be called less often."""

FINAL = Policy((), Final.FAIL_DELIVERY)
"""The same request would have the same answer."""
