"""What happens to the tasks, as it happens: server-sent events, and gauges for Prometheus."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import orjson
from prometheus_client.metrics_core import GaugeMetricFamily

from app.adapters import metrics
from app.kernel import errors
from app.pipeline.requests import FollowQuery
from app.pipeline.services import Services
from app.pipeline.states import MACHINE, STAGES
from app.pipeline.store import Pipeline

LOOK_SECONDS = 0.5
ALIVE_SECONDS = 5.0
MOST_SECONDS = 3600.0
"""So long one connection is followed; whoever follows connects again and reads on."""

AT_ONCE = 500
MOST_STUCK = 100
MOST_FOLLOWERS = 8
"""Each holds a thread of the process."""

_followers = threading.BoundedSemaphore(MOST_FOLLOWERS)
_PLACE = re.compile(r"([0-9]{1,20})-([0-9]{1,18})", re.ASCII)


class TooManyFollowers(errors.RateLimited):
    """Too many follow the pipeline already; its history can be asked for instead."""

    code = "too_many_followers"


def follow(services: Services, wanted: FollowQuery, last_event_id: str) -> Iterator[bytes]:
    """Every change behind the event of that id, or from now on. TooManyFollowers; Refused for another id."""
    place = _place(services, last_event_id)
    if not _followers.acquire(blocking=False):
        raise TooManyFollowers()
    return _Stream(_changes(services, wanted, place))


class _Stream:
    """The changes; whoever stops reading makes room for another follower."""

    def __init__(self, changes: Iterator[bytes]) -> None:
        self._changes = changes

    def __iter__(self) -> Iterator[bytes]:
        return self._changes

    def __next__(self) -> bytes:
        return next(self._changes)

    def close(self) -> None:
        """Called once by the server, however the answer ended."""
        _followers.release()


def _place(services: Services, last_event_id: str) -> tuple[str, int]:
    if not last_event_id:
        return services.pipeline.newest_place()
    found = _PLACE.fullmatch(last_event_id)
    if found is None or int(found[1]) >= 1 << 63:
        raise errors.Refused("Last-Event-ID is not one of this stream.")
    # Without zeros before it: the database would take the number for an octal one.
    return str(int(found[1])), int(found[2])


def _changes(services: Services, wanted: FollowQuery, place: tuple[str, int]) -> Iterator[bytes]:
    clock = services.clock
    begun = said = clock.monotonic()
    yield b": following\n\n"
    while clock.monotonic() < begun + MOST_SECONDS:
        rows = services.pipeline.followed(place, filename=wanted.filename, stage=wanted.stage, limit=AT_ONCE)
        for row in rows:
            place = (row.xid, row.id)
            yield _event(row)
        if rows:
            said = clock.monotonic()
        elif clock.monotonic() > said + ALIVE_SECONDS:
            said = clock.monotonic()
            yield b": alive\n\n"
        if len(rows) < AT_ONCE:
            clock.sleep(LOOK_SECONDS)


def _event(row: Any) -> bytes:
    told = row._asdict()
    event_id = f"{told.pop('xid')}-{row.id}"
    data = orjson.dumps(told | {"at": row.at.astimezone(UTC)}, option=orjson.OPT_UTC_Z)
    return b"id: %b\nevent: transition\ndata: %b\n\n" % (event_id.encode(), data)


def gauges(pipeline: Pipeline) -> Iterator[GaugeMetricFamily]:
    """Where the tasks stand at this moment, for Prometheus."""
    whole = pipeline.counts()
    yield metrics.pipeline_tasks.of({
        (name, status): getattr(whole, f"{stage.column}_{status}")
        for name, stage in STAGES.items() for status in MACHINE.states
    })  # fmt: skip
    oldest = pipeline.oldest_ready()
    yield metrics.pipeline_oldest_ready.of({(name,): seconds for name, seconds in oldest.items()})
    yield metrics.pipeline_stuck.of({
        (name,): len(pipeline.stuck_in(name, limit=MOST_STUCK)) for name in STAGES
    })  # fmt: skip
