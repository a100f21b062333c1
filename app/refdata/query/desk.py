"""What is to be loaded anew, and when (section 12): each dictionary once at a time, and few in all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from app.kernel.clock import Clock
from app.refdata.query.table import Place

FIRST_REST_SECONDS = 0.1
LONGEST_REST_SECONDS = 2.0


@dataclass
class _Wish:
    """A dictionary that is not as it is known to be in the database."""

    due: float
    at_least: int
    epoch: UUID | None
    is_asked_again: bool = False  # while it is being loaded


@dataclass(frozen=True, slots=True)
class Pace:
    """How long changes are gathered, and how many loads run at once."""

    coalesce_seconds: float
    jitter_seconds: float
    parallel: int


@dataclass
class Desk:
    """The wishes of one pod. Shared by threads."""

    pace: Callable[[], Pace]
    clock: Clock
    chance: Callable[[], float]
    _wishes: dict[Place, _Wish] = field(default_factory=dict)
    _busy: set[Place] = field(default_factory=set)
    _failures: dict[Place, int] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def ask(self, place: Place, at_least: int, epoch: UUID | None = None, *, at_once: bool = False) -> None:
        """The dictionary will be loaded: when its changes are gathered, or at once because somebody waits."""
        pace = self.pace()
        now = self.clock.monotonic()
        due = now if at_once else now + pace.coalesce_seconds + pace.jitter_seconds * self.chance()
        with self._changed:
            known = self._wishes.get(place)
            if known is None:
                self._wishes[place] = _Wish(due, at_least, epoch, place in self._busy)
            else:
                known.due = min(known.due, due) if place not in self._failures else known.due
                known.at_least = max(known.at_least, at_least)
                known.epoch = epoch or known.epoch
                known.is_asked_again = place in self._busy
            self._changed.notify_all()

    def take(self, wait_seconds: float) -> Place | None:
        """A dictionary whose time has come: the caller's own now, until it is `done` or has `failed`."""
        deadline = self.clock.monotonic() + wait_seconds
        with self._changed:
            while True:
                now = self.clock.monotonic()
                free = self.pace().parallel - len(self._busy)
                waiting = [
                    (wish.due, place) for place, wish in self._wishes.items() if place not in self._busy
                ]
                if waiting and free > 0:
                    due, place = min(waiting)
                    if due <= now:
                        self._busy.add(place)
                        self._wishes[place].is_asked_again = False
                        return place
                    deadline_or_due = min(deadline, due)
                else:
                    deadline_or_due = deadline
                if now >= deadline:
                    return None
                self._changed.wait(deadline_or_due - now)

    def done(self, place: Place, epoch: UUID, version: int) -> None:
        """The dictionary is loaded at this version; what was asked for beyond it is still wanted."""
        with self._changed:
            self._busy.discard(place)
            self._failures.pop(place, None)
            wish = self._wishes.get(place)
            if wish is None:  # it was dropped meanwhile
                return
            is_there = version >= wish.at_least or wish.epoch not in (None, epoch)
            if is_there or not wish.is_asked_again:
                # What is not there although it was asked for is not committed, or of another history.
                del self._wishes[place]
            self._changed.notify_all()

    def failed(self, place: Place) -> None:
        """The dictionary could not be loaded; it comes again after a rest, each time after a longer one."""
        with self._changed:
            self._busy.discard(place)
            failures = self._failures[place] = self._failures.get(place, 0) + 1
            rest = min(FIRST_REST_SECONDS * 2 ** (failures - 1), LONGEST_REST_SECONDS)
            if place in self._wishes:
                self._wishes[place].due = self.clock.monotonic() + rest
            self._changed.notify_all()

    def drop(self, place: Place) -> None:
        """The dictionary is not wanted any more."""
        with self._changed:
            self._wishes.pop(place, None)
            self._failures.pop(place, None)

    def give_back(self, place: Place) -> None:
        """The dictionary is nobody's, and was not loaded."""
        with self._changed:
            self._busy.discard(place)
            self._changed.notify_all()

    def lag(self) -> dict[Place, int]:
        """The newest version that was asked for, of each dictionary that is not loaded at it."""
        with self._changed:
            return {place: wish.at_least for place, wish in self._wishes.items()}
