"""Messages that do not have their end: those that never can are kept, the others come again."""

from __future__ import annotations

from collections.abc import Sequence

from app.adapters import logs, metrics, topics

log = logs.get(__name__)

LONGEST_SENTENCE = 1000


def bury(publisher: topics.Publisher, topic: str, message: topics.Message, code: str, sentence: str) -> None:
    """The message is in the topic, as it was, with why and whence in its headers. ConnectionLost."""
    headers = {
        **message.headers,
        "error-code": code.encode(),
        "error-sentence": sentence[:LONGEST_SENTENCE].encode(),
        "origin": f"{message.topic}/{message.partition}/{message.offset}".encode(),
    }
    publisher.publish(topic, key=message.key, value=message.value, headers=headers)
    metrics.refdata_dead_letters.labels(code).inc()
    log.error(
        "refdata_dead_letter", code=code, topic=message.topic, partition=message.partition,
        offset=message.offset,
    )  # fmt: skip


def come_again(consumer: topics.Consumer, messages: Sequence[topics.Message]) -> None:
    """The messages come again with the next polls, from the first one of each partition on."""
    first: dict[int, topics.Message] = {}
    for message in messages:
        first.setdefault(message.partition, message)
    for message in first.values():
        consumer.rewind(message)
