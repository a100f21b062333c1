"""Everything that the pipeline refuses, and that nothing anybody sends breaks it or changes a task."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.pipeline import tasks
from tests.integration.pipeline.conftest import Api
from tests.integration.pipeline.tasks import FILE, QUEUES

TASK = {"filename": FILE, "shard": 0}
TOKEN = "00000000-0000-0000-0000-000000000004"
MOST_BYTES = 64 * 1024

CALLS: dict[str, dict[str, Any]] = {
    "/files/register": {"filename": FILE, "shards": [0]},
    "/stages/event-ingest/done": {"filename": FILE},
    "/stages/event-ingest/fail": {"filename": FILE},
    "/stages/event-ingest/retry": {"filename": FILE},
    "/stages/shard-splitter/start": TASK,
    "/stages/shard-worker/done": TASK,
    "/stages/mysql-sender/fail": TASK,
    "/stages/shard-splitter/retry": TASK,
    "/stages/event-ingest/retry-failed": {},
    "/stages/shard-splitter/retry-failed": {},
    "/queues/shard-splitter/claim": {"worker_id": "worker-1"},
    "/queues/shard-splitter/heartbeat": TASK | {"lease_token": TOKEN},
}
"""Each call that changes something, with the least body that it takes."""


@pytest.fixture(scope="module")
def settled(served: Api) -> list[tuple[Any, ...]]:
    """What is in the database: a task in each stage, one of them claimed. No test of this file changes it."""
    for number, stage in enumerate(QUEUES):
        tasks.ready(served, stage, [number])
    tasks.claim(served, "shard-splitter", lease_seconds=86_400)
    return contents(served)


def contents(api: Api) -> list[tuple[Any, ...]]:
    return api.sql(
        "SELECT id, to_jsonb(task) FROM pipeline_tracking AS task"
        " UNION ALL SELECT id, to_jsonb(change) FROM pipeline_history AS change ORDER BY 1, 2"
    )


@pytest.fixture
def unchanged(served: Api, settled: list[tuple[Any, ...]]) -> Iterator[Api]:
    """A pipeline with a task in each stage; after the test nothing has moved."""
    yield served
    assert contents(served) == settled


# Bodies that are no JSON object

NO_OBJECTS = {
    "nothing": b"",
    "cut off": b'{"filename": "2025',
    "an array": b'[{"filename": "20250101000000"}]',
    "null": b"null",
    "a number": b"1",
    "a string": b'"20250101000000"',
    "a form": b"filename=20250101000000&shard=0",
    "two objects": b'{"filename": "20250101000000", "shard": 0} {}',
    "not UTF-8": b'{"filename": "\xff\xfe", "shard": 0}',
    "single quotes": b"{'filename': '20250101000000'}",
    "a NUL": b"\x00",
    "not a number": b'{"filename": "20250101000000", "shard": NaN, "shards": [NaN]}',
    "infinite": b'{"filename": "20250101000000", "shard": -Infinity, "limit": Infinity}',
    "deep arrays": b"[" * 30_000,
    "deep objects": b'{"a":' * 10_000,
    "deep and closed": b"[" * 30_000 + b"]" * 30_000,
}


@pytest.mark.parametrize("body", NO_OBJECTS.values(), ids=NO_OBJECTS)
@pytest.mark.parametrize("path", CALLS)
def test_a_body_that_is_no_json_object_is_refused(unchanged: Api, path: str, body: bytes) -> None:
    tasks.refused(unchanged.ask("POST", path, body), 400, "invalid_json")


@pytest.mark.parametrize("path", CALLS)
def test_a_member_nested_without_end_is_refused(unchanged: Api, path: str) -> None:
    body = b'{"unknown": ' + b"[" * 25_000 + b"]" * 25_000 + b"}"

    tasks.refused(unchanged.ask("POST", path, body), 400, "invalid_json")


@pytest.mark.parametrize("path", CALLS)
def test_a_number_of_ten_thousand_digits_is_refused(unchanged: Api, path: str) -> None:
    body = b'{"filename": "20250101000000", "shard": 1%s, "shards": [1%s], "limit": 1%s}' % (
        (b"0" * 10_000,) * 3
    )

    assert unchanged.ask("POST", path, body).status in (400, 422)


@pytest.mark.parametrize("path", CALLS)
def test_a_body_of_more_than_64_kib_is_refused(unchanged: Api, path: str) -> None:
    body = json.dumps(CALLS[path]).encode()

    answer = unchanged.ask("POST", path, body.ljust(MOST_BYTES + 1))

    assert (answer.status, answer.headers["Content-Type"]) == (413, "application/problem+json")
    assert answer.json()["status"] == 413


# Fields

FILENAMES: dict[str, Any] = {
    "absent": None, "empty": "", "a slash": "a/b", "a backslash": "a\\b", "a newline": "a\nb",
    "a newline at the end": "20250101000000\n", "a space": "a b", "a NUL": "a\x00", "not ASCII": "файл",
    "digits of another script": "٢٠٢٥", "256 characters": "a" * 256,
    "a percent sign": "%2e", "a number": 20250101000000, "a boolean": True, "an array": ["a"],
    "an object": {},
}  # fmt: skip
SHARD: dict[str, Any] = {
    "absent": None, "negative": -1, "too large": 32_768, "larger than any integer": 10**30, "a part": 0.5,
    "a string": "0", "a boolean": True, "an array": [0], "an object": {}, "nearly whole": 1.0000001,
}  # fmt: skip
SHARDS: dict[str, Any] = {
    "absent": None, "none": [], "1025": list(range(1025)), "a number": 0, "a string": "0",
    "an object": {"0": 0},
    **{f"one that is {name}": [1, shard] for name, shard in SHARD.items()},
}  # fmt: skip
LEASE_SECONDS = {
    "none": 0, "negative": -1, "more than a day": 86_401, "a part": 1.5, "a string": "60", "a boolean": True,
    "larger than any integer": 10**30, "an array": [60],
}  # fmt: skip
CODES = {
    "empty": "", "a space": "NO SPACE", "a newline at the end": "NO_SPACE\n", "101 characters": "a" * 101,
    "not ASCII": "НЕТ", "a NUL": "a\x00", "a number": 5, "a boolean": False,
    "an array": ["NO_SPACE"],
}  # fmt: skip
MESSAGES = {
    "4097 characters": "a" * 4097, "a NUL": "a\x00b", "a number": 5,
    "an object": {"a": 1},
}  # fmt: skip
NAMES = {"a NUL": "a\x00", "a number": 1, "a boolean": True, "an array": ["w"]}
TOKENS = {"a number": 5, "an array": [TOKEN], "a NUL": "\x00"}
LIMITS = {
    "none": 0, "negative": -1, "too many": 1001, "a part": 1.5, "a string": "1", "a boolean": True,
    "larger than any integer": 10**30,
}  # fmt: skip
FLAGS = {"a string": "true", "a number": 1, "an array": []}


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The values for a field that may be absent."""
    return {name: value for name, value in values.items() if value is not None}


