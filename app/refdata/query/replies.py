"""Answers as the servers send them: whatever can be is bytes before anybody asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson

JSON = b"application/json"
PROBLEM = b"application/problem+json"

Pairs = Sequence[tuple[bytes, bytes]]


class Fields:
    """The header of answers that have it in common: as pairs, and as it stands in an answer of HTTP/1.1."""

    __slots__ = ("pairs", "raw")

    def __init__(self, status: int, pairs: Pairs) -> None:
        self.pairs = list(pairs)
        phrase = HTTPStatus(status).phrase.encode()
        lines = b"".join(b"%b: %b\r\n" % pair for pair in self.pairs)
        self.raw = b"HTTP/1.1 %d %b\r\n%b" % (status, phrase, lines)


class Reply:
    """One answer. Its length is that of its body, or `length` of its stream; None: that is not known."""

    __slots__ = ("body", "fields", "length", "status", "stream")

    def __init__(
        self, status: int, fields: Fields, body: bytes = b"", *,
        stream: AsyncGenerator[bytes, None] | None = None, length: int | None = None,
    ) -> None:  # fmt: skip
        self.status = status
        self.fields = fields
        self.body = body
        self.stream = stream
        self.length = length if stream is not None else len(body)


def json_reply(found: Any, pairs: Pairs = (), status: int = 200, *, caching: bytes = b"no-store") -> Reply:
    """The value as JSON."""
    fields = Fields(status, ((b"content-type", JSON), (b"cache-control", caching), *pairs))
    return Reply(status, fields, orjson.dumps(found))


def problem(status: int, code: str, sentence: str, pairs: Pairs = ()) -> Reply:
    """A refusal (RFC 9457)."""
    content = orjson.dumps({
        "type": "about:blank", "title": code.replace("_", " "), "status": status, "code": code,
        "error_code": code, "detail": sentence,
    })  # fmt: skip
    more = ((b"www-authenticate", b"Bearer"),) if status == 401 else ()
    fields = Fields(status, ((b"content-type", PROBLEM), (b"cache-control", b"no-store"), *more, *pairs))
    return Reply(status, fields, content)


class Refusal(Exception):
    """A request ends with this answer."""

    def __init__(self, status: int, code: str, sentence: str, pairs: Pairs = ()) -> None:
        super().__init__(code)
        self.reply = problem(status, code, sentence, pairs)


BROKE = problem(500, "internal_error", "Something went wrong here.")
MALFORMED = problem(400, "malformed_request", "This is no request of HTTP/1.1.")
NO_HOST = problem(400, "no_host", "A request of HTTP/1.1 has one Host header.")
SLOW = problem(408, "request_timeout", "The head of the request did not come in time.")
TOO_LONG = problem(414, "uri_too_long", "The address has more than 65,535 bytes.")
HEADER_TOO_LARGE = problem(431, "header_too_large", "The header has more than 64 KiB.")


def what_is_wrong(http_version: str, lines: Mapping[bytes, bytes]) -> Reply | None:
    """What makes a request none that a parser lets pass; None: nothing."""
    if http_version not in ("1.0", "1.1"):
        return MALFORMED
    if lines.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        return MALFORMED
    host = lines.get(b"host")
    if (host is None and http_version == "1.1") or (host is not None and b"," in host):
        return NO_HOST
    return None


def last_words(reply: Reply) -> bytes:
    """The answer as it is sent before its connection is closed."""
    return b"%bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        reply.fields.raw, len(reply.body), reply.body
    )  # fmt: skip
