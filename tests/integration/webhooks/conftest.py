"""Webhooks with their receivers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from app.uploads import events
from app.uploads.services import Services
from app.uploads.webhooks import deliver, messages, store, subscriptions
from app.uploads.webhooks.send import Wire
from app.uploads.webhooks.subscriptions import NewSecret
from tests.integration.webhooks.receiver import Receiver

WORKSPACE = UUID("11111111-1111-4111-8111-111111111111")
OTHER = UUID("22222222-2222-4222-8222-222222222222")
LOSE_LEASES = (
    "UPDATE webhook_subscriptions SET lease_expires_at = clock_timestamp() - interval '1 s'"
    " WHERE owner_id IS NOT NULL"
)
EVENT: dict[str, Any] = {"upload_id": "u", "status": "completed", "timestamp": "2026-01-15T12:00:00+00:00"}


@pytest.fixture
def services(services: Services) -> Services:
    """The product's services, allowed to send to this machine."""
    settings = replace(services.settings, rate_per_minute=0, webhooks_to_loopback=True)
    return replace(services, settings=settings)


@dataclass
class Webhooks:
    """Subscribes, tells events, sends, and looks at what became of it."""

    services: Services
    sql: Callable[[str], list[Any]]

    def subscribe(self, url: str, *, workspace_id: UUID = WORKSPACE) -> NewSecret:
        return subscriptions.subscribe(
            self.services, workspace_id, url=url, topics=[events.TOPIC], who="tests"
        )

    def tell(self, *, workspace_id: UUID = WORKSPACE, key: str = "") -> int:
        """One event of the workspace, as the end of an upload writes it."""
        with self.services.db.transaction("promote", workspace_id) as conn:
            payload = events.canonical_json(messages.envelope(events.TOPIC, EVENT)).decode()
            return store.add_deliveries(
                conn, workspace_id, topic=events.TOPIC, event_key=key or str(uuid.uuid4()), payload=payload
            )

    def send(self, **wire: Any) -> int:
        return deliver.run(self.services, Wire(to_loopback=True, **wire))

    def make_due(self) -> None:
        """Whatever waits has waited long enough."""
        self.sql("UPDATE webhook_deliveries SET next_attempt_at = now() WHERE status = 'pending'")

    def lose_leases(self) -> None:
        """As if half a minute had passed since the last claim."""
        self.sql(LOSE_LEASES)

    def take_over(self, owner_id: str) -> bool:
        """Half a minute has passed, and this owner was the first to see it."""
        with self.services.db.transaction("dispatch") as conn:
            with conn.cursor() as cursor:
                cursor.execute(LOSE_LEASES)
            return store.claim_webhook(conn, owner_id=owner_id, lease_seconds=30) is not None

    def state(self) -> tuple[str, str | None, float | None]:
        """Status, code, and the exact wait in seconds, of the only delivery."""
        ((status, code, wait),) = self.sql(
            "SELECT d.status, d.error_code, CASE WHEN d.status = 'pending' THEN"
            " extract(epoch FROM d.next_attempt_at - a.ended_at)::float END"
            " FROM webhook_deliveries d LEFT JOIN LATERAL (SELECT ended_at FROM webhook_attempts"
            " WHERE delivery_id = d.id ORDER BY number DESC LIMIT 1) a ON true"
        )
        return status, code, wait

    def attempts(self) -> list[Any]:
        return self.sql(
            "SELECT number, status_code, error_code FROM webhook_attempts ORDER BY began_at, number"
        )

    def statuses(self) -> dict[str, int]:
        return dict(self.sql("SELECT status, count(*) FROM webhook_deliveries GROUP BY status"))


@pytest.fixture
def webhooks(services: Services, owner_sql: Callable[[str], list[Any]]) -> Webhooks:
    return Webhooks(services, owner_sql)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found
