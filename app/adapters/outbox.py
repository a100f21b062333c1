"""Events that leave after commit, at least once: written with the work, published by the relay."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.adapters import database, logs, metrics, queries, signals
from app.kernel.canonical import canonical_json

log = logs.get(__name__)
_outbox = queries.load("outbox")

BATCH_EVENTS = 100


def add(connection: database.Connection, workspace_id: UUID, *, topic: str, key: str, payload: Any) -> bool:
    """The event will be published once this transaction commits; False if its key is known already."""
    return bool(
        _outbox.add_event(
            connection,
            workspace_id=workspace_id,
            topic=topic,
            key=key,
            payload=canonical_json(payload).decode(),
        )
    )


def relay(db: database.Database, streams: signals.Streams) -> int:
    """Every committed event is on its stream, in order; returns how many were published.

    A crash between publishing and marking publishes again: consumers know an event by its key.
    """
    published = 0
    while batch := _relay_batch(db, streams):
        published += batch
    return published


def _relay_batch(db: database.Database, streams: signals.Streams) -> int:
    with db.transaction("relay") as connection:
        events = list(_outbox.take_events(connection, limit=BATCH_EVENTS))
        if events:
            streams.publish([(event.topic, event.key, canonical_json(event.payload)) for event in events])
            _outbox.mark_events_published(connection, event_ids=[event.id for event in events])
    for event in events:
        log.info("event_published", topic=event.topic, key=event.key)
        metrics.events_published.labels(event.topic).inc()
    return len(events)