FIELDS: list[tuple[str, dict[str, dict[str, Any]]]] = [
    ("/files/register", {"filename": FILENAMES, "shards": SHARDS}),
    ("/stages/event-ingest/done", {"filename": FILENAMES}),
    (
        "/stages/event-ingest/fail",
        {
            "filename": FILENAMES, "shard": given(SHARD), "error_code": CODES,
            "error_message": MESSAGES, "worker_id": NAMES,
        },
    ),
    (
        "/stages/shard-splitter/start",
        {
            "filename": FILENAMES, "shard": SHARD, "worker_id": NAMES, "lease_token": TOKENS,
            "lease_seconds": LEASE_SECONDS,
        },
    ),
    ("/stages/shard-splitter/done", {"filename": FILENAMES, "shard": SHARD, "lease_token": TOKENS}),
    (
        "/stages/shard-splitter/fail",
        {
            "filename": FILENAMES, "shard": SHARD, "lease_token": TOKENS, "error_code": CODES,
            "error_message": MESSAGES, "worker_id": NAMES,
        },
    ),
    ("/stages/shard-splitter/retry", {"filename": FILENAMES, "shard": SHARD}),
    (
        "/stages/shard-splitter/retry-failed",
        {
            "filename": given(FILENAMES), "shard": given(SHARD), "error_code": CODES, "limit": LIMITS,
            "dry_run": FLAGS,
        },
    ),
    (
        "/queues/shard-splitter/claim",
        {
            "worker_id": NAMES | {"absent": None, "empty": ""}, "limit": LIMITS,
            "lease_seconds": LEASE_SECONDS,
        },
    ),
    (
        "/queues/shard-splitter/heartbeat",
        {
            "filename": FILENAMES, "shard": SHARD, "lease_token": TOKENS | {"absent": None},
            "lease_seconds": LEASE_SECONDS,
        },
    ),
]  # fmt: skip
"""What each field may not be, call by call."""


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        pytest.param(path, field, value, id=f"{path} {field} {name}")
        for path, fields in FIELDS
        for field, values in fields.items()
        for name, value in values.items()
    ],
)
def test_a_field_that_is_not_as_it_should_be_is_refused(
    unchanged: Api, path: str, field: str, value: Any
) -> None:
    problem = tasks.refused(
        unchanged.ask("POST", path, CALLS.get(path, TASK) | {field: value}), 422, "invalid_request"
    )

    assert field in problem["detail"]


