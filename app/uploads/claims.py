"""An upload in the hands of one worker, and what every write of that worker names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, Self
from uuid import UUID

from app.kernel import errors


@dataclass(frozen=True, slots=True)
class Claim:
    """An upload in the hands of one worker, as it was when it was claimed."""

    upload_id: UUID
    workspace_id: UUID
    client_id: UUID | None
    platform: str
    currency: str | None
    date_order: str | None
    decimal_mark: str | None
    force_partial: bool
    file_url: str
    filename: str | None
    created_at: datetime
    owner_id: str
    claim_epoch: int
    attempts: int
    deferrals: int
    staged_on: date
    staged_rows: int
    total_rows: int
    valid_rows: int
    promoted_rows: int
    failed_rows: int
    promoting_type: str | None
    promoting_row: int
    only_failed: bool
    report: dict[str, Any]
    traceparent: str | None
    from_status: str

    @classmethod
    def from_row(cls, row: Any) -> Self:
        if row.created_at.tzinfo is None:
            raise ValueError("a naive time came out of the database")
        return cls(**{field.name: getattr(row, field.name) for field in fields(cls)})

    @property
    def scope(self) -> dict[str, Any]:
        """What begins every natural key: workspace, client and platform."""
        return {
            "workspace_id": self.workspace_id,
            "client_id": self.client_id,
            "platform": self.platform,
        }

    @property
    def staging(self) -> dict[str, Any]:
        """Where this upload's staging rows are."""
        return {"staged_on": self.staged_on, "upload_id": self.upload_id}

    @property
    def fence(self) -> dict[str, Any]:
        """What every write of this worker names."""
        return {"upload_id": self.upload_id, "claim_epoch": self.claim_epoch}

    @property
    def lost(self) -> errors.Conflict:
        """What is raised when a write names a claim that holds no more."""
        return errors.Conflict(f"Upload {self.upload_id} is not with {self.owner_id} any more.")
