"""What a receiver is sent: an event in its envelope, and a sample of one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

TOPICS = ("ingestion-complete",)
"""What can be subscribed to; the schema repeats it."""


def envelope(topic: str, event: dict[str, Any]) -> dict[str, Any]:
    """The message of an event, in the shape that Standard Webhooks recommends."""
    return {"type": topic, "timestamp": event["timestamp"], "data": event}


def sample(workspace_id: UUID, now: datetime) -> dict[str, Any]:
    """A message of an upload that never was, marked with `"test": true`."""
    event = {
        "upload_id": UUID(int=0),
        "workspace_id": workspace_id,
        "client_id": None,
        "platform": "meta",
        "status": "completed",
        "metrics": {
            "total_rows": 3,
            "promoted_rows": 3,
            "failed_rows": 0,
            "campaigns_upserted": 2,
            "ad_sets_upserted": 0,
            "ads_upserted": 0,
            "daily_metrics_upserted": 3,
        },
        "affected_dates": [now.date()],
        "timestamp": now.isoformat(),
    }
    return {**envelope("ingestion-complete", event), "test": True}
