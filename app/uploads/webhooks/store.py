"""Webhooks in PostgreSQL: SQL in, rows out. No function here ends a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from app.adapters import queries
from app.adapters.database import Connection
from app.kernel import errors
from app.uploads.audit import store as audit_store
from app.uploads.webhooks.outcomes import Tried, Verdict
from app.uploads.webhooks.states import DELIVERY

_sql = queries.load("webhooks")

NO_WEBHOOK = "There is no such webhook in this workspace."
NO_DELIVERY = "This webhook has no such delivery."


@dataclass(frozen=True, slots=True)
class Claim:
    """A subscription in the hands of one worker: nobody else sends to it."""

    subscription_id: UUID
    workspace_id: UUID
    owner_id: str
    claim_epoch: int

    @property
    def fence(self) -> dict[str, Any]:
        """What every write of this worker names."""
        return {"subscription_id": self.subscription_id, "claim_epoch": self.claim_epoch}


@dataclass(frozen=True, slots=True)
class Message:
    """What one try sends, and where to."""

    delivery_id: UUID
    number: int | None  # of the try; None: it is not tried any more
    failures: int
    url: str = field(repr=False)
    payload: Any
    sealed_secrets: tuple[str, ...] = field(repr=False)


# -- subscriptions


def lock_webhooks(conn: Connection, workspace_id: UUID) -> None:
    """Nobody else adds a subscription to the workspace before this transaction ends."""
    _sql.lock_webhooks(conn, workspace_id=str(workspace_id))


def create_webhook(conn: Connection, *, workspace_id: UUID, **webhook: Any) -> None:
    """A new subscription stands."""
    _sql.create_webhook(conn, workspace_id=workspace_id, **webhook)
    audit(conn, workspace_id, webhook["subscription_id"], action="webhook_created", who=webhook["created_by"])


def list_webhooks(conn: Connection) -> list[Any]:
    """Subscriptions of the transaction's workspace, in the order in which they were made."""
    return list(_sql.list_webhooks(conn))


def get_webhook(conn: Connection, subscription_id: UUID) -> Any:
    """The subscription's row; NotFound when the transaction's workspace has none of this id."""
    row = _sql.get_webhook(conn, subscription_id=subscription_id)
    if row is None:
        raise errors.NotFound(NO_WEBHOOK)
    return row


def webhook_workspace(conn: Connection, subscription_id: UUID) -> UUID:
    """The workspace of a subscription, for a role that sees them all."""
    found = _sql.webhook_workspace(conn, subscription_id=subscription_id)
    if found is None:
        raise errors.NotFound(NO_WEBHOOK)
    return found  # type: ignore[no-any-return]


def delete_webhook(conn: Connection, workspace_id: UUID, subscription_id: UUID, *, who: str) -> None:
    """The subscription is over, and nothing that waited for it is sent; twice is as good as once."""
    row = _sql.delete_webhook(conn, subscription_id=subscription_id)
    if row is None:
        raise errors.NotFound(NO_WEBHOOK)
    if not row.was_deleted:
        _fail_pending(conn, subscription_id, code="subscription_deleted")
        audit(conn, workspace_id, subscription_id, action="webhook_deleted", who=who)


def disable_webhook(conn: Connection, claim: Claim, *, why: str) -> None:
    """Nothing more is sent there; what waited has failed."""
    if _sql.disable_webhook(conn, subscription_id=claim.subscription_id):
        _fail_pending(conn, claim.subscription_id, code="subscription_disabled")
        audit(
            conn,
            claim.workspace_id,
            claim.subscription_id,
            action="webhook_disabled",
            who=claim.owner_id,
            why=why,
        )


def _fail_pending(conn: Connection, subscription_id: UUID, *, code: str) -> None:
    _sql.fail_pending_deliveries(
        conn, subscription_id=subscription_id, code=code, sources=list(DELIVERY.sources("failed"))
    )


def rotate_webhook_secret(
    conn: Connection,
    workspace_id: UUID,
    subscription_id: UUID,
    *,
    sealed_secret: str,
    overlap_seconds: float,
    who: str,
) -> datetime:
    """The new secret signs; returns until when the old one does beside it."""
    row = _sql.rotate_webhook_secret(
        conn, subscription_id=subscription_id, sealed_secret=sealed_secret, overlap_seconds=overlap_seconds
    )
    if row is None:
        raise errors.NotFound(NO_WEBHOOK)
    audit(conn, workspace_id, subscription_id, action="webhook_secret_rotated", who=who)
    return row.previous_until  # type: ignore[no-any-return]


def audit(
    conn: Connection,
    workspace_id: UUID,
    subscription_id: UUID,
    *,
    action: str,
    who: str,
    why: str | None = None,
    **detail: Any,
) -> None:
    """The audit log knows who did this to which subscription."""
    audit_store.add_audit(
        conn,
        workspace_id,
        None,
        action=action,
        owner_id=who,
        why=why,
        detail={"subscription_id": str(subscription_id), **detail},
    )


# -- deliveries


def add_deliveries(conn: Connection, workspace_id: UUID, *, topic: str, event_key: str, payload: str) -> int:
    """Each subscription to the topic has a delivery of the event; returns how many are new."""
    return _sql.add_deliveries(  # type: ignore[no-any-return]
        conn, workspace_id=workspace_id, topic=topic, event_key=event_key, payload=payload
    )


