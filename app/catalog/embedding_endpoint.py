"""A model behind an endpoint that speaks as OpenAI's does: POST of texts, answered with their vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tenacity
import urllib3
import urllib3.exceptions

from app.adapters import logs
from app.catalog.embedding_models import ModelUnusable, TextRefused
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)

MOST_TRIES = 5
LONGEST_WAIT_SECONDS = 60.0
ANSWER_SECONDS = 60.0
MOST_BYTES = 32 << 20
EXCERPT_CHARACTERS = 200
REFUSALS = frozenset((400, 413, 422))
"""What says that a text is not taken; other refusals would be those of every text."""


class EndpointAway(errors.Transient):
    """The endpoint of the model does not answer, or asks to be asked later."""

    code = "embedding_endpoint_away"

    def __init__(self, sentence: str = "", *, retry_after: float = 0.0) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class HttpModel:
    """The model of a service. Its name holds the width: one model's vectors of two widths are two models."""

    def __init__(self, url: str, service_name: str, clock: Clock, *, dimensions: int, key: str = "") -> None:
        """`url` is that of the endpoint itself; the key is told to it alone."""
        if not _is_address(url):
            raise ModelUnusable("HEADWORKS_CATALOG_EMBEDDING_URL is not the address of an endpoint.")
        key = key.strip()
        if not (key.isascii() and key.isprintable()):
            raise ModelUnusable("HEADWORKS_CATALOG_EMBEDDING_KEY holds what no key does.")
        self.name = f"{service_name}/{dimensions}"
        self.dimensions = dimensions
        self._url = url
        self._service_name = service_name
        self._key = key
        self._clock = clock
        self._pool = urllib3.PoolManager(
            maxsize=2, retries=False, timeout=urllib3.Timeout(connect=5, read=ANSWER_SECONDS)
        )

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text; asked for five times at most, each time a little later.

        EndpointAway when it has not answered by then.
        """
        if not texts:
            return []
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(EndpointAway),
            stop=tenacity.stop_after_attempt(MOST_TRIES),
            wait=_wait,
            sleep=self._clock.sleep,
            before_sleep=self._log_retry,
            reraise=True,
        )
        found: list[list[float]] = retrying(self._once, texts)
        return found

    def _once(self, texts: Sequence[str]) -> list[list[float]]:
        asked = {
            "model": self._service_name, "input": list(texts), "dimensions": self.dimensions,
            "encoding_format": "float",
        }  # fmt: skip
        headers = {"Content-Type": "application/json", "User-Agent": "headworks-catalog"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            response = self._pool.request(
                "POST", self._url, body=json.dumps(asked).encode(), headers=headers, preload_content=False,
                redirect=False,
            )  # fmt: skip
            body = self._read(response)
        except urllib3.exceptions.LocationValueError:
            raise ModelUnusable(
                "HEADWORKS_CATALOG_EMBEDDING_URL is not the address of an endpoint."
            ) from None
        except urllib3.exceptions.HTTPError as error:
            raise EndpointAway(f"The endpoint of the model: {type(error).__name__}.") from None
        return self._answer(response.status, body, response.headers)

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """The body, as far as it is not too long and does not come too slowly."""
        deadline = self._clock.monotonic() + ANSWER_SECONDS
        parts, length = [], 0
        try:
            while chunk := response.read1(1 << 16):
                parts.append(chunk)
                length += len(chunk)
                if length > MOST_BYTES:
                    raise ModelUnusable("The endpoint of the model answers without end.")
                if self._clock.monotonic() > deadline:
                    raise EndpointAway("The endpoint of the model answers too slowly.")
        except BaseException:
            response.close()  # what is left of it must not be taken for the next answer
            raise
        response.release_conn()
        return b"".join(parts)

    def _answer(self, status: int, body: bytes, headers: Any) -> list[list[float]]:
        if status == 200:
            return self._vectors(body)
        if status == 429 or status >= 500:
            asked = headers.get("Retry-After", "")
            seconds = float(asked[:9]) if asked.isascii() and asked.isdigit() else 0.0
            raise EndpointAway(f"The endpoint of the model answers {status}.", retry_after=seconds)
        if status in REFUSALS:
            raise TextRefused(f"The endpoint of the model answers {status}: {self._excerpt(body)}")
        if status in (401, 403):  # such answers repeat the key, or half of it
            raise ModelUnusable(f"The endpoint of the model answers {status}: it does not take the key.")
        raise ModelUnusable(f"The endpoint of the model answers {status}: {self._excerpt(body)}")

    def _vectors(self, body: bytes) -> list[list[float]]:
        """The vectors of the answer, in the order of the texts and not in that of the answer."""
        try:
            data = json.loads(body)["data"]
            ordered = sorted(data, key=lambda one: int(one["index"]))
            if [one["index"] for one in ordered] != list(range(len(ordered))):
                raise ValueError
            return [[float(number) for number in one["embedding"]] for one in ordered]
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            raise ModelUnusable("The endpoint of the model does not answer as OpenAI's does.") from None

    def _excerpt(self, body: bytes) -> str:
        text = " ".join(body[:4000].decode("utf-8", "replace").split())
        return (text.replace(self._key, "…") if self._key else text)[:EXCERPT_CHARACTERS]

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        wait = state.next_action.sleep if state.next_action else 0.0
        log.warning(
            "embedding_retried", model=self.name, attempt=state.attempt_number, wait_seconds=wait,
            reason=str(_failure(state)),
        )  # fmt: skip


def _is_address(url: str) -> bool:
    try:
        parts = urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.host)


def _wait(state: tenacity.RetryCallState) -> float:
    """1, 2, 4, 8 s, or what the service asks for; at most a minute."""
    failure = _failure(state)
    asked = failure.retry_after if isinstance(failure, EndpointAway) else 0.0
    return float(min(max(2.0 ** (state.attempt_number - 1), asked), LONGEST_WAIT_SECONDS))


def _failure(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
