"""The HTTP API as its clients see it: a real server, real requests, and every refusal in words."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import patience
from tests.acceptance.conftest import ROOT, Api, Problem, RunningFleet, multipart
from tests.conftest import KEY, SECRET, Servers
from tests.integration.threads import at_once

HEADER = "Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD)"
GOOD = f"{HEADER}\n2025-05-01,Spring,101,100,10,1.50\n2025-05-02,Summer,102,200,20,2.50\n".encode()
MB = 1 << 20


@pytest.fixture
def workspace() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def api(fleet: RunningFleet) -> Api:
    return fleet.api


def post(
    api: Api, content: bytes = GOOD, *, headers: dict[str, str] | None = None, **fields: str | None
) -> Any:
    """Status, headers and decoded body of an upload."""
    body, content_type = multipart(content, {"platform": "meta", "source": "manual", **fields})
    status, answered, text = api.send("/v1/uploads", body, {"Content-Type": content_type, **(headers or {})})
    return status, answered, json.loads(text)


def curl(*arguments: str, cwd: Path = ROOT) -> str:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return subprocess.run(
        ["curl", "--silent", "--show-error", "--noproxy", "*", *arguments],
        cwd=cwd,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


# -- handing in


def test_the_call_of_the_readme_works_as_it_stands(fleet: RunningFleet) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(r"^curl (?:.*\\\n)*.*/v1/uploads\"$", text, re.MULTILINE)
    assert match is not None
    env = {**fleet.env, "no_proxy": "*"}
    done = subprocess.run(
        ["bash", "-c", match[0]], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["status"] == "pending"
    assert fleet.api.finished(answer["upload_id"])["status"] == "completed"


def test_an_upload_is_created_and_its_location_leads_to_it(api: Api, workspace: str) -> None:
    status, headers, answer = post(api, workspace_id=workspace, filename="may.csv")
    assert (status, answer["status"], answer["duplicate_of"]) == (201, "pending", None)
    assert f"/v1/uploads/{answer['upload_id']}" == headers["Location"]
    shown = api.get(headers["Location"])
    assert (answer["upload_id"], workspace, "meta", "manual", "may.csv") == tuple(
        shown[name] for name in ("upload_id", "workspace_id", "platform", "source", "filename")
    )


def test_the_end_of_an_upload_is_told_in_full(api: Api, workspace: str) -> None:
    _, _, answer = post(api, workspace_id=workspace)
    upload = api.finished(answer["upload_id"])
    assert tuple(
        upload[name] for name in ("status", "error_code", "row_count", "promoted_rows", "failed_rows")
    ) == ("completed", None, 2, 2, 0)
    assert upload["upserted"] == {"campaigns": 2, "ad_sets": 0, "ads": 0, "daily_metrics": 2}
    assert upload["affected_dates"] == ["2025-05-01", "2025-05-02"]
    moves = [(step["from"], step["to"]) for step in upload["history"] if step["to"] != step["from"]]
    assert moves[:5] == [
        (None, "pending"),
        ("pending", "processing"),
        ("processing", "staging_complete"),
        ("staging_complete", "promoting"),
        ("promoting", "completed"),
    ]


def test_the_same_bytes_are_taken_and_named_a_duplicate(api: Api, workspace: str) -> None:
    _, _, first = post(api, workspace_id=workspace)
    status, _, again = post(api, workspace_id=workspace)
    assert (201, first["upload_id"]) == (status, again["duplicate_of"])
    assert first["upload_id"] == api.get(f"/v1/uploads/{again['upload_id']}")["duplicate_of"]
    others = [
        post(api, workspace_id=workspace, client_id=str(uuid.uuid4())),  # of another client
        post(api, workspace_id=workspace, platform="tiktok"),
        post(api, workspace_id=str(uuid.uuid4())),
        post(api, GOOD + b"\n", workspace_id=workspace),
    ]
    assert [answer["duplicate_of"] for _, _, answer in others] == [None] * 4


def test_a_request_with_the_same_key_is_one_upload(api: Api, workspace: str) -> None:
    headers = {"Idempotency-Key": "may, once"}
    _, _, first = post(api, workspace_id=workspace, headers=headers)
    status, answered, again = post(api, workspace_id=workspace, headers=headers)
    assert (200, first["upload_id"]) == (status, again["upload_id"])
    assert f"/v1/uploads/{first['upload_id']}" == answered["Location"]
    _, _, elsewhere = post(api, workspace_id=str(uuid.uuid4()), headers=headers)
    assert elsewhere["upload_id"] != first["upload_id"]
    assert len(api.get("/v1/uploads", workspace_id=workspace)["uploads"]) == 1


def test_requests_with_the_same_key_at_once_are_one_upload(api: Api, workspace: str) -> None:
    headers = {"Idempotency-Key": "at once"}
    answers = at_once(*[lambda: post(api, workspace_id=workspace, headers=headers)] * 6)
    assert len({answer["upload_id"] for _, _, answer in answers}) == 1
    assert sorted(status for status, _, _ in answers) == [200] * 5 + [201]
    (only,) = api.get("/v1/uploads", workspace_id=workspace)["uploads"]
    assert api.finished(only["upload_id"])["status"] == "completed"


def test_the_file_comes_back_as_it_was_handed_in(api: Api, workspace: str) -> None:
    _, _, answer = post(api, workspace_id=workspace)
    status, headers, content = api.send(f"/v1/uploads/{answer['upload_id']}/file")
    assert (status, content) == (200, GOOD)
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize("source", ["api", "webhook"])
def test_a_system_sends_rows_as_a_json_body(source: str, api: Api, workspace: str) -> None:
    row = {
        "date_start": "2025-05-01",
        "date_stop": "2025-05-01",
        "campaign_id": "101",
        "campaign_name": "Spring",
        "impressions": "100",
        "clicks": "10",
        "spend": "1.50",
        "account_currency": "USD",
    }
    answer = api.post_json(
        "/v1/uploads",
        {"workspace_id": workspace, "platform": "meta", "source": source, "rows": [row]},
    )
    upload = api.finished(answer["upload_id"])
    assert ("completed", source, 1) == (upload["status"], upload["source"], upload["row_count"])
    (day,) = api.get("/v1/performance", workspace_id=workspace)["rows"]
    assert tuple(day[name] for name in ("day", "currency", "spend", "impressions")) == (
        "2025-05-01",
        "USD",
        "1.500000",
        100,
    )


# -- size


LIMIT = 50 * MB


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Makes a file of just so many bytes that is soon known to be no report."""
    folder = tmp_path_factory.mktemp("large")
    line = b",".join([b"abcdefgh"] * 113) + b"\n"

    def make(size: int) -> Path:
        path = folder / str(size)
        with path.open("wb") as file:
            for _ in range(size // len(line)):
                file.write(line)
            file.write(b"x" * (size % len(line)))
        assert size == path.stat().st_size
        return path

    return make


def upload_with_curl(fleet: RunningFleet, path: Path, workspace: str) -> tuple[int, str, Any]:
    """Status, content type and decoded body."""
    said = curl(
        *("-H", f"Authorization: Bearer {KEY}", "-F", f"workspace_id={workspace}", "-F", "platform=meta"),
        *("-F", "source=manual", "-F", f"file=@{path}", "-w", "\n%{http_code} %{content_type}"),
        f"{fleet.api.url}/v1/uploads",
    )
    body, _, end = said.rpartition("\n")
    status, _, content_type = end.partition(" ")
    return int(status), content_type, json.loads(body)


def web_memory_kib(fleet: RunningFleet) -> int:
    """The most memory that any process of the web server ever held."""
    bind = fleet.env["HEADWORKS_BIND"]
    most = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if bind in (folder / "cmdline").read_text() and "gunicorn" in (folder / "cmdline").read_text():
                status = (folder / "status").read_text()
                most = max(most, int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]))  # type: ignore[index]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return most


