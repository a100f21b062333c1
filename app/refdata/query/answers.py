"""What is answered from one version of a dictionary: entries, pages, all of it."""

from __future__ import annotations

import asyncio
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any

from app.refdata.query.image import Standing
from app.refdata.query.replies import JSON, Fields, Refusal, Reply, problem
from app.refdata.query.request import Lines, matches, takes_gzip
from app.refdata.query.shelf import Served, said_of

WHOLE_BYTES = 4 << 20
GZIP_BYTES = 64 << 20
"""Up to these sizes `all` is kept ready, and compressed."""

NO_SUCH_KEY = "The dictionary has no such key."

Answer = Reply | Coroutine[Any, Any, Reply]
"""A reply, or what has to be awaited for it."""


def is_known(lines: Lines, etag: bytes) -> bool:
    """Whether whoever asks has what this tag stands for."""
    given = lines.get(b"if-none-match")
    return given is not None and matches(given, etag)


def item(served: Served, token: bytes, lines: Lines) -> Reply:
    """One payload, as it is."""
    payload = served.table.find(token)
    if payload is None:
        return problem(404, "UNKNOWN_KEY", NO_SUCH_KEY, served.missing)
    if is_known(lines, served.etag):
        return Reply(304, served.same)
    return Reply(200, served.found, payload)


def items(served: Served, tokens: Sequence[bytes], lines: Lines) -> Reply:
    """Some entries, and which of them there are not."""
    if is_known(lines, served.etag):
        return Reply(304, served.same)
    return Reply(200, served.found, _body(served.version, tokens, list(map(served.find, tokens))))


def _body(version: int, tokens: Sequence[bytes], payloads: Sequence[bytes | None]) -> bytes:
    pairs = list(zip(tokens, payloads, strict=True))
    there = b"".join([token + payload for token, payload in pairs if payload is not None])
    missing = b"".join([token[:-1] for token, payload in pairs if payload is None])
    return b'{"version":%d,"items":{%b},"missing":[%b]}' % (version, there[1:], missing[1:])


def of_primary(
    standing: Standing, tokens: Sequence[bytes], payloads: list[bytes | None], *, is_item: bool
) -> Reply:
    """The answer that the database gave itself; it has no tag, since nobody has the whole of that version."""
    says = said_of(standing, b"postgres_fallback")
    body = payloads[0] if is_item else _body(standing.version, tokens, payloads)
    if body is None:
        return problem(404, "UNKNOWN_KEY", NO_SUCH_KEY, says)
    return Reply(200, Fields(200, ((b"content-type", JSON), (b"cache-control", b"no-cache"), *says)), body)


def whole(served: Served, limit: int | None, lines: Lines) -> Answer:
    """The dictionary, or its first page: as it is, compressed, or in steps where it is large."""
    if limit is not None:
        return page(served, b"", limit, lines)
    gzip = served.table.size <= GZIP_BYTES and takes_gzip(lines.get(b"accept-encoding", b""))
    etag = served.etag[:-1] + b'-gzip"' if gzip else served.etag
    fields = _fields_of_all(served, etag)
    if is_known(lines, etag):
        return Reply(304, Fields(304, fields[1:]))
    if gzip:
        return _gzipped(served, Fields(200, [*fields, (b"content-encoding", b"gzip")]))
    head, tail = _around(served)
    length = len(head) + max(0, served.table.size - 1) + len(tail)
    if length > WHOLE_BYTES:
        return Reply(200, Fields(200, fields), stream=_stream(served), length=length)
    if served.whole is None:
        texts = b"".join(text for text, _, _ in served.table.texts())
        served.whole = head + texts[1:] + tail
    return Reply(200, Fields(200, fields), served.whole)


async def _gzipped(served: Served, fields: Fields) -> Reply:
    """Compressed once for each version, in a thread."""
    if served.gzipped is None:
        served.gzipped = asyncio.ensure_future(asyncio.to_thread(_compress, served))
    return Reply(200, fields, await asyncio.shield(served.gzipped))


def page(served: Served, after: bytes, limit: int, lines: Lines) -> Answer:
    """The entries behind this one, and where the next page begins."""
    fields = _fields_of_all(served, served.etag)
    if is_known(lines, served.etag):
        return Reply(304, Fields(304, fields[1:]))
    return _page(served, after, limit, Fields(200, fields))


async def _page(served: Served, after: bytes, limit: int, fields: Fields) -> Reply:
    texts, number, last = [], 0, after
    for text, entries, token in served.table.texts(after, limit):
        texts.append(text)
        number += entries
        last = token
        await asyncio.sleep(0)  # others are answered meanwhile
    is_more = number == limit and next(served.table.texts(last, 1), None) is not None
    following = b'"%b"' % _cursor_of(served, last) if is_more else b"null"
    body = b'{"version":%d,"next":%b,"items":{%b}}' % (
        served.version, following, b"".join(texts)[1:]
    )  # fmt: skip
    return Reply(200, fields, body)


def _fields_of_all(served: Served, etag: bytes) -> list[tuple[bytes, bytes]]:
    kept = ((b"etag", etag), (b"cache-control", b"no-cache"), (b"vary", b"accept-encoding"))
    return [(b"content-type", JSON), *kept, *served.missing]


def _around(served: Served) -> tuple[bytes, bytes]:
    return b'{"version":%d,"items":{' % served.version, b"}}"


async def _stream(served: Served) -> AsyncGenerator[bytes, None]:
    """The whole dictionary, step by step."""
    head, tail = _around(served)
    yield head
    is_first = True
    for text, _, _ in served.table.texts():
        yield text[1:] if is_first else text
        is_first = False
    yield tail


def _compress(served: Served) -> bytes:
    packer = zlib.compressobj(level=1, wbits=31)
    head, tail = _around(served)
    packed = [packer.compress(head)]
    is_first = True
    for text, _, _ in served.table.texts():
        packed.append(packer.compress(text[1:] if is_first else text))
        is_first = False
    packed += [packer.compress(tail), packer.flush()]
    return b"".join(packed)


def _cursor_of(served: Served, last: bytes) -> bytes:
    return urlsafe_b64encode(
        b"%d.%b.%b" % (served.version, str(served.table.standing.epoch)[:8].encode(), last)
    ).rstrip(b"=")


def cursor_in(text: bytes) -> tuple[int, str, bytes]:
    """The version of the page before, the beginning of its epoch, and its last entry. Refusal."""
    try:
        found = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
        version, epoch, last = found.split(b".", 2)
        if not version.isdigit() or len(version) > 19 or not last.startswith(b","):
            raise ValueError
        return int(version), epoch.decode("ascii"), last
    except ValueError:
        raise Refusal(400, "invalid_cursor", "after is no cursor of an earlier page.") from None
