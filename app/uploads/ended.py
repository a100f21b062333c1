"""That an upload has ended, for the metrics and the log."""

from __future__ import annotations

from datetime import datetime

from app.adapters import logs, metrics
from app.kernel.clock import Clock
from app.uploads.codes import FILE_CODES

log = logs.get(__name__)

OURS = (
    # codes of failures that no other file would have been spared
    "access_denied", "attempts_exhausted", "conflict", "connection_lost", "deadlock", "disk_full",
    "file_not_found", "foreign_key_missing", "internal_error", "promotion_failed", "rate_limited",
    "row_refused", "staging_lost", "transaction_timeout", "unique_violation",
)  # fmt: skip


def fault_of(code: str) -> str:
    """Whose fault it is that an upload failed: that of its file, or ours."""
    return "file" if code in FILE_CODES and code not in OURS else "ours"


def know_codes() -> None:
    """The metrics have every failure of ours, so that the first one of a kind is seen to come."""
    for code in OURS:
        metrics.upload_failures.labels(code, "ours").inc(0)


def count(clock: Clock, status: str, *, created_at: datetime, code: str | None = None) -> None:
    """Metrics and log tell that an upload is in this terminal state, after its commit; `code`: why it failed.

    Whoever calls has bound the upload to the log's lines.
    """
    metrics.uploads_finished.labels(status).inc()
    if code is not None:
        metrics.upload_failures.labels(code, fault_of(code)).inc()
    # The machines' clocks may be apart.
    seconds = max(0.0, (clock.now() - created_at).total_seconds())
    metrics.upload_seconds.labels(status).observe(seconds)
    log.info("upload_ended", status=status, code=code, seconds=round(seconds, 3))