def test_a_file_of_just_the_limit_is_taken_without_being_held_in_memory(
    fleet: RunningFleet, workspace: str, large_file: Callable[[int], Path]
) -> None:
    before = web_memory_kib(fleet)
    status, _, answer = upload_with_curl(fleet, large_file(LIMIT), workspace)
    assert (status, answer["status"]) == (201, "pending")
    assert web_memory_kib(fleet) - before < 24 * 1024
    assert fleet.api.finished(answer["upload_id"])["status"] == "failed"


@pytest.mark.parametrize("over", [1, 4 * MB], ids=["one byte", "four megabytes"])
def test_a_file_over_the_limit_is_refused(
    over: int, fleet: RunningFleet, workspace: str, large_file: Callable[[int], Path]
) -> None:
    status, content_type, body = upload_with_curl(fleet, large_file(LIMIT + over), workspace)
    assert (status, content_type, body["code"]) == (413, "application/problem+json", "file_too_large")
    assert "50 MB" in body["detail"]
    assert fleet.api.get("/v1/uploads", workspace_id=workspace)["uploads"] == []


def test_a_json_body_over_the_limit_is_refused(fleet: RunningFleet, workspace: str, tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    with path.open("wb") as file:
        file.write(b'{"workspace_id":"' + workspace.encode() + b'","platform":"meta","rows":["')
        for _ in range(50):
            file.write(b"x" * MB)
        file.write(b'"]}')
    said = curl(
        *("-H", f"Authorization: Bearer {KEY}", "-H", "Content-Type: application/json"),
        *("--data-binary", f"@{path}", "-w", "\n%{http_code}", f"{fleet.api.url}/v1/uploads"),
    )
    body, _, status = said.rpartition("\n")
    assert (int(status), json.loads(body)["code"]) == (413, "file_too_large")


# -- refusals


def refusal(call: Callable[[], Any]) -> Problem:
    """The problem that the call is answered with, which is told as every problem is."""
    with pytest.raises(Problem) as raised:
        call()
    problem = raised.value
    assert problem.headers["Content-Type"] == "application/problem+json"
    assert problem.status == problem.body["status"]
    assert {"type", "title", "status", "code", "detail"} <= set(problem.body)
    sentence = problem.body["detail"]
    assert len(sentence.split()) >= 4 and (sentence[0].isupper() or sentence[0] in "`'"), sentence
    assert sentence.rstrip().endswith((".", ")")), sentence
    return problem


PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"
XLSX = b"PK\x03\x04\x14\x00\x06\x00\x08\x00[Content_Types].xml" + b"\x00" * 40 + b"xl/workbook.xml"
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
HTML = b"<!DOCTYPE html><html><body>Sign in</body></html>"
FIELDS: list[tuple[dict[str, Any], int, str, str]] = [
    # what is sent                                  status  code                  and the sentence names
    ({"workspace_id": "not-a-uuid"}, 422, "invalid_workspace_id", "workspace_id"),
    ({"workspace_id": None}, 422, "invalid_workspace_id", "workspace_id"),
    ({"client_id": "7"}, 422, "invalid_client_id", "client_id"),
    ({"created_by": "me"}, 422, "invalid_created_by", "created_by"),
    ({"platform": "bing"}, 422, "invalid_platform", "tiktok"),
    ({"platform": None}, 422, "invalid_platform", "tiktok"),
    ({"platform": "Meta\x00"}, 422, "invalid_platform", "tiktok"),
    ({"source": "fax"}, 422, "invalid_source", "webhook"),
    ({"currency": "DOLLARS"}, 422, "invalid_currency", "USD"),
    ({"date_order": "ymd"}, 422, "invalid_date_order", "dmy"),
    ({"decimal_mark": ";"}, 422, "invalid_decimal_mark", "comma"),
    ({"filename": "a\x00b"}, 422, "invalid_request", "character"),
    ({"content": b""}, 422, "empty_file", "empty"),
    ({"content": b"\xef\xbb\xbf \n"}, 422, "empty_file", "empty"),
    ({"content": PDF}, 415, "unsupported_format", "PDF"),
    ({"content": XLSX}, 415, "unsupported_format", "CSV"),
    ({"content": PNG}, 415, "unsupported_format", "PNG"),
    ({"content": HTML}, 415, "unsupported_format", "web page"),
]


@pytest.mark.parametrize(("sent", "status", "code", "named"), FIELDS)
def test_an_upload_that_cannot_be_taken_is_refused_in_words(
    sent: dict[str, Any], status: int, code: str, named: str, api: Api, workspace: str
) -> None:
    fields = {"workspace_id": workspace, **sent}
    content = fields.pop("content", GOOD)
    problem = refusal(lambda: post(api, content, **fields))
    assert (status, code) == (problem.status, problem.body["code"])
    assert named in problem.body["detail"]
    assert api.get("/v1/uploads", workspace_id=workspace)["uploads"] == []


def test_an_upload_without_a_file_is_refused(api: Api, workspace: str) -> None:
    form = urllib.parse.urlencode({"workspace_id": workspace, "platform": "meta"}).encode()
    problem = refusal(lambda: api.send("/v1/uploads", form))
    assert (problem.status, problem.body["code"]) == (422, "file_missing")


JSON_BODIES: list[tuple[bytes, str]] = [
    # the body (W is the workspace)                                        code
    (b"{", "malformed_json"),
    (b"[]", "invalid_workspace_id"),
    (b'"text"', "invalid_workspace_id"),
    (b"", "malformed_json"),
    (b'{"workspace_id": 5, "platform": "meta", "rows": []}', "invalid_workspace_id"),
    (b'{"workspace_id": "W", "platform": 5, "rows": []}', "invalid_platform"),
    (b'{"workspace_id": "W", "platform": "meta", "source": "manual", "rows": []}', "file_missing"),
    (b'{"workspace_id": "W", "platform": "meta", "currency": 5, "rows": []}', "invalid_currency"),
    (b'{"workspace_id": "W", "platform": "meta", "client_id": true, "rows": []}', "invalid_client_id"),
    (b'{"workspace_id": "W", "platform": "meta", "currency": [null, null], "rows": []}', "invalid_currency"),
    (b'{"workspace_id": "W", "platform": "meta", "dry_run": "ture", "rows": []}', "invalid_dry_run"),
    (b'{"workspace_id": "W", "platform": "meta", "rows": {}}', "malformed_json"),
    (b'{"workspace_id": "W", "platform": "meta", "client_id": 0, "rows": []}', "invalid_client_id"),
]


@pytest.mark.parametrize(("body", "code"), JSON_BODIES)
def test_a_json_body_that_cannot_be_taken_is_refused_in_words(
    body: bytes, code: str, api: Api, workspace: str
) -> None:
    sent = body.replace(b"W", workspace.encode())
    problem = refusal(lambda: api.send("/v1/uploads", sent, {"Content-Type": "application/json"}))
    assert (422, code) == (problem.status, problem.body["code"])


@pytest.mark.parametrize("key", ["", " ", "k" * 201])
def test_an_idempotency_key_that_cannot_be_kept_is_refused(key: str, api: Api, workspace: str) -> None:
    problem = refusal(lambda: post(api, workspace_id=workspace, headers={"Idempotency-Key": key}))
    assert (problem.status, problem.body["code"]) == (422, "invalid_request")
    assert "Idempotency-Key" in problem.body["detail"]


UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer wrong", "Bearer ", "Basic " + KEY, KEY, "Bearer " + KEY + "x", "Bearer \xe9"],
)
@pytest.mark.parametrize("path", ["/v1/uploads", f"/v1/uploads/{UNKNOWN}", "/v1/performance", "/v1/nothing"])
def test_without_its_key_nothing_is_answered(path: str, authorization: str | None, api: Api) -> None:
    stranger = Api(api.url, key="")
    headers = {"Authorization": authorization} if authorization is not None else {}
    problem = refusal(lambda: stranger.send(path, headers=headers))
    assert (problem.status, problem.body["code"]) == (401, "unauthorized")
    assert problem.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["", "/errors", "/errors.csv", "/file"])
