"""Streams of events on Redis: published by the relay, read by groups of consumers."""

from __future__ import annotations

from collections.abc import Callable
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


class Streams:
    """The event streams of one Redis."""

    def __init__(self, url: str, *, prefix: str = "headworks:") -> None:
        self._prefix = prefix
        self._redis = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5, protocol=2)

    def publish(self, topic: str, *, key: str, payload: bytes) -> None:
        """The event stands at the end of its topic's stream."""
        try:
            self._redis.xadd(
                self._prefix + topic,
                {"key": key, "payload": payload},
                maxlen=STREAM_LENGTH,
                approximate=True,
            )
        except redis.exceptions.RedisError as error:
            raise errors.ConnectionLost("Redis cannot be reached.") from error

    def consume(self, topic: str, *, group: str, consumer: str, handle: Callable[[str, bytes], None]) -> int:
        """`handle(key, payload)` has returned for every event there is; how many there were.

        An event is acknowledged once handled; one whose consumer died meanwhile is handled again.
        """
        stream = self._prefix + topic
        try:
            self._ensure_group(stream, group)
            handled = 0
            while events := self._take(stream, group, consumer):
                for event_id, fields in events:
                    try:
                        handle(fields[b"key"].decode(), fields[b"payload"])
                    except errors.HeadworksError as error:
                        # It stays unacknowledged and comes again; the events behind it do not wait.
                        log.warning("event_not_handled", topic=topic, code=error.code)
                        continue
                    self._redis.xack(stream, group, event_id)
                    handled += 1
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
