"""The jobs: what each does, in which order, and how a run of one ends (seed §0, §7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.adapters import logs, metrics
from app.catalog import embedding, embedding_source, failures, policy, runs
from app.catalog.appliers import APPLIERS
from app.catalog.context import SOURCE, JobContext
from app.catalog.entities import RULES
from app.catalog.etl_service import EtlService, Fetcher, Stopped, Target, TargetProvider
from app.catalog.fetchers import FETCHERS, RawRecords
from app.catalog.repos.item_repo import ItemRepo
from app.catalog.repos.staging_repo import Latest
from app.catalog.runs import Run
from app.catalog.services import Services
from app.kernel import errors

log = logs.get(__name__)

EXIT_CODES = {"success": 0, "failed": 1, "no_targets": 3}
"""3 is a warning: there was nothing to do, which is worth a look where something was expected."""

MAX_FAILURE_RATE = 0.01
A_FEW = 5
"""Of the jobs that fetch nothing. A few are no failure of a run: on most days little is new, and what is
refused for good is in it every day."""

Work = Callable[[Services, JobContext, Run, Collection[Target]], dict[str, Any]]
Tell = Callable[[Target, Any], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One job: the entity that it fetches, or what else it does; and which jobs have to be through before."""

    job_id: str
    title: str
    entity: str | None
    behind: tuple[str, ...]
    targets: Callable[[policy.Policy], TargetProvider] | None = None
    work: Callable[[Services, JobContext], dict[str, Any]] | None = None

    @property
    def apply_version(self) -> int | None:
        """The version of the code that applies its records."""
        return RULES[self.entity].apply_version if self.entity else None


def update_is_active(services: Services, ctx: JobContext) -> dict[str, Any]:
    """JOB-A-01: every item is active or not as its genre and its shop are known."""
    if ctx.dry_run:
        return {}
    with services.db.transaction("catalog") as conn:
        return {"updated": ItemRepo(conn).update_is_active()}


def update_embedding_sources(services: Services, ctx: JobContext) -> dict[str, Any]:
    """JOB-E-01: every item's text stands as it is to be embedded."""
    return embedding_source.update_sources(
        services.db, services.clock, with_price=services.settings.catalog_embedding_price,
        limit=ctx.limit, dry_run=ctx.dry_run,
    )  # fmt: skip


def update_embeddings(services: Services, ctx: JobContext) -> dict[str, Any]:
    """JOB-E-02: every text stands with its vector."""
    return embedding.update_embeddings(
        services.db, services.clock, services.model, limit=ctx.limit, dry_run=ctx.dry_run
    )


