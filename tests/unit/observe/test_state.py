"""Parts that answer, fail, or say nothing at all: what is told of each."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from prometheus_client.metrics_core import Metric

from app.adapters import metrics
from app.kernel import errors
from app.kernel.clock import SystemClock
from app.observe import state
from app.observe.state import State


@dataclass
class SetMonotonic(SystemClock):
    seconds: float = 100.0

    def monotonic(self) -> float:
        return self.seconds


def told(of: State) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of each gauge by their labels."""
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in of.read()
    }


def well() -> Iterable[Metric]:
    return [metrics.outbox_events.of(3)]


def away() -> Iterable[Metric]:
    raise errors.ConnectionLost()


def broken() -> Iterable[Metric]:
    raise ZeroDivisionError


UP = metrics.part_up.name


def test_a_part_that_fails_keeps_the_others_from_nothing() -> None:
    found = told(State({"one": well, "two": away, "three": broken}, SystemClock()))
    assert found == {
        metrics.outbox_events.name: {(): 3.0},
        UP: {("one",): 1.0, ("two",): 0.0, ("three",): 0.0},
    }


def test_what_a_part_said_before_it_fell_silent_is_told_no_more() -> None:
    clock, answers = SetMonotonic(), iter([well, away])
    of = State({"one": lambda: next(answers)()}, clock)
    assert metrics.outbox_events.name in told(of)
    clock.seconds += state.KEEP_SECONDS
    assert told(of) == {UP: {("one",): 0.0}}


def test_a_part_is_asked_once_in_a_while_however_often_somebody_looks() -> None:
    clock, asked = SetMonotonic(), []

    def counted() -> Iterable[Metric]:
        asked.append(1)
        return well()

    of = State({"one": counted}, clock)
    for _ in range(5):
        of.read()
    assert len(asked) == 1
    clock.seconds += state.KEEP_SECONDS
    of.read()
    assert len(asked) == 2


def test_a_part_that_hangs_is_waited_for_once_and_never_asked_twice_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "WAIT_SECONDS", 0.05)
    clock, asked, let_go = SetMonotonic(), [], threading.Event()

    def hangs() -> Iterable[Metric]:
        asked.append(1)
        let_go.wait(20)
        return well()

    of = State({"one": hangs, "two": well}, clock)
    assert told(of)[UP] == {("one",): 0.0, ("two",): 1.0}
    clock.seconds += state.KEEP_SECONDS
    assert told(of)[UP] == {("one",): 0.0, ("two",): 1.0}
    assert len(asked) == 1
    let_go.set()
    monkeypatch.setattr(state, "WAIT_SECONDS", 20)
    clock.seconds += state.KEEP_SECONDS
    assert told(of)[UP] == {("one",): 1.0, ("two",): 1.0}


def test_whoever_looks_while_somebody_else_asks_is_not_kept_waiting() -> None:
    clock, begun, let_go = SetMonotonic(), threading.Event(), threading.Event()

    def slow() -> Iterable[Metric]:
        begun.set()
        let_go.wait(20)
        return well()

    of = State({"one": slow}, clock)
    first = threading.Thread(target=of.read)
    first.start()
    assert begun.wait(20)
    assert told(of) == {UP: {("one",): 0.0}}
    let_go.set()
    first.join(20)
    assert told(of)[UP] == {("one",): 1.0}
