"""What publishers and consumers may rely on, whatever keeps the topics."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.adapters import topics
from app.adapters.topics import Consumer, Outgoing, Publisher
from app.kernel import errors
from tests.integration.topics.conftest import (
    GROUP_ENGINES,
    MAX_BYTES,
    PARTITIONS,
    PATIENCE_SECONDS,
    Place,
    as_json,
    by_key,
    poll_until,
    read,
    shares,
)

Make = Callable[..., Consumer]


def numbered(keys: int, each: int) -> list[Outgoing]:
    """Messages of so many keys in turn, whose values count them."""
    return [Outgoing(f"tenant:{k}", str(n).encode()) for n in range(each) for k in range(keys)]


def counted(each: int) -> list[bytes]:
    return [str(n).encode() for n in range(each)]


@pytest.fixture
def worker(place: Place, topic: str, tmp_path: Path) -> Iterator[Callable[..., tuple[Any, Path]]]:
    """Starts consumers in processes of their own; their log."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*, commits: bool) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / "handled"
        asked = {"topics": as_json(place.topics), "topic": topic, "group": f"{topic}-apply"}
        argv = [sys.executable, "-m", "tests.integration.topics.worker"]
        process = subprocess.Popen(
            [*argv, json.dumps({**asked, "log": str(log), "commits": commits})], stderr=subprocess.DEVNULL
        )
        started.append(process)
        return process, log

    yield start
    for process in started:
        process.kill()
        process.wait()


