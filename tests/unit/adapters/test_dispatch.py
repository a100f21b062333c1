"""Hints that follow each other closely become one, and the last of them is never lost."""

from __future__ import annotations

import threading
import time

import pytest

from app.adapters.dispatch import CeleryDispatch
from app.kernel.clock import SystemClock
from tests import patience


class Sent(CeleryDispatch):
    """Notes what would go to the broker, and when."""

    def __init__(self) -> None:
        super().__init__("redis://127.0.0.1:1", SystemClock())
        self.hints: list[tuple[str, float]] = []
        self.came = threading.Condition()

    def _send(self, task: str, traceparent: str | None) -> None:
        with self.came:
            self.hints.append((task, time.monotonic()))
            self.came.notify_all()

    def wait_for(self, number: int) -> list[str]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.hints) >= number, timeout=10 * patience.PATIENCE)
            return [task for task, _ in self.hints]


@pytest.fixture
def sent() -> Sent:
    return Sent()


def test_a_hint_is_sent_at_once(sent: Sent) -> None:
    sent.send("a", within=60)
    sent.send("b", within=60)
    assert [task for task, _ in sent.hints] == ["a", "b"]


def test_hints_within_the_gap_are_one_at_its_end(sent: Sent) -> None:
    began = time.monotonic()
    for _ in range(50):
        sent.send("a", within=0.3)
    last = time.monotonic()
    assert sent.wait_for(2) == ["a", "a"]
    # The second one was sent after the last of those that it stands for: what they told of is seen.
    assert sent.hints[1][1] >= max(last, began + 0.3)
    time.sleep(0.4)
    assert len(sent.hints) == 2


def test_a_hint_for_one_task_does_not_hold_up_another(sent: Sent) -> None:
    for _ in range(3):
        sent.send("a", within=60)
    sent.send("b", within=60)
    assert [task for task, _ in sent.hints] == ["a", "b"]


def test_after_the_gap_a_hint_is_sent_at_once_again(sent: Sent) -> None:
    sent.send("a", within=0.05)
    time.sleep(0.1)
    sent.send("a", within=0.05)
    assert len(sent.hints) == 2


def test_a_hint_that_was_left_waiting_by_a_thread_that_is_no_more_is_sent(sent: Sent) -> None:
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    sent._late, sent._waiting = gone, {"a": (0.0, None)}  # as in a process that was forked meanwhile
    sent.send("a")
    assert sent.wait_for(1) == ["a"]


def test_hints_of_many_threads_lose_none(sent: Sent) -> None:
    told: list[float] = []

    def tell() -> None:
        for _ in range(100):
            told.append(time.monotonic())
            sent.send("a", within=0.02)
            time.sleep(0.001)

    threads = [threading.Thread(target=tell) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with sent.came:
        assert sent.came.wait_for(lambda: sent.hints[-1][1] >= max(told), timeout=10 * patience.PATIENCE)
    assert len(sent.hints) < 100
