"""Webhooks over HTTP: what is answered, what is refused, and that nobody sees another's."""

from __future__ import annotations

import argparse
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import flask.testing
import pytest
import standardwebhooks

from app import cli_operations
from app.access import principal
from app.access.principal import Principal
from app.kernel import errors
from app.uploads.services import Services
from app.uploads.webhooks import deliver, subscriptions, views
from app.web import create_app
from tests.conftest import BEARER
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.threads import at_once
from tests.integration.webhooks.conftest import OTHER, WORKSPACE, Webhooks
from tests.integration.webhooks.receiver import Receiver, says

Answer = tuple[int, Any]
TOPICS = ["ingestion-complete"]
URL = "https://hooks.example/headworks"


class Client:
    """The API, in this process."""

    def __init__(self, services: Services) -> None:
        app = create_app(services.settings)
        self.services: Services = app.extensions["services"]
        self.http: flask.testing.FlaskClient = app.test_client()
        self.hints: list[str] = []

    def call(self, method: str, path: str, **values: Any) -> Answer:
        answer = self.http.open(path, method=method, headers=BEARER, base_url="http://127.0.0.1", **values)
        return answer.status_code, answer.get_json() if answer.data else None

    def subscribe(self, url: str = URL, workspace_id: UUID = WORKSPACE, **fields: Any) -> Answer:
        body = {"workspace_id": str(workspace_id), "url": url, "topics": TOPICS, **fields}
        return self.call("POST", "/v1/webhooks", json=body)

    def made(self, url: str = URL, workspace_id: UUID = WORKSPACE) -> str:
        status, body = self.subscribe(url, workspace_id)
        assert status == 201, body
        return str(body["subscription_id"])

    def deliveries(self, subscription_id: str, **query: str) -> Any:
        status, body = self.call("GET", f"/v1/webhooks/{subscription_id}/deliveries", query_string=query)
        assert status == 200, body
        return body


@pytest.fixture
def client(services: Services) -> Iterator[Client]:
    found = Client(services)
    yield found
    found.services.db.close()


def refused(answer: Answer) -> tuple[int, str]:
    status, body = answer
    assert status >= 400
    assert body["detail"]
    return status, body["code"]


# -- subscriptions


def test_a_webhook_is_made_and_its_secret_shown_once(client: Client) -> None:
    status, body = client.subscribe()
    assert status == 201
    secret = body.pop("secret")
    assert secret.startswith("whsec_")
    standardwebhooks.Webhook(secret)
    listed = client.call("GET", "/v1/webhooks", query_string={"workspace_id": WORKSPACE})
    assert listed == (200, {"webhooks": [body]})
    assert (body["url"], body["topics"], body["created_by"]) == (URL, TOPICS, "local key")
    assert body["disabled_at"] is None
    assert secret not in repr(listed)


BAD = [
    # field, value                                          status, code
    ({"workspace_id": None}, (422, "invalid_workspace_id")),
    ({"workspace_id": "x"}, (422, "invalid_workspace_id")),
    ({"url": None}, (422, "invalid_url")),
    ({"url": 5}, (422, "invalid_url")),
    ({"url": "http://hooks.example/"}, (422, "invalid_url")),
    ({"url": "https://user:word@hooks.example/"}, (422, "invalid_url")),
    ({"url": "https://10.0.0.1/"}, (422, "invalid_url")),
    ({"url": URL + "/" + "a" * 2048}, (422, "invalid_url")),
    ({"url": URL + "\u0000"}, (422, "invalid_url")),
    ({"topics": None}, (422, "invalid_topics")),
    ({"topics": "ingestion-complete"}, (422, "invalid_topics")),
    ({"topics": [5]}, (422, "invalid_topics")),
    ({"topics": []}, (422, "invalid_request")),
    ({"topics": ["ingestion-complete", "other"]}, (422, "invalid_request")),
]


@pytest.mark.parametrize(("fields", "expected"), BAD)
def test_what_cannot_be_subscribed_is_refused_with_a_reason(
    fields: dict[str, Any], expected: tuple[int, str], client: Client
) -> None:
    assert refused(client.subscribe(**fields)) == expected


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"null"])
def test_a_body_that_is_no_object_is_refused(body: bytes, client: Client) -> None:
    answer = client.call("POST", "/v1/webhooks", data=body, content_type="application/json")
    assert refused(answer) == (422, "malformed_json")


