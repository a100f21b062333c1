"""Real answers of the pipeline are what the document says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from app.adapters import database
from app.kernel import errors
from app.pipeline import events, requests
from app.uploads.services import Services
from tests.conftest import Servers
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.openapi.schemas import examples, follow, wrongs
from tests.integration.openapi.test_answers import OPERATIONS, Client, served

FILE = "20250101000000"
QUEUES = ("shard-splitter", "shard-worker", "mysql-sender")
NOBODY = "5f0d1c2e-8a44-4a0b-9a35-0f3b0c9a7d11"


@pytest.fixture
def client(services: Services) -> Iterator[Client]:
    with served(services) as found:
        yield found


def of(shard: int = 0, **more: Any) -> dict[str, Any]:
    """A task of the file, as a body."""
    return {"filename": FILE, "shard": shard, **more}


def registered(client: Client, shards: int = 2, *, done: bool = True) -> None:
    client.call("registerFile", json={"filename": FILE, "shards": list(range(shards))})
    if done:
        client.call("finishIngest", json={"filename": FILE})


def test_the_way_of_a_file_is_told_as_described(client: Client) -> None:
    client.call("registerFile", json={"filename": FILE, "shards": [0, 1, 1]})
    client.call("failIngest", json={"filename": FILE, "error_code": "NO_SPACE", "error_message": "Full"})
    client.call("retryIngest", json={"filename": FILE})
    client.call("registerFile", json={"filename": FILE, "shards": [0, 1]})
    client.call("finishIngest", json={"filename": FILE})
    for stage in QUEUES:
        assert client.call("listQueue", stage=stage).get_json()["items"]
        plain = client.call("startTask", stage=stage, json=of(0)).get_json()
        leased = client.call("startTask", stage=stage, json=of(1, lease_seconds=60)).get_json()
        assert "attempt" not in plain and leased["attempt"] == 1
        token = {"lease_token": leased["lease_token"]}
        client.call("extendLease", stage=stage, json=of(1, **token))
        client.call("failTask", stage=stage, json=of(1, error_code="NO_SPACE", **token))
        client.call("showFile", filename=FILE, query_string={"details": "true"})
        client.call("retryTask", stage=stage, json=of(1))
        (claimed,) = client.call("claimTasks", stage=stage, json={"worker_id": "w"}).get_json()["items"]
        client.call("finishTask", stage=stage, json=of(1, lease_token=claimed["lease_token"]))
        client.call("finishTask", stage=stage, json=of(0))
    client.call("showFile", filename=FILE)
    # Of each shard five changes in the ingest, and two in each stage; of shard 1 three more in each.
    assert len(client.call("showFileHistory", filename=FILE).get_json()["history"]) == 31


def test_lists_are_told_as_described(client: Client, servers: Servers, services: Services) -> None:
    registered(client)
    client.call("startTask", stage=QUEUES[0], json=of(0))
    client.call("failTask", stage=QUEUES[0], json=of(1, error_code="NO_SPACE"))
    servers.sql(
        "UPDATE pipeline_tracking SET shard_splitter_started_at = now() - interval '1 hour'",
        dsn=services.settings.pipeline_database_url,
    )
    assert client.call("listFiles", query_string={"status": "failed"}).get_json()["files"]
    query = {"stage": QUEUES[0], "status": "failed", "error_code": "NO_SPACE"}
    assert client.call("listTasks", query_string=query).get_json()["tasks"]
    assert client.call("listStuckTasks").get_json()["stuck"]
    client.call("showFileHistory", filename=FILE, query_string={"limit": 1})
    for dry_run in (True, False):
        body = {"dry_run": dry_run}
        assert client.call("retryFailedTasks", stage=QUEUES[0], json=body).get_json()["items"]
    client.call("showPipelineSummary")
    assert "headworks_pipeline_tasks" in client.call("showPipelineMetrics").text


def test_a_further_page_of_a_queue_is_told_as_described(client: Client) -> None:
    registered(client)
    answer = client.call("listQueue", stage=QUEUES[0], query_string={"limit": 1})
    address = answer.headers["Link"].removeprefix("<").partition(">")[0]
    query = address.partition("?")[2]
    rest = client.call("listQueue", stage=QUEUES[0], query_string=query)
    assert [item["shard"] for item in rest.get_json()["items"]] == [1] and "Link" not in rest.headers


def test_changes_are_streamed_as_described(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(client)
    monkeypatch.setattr(events, "MOST_SECONDS", 0.2)
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)
    text = client.call("followPipeline", headers={"Last-Event-ID": "0-0"}).text
    entry = OPERATIONS["showFileHistory"][2]["responses"]["200"]["content"]["application/json"]["schema"]
    told = follow(follow(entry)["properties"]["history"]["items"])
    data = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line[:5] == "data:"]
    assert len(data) == 4
    for event in data:
        assert event.pop("filename") == FILE
        assert wrongs(told, event) == []


def refusals() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Operation, status and request of every kind of refusal.

    In the first stage shard 0 is at work, 1 waits, and 2 is done.
    """
    first, second, _ = QUEUES
    for name, (_, method, operation) in OPERATIONS.items():
        if operation["tags"] == ["Pipeline"] and method == "POST":
            stage = {"stage": first} if "{stage}" in OPERATIONS[name][0] else {}
            yield name, 400, {"data": b"[]", **stage}
            yield name, 413, {"data": b" " * (requests.MOST_BYTES + 1), **stage}
            yield name, 422, {"json": {"filename": "a/b", "worker_id": "", "limit": 0}, **stage}
    for name in ("startTask", "finishTask", "failTask", "retryTask"):
        yield name, 404, {"json": of(9), "stage": first}
        yield name, 404, {"json": of(), "stage": "none"}
    yield "startTask", 409, {"json": of(0), "stage": first}
    yield "startTask", 409, {"json": of(0), "stage": second}
    yield "startTask", 409, {"json": of(2), "stage": first}
    yield "finishTask", 409, {"json": of(1), "stage": first}
    yield "finishTask", 409, {"json": of(1, lease_token=NOBODY), "stage": first}
    yield "failTask", 409, {"json": of(2), "stage": first}
    yield "retryTask", 409, {"json": of(2), "stage": first}
    yield "extendLease", 409, {"json": of(0, lease_token=NOBODY), "stage": first}
    yield "extendLease", 404, {"json": of(9, lease_token=NOBODY), "stage": first}
    yield "finishIngest", 404, {"json": {"filename": "none"}}
    for name in ("failIngest", "retryIngest"):
        yield name, 404, {"json": {"filename": "none"}}
        yield name, 404, {"json": of(9)}
        yield name, 409, {"json": of(0)}
    yield "listQueue", 404, {"stage": "none"}
    yield "claimTasks", 404, {"stage": "none", "json": {"worker_id": "w"}}
    yield "retryFailedTasks", 404, {"stage": "none", "json": {}}
    for name in ("showFile", "showFileHistory"):
        yield name, 404, {"filename": "none"}
    yield "showFile", 422, {"filename": FILE, "query_string": {"details": "yes"}}
    yield "followPipeline", 422, {"headers": {"Last-Event-ID": "1"}}
    for name in ("listFiles", "listTasks", "listStuckTasks"):
        yield name, 422, {"query_string": {"limit": "1001"}}
    yield "listTasks", 422, {"query_string": {"status": "done"}}
    yield "showFileHistory", 422, {"filename": FILE, "query_string": {"limit": "1001"}}
    for query in ({"limit": "1001"}, {"cursor": "x"}, {"offset": "-1"}, {"updated_from": "2025-01-01"}):
        yield "listQueue", 422, {"stage": first, "query_string": query}


