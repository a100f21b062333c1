"""How often somebody may ask: each key for itself, and each address for its failures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.adapters.buckets import Bucket, Buckets, Level
from app.adapters.settings import Settings
from app.kernel import errors

FAILED_KEYS_PER_MINUTE = 60
"""Keys that open nothing, from one address: a program with a dead key is told to slow down."""

FAILED_LOGINS_PER_MINUTE = 10
"""Logins that fail, from one address; no further one is looked at meanwhile."""


class TooManyRequests(errors.Refused):
    """Too many of these: less often, please. `levels` are those of the buckets that were asked."""

    code = "too_many_requests"

    def __init__(self, what: str = "requests", *, levels: Sequence[Level] = ()) -> None:
        self.levels = levels
        self.wait_seconds = math.ceil(max((level.wait_seconds for level in levels), default=1))
        super().__init__(f"Too many {what}: try again in {self.wait_seconds} s.")


class Limits:
    """The limits of this instance. A limit of 0 is none."""

    def __init__(self, settings: Settings, buckets: Buckets) -> None:
        self._settings = settings
        self._buckets = buckets

    def take_request(self, key_id: str | None, *, is_upload: bool) -> Sequence[Level]:
        """The request counts; TooManyRequests when the key has made too many.

        The instance's own key (None) is not limited: its holder runs the machine.
        """
        if key_id is None:
            return []
        wanted = [("requests", self._settings.rate_per_minute)]
        if is_upload:
            wanted.append(("uploads", self._settings.uploads_per_minute))
        # As many at once as in a minute: a folder full of reports may come in one go.
        buckets = [Bucket(f"{what}:{key_id}", number, number) for what, number in wanted if number > 0]
        if not buckets:
            return []
        given, levels = self._buckets.take(*buckets)
        if not given:
            raise TooManyRequests(f"requests with this key ({_policies(levels)} a minute)", levels=levels)
        return levels

    def take_uploads(self, key_id: str | None, number: int) -> None:
        """So many reports more count, all or none; TooManyRequests when they are too many."""
        per_minute = self._settings.uploads_per_minute
        if key_id is None or per_minute <= 0 or number <= 0:
            return
        given, levels = self._buckets.take(Bucket(f"uploads:{key_id}", per_minute, per_minute), tokens=number)
        if not given:
            raise TooManyRequests(f"reports with this key ({_policies(levels)} a minute)", levels=levels)

    def count_failed_key(self, network: str) -> None:
        """The failure counts; TooManyRequests when this address has had too many.

        A key that opens something is never held up by these: behind one address there may be many.
        """
        bucket = Bucket(f"failed-keys:{network}", FAILED_KEYS_PER_MINUTE, FAILED_KEYS_PER_MINUTE)
        given, levels = self._buckets.take(bucket)
        if not given:
            raise TooManyRequests("keys that are not known here", levels=levels)

    def check_login(self, network: str) -> None:
        """A login may be tried; TooManyRequests after too many failures from this address."""
        self._take_login(network, tokens=0)

    def count_failed_login(self, network: str) -> None:
        """The failure counts."""
        self._take_login(network, tokens=1)

    def _take_login(self, network: str, *, tokens: int) -> None:
        bucket = Bucket(f"failed-logins:{network}", FAILED_LOGINS_PER_MINUTE, FAILED_LOGINS_PER_MINUTE)
        given, levels = self._buckets.take(bucket, tokens=tokens)
        if not given:
            raise TooManyRequests("failed logins from this address", levels=levels)


def headers_of(levels: Sequence[Level]) -> dict[str, str]:
    """`RateLimit` and its policy, as draft-ietf-httpapi-ratelimit-headers has them."""
    if not levels:
        return {}
    left = [f'"{_what(n)}";r={n.left};t={math.ceil(n.full_seconds)}' for n in levels]
    policy = [f'"{_what(n)}";q={n.bucket.capacity};w=60' for n in levels]
    return {"RateLimit": ", ".join(left), "RateLimit-Policy": ", ".join(policy)}


def _what(level: Level) -> str:
    return level.bucket.name.partition(":")[0]


def _policies(levels: Sequence[Level]) -> str:
    return ", ".join(f"{level.bucket.per_minute} {_what(level)}" for level in levels)