TEXTS = {"filename", "worker_id", "lease_token", "error_code", "error_message"}


@pytest.mark.parametrize(
    ("path", "field"), [(path, field) for path, fields in FIELDS for field in fields if field in TEXTS]
)
def test_half_a_character_is_refused(unchanged: Api, path: str, field: str) -> None:
    """JSON can write it and it is no text, so that the body may be refused as well as its field."""
    answer = unchanged.ask("POST", path, CALLS.get(path, TASK) | {field: "a\ud800"})

    code = {400: "invalid_json", 422: "invalid_request"}.get(answer.status, "none of them")
    tasks.refused(answer, answer.status, code)


@pytest.mark.parametrize("path", CALLS)
def test_a_field_that_is_not_there_is_as_one_that_is_null(unchanged: Api, path: str) -> None:
    for field in CALLS[path]:
        without = {name: value for name, value in CALLS[path].items() if name != field}

        absent, null = (unchanged.ask("POST", path, body) for body in (without, without | {field: None}))

        assert (absent.status, absent.data) == (null.status, null.data)
        tasks.refused(absent, 422, "invalid_request")


# Queries

NUMBERS = ("0", "-1", "1001", "x", "1.5", "1e3", "true", "9" * 40, "\x00", "1 2")
TIMES = (
    "yesterday",
    "2025-13-01T00:00:00Z",
    "2025-02-30T00:00:00Z",
    "2025-01-01T25:00:00Z",
    "\x00",
    "9" * 40,
)
CURSORS = ("x\x00", "~", "a/b", "'; DROP TABLE pipeline_tracking; --", "\ud83d", "-1~", "9" * 400)
QUERIES: list[tuple[str, dict[str, tuple[str, ...]]]] = [
    (
        "/queues/shard-splitter",
        {
            "limit": NUMBERS,
            "offset": ("-1", "x", "1.5", "9" * 40),
            "updated_from": TIMES,
            "updated_to": TIMES,
            "cursor": (*CURSORS, "1", "2025-01-01T00:00:00Z~x", "x~1", f"2025-01-01T00:00:00Z~{'9' * 40}"),
        },
    ),
    ("/files", {"limit": NUMBERS, "status": ("open", "NEW", "new\n", "\x00"), "cursor": CURSORS[:5]}),
    (f"/files/{FILE}", {"details": ("maybe", "2", "\x00")}),
    (f"/files/{FILE}/history", {"limit": NUMBERS, "shard": ("-1", "32768", "x"), "cursor": (*CURSORS, "x")}),
    (
        "/tasks",
        {
            "limit": NUMBERS, "stage": ("shard_worker", "x", "\x00"), "shard": ("-1", "32768", "x", "0.5"),
            "filename": ("a/b", "a\n", "\x00", "a" * 256), "updated_from": TIMES, "updated_to": TIMES,
            "cursor": (*CURSORS, "x"),
        },
    ),
    ("/tasks?stage=shard-worker", {"status": ("open", "\x00"), "error_code": ("a b", "\x00", "a" * 101)}),
    (
        "/stuck",
        {"stage": ("shard_worker", "x"), "older_than_seconds": ("-1", "x", "9" * 40), "limit": NUMBERS},
    ),
    ("/events", {"stage": ("x", "\x00"), "filename": ("a/b", "a\n", "\x00")}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "parameter", "value"),
    [
        pytest.param(path, parameter, value, id=f"{path} {parameter} {ascii(value)[:50]}")
        for path, parameters in QUERIES
        for parameter, values in parameters.items()
        for value in values
    ],
)
def test_a_query_that_is_not_as_it_should_be_is_refused(
    unchanged: Api, path: str, parameter: str, value: str
) -> None:
    query = urllib.parse.urlencode({parameter: value}, errors="surrogatepass")

    answer = unchanged.ask("GET", f"{path}{'&' if '?' in path else '?'}{query}")

    tasks.refused(answer, 422, "invalid_request")


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/queues/shard-splitter", "limit"),
        ("/queues/shard-splitter", "updated_from"),
        ("/stuck", "stage"),
        ("/events", "filename"),
        ("/queues/shard-splitter", "cursor"),
        ("/files", "cursor"),
        (f"/files/{FILE}/history", "cursor"),
        ("/tasks", "cursor"),
    ],
)
def test_a_refusal_names_the_parameter_that_was_sent(unchanged: Api, path: str, parameter: str) -> None:
    answer = unchanged.ask("GET", f"{path}?{parameter}=~")

    assert parameter in tasks.refused(answer, 422, "invalid_request")["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/queues/shard-splitter?updated_from=0001-01-01T00:00:00%2B14:00",
        "/queues/shard-splitter?updated_to=9999-12-31T23:59:59-14:00",
        "/queues/shard-splitter?offset=9223372036854775807",
        "/tasks?updated_from=0001-01-01T00:00:00%2B14:00",
        "/tasks?filename=%ff%fe",
        "/tasks?cursor=9223372036854775807",
        "/tasks?cursor=9223372036854775808",
        "/files?cursor=%ff",
        f"/files/{FILE}/history?cursor=9223372036854775808",
        "/stuck?older_than_seconds=9223372036854775807",
        "/stuck?older_than_seconds=0",
        "/files/%ff",
        "/files/%00",
        "/files/%00/history",
        "/files/a%0A",
        "/files/" + "a" * 5000,
        "/files/%2e%2e%2fetc",
        "/queues/shard-splitter?" + "limit=1&" * 500,
        "/metrics/summary?%00=%00",
    ],
)
def test_hostile_addresses_break_nothing(unchanged: Api, path: str) -> None:
    answer = unchanged.ask("GET", path)

    assert answer.status < 500, answer.data
    if answer.status != 200:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status


