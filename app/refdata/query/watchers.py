"""Whoever watches a dictionary is told of each new version (server-sent events)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from app.kernel.clock import Clock
from app.refdata.query.replies import Refusal
from app.refdata.query.shelf import Shelf
from app.refdata.query.table import Place

MOST = 1000
SILENT_SECONDS = 15.0
LONGEST_SECONDS = 300.0
"""Then whoever watches has to come again, and to show that they still may."""


class Watchers:
    """Those of one process."""

    def __init__(self, shelf: Shelf, clock: Clock, are_to_go: Callable[[], bool]) -> None:
        self._shelf = shelf
        self._clock = clock
        self._are_to_go = are_to_go
        self._number = 0

    def stream(self, place: Place, last: bytes) -> AsyncGenerator[bytes, None]:
        """The versions from now on, but for the `last` that is known. Refusal: too many watch."""
        if self._number >= MOST:
            raise Refusal(
                503, "too_many_watchers", "Too many watch already: ask for the version now and then.",
                ((b"retry-after", b"10"),),
            )  # fmt: skip
        return self._events(place, last)

    async def _events(self, place: Place, last: bytes) -> AsyncGenerator[bytes, None]:
        self._number += 1
        told: tuple[str, int] | None = None
        until = self._clock.monotonic() + LONGEST_SECONDS
        try:
            while not self._are_to_go() and self._clock.monotonic() < until:
                served = self._shelf.get(place)
                if served is None:
                    return
                standing = served.table.standing
                now = (str(standing.epoch), standing.version)
                if now != told and not (told is None and last == b"%d" % standing.version):
                    yield b'id: %d\nevent: version\ndata: {"version":%d,"epoch":"%b"}\n\n' % (
                        standing.version, standing.version, str(standing.epoch).encode()
                    )  # fmt: skip
                told = now
                if not await self._shelf.changed(place, SILENT_SECONDS):
                    yield b": still here\n\n"
        finally:
            self._number -= 1
