"""The log of webhooks is kept for thirty days, and not longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.uploads import cleanup
from app.uploads.webhooks import subscriptions
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.threads import at_once
from tests.integration.webhooks.conftest import OTHER, WORKSPACE, Webhooks
from tests.integration.webhooks.receiver import Receiver

OwnerSql = Callable[[str], list[Any]]


def age(webhooks: Webhooks, days: float) -> None:
    webhooks.sql(f"UPDATE webhook_deliveries SET created_at = now() - interval '{days} days'")


@pytest.mark.parametrize(("days", "kept"), [(0, 1), (29.9, 1), (30.1, 0), (400, 0)])
def test_a_delivery_is_kept_with_its_attempts_for_thirty_days(
    days: float, kept: int, webhooks: Webhooks, receiver: Receiver
) -> None:
    webhooks.subscribe(receiver.url)
    webhooks.tell()
    webhooks.send()
    age(webhooks, days)
    assert cleanup.forget_deliveries(webhooks.services) == 1 - kept
    for table in ("webhook_deliveries", "webhook_attempts"):
        assert webhooks.sql(f"SELECT count(*) FROM {table}") == [(kept,)]
    assert webhooks.sql("SELECT count(*) FROM webhook_subscriptions") == [(1,)]


def test_old_deliveries_of_every_workspace_go_in_batches(
    webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "BATCH_DELIVERIES", 2)
    for workspace_id in (WORKSPACE, OTHER):
        webhooks.subscribe("https://hooks.example/", workspace_id=workspace_id)
        for _ in range(3):
            webhooks.tell(workspace_id=workspace_id)
    age(webhooks, 31)
    webhooks.tell()
    assert cleanup.forget_deliveries(webhooks.services) == 6
    assert webhooks.statuses() == {"pending": 1}


def test_two_cleanups_at_once_do_not_hinder_each_other(webhooks: Webhooks) -> None:
    webhooks.subscribe("https://hooks.example/")
    for _ in range(20):
        webhooks.tell()
    age(webhooks, 31)
    assert sum(at_once(*[lambda: cleanup.forget_deliveries(webhooks.services)] * 3)) == 20


def test_a_deleted_webhook_goes_after_its_log(webhooks: Webhooks) -> None:
    made = webhooks.subscribe("https://hooks.example/")
    webhooks.tell()
    subscriptions.end(webhooks.services, WORKSPACE, made.subscription_id, who="tests")
    webhooks.sql("UPDATE webhook_subscriptions SET deleted_at = now() - interval '31 days'")
    cleanup.forget_deliveries(webhooks.services)
    assert webhooks.sql("SELECT count(*) FROM webhook_subscriptions") == [(1,)]
    age(webhooks, 31)
    cleanup.forget_deliveries(webhooks.services)
    assert webhooks.sql("SELECT count(*) FROM webhook_subscriptions") == [(0,)]


def test_the_cleanup_of_the_fleet_does_both(webhooks: Webhooks) -> None:
    webhooks.subscribe("https://hooks.example/")
    webhooks.tell()
    age(webhooks, 31)
    cleanup.clean_up(webhooks.services)
    assert webhooks.statuses() == {}
