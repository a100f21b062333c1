"""What we rely on in a Kafka broker, asked of the broker itself: a strange one is noticed here.

The broker is the emulator, or the cluster that HEADWORKS_KAFKA_BOOTSTRAP names. That members which vanish
are missed, which the emulator does not do, is asked in `test_contract` (engine `kafka-groups`).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.integration.topics.conftest import Place

pytestmark = pytest.mark.parametrize("place", ["kafka"], indirect=True)

MAX_BYTES = 200_000

MURMUR2 = {
    "21": 0,
    "abc": 3,
    "foobar": 2,
    "a-little-bit-long-string": 0,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": 1,
}
"""Keys and their partitions of 4, as Java's client computes them (from the test vectors of its hash)."""


@pytest.fixture
def made(place: Place) -> str:
    """A topic of four partitions with a limit of its own."""
    name = f"probe-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": place.topics.bootstrap})
    wanted = NewTopic(name, num_partitions=4, config={"max.message.bytes": str(MAX_BYTES)})
    admin.create_topics([wanted])[name].result(10)
    return name


@pytest.fixture
def put(place: Place) -> Iterator[Callable[..., Any]]:
    """Produces one message, and says where it stands or why not."""
    producer = Producer(
        {
            "bootstrap.servers": place.topics.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2",
        }
    )

    def send(topic: str, **message: Any) -> Any:
        answers: list[Any] = []
        producer.produce(topic, on_delivery=lambda error, sent: answers.append(error or sent), **message)
        assert producer.flush(10) == 0
        return answers[0]

    yield send


@pytest.fixture
def member(place: Place) -> Iterator[Callable[..., Consumer]]:
    """A consumer of the topic with options of its own."""
    opened: list[Consumer] = []

    def join(topic: str, **options: Any) -> Consumer:
        opened.append(
            Consumer(
                {
                    "bootstrap.servers": place.topics.bootstrap,
                    "group.id": f"{topic}-group",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "session.timeout.ms": 6000,
                    **{name.replace("_", "."): value for name, value in options.items()},
                }
            )
        )
        opened[-1].subscribe([topic])
        return opened[-1]

    yield join
    for one in opened:
        one.close()


def read(one: Consumer, count: int, seconds: float = 15.0) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        record = one.poll(0.2)
        if record is not None:
            assert record.error() is None, record.error()
            found.append(record)
    return found


def test_a_key_has_the_partition_that_javas_client_gives_it(made: str, put: Any) -> None:
    assert {key: put(made, key=key, value=b"").partition() for key in MURMUR2} == MURMUR2


def test_offsets_of_a_partition_grow_without_gaps(made: str, put: Any) -> None:
    assert [put(made, key="a", value=b"").offset() for _ in range(5)] == [0, 1, 2, 3, 4]


def test_the_topics_own_limit_is_kept_and_its_refusal_has_its_code(place: Place, made: str, put: Any) -> None:
    admin = AdminClient({"bootstrap.servers": place.topics.bootstrap})
    resource = ConfigResource("topic", made)
    described = admin.describe_configs([resource])[resource].result(10)
    assert described["max.message.bytes"].value == str(MAX_BYTES)
    assert put(made, key="a", value=os.urandom(MAX_BYTES - 1000)).offset() == 0
    assert put(made, key="a", value=os.urandom(MAX_BYTES + 1000)).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert put(made, key="a", value=b"").offset() == 1


def test_a_topic_is_made_once(place: Place, made: str) -> None:
    admin = AdminClient({"bootstrap.servers": place.topics.bootstrap})
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(made, num_partitions=9)])[made].result(10)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert len(admin.list_topics(made, timeout=10).topics[made].partitions) == 4


def test_headers_keep_their_bytes_and_their_order(made: str, put: Any, member: Any) -> None:
    headers = [("b", b"\x00\xff"), ("a", b""), ("b", b"again")]
    put(made, key="a", value=b"v", headers=headers)
    (record,) = read(member(made), 1)
    assert record.headers() == headers


def test_a_group_goes_on_behind_its_commit(made: str, put: Any, member: Any) -> None:
    for n in range(6):
        put(made, key="a", value=str(n).encode())
    one = member(made)
    found = read(one, 6)
    one.commit(message=found[3], asynchronous=False)
    one.close()
    assert [record.value() for record in read(member(made), 2)] == [b"4", b"5"]


def test_commits_and_messages_survive_a_restart(breakable: Place, made: str, put: Any, member: Any) -> None:
    for n in range(4):
        put(made, key="a", value=str(n).encode())
    one = member(made)
    one.commit(message=read(one, 4)[1], asynchronous=False)
    one.close()
    breakable.stop()
    breakable.start()
    assert [record.value() for record in read(member(made), 2)] == [b"2", b"3"]


def test_a_commit_of_another_generation_is_refused(
    breakable: Place, made: str, put: Any, member: Any
) -> None:
    put(made, key="a", value=b"1")
    one = member(made)
    (record,) = read(one, 1)
    # A broker that was restarted knows none of its members.
    breakable.stop()
    breakable.start()
    deadline = time.monotonic() + 15
    while True:
        try:
            one.commit(message=record, asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].code() in (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID):
                return
        assert time.monotonic() < deadline


def test_what_a_transaction_took_back_is_not_read(place: Place, made: str, member: Any) -> None:
    producer = Producer({"bootstrap.servers": place.topics.bootstrap, "transactional.id": f"{made}-tx"})
    producer.init_transactions(10)
    for value, ends in ((b"aborted", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(made, key="a", value=value)
        producer.flush(10)
        ends(10)
    assert [record.value() for record in read(member(made), 1)] == [b"kept"]


def test_a_group_of_cooperative_members_shares_and_one_that_leaves_is_missed_at_once(
    made: str, member: Any
) -> None:
    options = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 500}
    one, other = member(made, **options), member(made, **options)
    deadline = time.monotonic() + 20
    while [len(one.assignment()), len(other.assignment())] != [2, 2]:
        assert time.monotonic() < deadline
        one.poll(0.05)
        other.poll(0.05)
    one.close()
    deadline = time.monotonic() + 5
    while len(other.assignment()) != 4:
        assert time.monotonic() < deadline
        other.poll(0.05)


def test_watermarks_tell_the_first_and_the_next_offset(made: str, put: Any, member: Any) -> None:
    partition, *_ = [put(made, key="a", value=b"").partition() for _ in range(3)]
    assert member(made).get_watermark_offsets(TopicPartition(made, partition), timeout=10) == (0, 3)