@pytest.mark.parametrize("upload_id", [UNKNOWN, "7", "not-a-uuid"])
def test_an_unknown_upload_is_not_found(upload_id: str, path: str, api: Api) -> None:
    problem = refusal(lambda: api.get(f"/v1/uploads/{upload_id}{path}"))
    assert (problem.status, problem.body["code"]) == (404, "not_found")


def test_an_unknown_upload_cannot_be_requeued(api: Api) -> None:
    problem = refusal(lambda: api.post_json(f"/v1/uploads/{UNKNOWN}/requeue", {"reason": "why not"}))
    assert (problem.status, problem.body["code"]) == (404, "not_found")


@pytest.mark.parametrize("body", [[], ["reason"], "reason", {}, {"reason": ""}, {"reason": None}, 5])
def test_a_requeue_without_a_reason_is_refused(body: Any, api: Api, workspace: str) -> None:
    _, _, answer = post(api, workspace_id=workspace)
    problem = refusal(lambda: api.post_json(f"/v1/uploads/{answer['upload_id']}/requeue", body))
    assert (problem.status, "reason" in problem.body["detail"]) == (422, True)


METHODS = [
    # method, path, allowed
    ("DELETE", "/v1/uploads", {"GET", "HEAD", "OPTIONS", "POST"}),
    ("PUT", f"/v1/uploads/{UNKNOWN}", {"GET", "HEAD", "OPTIONS"}),
    ("POST", "/v1/performance", {"GET", "HEAD", "OPTIONS"}),
    ("GET", f"/v1/uploads/{UNKNOWN}/requeue", {"OPTIONS", "POST"}),
]


