"""Events leave after their commit, at least once, in order; consumers take over from dead ones."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from app.adapters import embedded, outbox, signals
from app.kernel import errors
from app.uploads import events
from app.uploads.services import Services
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.threads import at_once

WORKSPACE = UUID("11111111-1111-4111-8111-111111111111")
TOPIC = "things"
OwnerSql = Callable[[str], list[Any]]


def add(services: Services, *keys: str, topic: str = TOPIC, payload: Any = None) -> list[bool]:
    with services.db.transaction("promote", WORKSPACE) as conn:
        return [
            outbox.add(conn, WORKSPACE, topic=topic, key=key, payload=payload or {"n": key}) for key in keys
        ]


def relay(services: Services) -> int:
    return outbox.relay(services.db, services.streams)


def published(services: Services, topic: str = TOPIC) -> list[tuple[str, Any]]:
    """What stands on the stream, in order."""
    found: list[tuple[str, Any]] = []

    def note(events: Sequence[signals.Event]) -> None:
        found.extend((key, json.loads(payload)) for key, payload in events)

    services.streams.consume(topic, group=uuid.uuid4().hex, consumer="test", handle=note)
    return found


def keys_published(services: Services) -> list[str]:
    return [key for key, _ in published(services)]


def unpublished(owner_sql: OwnerSql) -> list[str]:
    return [key for (key,) in owner_sql("SELECT key FROM outbox WHERE published_at IS NULL ORDER BY id")]


# -- written with the work


def test_an_event_is_there_only_after_its_commit(services: Services) -> None:
    with services.db.transaction("promote", WORKSPACE) as conn:
        outbox.add(conn, WORKSPACE, topic=TOPIC, key="1", payload={"n": 1})
        assert relay(services) == 0
    assert relay(services) == 1
    assert published(services) == [("1", {"n": 1})]


def test_an_event_of_work_that_was_rolled_back_never_leaves(services: Services) -> None:
    with pytest.raises(ValueError), services.db.transaction("promote", WORKSPACE) as conn:
        outbox.add(conn, WORKSPACE, topic=TOPIC, key="1", payload={})
        raise ValueError
    assert relay(services) == 0
    assert published(services) == []


def test_a_key_is_told_once(services: Services) -> None:
    assert add(services, "1", "1", payload={"n": "first"}) == [True, False]
    assert add(services, "1", payload={"n": "second"}) == [False]
    assert add(services, "1", topic="other things") == [True]
    assert relay(services) == 2
    assert add(services, "1", payload={"n": "third"}) == [False]
    assert relay(services) == 0
    assert published(services) == [("1", {"n": "first"})]


def test_of_two_transactions_with_one_key_one_tells_it(services: Services) -> None:
    ends = at_once(*[lambda: add(services, "1")[0]] * 4)
    assert sorted(ends) == [False, False, False, True]


# -- published by the relay


def test_events_are_published_in_order_and_marked(services: Services, owner_sql: OwnerSql) -> None:
    keys = [str(number) for number in range(250)]  # more than two batches
    add(services, *keys)
    assert relay(services) == 250
    assert keys == keys_published(services)
    assert unpublished(owner_sql) == []
    assert relay(services) == 0


class FailsToMark:
    """The outbox's queries, of which marking fails at the given call."""

    def __init__(self, queries: Any, call: int) -> None:
        self._queries, self._calls_left = queries, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queries, name)

    def mark_events_published(self, conn: Any, **values: Any) -> Any:
        self._calls_left -= 1
        if self._calls_left == 0:
            raise errors.ConnectionLost
        return self._queries.mark_events_published(conn, **values)


