"""What the steps work with: the outside world of one process, made once and handed in."""

from __future__ import annotations

from dataclasses import dataclass

from app.adapters import blobs, database, dispatch, signals
from app.adapters.settings import Settings
from app.kernel.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Services:
    """Database, files, hints, event streams and time."""

    settings: Settings
    db: database.Database
    blobs: blobs.Blobs
    dispatch: dispatch.Dispatch
    streams: signals.Streams
    clock: Clock

    @property
    def owner_id(self) -> str:
        """Who holds a lease: this very process."""
        return database.this_process()


def connect(settings: Settings, *, name: str) -> Services:
    """The services of this process; connections are made when they are first needed."""
    clock = SystemClock()
    return Services(
        settings,
        database.Database(
            settings.database_url,
            name=name,
            timeout_seconds=settings.statement_timeout_seconds,
            # An owner that pauses within a transaction for longer than its lease has lost it anyway.
            idle_seconds=settings.lease_seconds,
        ),
        blobs.connect(settings.storage, endpoint_url=settings.storage_endpoint_url),
        dispatch.CeleryDispatch(settings.broker_url, clock),
        signals.Streams(settings.redis),
        clock,
    )
