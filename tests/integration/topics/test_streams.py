"""What only the streams of Redis promise: fences, a bounded length, keys that a cluster can spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.cluster import RedisCluster

from app.adapters.topics import Consumer, Outgoing, Publisher, Topics, connect
from app.kernel import errors
from app.kernel.clock import SystemClock
from tests.integration.topics.conftest import PARTITIONS, Place, poll_until, read, shares

pytestmark = pytest.mark.parametrize("place", ["valkey", "cluster"], indirect=True)

Make = Callable[..., Consumer]


@pytest.fixture
def raw(place: Place) -> Any:
    """A client of our own, past the adapter."""
    first = place.topics.redis_url.split(",")[0]
    kind: Any = RedisCluster if place.name == "cluster" else redis.Redis
    client = kind.from_url(first, protocol=2)
    yield client
    client.close()


def stream(topic: str, partition: int) -> str:
    return f"{{headworks:{topic}:{partition}}}"


def test_what_is_handled_is_removed_and_nothing_else(
    topic: str, publisher: Publisher, consumer: Make, raw: Any
) -> None:
    publisher.publish_all(topic, [Outgoing(f"k{n}", b"1") for n in range(40)])
    one = consumer()
    found = read(one, 40)
    lengths = [raw.xlen(stream(topic, n)) for n in range(PARTITIONS)]
    assert sum(lengths) == 40
    one.commit([m for m in found if m.partition != 2])
    assert [raw.xlen(stream(topic, n)) for n in range(PARTITIONS)] == [0, 0, lengths[2], 0]


def test_a_message_stays_until_the_last_group_has_handled_it(
    topic: str, publisher: Publisher, consumer: Make, raw: Any
) -> None:
    one, other = consumer("apply"), consumer("audit")
    poll_until(lambda: [len(share) for share in shares(one, other)] == [4, 4], one, other)
    publisher.publish_all(topic, [Outgoing("k", str(n).encode()) for n in range(10)])
    of_one, of_other = read(one, 10), read(other, 10)
    place_ = stream(topic, of_one[0].partition)
    one.commit(of_one)
    assert raw.xlen(place_) == 10
    other.commit(of_other[:4])
    assert raw.xlen(place_) == 6
    assert (sum(one.lag().values()), sum(other.lag().values())) == (0, 6)


def test_whose_lease_went_to_somebody_else_hands_nothing_out_and_commits_nothing(
    topic: str, publisher: Publisher, consumer: Make, raw: Any
) -> None:
    publisher.publish_all(topic, [Outgoing("k", str(n).encode()) for n in range(10)])
    one = consumer()
    (first,) = read(one, 1)
    owner = f"{stream(topic, first.partition)}:owner:{topic}-apply"
    raw.set(owner, "somebody else", px=60_000)
    publisher.publish(topic, key="k", value=b"10")
    one.commit([first])
    assert not one.holds(first)
    assert one.poll(100, 0.3) == []
    assert raw.xlen(stream(topic, first.partition)) == 11
    raw.delete(owner)
    assert [m.value for m in read(one, 11)] == [str(n).encode() for n in range(11)]


def test_who_lost_a_lease_a_moment_ago_reads_nothing_of_the_partition(
    topic: str, publisher: Publisher, consumer: Make, raw: Any
) -> None:
    one = consumer()
    poll_until(lambda: shares(one) == [set(range(PARTITIONS))], one)
    for partition in range(PARTITIONS):
        raw.set(f"{stream(topic, partition)}:owner:{topic}-apply", "somebody else", px=60_000)
    publisher.publish_all(topic, [Outgoing(f"k{n}", b"1") for n in range(40)])
    # At once: its heart has had no time to find out.
    assert one.poll(100, 0.2) == []
    assert shares(one) == [set()]


def test_nothing_is_lost_when_redis_is_killed(
    breakable: Place, topic: str, publisher: Publisher, consumer: Make
) -> None:
    for n in range(200):
        publisher.publish(topic, key=f"k{n % 20}", value=str(n).encode())
    breakable.kill()
    breakable.start()
    assert sorted(int(m.value) for m in read(consumer(), 200)) == list(range(200))


def test_the_partitions_of_a_topic_are_spread_over_the_nodes(place: Place, topic: str, raw: Any) -> None:
    if place.name == "cluster":
        found = {raw.get_node_from_key(stream(topic, n)).port for n in range(64)}
        assert len(found) == 3
    slots = {
        n: {redis.crc.key_slot(f"{stream(topic, n)}{end}".encode()) for end in ("", ":state")}
        for n in range(4)
    }
    assert {len(of_it) for of_it in slots.values()} == {1}


def test_a_redis_that_may_evict_messages_is_refused(place: Place, raw: Any) -> None:
    raw.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(errors.Fatal) as refused:
            place.engine().ensure("refdata.any", partitions=1, max_bytes=1000)
        assert refused.value.code == "unsafe_broker"
        assert "noeviction" in refused.value.sentence
    finally:
        raw.config_set("maxmemory-policy", "noeviction")


def test_a_redis_without_room_refuses_as_a_full_disk_does(
    place: Place, topic: str, publisher: Publisher, raw: Any
) -> None:
    publisher.publish(topic, key="k", value=b"1")
    raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(errors.MemoryFull):
            publisher.publish_all(topic, [Outgoing(f"k{n}", b"2") for n in range(40)])
    finally:
        raw.config_set("maxmemory", 0)
    publisher.publish(topic, key="k", value=b"3")


def test_a_password_is_neither_shown_nor_accepted_when_it_is_wrong(place: Place) -> None:
    wrong = Topics(redis_url=place.topics.redis_url.replace("redis://", "redis://:wrong-secret@", 1))
    assert "wrong-secret" not in repr(wrong)
    if place.name == "valkey":
        wrong = Topics(redis_url=f"redis://:wrong-secret@{place.topics.redis_url.rsplit('@', 1)[1]}")
        with pytest.raises(errors.AccessDenied) as refused:
            connect(wrong, SystemClock()).ensure("refdata.any", partitions=1, max_bytes=1000)
        assert "wrong-secret" not in str(refused.value)
