"""Webhooks of a whole fleet: an upload ends, and its subscriber is told."""

from __future__ import annotations

import uuid

import standardwebhooks

from tests.acceptance.conftest import RunningFleet
from tests.integration.threads import wait_until
from tests.integration.uploads.conftest import GOOD
from tests.integration.webhooks.receiver import Receiver, says


def test_the_end_of_an_upload_is_told_and_told_again_after_a_failure(fleet: RunningFleet) -> None:
    workspace = str(uuid.uuid4())
    with Receiver(answers=[says(500), says(200)]) as receiver:
        made = fleet.api.post_json(
            "/v1/webhooks",
            {"workspace_id": workspace, "url": receiver.url, "topics": ["ingestion-complete"]},
        )
        upload = fleet.api.upload(GOOD, workspace_id=workspace, platform="meta")
        wait_until(lambda: len(receiver.received) == 2, seconds=30)  # the second after a second
        verify = standardwebhooks.Webhook(made["secret"]).verify
        messages = [verify(request.body, request.headers) for request in receiver.received]
        assert messages[0] == messages[1]
        assert messages[0]["data"]["upload_id"] == upload["upload_id"]
        assert len(set(receiver.ids)) == 1

    def delivered() -> bool:
        (found,) = fleet.api.get(f"/v1/webhooks/{made['subscription_id']}/deliveries")["deliveries"]
        return bool(found["status"] == "delivered")

    wait_until(delivered)
    entries = fleet.api.get("/v1/audit", workspace_id=workspace)["entries"]
    assert {"webhook_created", "created", "moved"} <= {entry["action"] for entry in entries}
    assert b'headworks_webhook_deliveries_total{outcome="retried"}' in fleet.api.send("/metrics")[2]
    for log in (fleet.data / "logs").glob("*.log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        assert made["secret"] not in text, log.name
        assert "in-the-query" not in text, log.name
