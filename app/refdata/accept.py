"""A command is taken in over REST: its request is known, then it goes to its topic; some wait for its end."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

from app.adapters import topics, tracing
from app.adapters.database import Database
from app.kernel import errors
from app.refdata import states, store
from app.refdata.commands import Command
from app.refdata.config import Dictionary
from app.refdata.services import Services


class CommandNotTaken(errors.Refused):
    """A command that is not taken in; its code is one of `states.CODES`."""

    def __init__(self, code: str, sentence: str = "") -> None:
        super().__init__(sentence or states.CODES[code].sentence, code=code)


def accept(of: Services, publisher: topics.Publisher, command: Command, *, wait_seconds: float = 0.0) -> Any:
    """The command is on its way, and this is its request: as it ended, or as it stands after so long.

    The same command again is the same request; another one under its eventId is CommandNotTaken, as is one
    that its dictionary cannot take. When the topic does not answer, ConnectionLost: the command stays with
    its request, and is sent as soon as the topic does.
    """
    dictionary = _dictionary_of(of, command)
    db = of.databases[dictionary.database]
    with (
        tracing.span("refdata.accept", {"eventId": str(command.event_id), "dictCode": command.dict_code}),
        of.waiting(dictionary).expect(*command.event) as ended,
    ):
        request = store.add_request(
            db, command, content=command.encoded(), digest=command.digest, awaited=wait_seconds > 0,
            traceparent=tracing.traceparent(),
        )  # fmt: skip
        if bytes(request.digest) != command.digest:
            raise CommandNotTaken("EVENT_ID_REUSED")
        if request.status == "PENDING":
            if wait_seconds > 0 and not request.added:
                store.await_request(db, *command.event)
            publish(of, publisher, command.key, command.encoded(), tracing.traceparent())
            store.mark_published(db, *command.event)
        return _ended(of, db, command.event, ended, wait_seconds)


def publish(
    of: Services, publisher: topics.Publisher, key: str, content: bytes, traceparent: str | None
) -> None:
    """The topic of commands has the command. ConnectionLost when it does not answer."""
    topic = of.config.refdata.kafka.commands_topic
    headers = {tracing.HEADER: traceparent.encode()} if traceparent else {}
    try:
        publisher.publish(topic, key=key, value=content, headers=headers)
    except errors.NotFound:  # nothing was ever sent here
        of.ensure_topics()
        publisher.publish(topic, key=key, value=content, headers=headers)


def find_request(of: Services, tenant_id: str, event_id: UUID) -> Any:
    """The tenant's request, in whichever database its dictionary is. NotFound."""
    for db in of.databases.values():
        if (found := store.request(db, tenant_id, event_id)) is not None:
            return found
    raise errors.NotFound("There is no request of this eventId.")


def _dictionary_of(of: Services, command: Command) -> Dictionary:
    dictionary = of.dictionary(command.dict_code)
    if dictionary is None:
        raise CommandNotTaken("UNKNOWN_DICTIONARY")
    if not (dictionary.takes_snapshots if command.chunk else dictionary.takes_deltas):
        raise CommandNotTaken("READ_ONLY_DICTIONARY")
    return dictionary


def _ended(
    of: Services, db: Database, event: tuple[str, UUID], ended: threading.Event, wait_seconds: float
) -> Any:
    deadline = of.clock.monotonic() + wait_seconds
    while True:
        left = deadline - of.clock.monotonic()
        if wait_seconds > 0 and left > 0:
            ended.wait(left)
            ended.clear()
        request = store.request(db, *event)
        if request.status != "PENDING" or of.clock.monotonic() >= deadline:
            return request