def test_a_body_that_is_far_too_large_is_not_read(client: Client) -> None:
    answer = client.call("POST", "/v1/webhooks", json={"url": "x" * views.BODY_BYTES})
    assert refused(answer)[0] == 413


def test_a_url_is_subscribed_once_in_a_workspace(client: Client) -> None:
    first = client.made()
    assert refused(client.subscribe()) == (409, "conflict")
    assert client.subscribe(workspace_id=OTHER)[0] == 201
    assert client.call("DELETE", f"/v1/webhooks/{first}") == (204, None)
    assert client.subscribe()[0] == 201


def test_a_workspace_has_at_most_twenty_webhooks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert subscriptions.MAX_PER_WORKSPACE == 20
    monkeypatch.setattr(subscriptions, "MAX_PER_WORKSPACE", 2)
    first, _ = client.made(f"{URL}/1"), client.made(f"{URL}/2")
    assert refused(client.subscribe(f"{URL}/3")) == (409, "conflict")
    assert client.subscribe(f"{URL}/3", workspace_id=OTHER)[0] == 201
    client.call("DELETE", f"/v1/webhooks/{first}")
    assert client.subscribe(f"{URL}/3")[0] == 201


def test_of_many_who_subscribe_one_url_at_once_one_does(services: Services, webhooks: Webhooks) -> None:
    for number in range(5):
        ends = at_once(*[lambda n=number: webhooks.subscribe(f"{URL}/{n}")] * 4)
        assert sum(isinstance(end, errors.Conflict) for end in ends) == 3


def test_a_deleted_webhook_is_gone_and_deleting_it_again_is_as_good_as_once(
    client: Client, webhooks: Webhooks
) -> None:
    subscription_id = client.made()
    path = f"/v1/webhooks/{subscription_id}"
    assert client.call("DELETE", path) == (204, None)
    assert client.call("DELETE", path) == (204, None)
    assert webhooks.sql("SELECT count(*) FROM audit WHERE action = 'webhook_deleted'") == [(1,)]
    assert client.call("GET", "/v1/webhooks", query_string={"workspace_id": WORKSPACE})[1] == {"webhooks": []}
    assert refused(client.call("GET", f"{path}/deliveries")) == (404, "not_found")


def test_a_rotated_secret_is_another_one_and_says_how_long_the_old_one_signs(client: Client) -> None:
    _, made = client.subscribe()
    status, body = client.call("POST", f"/v1/webhooks/{made['subscription_id']}/rotate-secret")
    assert status == 200
    assert body["secret"].startswith("whsec_")
    assert body["secret"] != made["secret"]
    assert body["previous_secret_until"]


# -- deliveries


def test_a_test_arrives_as_a_marked_sample_and_stands_in_the_log(
    client: Client, webhooks: Webhooks, receiver: Receiver
) -> None:
    receiver.answers = [says(202, b"thank you")]
    _, made = client.subscribe(receiver.url)
    status, body = client.call("POST", f"/v1/webhooks/{made['subscription_id']}/test")
    assert (status, body["status"]) == (202, "pending")
    assert webhooks.send() == 1
    (request,) = receiver.received
    message = standardwebhooks.Webhook(made["secret"]).verify(request.body, request.headers)
    assert (message["type"], message["test"]) == ("ingestion-complete", True)
    assert message["data"]["workspace_id"] == str(WORKSPACE)
    assert message["data"]["upload_id"] == str(UUID(int=0))
    (delivery,) = client.deliveries(made["subscription_id"])["deliveries"]
    assert request.headers["webhook-id"] == body["delivery_id"] == delivery["delivery_id"]
    assert (delivery["test"], delivery["status"], delivery["error_code"]) == (True, "delivered", None)
    (attempt,) = delivery["attempts"]
    assert (attempt["number"], attempt["status_code"], attempt["excerpt"]) == (1, 202, "thank you")
    assert attempt["at"]
    assert attempt["duration_ms"] >= 0


def test_a_second_test_waits_for_the_first(client: Client, webhooks: Webhooks, receiver: Receiver) -> None:
    path = f"/v1/webhooks/{client.made(receiver.url)}/test"
    assert client.call("POST", path)[0] == 202
    assert refused(client.call("POST", path)) == (409, "conflict")
    webhooks.send()
    assert client.call("POST", path)[0] == 202


