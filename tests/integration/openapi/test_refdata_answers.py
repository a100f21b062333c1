"""Real answers of reference data are what the document says of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jwt
import pytest

from app.kernel import errors
from app.openapi import document
from app.refdata import commands, store
from app.uploads.services import Services
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.openapi.conftest import TOKEN_SECRET
from tests.integration.openapi.schemas import examples, operations
from tests.integration.openapi.test_answers import Client, served
from tests.integration.refdata.chain import applying
from tests.integration.threads import wait_until

TENANT = "tenant-a"
NO_JSON = b"\xff"
OPERATIONS = operations(document.whole(*document.REFDATA))
LOST = """
    - code: LOST
      reloadOnEvent: KEYS
      loadSql: select code as k, text as v from no_such_table where tenant_id = :tenantId
      apply:
        upsertSql: insert into no_such_table (tenant_id, code, text) values (:tenantId, :key, :payload)
        deleteSql: delete from no_such_table where tenant_id = :tenantId and code = :key
"""


@pytest.fixture
def refdata_config(refdata_config: Path) -> Path:
    """With a dictionary whose table is not there."""
    refdata_config.write_text(refdata_config.read_text(encoding="utf-8") + LOST, encoding="utf-8")
    return refdata_config


@pytest.fixture
def client(services: Services) -> Iterator[Client]:
    with served(services) as found:
        yield found


def delta(dict_code: str = "COUNTRY", **members: Any) -> dict[str, Any]:
    items = [{"key": "RU", "op": "UPSERT", "payload": {"name": "Russia"}}]
    return {
        "eventId": str(uuid.uuid4()),
        "dictCode": dict_code,
        "eventType": "DELTA",
        "items": items,
        **members,
    }


def send(client: Client, body: Any, *, status: int, wait: bool = False, tenant_id: str = TENANT) -> Any:
    """The answer to a command, as JSON; where it waits, it may take as long as it can."""
    query = {"consistencyMode": "WAIT_COMMIT", "timeoutMs": "1000"} if wait else {}
    content = {"data": body} if isinstance(body, bytes) else {"json": body}
    answer = client.call(
        "updateDictionary", status=status, tenant_id=tenant_id, query_string=query, **content
    )
    return answer.get_json()


def show(client: Client, told: dict[str, Any]) -> Any:
    return client.call("showUpdate", tenant_id=TENANT, event_id=told["eventId"]).get_json()


def test_the_way_of_a_command_is_told_as_described(client: Client) -> None:
    sent = send(client, delta(), status=202)
    assert (sent["status"], show(client, sent)) == ("PENDING", sent)
    with applying(client.refdata):
        wait_until(lambda: show(client, sent)["status"] == "COMMITTED")
        told = send(client, delta(sourceRevision=7), status=200, wait=True)
        assert (told["committedVersion"], show(client, told)) == (2, told)
        stale = send(client, delta(sourceRevision=7), status=409, wait=True)
        failed = show(client, stale)
        assert (failed["status"], failed["errorCode"]) == ("FAILED", "STALE_REVISION")
        assert stale["code"] == "STALE_REVISION"


def test_a_snapshot_is_told_as_described(client: Client) -> None:
    of = {"eventType": "SNAPSHOT", "snapshotId": str(uuid.uuid4()), "chunksTotal": 2}
    with applying(client.refdata):
        first = send(client, delta(chunkIndex=1, **of), status=202, wait=True)
        assert (first["status"], first["committedVersion"]) == ("PENDING", None)
        twice = send(client, delta(chunkIndex=2, **of), status=422, wait=True)
        assert twice["code"] == "DUPLICATE_KEY"
        other = [{"key": "AT", "payload": 1}]
        last = send(client, delta(chunkIndex=2, **of) | {"items": other}, status=200, wait=True)
    assert (last["committedVersion"], show(client, first)["committedVersion"]) == (1, 1)


def test_the_link_of_an_answer_leads_to_its_request(client: Client) -> None:
    links = {
        status: response["links"]
        for status, response in OPERATIONS["updateDictionary"][2]["responses"].items()
        if "links" in response
    }
    assert [*links] == ["200", "202"] and links["200"] == links["202"]
    (link,) = links["200"].values()
    told = send(client, delta(), status=202)
    assert link["parameters"] == {
        "tenant_id": "$request.path.tenant_id", "event_id": "$response.body#/eventId",
    }  # fmt: skip
    found = client.call(link["operationId"], tenant_id=TENANT, event_id=told["eventId"])
    assert found.get_json() == told


def test_the_dictionaries_are_told_as_described(client: Client, refdata_config: Path) -> None:
    told = client.call("showDictionaries").get_json()
    assert told["refused"] is None
    assert {one["dictCode"]: (one["enabled"], one["takesDeltas"]) for one in told["dictionaries"]} == {
        "COUNTRY": (True, True), "LAWS": (True, False), "LOST": (True, True), "OLD": (False, True),
    }  # fmt: skip
    assert client.call("reloadDictionaries").get_json() == told
    refdata_config.write_text("refdata: 7", encoding="utf-8")
    refused = client.call("reloadDictionaries", status=422).get_json()["detail"]
    assert client.call("showDictionaries").get_json() == {**told, "refused": refused}


def refusals(client: Client, config: Path) -> Iterator[Any]:
    """A request of every kind that is refused, and its answer."""
    yield send(client, NO_JSON, status=400)
    for asked in (
        {"name": "updateDictionary", "json": delta()},
        {"name": "showUpdate", "event_id": uuid.uuid4()},
    ):
        for header in ("", "Bearer no-token", "Basic YTpi"):
            answer = client.call(**asked, status=401, headers={"Authorization": header}, tenant_id=TENANT)
            yield answer.get_json()
        claims = {"sub": "tests", "tenant_id": "tenant-b", "exp": 4_000_000_000}
        token = {"Authorization": f"Bearer {jwt.encode(claims, TOKEN_SECRET, algorithm='HS256')}"}
        yield client.call(**asked, status=403, headers=token, tenant_id=TENANT).get_json()
        for name in ("a tenant", "%00", "x" * 65, "%ff"):
            yield client.call(**asked, status=422, tenant_id=name).get_json()
    yield client.call("showUpdate", status=404, tenant_id=TENANT, event_id=uuid.uuid4()).get_json()
    for dict_code, status in (("NEVER", 404), ("OLD", 404), ("LAWS", 409)):
        yield send(client, delta(dict_code), status=status)
    again = delta()
    send(client, again, status=202)
    yield send(client, again | {"items": [{"key": "RU", "op": "DELETE"}]}, status=409)
    yield send(client, delta(items=[{"key": "a", "payload": 1}] * (commands.MOST_ITEMS + 1)), status=413)
    yield send(client, b" " * (commands.MOST_BYTES + 1), status=413)
    yield send(client, delta(items=[{"key": "RU", "op": "UPSERT"}]), status=422)
    with applying(client.refdata):
        yield send(client, delta("LOST"), status=500, wait=True)
    with mock.patch.object(client.refdata.publisher, "publish", side_effect=errors.ConnectionLost()):
        yield send(client, delta(), status=503)
    with mock.patch.object(store, "request", side_effect=errors.ConnectionLost()):
        yield client.call("showUpdate", status=503, tenant_id=TENANT, event_id=uuid.uuid4()).get_json()
    lines = config.read_text(encoding="utf-8").splitlines()
    lines[4:4] = ["", "    # So many connections", "    # of each process.", "    pool:", "      maxSiz: 7"]
    config.write_text("\n".join(lines), encoding="utf-8")
    yield client.call("reloadDictionaries", status=422).get_json()


def test_every_refusal_is_told_as_described_and_every_example_of_one_is_real(
    client: Client, refdata_config: Path
) -> None:
    found = list(refusals(client, refdata_config))
    for one in found:
        one.pop("eventId", None)  # of a command of the moment
    told = document.whole("refdata")["components"]["responses"].values()
    promised = [
        value for response in told for _, value in examples(response["content"]["application/problem+json"])
    ]
    assert len(promised) >= len(told) and [value for value in promised if value not in found] == []
