"""How a daemon of the pipeline works: claim, work under a heartbeat, say how it went; again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from app.adapters import logs
from app.kernel import errors
from app.pipeline.client import LeaseLost, PipelineClient, Problem, Task, Unavailable

log = logs.get(__name__)

BEATS_PER_LEASE = 3
IDLE_SECONDS = 1.0

Work = Callable[[Task, "Held"], None]
"""What a stage does with a task. It raises WorkFailed where the task cannot be done."""


class WorkFailed(errors.HeadworksError):
    """The task cannot be done; the code says why, in the words of the stage."""

    code = "WORK_FAILED"


class Held:
    """Whether the task is still this daemon's: to be asked before something is done that others see."""

    def __init__(self) -> None:
        self._lost = threading.Event()

    def lose(self) -> None:
        """It is another's."""
        self._lost.set()

    def check(self) -> None:
        """LeaseLost when the task is another's by now."""
        if self._lost.is_set():
            raise LeaseLost("The task is another's by now.", code="lease_lost")


class Daemon:
    """One daemon of one stage."""

    def __init__(self, client: PipelineClient, stage: str, work: Work, *, lease_seconds: int = 60) -> None:
        self._client = client
        self._stage = stage
        self._work = work
        self._lease_seconds = lease_seconds

    def run(self, stopped: threading.Event) -> None:
        """Tasks are worked on, one after the other, until it is stopped."""
        while not stopped.is_set():
            if not self.work_off():
                stopped.wait(IDLE_SECONDS)

    def work_off(self) -> bool:
        """Whether a task has been worked on; none has where none waits, or nobody answers."""
        try:
            tasks = self._client.claim(self._stage, lease_seconds=self._lease_seconds)
        except (Unavailable, Problem) as error:
            log.warning("claim_failed", stage=self._stage, code=error.code)
            return False
        for task in tasks:
            self._one(task)
        return bool(tasks)

    def _one(self, task: Task) -> None:
        try:
            with self._held(task) as held:
                self._work(task, held)
            self._client.done(task)
        except LeaseLost:
            log.warning("lease_lost", **_named(task))
        except WorkFailed as error:
            self._failed(task, error.code, error.sentence)
        except (Unavailable, Problem) as error:
            log.warning(
                "task_left", stage=task.stage, filename=task.filename, shard=task.shard, code=error.code
            )
        except Exception as error:
            log.exception("task_broke", **_named(task))
            self._failed(task, "INTERNAL_ERROR", type(error).__name__)

    def _failed(self, task: Task, code: str, message: str) -> None:
        try:
            self._client.fail(task, code=code, message=message)
        except (Unavailable, Problem) as error:  # its lease runs out, and it is handed out again
            log.warning(
                "task_left", stage=task.stage, filename=task.filename, shard=task.shard, code=error.code
            )

    @contextmanager
    def _held(self, task: Task) -> Iterator[Held]:
        """The lease is extended while the block runs."""
        held, done = Held(), threading.Event()
        heart = threading.Thread(target=self._beat, args=(task, held, done), daemon=True)
        heart.start()
        try:
            yield held
        finally:
            done.set()
            heart.join()
        held.check()

    def _beat(self, task: Task, held: Held, done: threading.Event) -> None:
        while not done.wait(self._lease_seconds / BEATS_PER_LEASE):
            try:
                self._client.extend_lease(task, lease_seconds=self._lease_seconds)
            except LeaseLost:
                held.lose()
                return
            except (Unavailable, Problem) as error:
                log.warning("heartbeat_missed", **_named(task), code=error.code)


def _named(task: Task) -> dict[str, Any]:
    return {"stage": task.stage, "filename": task.filename, "shard": task.shard}
