"""Hints to the fleet: a task is sent by its name, after the commit that makes it worth doing.

A hint may be lost, doubled or late. The row is the truth, and the sweep sends lost hints again,
so a broker that is down costs latency and never work.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Protocol

import celery

from app.adapters import logs, tracing
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)


GAP_SECONDS = 0.1
"""Hints for one task are that far apart: whoever takes one finds all the work there is by then."""


class Dispatch(Protocol):
    """Where hints go."""

    def send(self, task: str, *, within: float = GAP_SECONDS) -> None:
        """The named task will probably be run soon. Never raises for a broker that is down.

        Hints for it that follow each other within so many seconds may be one, at the end of that time.
        """


HINT_SECONDS = 2.0
"""So long a sender waits for the broker, and after that it sends none for as long: the sweep does."""


REDIS_TIMEOUTS = ("socket_timeout", "socket_connect_timeout")
RABBITMQ_TIMEOUTS = ("read_timeout", "write_timeout", "connect_timeout")


class CeleryDispatch:
    """Hints as Celery messages; the queue follows from the name by `task_routes`.

    The first hint of a task is sent at once, and all that come within the gap behind it are one at its end.
    """

    def __init__(self, broker_url: str, clock: Clock) -> None:
        self._broker_url = broker_url
        self._clock = clock
        self._app: celery.Celery | None = None
        self._quiet_until = clock.monotonic()
        self._changed = threading.Condition()
        self._next: dict[str, float] = {}  # task → when its next hint may be sent
        self._waiting: dict[str, tuple[float, str | None]] = {}  # tasks whose next hint waits for that
        self._late: threading.Thread | None = None

    def send(self, task: str, *, within: float = GAP_SECONDS) -> None:
        now = self._clock.monotonic()
        with self._changed:
            if task not in self._waiting:
                at = max(now, self._next.get(task, now))
                self._next[task] = at + within
                if at > now:
                    self._waiting[task] = at, tracing.traceparent()
            if late := task in self._waiting:
                self._send_late()
        if not late:
            self._send(task, tracing.traceparent())

    def _send_late(self) -> None:
        """A thread sends what waits. Always the same: Celery makes much ado of the first hint of each."""
        if self._late is not None and self._late.is_alive():  # of a process that was forked none is
            self._changed.notify()
            return
        # A process that ends before leaves its hints to the sweep.
        self._late = threading.Thread(target=self._send_what_waits, name="late hints", daemon=True)
        self._late.start()

    def _send_what_waits(self) -> None:
        while True:
            with self._changed:
                while (wait := self._seconds_left()) is None or wait > 0:
                    self._changed.wait(wait)
                task = min(self._waiting, key=lambda task: self._waiting[task][0])
                _, traceparent = self._waiting.pop(task)
            self._send(task, traceparent)

    def _seconds_left(self) -> float | None:
        """Until the next hint that waits may be sent; None when none waits."""
        times = [at for at, _ in self._waiting.values()]
        return min(times) - self._clock.monotonic() if times else None

    def _send(self, task: str, traceparent: str | None) -> None:
        if self._clock.monotonic() < self._quiet_until:
            log.info("hint_not_sent", task=task, reason="the broker did not answer a moment ago")
            return
        app = self._app = self._app or _sender(self._broker_url)
        try:
            app.send_task(task, headers={tracing.HEADER: traceparent} if traceparent else None)
        except Exception as error:  # each broker's library has its own; a hint is never worth failing for
            log.warning("hint_not_sent", task=task, reason=type(error).__name__)
            self._quiet_until = self._clock.monotonic() + HINT_SECONDS
            # The next hint begins anew: its connection declares the queues again, which a broker
            # that lost its memory does not know any more.
            self._app = None
            app.close()


def _sender(broker_url: str) -> celery.Celery:
    """An application that would rather send nothing than wait."""
    app = celery_app(broker_url)
    names = RABBITMQ_TIMEOUTS if is_rabbitmq(broker_url) else REDIS_TIMEOUTS
    app.conf.broker_transport_options = {
        **app.conf.broker_transport_options,
        **dict.fromkeys(names, HINT_SECONDS),
    }
    app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0}
    return app


def is_rabbitmq(broker_url: str) -> bool:
    """Whether the address is one of RabbitMQ."""
    return broker_url.startswith(("amqp://", "amqps://", "pyamqp://"))


def celery_app(broker_url: str) -> celery.Celery:
    """The Celery application of this product, without its tasks: enough to send by name."""
    app = celery.Celery("headworks", broker=broker_url)
    app.config_from_object("celeryconfig")
    if is_rabbitmq(broker_url):
        app.conf.broker_transport_options = app.conf.rabbitmq_transport_options
    return app


def is_reachable(broker_url: str) -> bool:
    """Whether the broker answers now."""
    with _sender(broker_url) as app:
        try:
            with app.connection_for_write(connect_timeout=HINT_SECONDS) as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=2 * HINT_SECONDS)
        except Exception as error:  # each broker's library has its own
            log.info("broker_unreachable", reason=type(error).__name__)
            return False
    return True


def queues() -> list[str]:
    """The queues of `task_routes`, in order."""
    return sorted({route["queue"] for route in celery_app("").conf.task_routes.values()})


def workers_of_queues(broker_url: str) -> dict[str, int]:
    """How many workers answer for each queue, after `HINT_SECONDS`; ConnectionLost: the broker does not."""
    with _sender(broker_url) as app:
        try:
            with app.connection_for_write(connect_timeout=HINT_SECONDS) as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=2 * HINT_SECONDS)
                inspect = app.control.inspect(timeout=HINT_SECONDS, connection=connection)
                found = inspect.active_queues() or {}
        except Exception as error:  # as above
            log.info("workers_not_asked", reason=type(error).__name__)
            raise errors.ConnectionLost("The broker does not answer.") from None
    heard = Counter(queue["name"] for answered in found.values() for queue in answered)
    return {queue: heard[queue] for queue in queues()}


CLOCK_QUEUE = "intake"
CLOCK_TASKS = ("uploads.scan_drop", "suppliers.scan")
"""What nobody sends but beat, every few seconds, and the queue that has nothing else."""


def sent_by_beat(broker_url: str) -> int:
    """A number that grows with whatever beat sends: of its tasks those that wait, and those that were taken.

    ConnectionLost when the broker does not answer.
    """
    with _sender(broker_url) as app:
        try:
            with app.connection_for_write(connect_timeout=HINT_SECONDS) as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=2 * HINT_SECONDS)
                waiting = messages_of(connection, CLOCK_QUEUE)
                inspect = app.control.inspect(timeout=HINT_SECONDS, connection=connection)
                found = inspect.stats() or {}
        except Exception as error:  # as above
            log.info("beat_not_seen", reason=type(error).__name__)
            raise errors.ConnectionLost("The broker does not answer.") from None
    totals = [answered.get("total") or {} for answered in found.values()]
    return waiting + sum(int(total.get(task, 0)) for total in totals for task in CLOCK_TASKS)


def messages_of_queues(broker_url: str) -> dict[str, int]:
    """How many messages wait in each queue. ConnectionLost when the broker does not answer."""
    with _sender(broker_url) as app:
        try:
            with app.connection_for_read(connect_timeout=HINT_SECONDS) as connection:
                return {queue: messages_of(connection, queue) for queue in queues()}
        except Exception as error:  # as above
            log.info("queues_not_counted", reason=type(error).__name__)
            raise errors.ConnectionLost("The broker does not answer.") from None


def messages_of(connection: Any, queue: str) -> int:
    """How many messages wait in the queue."""
    try:
        with connection.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).message_count)
    except connection.channel_errors:  # on Redis an empty queue does not exist
        return 0
