"""A consumer of Kafka: a member of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from app.adapters import logs
from app.adapters.topics import ANSWER_SECONDS, POLL_BYTES, Message
from app.adapters.topics.kafka_client import REFUSED, error_of, errors_of, is_denial, made
from app.adapters.topics.lanes import Lane, take_in_turn
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)

SLICE_SECONDS = 0.5
"""So long at most one wait inside librdkafka: in between it is looked whether brokers are there."""

PROBE_SECONDS = 2.0
"""A cluster all of whose brokers seemed down is there if it answers within this."""

_FENCED = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._ASSIGNMENT_LOST,
}
"""Answers to a commit that comes while, or after, partitions go to somebody else."""


class KafkaConsumer:
    """A member of a consumer group; partitions move one by one (cooperative-sticky)."""

    def __init__(self, config: Mapping[str, Any], topic: str, clock: Clock) -> None:
        self._config = config
        self._topic = topic
        self._clock = clock
        self._lanes: dict[int, Lane] = {}
        self._committed: dict[int, int] = {}  # of each lane, how many of its messages
        self._paused: set[int] = set()
        self._turn = 0
        self._is_down = False
        self._is_denied = False
        self._member_id = ""  # of the group; another one after this member was given up for dead
        self._consumer: Any = None
        self._is_closed = False

    def poll(self, limit: int, wait_seconds: float) -> list[Message]:
        """The next messages of the partitions that are this consumer's."""
        deadline = self._clock.monotonic() + wait_seconds
        self._join()
        self._save(list(self._lanes))
        self._hold_back(limit)
        while True:
            is_waiting = any(lane.waiting for lane in self._lanes.values())
            left = deadline - self._clock.monotonic()
            self._read(limit, 0.0 if is_waiting else min(max(left, 0.0), SLICE_SECONDS))
            self._turn += 1
            if taken := take_in_turn(list(self._lanes.values()), limit, turn=self._turn):
                return taken
            if self._is_denied:
                raise errors.AccessDenied(REFUSED)
            if self._clock.monotonic() >= deadline:
                self._probe()
                return []

    def commit(self, messages: Iterable[Message]) -> None:
        """Handled, and said so to the group's coordinator."""
        touched: dict[int, list[Message]] = {}
        for message in messages:
            touched.setdefault(message.partition, []).append(message)
        for partition, of_it in touched.items():
            if partition in self._lanes:
                self._lanes[partition].settle(of_it)
        self._save(list(self._lanes))

    def rewind(self, message: Message) -> None:
        """The messages are handed out again, from memory."""
        if lane := self._lanes.get(message.partition):
            lane.rewind(message)

    def holds(self, message: Message) -> bool:
        """Whether the partition is assigned to this consumer."""
        return message.partition in self._lanes

    def lag(self) -> dict[int, int]:
        """By partition, from the committed offset to the end of what may be read."""
        if not self._lanes:
            return {}
        with errors_of():
            found = self._consumer.committed(self._partitions(self._lanes), timeout=ANSWER_SECONDS)
            behind = {}
            for partition in found:
                low, high = self._consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS)
                behind[partition.partition] = max(0, high - max(low, partition.offset))
        return behind

    def close(self) -> None:
        """What is handled is committed if it can be, and the group goes on without this consumer."""
        self._is_closed = True
        if self._consumer is not None:
            try:
                self._consumer.close()  # calls `_revoked`, which still commits
            except (KafkaException, errors.HeadworksError) as error:
                log.warning("consumer_not_left", topic=self._topic, reason=type(error).__name__)
            self._consumer = None
            self._lanes.clear()

    def _join(self) -> None:
        if self._is_closed:
            raise errors.Conflict("This consumer is closed.")
        if self._consumer is None:
            self._consumer = made(confluent_kafka.Consumer, {**self._config, "error_cb": self._look})
            with errors_of():
                self._consumer.subscribe(
                    [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
                )

    def _hold_back(self, limit: int) -> None:
        """Lanes that have enough are not read: one that is rewound for ever must not fill the memory."""
        full = {number for number, lane in self._lanes.items() if lane.waiting >= limit}
        with errors_of():
            if more := full - self._paused:
                self._consumer.pause(self._partitions(more))
            if less := self._paused - full:
                self._consumer.resume(self._partitions(less))
        self._paused = full

    def _read(self, limit: int, wait_seconds: float) -> None:
        room, room_bytes = limit, POLL_BYTES
        with errors_of():
            while room > 0 and room_bytes > 0:
                record = self._consumer.poll(wait_seconds)
                if record is None:
                    return
                wait_seconds = 0.0
                if record.error() is not None:
                    self._judge(record.error())
                elif lane := self._lanes.get(record.partition()):
                    lane.add(_message(record))
                    self._is_down = False
                    room -= 1
                    room_bytes -= len(record.value() or b"")

    def _save(self, partitions: Sequence[int]) -> None:
        """What is handled is committed; a coordinator that is about to share anew is asked later."""
        ahead = {n: lane for n in partitions if (lane := self._lanes[n]).count > self._committed[n]}
        if not ahead:
            return
        # A member that was given up for dead learns of it before it is told by a callback. From then on it
        # commits as nobody, which not every broker refuses.
        if self._consumer.memberid() != self._member_id:
            log.info("commit_fenced", topic=self._topic, code="member_lost")
            return
        offsets = [TopicPartition(self._topic, n, int(lane.settled or 0) + 1) for n, lane in ahead.items()]
        counts = {n: lane.count for n, lane in ahead.items()}
        try:
            answered = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _FENCED:
                raise error_of(error.args[0]) from error
            log.info("commit_fenced", topic=self._topic, code=error.args[0].name())
            return
        failed = None
        for partition in answered:
            if partition.error is None:
                self._committed[partition.partition] = counts[partition.partition]
            elif partition.error.code() not in _FENCED:
                failed = partition.error
        if failed is not None:
            raise error_of(failed)

    def _probe(self) -> None:
        """ConnectionLost when all brokers were reported down and none answers now."""
        if self._is_down:
            with errors_of():
                self._consumer.list_topics(self._topic, timeout=PROBE_SECONDS)
            self._is_down = False

    def _judge(self, error: Any) -> None:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            log.warning("consumer_silent", topic=self._topic)
        elif not isinstance(known := error_of(error), errors.ConnectionLost):
            raise known
        else:
            self._look(error)

    # What follows is called by librdkafka, from within poll and close.

    def _look(self, error: Any) -> None:
        if is_denial(error):
            self._is_denied = True
        elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            self._is_down = True
        else:
            log.warning("kafka_error", topic=self._topic, code=error.name())

    def _assigned(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        self._member_id = consumer.memberid()
        for partition in partitions:
            self._lanes[partition.partition] = Lane()
            self._committed[partition.partition] = 0
        log.info("partitions_assigned", topic=self._topic, partitions=_numbers(partitions))

    def _revoked(self, _consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        try:
            self._save([n for n in _numbers(partitions) if n in self._lanes])
        except errors.HeadworksError as error:
            log.warning("commit_failed", topic=self._topic, code=error.code)
        self._drop(partitions, "partitions_revoked")

    def _lost(self, _consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        self._drop(partitions, "partitions_lost")

    def _drop(self, partitions: Sequence[TopicPartition], event: str) -> None:
        for number in _numbers(partitions):
            self._lanes.pop(number, None)
            self._paused.discard(number)
        log.info(event, topic=self._topic, partitions=_numbers(partitions))

    def _partitions(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in numbers]


def _numbers(partitions: Sequence[TopicPartition]) -> list[int]:
    return [partition.partition for partition in partitions]


def _message(record: Any) -> Message:
    return Message(
        topic=record.topic(),
        partition=record.partition(),
        offset=str(record.offset()),
        key=(record.key() or b"").decode("utf-8", "replace"),
        value=record.value() or b"",
        headers={name: value or b"" for name, value in record.headers() or ()},
    )
