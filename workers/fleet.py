"""The Celery application of the fleet: `celery -A workers.fleet worker -Q parse`."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import Any

import celery
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    celeryd_init,
    task_postrun,
    task_prerun,
    task_received,
    worker_process_init,
    worker_ready,
    worker_shutting_down,
)
from celery.worker import state
from opentelemetry.trace import SpanKind

from app.adapters import alive, broker, database, dispatch, exposition, logs, redaction, tracing
from app.adapters.settings import Settings
from app.catalog import jobs as catalog_jobs
from app.catalog import services as catalog_services
from app.kernel import errors
from app.suppliers import services as suppliers_services
from app.uploads import ended, leases, recover, services
from workers import measured, watchdog

settings = Settings.from_env()
app = dispatch.celery_app(settings.broker_url)


class Task(celery.Task):  # type: ignore[misc]
    """A task in the trace of whoever sent its hint; what beat sends is traced where there is work in it."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        sent = (self.request.headers or {}).get(tracing.HEADER)
        if sent is None:
            return super().__call__(*args, **named)
        with tracing.span(f"run {self.name}", parent=sent, kind=SpanKind.CONSUMER):
            return super().__call__(*args, **named)


app.task_cls = Task
app.conf.imports = ("workers.tasks",)

log = logs.get(__name__)
current = services.connect(settings, name="headworks worker")
"""The services of this process. Connections are made on first use, in the process that uses them."""

suppliers = suppliers_services.connect(settings, current.db)
catalog = catalog_services.connect(settings, current.db)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGQUIT)
"""What ends a pool process: the second with REMAP_SIGTERM=SIGQUIT, as the Procfile is run."""

ANSWER_SECONDS = 5
"""For so long a process that is stopped may tell how its last task went: its parent may be waiting for other
processes for the time of a soft shutdown, and does not listen meanwhile."""

YOUNG_OBJECTS = 50_000
"""So many new objects are looked through for cycles. Python's 700 are a few rows of a file, which hold none:
it would look through them again and again, for a third of the time that they take."""

_stopping = threading.Event()
_in_task = threading.Event()


_measured = measured.Measured(current.clock)
task_prerun.connect(_measured.begin, weak=False)
task_postrun.connect(_measured.end, weak=False)


@celeryd_init.connect
def _check_broker(sender: str, **_: Any) -> None:
    app.conf.traced_as = sender.partition("@")[0]  # -n of the Procfile: its processes know it, too
    try:
        broker.check(settings.broker_url)
    except broker.UnsafeBroker as error:
        sys.exit(error.sentence)


@after_setup_logger.connect
@after_setup_task_logger.connect
def _guard_log(logger: logging.Logger, **_: Any) -> None:
    redaction.guard(logger)


@worker_process_init.connect
def _begin_child(**_: Any) -> None:
    # The parent's sockets are the parent's: a connection shared across a fork garbles both sides.
    current.db.forget_connections()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.freeze()  # nor at what was imported, again and again
    logs.configure("worker")
    tracing.configure(app.conf.traced_as)


@task_prerun.connect
def _begin_task(**_: Any) -> None:
    # Not when the process begins: the pool sets handlers of its own after that.
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
    _in_task.set()


@task_postrun.connect
def _end_task(**_: Any) -> None:
    _in_task.clear()
    if leases.is_stopping():
        signal.alarm(ANSWER_SECONDS)
        tracing.flush(ANSWER_SECONDS / 2)


def _stop(_signum: int, _frame: object) -> None:
    """Asked to stop: work that looks for the wish is given back, and any other ends as if it were killed.

    No exception: one could strike while the process tells its parent how a task went, and the parent
    would wait without end for the rest of that. The process ends by itself when it has had the time.
    """
    if leases.ask_to_stop():
        return  # it ends with its task
    if _in_task.is_set():
        os._exit(0)
    signal.alarm(ANSWER_SECONDS)


@worker_ready.connect
def _begin_sweeping(sender: Any, **_: Any) -> None:
    logs.configure("worker")
    ended.know_codes()
    catalog_jobs.know_reasons()
    # What takes longer than a lease comes too late to keep one.
    hasty = replace(settings, statement_timeout_seconds=settings.lease_seconds)
    sweeper = services.connect(hasty, name="headworks sweep")
    dog = watchdog.Watchdog(
        # Asked each time: a worker that is drained takes from none any more, and is not deaf.
        waiting=lambda: _messages_in(list(app.amqp.queues.consume_from)),
        owners=lambda: recover.owners(sweeper),
        pool=lambda: [database.name_of_process(pid) for pid in sender.pool.info["processes"]],
        tasks=lambda: [request.name for request in state.active_requests],
        clock=sweeper.clock,
        look_seconds=settings.sweep_seconds,
    )
    task_received.connect(dog.hear, weak=False)
    threading.Thread(target=_sweep_now_and_then, args=(sweeper, dog), daemon=True).start()
    exposition.serve(settings.metrics_bind)


def _messages_in(queues: list[str]) -> int:
    """How many messages wait in these queues; 0 when the broker does not answer."""
    try:
        with app.connection_for_read(connect_timeout=5) as connection:
            return sum(dispatch.messages_of(connection, queue) for queue in queues)
    except Exception as error:  # each broker's library has its own errors; none of them means deafness
        log.info("queues_not_counted", reason=type(error).__name__)
        return 0


@worker_shutting_down.connect
def _end_sweeping(**_: Any) -> None:
    _stopping.set()


def _sweep_now_and_then(sweeper: services.Services, dog: watchdog.Watchdog) -> None:
    heart = alive.Heart(settings.alive_file)
    heart.beat()  # it hears its queues: whoever waits for that need not wait for the first sweep
    while not _stopping.wait(settings.sweep_seconds):
        heart.beat()
        try:
            recover.sweep(sweeper)
            if dog.is_deaf():
                watchdog.end_process()
                return
        except errors.HeadworksError as error:
            log.warning("sweep_failed", code=error.code)