def test_a_failed_delivery_says_why_and_is_sent_again_by_hand_under_its_id(
    client: Client, webhooks: Webhooks, receiver: Receiver, owner_sql: Callable[[str], list[Any]]
) -> None:
    receiver.answers = [says(401, b"who are you?"), says(200)]
    subscription_id = client.made(receiver.url)
    webhooks.tell(key="the-upload")
    webhooks.send()
    (failed,) = client.deliveries(subscription_id)["deliveries"]
    assert (failed["status"], failed["error_code"], failed["event_key"]) == (
        "failed",
        "refused",
        "the-upload",
    )
    assert "4xx" in failed["error_text"]
    path = f"/v1/webhooks/{subscription_id}/deliveries/{failed['delivery_id']}/redeliver"
    assert client.call("POST", path) == (202, {"delivery_id": failed["delivery_id"], "status": "pending"})
    assert refused(client.call("POST", path)) == (409, "conflict")  # it is on its way
    webhooks.send()
    (delivered,) = client.deliveries(subscription_id)["deliveries"]
    assert (delivered["status"], delivered["redelivered_by"]) == ("delivered", "local key")
    assert [attempt["status_code"] for attempt in delivered["attempts"]] == [401, 200]
    assert len(set(receiver.ids)) == 1
    assert owner_sql(
        "SELECT owner_id, detail ->> 'event_key' FROM audit WHERE action = 'webhook_redelivered'"
    ) == [("local key", "the-upload")]


def test_what_is_sent_again_by_hand_has_all_its_tries_again(
    client: Client, webhooks: Webhooks, receiver: Receiver
) -> None:
    receiver.answers = [says(500)]
    subscription_id = client.made(receiver.url)
    webhooks.tell()
    while webhooks.send():
        webhooks.make_due()
    (failed,) = client.deliveries(subscription_id)["deliveries"]
    client.call("POST", f"/v1/webhooks/{subscription_id}/deliveries/{failed['delivery_id']}/redeliver")
    webhooks.send()
    assert webhooks.state() == ("pending", "server_error", 1.0)


