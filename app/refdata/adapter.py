"""Outside topics become commands (section 3.2), under their tenant and with a request."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from uuid import UUID

from app.adapters import topics
from app.kernel import errors
from app.refdata import accept
from app.refdata.accept import CommandNotTaken
from app.refdata.commands import Command, Malformed, decode
from app.refdata.config import Source
from app.refdata.messages import bury, come_again
from app.refdata.rest import Rest
from app.refdata.services import Services

AT_ONCE = 200
POLL_SECONDS = 0.5


class Adapting:
    """One member of the group that reads an outside topic."""

    def __init__(
        self, of: Services, source: Source, consumer: topics.Consumer, publisher: topics.Publisher
    ) -> None:
        self._of = of
        self._source = source
        self._consumer = consumer
        self._publisher = publisher
        self._rest = Rest("adapter", of.clock)

    def run(self, stopped: threading.Event, look: Callable[[], object]) -> None:
        """Messages become commands until it is stopped; `look` is called between two rounds."""
        while not stopped.is_set():
            look()
            self.work_off(POLL_SECONDS)

    def work_off(self, wait_seconds: float = 0.0) -> int:
        """So many messages are commands now, or dead letters; the others come again."""
        messages: list[topics.Message] = []
        done = 0
        try:
            messages = self._consumer.poll(AT_ONCE, wait_seconds)
            for message in messages:
                self._hand_on(message)
                done += 1
            self._consumer.commit(messages)
        except errors.Transient as error:
            come_again(self._consumer, messages[done:])
            self._rest.after(error)
            return done
        self._rest.went_well()
        return done

    def _hand_on(self, message: topics.Message) -> None:
        command = None
        try:
            command = self._command(message)
            accept.accept(self._of, self._publisher, command)
        except (Malformed, CommandNotTaken, topics.TooLarge) as error:
            topic = self._of.config.refdata.kafka.dead_letter_topic
            bury(self._publisher, topic, message, error.code, error.sentence, command=command)

    def _command(self, message: topics.Message) -> Command:
        given = {"tenantId": self._source.tenant_id, "source": "KAFKA"}
        if self._source.dict_code is not None:
            given["dictCode"] = self._source.dict_code
        place = f"{message.topic}/{message.partition}/{message.offset}"
        return decode(message.value, now=self._of.clock.now(), given=given, event_id=_id_of(place))


def _id_of(place: str) -> UUID:
    """The id of a message that has none: the same message again has the same."""
    return UUID(bytes=hashlib.sha256(place.encode()).digest()[:16], version=5)