@pytest.mark.parametrize(("method", "path", "allowed"), METHODS)
def test_a_wrong_method_is_refused_with_the_right_ones(
    method: str, path: str, allowed: set[str], api: Api
) -> None:
    request = urllib.request.Request(api.url + path, method=method, data=b"" if method != "GET" else None)
    request.add_header("Authorization", f"Bearer {KEY}")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=10)
    with raised.value as error:
        assert (error.code, error.headers["Content-Type"]) == (405, "application/problem+json")
        assert json.loads(error.read())["code"] == "method_not_allowed"
        assert allowed == set((error.headers["Allow"] or "").split(", "))


QUERIES = [
    # path, query, code (None: whatever says it best)
    ("/v1/uploads", {}, "invalid_workspace_id"),
    ("/v1/uploads", {"workspace_id": "x"}, "invalid_workspace_id"),
    ("/v1/uploads", {"workspace_id": UNKNOWN, "client_id": "x"}, "invalid_client_id"),
    ("/v1/uploads", {"workspace_id": UNKNOWN, "status": "lost"}, "invalid_status"),
    ("/v1/uploads", {"workspace_id": UNKNOWN, "from": "yesterday"}, "invalid_request"),
    ("/v1/uploads", {"workspace_id": UNKNOWN, "to": "2025-13-01"}, "invalid_request"),
    ("/v1/uploads", {"workspace_id": UNKNOWN, "cursor": "x"}, "invalid_cursor"),
    ("/v1/uploads", {"workspace_id": UNKNOWN, "cursor": "é"}, "invalid_cursor"),
    ("/v1/uploads", {"workspace_id": UNKNOWN, "platform": "a\x00"}, None),
    ("/v1/performance", {}, "invalid_workspace_id"),
    ("/v1/performance", {"workspace_id": UNKNOWN, "by": "banana"}, "invalid_request"),
    ("/v1/performance", {"workspace_id": UNKNOWN, "from": "x"}, "invalid_request"),
    ("/v1/performance", {"workspace_id": UNKNOWN, "platform": "a\x00"}, None),
]


