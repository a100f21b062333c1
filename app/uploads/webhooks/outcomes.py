"""What an answer means, and what is done next: pure decisions over the table of codes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from app.kernel import retry
from app.uploads.webhooks.codes import TRIED
from app.uploads.webhooks.states import RETRY_AFTER_SECONDS

BUSY_STATUSES = (429, 503)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one try."""

    code: str | None  # None: it arrived
    status_code: int | None = None
    excerpt: str | None = None
    pause_seconds: float = 0.0  # that the receiver asked for


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the delivery."""

    status: str
    failures: int
    delay_seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """The word of logs and metrics."""
        return "retried" if self.status == "pending" else self.status


def code_of(status_code: int) -> str | None:
    """The code of an answer's status; None: the delivery has arrived."""
    if 200 <= status_code < 300:
        return None
    if status_code in BUSY_STATUSES:
        return "rate_limited"
    if status_code >= 500:
        return "server_error"
    if status_code == 410:
        return "gone"
    return "redirected" if status_code < 400 else "refused"


def judge(tried: Tried, *, failures: int) -> Verdict:
    """The verdict after this try, when so many have failed before."""
    if tried.code is None:
        return Verdict("delivered", failures)
    policy, _ = TRIED[tried.code]
    delay = retry.delay(policy, failures + 1)
    if delay is None:
        return Verdict("failed", failures + 1)
    return Verdict("pending", failures + 1, max(delay, tried.pause_seconds))


def pause_seconds(retry_after: str | None, now: datetime) -> float:
    """How long a receiver asks to be left alone: an hour at most, 0 when it says nothing clear."""
    if not retry_after:
        return 0.0
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = (parsedate_to_datetime(text) - now).total_seconds()
        except (ValueError, TypeError):  # no date; or one without a zone
            return 0.0
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS)
