"""A worker that hears nothing any more ends itself, and whoever runs it starts it again.

The broker's connections may break in ways after which the consumer waits for ever on one that is
gone: killed connections under load do it. The process looks alive then, and only this tells it apart
from an idle one: messages wait in its queues, it takes none, and it is not at work.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from app.adapters import logs
from app.kernel.clock import Clock

log = logs.get(__name__)

DEAF_SECONDS = 15.0
"""For so long messages wait and none is taken: three times the broker's health check."""

MISSED_LOOKS = 3
"""After so many that were not taken it begins anew."""

LONG_TASK_SECONDS = 900.0
"""As long may a task take that holds no upload, such as a cleanup or the reading of a supplier's list."""

GRACE_SECONDS = 8.0
"""After so long a process that does not end when asked to is ended."""


class Watchdog:
    """What one worker has heard, and whether more waits for it."""

    def __init__(
        self,
        waiting: Callable[[], int],
        owners: Callable[[], list[str]],
        pool: Callable[[], list[str]],
        tasks: Callable[[], list[str]],
        clock: Clock,
        look_seconds: float,
    ) -> None:
        """`waiting()`: messages in this worker's queues; `owners()`: who holds an upload; `pool()`: the
        names under which this worker's processes would; `tasks()`: what those are at, by their account.
        `look_seconds`: how often it is asked.
        """
        self._waiting, self._owners, self._pool, self._tasks = waiting, owners, pool, tasks
        self._clock = clock
        self._longest_gap = MISSED_LOOKS * look_seconds
        self._heard = self._quiet_since = self._looked = clock.monotonic()

    def hear(self, **_: Any) -> None:
        """A message was taken."""
        self._heard = self._quiet_since = self._clock.monotonic()

    def is_deaf(self) -> bool:
        """Whether messages have waited for too long while this worker took none and did nothing."""
        now, before = self._clock.monotonic(), self._looked
        if now - before > self._longest_gap:
            # What was meanwhile nobody knows: the database was away, or the machine slept.
            self._quiet_since = now
        self._looked = now
        if self._heard >= before:
            return False
        # Asked at each look: while the broker is away nothing waits there, and the worker is to be given
        # its time to find it again.
        if self._waiting() == 0 or self._holds_an_upload() or self._is_at_a_long_task(now):
            self._quiet_since = now
        return now - self._quiet_since >= DEAF_SECONDS

    def _holds_an_upload(self) -> bool:
        return not set(self._pool()).isdisjoint(self._owners())

    def _is_at_a_long_task(self, now: float) -> bool:
        # The stages' tasks are judged by the uploads they hold.
        stages = {"uploads.parse", "uploads.promote"}
        return now - self._heard < LONG_TASK_SECONDS and not stages.issuperset(self._tasks())


def end_process() -> None:
    """This process ends: in order if it can, else at once."""
    log.error("worker_deaf", seconds=DEAF_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Timer(GRACE_SECONDS, os._exit, args=(1,)).start()
