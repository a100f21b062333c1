"""When dictionaries are loaded, on a clock that is set by hand."""

from __future__ import annotations

import uuid

import pytest

from app.refdata.query.desk import Desk, Pace
from tests.unit.refdata_query.clocks import Clock

A, B, C = (("t", code) for code in "ABC")
EPOCH = uuid.UUID(int=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(clock: Clock) -> Desk:
    return Desk(lambda: Pace(0.02, 0.05, 2), clock, lambda: 0.5)


def test_changes_that_are_close_together_are_loaded_at_once(desk: Desk, clock: Clock) -> None:
    desk.ask(A, 1)
    assert desk.take(0) is None
    clock.now_at += 0.04
    desk.ask(A, 2)
    assert desk.take(0) is None
    clock.now_at += 0.006  # 20 ms and half of the 50 behind the first, not behind the last
    assert desk.take(0) == A
    desk.done(A, EPOCH, 2)
    assert desk.take(0) is None
    assert desk.lag() == {}


def test_whoever_waits_is_not_kept_waiting(desk: Desk) -> None:
    desk.ask(A, 1)
    desk.ask(A, 1, at_once=True)
    assert desk.take(0) == A


def test_a_dictionary_is_loaded_by_one_at_a_time(desk: Desk, clock: Clock) -> None:
    desk.ask(A, 1, at_once=True)
    assert desk.take(0) == A
    desk.ask(A, 2, at_once=True)
    assert desk.take(0) is None
    desk.done(A, EPOCH, 1)
    assert desk.take(0) == A  # what came meanwhile is not forgotten
    desk.done(A, EPOCH, 2)
    assert desk.take(0) is None


def test_few_are_loaded_at_once_and_the_oldest_wish_first(desk: Desk, clock: Clock) -> None:
    for place in (B, A, C):
        desk.ask(place, 1, at_once=True)
        clock.now_at += 1
    assert [desk.take(0), desk.take(0), desk.take(0)] == [B, A, None]
    desk.done(B, EPOCH, 1)
    assert desk.take(0) == C


def test_what_is_not_committed_is_not_asked_for_again_and_again(desk: Desk) -> None:
    desk.ask(A, 1 << 62, at_once=True)
    assert desk.take(0) == A
    desk.done(A, EPOCH, 7)
    assert desk.take(0) is None
    assert desk.lag() == {}


def test_what_fails_comes_again_after_longer_and_longer_rests(desk: Desk, clock: Clock) -> None:
    desk.ask(A, 1, at_once=True)
    rests = []
    for _ in range(7):
        assert desk.take(0) == A
        desk.failed(A)
        desk.ask(A, 1, at_once=True)  # whoever waits does not make it come sooner
        before = clock.now_at
        while desk._wishes[A].due > clock.now_at:
            assert desk.take(0) is None
            clock.now_at = desk._wishes[A].due
        rests.append(round(clock.now_at - before, 3))
    assert rests == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert desk.take(0) == A
    desk.done(A, EPOCH, 1)
    desk.ask(A, 2, at_once=True)
    assert desk.take(0) == A


def test_what_is_dropped_while_it_is_loaded_is_not_loaded_again(desk: Desk) -> None:
    desk.ask(A, 1, at_once=True)
    assert desk.take(0) == A
    desk.drop(A)
    desk.done(A, EPOCH, 1)
    assert desk.take(0) is None
    desk.ask(A, 1, at_once=True)
    assert desk.take(0) == A
    desk.drop(A)
    desk.failed(A)
    assert desk.take(0) is None
