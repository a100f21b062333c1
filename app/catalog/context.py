"""One execution of a job: who it is, and which day it is for (seed §3)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

Env = Literal["dev", "prod"]
Entity = Literal["ranking", "item", "genre", "tag"]

SOURCE = "rakuten"


@dataclass(frozen=True, slots=True)
class JobContext:
    """A run of one job. All jobs of a net have one `job_start_at`, so that they mean one day."""

    env: Env
    job_id: str
    run_id: UUID
    job_start_at: datetime
    dry_run: bool = False
    limit: int | None = None
    only: tuple[str, ...] = ()  # these targets instead of those of the job's policy
    reapplied: bool = False  # what is applied is from the raw store: nothing was observed now

    @property
    def day(self) -> tuple[datetime, datetime]:
        """The day that is worked on, in UTC: what was saved in it is today's, and nothing that came after."""
        start = self.job_start_at.replace(hour=0, minute=0, second=0, microsecond=0)
        return start, start + timedelta(days=1)
