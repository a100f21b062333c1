"""Streams of events on Redis: published by the relay, read by groups of consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
import redis.exceptions

from app.adapters import logs
from app.kernel import errors

log = logs.get(__name__)

STREAM_LENGTH = 100_000
"""Events kept on a stream, about: consumers that were away longer read the tables instead."""

ABANDONED_MS = 30_000
"""After so long an event that a consumer took and never acknowledged goes to another one."""


Event = tuple[str, bytes]
Handle = Callable[[Sequence[Event]], None]


class Streams:
    """The event streams of one Redis."""

    def __init__(self, url: str, *, prefix: str = "headworks:") -> None:
        self._prefix = prefix
        self._redis = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5, protocol=2)

    def publish(self, events: Sequence[tuple[str, str, bytes]]) -> None:
        """The events, each a topic, a key and a payload, stand at the ends of their topics' streams."""
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for topic, key, payload in events:
                    pipeline.xadd(
                        self._prefix + topic,
                        {"key": key, "payload": payload},
                        maxlen=STREAM_LENGTH,
                        approximate=True,
                    )
                pipeline.execute()
        except redis.exceptions.RedisError as error:
            raise errors.ConnectionLost("Redis cannot be reached.") from error

    def consume(self, topic: str, *, group: str, consumer: str, handle: Handle) -> int:
        """`handle` has returned for every event there is; how many there were.

        It is given some at a time, each a key and a payload; when it raises, each of them alone. An event is
        acknowledged once handled; one whose consumer died meanwhile is handled again.
        """
        stream = self._prefix + topic
        try:
            self._ensure_group(stream, group)
            handled = 0
            while taken := self._take(stream, group, consumer):
                events = [(event_id, (of[b"key"].decode(), of[b"payload"])) for event_id, of in taken]
                done = _handled(events, handle, topic)
                if done:
                    self._redis.xack(stream, group, *done)
                handled += len(done)
            return handled
        except redis.exceptions.RedisError as error:
            raise errors.ConnectionLost("Redis cannot be reached.") from error

    def follow(self, topic: str, *, after: str = "$", wait_seconds: float) -> tuple[str, list[str]]:
        """Where to go on, and the keys of the events behind `after` (`$`: behind the last one now).

        Waits for the first of them, but not longer than `wait_seconds`. Everybody who follows sees
        every event; nothing is acknowledged.
        """
        stream = self._prefix + topic
        try:
            if after == "$":
                newest: Any = self._redis.xrevrange(stream, count=1)
                after = newest[0][0].decode() if newest else "0-0"
            found: Any = self._redis.xread({stream: after}, count=100, block=max(1, int(wait_seconds * 1000)))
        except redis.exceptions.RedisError as error:
            raise errors.ConnectionLost("Redis cannot be reached.") from error
        events = found[0][1] if found else []
        keys = [fields[b"key"].decode() for _, fields in events]
        return (events[-1][0].decode() if events else after), keys

    def _ensure_group(self, stream: str, group: str) -> None:
        try:
            self._redis.xgroup_create(stream, group, id="0", mkstream=True)
        except redis.exceptions.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _take(self, stream: str, group: str, consumer: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        found: Any = self._redis.xautoclaim(stream, group, consumer, min_idle_time=ABANDONED_MS, count=100)
        if abandoned := [event for event in found[1] if event[1]]:
            return abandoned
        fresh: Any = self._redis.xreadgroup(group, consumer, {stream: ">"}, count=100)
        return fresh[0][1] if fresh else []


def _handled(events: list[tuple[bytes, Event]], handle: Handle, topic: str) -> list[bytes]:
    """The ids of those that were handled: one that cannot be stays, comes again, and holds up no other."""
    try:
        handle([event for _, event in events])
        return [event_id for event_id, _ in events]
    except errors.HeadworksError as error:
        if len(events) == 1:
            log.warning("event_not_handled", topic=topic, code=error.code)
            return []
    return [event_id for one in events for event_id in _handled([one], handle, topic)]
