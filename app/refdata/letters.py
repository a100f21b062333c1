"""Dead letters as a person sees them: they are looked at, sent again, or discarded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from app.adapters import topics
from app.kernel import errors
from app.refdata import commands, store
from app.refdata.services import Services

GROUP = "refdata-dead-letters"
WAIT_SECONDS = 3.0


class Letters:
    """The dead letters that nobody has sent again or discarded, some at a time, as their topic has them."""

    def __init__(self, of: Services) -> None:
        self._of = of
        self._db = of.databases["postgres"]
        self._consumer = of.topics.consumer(of.config.refdata.kafka.dead_letter_topic, group=GROUP)
        self._discarded: list[topics.Message] = []

    def __enter__(self) -> Letters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def some(self, limit: int) -> list[topics.Message]:
        """The next ones, so many at most; none when there are no more."""
        with suppress(errors.NotFound):  # nothing was ever buried
            while messages := self._consumer.poll(limit, WAIT_SECONDS):
                gone = store.discarded_letters(self._db, [identity(one) for one in messages])
                self._discarded += [one for one in messages if identity(one) in gone]
                if left := [one for one in messages if identity(one) not in gone]:
                    return left
        return []

    def send_again(self, letters: Sequence[topics.Message]) -> None:
        """They are in the topic of commands once more, as if they had never been refused, and none here."""
        for letter in letters:
            self._send_again(letter)
        self._consumer.commit([*letters, *self._discarded])

    def discard(self, letters: Sequence[topics.Message], *, who: str, reason: str) -> None:
        """They are dead letters no more, whatever stands before them; who did it and why is kept."""
        for letter in letters:
            store.discard_letter(
                self._db, identity(letter), key=letter.key, error_code=header(letter, "error-code"),
                origin=header(letter, "origin"), who=who, reason=reason,
            )  # fmt: skip
        self._consumer.commit([*letters, *self._discarded])

    def _send_again(self, letter: topics.Message) -> None:
        with suppress(commands.Malformed):  # what is no command was not noted either
            command = commands.decode(letter.value, now=self._of.clock.now(), most_bytes=commands.WIRE_BYTES)
            for db in self._of.databases.values():
                store.forget_refusal(db, command)
        topic = self._of.config.refdata.kafka.commands_topic
        self._of.publisher.publish(topic, key=letter.key, value=letter.value)


def header(letter: topics.Message, name: str) -> str:
    """What the header says; empty where there is none."""
    return letter.headers.get(name, b"").decode("utf-8", "replace")


def identity(letter: topics.Message) -> str:
    """What tells this letter from every other: where it stands, whence it came, and what it holds.

    The place alone does not: in a topic that was made anew another one stands there.
    """
    place = f"{letter.partition}/{letter.offset}/{header(letter, 'origin')}/{letter.key}\n"
    return hashlib.sha256(place.encode() + letter.value).hexdigest()
