"""Deliveries: every outcome with its exact wait, once in flight, and never lost (D6.6 §6.2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import standardwebhooks
import structlog

from app.adapters import embedded, signals
from app.kernel import errors
from app.uploads import events, recover
from app.uploads.services import Services
from app.uploads.webhooks import deliver, signature, store, subscriptions
from app.uploads.webhooks.states import LONG_WAITS_SECONDS
from tests.conftest import SetClock, with_clock
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.threads import at_once, wait_until
from tests.integration.uploads.conftest import GOOD, Uploads
from tests.integration.webhooks.conftest import EVENT, OTHER, WORKSPACE, Webhooks
from tests.integration.webhooks.receiver import Behaviour, Receiver, drips, says, sends, waits

ROOT = Path(__file__).parent.parent.parent.parent
OwnerSql = Callable[[str], list[Any]]


# -- what is sent


def test_an_event_arrives_signed_so_that_another_implementation_verifies_it(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    secret = webhooks.subscribe(receiver.url).secret
    webhooks.tell()
    assert webhooks.send() == 1
    (request,) = receiver.received
    verified = standardwebhooks.Webhook(secret).verify(request.body, request.headers)
    assert verified == {"type": "ingestion-complete", "timestamp": EVENT["timestamp"], "data": EVENT}
    assert request.line == "POST /hooks?key=in-the-query HTTP/1.1"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["content-type"] == "application/json"
    assert webhooks.state() == ("delivered", None, None)
    assert webhooks.attempts() == [(1, 200, None)]


@pytest.mark.parametrize("part", ["webhook-id", "webhook-timestamp", "body"])
def test_the_signature_covers_id_time_and_body(part: str, webhooks: Webhooks, receiver: Receiver) -> None:
    verifier = standardwebhooks.Webhook(webhooks.subscribe(receiver.url).secret)
    webhooks.tell()
    webhooks.send()
    (request,) = receiver.received
    headers, body = dict(request.headers), request.body
    if part == "body":
        body = body.replace(b"completed", b"partial")
    elif part == "webhook-timestamp":
        headers[part] = str(int(headers[part]) - 1)
    else:
        headers[part] = str(uuid.uuid4())
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        verifier.verify(body, headers)


def verifies(secret: str, request: Any) -> bool:
    try:
        standardwebhooks.Webhook(secret).verify(request.body, request.headers)
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


def test_for_a_day_the_old_secret_signs_beside_the_new_one(webhooks: Webhooks, receiver: Receiver) -> None:
    first = webhooks.subscribe(receiver.url)
    second = subscriptions.rotate_secret(webhooks.services, WORKSPACE, first.subscription_id, who="tests")
    assert webhooks.sql(
        "SELECT round(extract(epoch FROM previous_until - now())) FROM webhook_subscriptions"
    )[0][0] in range(86_395, 86_401)
    webhooks.tell()
    webhooks.send()
    webhooks.sql("UPDATE webhook_subscriptions SET previous_until = now()")
    webhooks.tell()
    webhooks.send()
    during, after = receiver.received
    assert [verifies(made.secret, during) for made in (first, second)] == [True, True]
    assert [verifies(made.secret, after) for made in (first, second)] == [False, True]


def test_an_upload_that_ends_is_told_although_redis_is_away(
    webhooks: Webhooks, receiver: Receiver, services: Services
) -> None:
    webhooks.subscribe(receiver.url)
    nobody = signals.Streams(f"redis://127.0.0.1:{embedded.free_port()}/0")
    upload_id = Uploads(replace(services, streams=nobody)).finished(GOOD, workspace_id=WORKSPACE)
    assert deliver.TASK in services.dispatch.sent  # type: ignore[attr-defined]
    assert webhooks.send() == 1
    message = json.loads(receiver.received[0].body)
    assert message["type"] == "ingestion-complete"
    assert message["data"]["upload_id"] == str(upload_id)
    assert message["data"]["metrics"]["daily_metrics_upserted"] == 3
    assert message["data"]["affected_dates"] == ["2025-05-01", "2025-05-02"]


def test_an_upload_that_nobody_asked_about_sends_no_hint(services: Services) -> None:
    Uploads(services).finished(GOOD, workspace_id=WORKSPACE)
    assert deliver.TASK not in services.dispatch.sent  # type: ignore[attr-defined]


def test_an_event_is_told_once_to_each_subscription_of_its_workspace(webhooks: Webhooks) -> None:
    webhooks.subscribe("https://one.example/")
    webhooks.subscribe("https://two.example/")
    webhooks.subscribe("https://other.example/", workspace_id=OTHER)
    assert [webhooks.tell(key="a"), webhooks.tell(key="a"), webhooks.tell(key="b")] == [2, 0, 2]


def test_an_event_that_was_told_before_is_not_told_to_who_came_later(webhooks: Webhooks) -> None:
    claim: Any = SimpleNamespace(workspace_id=WORKSPACE, upload_id=uuid.uuid4())

    def emit() -> int:
        with webhooks.services.db.transaction("promote", WORKSPACE) as conn:
            return events.emit(conn, claim, EVENT)

    webhooks.subscribe("https://early.example/")
    assert emit() == 1
    webhooks.subscribe("https://late.example/")
    assert emit() == 0
    assert webhooks.statuses() == {"pending": 1}


def test_nothing_is_written_for_who_is_disabled_or_has_left(webhooks: Webhooks) -> None:
    webhooks.subscribe("https://gone.example/")
    webhooks.sql("UPDATE webhook_subscriptions SET disabled_at = now()")
    left = webhooks.subscribe("https://left.example/")
    subscriptions.end(webhooks.services, WORKSPACE, left.subscription_id, who="tests")
    assert webhooks.tell() == 0


# -- what comes of it: the failure table

NOW = SetClock().time


def at(**wait: float) -> str:
    return format_datetime(NOW + timedelta(**wait), usegmt=True)


OUTCOMES: list[tuple[str, Behaviour, tuple[str, str | None, float | None], int | None]] = [
    # the receiver …                     status, code, wait in seconds; status code
    ("says 200", says(200), ("delivered", None, None), 200),
    ("says 204", says(204), ("delivered", None, None), 204),
    ("says 500", says(500), ("pending", "server_error", 1.0), 500),
    ("says 502", says(502, retry_after="600"), ("pending", "server_error", 1.0), 502),
    ("says 503", says(503), ("pending", "rate_limited", 60.0), 503),
    ("says 429", says(429), ("pending", "rate_limited", 60.0), 429),
    ("asks for less", says(429, retry_after="5"), ("pending", "rate_limited", 60.0), 429),
    ("asks for more", says(429, retry_after="125"), ("pending", "rate_limited", 125.0), 429),
    ("asks for too much", says(503, retry_after="86400"), ("pending", "rate_limited", 3600.0), 503),
    ("asks for nonsense", says(429, retry_after="soon"), ("pending", "rate_limited", 60.0), 429),
    ("names a time", says(429, retry_after=at(minutes=7)), ("pending", "rate_limited", 420.0), 429),
    ("names a time past", says(429, retry_after=at(days=-1)), ("pending", "rate_limited", 60.0), 429),
    ("says 400", says(400), ("failed", "refused", None), 400),
    ("says 401", says(401), ("failed", "refused", None), 401),
    ("says 404", says(404), ("failed", "refused", None), 404),
    ("says 410", says(410), ("failed", "gone", None), 410),
    ("says 301", says(301, location="http://127.0.0.1:1/"), ("failed", "redirected", None), 301),
    ("says 307", says(307, location="/other"), ("failed", "redirected", None), 307),
    ("says 100 first", sends(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
     ("delivered", None, None), 200),
    ("is of 1996", sends(b"HTTP/1.0 200 OK\r\n\r\nfine"), ("delivered", None, None), 200),
    ("closes at once", sends(b""), ("pending", "connection_lost", 1.0), None),
    ("closes in its head", sends(b"HTTP/1.1 200 OK\r\nContent-"), ("pending", "connection_lost", 1.0), None),
    ("closes in its body", sends(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nhalf"),
     ("delivered", None, None), 200),
    ("speaks no HTTP", sends(b"SSH-2.0-OpenSSH\r\n\r\n\r\n"), ("pending", "bad_answer", 1.0), None),
    ("has an endless head", drips(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000), ("pending", "bad_answer", 1.0),
     None),
    ("has an endless body", sends(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000_000), ("delivered", None, None),
     200),
    ("drips its head", drips(b"HTTP/1.1 200 OK\r\nX: "), ("pending", "timeout", 1.0), None),
    ("drips its body", drips(b"HTTP/1.1 500 No\r\n\r\n"), ("pending", "server_error", 1.0), 500),
    ("says nothing", waits(threading.Event(), seconds=1.5), ("pending", "timeout", 1.0), None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "state", "status_code"), [o[1:] for o in OUTCOMES], ids=[o[0] for o in OUTCOMES]
)
def test_an_answer_has_its_outcome(
    answer: Behaviour,
    state: tuple[str, str | None, float | None],
    status_code: int | None,
    webhooks: Webhooks,
    receiver: Receiver,
) -> None:
    receiver.answers = [answer]
    webhooks.subscribe(receiver.url)
    webhooks.tell()
    webhooks.services = with_clock(webhooks.services, SetClock())
    assert webhooks.send(total_seconds=0.5) == 1
    assert webhooks.state() == state
    assert webhooks.attempts() == [(1, status_code, state[1])]
    assert len(receiver.received) == 1


def test_a_receiver_that_is_not_there_is_tried_again(webhooks: Webhooks) -> None:
    webhooks.subscribe(f"http://127.0.0.1:{embedded.free_port()}/")
    webhooks.tell()
    webhooks.send()
    assert webhooks.state() == ("pending", "connect_failed", 1.0)


def test_a_host_without_an_address_is_tried_again(webhooks: Webhooks) -> None:
    def nowhere(_host: str, _port: int) -> list[str]:
        raise OSError

    webhooks.subscribe("https://nowhere.example/")
    webhooks.tell()
    webhooks.send(resolve=nowhere)
    assert webhooks.state() == ("pending", "host_not_found", 1.0)


def test_a_resolver_that_hangs_is_given_up(webhooks: Webhooks) -> None:
    done = threading.Event()

    def hangs(_host: str, _port: int) -> list[str]:
        done.wait(20)
        return []

    webhooks.subscribe("https://slow.example/")
    webhooks.tell()
    webhooks.send(resolve=hangs, connect_seconds=0.1)
    done.set()
    assert webhooks.state() == ("pending", "timeout", 1.0)


WAITS = [
    # the receiver says, and goes on saying …   waits before each next try
    (500, [1, 2, 4, *LONG_WAITS_SECONDS]),
    (429, [60, 60, 60, 60, 60, *LONG_WAITS_SECONDS]),
]


@pytest.mark.parametrize(("status", "expected"), WAITS)
def test_a_receiver_that_stays_away_is_given_up_after_all_waits(
    status: int, expected: list[float], webhooks: Webhooks, receiver: Receiver
) -> None:
    receiver.answers = [says(status)]
    webhooks.subscribe(receiver.url)
    webhooks.tell()
    found = []
    while webhooks.send():
        found.append(webhooks.state()[2])
        assert webhooks.send() == 0  # not before its time
        webhooks.make_due()
    assert found == [*expected, None]
    assert webhooks.state()[0] == "failed"
    assert len(set(receiver.ids)) == 1
    assert len(receiver.received) == len(expected) + 1


def test_the_long_waits_outlast_a_night() -> None:
    assert LONG_WAITS_SECONDS == (300, 1800, 7200, 21_600, 43_200)
    assert sum(LONG_WAITS_SECONDS) > 12 * 3600


def test_a_receiver_that_recovers_has_the_same_message_again(webhooks: Webhooks, receiver: Receiver) -> None:
    receiver.answers = [says(500, b"no room"), says(200, b"thanks")]
    secret = webhooks.subscribe(receiver.url).secret
    webhooks.tell()
    webhooks.send()
    webhooks.make_due()
    webhooks.send()
    assert webhooks.state() == ("delivered", None, None)
    assert webhooks.attempts() == [(1, 500, "server_error"), (2, 200, None)]
    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert verifies(secret, second)


def test_what_a_receiver_says_is_kept_short_and_printable(webhooks: Webhooks, receiver: Receiver) -> None:
    receiver.answers = [says(500, b"No\x00 room\r\n\x1b[31mleft\xff " + "ü\u202e".encode() * 900)]
    webhooks.subscribe(receiver.url)
    webhooks.tell()
    webhooks.send()
    ((excerpt,),) = webhooks.sql("SELECT excerpt FROM webhook_attempts")
    assert excerpt.startswith("No room [31mleft\ufffd ü ü")
    assert len(excerpt) == 500
    assert excerpt.isprintable()


def test_a_receiver_that_is_gone_gets_nothing_more(webhooks: Webhooks, receiver: Receiver) -> None:
    receiver.answers = [says(410)]
    webhooks.subscribe(receiver.url)
    for _ in range(3):
        webhooks.tell()
    assert webhooks.send() == 1
    webhooks.make_due()
    assert webhooks.send() == 0
    assert webhooks.tell() == 0
    assert webhooks.sql("SELECT error_code, count(*) FROM webhook_deliveries GROUP BY 1 ORDER BY 1") == [
        ("gone", 1),
        ("subscription_disabled", 2),
    ]
    assert webhooks.sql("SELECT action, why FROM audit ORDER BY id DESC LIMIT 1") == [
        ("webhook_disabled", "the receiver answered 410")
    ]


def test_a_webhook_deleted_while_it_is_sent_is_not_tried_again(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    made = webhooks.subscribe(receiver.url)

    def deleted_meanwhile(connection: Any) -> None:
        subscriptions.end(webhooks.services, WORKSPACE, made.subscription_id, who="tests")
        says(500)(connection)

    receiver.answers = [deleted_meanwhile]
    webhooks.tell()
    webhooks.tell()
    assert webhooks.send() == 1
    assert webhooks.statuses() == {"failed": 2}
    assert webhooks.attempts() == [(1, 500, "server_error")]
    assert webhooks.sql("SELECT owner_id FROM webhook_subscriptions") == [(None,)]


# -- crashes, leases, and several workers


def test_a_worker_killed_between_sending_and_marking_sends_the_same_message_again(
    webhooks: Webhooks, receiver: Receiver, services: Services
) -> None:
    webhooks.subscribe(receiver.url)
    webhooks.tell()
    script = (
        "import os\n"
        "from app.adapters.settings import Settings\n"
        "from app.uploads import services\n"
        "from app.uploads.webhooks import deliver, store\n"
        "store.finish_attempt = lambda *_, **__: os._exit(9)\n"
        "deliver.run(services.connect(Settings.from_env(), name='tests'))\n"
    )
    settings = services.settings
    env = {
        **os.environ,
        "HEADWORKS_DATABASE_URL": settings.database_url,
        "HEADWORKS_BROKER_URL": settings.broker_url,
        "HEADWORKS_DATA_DIR": str(settings.data_dir),
        "HEADWORKS_SECRET": settings.secret,
        "HEADWORKS_WEBHOOKS_TO_LOOPBACK": "on",
    }
    killed = subprocess.run([sys.executable, "-c", script], env=env, cwd=ROOT, timeout=60, check=False)
    assert killed.returncode == 9
    assert webhooks.send() == 0  # the lease still runs
    webhooks.lose_leases()
    assert webhooks.send() == 1
    assert len(receiver.received) == 2
    assert len(set(receiver.ids)) == 1
    assert webhooks.attempts() == [(1, None, "worker_lost"), (2, 200, None)]
    assert webhooks.state() == ("delivered", None, None)


def test_a_delivery_that_ends_its_worker_again_and_again_is_given_up(
    webhooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise errors.Conflict

    webhooks.subscribe(receiver.url)
    webhooks.tell()
    with monkeypatch.context() as patch:
        patch.setattr(store, "finish_attempt", killed)
        for _ in range(9):
            assert webhooks.send() == 1
            webhooks.lose_leases()
    webhooks.send()
    assert webhooks.state() == ("failed", "worker_lost", None)
    assert len(receiver.received) == 9


def test_a_worker_that_lost_its_lease_changes_nothing(webhooks: Webhooks, receiver: Receiver) -> None:
    webhooks.subscribe(receiver.url)

    def taken_over(connection: Any) -> None:
        assert webhooks.take_over("another")
        says(200)(connection)

    receiver.answers = [taken_over, says(200)]
    webhooks.tell()
    with structlog.testing.capture_logs() as logs:
        webhooks.send()
    assert [(log["event"], log["code"]) for log in logs] == [("webhook_not_recorded", "conflict")]
    assert webhooks.state()[0] == "pending"
    assert webhooks.sql("SELECT owner_id FROM webhook_subscriptions") == [("another",)]
    webhooks.lose_leases()
    webhooks.send()
    assert webhooks.state()[0] == "delivered"
    assert len(set(receiver.ids)) == 1


def test_a_database_that_is_away_for_a_moment_costs_no_second_message(
    webhooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, failures = store.finish_attempt, iter([True, True, False])

    def flaky(*args: Any, **values: Any) -> Any:
        if next(failures):
            raise errors.ConnectionLost
        return finish(*args, **values)

    monkeypatch.setattr(store, "finish_attempt", flaky)
    clock = SetClock()
    webhooks.services = with_clock(webhooks.services, clock)
    webhooks.subscribe(receiver.url)
    webhooks.tell()
    webhooks.send()
    assert clock.slept == [1, 2]
    assert webhooks.state() == ("delivered", None, None)
    assert len(receiver.received) == 1


def test_a_subscription_that_is_being_claimed_is_passed_over(webhooks: Webhooks) -> None:
    def claim(conn: Any) -> store.Claim | None:
        return store.claim_webhook(conn, owner_id="tests", lease_seconds=30)

    webhooks.subscribe("https://one.example/")
    webhooks.subscribe("https://two.example/")
    webhooks.tell()
    transaction = webhooks.services.db.transaction
    with transaction("dispatch") as first, transaction("dispatch", timeout_seconds=2) as second:
        claims = [claim(first), claim(second)]
        with transaction("dispatch", timeout_seconds=2) as third:
            assert claim(third) is None
    assert len({found.subscription_id for found in claims if found}) == 2


def test_two_workers_at_once_send_each_delivery_once(webhooks: Webhooks) -> None:
    with Receiver() as one, Receiver() as two, Receiver() as three:
        for receiver in (one, two, three):
            webhooks.subscribe(receiver.url)
        for _ in range(8):
            webhooks.tell()
        assert sum(at_once(webhooks.send, webhooks.send)) >= 24
        assert webhooks.statuses() == {"delivered": 24}
        for receiver in (one, two, three):
            assert len(receiver.ids) == len(set(receiver.ids)) == 8
            assert receiver.most_in_flight == 1


def test_a_slow_receiver_holds_up_its_own_deliveries_alone(webhooks: Webhooks, receiver: Receiver) -> None:
    done = threading.Event()
    with Receiver(answers=[waits(done)]) as slow:
        webhooks.subscribe(slow.url)
        webhooks.subscribe(receiver.url)
        webhooks.tell()
        webhooks.tell()
        sender = threading.Thread(target=webhooks.send)
        sender.start()
        try:
            wait_until(lambda: len(receiver.received) == 2 and len(slow.received) == 1)
            webhooks.tell()  # also what comes while the slow one is being waited for
            wait_until(lambda: len(receiver.received) == 3)
            assert len(slow.received) == 1
        finally:
            done.set()
            sender.join(20)
        assert len(slow.received) == 3
        assert slow.most_in_flight == 1
    assert webhooks.statuses() == {"delivered": 6}


def test_receivers_take_turns(
    webhooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "LINES", 1)
    order: list[str] = []

    def noted(name: str) -> Behaviour:
        def note(connection: Any) -> None:
            order.append(name)
            says(200)(connection)

        return note

    with Receiver(answers=[noted("a")]) as other:
        receiver.answers = [noted("b")]
        webhooks.subscribe(receiver.url)
        webhooks.subscribe(other.url)
        for _ in range(4):
            webhooks.tell()
        webhooks.send()
    assert "".join(order) in ("abababab", "babababa")


def test_the_sweep_sends_a_hint_for_what_is_due_and_for_nothing_else(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    receiver.answers = [says(500)]
    sent: list[str] = webhooks.services.dispatch.sent  # type: ignore[attr-defined]
    webhooks.subscribe(receiver.url)
    recover.sweep(webhooks.services)
    assert sent == []
    webhooks.tell()
    recover.sweep(webhooks.services)
    assert sent == [deliver.TASK]
    webhooks.send()
    recover.sweep(webhooks.services)
    assert sent == [deliver.TASK]
    webhooks.make_due()
    recover.sweep(webhooks.services)
    assert sent == [deliver.TASK, deliver.TASK]


# -- secrets


def test_a_secret_is_nowhere_in_the_database_nor_in_the_log(webhooks: Webhooks, receiver: Receiver) -> None:
    with structlog.testing.capture_logs() as logs:
        made = webhooks.subscribe(receiver.url)
        again = subscriptions.rotate_secret(webhooks.services, WORKSPACE, made.subscription_id, who="tests")
        webhooks.tell()
        webhooks.send()
    dump = repr(
        [
            webhooks.sql(f"SELECT t::text FROM {table} t")
            for table in ("webhook_subscriptions", "webhook_deliveries", "webhook_attempts", "audit")
        ]
    )
    (attempted,) = [log for log in logs if log["event"] == "webhook_attempted"]
    assert (attempted["outcome"], attempted["status_code"], attempted["attempt"]) == ("delivered", 200, 1)
    for secret in (made.secret, again.secret):
        bare = secret.removeprefix(signature.PREFIX)
        assert bare not in dump
        assert bare not in repr(logs) + repr(made) + repr(again)
    assert "in-the-query" not in repr(logs)


def test_a_secret_of_another_instance_is_said_to_be_unreadable_and_waits(
    webhooks: Webhooks, receiver: Receiver, services: Services
) -> None:
    made = webhooks.subscribe(receiver.url)
    webhooks.tell()
    other = replace(services.settings, secret="another secret, of another instance", api_key="")
    webhooks.services = replace(services, settings=other)
    webhooks.send()
    assert webhooks.state() == ("pending", "secret_unreadable", 1.0)
    assert receiver.received == []
    again = subscriptions.rotate_secret(webhooks.services, WORKSPACE, made.subscription_id, who="tests")
    webhooks.make_due()
    webhooks.send()
    assert verifies(again.secret, receiver.received[0])


def test_an_instance_that_gets_a_secret_of_its_own_still_reads_the_old_ones(
    webhooks: Webhooks, receiver: Receiver, services: Services
) -> None:
    webhooks.services = replace(services, settings=replace(services.settings, secret=""))
    secret = webhooks.subscribe(receiver.url).secret
    webhooks.services = services
    webhooks.tell()
    webhooks.send()
    assert verifies(secret, receiver.received[0])


def test_without_any_secret_of_the_instance_nobody_subscribes(services: Services) -> None:
    bare = replace(services, settings=replace(services.settings, secret="", api_key=""))
    with pytest.raises(errors.Refused, match="HEADWORKS_SECRET"):
        subscriptions.subscribe(
            bare, WORKSPACE, url="https://example.com/", topics=["ingestion-complete"], who="tests"
        )
