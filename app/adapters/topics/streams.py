"""Topics as streams of Redis, one stream a partition; on a single Redis and on a Redis Cluster alike.

    headworks:refdata.commands                    hash: partitions, max_bytes
    headworks:refdata.commands:members:<group>    sorted set: consumers of the group, until when they live
    {headworks:refdata.commands:3}                stream: the messages of partition 3 that are not handled
    {headworks:refdata.commands:3}:state          hash: published, and of each group `at:` and `handled:`
    {headworks:refdata.commands:3}:owner:<group>  the token of the consumer that has it, until its lease ends
    {headworks:refdata.commands:3}:asleep         there while a consumer waits to be told of a message

All keys of a partition share a hash tag, so that each step is one script on one node: who has lost the
lease hands nothing out and moves nothing. One consumer reads a partition in order, so a group's place in
it is one number, as in Kafka, and no list of pending messages. What all groups have handled is removed:
a group that is given up for good has to be forgotten, by HDEL of its `at:` and `handled:` in each state.

What can be lost: Redis acknowledges a message when it has it in memory and in the operating system's
cache of the append-only file. With `appendonly yes` nothing is lost when Redis itself restarts, or is
killed; with `appendfsync everysec` the last second or two are when the machine fails, or when Redis is
killed while a slow disk makes it put off its writes (it logs that). With `always` nothing is.
In a cluster with replicas, a failover loses what had not reached the replica that takes over. With an
eviction policy other than `noeviction` everything can be lost.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.adapters.topics import Outgoing, TooLarge, Topics, streams_scripts
from app.adapters.topics.streams_consumer import StreamsConsumer
from app.adapters.topics.streams_redis import Keys, Server, errors_of
from app.kernel.clock import Clock

BATCH_MESSAGES, BATCH_BYTES = 500, 4 * 1024 * 1024
"""What one script adds to a stream; Redis does nothing else meanwhile."""

SLACK_BYTES = 1024
"""What key and headers may add to a topic's largest value."""


def partition_of(key: str, partitions: int) -> int:
    """The key's partition; the same on every machine and in every version."""
    return zlib.crc32(key.encode()) % partitions


class Streams:
    """The topics of one Redis or Redis Cluster."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._server = Server(topics.redis_url)

    def ensure(self, topic: str, *, partitions: int, max_bytes: int) -> None:
        """The topic is there, on a Redis that evicts nothing (Fatal `unsafe_broker` if it would)."""
        key = Keys(self._topics.prefix, topic).topic
        with errors_of():
            self._server.check_policy()
            self._server.client.hsetnx(key, "max_bytes", max_bytes)
            # Last, since whoever reads it takes the topic to be there.
            self._server.client.hsetnx(key, "partitions", partitions)

    def publisher(self) -> StreamsPublisher:
        """A publisher on this Redis."""
        return StreamsPublisher(self._server, self._topics.prefix)

    def consumer(self, topic: str, *, group: str) -> StreamsConsumer:
        """A member of the group on this Redis."""
        return StreamsConsumer(
            self._server,
            Keys(self._topics.prefix, topic),
            topic,
            group=group,
            lease_seconds=self._topics.lease_seconds,
            clock=self._clock,
        )


class StreamsPublisher:
    """Publishes by one script a batch, which adds all of it or nothing."""

    def __init__(self, server: Server, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self._topics: dict[str, tuple[Keys, int, int]] = {}

    def publish(
        self, topic: str, *, key: str, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """The message stands at the end of its partition's stream."""
        self.publish_all(topic, [Outgoing(key, value, headers or {})])

    def publish_all(self, topic: str, messages: Sequence[Outgoing]) -> None:
        """All messages stand in their streams; when one is too large, none does."""
        keys, partitions, max_bytes = self._find(topic)
        by_partition: dict[int, list[Outgoing]] = {}
        for message in messages:
            if len(message.value) > max_bytes or _size(message) > max_bytes + SLACK_BYTES:
                raise TooLarge()
            by_partition.setdefault(partition_of(message.key, partitions), []).append(message)
        for partition, of_it in by_partition.items():
            names = [keys.stream(partition), keys.state(partition), keys.asleep(partition)]
            for batch in _batches(of_it):
                self._server.run(streams_scripts.ADD, names, [keys.channel, partition, *_fields(batch)])

    def close(self) -> None:
        """Nothing is left to do: the connections belong to the engine."""

    def _find(self, topic: str) -> tuple[Keys, int, int]:
        if topic not in self._topics:
            keys = Keys(self._prefix, topic)
            self._topics[topic] = (keys, *self._server.shape(keys, topic))
        return self._topics[topic]


def _size(message: Outgoing) -> int:
    headers = sum(len(name) + len(value) for name, value in message.headers.items())
    return len(message.key) + len(message.value) + headers


def _batches(messages: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    batch: list[Outgoing] = []
    size = 0
    for message in messages:
        if batch and (len(batch) == BATCH_MESSAGES or size + _size(message) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += _size(message)
    if batch:
        yield batch


def _fields(batch: Iterable[Outgoing]) -> Iterator[Any]:
    for message in batch:
        yield 4 + 2 * len(message.headers)
        yield from ("key", message.key, "value", message.value)
        for name, value in message.headers.items():
            yield f"h:{name}"
            yield value