def test_every_refusal_is_told_as_described_and_every_example_of_one_is_real(client: Client) -> None:
    registered(client, 3)
    client.call("startTask", stage=QUEUES[0], json=of(0))
    client.call("startTask", stage=QUEUES[0], json=of(2))
    client.call("finishTask", stage=QUEUES[0], json=of(2))
    found = [client.call(name, status=status, **asked).get_json() for name, status, asked in refusals()]
    client.call("registerFile", json={"filename": "failed", "shards": [0]})
    client.call("failIngest", json={"filename": "failed"})
    found.append(client.call("finishIngest", status=409, json={"filename": "failed"}).get_json())
    found.append(
        client.call("listFiles", status=401, headers={"Authorization": "Bearer no token"}).get_json()
    )
    with mock.patch("app.pipeline.store.Pipeline.summary", side_effect=errors.ConnectionLost()):
        found.append(client.call("showPipelineSummary", status=503).get_json())
    with mock.patch.object(events, "_followers", **{"acquire.return_value": False}):
        found.append(client.call("followPipeline", status=503).get_json())
    promised = [
        value
        for _, _, operation in OPERATIONS.values()
        if operation["tags"] == ["Pipeline"]
        for response in operation["responses"].values()
        for content in [follow(response)["content"].get("application/problem+json", {})]
        for _, value in examples(content)
    ]
    assert promised and [value for value in promised if value not in found] == []


def test_a_database_of_the_pipeline_that_is_away_is_told_as_described(services: Services) -> None:
    with served(services) as client:
        client.pipeline.db.close()
        client.pipeline.db = database.Database("postgresql://nobody@127.0.0.1:1/none", name="tests")
        for name in ("listFiles", "showPipelineSummary", "showPipelineMetrics", "followPipeline"):
            client.call(name, status=503)
        client.call("registerFile", status=503, json={"filename": FILE, "shards": [0]})