def test_a_crash_between_publishing_and_marking_publishes_again(
    services: Services, owner_sql: OwnerSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{number:03}" for number in range(150)]  # in two batches
    add(services, *keys)
    monkeypatch.setattr(outbox, "_outbox", FailsToMark(outbox._outbox, call=2))
    with pytest.raises(errors.ConnectionLost):
        relay(services)
    assert unpublished(owner_sql) == keys[100:]
    assert relay(services) == 50
    assert keys_published(services) == [*keys, *keys[100:]]
    assert unpublished(owner_sql) == []


def test_two_relays_at_once_publish_each_event_once(services: Services, owner_sql: OwnerSql) -> None:
    keys = [f"{number:03}" for number in range(300)]
    add(services, *keys)
    assert sum(at_once(*[lambda: relay(services)] * 3)) == 300
    assert keys == sorted(keys_published(services))
    assert unpublished(owner_sql) == []


def test_an_event_waits_while_redis_is_down(services: Services, owner_sql: OwnerSql) -> None:
    add(services, "1")
    nobody = signals.Streams(f"redis://:secret-word@127.0.0.1:{embedded.free_port()}/0")
    with pytest.raises(errors.ConnectionLost) as raised:
        outbox.relay(services.db, nobody)
    assert "secret-word" not in str(raised.value)
    assert unpublished(owner_sql) == ["1"]
    assert relay(services) == 1


def test_consuming_from_a_redis_that_is_down_is_a_lost_connection() -> None:
    nobody = signals.Streams(f"redis://127.0.0.1:{embedded.free_port()}/0")
    with pytest.raises(errors.ConnectionLost):
        nobody.consume(TOPIC, group="g", consumer="c", handle=lambda _events: None)


# -- read by groups of consumers


def consume(services: Services, consumer: str, handle: Callable[[str], Any]) -> int:
    def handle_all(events: Sequence[signals.Event]) -> None:
        for key, _ in events:
            handle(key)

    return services.streams.consume(TOPIC, group="readers", consumer=consumer, handle=handle_all)


class Died(Exception):
    """The consumer's process is gone."""


def die(_key: str) -> None:
    raise Died


def test_a_group_handles_each_event_once(services: Services) -> None:
    add(services, "1", "2")
    relay(services)
    handled: list[str] = []
    assert consume(services, "one", handled.append) == 2
    assert consume(services, "two", handled.append) == 0
    assert handled == ["1", "2"]


def test_every_group_handles_every_event(services: Services) -> None:
    add(services, "1", "2")
    relay(services)
    assert keys_published(services) == ["1", "2"]
    assert keys_published(services) == ["1", "2"]


def test_events_of_a_dead_consumer_are_handled_by_another(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(services, "1", "2", "3")
    relay(services)
    with pytest.raises(Died):
        consume(services, "dead", die)
    handled: list[str] = []
    assert consume(services, "alive", handled.append) == 0  # it may only be slow
    monkeypatch.setattr(signals, "ABANDONED_MS", 0)
    assert consume(services, "alive", handled.append) == 3
    assert handled == ["1", "2", "3"]
    assert consume(services, "alive", handled.append) == 0


def test_new_events_are_handled_while_those_of_a_dead_consumer_wait(services: Services) -> None:
    add(services, "1")
    relay(services)
    with pytest.raises(Died):
        consume(services, "dead", die)
    add(services, "2")
    relay(services)
    handled: list[str] = []
    assert consume(services, "alive", handled.append) == 1
    assert handled == ["2"]


def test_an_event_that_cannot_be_handled_holds_up_no_other_and_comes_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(services, "1", "2", "3")
    relay(services)
    alone: list[str] = []

    def handle(events: Sequence[signals.Event]) -> None:
        if any(key == "2" for key, _ in events):
            raise errors.Refused("Not this one.")
        alone.extend(key for key, _ in events)

    def consume_all() -> int:
        return services.streams.consume(TOPIC, group="readers", consumer="one", handle=handle)

    assert (consume_all(), alone) == (2, ["1", "3"])
    monkeypatch.setattr(signals, "ABANDONED_MS", 0)
    handled: list[str] = []
    assert consume(services, "two", handled.append) == 1
    assert handled == ["2"]


# -- the audit log as a consumer


def completion(upload_id: UUID) -> dict[str, Any]:
    return {
        "upload_id": upload_id,
        "workspace_id": WORKSPACE,
        "status": "completed",
        "metrics": {"promoted_rows": 3},
    }


def test_a_completion_is_recorded_once_however_often_it_arrives(
    services: Services, owner_sql: OwnerSql
) -> None:
    upload_id = uuid.uuid4()
    add(services, str(upload_id), topic=events.TOPIC, payload=completion(upload_id))
    assert events.relay(services) == 1
    assert events.record_in_audit(services) == 1
    owner_sql("UPDATE outbox SET published_at = NULL")
    assert events.relay(services) == 1
    assert events.record_in_audit(services) == 1
    found = owner_sql("SELECT upload_id::text, action, to_status, why FROM audit")
    assert [(str(upload_id), "event_received", "completed", "3 rows promoted")] == found


def test_completions_of_two_uploads_are_both_recorded(services: Services, owner_sql: OwnerSql) -> None:
    for upload_id in (uuid.uuid4(), uuid.uuid4()):
        add(services, str(upload_id), topic=events.TOPIC, payload=completion(upload_id))
    events.relay(services)
    ends = at_once(
        lambda: events.record_in_audit(services),
        lambda: events.record_in_audit(replace(services)),
    )
    assert sum(ends) == 2
    assert owner_sql("SELECT count(*) FROM audit WHERE action = 'event_received'") == [(2,)]


def test_what_is_relayed_stands_in_the_audit_log(services: Services, owner_sql: OwnerSql) -> None:
    upload_id = uuid.uuid4()
    add(services, str(upload_id), topic=events.TOPIC, payload=completion(upload_id))
    events.pass_on(services)
    assert owner_sql("SELECT upload_id::text FROM audit WHERE action = 'event_received'") == [
        (str(upload_id),)
    ]
    assert unpublished(owner_sql) == []
