"""Whether the web answers, asked as whoever stands before it would."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

from app.adapters.settings import Settings

ANSWER_SECONDS = 5.0
ANSWER_BYTES = 10_000


class Silent(Exception):
    """No web of this product answers at the address; the text says what does instead."""


def addresses(settings: Settings) -> Iterator[str]:
    """Where a web may be: the one that listens at this machine, and that of the instance."""
    host, _, port = settings.bind.rpartition(":")
    if port.isdigit():
        # A wildcard is no address: the web listens at this machine's, too.
        yield f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"
    yield settings.url.rstrip("/")


def why_not_ready(url: str) -> str:
    """The code of what keeps the web there from its work, empty when nothing does; Silent: there is none."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", f"{parts.path}/readyz")
            response = connection.getresponse()
            said = response.read(ANSWER_BYTES)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Silent(str(error) or type(error).__name__) from None
    try:
        answer = json.loads(said)
        return "" if answer["status"] == "ready" else str(answer["reason"])
    except (ValueError, TypeError, KeyError):
        raise Silent(f"something else answers {response.status}") from None
