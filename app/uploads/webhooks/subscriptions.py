"""What people do with webhooks: subscribe, end, give a new secret, test, send again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from app.kernel import errors
from app.kernel.canonical import canonical_json
from app.uploads.services import Services
from app.uploads.webhooks import address, messages, signature, store
from app.uploads.webhooks.deliver import TASK

MAX_PER_WORKSPACE = 20


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret, at the only time when it is known to anybody but the receiver."""

    subscription_id: UUID
    secret: str = field(repr=False)
    previous_until: datetime | None = None  # so long the one before signs too


def subscribe(
    services: Services, workspace_id: UUID, *, url: str, topics: Sequence[str], who: str
) -> NewSecret:
    """The URL is told of every event of these topics from now on."""
    address.parse(url, to_loopback=services.settings.webhooks_to_loopback)
    if not topics or not set(topics) <= set(messages.TOPICS):
        raise errors.Refused(f"`topics` lists at least one of: {', '.join(messages.TOPICS)}.")
    made = NewSecret(services.clock.new_id(), signature.new_secret())
    sealed = signature.Seal(services.settings).close(made.secret)
    with services.db.transaction("webhooks", workspace_id) as conn:
        store.lock_webhooks(conn, workspace_id)
        present = store.list_webhooks(conn)
        if len(present) >= MAX_PER_WORKSPACE:
            raise errors.Conflict(f"A workspace has at most {MAX_PER_WORKSPACE} webhooks: delete one first.")
        if any(webhook.url == url and webhook.disabled_at is None for webhook in present):
            raise errors.Conflict(
                "This URL is subscribed already. If its secret is lost, rotate the webhook's secret."
            )
        store.create_webhook(
            conn,
            workspace_id=workspace_id,
            subscription_id=made.subscription_id,
            url=url,
            topics=sorted(set(topics)),
            sealed_secret=sealed,
            created_by=who,
        )
    return made


def end(services: Services, workspace_id: UUID, subscription_id: UUID, *, who: str) -> None:
    """Nothing more is sent there."""
    with services.db.transaction("webhooks", workspace_id) as conn:
        store.delete_webhook(conn, workspace_id, subscription_id, who=who)


def rotate_secret(services: Services, workspace_id: UUID, subscription_id: UUID, *, who: str) -> NewSecret:
    """A new secret signs, and for a day the old one beside it; the one before that signs no more."""
    secret = signature.new_secret()
    with services.db.transaction("webhooks", workspace_id) as conn:
        until = store.rotate_webhook_secret(
            conn,
            workspace_id,
            subscription_id,
            sealed_secret=signature.Seal(services.settings).close(secret),
            overlap_seconds=signature.OVERLAP_SECONDS,
            who=who,
        )
    return NewSecret(subscription_id, secret, until)


def send_test(services: Services, workspace_id: UUID, subscription_id: UUID, *, who: str) -> UUID:
    """A sample event is on its way; returns the id of its delivery."""
    delivery_id = services.clock.new_id()
    payload = messages.sample(workspace_id, services.clock.now())
    with services.db.transaction("webhooks", workspace_id) as conn:
        store.add_test_delivery(
            conn,
            workspace_id,
            subscription_id,
            delivery_id=delivery_id,
            payload=canonical_json(payload).decode(),
            who=who,
        )
    services.dispatch.send(TASK)
    return delivery_id


def redeliver(
    services: Services, workspace_id: UUID, subscription_id: UUID, *, delivery_id: UUID, who: str
) -> None:
    """The delivery is on its way again, under its old id."""
    with services.db.transaction("webhooks", workspace_id) as conn:
        store.redeliver(conn, workspace_id, subscription_id, delivery_id=delivery_id, who=who)
    services.dispatch.send(TASK)