def add_test_delivery(
    conn: Connection, workspace_id: UUID, subscription_id: UUID, *, delivery_id: UUID, payload: str, who: str
) -> None:
    """A sample event is on its way; Conflict when the last one still is, or the webhook is disabled."""
    added = _sql.add_test_delivery(
        conn,
        subscription_id=subscription_id,
        delivery_id=delivery_id,
        event_key=f"test:{delivery_id}",
        payload=payload,
    )
    if not added:
        webhook = get_webhook(conn, subscription_id)
        raise errors.Conflict(_DISABLED if webhook.disabled_at else "A test of this webhook is on its way.")
    audit(conn, workspace_id, subscription_id, action="webhook_tested", who=who)


_DISABLED = "The webhook is disabled, since its receiver answered 410: delete it and make a new one."


def redeliver(
    conn: Connection, workspace_id: UUID, subscription_id: UUID, *, delivery_id: UUID, who: str
) -> None:
    """The delivery is to be sent again; Conflict when it is on its way, or the webhook is disabled."""
    webhook = get_webhook(conn, subscription_id)
    delivery = _sql.get_delivery(conn, subscription_id=subscription_id, delivery_id=delivery_id)
    if delivery is None:
        raise errors.NotFound(NO_DELIVERY)
    row = _sql.redeliver(
        conn,
        subscription_id=subscription_id,
        delivery_id=delivery_id,
        sources=list(DELIVERY.sources("pending", manual=True)),
        who=who,
    )
    if row is None:
        raise errors.Conflict(_DISABLED if webhook.disabled_at else "The delivery is on its way already.")
    audit(
        conn,
        workspace_id,
        subscription_id,
        action="webhook_redelivered",
        who=who,
        delivery_id=str(delivery_id),
        event_key=row.event_key,
    )


def list_deliveries(
    conn: Connection, subscription_id: UUID, *, before: tuple[datetime, UUID] | None, limit: int
) -> list[Any]:
    """Deliveries of a subscription, newest first."""
    at, delivery_id = before or (None, None)
    return list(
        _sql.list_deliveries(
            conn, subscription_id=subscription_id, before=at, before_id=delivery_id, limit=limit
        )
    )


def attempts_of_deliveries(conn: Connection, delivery_ids: Sequence[UUID]) -> list[Any]:
    """Every try of these deliveries, in order."""
    return list(_sql.attempts_of_deliveries(conn, delivery_ids=list(delivery_ids)))


# -- claims (under the role that sees every workspace)


def webhooks_due(conn: Connection) -> bool:
    """Whether some delivery could be sent now."""
    return bool(_sql.webhooks_due(conn))


def claim_webhook(conn: Connection, *, owner_id: str, lease_seconds: float) -> Claim | None:
    """The subscription whose turn it is, with something due and nothing in flight; None: there is none."""
    row = _sql.claim_webhook(conn, owner_id=owner_id, lease_seconds=lease_seconds)
    return Claim(row.subscription_id, row.workspace_id, row.owner_id, row.claim_epoch) if row else None


# -- attempts


def begin_attempt(conn: Connection, claim: Claim, *, max_failures: int) -> Message | None:
    """The delivery that is due longest is being tried; None, and the claim is given back: there is none.

    Tries whose worker is gone have failed; a delivery that has lost so many is tried no more.
    """
    row = _sql.take_due_delivery(conn, **claim.fence)
    if row is None:
        _sql.release_webhook(conn, **claim.fence)
        return None
    failures = _sql.end_lost_attempts(conn, delivery_id=row.delivery_id)
    number = None
    if failures == row.failures or failures <= max_failures:
        number = _sql.begin_attempt(
            conn, delivery_id=row.delivery_id, workspace_id=claim.workspace_id, owner_id=claim.owner_id
        )
    return Message(
        delivery_id=row.delivery_id,
        number=number,
        failures=failures,
        url=row.url,
        payload=row.payload,
        sealed_secrets=tuple(s for s in (row.sealed_secret, row.previous_secret) if s),
    )


def finish_attempt(
    conn: Connection, claim: Claim, message: Message, *, tried: Tried, verdict: Verdict, duration_ms: int
) -> Any:
    """What came of the try is known, and the claim is given back; returns status and next_attempt_at."""
    row = _sql.finish_attempt(
        conn,
        **claim.fence,
        delivery_id=message.delivery_id,
        number=message.number,
        status=verdict.status,
        status_code=tried.status_code,
        error_code=tried.code,
        failures=verdict.failures,
        delay_seconds=verdict.delay_seconds,
        duration_ms=duration_ms,
        excerpt=tried.excerpt,
    )
    if row is None:
        raise errors.Conflict(f"Webhook {claim.subscription_id} is not with {claim.owner_id} any more.")
    return row


# -- cleanup


def delete_old_deliveries(conn: Connection, *, keep_days: int, limit: int) -> int:
    """Deliveries that are kept no longer are gone, with their attempts; returns how many."""
    return _sql.delete_old_deliveries(conn, keep_days=keep_days, limit=limit)  # type: ignore[no-any-return]


def delete_old_webhooks(conn: Connection, *, keep_days: int) -> int:
    """Subscriptions that ended long ago and have no log left are gone; returns how many."""
    return _sql.delete_old_webhooks(conn, keep_days=keep_days)  # type: ignore[no-any-return]
