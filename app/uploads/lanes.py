"""Parts of one upload side by side: each by a session of its own, and committed in the order of the file."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

LANES = 2
"""So many parts are worked on at a time, each by a process of the server's."""

Part = TypeVar("Part")
Place = TypeVar("Place")


class Turn(Generic[Place]):
    """Whose turn it is to commit: `reached` is how far the upload has come, `error` what ended it."""

    def __init__(self, reached: Place) -> None:
        self.reached = reached
        self.error: BaseException | None = None
        self._condition = threading.Condition()

    def wait_for(self, reached: Place) -> None:
        """Returns when everything before is committed; raises what kept it from being so."""
        with self._condition:
            self._condition.wait_for(lambda: self.error is not None or self.reached == reached)
            if self.reached != reached:
                raise _Over from self.error

    def pass_on(self, reached: Place) -> None:
        """So far everything is committed."""
        with self._condition:
            self.reached = reached
            self._condition.notify_all()

    def end(self, error: BaseException) -> None:
        """Nobody commits any more; the first error is the one that counts."""
        with self._condition:
            self.error = self.error or error
            self._condition.notify_all()


class _Over(Exception):
    """A part before this one was not committed, so this one is not, either."""


def side_by_side(parts: Iterable[Part], commit: Callable[[Part], Place], turn: Turn[Place]) -> None:
    """Every part is committed, or the first error is raised and nothing behind it is.

    `commit` waits for the part's turn before it commits, and returns how far the upload has come then. Parts
    are made by one lane at a time, while the others commit theirs.
    """
    left, making = iter(parts), threading.Lock()

    def lane() -> None:
        try:
            while turn.error is None:
                with making:
                    part = next(left, None)
                if part is None:
                    return
                turn.pass_on(commit(part))
        except BaseException as error:  # also the wish to stop: it is for whoever waits for the lanes
            turn.end(error)

    with ThreadPoolExecutor(LANES, "lane") as lanes:
        for _ in range(LANES):
            # Each in a copy of the context: its log lines are the upload's, too.
            lanes.submit(contextvars.copy_context().run, lane)
    if turn.error is not None:
        raise turn.error
