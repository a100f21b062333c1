"""From a command over HTTP to its announcement, through the topic of commands."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import flask.testing
import jsonschema
import pytest

from app import web
from app.adapters.settings import Settings
from app.kernel import errors
from app.refdata import services as refdata_services
from app.refdata import store
from tests.conftest import KEY, SECRET, Servers
from tests.integration.one_database import database_url  # noqa: F401
from tests.integration.refdata.chain import at_work, consuming, dead_letters, listening, on_stream, relaying
from tests.integration.refdata.platform import TENANT, Platform, body, command
from tests.integration.threads import wait_until

INVALIDATION = json.loads(
    (Path(__file__).parents[3] / "docs/schemas/refdata-invalidation.schema.json").read_text()
)
A, B = {"name": "Austria"}, {"name": "Belgium"}


@pytest.fixture
def client(
    platform: Platform,
    servers: Servers,
    database_url: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[flask.testing.FlaskClient]:
    """The web process, with the platform's parts."""
    settings = Settings(
        database_url=database_url, broker_url=servers.valkey.url, data_dir=tmp_path, bind="127.0.0.1:0",
        api_key=KEY, secret=SECRET, refdata_config=str(platform.config),
    )  # fmt: skip
    monkeypatch.setattr(refdata_services, "connect", lambda *_, **__: platform.services)
    platform.services.api_key = KEY
    app = web.create_app(settings)
    found = app.test_client()
    found.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {KEY}"
    yield found


def send(client: flask.testing.FlaskClient, command: dict[str, Any], **query: Any) -> Any:
    return client.post(f"/v1/tenants/{TENANT}/updates", json=command, query_string=query)


def test_a_command_is_accepted_and_its_status_tells_its_version(
    client: flask.testing.FlaskClient, platform: Platform
) -> None:
    sent = body("COUNTRY", {"AT": A})
    with at_work(platform):
        answer = send(client, sent)
        assert answer.status_code == 202
        told = answer.get_json()
        assert (told["eventId"], answer.headers["Location"]) == (sent["eventId"], told["statusUrl"])
        wait_until(lambda: client.get(told["statusUrl"]).get_json()["status"] != "PENDING")
    found = client.get(told["statusUrl"]).get_json()
    assert (found["status"], found["committedVersion"], found["dictCode"]) == ("COMMITTED", 1, "COUNTRY")
    assert platform.countries() == {"AT": "Austria"}


def test_a_writer_may_wait_for_the_commit(client: flask.testing.FlaskClient, platform: Platform) -> None:
    with at_work(platform):
        for version in range(1, 4):
            sent = {name: value for name, value in body("COUNTRY", {"AT": A}).items() if name != "eventId"}
            answer = send(client, sent, consistencyMode="WAIT_COMMIT", timeoutMs=1000)
            assert (answer.status_code, answer.get_json()["committedVersion"]) == (200, version)
            assert platform.countries() == {"AT": "Austria"}
        refused = send(
            client,
            body("COUNTRY", {"AT": {"name": "Atlantis"}}),
            consistencyMode="WAIT_COMMIT",
            timeoutMs=1000,
        )
    assert (refused.status_code, refused.get_json()["code"]) == (422, "ITEM_REFUSED")
    assert "AT" in refused.get_json()["detail"]


def test_who_waits_in_vain_has_the_status_instead(
    client: flask.testing.FlaskClient, platform: Platform
) -> None:
    answer = send(client, body("COUNTRY", {"AT": A}), consistencyMode="WAIT_COMMIT", timeoutMs=50)
    assert (answer.status_code, answer.get_json()["status"]) == (202, "PENDING")


def test_the_same_command_again_is_the_same_request(
    client: flask.testing.FlaskClient, platform: Platform
) -> None:
    sent = body("COUNTRY", {"AT": A})
    with at_work(platform):
        first = send(client, sent, consistencyMode="WAIT_COMMIT", timeoutMs=1000)
        again = send(client, sent, consistencyMode="WAIT_COMMIT", timeoutMs=1000)
        other = send(client, sent | {"items": body("COUNTRY", {"AT": B})["items"]})
    assert first.get_json() == again.get_json()
    assert (other.status_code, other.get_json()["code"]) == (409, "EVENT_ID_REUSED")
    assert len(platform.announcements()) == 1


