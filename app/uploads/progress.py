"""How far an upload has come, how fast it goes, and how long it may take."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from app.adapters.blobs import Blobs
from app.kernel import errors
from app.uploads import questions
from app.uploads.reading import formats
from app.uploads.services import Services
from app.uploads.states import UPLOAD

TERMINAL = tuple(state for state in UPLOAD.states if state in ("completed", "partial", "failed"))
SETTLED_SECONDS = 0.5
"""A rate that was measured for a shorter time says nothing."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at an upload on its way. What is not known is None."""

    upload_id: UUID
    status: str
    terminal: bool
    staged_rows: int
    total_rows: int | None  # of the file; an estimate until all of them are staged
    estimated: bool
    valid_rows: int
    promoted_rows: int
    failed_rows: int
    rows_per_second: float | None  # of the present stage
    seconds_left: float | None  # of the present stage
    attempts: int
    ahead: int  # uploads of the workspace that wait before this one

    def as_json(self) -> dict[str, Any]:
        """For an answer."""
        return asdict(self)


def look(services: Services, workspace_id: UUID, upload_id: UUID) -> Progress:
    """How far the upload is now."""
    with services.db.transaction("read", workspace_id) as conn:
        row = questions.upload_progress(conn, upload_id)
    estimate = None
    if row.status in ("pending", "processing") and row.file_url and row.kind != "json":
        estimate = estimated_rows(cast(Hashable, services.blobs), row.file_url, row.size_bytes)
    return of_row(row, estimate)


def of_row(row: Any, estimate: int | None) -> Progress:
    """The progress that the row of `upload_progress` and an estimate of the file's rows tell."""
    parsing = row.status in ("pending", "processing")
    total = (max(estimate, row.staged_rows) if estimate else None) if parsing else row.total_rows
    done, goal = 0, None
    if row.status == "processing":
        done, goal = row.staged_rows, total
    elif row.status == "promoting":
        done, goal = row.promoted_rows + row.failed_rows, row.valid_rows
    rate = done / row.seconds if done and row.seconds > SETTLED_SECONDS else None
    left = (goal - done) / rate if rate and goal is not None and goal >= done else None
    return Progress(
        upload_id=row.id,
        status=row.status,
        terminal=row.status in TERMINAL,
        staged_rows=row.staged_rows,
        total_rows=total,
        estimated=parsing and total is not None,
        valid_rows=row.valid_rows,
        promoted_rows=row.promoted_rows,
        failed_rows=row.failed_rows,
        rows_per_second=None if rate is None else round(rate, 1),
        seconds_left=None if left is None else round(left, 1),
        attempts=row.attempts,
        ahead=row.ahead,
    )


@lru_cache(maxsize=256)
def estimated_rows(blobs: Hashable, file_url: str, size_bytes: int) -> int | None:
    """About how many lines the file has, from its first ones; None where that cannot be told."""
    try:
        with cast(Blobs, blobs).open(file_url) as file:
            sample = file.read(formats.SAMPLE_BYTES)
    except errors.HeadworksError:
        return None
    lines = sample.count(b"\n")
    if formats.is_gzip(sample) or lines < 2:
        return None
    return max(1, round(size_bytes * lines / len(sample)) - 1)
