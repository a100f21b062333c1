"""What a consumer holds of one partition: messages handed out, and messages to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.adapters.topics import Message


class Lane:
    """The messages of one partition behind the last commit, in order.

    Whichever engine they come from, they go through the same three states: waiting, handed out,
    handled; and leave the lane from its front only, once all before them are handled.
    """

    def __init__(self) -> None:
        self.settled: str | None = None  # offset of the last message that left, None if none did
        self.count = 0  # how many left
        self._messages: list[Message] = []
        self._first = 0  # the number of the first of them; numbers only grow
        self._next = 0  # the number of the first that waits
        self._numbers: dict[str, int] = {}  # by offset
        self._handled: set[int] = set()

    @property
    def waiting(self) -> int:
        """How many messages wait to be handed out."""
        return self._first + len(self._messages) - self._next

    @property
    def outstanding(self) -> int:
        """How many messages were handed out and are not settled."""
        return self._next - self._first

    @property
    def last(self) -> str | None:
        """The offset of the last message that was added."""
        return self._messages[-1].offset if self._messages else self.settled

    def add(self, message: Message) -> None:
        """The message waits behind all others."""
        self._numbers[message.offset] = self._first + len(self._messages)
        self._messages.append(message)

    def take(self, limit: int) -> list[Message]:
        """The next messages, now handed out."""
        start = self._next - self._first
        taken = self._messages[start : start + limit]
        self._next += len(taken)
        return taken

    def settle(self, messages: Iterable[Message]) -> None:
        """These are handled, as far as they are handed out; the front of the lane moves on."""
        for message in messages:
            number = self._numbers.get(message.offset)
            if number is not None and number < self._next:
                self._handled.add(number)
        gone = 0
        while self._first + gone in self._handled:
            self._handled.remove(self._first + gone)
            del self._numbers[self._messages[gone].offset]
            gone += 1
        if gone:
            self.settled = self._messages[gone - 1].offset
            del self._messages[:gone]
            self._first += gone
            self.count += gone

    def rewind(self, message: Message) -> None:
        """That message and all behind it wait, if it was handed out and is not settled."""
        number = self._numbers.get(message.offset)
        if number is not None and number < self._next:
            self._next = number
            self._handled = {handled for handled in self._handled if handled < number}


def take_in_turn(lanes: Sequence[Lane], limit: int, *, turn: int) -> list[Message]:
    """Up to `limit` messages, about as many of each lane; none waits for another's long queue.

    `turn` counts the calls: each begins with another lane.
    """
    taken: list[Message] = []
    start = turn % max(1, len(lanes))
    waiting = [lane for lane in (*lanes[start:], *lanes[:start]) if lane.waiting]
    while waiting and len(taken) < limit:
        share = max(1, (limit - len(taken)) // len(waiting))
        for lane in waiting:
            taken += lane.take(min(share, limit - len(taken)))
        waiting = [lane for lane in waiting if lane.waiting]
    return taken
