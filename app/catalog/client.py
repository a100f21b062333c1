"""The marketplace's API: requests at the agreed pace, tried again where that helps (seed §4.1).

What fails for good leaves as a TargetFailure whose category says what it means for the job.
"""

from __future__ import annotations

import email.utils
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import tenacity
import urllib3
import urllib3.exceptions

from app.adapters import logs, metrics
from app.adapters.pace import Pace
from app.catalog import answers
from app.catalog.failures import TargetFailure, Then
from app.kernel.clock import Clock

log = logs.get(__name__)

MOST_TRIES = 5
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
"""Also where the service asks for more: a run that sleeps for hours helps nobody, one that fails is seen."""

MOST_BYTES = 4 << 20
ANSWER_SECONDS = 30.0
TAGS_AT_ONCE = 10

# What a 400 says when it is not this target's fault, in words of the service; in lower case.
CONFIGURATION = ("applicationid", "accesskey", "api configuration")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one of the APIs is, and what is always asked of it."""

    path: str
    version: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Access:
    """The service's address and one's own keys for it."""

    url: str
    application_id: str
    access_key: str = ""
    referer: str = ""  # where the application is registered for a site


# availability=0 asks for all items; by default those that are sold out are left out, as if deleted.
ENDPOINTS: dict[str, Endpoint] = {
    "item": Endpoint("/ichibams/api/IchibaItem/Search", "20260701", {"availability": "0", "hits": "1"}),
    "ranking": Endpoint("/ichibaranking/api/IchibaItem/Ranking", "20220601", {}),
    "genre": Endpoint("/ichibagt/api/IchibaGenre/Search", "20260701", {"genrePath": "1"}),
    "tag": Endpoint("/ichibagt/api/IchibaTag/Search", "20140222", {}),
}


class RakutenClient:
    """Records of the marketplace, as its API spells them, one target each."""

    def __init__(
        self, access: Access, pace: Pace, clock: Clock, *, endpoints: Mapping[str, Endpoint] = ENDPOINTS,
        connections: int = 4, uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:  # fmt: skip
        self._access = access
        self._pace = pace
        self._clock = clock
        self._uniform = uniform
        self._endpoints = endpoints
        self._pool = urllib3.PoolManager(
            maxsize=connections, block=True, retries=False, timeout=urllib3.Timeout(connect=5, read=15)
        )

    def fetch_ranking(self, *, genre_id: int) -> Mapping[str, Any]:
        """The ranking of a genre."""
        return self._fetch("ranking", "genreId", str(genre_id))

    def fetch_item(self, *, item_code: str) -> Mapping[str, Any]:
        """The item of this code, whether it is in stock or not."""
        return self._fetch("item", "itemCode", item_code)

    def fetch_genre(self, *, genre_id: int) -> Mapping[str, Any]:
        """A genre with its parents and children."""
        return self._fetch("genre", "genreId", str(genre_id))

    def fetch_tag(self, *, tag_id: int) -> Mapping[str, Any]:
        """A tag with its group."""
        return self._fetch("tag", "tagId", str(tag_id))

    def fetch_tags(self, *, tag_ids: Sequence[int]) -> Mapping[str, Mapping[str, Any]]:
        """Up to ten tags by one request, and what came along; without those that the answer does not hold."""
        assert len(tag_ids) <= TAGS_AT_ONCE
        return answers.tags(self._request("tag", {"tagId": ",".join(map(str, tag_ids))}))

    def _fetch(self, entity: str, name: str, target: str) -> Mapping[str, Any]:
        return answers.PICK[entity](self._request(entity, {name: target}), target)

    def _request(self, entity: str, query: dict[str, str]) -> Mapping[str, Any]:
        """The answer to a request that is made until it is answered, five times at most."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_worth_a_try),
            stop=tenacity.stop_after_attempt(MOST_TRIES),
            wait=self._wait,
            sleep=self._clock.sleep,
            before_sleep=self._slow_down,
            reraise=True,
        )
        try:
            found: Mapping[str, Any] = retrying(self._once, entity, query)
        except TargetFailure as failure:
            failure.attempts = retrying.statistics.get("attempt_number", 1)
            failure.excerpt = self._without_keys(failure.excerpt)
            raise
        return found

    def _without_keys(self, text: str) -> str:
        """What a service or a proxy says may repeat the address that was asked for."""
        for key in filter(None, (self._access.application_id, self._access.access_key)):
            text = text.replace(key, "…")
        return text

    def _once(self, entity: str, query: dict[str, str]) -> Mapping[str, Any]:
        endpoint = self._endpoints[entity]
        self._pace.wait()
        fields = {
            **endpoint.query, **query, "applicationId": self._access.application_id, "format": "json",
            "formatVersion": "2",
        }  # fmt: skip
        try:
            response = self._pool.request(
                "GET", f"{self._access.url}{endpoint.path}/{endpoint.version}", fields=fields,
                headers=self._headers(), preload_content=False, redirect=False,
            )  # fmt: skip
            body = self._read(response)
        except urllib3.exceptions.TimeoutError:
            raise _counted(entity, TargetFailure("timeout")) from None
        except urllib3.exceptions.HTTPError as error:
            raise _counted(entity, TargetFailure("connection", excerpt=type(error).__name__)) from None
        metrics.catalog_requests.labels(entity, str(response.status)).inc()
        return _answer(response.status, body, response.headers)

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """The body, as far as it is not too long and does not come too slowly."""
        deadline = self._clock.monotonic() + ANSWER_SECONDS
        body = b""
        try:
            while chunk := response.read1(1 << 16):
                body += chunk
                if len(body) > MOST_BYTES:
                    raise TargetFailure("unexpected_body", status=response.status, excerpt="too long")
                if self._clock.monotonic() > deadline:
                    raise TargetFailure("timeout", status=response.status)
        except BaseException:
            response.close()  # what is left of it must not be taken for the next answer
            raise
        finally:
            response.release_conn()  # closed or not, the pool waits for it
        return body

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """1, 2, 4, 8 s with up to half of it more, or what the service asks for; at most a minute."""
        own: float = FIRST_WAIT_SECONDS * 2 ** (state.attempt_number - 1) * self._uniform(1.0, 1.5)
        asked = _failure(state).retry_after or 0.0
        return min(max(own, asked), LONGEST_WAIT_SECONDS)

    def _slow_down(self, state: tenacity.RetryCallState) -> None:
        """A service that is asked too often is left alone by all, not only by this caller."""
        failure = _failure(state)
        wait = state.next_action.sleep if state.next_action else 0.0
        log.warning(
            "request_retried", category=failure.category, attempt=state.attempt_number, wait_seconds=wait
        )
        if failure.category == "rate_limited":
            self._pace.pause(wait)

    def _headers(self) -> dict[str, str]:
        # The key in a header, not in the address: addresses stand in logs.
        headers = {"Accept": "application/json", "User-Agent": "headworks-catalog"}
        if self._access.access_key:
            headers["accessKey"] = self._access.access_key
        if self._access.referer:
            headers |= {"Referer": self._access.referer, "Origin": self._access.referer.rstrip("/")}
        return headers