@pytest.mark.parametrize(("path", "query", "code"), QUERIES)
def test_a_question_that_cannot_be_answered_is_refused_in_words(
    path: str, query: dict[str, str], code: str | None, api: Api
) -> None:
    problem = refusal(lambda: api.get(path, **query))
    assert (422, code or problem.body["code"]) == (problem.status, problem.body["code"])


def test_a_cursor_of_rejected_rows_is_checked(api: Api, workspace: str) -> None:
    _, _, answer = post(api, workspace_id=workspace)
    for cursor in ("x", "-1", "99999999999", "1.5"):
        problem = refusal(lambda c=cursor: api.get(f"/v1/uploads/{answer['upload_id']}/errors", cursor=c))
        assert (problem.status, problem.body["code"]) == (422, "invalid_cursor")


def test_an_unknown_path_is_not_found(api: Api) -> None:
    problem = refusal(lambda: api.get("/v1/nothing"))
    assert (problem.status, problem.body["code"]) == (404, "not_found")


# -- lists


@pytest.fixture
def many(fleet: RunningFleet, servers: Servers, workspace: str) -> list[str]:
    """205 uploads of one workspace, one a minute; their ids, newest first."""
    servers.sql(f"INSERT INTO workspaces (id) VALUES ('{workspace}')", dsn=fleet.dsn)
    servers.sql(
        "INSERT INTO data_uploads (id, workspace_id, client_id, platform, source, status, error_code,"
        " finished_at, created_at)"
        f" SELECT gen_random_uuid(), '{workspace}',"
        " CASE WHEN n % 2 = 0 THEN '11111111-1111-4111-8111-111111111111'::uuid END,"
        " CASE WHEN n % 5 = 0 THEN 'google' ELSE 'meta' END, 'manual',"
        " CASE WHEN n % 3 = 0 THEN 'failed' ELSE 'completed' END,"
        " CASE WHEN n % 3 = 0 THEN 'malformed_file' END, now(),"
        " timestamptz '2025-05-01 00:00+00' + n * interval '1 minute' FROM generate_series(0, 204) n",
        dsn=fleet.dsn,
    )
    found = servers.sql(
        f"SELECT id::text FROM data_uploads WHERE workspace_id = '{workspace}' ORDER BY created_at DESC",
        dsn=fleet.dsn,
    )
    return [upload_id for (upload_id,) in found]


