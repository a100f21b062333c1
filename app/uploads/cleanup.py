"""Cleanup: expired staging goes, day by day (D6.6 §8, CleanupWorker), and the log of webhooks."""

from __future__ import annotations

from datetime import date

from app.adapters import logs, retries
from app.kernel import errors
from app.uploads import store
from app.uploads.services import Services
from app.uploads.webhooks import store as webhooks_store

log = logs.get(__name__)

WEBHOOK_DAYS = 30
"""As long is it kept what was sent to webhooks, and what came back."""

BATCH_DELIVERIES = 1000


def clean_up(services: Services) -> None:
    """Nothing is kept beyond its time."""
    drop_expired(services)
    forget_deliveries(services)


def forget_deliveries(services: Services) -> int:
    """Deliveries of webhooks beyond their time are gone, with their attempts; returns how many.

    Then subscriptions that had ended, and of which nothing is left.
    """
    forgotten = 0
    while batch := retries.call(lambda: _forget(services), services.clock):
        forgotten += batch
    if forgotten:
        log.info("webhook_deliveries_deleted", deliveries=forgotten)
    with services.db.transaction("cleanup") as conn:
        webhooks_store.delete_old_webhooks(conn, keep_days=WEBHOOK_DAYS)
    return forgotten


def _forget(services: Services) -> int:
    with services.db.transaction("cleanup") as conn:
        return webhooks_store.delete_old_deliveries(conn, keep_days=WEBHOOK_DAYS, limit=BATCH_DELIVERIES)


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
