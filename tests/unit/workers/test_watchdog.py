"""When a worker is deaf: messages wait, none is taken, and it is not at work."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from app.kernel.clock import SystemClock
from workers.watchdog import DEAF_SECONDS, LONG_TASK_SECONDS, Watchdog


@dataclass
class Worker(SystemClock):
    """What the watchdog sees of a worker, and its clock."""

    now_seconds: float = 1000.0
    waiting: int = 1
    owners: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_seconds


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def dog(worker: Worker) -> Watchdog:
    return Watchdog(
        waiting=lambda: worker.waiting,
        owners=lambda: worker.owners,
        pool=lambda: ["here/41", "here/42"],
        tasks=lambda: worker.tasks,
        clock=worker,
        look_seconds=2,
    )


def look_for(dog: Watchdog, worker: Worker, seconds: float) -> bool:
    """Whether it is found deaf when looked at every two seconds for so long."""
    for _ in range(int(seconds / 2)):
        worker.now_seconds += 2
        if dog.is_deaf():
            return True
    return False


def test_a_worker_that_takes_nothing_although_messages_wait_is_deaf(dog: Watchdog, worker: Worker) -> None:
    assert not look_for(dog, worker, DEAF_SECONDS - 2)
    assert look_for(dog, worker, 4)


def test_what_was_while_nobody_could_look_counts_for_nothing(dog: Watchdog, worker: Worker) -> None:
    # The database was away, or the whole machine slept: the worker may have been at work all the time.
    look_for(dog, worker, DEAF_SECONDS - 3)
    worker.now_seconds += 5 * DEAF_SECONDS
    assert not dog.is_deaf()
    assert not look_for(dog, worker, DEAF_SECONDS - 2)
    assert look_for(dog, worker, 4)


def test_a_worker_without_messages_is_idle(dog: Watchdog, worker: Worker) -> None:
    worker.waiting = 0
    assert not look_for(dog, worker, 10 * DEAF_SECONDS)


def test_the_time_begins_when_messages_begin_to_wait(dog: Watchdog, worker: Worker) -> None:
    worker.waiting = 0
    look_for(dog, worker, 10 * DEAF_SECONDS)
    worker.waiting = 3
    assert not look_for(dog, worker, DEAF_SECONDS - 2)
    assert look_for(dog, worker, 4)


@pytest.mark.parametrize("away", range(2, 40, 2))
def test_a_worker_is_given_its_time_to_find_a_broker_again_that_was_away(
    away: int, dog: Watchdog, worker: Worker
) -> None:
    dog.hear()  # a moment before
    worker.waiting = 0  # as far as anybody can see
    assert not look_for(dog, worker, away)
    worker.waiting = 3
    assert not look_for(dog, worker, DEAF_SECONDS - 2)
    assert look_for(dog, worker, 4)


def test_a_worker_that_takes_a_message_hears(dog: Watchdog, worker: Worker) -> None:
    for _ in range(20):
        assert not look_for(dog, worker, DEAF_SECONDS - 2)
        dog.hear()


def test_a_worker_that_holds_an_upload_is_at_work(dog: Watchdog, worker: Worker) -> None:
    worker.owners = ["elsewhere/7", "here/42"]
    assert not look_for(dog, worker, 10 * DEAF_SECONDS)


def test_an_upload_held_by_another_worker_excuses_nothing(dog: Watchdog, worker: Worker) -> None:
    worker.owners = ["elsewhere/7"]
    assert look_for(dog, worker, 2 * DEAF_SECONDS)


def test_a_worker_at_a_long_task_without_upload_is_given_time(dog: Watchdog, worker: Worker) -> None:
    worker.tasks = ["uploads.cleanup"]
    assert not look_for(dog, worker, LONG_TASK_SECONDS - 2)
    assert look_for(dog, worker, DEAF_SECONDS + 4)


def test_a_stage_that_holds_no_upload_is_no_work(dog: Watchdog, worker: Worker) -> None:
    worker.tasks = ["uploads.parse"]
    assert look_for(dog, worker, 2 * DEAF_SECONDS)
