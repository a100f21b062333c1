"""Topics of Kafka, or of whatever speaks its protocol.

What can be lost: what the brokers lose. Messages are acknowledged by all replicas in sync (acks=all);
how many these are at least is the topic's `min.insync.replicas`, which belongs to whoever runs the
cluster, as does a retention that is longer than consumers may ever be away.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from app.adapters.topics import ANSWER_SECONDS, POLL_BYTES, SILENT_SECONDS, Topics
from app.adapters.topics.kafka_client import UNREACHABLE, error_of, made
from app.adapters.topics.kafka_consumer import KafkaConsumer
from app.adapters.topics.kafka_publisher import KafkaPublisher
from app.kernel import errors
from app.kernel.clock import Clock

LARGEST_BYTES = 64 * 1024 * 1024
"""What the client itself lets through; the topic's own limit is smaller and decides."""


class Kafka:
    """The topics of one cluster."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._clock = clock
        self._lease_ms = int(topics.lease_seconds * 1000)
        # The options come last but one: they may tune what follows here, not what the contract rests on.
        self._options = {
            "client.id": "headworks",
            "socket.keepalive.enable": True,
            "socket.timeout.ms": int(ANSWER_SECONDS * 1000),
            "reconnect.backoff.max.ms": 1000,
            **topics.options,
            "bootstrap.servers": topics.bootstrap,
        }

    def ensure(self, topic: str, *, partitions: int, max_bytes: int) -> None:
        """The topic is there, with as many replicas as the cluster gives it."""
        admin = made(AdminClient, self._options)
        wanted = NewTopic(topic, num_partitions=partitions, config={"max.message.bytes": str(max_bytes)})
        try:
            admin.create_topics([wanted], request_timeout=ANSWER_SECONDS)[topic].result(ANSWER_SECONDS + 1)
        except TimeoutError as error:
            raise errors.ConnectionLost(UNREACHABLE) from error
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise error_of(error.args[0]) from error

    def publisher(self) -> KafkaPublisher:
        """A publisher of this cluster."""
        return KafkaPublisher(
            {
                # A message that the broker compresses no further than this is not held up by it.
                "compression.type": "lz4",
                "linger.ms": 0,
                "batch.size": 512 * 1024,
                "topic.metadata.propagation.max.ms": 5000,
                **self._options,
                "acks": "all",
                "enable.idempotence": True,
                # As Java's clients do it: a key has one partition, whoever publishes it.
                "partitioner": "murmur2",
                "message.max.bytes": LARGEST_BYTES,
                # Never by itself: a first message that was given up and a second that was not would
                # change places when they are published again. See `_Line.give_up`.
                "message.timeout.ms": 0,
            },
            self._clock,
        )

    def consumer(self, topic: str, *, group: str) -> KafkaConsumer:
        """A member of the group in this cluster."""
        return KafkaConsumer(
            {
                "fetch.wait.max.ms": 500,
                "queued.max.messages.kbytes": POLL_BYTES // 1024,
                **self._options,
                "group.id": group,
                "session.timeout.ms": self._lease_ms,
                "heartbeat.interval.ms": max(1, self._lease_ms // 4),
                "max.poll.interval.ms": max(int(SILENT_SECONDS * 1000), self._lease_ms),
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "allow.auto.create.topics": False,
            },
            topic,
            self._clock,
        )
