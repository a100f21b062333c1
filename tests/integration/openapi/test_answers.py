"""Real answers of the API are what the document says of them."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import flask.testing
import pytest
import werkzeug.test

from app.access import keys
from app.adapters import database
from app.kernel import errors
from app.pipeline.store import Pipeline
from app.refdata import services as refdata_services
from app.uploads.services import Services
from app.web import create_app
from tests.conftest import BEARER, CORPUS, work_off
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.openapi.schemas import examples, follow, is_read, operations, wrongs
from tests.integration.uploads.conftest import GOOD

OPERATIONS = operations()
NO_KEY = f"hw_ab23cd45_{'x' * 43}"
WORKSPACE = "11111111-1111-4111-8111-111111111111"
PLACES = ("upload_id", "subscription_id", "delivery_id", "stage", "filename", "tenant_id", "event_id")
"""What stands in a path."""


class Client:
    """Calls operations by their names, and holds each answer against the document."""

    def __init__(self, services: Services) -> None:
        app = create_app(services.settings)
        self.services: Services = app.extensions["services"]
        app.extensions["services"] = services
        self.pipeline: Pipeline = app.extensions["pipeline"].pipeline
        self.refdata: refdata_services.Services = app.extensions["refdata"]
        self._http: flask.testing.FlaskClient = app.test_client()

    def call(
        self, name: str, *, status: int = 200, headers: dict[str, str] | None = None, **more: Any
    ) -> werkzeug.test.TestResponse:
        """The answer, which has this status and is as it is described; an empty header is not sent."""
        path, method, operation = OPERATIONS[name]
        asked = {word: more.pop(word) for word in PLACES if word in more}
        sent = {name: value for name, value in {**BEARER, **(headers or {})}.items() if value}
        answer = self._http.open(path.format(**asked), method=method, headers=sent, **more)
        assert answer.status_code == status, answer.text
        described = follow(operation["responses"][str(status)])
        contents = described.get("content", {})
        if not contents:
            assert answer.data == b""
            return answer
        schema = contents[answer.mimetype]["schema"]
        value = answer.get_json() if answer.mimetype.endswith("json") else answer.text
        assert wrongs(schema, value) == []
        for header, about in described.get("headers", {}).items():
            about = follow(about)
            assert header in answer.headers or not about.get("required"), header
            assert header not in answer.headers or wrongs(about["schema"], answer.headers[header]) == []
        return answer

    def exemplary(self, name: str, *, status: int, **more: Any) -> None:
        """The answer is an example of the document, word by word."""
        answer = self.call(name, status=status, **more).get_json()
        content = follow(OPERATIONS[name][2]["responses"][str(status)])["content"]
        assert answer in [value for _, value in examples(content["application/problem+json"])]


@contextmanager
def served(services: Services) -> Iterator[Client]:
    """The application on these services."""
    found = Client(services)
    yield found
    found.services.db.close()
    found.pipeline.db.close()
    found.refdata.close()


@pytest.fixture
def client(services: Services) -> Iterator[Client]:
    with served(services) as found:
        yield found


def form(content: bytes = GOOD, **fields: str) -> dict[str, Any]:
    file = (io.BytesIO(content), "report.csv")
    return {"data": {"workspace_id": WORKSPACE, "platform": "meta", "file": file, **fields}}


def test_the_life_of_an_upload_is_told_as_described(client: Client, services: Services) -> None:
    created = client.call("createUpload", status=201, **form(), headers={"Idempotency-Key": "may"})
    upload_id = created.get_json()["upload_id"]
    client.call("createUpload", **form(), headers={"Idempotency-Key": "may"})
    client.call("showUpload", upload_id=upload_id)
    client.call("showProgress", upload_id=upload_id)
    work_off(services)
    done = client.call("showUpload", upload_id=upload_id).get_json()
    assert done["status"] == "completed"
    client.call("showProgress", upload_id=upload_id)
    client.call("downloadFile", upload_id=upload_id)
    query = {"workspace_id": WORKSPACE}
    assert client.call("listUploads", query_string=query).get_json()["uploads"]
    assert client.call("listAudit", query_string=query).get_json()["entries"]
    client.call("requeueUpload", status=409, upload_id=upload_id, json={"reason": "a test"})


@pytest.mark.parametrize("by", ["", "day", "platform", "campaign", "campaign,day,platform"])
def test_the_numbers_are_told_as_described(by: str, client: Client, services: Services) -> None:
    client.call("createUpload", status=201, **form())
    work_off(services)
    rows = client.call("showPerformance", query_string={"workspace_id": WORKSPACE, "by": by}).get_json()[
        "rows"
    ]
    assert rows


REPORTS = sorted(
    [path for path in CORPUS.glob("*/*") if path.stat().st_size < 60_000],
    key=lambda path: path.stat().st_size,
)


def test_every_report_of_the_corpus_is_told_as_described(client: Client, services: Services) -> None:
    states, rejected = set(), 0
    for number, path in enumerate(REPORTS):
        fields = {"workspace_id": str(uuid.UUID(int=number + 1)), "platform": path.parent.name}
        sent = client._http.post("/v1/uploads", headers=BEARER, **form(path.read_bytes(), **fields))
        status = sent.status_code
        assert (
            wrongs({"$ref": f"#/components/schemas/{'Receipt' if status == 201 else 'Problem'}"}, sent.json)
            == []
        )
        checked = client.call("createUpload", **form(path.read_bytes(), dry_run="true", **fields)).get_json()
        assert checked["dry_run"]
        if status != 201:
            continue
        work_off(services)
        upload_id = sent.get_json()["upload_id"]
        states.add(client.call("showUpload", upload_id=upload_id).get_json()["status"])
        rejected += len(client.call("listErrors", upload_id=upload_id).get_json()["errors"])
        client.call("downloadErrors", upload_id=upload_id)
    assert {"completed", "failed"} <= states and rejected > 10


def test_webhooks_are_told_as_described(client: Client) -> None:
    body = {"workspace_id": WORKSPACE, "url": "https://hooks.example/", "topics": ["ingestion-complete"]}
    made = client.call("createWebhook", status=201, json=body).get_json()
    of = {"subscription_id": made["subscription_id"]}
    client.call("createWebhook", status=409, json=body)
    client.call("rotateSecret", **of)
    client.call("listWebhooks", query_string={"workspace_id": WORKSPACE})
    sent = client.call("sendTest", status=202, **of).get_json()
    (delivery,) = client.call("listDeliveries", **of).get_json()["deliveries"]
    assert delivery["delivery_id"] == sent["delivery_id"]
    client.call("redeliver", status=409, **of, delivery_id=sent["delivery_id"])
    client.call("deleteWebhook", status=204, **of)
    client.call("listDeliveries", status=404, **of)


def test_refusals_are_told_as_described(client: Client) -> None:
    nobody = {"Authorization": "Bearer no key"}
    for name, (path, _, _) in OPERATIONS.items():
        if name not in ("checkAlive", "checkReady", "showMetrics") and not is_read(path):
            client.call(name, status=401, headers=nobody, **dict.fromkeys(PLACES, WORKSPACE))
    client.call("showUpload", status=404, upload_id=WORKSPACE)
    client.call("listUploads", status=422, query_string={"workspace_id": "7"})
    client.call("createUpload", status=422, **form(b""))
    client.call("createUpload", status=415, **form(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"))
    client.call("followUpload", status=400, upload_id=WORKSPACE)


def test_a_file_that_cannot_be_had_is_told_as_described(client: Client, services: Services) -> None:
    upload_id = client.call("createUpload", status=201, **form()).get_json()["upload_id"]
    for name, error, status in (
        ("the store is away", errors.ConnectionLost(), 503),
        ("the file is gone", errors.FileGone(), 410),
    ):
        with mock.patch.object(type(services.blobs), "open", side_effect=error):
            answer = client.call("downloadFile", status=status, upload_id=upload_id)
        assert "Content-Disposition" not in answer.headers, name
    [stored] = (services.settings.data_dir / "files").rglob(upload_id)
    stored.unlink()
    assert client.call("downloadFile", status=410, upload_id=upload_id).get_json()["code"] == "file_not_found"


def test_rejected_rows_that_cannot_be_had_are_told_as_described(client: Client) -> None:
    upload_id = client.call("createUpload", status=201, **form()).get_json()["upload_id"]
    with mock.patch("app.uploads.store.rejected_rows", side_effect=errors.ConnectionLost()):
        client.call("listErrors", status=503, upload_id=upload_id)
        client.call("downloadErrors", status=503, upload_id=upload_id)


def test_limits_and_scopes_are_told_as_described(services: Services) -> None:
    made = keys.create(
        services.db,
        workspace_id=uuid.UUID(WORKSPACE),
        scopes=frozenset({"read"}),
        name="CI",
        created_by="tests",
        expires_days=None,
    )
    key = {"Authorization": f"Bearer {made.text}"}
    small = replace(services.settings, rate_per_minute=2, upload_bytes=100)
    with served(replace(services, settings=small)) as client:
        client.call("createUpload", status=413, **form())
        client.call("createUpload", status=403, **form(), headers=key)
        client.call("createWebhook", status=403, json={}, headers=key)
        client.call("showUpload", status=429, upload_id=WORKSPACE, headers=key)
        client.call("createWebhook", status=413, json={"url": "x" * 20_000})


def test_a_database_that_is_away_is_told_as_described(services: Services) -> None:
    away = database.Database("postgresql://nobody@127.0.0.1:1/none", name="tests")
    with served(replace(services, db=away)) as client:
        client.call("checkReady", status=503)
        client.call("listUploads", status=503, query_string={"workspace_id": WORKSPACE})


def test_examples_of_refusals_are_real_answers(client: Client, services: Services) -> None:
    hook = {"workspace_id": WORKSPACE, "url": "https://hooks.example/", "topics": ["ingestion-complete"]}
    of = {"subscription_id": client.call("createWebhook", status=201, json=hook).json["subscription_id"]}
    client.exemplary("createWebhook", status=409, json=hook)
    client.exemplary("createWebhook", status=422, json={**hook, "url": "ftp://hooks.example/"})
    sent = client.call("sendTest", status=202, **of).json["delivery_id"]
    client.exemplary("redeliver", status=409, **of, delivery_id=sent)
    client.exemplary("createUpload", status=422, **form(b""))
    client.exemplary("createUpload", status=422, **form(platform="myspace"))
    client.exemplary("createUpload", status=415, **form(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"))
    upload_id = client.call("createUpload", status=201, **form()).json["upload_id"]
    work_off(services)
    client.exemplary("requeueUpload", status=409, upload_id=upload_id, json={"reason": "a test"})
    client.exemplary("requeueUpload", status=422, upload_id=upload_id, json={"reason": ""})
    client.exemplary("listErrors", status=422, upload_id=upload_id, query_string={"cursor": "x"})
    client.exemplary("listUploads", status=422, query_string={"workspace_id": "7"})
    client.exemplary(
        "showUpload", status=401, upload_id=upload_id, headers={"Authorization": f"Bearer {NO_KEY}"}
    )
    with mock.patch.object(type(services.blobs), "open", side_effect=errors.ConnectionLost()):
        client.exemplary("downloadFile", status=503, upload_id=upload_id)
    with mock.patch.object(type(services.blobs), "open", side_effect=errors.FileGone()):
        client.exemplary("downloadFile", status=410, upload_id=upload_id)
    client.exemplary("followUpload", status=400, upload_id=upload_id)


def test_the_instance_is_told_as_described(client: Client) -> None:
    for name in ("checkAlive", "checkReady", "showMetrics"):
        client.call(name)


@pytest.mark.parametrize("source", [None, "", "api"])
def test_a_body_without_a_source_comes_from_a_system(source: str | None, client: Client) -> None:
    body = {"workspace_id": WORKSPACE, "platform": "meta", "source": source, "rows": [{}]}
    upload_id = client.call("createUpload", status=201, json=body).get_json()["upload_id"]
    assert client.call("showUpload", upload_id=upload_id).get_json()["source"] == "api"


def test_lists_are_asked_for_in_any_offset(client: Client) -> None:
    far = {"workspace_id": WORKSPACE, "from": "1571-10-26T07:39:33-16:49", "to": "2571-10-26T07:39:33+23:59"}
    for name in ("listUploads", "listAudit", "showPerformance"):
        client.call(name, query_string=far)


def test_the_page_of_the_numbers_takes_days_and_times_alike(client: Client) -> None:
    client.call("createUpload", status=201, **form())
    query = {"workspace_id": WORKSPACE, "from": "2025-05-01", "to": "2025-05-02T12:00:00+02:00"}
    answer = client._http.get("/data", query_string=query, headers={**BEARER, "Accept": "text/html"})
    assert answer.status_code == 200


@pytest.mark.parametrize("value", [{}, [], False, ["api"]])
def test_what_is_no_text_is_refused_in_a_body(value: Any, client: Client) -> None:
    body = {"workspace_id": WORKSPACE, "platform": "meta", "source": value, "rows": [{}]}
    client.call("createUpload", status=422, json=body)
    client.call("requeueUpload", status=422, upload_id=WORKSPACE, json={"reason": value})