def test_all_that_failed_is_sent_again_by_one_command(
    client: Client, webhooks: Webhooks, receiver: Receiver, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("app.uploads.webhooks.views.PAGE_DELIVERIES", 2)
    receiver.answers = [says(200), *[says(400)] * 4, says(200)]
    subscription_id = client.made(receiver.url)
    for number in range(5):
        webhooks.tell(key=f"upload {number}")
        webhooks.send()

    class Instance:
        def get(self, path: str, **query: str) -> Any:
            return client.call("GET", f"{path}?{urllib.parse.urlencode(query)}")[1]

        def post(self, path: str, _: Any) -> Any:
            status, body = client.call("POST", path)
            assert status == 202
            return body

    parser = argparse.ArgumentParser()
    cli_operations.add_webhooks(parser, lambda _: Instance())  # type: ignore[arg-type,return-value]
    command = ["redeliver", str(subscription_id)]
    for more in (["--dry-run"], []):
        options = parser.parse_args([*command, *more])
        assert options.run(options) == 0
        said = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert [code for _, _, code in said] == ["refused"] * 4
        assert [at for _, at, _ in said] == sorted(at for _, at, _ in said)
        webhooks.send()
    found = client.deliveries(subscription_id)
    assert {one["status"] for one in found["deliveries"]} == {"delivered"}
    assert len(receiver.ids) == 9
    options = parser.parse_args(command)
    assert (options.run(options), capsys.readouterr().out) == (0, "")


def test_nothing_is_sent_by_hand_to_a_receiver_that_is_gone(
    client: Client, webhooks: Webhooks, receiver: Receiver
) -> None:
    receiver.answers = [says(410)]
    subscription_id = client.made(receiver.url)
    webhooks.tell()
    webhooks.send()
    (delivery,) = client.deliveries(subscription_id)["deliveries"]
    redeliver = f"/v1/webhooks/{subscription_id}/deliveries/{delivery['delivery_id']}/redeliver"
    for path in (redeliver, f"/v1/webhooks/{subscription_id}/test"):
        status, body = client.call("POST", path)
        assert (status, "410" in body["detail"]) == (409, True)
    assert client.subscribe(receiver.url)[0] == 201


def test_the_log_is_read_page_by_page_newest_first(
    client: Client, webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PAGE_DELIVERIES", 2)
    subscription_id = client.made()
    for number in range(5):
        webhooks.tell(key=str(number))
    keys, cursor = [], ""
    while cursor is not None:
        page = client.deliveries(subscription_id, cursor=cursor)
        keys.append([delivery["event_key"] for delivery in page["deliveries"]])
        cursor = page["cursor"]
    assert keys == [["4", "3"], ["2", "1"], ["0"]]


@pytest.mark.parametrize("cursor", ["x", "MjAyNg==", "é", "MjAyNi0wMS0wMSB4", "a" * 999, "%00"])
def test_a_cursor_that_is_none_is_refused(cursor: str, client: Client) -> None:
    answer = client.call("GET", f"/v1/webhooks/{client.made()}/deliveries", query_string={"cursor": cursor})
    assert refused(answer) == (422, "invalid_cursor")


# -- nobody sees another's


CALLS = [
    # method, path below /v1/webhooks/<id>
    ("DELETE", ""),
    ("POST", "/rotate-secret"),
    ("POST", "/test"),
    ("GET", "/deliveries"),
    ("POST", "/deliveries/{delivery}/redeliver"),
]


def let_in(monkeypatch: pytest.MonkeyPatch, *scopes: str) -> None:
    """Requests are made with a key of our workspace from here on."""
    who = Principal("key of ours", WORKSPACE, frozenset(scopes))
    monkeypatch.setattr(principal, "current", lambda: who)


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_another_workspaces_webhook_is_what_an_unknown_one_is(
    method: str, path: str, client: Client, webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = client.made(workspace_id=OTHER)
    webhooks.tell(workspace_id=OTHER)
    ((delivery,),) = webhooks.sql("SELECT id FROM webhook_deliveries")
    webhooks.sql("UPDATE webhook_deliveries SET status = 'delivered', finished_at = now()")
    before = webhooks.sql("SELECT s::text, d::text FROM webhook_subscriptions s, webhook_deliveries d")
    let_in(monkeypatch, "ops", "read")
    of_theirs, of_nobody = (
        client.call(method, f"/v1/webhooks/{which}{path.format(delivery=delivery)}")
        for which in (theirs, uuid.uuid4())
    )
    assert refused(of_theirs) == (404, "not_found")
    assert of_theirs == of_nobody
    assert before == webhooks.sql(
        "SELECT s::text, d::text FROM webhook_subscriptions s, webhook_deliveries d"
    )


def test_a_delivery_is_looked_for_under_its_own_webhook(client: Client, webhooks: Webhooks) -> None:
    client.made()
    other = client.made(f"{URL}/other")
    webhooks.tell()
    ((delivery,),) = webhooks.sql(f"SELECT id FROM webhook_deliveries WHERE subscription_id <> '{other}'")
    answer = client.call("POST", f"/v1/webhooks/{other}/deliveries/{delivery}/redeliver")
    assert refused(answer) == (404, "not_found")


def test_webhooks_of_another_workspace_are_neither_listed_nor_made(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in(monkeypatch, "ops")
    assert refused(client.subscribe(workspace_id=OTHER)) == (404, "not_found")
    answer = client.call("GET", "/v1/webhooks", query_string={"workspace_id": OTHER})
    assert refused(answer) == (404, "not_found")
    assert client.subscribe()[1]["created_by"] == "key of ours"


@pytest.mark.parametrize(("method", "path"), [*CALLS, ("POST", None), ("GET", None)])
def test_webhooks_need_the_scope_ops(
    method: str, path: str | None, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "" if path is None else f"/{client.made()}{path.format(delivery=uuid.uuid4())}"
    let_in(monkeypatch, "read", "upload")
    answer = client.call(method, f"/v1/webhooks{where}", query_string={"workspace_id": WORKSPACE})
    assert refused(answer) == (403, "forbidden")


def test_what_a_person_asks_for_is_begun_at_once(services: Services, webhooks: Webhooks) -> None:
    made = webhooks.subscribe(URL)
    delivery_id = subscriptions.send_test(services, WORKSPACE, made.subscription_id, who="tests")
    webhooks.sql("UPDATE webhook_deliveries SET status = 'delivered', finished_at = now()")
    subscriptions.redeliver(services, WORKSPACE, made.subscription_id, delivery_id=delivery_id, who="tests")
    assert services.dispatch.sent == [deliver.TASK, deliver.TASK]  # type: ignore[attr-defined]
