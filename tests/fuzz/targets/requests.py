"""What a request to the web may say: multipart with its names, JSON, queries, cursors, bodies of daemons."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import flask
import werkzeug.exceptions

from app import web
from app.access import headers as access_headers
from app.kernel import errors
from app.pipeline import requests as pipeline
from app.uploads import intake, parameters, views
from app.uploads.reading import cells
from tests.fuzz.target import Target

BOUNDARY = b"b0undary"
FORM = f"multipart/form-data; boundary={BOUNDARY.decode()}"
WORKSPACE = "8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b10"
APP = flask.Flask("fuzz")
APP.config["MAX_CONTENT_LENGTH"] = 64 * 1024
BODIES = (
    pipeline.Register, pipeline.MoveIngest, pipeline.FinishIngest, pipeline.Transition, pipeline.Start,
    pipeline.Claim,
    pipeline.Heartbeat, pipeline.RetryFailed,
)  # fmt: skip
QUERIES = (
    pipeline.QueueQuery, pipeline.FilesQuery, pipeline.FileQuery, pipeline.HistoryQuery, pipeline.TasksQuery,
    pipeline.StuckQuery, pipeline.AskedRetry, pipeline.FollowQuery,
)  # fmt: skip


def _request(fields: Mapping[str, Any]) -> None:
    made = parameters.upload_request(fields, who="key x")
    assert isinstance(made, intake.Request)
    for text in (made.filename, made.platform, made.currency):
        assert text is None or cells.storable(text)
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in made.filename or "")


def _multipart(data: bytes) -> None:
    with APP.test_request_context(method="POST", data=data, content_type=FORM):
        file = flask.request.files.get("file")
        fields: dict[str, Any] = {name: flask.request.form.get(name) for name in views.FIELDS}
        if file is not None:
            fields["filename"] = fields["filename"] or file.filename
            assert len(file.stream.read()) <= len(data)
        _request(fields)


def _json(data: bytes) -> None:
    body = io.BytesIO(data)
    fields = views._json_fields(body)
    assert body.tell() == 0
    _request(fields)
    parameters.flag(fields, "dry_run")


def _query(data: bytes) -> None:
    with APP.test_request_context("/", environ_overrides={"QUERY_STRING": data.decode("latin-1")}):
        web._read_address()
        given = flask.request.args
        checks: tuple[Callable[[], Any], ...] = (
            lambda: parameters.uuid(given, "client_id"),
            lambda: parameters.platform(given),
            lambda: parameters.status(given),
            lambda: parameters.time(given, "from"),
            lambda: parameters.instant(given, "from"),
            lambda: parameters.day(given, "from", days=1),
            lambda: parameters.from_row_cursor(given.get("cursor")),
            lambda: parameters.from_number_cursor(given.get("cursor")),
        )
        for one in checks:
            _refused(one)
        _refused(lambda: _cursors(given.get("cursor")))
        for kind in QUERIES:
            _refused(lambda kind=kind: pipeline.query(kind, given.to_dict()))  # type: ignore[misc]


def _cursors(text: str | None) -> None:
    at = parameters.from_cursor(text)
    if at is not None:
        assert at.tzinfo is not None and parameters.from_cursor(parameters.to_cursor(at)) == at
    place = parameters.from_place_cursor(text)
    if place is not None:
        assert isinstance(place[0], datetime) and isinstance(place[1], UUID)
        assert parameters.from_place_cursor(parameters.to_place_cursor(*place)) == place


def _daemon(data: bytes) -> None:
    for kind in BODIES:
        _refused(lambda kind=kind: pipeline.body(kind, data))  # type: ignore[misc]


def _refused(do: Callable[[], Any]) -> None:
    """It is done, or refused with a code and a sentence."""
    try:
        do()
    except errors.Refused as refusal:
        assert refusal.code and refusal.sentence
        refusal.sentence.encode("utf-8", "surrogatepass")
    except werkzeug.exceptions.HTTPException as refusal:
        assert refusal.code in (400, 413)


KINDS = (_multipart, _json, _query, _daemon)


def check(data: bytes) -> None:
    """The first byte chooses how the rest comes in."""
    if data:
        _refused(lambda: KINDS[data[0] % len(KINDS)](data[1:]))
        assert access_headers.of_answer(https=True, kept=False)


def part(name: bytes, content: bytes, more: bytes = b"") -> bytes:
    """One part of a form."""
    head = b'Content-Disposition: form-data; name="' + name + b'"' + more
    return b"--" + BOUNDARY + b"\r\n" + head + b"\r\n\r\n" + content + b"\r\n"


def seeds() -> Iterator[bytes]:
    """One request of each kind, and file names of several spellings."""
    end = b"--" + BOUNDARY + b"--\r\n"
    workspace = part(b"workspace_id", WORKSPACE.encode()) + part(b"platform", b"meta")
    for name in (
        b'; filename="report.csv"', b"; filename*=UTF-8''%e2%82%ac.csv", b'; filename="../../x\x00.csv"',
        b'; filename="\r\n"',
        b"; filename=a\\b", b'; filename="\xe2\x80\xaegpj.csv"',
    ):  # fmt: skip
        yield b"\x00" + workspace + part(b"file", b"Day,Cost\n", name) + end
    yield b"\x01" + f'{{"workspace_id":"{WORKSPACE}","platform":"google","rows":[{{"a":1}}]}}'.encode()
    yield b"\x02client_id=" + WORKSPACE.encode() + b"&platform=meta&status=failed&from=2026-01-01&cursor=5"
    at = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    yield b"\x02cursor=" + parameters.to_place_cursor(at, UUID(WORKSPACE)).encode()
    yield b"\x02limit=5&offset=0&cursor=2026-01-01T00:00:00Z~5&shard=1&details=true"
    yield b'\x03{"filename":"a.csv","shards":[1,2.0],"shard":1,"worker_id":"w","limit":1,"lease_token":"' + (
        WORKSPACE.encode() + b'"}'
    )


TARGET = Target(
    check,
    seeds,
    words=(
        b"--" + BOUNDARY, b"\r\n\r\n", b"Content-Disposition: form-data; ", b'name="', b'filename="',
        b"filename*=", b"UTF-8''",
        b"%00", b"%0d%0a", b"Content-Type: ", b"Content-Transfer-Encoding: base64", b"workspace_id",
        b"platform", b"force_partial",
        b"\xe2\x80\xae", b"../", b"\\u0000", b"\\ud800", b"cursor=", b"from=", b"&", b"+99:99",
        b"0001-01-01", b"9999-12-31",
        b"filename", b"shards", b"shard", b"worker_id", b"lease_token", b"error_message", b"1e400", b"-1",
        b"NaN",
    ),
    most_bytes=4096,
)  # fmt: skip