def lines_of(log: Path, *, committed: bool = False) -> list[str]:
    """What was handled, or what was committed of it, in order."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [line for line in lines if line.startswith("committed ") == committed]


def await_lines(log: Path, count: int, *, committed: bool = False) -> list[str]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := lines_of(log, committed=committed)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


# Publishing


def test_messages_of_one_key_come_in_the_order_in_which_they_were_published(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, numbered(10, 20))
    for n in range(20, 25):
        for k in range(10):
            publisher.publish(topic, key=f"tenant:{k}", value=str(n).encode())
    assert by_key(read(consumer(), 250)) == {f"tenant:{k}": counted(25) for k in range(10)}


def test_keys_are_spread_over_the_partitions_and_each_stays_in_one(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, numbered(64, 2))
    found = read(consumer(), 128)
    places = {key: {m.partition for m in found if m.key == key} for key in {m.key for m in found}}
    assert {len(partitions) for partitions in places.values()} == {1}
    assert {m.partition for m in found} == set(range(PARTITIONS))


def test_a_message_comes_as_it_was_published(topic: str, publisher: Publisher, consumer: Make) -> None:
    headers = {"eventId": b"\x00\xff", "пустой": b"", "key": b"a header", "value": b"too"}
    publisher.publish(topic, key="арендатор:СТРАНА", value=b"", headers=headers)
    publisher.publish(topic, key="арендатор:СТРАНА", value=bytes(range(256)))
    first, second = read(consumer(), 2)
    assert (first.topic, first.key, first.value) == (topic, "арендатор:СТРАНА", b"")
    assert dict(first.headers) == headers
    assert (second.value, dict(second.headers)) == (bytes(range(256)), {})


def test_threads_may_share_a_publisher(topic: str, publisher: Publisher, consumer: Make) -> None:
    def publish(number: int) -> None:
        for n in range(50):
            publisher.publish(topic, key=f"thread:{number}", value=str(n).encode())

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert by_key(read(consumer(), 400)) == {f"thread:{number}": counted(50) for number in range(8)}


def test_a_message_of_the_largest_size_is_taken(topic: str, publisher: Publisher, consumer: Make) -> None:
    value = os.urandom(MAX_BYTES - 2048)
    publisher.publish(topic, key="large", value=value)
    assert [m.value for m in read(consumer(), 1)] == [value]


def test_a_message_that_is_too_large_is_refused_and_the_next_one_is_not(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    for size in (MAX_BYTES + 2048, 8 * MAX_BYTES, 70 * 1024 * 1024):
        started = time.monotonic()
        with pytest.raises(topics.TooLarge) as refused:
            publisher.publish(topic, key="large", value=os.urandom(size))
        assert refused.value.code == "message_too_large"
        assert time.monotonic() - started < 10
    publisher.publish(topic, key="large", value=b"small")
    assert [m.value for m in read(consumer(), 1)] == [b"small"]


def test_a_topic_that_is_there_keeps_its_partitions(
    place: Place, topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, numbered(8, 1))
    place.engine().ensure(topic, partitions=PARTITIONS * 2, max_bytes=10)
    publisher.publish_all(topic, numbered(8, 2)[8:])
    one = consumer()
    assert by_key(read(one, 16)) == {f"tenant:{k}": counted(2) for k in range(8)}
    assert set(one.lag()) == set(range(PARTITIONS))


def test_who_reads_a_topic_that_is_not_there_is_told(place: Place) -> None:
    one = place.engine().consumer("refdata.nobody-made-it", group="nobody")
    try:
        with pytest.raises(errors.NotFound):
            read(one, 1)
    finally:
        one.close()


# Handing out


def test_no_more_is_handed_out_than_was_asked_for(topic: str, publisher: Publisher, consumer: Make) -> None:
    publisher.publish_all(topic, numbered(8, 10))
    one = consumer()
    polled = []
    while len(polled) < 80:
        found = one.poll(3, 5.0)
        assert 0 < len(found) <= 3
        polled += found
    assert by_key(polled) == {f"tenant:{k}": counted(10) for k in range(8)}


def test_a_poll_ends_when_its_time_is_over_and_as_soon_as_there_is_something(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    one = consumer()
    poll_until(lambda: shares(one) == [set(range(PARTITIONS))], one)
    started = time.monotonic()
    assert one.poll(10, 0.5) == []
    assert 0.4 < time.monotonic() - started < 1.5

    later = threading.Timer(0.3, publisher.publish, (topic,), {"key": "a", "value": b"1"})
    started = time.monotonic()
    later.start()
    found = one.poll(10, 10.0)
    later.join()
    assert [m.value for m in found] == [b"1"]
    assert time.monotonic() - started < 2.0


def test_what_was_committed_does_not_come_again_and_what_was_not_does(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, numbered(8, 10))
    first = consumer()
    found = read(first, 80)
    done = [m for m in found if int(m.value) < 6]
    first.commit(done)
    first.close()

    second = consumer()
    again = read(second, 32)
    assert by_key(again) == {f"tenant:{k}": counted(10)[6:] for k in range(8)}
    second.commit(again)
    second.close()

    publisher.publish(topic, key="last", value=b"1")
    assert [m.key for m in read(consumer(), 2, seconds=3)] == ["last"]


def test_a_commit_never_jumps_over_a_message_that_is_not_handled(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, numbered(1, 6))
    first = consumer()
    found = read(first, 6)
    first.commit([found[0], found[2], found[5]])
    first.close()
    second = consumer()
    again = read(second, 5)
    assert [m.value for m in again] == counted(6)[1:]
    # In whatever order they are handled, in the end nothing is left.
    for message in reversed(again):
        second.commit([message])
    assert sum(second.lag().values()) == 0


def test_a_rewound_message_comes_again_with_all_behind_it(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, numbered(1, 10))
    one = consumer()
    found = read(one, 7)
    one.commit(found[:2])
    one.rewind(found[3])
    again = read(one, 7)
    assert [m.value for m in again] == counted(10)[3:]
    one.rewind(found[0])  # it is committed
    one.commit([*found, *again])
    assert sum(one.lag().values()) == 0
    assert one.poll(10, 0.3) == []


def test_a_partition_that_is_rewound_for_ever_does_not_keep_the_others(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, [Outgoing("stuck", str(n).encode()) for n in range(500)])
    publisher.publish_all(topic, numbered(16, 10))
    one = consumer()
    done: list[topics.Message] = []
    stuck: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = one.poll(20, 1.0)
        stuck |= {m.partition for m in found if m.key == "stuck"}
        for message in [m for m in found if m.key == "stuck"][:1]:
            one.rewind(message)
        done += [m for m in found if m.partition not in stuck]
        if stuck and len(done) == sum(10 for _ in range(16)) - _beside(done, stuck, 16, 10):
            break
    free = by_key(done)
    assert free and all(values == counted(10) for values in free.values())
    assert all(m.partition not in stuck for m in done)
    # Nothing of the stuck one was skipped meanwhile.
    one.close()
    left = [m.value for m in read(consumer(), 500 + 160) if m.key == "stuck"]
    assert left == counted(500)


def _beside(done: list[topics.Message], stuck: set[int], keys: int, each: int) -> int:
    """How many messages stand in the stuck partition: those of keys that are nowhere else."""
    return (keys - len({m.key for m in done})) * each


def test_every_group_gets_every_message(topic: str, publisher: Publisher, consumer: Make) -> None:
    one, other = consumer("apply"), consumer("audit")
    poll_until(lambda: [len(share) for share in shares(one, other)] == [4, 4], one, other)
    publisher.publish_all(topic, numbered(8, 5))
    found = read(one, 40)
    one.commit(found)
    assert by_key(read(other, 40)) == by_key(found)
    assert (sum(one.lag().values()), sum(other.lag().values())) == (0, 40)


def test_lag_counts_what_is_not_committed(topic: str, publisher: Publisher, consumer: Make) -> None:
    one = consumer()
    poll_until(lambda: shares(one) == [set(range(PARTITIONS))], one)
    assert one.lag() == dict.fromkeys(range(PARTITIONS), 0)
    publisher.publish_all(topic, numbered(16, 5))
    assert sum(one.lag().values()) == 80
    found = read(one, 80)
    assert sum(one.lag().values()) == 80  # handed out is not handled
    partition = found[0].partition
    one.commit([m for m in found if m.partition == partition])
    expected = {n: sum(m.partition == n for m in found) for n in range(PARTITIONS)} | {partition: 0}
    assert one.lag() == expected


# Sharing


@pytest.mark.parametrize("place", GROUP_ENGINES, indirect=True)
def test_two_consumers_share_the_partitions_and_every_message_goes_to_one(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    one, other = consumer(), consumer()
    poll_until(lambda: [len(share) for share in shares(one, other)] == [2, 2], one, other)
    first, second = shares(one, other)
    assert first | second == set(range(PARTITIONS))
    publisher.publish_all(topic, numbered(32, 5))
    found: list[list[topics.Message]] = [[], []]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(map(len, found)) < 160 and time.monotonic() < deadline:
        for number, each in enumerate((one, other)):
            found[number] += each.poll(50, 0.2)
    assert [{m.partition for m in of_it} for of_it in found] == [first, second]
    assert by_key(found[0] + found[1]) == {f"tenant:{k}": counted(5) for k in range(32)}


@pytest.mark.parametrize("place", GROUP_ENGINES, indirect=True)
def test_a_consumer_beyond_the_number_of_partitions_waits_its_turn(topic: str, consumer: Make) -> None:
    crowd = [consumer() for _ in range(PARTITIONS + 1)]
    poll_until(lambda: sorted(map(len, shares(*crowd))) == [0, 1, 1, 1, 1], *crowd)
    leaving = next(one for one in crowd if one.lag())
    leaving.close()
    crowd.remove(leaving)
    poll_until(lambda: sorted(map(len, shares(*crowd))) == [1, 1, 1, 1], *crowd)


def test_who_closes_leaves_the_group_at_once(
    place: Place, topic: str, publisher: Publisher, consumer: Make
) -> None:
    one, other = consumer(), consumer()
    poll_until(lambda: [len(share) for share in shares(one, other)] == [2, 2], one, other)
    one.close()
    one.close()
    with pytest.raises(errors.Conflict):
        one.poll(1, 0.0)
    started = time.monotonic()
    poll_until(lambda: len(other.lag()) == PARTITIONS, other)
    # Long before a lease would have run out; Kafka tells the others with their next heartbeat.
    assert time.monotonic() - started < place.lease_seconds * 0.75


@pytest.mark.parametrize("place", GROUP_ENGINES, indirect=True)
def test_what_is_not_committed_moves_with_its_partition_and_the_late_commit_does_nothing(
    topic: str, publisher: Publisher, consumer: Make
) -> None:
    publisher.publish_all(topic, numbered(16, 10))
    one = consumer()
    found = read(one, 160)
    early = [m for m in found if int(m.value) < 3]
    one.commit(early)

    other = consumer()
    moved: list[topics.Message] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not moved or not _all_of(moved, found):
        assert time.monotonic() < deadline, len(moved)
        assert one.poll(10, 0.1) == []
        moved += other.poll(200, 0.1)
    lost = {m.partition for m in moved}
    assert {one.holds(m) for m in found if m.partition in lost} == {False}
    assert {one.holds(m) for m in found if m.partition not in lost} == {True}
    assert all(values == counted(10)[3:] for values in by_key(moved).values())

    one.commit(found)
    other.close()
    one.close()
    third = consumer()
    # What the first still held is committed; of the lost partitions nothing is but the early ones.
    again = read(third, len(moved))
    assert by_key(again) == by_key(moved)
    assert third.poll(10, 0.3) == []


def _all_of(moved: list[topics.Message], found: list[topics.Message]) -> bool:
    """All uncommitted messages of two partitions have come."""
    partitions = {m.partition for m in moved}
    expected = [m for m in found if m.partition in partitions and int(m.value) >= 3]
    return len(partitions) == PARTITIONS // 2 and len(moved) == len(expected)


@pytest.mark.parametrize("place", GROUP_ENGINES, indirect=True)
def test_who_works_for_longer_than_a_lease_keeps_its_partitions(
    place: Place, topic: str, publisher: Publisher, consumer: Make
) -> None:
    one, other = consumer(), consumer()
    poll_until(lambda: [len(share) for share in shares(one, other)] == [2, 2], one, other)
    first, second = shares(one, other)
    publisher.publish_all(topic, numbered(32, 1))
    mine = one.poll(1, 10.0)
    theirs: list[topics.Message] = []
    ends = time.monotonic() + place.lease_seconds * 1.5
    while time.monotonic() < ends:
        theirs += other.poll(100, 0.2)
    assert {m.partition for m in theirs} == second
    assert one.holds(mine[0])
    one.commit(mine)
    behind = one.lag()
    assert set(behind) == first
    assert sum(behind.values()) == 32 - len(theirs) - 1


@pytest.mark.parametrize("place", GROUP_ENGINES, indirect=True)
def test_the_work_of_a_killed_consumer_goes_on_elsewhere(
    place: Place, topic: str, publisher: Publisher, consumer: Make, worker: Callable[..., Any]
) -> None:
    publisher.publish_all(topic, numbered(8, 5))
    process, log = worker(commits=False)
    await_lines(log, 40)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed = time.monotonic()
    assert by_key(read(consumer(), 40)) == {f"tenant:{k}": counted(5) for k in range(8)}
    # A lease, a beat to notice it, and the time to join.
    assert time.monotonic() - killed < place.lease_seconds * 2 + 2


@pytest.mark.parametrize("place", GROUP_ENGINES, indirect=True)
def test_a_consumer_that_stood_still_for_longer_than_its_lease_commits_nothing(
    place: Place, topic: str, publisher: Publisher, consumer: Make, worker: Callable[..., Any]
) -> None:
    publisher.publish_all(topic, numbered(8, 5))
    process, log = worker(commits=True)
    await_lines(log, 40, committed=True)
    process.send_signal(signal.SIGSTOP)
    publisher.publish_all(topic, numbered(8, 10)[40:])
    one = consumer()
    found = read(one, 40)
    assert by_key(found) == {f"tenant:{k}": counted(10)[5:] for k in range(8)}
    handled = len(lines_of(log))
    process.send_signal(signal.SIGCONT)
    # It wakes, has its share again, and is handed out what is not committed of it.
    poll_until(lambda: len(one.lag()) == PARTITIONS // 2, one)
    kept = set(one.lag())
    expected = [m for m in found if m.partition not in kept]
    wanted = {f"{m.partition} {m.key} {m.value.decode()}" for m in expected}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not wanted <= set(again := lines_of(log)[handled:]):
        assert time.monotonic() < deadline, again
        time.sleep(0.02)
    if place.name == "kafka-groups":
        # Before it was told, it may have handled what lay in its socket; its commit of that did nothing.
        assert set(again) <= {f"{m.partition} {m.key} {m.value.decode()}" for m in found}
    else:
        assert sorted(again) == sorted(wanted)
    # Whatever it committed of the others' partitions: there everything is still to be done.
    assert one.lag() == {n: sum(m.partition == n for m in found) for n in kept}
    one.commit(found)
    assert one.lag() == dict.fromkeys(kept, 0)
