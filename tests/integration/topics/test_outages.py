"""An engine that goes away: told in bounded time, and forgotten once it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from app.adapters.topics import ANSWER_SECONDS, Consumer, Message, Outgoing, Publisher
from app.kernel import errors
from tests import patience
from tests.integration.topics.conftest import PARTITIONS, Place, by_key, poll_until, read, shares

Make = Callable[..., Consumer]

BOUND_SECONDS = ANSWER_SECONDS + 5
ALL_PARTITIONS = [Outgoing(f"tenant:{k}", b"0") for k in range(32)]


def lost_within(call: Callable[[], object], seconds: float) -> float:
    """How long the call took to say that the connection is lost."""
    started = time.monotonic()
    with pytest.raises(errors.ConnectionLost):
        call()
    took = time.monotonic() - started
    assert took < seconds * patience.PATIENCE
    return took


def until_lost(one: Consumer, seconds: float) -> None:
    """Polls in a row, until one says so."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        one.poll(10, 0.5)


@pytest.mark.parametrize("way", ["stop", "freeze"])
def test_publishing_is_refused_in_time_and_goes_on_when_the_engine_is_back(
    breakable: Place, topic: str, publisher: Publisher, consumer: Make, way: str
) -> None:
    publisher.publish_all(topic, [Outgoing(m.key, b"before") for m in ALL_PARTITIONS])
    getattr(breakable, way)()
    lost_within(lambda: publisher.publish_all(topic, ALL_PARTITIONS), BOUND_SECONDS)
    breakable.thaw()
    breakable.start()
    _retried(lambda: publisher.publish_all(topic, [Outgoing(m.key, b"after") for m in ALL_PARTITIONS]))
    found = by_key(_read_all(consumer(), b"after"))
    # What was refused may stand there; before and after it the order is what it was.
    assert {key: [v for v in values if v != b"0"] for key, values in found.items()} == {
        m.key: [b"before", b"after"] for m in ALL_PARTITIONS
    }


@pytest.mark.parametrize("way", ["stop", "freeze"])
def test_polling_says_so_in_time_and_goes_on_when_the_engine_is_back(
    breakable: Place, topic: str, publisher: Publisher, consumer: Make, way: str
) -> None:
    one = consumer()
    poll_until(lambda: shares(one) == [set(range(PARTITIONS))], one)
    getattr(breakable, way)()
    # A frozen broker is noticed when a request has waited for its timeout.
    lost_within(lambda: until_lost(one, 60), 2 * BOUND_SECONDS)
    breakable.thaw()
    breakable.start()
    _retried(lambda: publisher.publish_all(topic, ALL_PARTITIONS))
    assert by_key(_read_all(one, b"0")) == {m.key: [b"0"] for m in ALL_PARTITIONS}


def test_a_commit_that_was_lost_is_made_with_the_next_one(
    breakable: Place, topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, ALL_PARTITIONS)
    one = consumer()
    found = read(one, 32)
    breakable.stop()
    lost_within(lambda: one.commit(found), BOUND_SECONDS)
    breakable.start()
    # Its partitions may have been lost meanwhile; then they come again, and are committed then.
    again: list[Message] = []
    deadline = patience.deadline(30)
    while time.monotonic() < deadline:
        try:
            polled = one.poll(32, 0.5)
            one.commit(polled)
            again += polled
            if len(one.lag()) == PARTITIONS and not any(one.lag().values()):
                break
        except errors.ConnectionLost:
            continue
    assert one.lag() == dict.fromkeys(range(PARTITIONS), 0)
    assert len(again) in range(33)


def test_to_leave_an_engine_that_is_away_takes_no_longer_than_an_answer(
    breakable: Place, topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, ALL_PARTITIONS)
    one = consumer()
    read(one, 32)
    breakable.stop()
    closing = threading.Thread(target=one.close)
    closing.start()
    closing.join(BOUND_SECONDS)
    assert not closing.is_alive()


def _retried(call: Callable[[], None]) -> None:
    deadline = patience.deadline(30)
    while True:
        try:
            return call()
        except errors.ConnectionLost:
            assert time.monotonic() < deadline, "it did not come back"


def _read_all(one: Consumer, last: bytes) -> list[Message]:
    """Messages until each key had its last one."""
    found: list[Message] = []
    ended: set[str] = set()
    deadline = patience.deadline(60)
    while len(ended) < len(ALL_PARTITIONS):
        assert time.monotonic() < deadline, len(ended)
        try:
            polled = one.poll(100, 0.5)
        except errors.ConnectionLost:
            continue
        ended |= {m.key for m in polled if m.value == last}
        found += polled
    return found
