"""A publisher to Kafka, by one idempotent producer at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from app.adapters.topics import ANSWER_SECONDS, Outgoing
from app.adapters.topics.kafka_client import REFUSED, UNREACHABLE, error_of, is_denial, made
from app.kernel import errors
from app.kernel.clock import Clock


class _Receipt:
    """What came of some messages: filled by a line's thread, awaited by the one that published."""

    def __init__(self) -> None:
        self.error: Any = None  # the first failure
        self._open = 0
        self._change = threading.Condition()

    def expect(self) -> None:
        with self._change:
            self._open += 1

    def answer(self, error: Any, _message: Any) -> None:
        with self._change:
            self._open -= 1
            self.error = self.error or error
            self._change.notify_all()

    def wait(self, seconds: float) -> bool:
        """Whether all were answered in time."""
        with self._change:
            return self._change.wait_for(lambda: not self._open, max(0.0, seconds))


class _Line:
    """One producer and the thread that takes its answers."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.is_denied = False
        self._producer: Any = made(confluent_kafka.Producer, {**config, "error_cb": self._look})
        self._lock = threading.Lock()
        self._is_given_up = False
        self._thread = threading.Thread(target=self._serve, name="kafka-publisher", daemon=True)
        self._thread.start()

    def send(self, topic: str, message: Outgoing, receipt: _Receipt) -> bool:
        """Whether the message is on its way; False while too many others are."""
        with self._lock:
            if self._is_given_up:
                raise errors.ConnectionLost(UNREACHABLE)
            receipt.expect()
            try:
                self._producer.produce(
                    topic,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers.items()),
                    on_delivery=receipt.answer,
                )
            except BufferError:
                receipt.answer(None, None)
                return False
            except KafkaException as error:
                receipt.answer(error.args[0], None)
        return True

    def make_room(self) -> None:
        """Some of what is on its way was answered, or a moment has passed."""
        self._producer.poll(0.05)

    def give_up(self) -> None:
        """What is not acknowledged yet will not be sent any more.

        All at once: what was sent before is, in each partition, the first part of it.
        """
        with self._lock:
            self._is_given_up = True
            self._producer.purge()
        self._thread.join(ANSWER_SECONDS)

    def _serve(self) -> None:
        while not self._is_given_up or len(self._producer):
            self._producer.poll(0.1)

    def _look(self, error: Any) -> None:
        if is_denial(error):
            self.is_denied = True


class KafkaPublisher:
    """Publishes by an idempotent producer: what it sends again by itself stands in the topic once."""

    def __init__(self, config: Mapping[str, Any], clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._line: _Line | None = None

    def publish(
        self, topic: str, *, key: str, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """The message is acknowledged."""
        self.publish_all(topic, [Outgoing(key, value, headers or {})])

    def publish_all(self, topic: str, messages: Sequence[Outgoing]) -> None:
        """All messages are acknowledged."""
        deadline = self._clock.monotonic() + ANSWER_SECONDS
        line = self._open()
        receipt = _Receipt()
        is_sent = True
        for message in messages:
            while not (is_sent := line.send(topic, message, receipt)) and self._clock.monotonic() < deadline:
                line.make_room()
            if not is_sent:
                break
        if not (is_sent and receipt.wait(deadline - self._clock.monotonic())):
            self._give_up(line)
            raise errors.AccessDenied(REFUSED) if line.is_denied else errors.ConnectionLost(UNREACHABLE)
        if receipt.error is not None:
            if receipt.error.fatal() or receipt.error.code() == KafkaError._FATAL:
                self._give_up(line)
            raise error_of(receipt.error)

    def close(self) -> None:
        """The producer is gone."""
        with self._lock:
            line, self._line = self._line, None
        if line is not None:
            line.give_up()

    def _open(self) -> _Line:
        with self._lock:
            if self._line is None:
                self._line = _Line(self._config)
            return self._line

    def _give_up(self, line: _Line) -> None:
        """The next message goes by a new producer; whoever waits for this one's is told the same."""
        with self._lock:
            if self._line is line:
                self._line = None
        line.give_up()