JOBS: dict[str, Job] = {
    job.job_id: job
    for job in (
        Job("JOB-R-01", "rankings", "ranking", (), lambda p: p.targets_ranking_genre_ids),
        Job("JOB-I-01", "items", "item", ("JOB-R-01",), lambda p: p.targets_item_codes),
        Job("JOB-G-01", "genres", "genre", ("JOB-I-01",), lambda p: p.targets_genre_ids_from_today_items),
        Job("JOB-T-01", "tags", "tag", ("JOB-I-01",), lambda p: p.targets_tag_ids_from_today_items),
        Job("JOB-A-01", "which items are active", None, ("JOB-G-01", "JOB-T-01"), work=update_is_active),
        Job("JOB-E-01", "texts to embed", None, ("JOB-A-01",), work=update_embedding_sources),
        Job("JOB-E-02", "vectors of texts", None, ("JOB-E-01",), work=update_embeddings),
    )
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    run_id: UUID
    job_id: str
    status: str
    reason_code: str | None
    exit_code: int
    summary: dict[str, Any]


def run_job(
    services: Services, job_id: str, *, job_start_at: datetime, net_id: UUID | None = None,
    dry_run: bool = False, limit: int | None = None, only: Collection[Target] = (),
    resume: UUID | None = None, tell: Tell | None = None, from_raw: Mapping[Target, Latest] | None = None,
) -> Outcome:  # fmt: skip
    """The job has been done for the day of `job_start_at`; `resume` goes on with a run that broke or failed,
    for the day and the targets that it was begun for.

    `from_raw` takes the records from the raw store instead of the API, and applies them whatever the ledger
    says. A dry run writes nothing, not even that it was. Busy when another run of the job is at work.
    """
    job = JOBS[job_id]
    if resume is not None:
        before = _to_be_resumed(services, resume, job_id, dry_run=dry_run)
        job_start_at, only, limit = before.job_start_at, before.only_targets or (), before.target_limit
    ctx = JobContext(
        env=services.env, job_id=job_id, run_id=resume or services.clock.new_id(),
        job_start_at=job_start_at, dry_run=dry_run, limit=limit, only=tuple(only),
    )  # fmt: skip
    run = Run(services.db, ctx.run_id)
    done: Mapping[Target, str] = {}
    if resume is not None:
        done = run.resume(apply_version=job.apply_version)
    elif not dry_run:
        run.begin(ctx, apply_version=job.apply_version, net_id=net_id, from_raw=from_raw is not None)
    with (
        logs.bound(job_id=job_id, run_id=str(ctx.run_id)),
        nullcontext() if dry_run else run.held(),
    ):
        outcome = _outcome(job, ctx, lambda: _work(services, job, ctx, run, done, tell, from_raw))
    if not dry_run:
        run.end(
            status=outcome.status, reason_code=outcome.reason_code, summary=outcome.summary,
            exit_code=outcome.exit_code,
        )  # fmt: skip
        metrics.catalog_runs.labels(job_id, outcome.status, outcome.reason_code or "").inc()
    return outcome


def know_reasons() -> None:
    """The metrics have every reason that stops a job, so that the first time is seen to come."""
    for job_id in JOBS:
        for category, then in failures.CATEGORIES.items():
            if then is failures.Then.STOP_JOB:
                metrics.catalog_runs.labels(job_id, "failed", category).inc(0)


def _to_be_resumed(services: Services, run_id: UUID, job_id: str, *, dry_run: bool) -> Any:
    """The run that is to go on, as it was begun."""
    before = runs.one(services.db, run_id)
    if (before.job_id, before.env) != (job_id, services.env):
        raise errors.Refused(f"This run is of {before.job_id} ({before.env}), not of {job_id}.")
    if dry_run:
        raise errors.Refused("A dry run writes nothing, so that it cannot go on with a run.")
    if before.from_raw:
        raise errors.Refused("This run applied raw objects again: reapply goes on with what is left.")
    return before


def _work(
    services: Services, job: Job, ctx: JobContext, run: Run, done: Mapping[Target, str],
    tell: Tell | None, from_raw: Mapping[Target, Latest] | None,
) -> dict[str, Any]:  # fmt: skip
    if job.work is not None:
        return job.work(services, ctx)
    assert job.entity is not None and job.targets is not None
    fetcher: Fetcher
    if from_raw is not None:
        targets = list(from_raw)
        fetcher = RawRecords(services.raw, from_raw)
    else:
        targets = list(ctx.only or job.targets(policy.Policy(services.db))(ctx))
        fetcher = FETCHERS[job.entity](services.client, targets)
    return EtlService(
        services.db, services.raw, services.clock, threads=services.settings.catalog_threads, tell=tell
    ).run_entity_etl(
        ctx=ctx, source=SOURCE, entity=job.entity, target_provider=lambda _: targets,
        fetcher=fetcher, applier=APPLIERS[job.entity], apply_version=RULES[job.entity].apply_version,
        run=run, done=done, again=from_raw is not None,
    )  # fmt: skip


def _outcome(job: Job, ctx: JobContext, work: Callable[[], dict[str, Any]]) -> Outcome:
    """How the work ended, whatever happened in it."""
    try:
        summary = work()
        reason = _verdict(job, summary)
    except Stopped as stopped:
        summary, reason = stopped.summary.as_dict(), stopped.code
    except errors.HeadworksError as error:
        summary, reason = {"sentence": error.sentence}, error.code
        log.error(
            "job_failed", job_id=job.job_id, run_id=str(ctx.run_id), code=error.code, sentence=error.sentence
        )
    except Exception:
        log.exception("job_failed", job_id=job.job_id, run_id=str(ctx.run_id))
        summary, reason = {}, "internal_error"
    status = "success" if reason in (None, "no_targets") else "failed"
    exit_code = EXIT_CODES.get(reason or status, EXIT_CODES["failed"])
    log.info(
        "job_ended", job_id=job.job_id, run_id=str(ctx.run_id), env=ctx.env, status=status, reason=reason,
        exit_code=exit_code, job_start_at=ctx.job_start_at.isoformat(), dry_run=ctx.dry_run, **_flat(summary),
    )  # fmt: skip
    return Outcome(ctx.run_id, job.job_id, status, reason, exit_code, summary)


def _verdict(job: Job, summary: dict[str, Any]) -> str | None:
    """Why the run is no success, if it is none; or that there was nothing to do."""
    if job.entity is None:
        allowed = max(A_FEW, MAX_FAILURE_RATE * summary.get("total", 0))
        return "too_many_failures" if summary.get("failed", 0) > allowed else None
    if summary["total_targets"] == 0:
        return "no_targets"
    return "too_many_failures" if summary["failure_rate"] > RULES[job.entity].max_failure_rate else None


def _flat(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if isinstance(value, int | float | str)}
