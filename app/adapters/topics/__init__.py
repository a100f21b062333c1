"""Partitioned topics of commands: one contract, kept by Kafka and by streams of Redis alike.

A topic is a fixed number of partitions. Messages with one key stand in one partition, in the order in
which they were acknowledged. The consumers of a group share the partitions, and a partition is read by
one consumer at a time. Delivery is at least once: after a consumer was killed, or a commit was lost,
messages come again, in order, and none is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.kernel import errors
from app.kernel.clock import Clock

ANSWER_SECONDS = 10.0
"""About so long a call waits for a topic that does not answer, before ConnectionLost."""

POLL_BYTES = 16 * 1024 * 1024
"""About so many bytes of values one poll reads, however many messages it was asked for."""

SILENT_SECONDS = 300.0
"""A consumer that has not polled for so long has lost its partitions, though its process lives."""


class TooLarge(errors.Refused):
    """The message is larger than its topic takes."""

    code = "message_too_large"


@dataclass(frozen=True, slots=True)
class Message:
    """A message where it stands in its topic."""

    topic: str
    partition: int
    offset: str  # grows within the partition; compare by what the engine says, not as text
    key: str
    value: bytes
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that is not in a topic yet."""

    key: str
    value: bytes
    headers: Mapping[str, bytes] = field(default_factory=dict)


class Publisher(Protocol):
    """Puts messages into topics; may be shared by threads, not by processes."""

    def publish(
        self, topic: str, *, key: str, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """The topic has acknowledged the message, behind every earlier one of its key.

        TooLarge; NotFound when there is no such topic (a Kafka that makes topics by itself has made
        it); ConnectionLost when it was not acknowledged within about ANSWER_SECONDS: it may stand
        there nevertheless. DiskFull when the topic has no room: MemoryFull, where it is in Redis.
        """

    def publish_all(self, topic: str, messages: Sequence[Outgoing]) -> None:
        """The topic has acknowledged all of them, those of one key in this order.

        After an error some of them may stand there. After ConnectionLost these are, in each
        partition, the first ones: who publishes them all again keeps the order of first appearances.
        """

    def close(self) -> None:
        """Nothing more is published."""


class Consumer(Protocol):
    """One member of a group that reads a topic; belongs to one thread.

    It joins the group with its first poll. A partition is taken away at a poll, when others join, or
    between polls, when this process was not heard of for the lease: then nothing more of it is handed
    out, `holds` is false for its messages once this consumer knows, and to commit them does nothing.
    With Redis it knows by its own clock; with Kafka a process that stood still is told by the brokers,
    and may hand out before what it had fetched. The successor begins behind the last commit, so what
    was handed out and not committed is handed out again, to both at the same time if the old one still
    works on it.
    """

    def poll(self, limit: int, wait_seconds: float) -> list[Message]:
        """Up to `limit` messages behind those handed out before, in order within each partition.

        Waits for the first one, but not longer than `wait_seconds`; has then, with nothing to hand
        out, an empty list, or ConnectionLost when the topic could not be asked. Reads no more than
        what was asked for, and POLL_BYTES. NotFound when there is no such topic.
        """

    def commit(self, messages: Iterable[Message]) -> None:
        """These are handled: they do not come again, to whoever reads the partition next.

        In a partition the commit stands before the first message that was handed out and is not
        handled; what is handled behind it is committed with it. ConnectionLost: what is handled is
        remembered, and committed with the next commit or poll.
        """

    def rewind(self, message: Message) -> None:
        """This message and all behind it in its partition are handed out again by the next polls.

        Does nothing for a message that is committed, or no longer this consumer's.
        """

    def holds(self, message: Message) -> bool:
        """Whether this consumer still has the message's partition, as far as it knows. Asks nobody."""

    def lag(self) -> dict[int, int]:
        """By partition that this consumer has, how many messages are not committed yet."""

    def close(self) -> None:
        """This consumer has left its group; others may have its partitions at once.

        What it handed out and nobody committed is theirs. A later poll is a Conflict.
        """


class Engine(Protocol):
    """Where topics are."""

    def ensure(self, topic: str, *, partitions: int, max_bytes: int) -> None:
        """The topic is there; one that was there before keeps its partitions and its limit.

        `max_bytes` is the largest message: its value and a little more. ConnectionLost.
        """

    def publisher(self) -> Publisher:
        """A publisher; connects when it is used first."""

    def consumer(self, topic: str, *, group: str) -> Consumer:
        """A new member of the group; a new group begins with the oldest message that is there.

        Which that is, differs: Kafka keeps messages for its retention, Redis until all groups that it
        knows have handled them.
        """


@dataclass(frozen=True, slots=True)
class Topics:
    """Where an instance has its topics."""

    bootstrap: str = ""  # host:port, … of Kafka; empty: streams of the Redis below
    redis_url: str = field(default="", repr=False)  # of one Redis, or of nodes of a cluster: url,url
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # librdkafka's: SASL, TLS
    prefix: str = "headworks:"  # of the keys in Redis
    lease_seconds: float = 10.0  # how long a consumer that died keeps its partitions


def connect(topics: Topics, clock: Clock) -> Engine:
    """Kafka where one is named, or else Redis. Nothing is asked before it is used."""
    # Imported here: each engine imports this contract, and only one of the two clients is needed.
    if topics.bootstrap:
        from app.adapters.topics import kafka

        return kafka.Kafka(topics, clock)
    from app.adapters.topics import streams

    return streams.Streams(topics, clock)
