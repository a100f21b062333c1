"""The ways in which an answer goes wrong, as data: a `Fault` each, and the usual ones ready-made.

The ready-made ones take what the request must look like, and how many requests are hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.catalog.replay import recordings
from app.catalog.replay.shapes import Record

Match = Mapping[str, str] | str

HUGE_BYTES = 5_000_000
HTML = (
    "<!DOCTYPE html>\n<html lang=ja><head><meta charset=utf-8><title>メンテナンスのお知らせ</title></head>"
    "<body><h1>ただいまメンテナンス中です</h1><p>しばらくたってから、もう一度お試しください。</p></body></html>\n"
).encode()


@dataclass(frozen=True)
class Fault:
    """What the next `times` requests that match are answered with in place of the true answer.

    `match` is a part of the path, or parameters that the query must have. Without `body` or `items` the
    true body is sent, late (`delay_seconds`) or in part: `cut_after_bytes` of the whole answer, head
    included, then the connection ends; a negative number leaves out that many bytes of the end, as in a
    slice. `items` are the flat records of an item search, answered in the shape that was asked for.
    """

    match: Match
    times: int = 1
    status: int | None = None  # of the true answer, where it is not given
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    cut_after_bytes: int | None = None
    items: tuple[Record, ...] | None = None

    def matches(self, path: str, query: Mapping[str, str]) -> bool:
        """Whether it is about this request."""
        if isinstance(self.match, str):
            return self.match in path
        return all(query.get(key) == value for key, value in self.match.items())


def too_many_requests(match: Match, times: int = 1, *, retry_after: str | None = None) -> Fault:
    """429; `retry_after` is the text of the header: seconds, or a date."""
    headers = {"Retry-After": retry_after} if retry_after is not None else {}
    return _recorded("429_too_many_requests", match, times, headers=headers)


def forbidden(match: Match, times: int = 1, *, name: str = "CLIENT_IP_NOT_ALLOWED") -> Fault:
    """403 in the body of the gateway of 2026; `name` as in the recorded ones."""
    return _recorded(f"403_gateway_{name}", match, times)


def forbidden_in_old_shape(match: Match, times: int = 1) -> Fault:
    """403 in the body of the old host, `error` and `error_description`; not recorded, so worded like it."""
    body = {"error": "forbidden", "error_description": "CLIENT_IP_NOT_ALLOWED"}
    return Fault(match, times, status=403, body=orjson.dumps(body))


def not_found(match: Match, times: int = 1) -> Fault:
    """404, as rankings of genres without any."""
    return _recorded("404_ranking_genre_without_data", match, times)


def system_error(match: Match, times: int = 1) -> Fault:
    """500."""
    return _recorded("500_system_error", match, times)


def under_maintenance(match: Match, times: int = 1) -> Fault:
    """503."""
    return _recorded("503_service_unavailable", match, times)


def html_page(match: Match, times: int = 1) -> Fault:
    """A page for people, with status 200."""
    headers = {"Content-Type": "text/html; charset=utf-8"}
    return Fault(match, times, status=200, body=HTML, headers=headers)


def error_with_status_200(match: Match, times: int = 1) -> Fault:
    """The body of an error, with status 200."""
    return Fault(match, times, status=200, body=recordings.error("500_system_error").body)


def truncated(match: Match, times: int = 1) -> Fault:
    """The true answer without its last bytes, though its head promises them."""
    return Fault(match, times, cut_after_bytes=-10)


def slow(match: Match, times: int = 1, *, delay_seconds: float) -> Fault:
    """The true answer, late."""
    return Fault(match, times, delay_seconds=delay_seconds)


def dropped(match: Match, times: int = 1) -> Fault:
    """No answer: the connection ends."""
    return Fault(match, times, cut_after_bytes=0)


def empty(match: Match, times: int = 1) -> Fault:
    """Status 200 and no body."""
    return Fault(match, times, status=200, body=b"")


def huge(match: Match, times: int = 1) -> Fault:
    """5 MB of good JSON."""
    frame = orjson.dumps({"Items": [], "filler": ""})
    filler = b"x" * (HUGE_BYTES - len(frame))
    return Fault(match, times, status=200, body=frame[:-2] + filler + frame[-2:])


def finding(match: Match, *records: Record, times: int = 1) -> Fault:
    """An item search finds these: another item than was asked for, or two for one code."""
    return Fault(match, times, items=records)


def _recorded(name: str, match: Match, times: int, **more: Any) -> Fault:
    recording = recordings.error(name)
    return Fault(match, times, status=recording.status, body=recording.body, **more)
