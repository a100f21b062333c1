"""Outside topics become commands of their tenant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from app.kernel import errors
from app.refdata.adapter import Adapting
from app.refdata.config import Source
from tests.integration.refdata.chain import consuming, dead_letters
from tests.integration.refdata.platform import TENANT, Platform, body


@pytest.fixture
def outside(platform: Platform) -> Iterator[Adapting]:
    """What reads the outside topic, which belongs to one tenant."""
    of = platform.services
    topic = f"{of.config.refdata.kafka.commands_topic}.outside"
    of.ensure_topics()
    of.topics.ensure(topic, partitions=2, max_bytes=1 << 20)
    consumer = of.topics.consumer(topic, group="adapter")
    yield Adapting(of, Source(topic=topic, tenantId=TENANT), consumer, of.publisher)
    consumer.close()


def send(platform: Platform, message: Any, key: str = "any") -> None:
    of = platform.services
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    of.publisher.publish(f"{of.config.refdata.kafka.commands_topic}.outside", key=key, value=value)


def foreign(code: str, items: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A message as an outside system sends it: without tenant, source and id."""
    found = body(code, items, **members)
    return {name: value for name, value in found.items() if name not in ("tenantId", "source", "eventId")}


def everything(loop: Any) -> int:
    handled = 0
    while found := loop.work_off(0.5):
        handled += found
    return handled


def test_a_message_becomes_a_command_with_a_request(platform: Platform, outside: Adapting) -> None:
    send(platform, foreign("NOTES", {"a": {"n": 1}}))
    send(platform, body("COUNTRY", {"AT": {"name": "Austria"}}, source="KAFKA"))
    assert everything(outside) == 2
    assert platform.sql("SELECT status FROM refdata.update_request") == [("PENDING",)] * 2
    with ExitStack() as running:
        assert everything(consuming(platform.services, running)) == 2
    assert (platform.notes(), platform.countries()) == ({"a": {"n": 1}}, {"AT": "Austria"})
    found = platform.sql("SELECT status, committed_version FROM refdata.update_request")
    assert found == [("COMMITTED", 1)] * 2
    assert platform.sql("SELECT DISTINCT source FROM refdata.processed_event") == [("KAFKA",)]


def test_the_same_message_again_is_the_same_command(
    platform: Platform, outside: Adapting, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(platform, foreign("NOTES", {"a": {"n": 1}}))
    real = outside._consumer.commit
    with monkeypatch.context() as lost:

        def no_commit(_: Any) -> None:
            raise errors.ConnectionLost("The commit is lost.")

        lost.setattr(outside._consumer, "commit", no_commit)
        outside.work_off(5.0)
    outside._consumer.commit = real  # type: ignore[method-assign]
    with ExitStack() as running:
        loop = consuming(platform.services, running)
        everything(outside)
        everything(loop)
    assert [one["version"] for one in platform.announcements()] == [1]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"no json", "invalid_json"),
        (foreign("NEVER", {"a": {}}), "UNKNOWN_DICTIONARY"),
        (foreign("LAWS", {"a": {}}), "READ_ONLY_DICTIONARY"),
        (body("NOTES", {"a": {}}, tenantId="tenant-b", source="KAFKA"), "MALFORMED_COMMAND"),
        ({"dictCode": "NOTES"}, "MALFORMED_COMMAND"),
    ],
)
def test_what_is_no_command_of_the_tenant_is_a_dead_letter_and_the_next_goes_on(
    message: Any, code: str, platform: Platform, outside: Adapting
) -> None:
    send(platform, message)
    send(platform, foreign("NOTES", {"a": {"n": 1}}))
    assert everything(outside) == 2
    [letter] = dead_letters(platform)
    assert letter.headers["error-code"].decode() == code
    assert platform.sql("SELECT count(*) FROM refdata.update_request") == [(1,)]


def test_messages_wait_while_the_database_does_not_answer(
    platform: Platform, outside: Adapting, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(platform, foreign("NOTES", {"a": {"n": 1}}))

    def gone(*_: Any, **__: Any) -> None:
        raise errors.ConnectionLost("It is gone.")

    with monkeypatch.context() as broken:
        broken.setattr("app.refdata.accept.accept", gone)
        assert outside.work_off(5.0) == 0
    assert everything(outside) == 1
