"""The topic of commands is worked off: what a partition holds has its effect in its order (section 6.0)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from app.adapters import logs, metrics, topics, tracing
from app.kernel import errors
from app.kernel.clock import Clock
from app.refdata import states
from app.refdata.apply import Applier
from app.refdata.commands import WIRE_BYTES, Command, Malformed, decode
from app.refdata.config import Config
from app.refdata.messages import bury, come_again
from app.refdata.rest import Rest
from app.refdata.store import Ended

log = logs.get(__name__)

AT_ONCE = 500
POLL_SECONDS = 0.5
MOST_TRIES = 5
LAG_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Read:
    """A message, and the command in it; None: there is none, for the reason that the error has."""

    message: topics.Message
    command: Command | None
    error: Malformed | None = None


class Consuming:
    """One member of the group that applies commands."""

    def __init__(
        self, consumer: topics.Consumer, publisher: topics.Publisher, applier: Applier,
        config: Callable[[], Config], clock: Clock,
    ) -> None:  # fmt: skip
        self._consumer = consumer
        self._publisher = publisher
        self._applier = applier
        self._config = config
        self._clock = clock
        self._rest = Rest("apply", clock)
        self._lag_at = float("-inf")

    def run(self, stopped: threading.Event, look: Callable[[], object]) -> None:
        """Messages are worked off until it is stopped; `look` is called between two rounds."""
        while not stopped.is_set():
            look()
            self.work_off(POLL_SECONDS)

    def work_off(self, wait_seconds: float = 0.0) -> int:
        """So many messages have had their end; those whose database does not answer come again."""
        try:
            messages = self._consumer.poll(AT_ONCE, wait_seconds)
            self._measure()
        except errors.ConnectionLost as error:
            self._rest.after(error)
            return 0
        try:
            self._handle([_read(message, self._clock) for message in messages])
            self._consumer.commit(messages)
        except (errors.ConnectionLost, errors.DiskFull, errors.TransactionTimeout, errors.Deadlock) as error:
            come_again(self._consumer, messages)
            self._rest.after(error)
            return 0
        self._rest.went_well()
        return len(messages)

    def _handle(self, reads: list[Read]) -> None:
        """Every command has its effect or is refused; what somebody has to look at is a dead letter, too."""
        commands = [(read.command, _traceparent(read.message)) for read in reads if read.command is not None]
        began = int(self._clock.now().timestamp() * 1e9)
        found = self._ended(commands)
        for one in found:
            tracing.record(
                "refdata.apply",
                {
                    "eventId": str(one.command.event_id),
                    "dictCode": one.command.dict_code,
                    "version": one.version,
                    "source": one.command.source,
                },
                parent=one.traceparent,
                began=began,
            )
        ended = iter(found)
        for read in reads:
            if read.error is not None:
                self._bury(read.message, read.error.code, read.error.sentence)
                continue
            one = next(ended)
            if one.error_code is not None and states.CODES[one.error_code].dead_letter:
                self._bury(read.message, one.error_code, one.sentence or "", one.command)

    def _bury(
        self, message: topics.Message, code: str, sentence: str, command: Command | None = None
    ) -> None:
        topic = self._config().refdata.kafka.dead_letter_topic
        bury(self._publisher, topic, message, code, sentence, command=command)

    def _ended(self, commands: list[tuple[Command, str | None]]) -> list[Ended]:
        try:
            return self._applier.apply(commands)
        except (errors.TransactionTimeout, errors.Deadlock) as error:
            if self._rest.failures < MOST_TRIES:
                raise
            # One of them never gets through: by themselves the others do.
            log.warning("refdata_given_up", commands=len(commands), code=error.code)
            return [self._last_try(*one) for one in commands]

    def _last_try(self, command: Command, traceparent: str | None) -> Ended:
        try:
            return self._applier.apply([(command, traceparent)])[0]
        except (errors.TransactionTimeout, errors.Deadlock):
            ended = Ended(command, command.digest, traceparent=traceparent)
            return self._applier.refuse(ended, "TRANSACTION_TIMEOUT")

    def _measure(self) -> None:
        if self._clock.monotonic() < self._lag_at + LAG_SECONDS:
            return
        self._lag_at = self._clock.monotonic()
        metrics.refdata_poll_timestamp_seconds.set(self._clock.now().timestamp())
        topic = self._config().refdata.kafka.commands_topic
        for partition, behind in self._consumer.lag().items():
            metrics.kafka_consumer_lag.labels(topic, str(partition)).set(behind)


def _read(message: topics.Message, clock: Clock) -> Read:
    try:
        command = decode(message.value, now=clock.now(), most_bytes=WIRE_BYTES)
        if message.key != command.key:
            raise Malformed(f"Its key is {message.key!r}, and has to be {command.key!r}.")
        return Read(message, command)
    except Malformed as error:
        return Read(message, None, Malformed(error.sentence))


def _traceparent(message: topics.Message) -> str | None:
    found = message.headers.get(tracing.HEADER)
    return found.decode("ascii", "replace") if found else None
