"""The parts of an instance, and what each is asked: a name, and what returns its gauges or raises."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from functools import partial

from prometheus_client.metrics_core import GaugeMetricFamily

from app.adapters import broker, dispatch, metrics
from app.adapters.database import Database
from app.adapters.settings import Settings
from app.observe import store
from app.observe.state import Part
from app.pipeline import events
from app.pipeline.services import Services as Pipeline
from app.refdata import store as refdata_store
from app.refdata.services import Services as Refdata
from app.uploads import states

STATEMENT_SECONDS = 4.0
"""Within that a part has answered, or is taken for silent: a scrape waits for 10 s."""

STAGES = ("parse", "promote")


def of_instance(
    settings: Settings, *, pipeline: Pipeline | None = None, refdata: Refdata | None = None
) -> dict[str, Part]:
    """What this instance consists of. The database is asked by connections of their own: those of the web may
    all be busy when it matters.
    """
    db = Database(
        settings.database_url, name="headworks observe", pool_size=2, timeout_seconds=STATEMENT_SECONDS
    )
    found: dict[str, Part] = {
        "database": partial(_database, db, settings),
        "broker": partial(_broker, settings),
        "fleet": partial(_fleet, settings.broker_url),
        "disk": partial(_disk, settings),
    }
    if pipeline is not None:
        found["pipeline"] = lambda: events.gauges(pipeline.pipeline)
    if refdata is not None:
        found["refdata"] = partial(_refdata, refdata)
    return found


def _database(db: Database, settings: Settings) -> Iterator[GaugeMetricFamily]:
    with db.transaction("dispatch") as conn:
        by_status = {row.status: row for row in store.uploads_by_status(conn)}
        by_stage = {row.stage: row for row in store.uploads_waiting(conn)}
        put_off = store.uploads_put_off(conn)
        webhooks = store.webhooks_waiting(conn)
        connections = store.connections(conn)
    with db.transaction("relay") as conn:
        events_waiting = store.events_waiting(conn)
    yield metrics.uploads_open.of(_each(states.OPEN, by_status, "uploads"))
    yield metrics.uploads_oldest_seconds.of(_each(states.OPEN, by_status, "oldest_seconds"))
    yield metrics.uploads_waiting.of(_each(STAGES, by_stage, "uploads"))
    yield metrics.uploads_waiting_seconds.of(_each(STAGES, by_stage, "oldest_seconds"))
    yield metrics.uploads_put_off.of(put_off)
    yield metrics.webhooks_due.of(webhooks.deliveries)
    yield metrics.webhooks_due_seconds.of(webhooks.oldest_seconds)
    yield metrics.outbox_events.of(events_waiting.events)
    yield metrics.outbox_oldest_seconds.of(events_waiting.oldest_seconds)
    yield metrics.database_connections.of(connections.used)
    yield metrics.database_connections_most.of(connections.most)
    yield from _catalog(db, settings)


def _each(names: Iterable[str], rows: dict[str, object], field: str) -> dict[tuple[str, ...], float]:
    """The field of each name's row; 0 where there is none: what is gone must not stand still."""
    return {(name,): getattr(rows[name], field) if name in rows else 0.0 for name in names}


def _catalog(db: Database, settings: Settings) -> Iterator[GaugeMetricFamily]:
    with db.transaction("catalog") as conn:
        nets = store.nets(conn, env=settings.catalog_env)
    yield metrics.catalog_nightly.of(float(bool(settings.catalog_application_id)))
    if nets.age_seconds is not None:
        yield metrics.catalog_net_age_seconds.of(nets.age_seconds)
    yield metrics.catalog_net_running_seconds.of(nets.running_seconds)


def _broker(settings: Settings) -> Iterator[GaugeMetricFamily]:
    messages = dispatch.messages_of_queues(settings.broker_url)
    for url in settings.redis_urls:
        broker.check_takes(url)
    yield metrics.queue_messages.of({(queue,): number for queue, number in messages.items()})


def _fleet(url: str) -> Iterator[GaugeMetricFamily]:
    workers = dispatch.workers_of_queues(url)
    yield metrics.queue_workers.of({(queue,): number for queue, number in workers.items()})


def _disk(settings: Settings) -> Iterator[GaugeMetricFamily]:
    found = shutil.disk_usage(settings.data_dir)
    yield metrics.disk_free_bytes.of(found.free)
    yield metrics.disk_size_bytes.of(found.total)


def _refdata(of: Refdata) -> Iterator[GaugeMetricFamily]:
    waits = {name: refdata_store.unannounced(of.databases[name]) for name in of.databases}
    yield metrics.refdata_outbox_events.of({(name,): one.events for name, one in waits.items()})
    yield metrics.refdata_outbox_oldest_seconds.of(
        {(name,): one.oldest_seconds for name, one in waits.items()}
    )