def pages(api: Api, path: str, member: str, **query: str) -> Iterator[list[Any]]:
    cursor: dict[str, str] = {}
    while True:
        page = api.get(path, **query, **cursor)
        yield page[member]
        if page["cursor"] is None:
            return
        cursor = {"cursor": page["cursor"]}


def test_uploads_are_listed_newest_first_a_page_at_a_time(api: Api, workspace: str, many: list[str]) -> None:
    found = list(pages(api, "/v1/uploads", "uploads", workspace_id=workspace))
    assert [len(page) for page in found] == [100, 100, 5]
    assert many == [upload["upload_id"] for page in found for upload in page]


FILTERS = [
    # query, how many of the 205
    ({}, 205),
    ({"status": "failed"}, 69),
    ({"status": "pending"}, 0),
    ({"platform": "google"}, 41),
    ({"client_id": "11111111-1111-4111-8111-111111111111"}, 103),
    ({"client_id": UNKNOWN}, 0),
    ({"from": "2025-05-01T01:00:00+00:00"}, 145),
    ({"from": "2025-05-01T01:00:00Z"}, 145),
    ({"to": "2025-05-01T01:00:00+00:00"}, 60),  # up to, and without
    ({"from": "2025-05-01T01:00:00+00:00", "to": "2025-05-01T02:00:00+00:00"}, 60),
    ({"from": "2025-05-01", "to": "2025-05-02"}, 205),
    ({"status": "failed", "platform": "google"}, 14),
    ({"status": "failed", "platform": "google", "client_id": "11111111-1111-4111-8111-111111111111"}, 7),
]


def test_every_filter_of_the_list_does_what_it_says(api: Api, workspace: str, many: list[str]) -> None:
    actual = [
        sum(len(page) for page in pages(api, "/v1/uploads", "uploads", workspace_id=workspace, **query))
        for query, _ in FILTERS
    ]
    assert [count for _, count in FILTERS] == actual


def test_a_workspace_sees_nothing_of_another(api: Api, workspace: str) -> None:
    post(api, workspace_id=workspace)
    assert api.get("/v1/uploads", workspace_id=str(uuid.uuid4()))["uploads"] == []
    assert api.get("/v1/performance", workspace_id=str(uuid.uuid4()))["rows"] == []


# -- rejected rows, mended


REJECTS = (
    "Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD),Reach\n"
    "2025-05-01,Good,101,100,10,1.50,5\n"
    '2025-05-01,"=HYPERLINK(""http://evil"",""click"")",102,x,10,1.50,--\n'
    '2025-05-01,"Quoted, with ""comma""",103,x,10,"-1,234.50",-\n'
    "2025-05-01,@Handle,104,x,10,-1.50,7\n"
    "2025-05-01,+Plus,105,x,10,0.50,7\n"
    "2025-05-01,-Dash,106,x,10,0.50,7\n"
    "2025-05-01,Größe 日本,107,x,10,0.50,7\n"
).encode()


def rejected(api: Api, workspace: str, content: bytes = REJECTS) -> tuple[str, list[list[str]]]:
    """The upload's id, and its errors.csv as records."""
    _, _, answer = post(api, content, workspace_id=workspace, force_partial="true")
    assert api.finished(answer["upload_id"])["status"] == "completed"
    _, headers, text = api.send(f"/v1/uploads/{answer['upload_id']}/errors.csv")
    assert headers["Content-Type"].startswith("text/csv")
    assert "attachment" in headers["Content-Disposition"]
    return answer["upload_id"], list(csv.reader(io.StringIO(text.decode("utf-8-sig"), newline="")))


