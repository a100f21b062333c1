"""Token buckets on Redis, for limits that all web processes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
import redis.backoff
import redis.exceptions
import redis.retry

from app.adapters import logs
from app.kernel.clock import Clock

log = logs.get(__name__)

TIMEOUT_SECONDS = 0.25
"""A limit is not worth waiting for: this is more than a Redis takes that is well."""

AWAY_SECONDS = 1.0
"""For so long a Redis that did not answer is not asked again."""

# A bucket is one number: when, in microseconds, it will be full again. Taking a token moves that
# time on by what one token takes to come back; a token is there while it stays within the capacity.
# All buckets give their tokens or none does.
_TAKE = """
local now, tokens = tonumber(ARGV[1]), tonumber(ARGV[2])
local full, room, given = {}, {}, 1
for i, key in ipairs(KEYS) do
    local interval, capacity = tonumber(ARGV[2 * i + 1]), tonumber(ARGV[2 * i + 2])
    full[i] = math.max(tonumber(redis.call('GET', key) or now), now)
    room[i] = now + interval * capacity - full[i]
    if room[i] < interval * math.max(tokens, 1) then given = 0 end
end
local answer = {given}
for i, key in ipairs(KEYS) do
    local interval = tonumber(ARGV[2 * i + 1])
    if given == 1 and tokens > 0 then
        full[i] = full[i] + interval * tokens
        room[i] = room[i] - interval * tokens
        local milliseconds = math.ceil((full[i] - now) / 1000)
        redis.call('SET', key, string.format('%.0f', full[i]), 'PX', string.format('%.0f', milliseconds))
    end
    answer[#answer + 1] = math.floor(room[i] / interval)
    answer[#answer + 1] = full[i] - now
    answer[#answer + 1] = math.max(0, interval * math.max(tokens, 1) - room[i])
end
return answer
"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A limit for one name: so many at once, and so many a minute come back."""

    name: str
    capacity: int
    per_minute: int

    @property
    def interval(self) -> int:
        """Microseconds that one token takes to come back."""
        return 60_000_000 // self.per_minute


@dataclass(frozen=True, slots=True)
class Level:
    """What is left in a bucket."""

    bucket: Bucket
    left: int
    full_seconds: float  # until it is full again
    wait_seconds: float  # until it could give as much again; 0 when it can


class Buckets:
    """The token buckets of one Redis."""

    def __init__(self, url: str, clock: Clock, *, prefix: str = "headworks:bucket:") -> None:
        self._clock = clock
        self._prefix = prefix
        self._away_until = clock.monotonic()
        client = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
            protocol=2,
        )
        self._take: Any = client.register_script(_TAKE)

    def take(self, *buckets: Bucket, tokens: int = 1) -> tuple[bool, list[Level]]:
        """Whether each bucket gave its tokens (else none did), and how each stands. One round trip.

        With no `tokens` it is told whether there is one. Everything is given, and no levels, while
        Redis is away: a limit keeps the peace between clients that hold keys, it guards no data.
        Refusing all of them because Redis is down would make its outage everybody's, while reports
        are taken in without it.
        """
        if self._clock.monotonic() < self._away_until:
            return True, []
        now = self._clock.now()
        arguments = [int(now.timestamp()) * 1_000_000 + now.microsecond, tokens]
        for bucket in buckets:
            arguments += [bucket.interval, bucket.capacity]
        try:
            given, *numbers = self._take(keys=[self._prefix + b.name for b in buckets], args=arguments)
        except redis.exceptions.RedisError as error:
            log.warning("limits_off", reason=type(error).__name__)
            self._away_until = self._clock.monotonic() + AWAY_SECONDS
            return True, []
        return given == 1, [
            Level(bucket, numbers[3 * i], numbers[3 * i + 1] / 1e6, numbers[3 * i + 2] / 1e6)
            for i, bucket in enumerate(buckets)
        ]