def _counted(entity: str, failure: TargetFailure) -> TargetFailure:
    metrics.catalog_requests.labels(entity, failure.category).inc()
    return failure


def _answer(status: int, body: bytes, headers: Mapping[str, str]) -> Mapping[str, Any]:
    """The object in an answer; a TargetFailure says what else it is."""
    excerpt = body[:4000].decode("utf-8", "replace")
    if status == 429:
        raise TargetFailure("rate_limited", status=status, excerpt=excerpt, retry_after=_retry_after(headers))
    if status >= 500:
        raise TargetFailure("server_error", status=status, excerpt=excerpt, retry_after=_retry_after(headers))
    if status in (401, 403):
        raise TargetFailure("access", status=status, excerpt=excerpt)
    if status == 404:
        raise TargetFailure("not_found", status=status, excerpt=excerpt)
    found = _object(body)
    if status == 400 and found is not None:
        text = json.dumps(found, default=str).lower()
        category = "configuration" if any(word in text for word in CONFIGURATION) else "target_refused"
        raise TargetFailure(category, status=status, excerpt=excerpt)
    if status != 200 or found is None or "error" in found or "errors" in found:
        raise TargetFailure("unexpected_body", status=status, excerpt=excerpt)
    return found


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body, parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, ArithmeticError, RecursionError):  # an exponent can be too long to be one
        return None
    return found if isinstance(found, dict) else None


def _no_number(text: str) -> None:
    raise ValueError(text)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a Retry-After header, in either of its spellings."""
    text = headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = email.utils.parsedate_to_datetime(text)
        sent = email.utils.parsedate_to_datetime(headers.get("Date", ""))
        return max(0.0, (at - sent).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def _failure(state: tenacity.RetryCallState) -> TargetFailure:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, TargetFailure)
    return error


def _is_worth_a_try(error: BaseException) -> bool:
    return isinstance(error, TargetFailure) and error.then is Then.TRY_AGAIN
