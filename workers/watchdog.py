"""A worker that hears nothing any more ends itself, and whoever runs it starts it again.

The broker's connections may break in ways after which the consumer waits for ever on one that is
gone: killed connections under load do it. The process looks alive then, and only this tells it apart
from an idle one: messages wait in its queues, it takes none, and it is not at work.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from celery.worker import state

from app.adapters import logs

log = logs.get(__name__)

DEAF_SECONDS = 15.0
"""For so long messages wait and none is taken: three times the broker's health check."""

LONG_TASK_SECONDS = 300.0
"""As long may a task take that holds no upload, such as a cleanup."""

GRACE_SECONDS = 8.0
"""After so long a process that does not end when asked to is ended."""


class Watchdog:
    """What one worker has heard, and whether more waits for it."""

    def __init__(
        self,
        waiting: Callable[[], int],
        owners: Callable[[], list[str]],
        pool: Callable[[], list[str]],
    ) -> None:
        """`waiting()`: messages in this worker's queues; `owners()`: who holds an upload; `pool()`: the
        names under which this worker's processes would.
        """
        self._waiting, self._owners, self._pool = waiting, owners, pool
        self._heard = self._quiet_since = time.monotonic()

    def hear(self, **_: Any) -> None:
        """A message was taken."""
        self._heard = self._quiet_since = time.monotonic()

    def is_deaf(self) -> bool:
        """Whether messages have waited for too long while this worker took none and did nothing."""
        now = time.monotonic()
        if now - self._heard < DEAF_SECONDS:
            return False
        if self._waiting() == 0 or self._holds_an_upload() or self._is_at_a_long_task(now):
            self._quiet_since = now
        return now - self._quiet_since >= DEAF_SECONDS

    def _holds_an_upload(self) -> bool:
        return not set(self._pool()).isdisjoint(self._owners())

    def _is_at_a_long_task(self, now: float) -> bool:
        stages = {"uploads.parse", "uploads.promote"}
        return any(
            request.name not in stages and now - self._heard < LONG_TASK_SECONDS
            for request in state.active_requests
        )


def end_process() -> None:
    """This process ends: in order if it can, else at once."""
    log.error("worker_deaf", seconds=DEAF_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Timer(GRACE_SECONDS, os._exit, args=(1,)).start()


def messages_in(app: Any, queues: list[str]) -> int:
    """How many messages wait in these queues; 0 when the broker does not answer."""
    try:
        with app.connection_for_read(connect_timeout=5) as connection, connection.channel() as channel:
            return sum(channel.queue_declare(queue, passive=True).message_count for queue in queues)
    except Exception as error:  # each broker's library has its own errors; none of them means deafness
        log.info("queues_not_counted", reason=type(error).__name__)
        return 0
