"""What a foreign API answers: an object or a named failure, normalised to a tree that stays what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from app.catalog import answers, client, normalize, times
from app.catalog.failures import CATEGORIES, EXCERPT_CHARACTERS, TargetFailure
from app.uploads.webhooks import send
from tests.fuzz.target import Target

KINDS = ("item", "ranking", "genre", "tag")
STATUSES = (200, 200, 200, 200, 200, 400, 403, 404, 429, 500)
ITEM = {
    "itemCode": "shop:1", "itemName": "Bolt", "itemPrice": "100", "reviewAverage": "4.50", "tagIds": [3, 1],
    "itemUrl": "http://hb.afl.rakuten.co.jp/x?pc=https%3A%2F%2Fitem.example%2F1%3Fscid%3Dz",
    "startTime": "2026-01-01 10:00",
    "mediumImageUrls": [{"imageUrl": "https://a/1"}], "rank": 1, "unknown": {"deep": [1.5, None, ""]},
}  # fmt: skip
GENRE = {
    "current": {"genreId": 1, "genreName": "x", "genreLevel": 1},
    "children": [{"genreId": 3}, {"genreId": 2}],
}
TAGS = {
    "tagGroups": [
        {"tagGroupId": 1, "tagGroupName": "c", "tags": [{"tagId": 1, "tagName": "red", "parentTagId": 0}]}
    ]
}


def read(kind: str, status: int, body: bytes) -> Mapping[str, Any]:
    """The normalised record, or the failure that is raised."""
    found = client._answer(status, body, {"Retry-After": body[:20].decode("latin-1"), "Date": "x"})
    target = "shop:1" if kind == "item" else "1"
    return normalize.normalize(kind, answers.PICK[kind](found, target))


def check(data: bytes) -> None:
    """The first byte chooses entity and status; the rest is the body."""
    if not data:
        return
    kind, status = KINDS[data[0] % 4], STATUSES[data[0] // 4 % len(STATUSES)]
    text = data[1:].decode("utf-8", "replace")
    times.instant(text)
    shown = send.printable(data[1:])
    assert len(shown) <= send.EXCERPT_CHARACTERS and shown.isprintable()
    try:
        found = read(kind, status, data[1:])
        hashed = normalize.compute_content_hash(found)
        normalize.compute_field_hashes(found)
    except TargetFailure as failure:
        assert failure.category in CATEGORIES
        assert len(failure.excerpt) <= EXCERPT_CHARACTERS and "\x00" not in failure.excerpt
        failure.excerpt.encode()
        return
    assert len(normalize.stable_json(found)) < 100 * (len(data) + 100), "a few bytes became very many"
    again = normalize.normalize(kind, json.loads(normalize.stable_json(found)))
    assert normalize.compute_content_hash(again) == hashed, "normalised twice it is another record"


def seeds() -> Iterator[bytes]:
    """One answer of each entity."""
    for number, answer in enumerate(
        ({"Items": [{"Item": ITEM}]}, {"Items": [ITEM], "title": "r"}, GENRE, TAGS)
    ):
        yield bytes([number]) + json.dumps(answer).encode()
    yield bytes([20]) + b'{"error":"wrong_parameter","error_description":"specify valid applicationId"}'
    yield bytes([0]) + b"Wed, 21 Oct 2026 07:28:00 GMT"


TARGET = Target(
    check,
    seeds,
    words=(
        b'"Items"', b'"Item"', b'"items"', b'"itemCode"', b'"shop:1"', b'"itemName"', b'"genreId"',
        b'"current"', b'"children"',
        b'"tagGroups"', b'"tags"', b'"tagId"', b'"rank"', b'"itemPrice"', b'"reviewAverage"', b'"itemUrl"',
        b"1e999999999",
        b"0.0000000000000000000000000000000001", b"\\u0000", b"\\ud800",
        b"https://hb.afl.rakuten.co.jp/?pc=", b"[]", b"{}",
        b"null", b"NaN", b'"error"', b"http://[", b"2026-01-01 10:00", b"9999-12-31", b'"in_order"',
        b"\xe3\x80\x80",
    ),
    most_bytes=4096,
)  # fmt: skip
