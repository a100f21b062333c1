"""The history of runs and nets: who holds a job, and how targets ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.adapters import database, logs, queries
from app.adapters.database import Connection
from app.catalog.context import JobContext

_sql = queries.load("catalog")
log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class TargetResult:
    """How one target ended: applied, reapplied, unchanged, not_found or failed."""

    target: str
    outcome: str
    attempts: int = 1
    category: str | None = None
    http_status: int | None = None
    excerpt: str | None = None


class RunRepo:
    """Runs, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def break_dead(self) -> None:
        """Runs whose process is not heard of any more are broken, and their jobs free."""
        for row in _sql.break_runs(self._conn):
            log.warning("run_broken", run_id=str(row.run_id), job_id=row.job_id)

    def begin(
        self, ctx: JobContext, *, apply_version: int | None, net_id: UUID | None, from_raw: bool,
        owner_id: str, lease_seconds: float,
    ) -> bool:  # fmt: skip
        """Whether the job is this run's now; it is not where another is at work, or its net has had one."""
        return bool(
            _sql.begin_run(
                self._conn, run_id=ctx.run_id, net_id=net_id, env=ctx.env, job_id=ctx.job_id,
                job_start_at=ctx.job_start_at, apply_version=apply_version,
                only_targets=list(ctx.only) or None, target_limit=ctx.limit, from_raw=from_raw,
                owner_id=owner_id, lease_seconds=lease_seconds,
            )
        )  # fmt: skip

    def resume(self, run_id: UUID, *, apply_version: int | None, owner_id: str, lease_seconds: float) -> bool:
        """Whether a run that broke or failed is at work again."""
        return bool(
            _sql.resume_run(
                self._conn, run_id=run_id, apply_version=apply_version, owner_id=owner_id,
                lease_seconds=lease_seconds,
            )
        )  # fmt: skip

    def extend(self, run_id: UUID, *, owner_id: str, lease_seconds: float) -> bool:
        """Whether the run is still this owner's, for so long from now."""
        return bool(
            _sql.extend_run(self._conn, run_id=run_id, owner_id=owner_id, lease_seconds=lease_seconds)
        )

    def holds(self, run_id: UUID, *, owner_id: str) -> bool:
        """Whether the run is this owner's until the transaction ends."""
        return _sql.holds_run(self._conn, run_id=run_id, owner_id=owner_id) is not None

    def end(
        self, run_id: UUID, *, status: str, reason_code: str | None, summary: dict[str, Any],
        exit_code: int, owner_id: str,
    ) -> bool:  # fmt: skip
        """Whether the run was still this owner's to end."""
        return bool(
            _sql.end_run(
                self._conn, run_id=run_id, status=status, reason_code=reason_code,
                summary=database.json_value(summary), exit_code=exit_code, owner_id=owner_id,
            )
        )  # fmt: skip

    def record(self, run_id: UUID, results: Sequence[TargetResult]) -> None:
        """How these targets ended stands in the run's history."""
        if results:
            _sql.record_targets(
                self._conn, run_id=run_id, targets=[r.target for r in results],
                outcomes=[r.outcome for r in results], attempts=[r.attempts for r in results],
                categories=[r.category for r in results], http_statuses=[r.http_status for r in results],
                excerpts=[r.excerpt for r in results],
            )  # fmt: skip

    def done(self, run_id: UUID) -> dict[str, str]:
        """The targets that a run is through with, and how they ended; those that failed are tried again."""
        return {row.target: row.outcome for row in _sql.done_targets(self._conn, run_id=run_id)}

    def one(self, run_id: UUID) -> Any:
        """This run, or None."""
        return _sql.select_run(self._conn, run_id=run_id)

    def newest(self, *, job_id: str | None, limit: int) -> list[Any]:
        """The newest runs, of one job or of all."""
        return list(_sql.select_runs(self._conn, job_id=job_id, limit=limit))

    def targets(self, run_id: UUID, *, outcome: str | None, limit: int) -> list[Any]:
        """How the targets of a run ended, or those that ended so."""
        return list(_sql.select_targets(self._conn, run_id=run_id, outcome=outcome, limit=limit))


class NetRepo:
    """Nets, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def begin(self, net_id: UUID, *, env: str, job_start_at: datetime) -> bool:
        """Whether a net has begun; none does while another one is at work."""
        return bool(_sql.begin_net(self._conn, net_id=net_id, env=env, job_start_at=job_start_at))

    def at_work(self, *, env: str) -> Any:
        """The net at work, or None."""
        return _sql.select_net(self._conn, env=env)

    def reopen(self, *, env: str) -> Any:
        """The newest net that failed, at work again; None when there is none."""
        return _sql.reopen_net(self._conn, env=env)

    def jobs(self, net_id: UUID) -> dict[str, Any]:
        """The newest run of each job of a net."""
        return {row.job_id: row for row in _sql.jobs_of_net(self._conn, net_id=net_id)}

    def end(self, net_id: UUID, *, status: str) -> bool:
        """Whether the net was still at work, and is over."""
        return bool(_sql.end_net(self._conn, net_id=net_id, status=status))