@pytest.mark.parametrize(
    ("change", "query", "status", "code"),
    [
        ({"dictCode": "NEVER"}, {}, 404, "UNKNOWN_DICTIONARY"),
        ({"dictCode": "OLD"}, {}, 404, "UNKNOWN_DICTIONARY"),
        ({"dictCode": "LAWS"}, {}, 409, "READ_ONLY_DICTIONARY"),
        ({"tenantId": "tenant-b"}, {}, 422, "MALFORMED_COMMAND"),
        ({"items": []}, {}, 422, "MALFORMED_COMMAND"),
        ({"items": [{"key": "a", "payload": {}}] * 10_001}, {}, 413, "COMMAND_TOO_LARGE"),
        ({"items": [{"key": "a", "payload": {"a": "x" * (5 << 20)}}]}, {}, 413, "request_entity_too_large"),
        ({}, {"consistencyMode": "SOON"}, 422, "MALFORMED_COMMAND"),
        ({}, {"consistencyMode": "WAIT_COMMIT", "timeoutMs": "49"}, 422, "MALFORMED_COMMAND"),
        ({}, {"timeoutMs": "1001"}, 422, "MALFORMED_COMMAND"),
        ({}, {"timeoutMs": "１００"}, 422, "MALFORMED_COMMAND"),
    ],
)
def test_what_is_not_taken_says_why(
    change: dict[str, Any], query: dict[str, str], status: int, code: str, client: flask.testing.FlaskClient
) -> None:
    answer = send(client, body("COUNTRY", {"AT": A}) | change, **query)
    assert (answer.status_code, answer.get_json()["code"]) == (status, code)


def test_a_body_that_is_no_json_is_told(client: flask.testing.FlaskClient) -> None:
    answer = client.post(f"/v1/tenants/{TENANT}/updates", data=b"{")
    assert (answer.status_code, answer.get_json()["code"]) == (400, "invalid_json")


def test_another_tenants_request_is_not_there(client: flask.testing.FlaskClient, platform: Platform) -> None:
    told = send(client, body("COUNTRY", {"AT": A})).get_json()
    theirs = client.get(f"/v1/tenants/tenant-b/updates/{told['eventId']}")
    assert (theirs.status_code, theirs.get_json()["code"]) == (404, "not_found")
    assert client.get(f"/v1/tenants/{TENANT}/updates/{uuid.uuid4()}").status_code == 404


