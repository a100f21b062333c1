"""The marketplace's times: Japan's own, in several spellings, most without a zone."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime, timedelta, timezone

JST = timezone(timedelta(hours=9))

_SPELLINGS = ("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y-%m-%d")


def instant(text: str | None) -> datetime | None:
    """The instant in UTC; None for no text, or one that is no time.

    The end of all time, `9999-12-31 23:59`, is an instant like any other.
    """
    if not text:
        return None
    for spelling in _SPELLINGS:
        try:
            return datetime.strptime(text, spelling).replace(tzinfo=JST).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    return _with_zone(text)


def _with_zone(text: str) -> datetime | None:
    """ISO 8601, or the RFC 822 of feeds."""
    for parse in (datetime.fromisoformat, email.utils.parsedate_to_datetime):
        try:
            found = parse(text)
            return (found if found.tzinfo else found.replace(tzinfo=JST)).astimezone(UTC)
        except (ValueError, TypeError, OverflowError):
            continue
    return None
