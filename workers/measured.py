"""Each task of a worker: how long it took, how it ended, and whose log lines are its own."""

from __future__ import annotations

from typing import Any

from app.adapters import logs, metrics
from app.kernel.clock import Clock


class Measured:
    """The tasks that this process is at."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: dict[str, float] = {}

    def begin(self, task_id: str, task: Any, **_: Any) -> None:
        """The task begins: every log line from now on says which it is."""
        logs.bind(task=task.name, task_id=task_id)
        self._began[task_id] = self._clock.monotonic()

    def end(self, task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
        """The task is over, in a state of Celery's: SUCCESS, FAILURE, and so on."""
        metrics.tasks.labels(task.name, (state or "unknown").lower()).inc()
        if (began := self._began.pop(task_id, None)) is not None:
            metrics.task_seconds.labels(task.name).observe(self._clock.monotonic() - began)
        logs.unbind("task", "task_id")
