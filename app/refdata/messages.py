"""Messages that do not have their end: those that never can are kept, the others come again."""

from __future__ import annotations

from collections.abc import Sequence

from app.adapters import logs, metrics, topics
from app.refdata import states
from app.refdata.commands import Command

log = logs.get(__name__)

LONGEST_SENTENCE = 1000


def know_codes() -> None:
    """The metrics have every code of a dead letter, so that the first one of a kind is seen to come."""
    for code in (*(code for code, of in states.CODES.items() if of.dead_letter), topics.TooLarge.code):
        metrics.refdata_dead_letters.labels(code).inc(0)


def bury(
    publisher: topics.Publisher, topic: str, message: topics.Message, code: str, sentence: str,
    *, command: Command | None = None,
) -> None:  # fmt: skip
    """The message is in the topic, as it was, with why and whence in its headers. ConnectionLost.

    `command`: what it says, if it can be read.
    """
    headers = {
        **message.headers,
        "error-code": code.encode(),
        "error-sentence": sentence[:LONGEST_SENTENCE].encode(),
        "origin": f"{message.topic}/{message.partition}/{message.offset}".encode(),
    }
    publisher.publish(topic, key=message.key, value=message.value, headers=headers)
    metrics.refdata_dead_letters.labels(code).inc()
    log.error(
        "refdata_dead_letter", eventId=str(command.event_id) if command else None,
        tenantId=command.tenant_id if command else None, dictCode=command.dict_code if command else None,
        version=None, source=command.source if command else None, code=code, topic=message.topic,
        partition=message.partition, offset=message.offset,
    )  # fmt: skip


def come_again(consumer: topics.Consumer, messages: Sequence[topics.Message]) -> None:
    """The messages come again with the next polls, from the first one of each partition on."""
    first: dict[int, topics.Message] = {}
    for message in messages:
        first.setdefault(message.partition, message)
    for message in first.values():
        consumer.rewind(message)
