"""The pace at which a service may be called, kept by all processes of all hosts together (Redis)."""

from __future__ import annotations

from typing import Any

import redis
import redis.backoff
import redis.exceptions
import redis.retry

from app.kernel import errors
from app.kernel.clock import Clock

TIMEOUT_SECONDS = 5.0

_NEXT = """
local at = redis.call('TIME')
local now = at[1] * 1000000 + at[2]
local next_ = tonumber(redis.call('GET', KEYS[1]) or '0')
local function set(value)
    redis.call('SET', KEYS[1], string.format('%.0f', value), 'PX', math.ceil((value - now) / 1000) + 1000)
end
"""

# Whoever comes when the next call is due goes, and says when the one after it is; the others are told how
# long to wait and ask again. So calls are apart by what was agreed even if a process sleeps too long.
_GO = _NEXT + "if now < next_ then return next_ - now end set(now + ARGV[1]) return 0"

# The next call is not due before the pause is over.
_PAUSE = _NEXT + "if now + ARGV[1] > next_ then set(now + ARGV[1]) end return 0"


class Pace:
    """One service's pace: `seconds` between two calls, whoever makes them."""

    def __init__(self, url: str, clock: Clock, *, name: str, seconds: float) -> None:
        """`name` says whose calls are meant; those under another name are not counted."""
        self._clock = clock
        self._key = f"headworks:pace:{name}"
        self._interval = int(seconds * 1_000_000)
        client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, protocol=2,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
        )  # fmt: skip
        self._go: Any = client.register_script(_GO)
        self._pause: Any = client.register_script(_PAUSE)

    def wait(self) -> None:
        """It is this caller's turn, and nobody else's until the interval is over.

        ConnectionLost when Redis is away: without it nobody knows who else is calling.
        """
        while self._interval and (left := self._ask(self._go, self._interval)):
            self._clock.sleep(left / 1_000_000)

    def pause(self, seconds: float) -> None:
        """Nobody's turn comes for so long: the service has asked for it."""
        self._ask(self._pause, int(seconds * 1_000_000))

    def _ask(self, script: Any, microseconds: int) -> int:
        try:
            return int(script(keys=[self._key], args=[microseconds]))
        except redis.exceptions.RedisError as error:
            raise errors.ConnectionLost(
                "The pace of the service's calls is not known: Redis is away."
            ) from error