def test_rejected_rows_are_explained_with_their_line_their_cells_and_a_reason(
    api: Api, workspace: str
) -> None:
    upload_id, records = rejected(api, workspace)
    assert records[0] == [*REJECTS.decode().splitlines()[0].split(","), "line", "code", "reason"]
    assert [record[-3] for record in records[1:]] == ["3", "4", "5", "6", "7", "8"]
    assert {"invalid_number"} == {record[-2] for record in records[1:]}
    assert records[-1][1] == "Größe 日本"
    shown = api.get(f"/v1/uploads/{upload_id}/errors")["errors"]
    assert [row["line"] for row in shown] == [3, 4, 5, 6, 7, 8]
    assert shown[0]["cells"][1] == '=HYPERLINK("http://evil","click")'  # JSON is no spreadsheet
    assert [(error["code"], error["column"], error["value"]) for error in shown[0]["errors"]] == [
        ("invalid_number", "Impressions", "x")
    ]


def test_no_cell_of_the_rejected_rows_is_a_formula(api: Api, workspace: str) -> None:
    _, records = rejected(api, workspace)
    formulas = [
        cell
        for record in records[1:]
        for cell in record
        if cell.startswith(("=", "@", "\t", "\r", "+", "-")) and not re.fullmatch(r"[+-]?[\d.,]*|--?", cell)
    ]
    assert formulas == []


def test_rejected_rows_are_mended_and_handed_in_again(
    api: Api, workspace: str, fleet: RunningFleet, servers: Servers
) -> None:
    _, records = rejected(api, workspace)
    out = io.StringIO()
    csv.writer(out).writerows([["50" if cell == "x" else cell for cell in record] for record in records])
    _, _, answer = post(api, out.getvalue().encode("utf-8-sig"), workspace_id=workspace)
    upload = api.finished(answer["upload_id"])
    assert (upload["status"], upload["row_count"], upload["reject_codes"]) == ("completed", 6, {})
    found = servers.sql(
        "SELECT c.external_id, c.name, m.impressions, m.spend::text, m.reach FROM daily_metrics m"
        f" JOIN campaigns c ON c.id = m.campaign_id WHERE m.workspace_id = '{workspace}' ORDER BY 1",
        dsn=fleet.dsn,
    )
    assert found == [
        ("101", "Good", 100, "1.500000", 5),
        ("102", '=HYPERLINK("http://evil","click")', 50, "1.500000", None),
        ("103", 'Quoted, with "comma"', 50, "-1234.500000", None),
        ("104", "@Handle", 50, "-1.500000", 7),
        ("105", "+Plus", 50, "0.500000", 7),
        ("106", "-Dash", 50, "0.500000", 7),
        ("107", "Größe 日本", 50, "0.500000", 7),
    ]


def test_rejected_rows_come_a_page_at_a_time(api: Api, workspace: str) -> None:
    rows = "".join(f"2025-05-01,C {n},{n + 1000},x,1,1.50\n" for n in range(230))
    content = f"{HEADER}\n2025-05-01,Good,1,1,1,1.50\n{rows}".encode()
    upload_id, records = rejected(api, workspace, content)
    assert len(records) == 231
    found = list(pages(api, f"/v1/uploads/{upload_id}/errors", "errors"))
    assert [len(page) for page in found] == [100, 100, 30]
    assert list(range(3, 233)) == [row["line"] for page in found for row in page]


def test_an_upload_without_rejects_has_an_empty_list(api: Api, workspace: str) -> None:
    _, _, answer = post(api, workspace_id=workspace)
    api.finished(answer["upload_id"])
    assert api.get(f"/v1/uploads/{answer['upload_id']}/errors") == {"errors": [], "cursor": None}


# -- performance


