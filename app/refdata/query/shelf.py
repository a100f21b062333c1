"""What a reader answers from: of each dictionary the newest version, and for a while those before."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from pathlib import Path

from app.adapters import logs
from app.kernel.clock import Clock
from app.refdata.query import frames
from app.refdata.query.image import BadImage, Image, Standing
from app.refdata.query.replies import JSON, Fields
from app.refdata.query.table import Place, Table

log = logs.get(__name__)

MOST_EMPTY = 10_000
EMPTY_SECONDS = 10.0
"""So long a dictionary that nobody ever wrote is not asked for again."""

PULSE_SECONDS = 5.0
"""A loader that was not heard of for so long is gone."""


class Served:
    """A version of a dictionary, and what all answers from it begin with."""

    __slots__ = ("etag", "found", "gzipped", "missing", "same", "source", "table", "whole")

    def __init__(self, table: Table, source: bytes) -> None:
        self.table = table
        self.source = source
        self.etag = b'"%d-%016x"' % (table.standing.version, table.checksum)
        says = said_of(table.standing, source)
        kept = ((b"etag", self.etag), (b"cache-control", b"no-cache"), *says)
        self.found = Fields(200, ((b"content-type", JSON), *kept))
        self.same = Fields(304, kept)
        self.missing = says
        self.whole: bytes | None = None
        """The body of `all`, once somebody has asked for it and if it is not large."""
        self.gzipped: asyncio.Future[bytes] | None = None

    @property
    def find(self) -> Callable[[bytes], bytes | None]:
        """Finds the payload of an entry by what it begins with."""
        return self.table.find if self.table.plain is None else self.table.plain.get

    @property
    def version(self) -> int:
        """The version of the data."""
        return self.table.standing.version


def said_of(standing: Standing, source: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """What the header of every answer says of the data in it."""
    return (
        (b"x-dict-version", b"%d" % standing.version),
        (b"x-dict-epoch", str(standing.epoch).encode()),
        (b"x-data-source", source),
    )


class Shelf:
    """The dictionaries of one reader. Belongs to its event loop."""

    def __init__(self, clock: Clock, *, keep: Callable[[], tuple[int, float]]) -> None:
        """`keep` says how many versions are kept, and for how many seconds."""
        self._clock = clock
        self._keep = keep
        self.newest: dict[Place, Served] = {}
        self._before: dict[Place, deque[tuple[float, Served]]] = {}
        self._empty: OrderedDict[Place, tuple[float, Served]] = OrderedDict()
        self._waiting: dict[Place, asyncio.Future[None]] = {}
        self.generation = 0
        """Another one whenever anything is not as it was: what was found out before no longer holds."""
        self.pulse = frames.Pulse(False, "the loader", {}, {}, None)
        self._pulse_at = float("-inf")
        self._checked_at: dict[str, float] = {}
        self.is_linked = False
        """Whether the loader that lives now has told all that it has."""

    def get(self, place: Place) -> Served | None:
        """The newest version; None: the dictionary is not loaded."""
        found = self.newest.get(place)
        if found is None and place in self._empty:
            until, found = self._empty[place]
            if self._clock.monotonic() > until:
                del self._empty[place]
                return None
        return found

    def exactly(self, place: Place, version: int) -> Served | None:
        """This very version; None: it is not kept."""
        newest = self.get(place)
        if newest is not None and newest.version == version:
            return newest
        of_before = self._before.get(place, ())
        return next((served for _, served in reversed(of_before) if served.version == version), None)

    def places(self) -> Iterator[Place]:
        """Every dictionary that is loaded."""
        return iter(list(self.newest))

    async def changed(self, place: Place, seconds: float) -> bool:
        """Whether the dictionary has another version before so many seconds are over."""
        if place not in self._waiting:
            self._waiting[place] = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait([self._waiting[place]], timeout=max(0.0, seconds))
        return bool(done)

    # -- what the loader tells

    @property
    def hears_loader(self) -> bool:
        """Whether the loader lives: one that hangs keeps its end of the socket, and is silent."""
        return self.is_linked and self._clock.monotonic() - self._pulse_at < PULSE_SECONDS

    def hear(self, pulse: frames.Pulse) -> None:
        """The loader lives, and says how old its dictionaries are.

        What it has not compared yet is as old as it was: one that ends again and again makes nothing young.
        """
        now = self._pulse_at = self._clock.monotonic()
        self.pulse = pulse
        self.is_linked = True
        for code, age in pulse.ages.items():
            if age is None:
                self._checked_at.setdefault(code, now)
            else:
                self._checked_at[code] = now - age
        if pulse.is_ready:
            self._checked_at = {code: at for code, at in self._checked_at.items() if code in pulse.ages}

    def ages(self) -> dict[str, float]:
        """By dictionary, for how long it was not compared with its database; the loader may be gone."""
        now = self._clock.monotonic()
        return {code: now - at for code, at in self._checked_at.items()}

    def whole(self, frame: frames.Whole) -> bool:
        """The dictionary is as the frame says; False: its image is gone, because there is a newer one."""
        place = (frame.tenant_id, frame.dict_code)
        standing = Standing(frame.epoch, frame.version)
        try:
            table = Table.of(place, Image(Path(frame.path)), plain=True)
        except BadImage:
            return False
        if frame.changes or table.standing != standing:
            table = table.after(standing, frame.changes)
        known = self.newest.get(place)
        if known is not None and not frame.is_checked and known.table.standing.epoch == standing.epoch:
            if known.version >= standing.version:  # a loader that was started again begins with its files
                return True
        served = Served(table, b"memory" if frame.is_checked else b"snapshot")
        if standing.version == 0 and table.count == 0 and place not in self.newest:
            self._empty[place] = (self._clock.monotonic() + EMPTY_SECONDS, served)
            if len(self._empty) > MOST_EMPTY:
                self._empty.popitem(last=False)
            self._wake(place)
        else:
            self._put(place, served)
        return True

    def change(self, frame: frames.Changed) -> bool:
        """The dictionary has these changes; False: they are not of what it is here."""
        place = (frame.tenant_id, frame.dict_code)
        known = self.newest.get(place)
        if known is None or known.table.standing.epoch != frame.epoch:
            return False
        if known.version >= frame.version:
            return True
        if known.version != frame.since:
            return False
        self._put(
            place, Served(known.table.after(Standing(frame.epoch, frame.version), frame.changes), b"memory")
        )
        return True

    def drop(self, frame: frames.Gone) -> None:
        """The dictionary is not answered any more."""
        place = (frame.tenant_id, frame.dict_code)
        self.newest.pop(place, None)
        self._before.pop(place, None)
        self._wake(place)

    def only(self, places: set[Place]) -> None:
        """No others are answered any more."""
        for place in [place for place in self.newest if place not in places]:
            self.drop(frames.Gone(*place))

    def wake_all(self) -> None:
        """Whoever waits for a version looks again."""
        for place in list(self._waiting):
            self._wake(place)

    def _put(self, place: Place, served: Served) -> None:
        before = self.newest.get(place)
        self.newest[place] = served
        self._empty.pop(place, None)
        if before is not None and before.etag != served.etag:
            number, seconds = self._keep()
            now = self._clock.monotonic()
            kept = self._before.setdefault(place, deque())
            if before.table.standing.epoch != served.table.standing.epoch:
                kept.clear()
            else:
                kept.append((now, before))
            while len(kept) > number and kept[0][0] < now - seconds:
                kept.popleft()
        self._wake(place)

    def _wake(self, place: Place) -> None:
        self.generation += 1
        waiting = self._waiting.pop(place, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