# Addresses and methods


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/stages/shard-merger/start"),
        ("POST", "/stages/shard_worker/start"),
        ("POST", "/stages/SHARD-WORKER/start"),
        ("POST", "/stages/shard-worker/finish"),
        ("POST", "/stages/shard-worker/started"),
        ("POST", "/stages/event-ingest/start"),
        ("POST", "/stages/shard-merger/retry-failed"),
        ("GET", "/queues/shard-merger"),
        ("GET", "/queues/event-ingest"),
        ("POST", "/queues/event-ingest/claim"),
        ("POST", "/queues/event-ingest/heartbeat"),
        ("POST", "/queues/shard-merger/claim"),
        ("POST", "/queues/shard-worker/take"),
        ("GET", "/files/a/b"),
        ("GET", "/nothing"),
        ("GET", ""),
    ],
)
def test_an_address_that_is_none_is_not_found(unchanged: Api, method: str, path: str) -> None:
    body = TASK | {"worker_id": "worker-1", "lease_token": TOKEN} if method == "POST" else None

    tasks.refused(unchanged.ask(method, path, body), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (method, path)
        for method in ("GET", "PUT", "DELETE", "PATCH")
        for path in CALLS
        if (method, path) != ("GET", "/files/register")  # reads the file of this name
    ],
)
def test_a_call_is_made_with_post_alone(unchanged: Api, method: str, path: str) -> None:
    answer = unchanged.ask(method, path, CALLS[path])

    tasks.refused(answer, 405, "method_not_allowed")
    assert "POST" in answer.headers["Allow"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "path",
    [
        "/queues/shard-worker", "/files", f"/files/{FILE}", f"/files/{FILE}/history", "/tasks", "/stuck",
        "/metrics/summary", "/metrics", "/events",
    ],
)  # fmt: skip
def test_what_is_read_is_read_with_get_alone(unchanged: Api, method: str, path: str) -> None:
    answer = unchanged.ask(method, path, {})

    tasks.refused(answer, 405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"]


# -- bodies that do not say how long they are


def chunked(api: Api, content: bytes) -> int:
    """The status of the answer to a body that is sent in chunks."""
    place = urllib.parse.urlsplit(api.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=30)
    with contextlib.closing(connection):
        connection.request(
            "POST", f"{place.path}/files/register", iter([content]), {"Content-Type": "application/json"},
            encode_chunked=True,
        )  # fmt: skip
        return connection.getresponse().status


REGISTER = b'{"filename": "late", "shards": [0]}'


@pytest.mark.parametrize(("size", "status"), [(len(REGISTER), 200), (64 << 10, 200), ((64 << 10) + 1, 413)])
def test_a_body_without_a_length_is_whole_or_refused(pipeline: Api, size: int, status: int) -> None:
    assert chunked(pipeline, REGISTER.ljust(size)) == status
    assert len(pipeline.sql("SELECT id FROM pipeline_tracking")) == (status == 200)


def test_a_body_without_a_length_is_not_read_as_its_beginning(pipeline: Api) -> None:
    assert chunked(pipeline, REGISTER.ljust(65 << 10) + b"and more") == 413
