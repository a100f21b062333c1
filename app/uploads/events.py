"""The completion event: what it says, when there is one, and who listens (D6.6 §7)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

from app.adapters import outbox, signals
from app.adapters.database import Connection
from app.kernel.canonical import canonical_json
from app.uploads.audit import store as audit_store
from app.uploads.claims import Claim
from app.uploads.services import Services
from app.uploads.webhooks import messages
from app.uploads.webhooks import store as webhooks_store

TOPIC = "ingestion-complete"
AUDIT_GROUP = "audit"


def is_emitted(status: str, promoted_rows: int) -> bool:
    """Whether this end of an upload is told (D6.6 §7.3); once for each upload is the outbox's care."""
    return status in ("completed", "partial") and promoted_rows > 0


def ingestion_complete(
    claim: Claim, *, status: str, final: Any, affected_dates: Sequence[date], timestamp: str
) -> dict[str, Any]:
    """The payload of IngestionCompleteEvent (D6.6 §7.1)."""
    upserted = final.upserted
    return {
        "upload_id": claim.upload_id,
        "workspace_id": claim.workspace_id,
        "client_id": claim.client_id,
        "platform": claim.platform,
        "status": status,
        "metrics": {
            "total_rows": final.total_rows,
            "promoted_rows": final.promoted_rows,
            "failed_rows": final.failed_rows,
            "campaigns_upserted": upserted.get("campaigns", 0),
            "ad_sets_upserted": upserted.get("ad_sets", 0),
            "ads_upserted": upserted.get("ads", 0),
            "daily_metrics_upserted": upserted.get("daily_metrics", 0),
        },
        "affected_dates": list(affected_dates),
        "timestamp": timestamp,
    }


def emit(conn: Connection, claim: Claim, payload: dict[str, Any]) -> int:
    """The event leaves once this transaction commits; a second one of the same upload does not.

    So do its webhooks, which are written here and not by a consumer of the stream: whatever Redis
    loses, no delivery is lost. Returns how many there are.
    """
    key = str(claim.upload_id)
    if not outbox.add(conn, claim.workspace_id, topic=TOPIC, key=key, payload=payload):
        return 0
    return webhooks_store.add_deliveries(
        conn,
        claim.workspace_id,
        topic=TOPIC,
        event_key=key,
        payload=canonical_json(messages.envelope(TOPIC, payload)).decode(),
    )


def relay(services: Services) -> int:
    """Every committed event is on its stream; returns how many were published."""
    return outbox.relay(services.db, services.streams)


def pass_on(services: Services) -> None:
    """Every committed event is on its stream and stands in the audit log."""
    if relay(services):
        record_in_audit(services)


def record_in_audit(services: Services) -> int:
    """Every published event stands in the audit log, once; returns how many arrived."""

    def record(arrived: Sequence[signals.Event]) -> None:
        with services.db.transaction("relay") as conn:
            for key, payload in arrived:
                event = json.loads(payload)
                audit_store.add_audit(
                    conn,
                    UUID(event["workspace_id"]),
                    UUID(event["upload_id"]),
                    action="event_received",
                    to_status=event["status"],
                    why=f"{event['metrics']['promoted_rows']} rows promoted",
                    detail={"event_key": key},
                )

    return services.streams.consume(TOPIC, group=AUDIT_GROUP, consumer=services.owner_id, handle=record)