def test_a_command_that_no_topic_took_is_sent_later(
    client: flask.testing.FlaskClient, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise errors.ConnectionLost("The topic does not answer.")

    sent = body("COUNTRY", {"AT": A})
    with monkeypatch.context() as broken:
        broken.setattr(platform.services.publisher, "publish", gone)
        assert send(client, sent).status_code == 503
    status = client.get(f"/v1/tenants/{TENANT}/updates/{sent['eventId']}").get_json()["status"]
    assert status == "PENDING"
    platform.sql("UPDATE refdata.update_request SET created_at = created_at - interval '11 s'")
    assert relaying(platform).send_unpublished(platform.services.databases["postgres"]) == 1
    with at_work(platform):
        wait_until(lambda: platform.countries() == {"AT": "Austria"})


# -- announcements


def test_every_version_is_announced_on_the_channel_and_on_the_stream(platform: Platform) -> None:
    with listening(platform) as heard:
        platform.apply(*(command("COUNTRY", {"AT": {"name": str(n)}}) for n in range(5)))
        platform.apply(command("CURRENCY", {"EUR": {"name": "Euro", "digits": 2}}))
        assert heard == [] and on_stream(platform) == []
        assert relaying(platform).work_off() == 6
        wait_until(lambda: len(heard) == 6)
    assert [one["version"] for one in heard if one["dictCode"] == "COUNTRY"] == [1, 2, 3, 4, 5]
    assert on_stream(platform) == heard
    assert platform.announcements() + platform.announcements(second=True) == heard
    for one in heard:
        jsonschema.validate(one, INVALIDATION)
    assert relaying(platform).work_off() == 0


def test_nothing_is_announced_before_its_commit(platform: Platform) -> None:
    db = platform.services.databases["postgres"]
    one = command("NOTES", {"a": {}})
    with db.transaction(None) as conn:
        store.lock(conn, [(TENANT, "NOTES")], "public")
        store.end_commands(conn, [store.Ended(one, one.digest, version=1)])
        assert relaying(platform).work_off() == 0
    assert relaying(platform).work_off() == 1


def test_a_relay_that_dies_between_announcing_and_marking_announces_again(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.apply(command("NOTES", {"a": {}}), command("NOTES", {"b": {}}))

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(store, "mark_announced", die)
        relaying(platform).work_off()
    assert relaying(platform).work_off() == 2
    assert [one["version"] for one in on_stream(platform)] == [1, 2, 1, 2]


def test_of_two_relays_one_announces_at_a_time(platform: Platform) -> None:
    platform.apply(*(command("NOTES", {str(n): {}}) for n in range(50)))
    threads = [threading.Thread(target=relaying(platform).work_off) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert relaying(platform).work_off() == 0
    assert [one["version"] for one in on_stream(platform)] == list(range(1, 51))


# -- the topic


def publish(platform: Platform, value: bytes, key: str = f"{TENANT}:NOTES") -> None:
    of = platform.services
    of.publisher.publish(of.config.refdata.kafka.commands_topic, key=key, value=value)


def test_a_message_that_is_no_command_is_a_dead_letter_and_the_others_go_on(platform: Platform) -> None:
    good = command("NOTES", {"a": {"n": 1}})
    with ExitStack() as running:
        loop = consuming(platform.services, running)
        for value in (b"{", b"\xff\x00", b"[]", b"{}", good.encoded(), good.encoded().replace(b'"a"', b'""')):
            publish(platform, value)
        publish(platform, command("COUNTRY", {"AT": A}).encoded())  # under the key of another dictionary
        publish(platform, command("NEVER", {"x": {}}).encoded(), key=f"{TENANT}:NEVER")
        while loop.work_off(0.5):
            pass
    assert platform.notes() == {"a": {"n": 1}}
    assert platform.countries() == {}
    letters = dead_letters(platform)
    codes = sorted(one.headers["error-code"].decode() for one in letters)
    assert codes == ["MALFORMED_COMMAND"] * 6 + ["UNKNOWN_DICTIONARY"]
    assert {one.value for one in letters} >= {b"{", b"\xff\x00", b"[]"}
    assert all(one.headers["origin"].count(b"/") == 2 for one in letters)


def test_commands_wait_while_their_database_does_not_answer(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as running:
        loop = consuming(platform.services, running)
        for n in range(3):
            publish(platform, command("NOTES", {"a": {"n": n}}).encoded())

        def gone(*_: Any) -> None:
            raise errors.ConnectionLost("It is gone.")

        with monkeypatch.context() as broken:
            broken.setattr(store, "lock", gone)
            assert loop.work_off(5.0) == 0
        assert loop.work_off(5.0) == 3
    assert platform.notes() == {"a": {"n": 2}}
    assert [one["version"] for one in platform.announcements()] == [1, 2, 3]


def test_a_command_that_always_takes_too_long_is_given_up(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = command("COUNTRY", {"AT": {"name": "slow"}})
    real = store.end_commands

    def finish(conn: Any, ended: Any) -> None:
        if any(one.command.event == slow.event and one.error_code is None for one in ended):
            raise errors.TransactionTimeout()
        real(conn, ended)

    monkeypatch.setattr(store, "end_commands", finish)
    with ExitStack() as running:
        loop = consuming(platform.services, running)
        for one in (command("COUNTRY", {"BE": B}), slow, command("COUNTRY", {"CL": A})):
            publish(platform, one.encoded(), key=one.key)
        handled = 0
        for _ in range(12):
            handled += loop.work_off(2.0)
            if handled >= 3:
                break
    assert sorted(platform.countries()) == ["BE", "CL"]
    assert [one.headers["error-code"] for one in dead_letters(platform)] == [b"TRANSACTION_TIMEOUT"]


def test_one_trace_goes_from_the_request_to_the_announcement(
    client: flask.testing.FlaskClient, platform: Platform, spans: Any
) -> None:
    with at_work(platform):
        send(client, body("COUNTRY", {"AT": A}), consistencyMode="WAIT_COMMIT", timeoutMs=1000)
        wait_until(lambda: len(on_stream(platform)) == 1)
    wait_until(lambda: len(spans()) >= 3)
    found = {span.name: span for span in spans()}
    assert {"refdata.accept", "refdata.apply", "refdata.announce"} <= set(found)
    assert len({span.context.trace_id for span in found.values()}) == 1
