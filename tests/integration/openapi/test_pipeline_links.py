"""What the document says that one call of the pipeline leads to, it does lead to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.uploads.services import Services
from tests.conftest import Servers
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.openapi.test_answers import OPERATIONS, Client, served

FILE = "20250101000000"
TASK = {"filename": FILE, "shard": 0}
FIRST = "shard-splitter"

CALLS: dict[str, dict[str, Any]] = {
    # operation: how it is called where no link says it
    "registerFile": {"json": {"filename": FILE, "shards": [0]}},
    "finishIngest": {"json": {"filename": FILE}},
    "failIngest": {"json": {"filename": FILE}},
    "retryIngest": {"json": {"filename": FILE}},
    "startTask": {"stage": FIRST, "json": TASK},
    "finishTask": {"stage": FIRST, "json": TASK},
    "failTask": {"stage": FIRST, "json": TASK},
    "retryTask": {"stage": FIRST, "json": TASK},
    "retryFailedTasks": {"stage": FIRST, "json": {}},
    "listQueue": {"stage": FIRST},
    "claimTasks": {"stage": FIRST, "json": {"worker_id": "w"}},
    "listFiles": {},
    "showFile": {"filename": FILE},
    "listTasks": {},
    "listStuckTasks": {},
}

READY = ("registerFile", "finishIngest")
BEFORE: dict[str, tuple[str, ...]] = {
    # operation: what was called before it, so that its answer leads on
    "registerFile": (),
    "finishIngest": ("registerFile",),
    "failIngest": ("registerFile",),
    "retryIngest": ("registerFile", "failIngest"),
    "startTask": READY,
    "finishTask": (*READY, "startTask"),
    "failTask": (*READY, "startTask"),
    "retryTask": (*READY, "startTask", "failTask"),
    "retryFailedTasks": (*READY, "startTask", "failTask"),
    "listQueue": READY,
    "claimTasks": READY,
    "extendLease": (*READY, "claimTasks"),
    "listFiles": READY,
    "showFile": READY,
    "listTasks": READY,
    "listStuckTasks": ("registerFile",),
}

LINKS = [
    (name, link)
    for name, (_, _, operation) in OPERATIONS.items()
    if operation["tags"] == ["Pipeline"]
    for link in operation["responses"]["200"].get("links", {})
]


@pytest.fixture
def client(services: Services) -> Iterator[Client]:
    with served(services) as found:
        yield found


@pytest.mark.parametrize(("name", "link"), LINKS)
def test_a_link_leads_to_a_call_that_is_answered(
    name: str, link: str, client: Client, servers: Servers, services: Services
) -> None:
    asked, answer = {}, None
    for step in (*BEFORE[name], name):
        if step == "listStuckTasks":
            servers.sql(
                "UPDATE pipeline_tracking SET event_ingest_started_at = now() - interval '1 hour'",
                dsn=services.settings.pipeline_database_url,
            )
        # A heartbeat needs the token of a claim, which only the link from there knows.
        asked = CALLS[step] if step in CALLS else led(BEFORE[name][-1], step, asked, answer)[1]
        answer = client.call(step, **asked).get_json()
    target, call = led(name, link, asked, answer)
    client.call(target, **call)


def led(name: str, link: str, asked: dict[str, Any], answer: Any) -> tuple[str, dict[str, Any]]:
    """The operation that the link of this operation's answer leads to, and how it is called."""
    described = OPERATIONS[name][2]["responses"]["200"]["links"][link]
    target = described["operationId"]
    call = {word: meant(text, asked, answer) for word, text in described.get("parameters", {}).items()}
    path, method, _ = OPERATIONS[target]
    query = {word: call.pop(word) for word in list(call) if f"{{{word}}}" not in path}
    if method == "POST":
        body = {word: meant(text, asked, answer) for word, text in described.get("requestBody", {}).items()}
        call["json"] = CALLS.get(target, {}).get("json", {}) | body
    return target, call | {"query_string": query}


def meant(text: str, asked: dict[str, Any], answer: Any) -> Any:
    """The value of a runtime expression of OpenAPI."""
    source, marked, place = text.partition("#/")
    if not marked:
        return text
    found = {"$response.body": answer, "$request.body": asked.get("json")}[source]
    for word in place.split("/"):
        found = found[int(word) if isinstance(found, list) else word]
    return found


def test_a_link_to_what_is_not_there_is_found() -> None:
    assert meant("$response.body#/items/0/shard", {}, {"items": [{"shard": 7}]}) == 7
    assert meant("$request.body#/lease_token", {"json": {"lease_token": "t"}}, {}) == "t"
    assert meant("shard-splitter", {}, {}) == "shard-splitter"
    with pytest.raises(IndexError):
        meant("$response.body#/items/0/shard", {}, {"items": []})