def test_performance_is_summed_as_asked(api: Api, workspace: str) -> None:
    client_id = str(uuid.uuid4())
    google = (
        "Day,Campaign,Campaign ID,Currency code,Impr.,Clicks,Cost\n2025-05-01,Search,900,USD,1000,5,10.25\n"
    )
    sent = [
        post(api, workspace_id=workspace),
        post(api, google.encode(), workspace_id=workspace, platform="google", client_id=client_id),
    ]
    for _, _, answer in sent:
        assert api.finished(answer["upload_id"])["status"] == "completed"

    def asked(*names: str, **query: str) -> list[tuple[Any, ...]]:
        rows = api.get("/v1/performance", workspace_id=workspace, **query)["rows"]
        return [tuple(row[name] for name in names) for row in rows]

    sums = ("impressions", "clicks", "spend")
    assert asked("day", *sums) == [("2025-05-01", 1100, 15, "11.750000"), ("2025-05-02", 200, 20, "2.500000")]
    assert asked("platform", *sums, by="platform") == [
        ("google", 1000, 5, "10.250000"),
        ("meta", 300, 30, "4.000000"),
    ]
    assert asked("campaign_id", "campaign", *sums, by="campaign") == [
        ("101", "Spring", 100, 10, "1.500000"),
        ("102", "Summer", 200, 20, "2.500000"),
        ("900", "Search", 1000, 5, "10.250000"),
    ]
    assert asked("day", "platform", by="day,platform") == [
        ("2025-05-01", "google"),
        ("2025-05-01", "meta"),
        ("2025-05-02", "meta"),
    ]
    assert asked("day", "impressions", **{"from": "2025-05-02"}) == [("2025-05-02", 200)]
    assert asked("day", "impressions", to="2025-05-01") == [("2025-05-01", 1100)]
    assert asked("impressions", client_id=client_id) == [(1000,)]
    assert asked("impressions", platform="meta", by="platform") == [(300,)]


# -- operations


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_health_and_metrics_need_no_key(path: str, api: Api) -> None:
    assert Api(api.url, key="").send(path)[0] == 200


def test_health_says_so(api: Api) -> None:
    assert api.get("/healthz") == {"status": "alive"}
    assert api.get("/readyz") == {"status": "ready"}


def metric(text: str, name: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def test_metrics_count_what_every_process_did(api: Api, workspace: str) -> None:
    names = (
        "headworks_rows_staged_total",
        "headworks_rows_promoted_total",
        "headworks_uploads_finished_total{",
    )
    before = [metric(api.send("/metrics")[2].decode(), name) for name in names]
    _, _, answer = post(api, workspace_id=workspace)
    api.finished(answer["upload_id"])
    deadline = patience.deadline(5)
    while True:
        after = [metric(api.send("/metrics")[2].decode(), name) for name in names]
        grown = [new - old for old, new in zip(before, after, strict=True)]
        if grown[0] >= 2 and grown[1] >= 2 and grown[2] >= 1:
            return
        assert time.monotonic() < deadline, grown
        time.sleep(0.05)


# -- secrets


def secrets_of(fleet: RunningFleet) -> set[str]:
    urls = [fleet.env["HEADWORKS_DATABASE_URL"], fleet.env["HEADWORKS_BROKER_URL"]]
    passwords = {urllib.parse.urlsplit(url).password for url in urls}
    return {word for word in passwords if word} | {KEY, SECRET}


def test_no_answer_holds_a_secret(fleet: RunningFleet, workspace: str) -> None:
    api = fleet.api
    _, _, answer = post(api, workspace_id=workspace)
    upload_id = answer["upload_id"]
    api.finished(upload_id)
    paths = ["/healthz", "/readyz", "/metrics", f"/v1/uploads?workspace_id={workspace}"]
    paths += [f"/v1/uploads/{upload_id}{end}" for end in ("", "/errors", "/errors.csv")]
    paths += ["/v1/nothing", "/v1/uploads", f"/v1/uploads/{UNKNOWN}", "/v1/performance?workspace_id=x"]
    for path in paths:
        try:
            _, headers, body = api.send(path)
            text = f"{headers}{body.decode()}"
        except Problem as problem:
            text = f"{problem.headers}{problem.body}"
        found = {word for word in secrets_of(fleet) if word in text}
        assert set() == found, path
        assert str(fleet.data) not in text, path  # nor where things are on the machine


def test_no_log_holds_a_secret(fleet: RunningFleet) -> None:
    assert len(secrets_of(fleet)) == 4
    for log in (fleet.data / "logs").glob("*.log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        assert set() == {word for word in secrets_of(fleet) if word in text}, log.name
