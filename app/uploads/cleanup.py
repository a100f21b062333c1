"""Cleanup: expired staging goes, day by day (D6.6 §8, CleanupWorker)."""

from __future__ import annotations

from datetime import date

from app.adapters import logs, retries
from app.kernel import errors
from app.uploads import store
from app.uploads.services import Services

log = logs.get(__name__)


def drop_expired(services: Services) -> int:
    """Staging of days beyond its time is gone; returns how many days.

    A day that still holds an upload on its way stays, whatever its age.
    """
    keep_days = services.settings.staging_days
    with services.db.transaction("cleanup") as conn:
        days = store.expired_staging_days(conn, keep_days=keep_days)
    dropped = 0
    for day in days:
        try:
            dropped += retries.call(lambda: _drop(services, day, keep_days), services.clock)  # noqa: B023
        except errors.TransactionTimeout:
            log.warning("staging_day_busy", day=day.isoformat())  # the next run finds it again
    return dropped


def _drop(services: Services, day: date, keep_days: int) -> bool:
    with services.db.transaction("cleanup") as conn:
        gone = store.drop_staging_day(conn, day, keep_days=keep_days)
    if gone:
        log.info("staging_day_dropped", day=str(day))
    return gone
