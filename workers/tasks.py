"""The tasks: each is one call. A task carries no data: what is to be done stands in the tables."""

from __future__ import annotations

from app.catalog import net
from app.catalog.jobs import JOBS
from app.suppliers import retention, watch
from app.uploads import cleanup, drop, events, parse, promote, work
from app.uploads.webhooks import deliver
from workers.fleet import app, catalog, current, suppliers


@app.task(name="uploads.scan_drop")
def scan_drop() -> None:
    """Complete files in the watched folder are taken in."""
    drop.scan(current)


@app.task(name="uploads.parse")
def parse_next() -> None:
    """Whatever waits for it is parsed."""
    work.take_turn(current, "parse", parse.parse_upload)


@app.task(name="uploads.promote")
def promote_next() -> None:
    """Whatever waits for it is promoted."""
    work.take_turn(current, "promote", promote.promote_upload)


@app.task(name="uploads.relay")
def relay_events() -> None:
    """Committed events are on their streams, and stand in the audit log."""
    events.pass_on(current)


@app.task(name="uploads.audit")
def record_events() -> None:
    """Published events stand in the audit log."""
    events.record_in_audit(current)


@app.task(name="uploads.deliver")
def deliver_webhooks() -> None:
    """Webhooks that are due have been tried."""
    deliver.run(current)


@app.task(name="uploads.cleanup")
def clean_up() -> None:
    """Expired staging and old webhook deliveries are gone."""
    cleanup.clean_up(current)


@app.task(name="suppliers.scan")
def scan_inboxes() -> None:
    """A hint is on its way for each supplier whose list waits, and the metrics know every age."""
    watch.scan(suppliers, current.dispatch)


@app.task(name="suppliers.run")
def run_next_supplier() -> None:
    """One supplier whose list waits has had its run."""
    watch.run_next(suppliers)


@app.task(name="suppliers.expire")
def expire_supplier_files() -> None:
    """Nothing of the suppliers' files is kept beyond its time."""
    retention.expire_all(suppliers)


@app.task(name="catalog.begin_net")
def begin_net() -> None:
    """The day's net of catalog jobs has begun."""
    net.begin_daily(catalog, current.dispatch)


@app.task(name="catalog.advance")
def advance_net() -> None:
    """A hint is on its way for each job of the net whose turn it is."""
    net.advance(catalog, current.dispatch)


def _task_of(job_id: str) -> None:
    # Thousands of targets at one a second: longer than any broker waits for an acknowledgement. A job whose
    # worker died is found by the next look at the net.
    @app.task(name=net.task_of(job_id), acks_late=False, soft_time_limit=12 * 3600, time_limit=12 * 3600 + 60)
    def run_job() -> None:
        """The job of the net has been done if it was its turn, and hints of the next are on their way."""
        if net.run_next(catalog, only=job_id) is not None:
            net.advance(catalog, current.dispatch)


for _job_id in JOBS:
    _task_of(_job_id)
