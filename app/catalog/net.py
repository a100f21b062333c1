"""A net: all jobs of one day in their order, by what the runs' status says, and by nothing else."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from app.adapters import logs, tracing
from app.adapters.dispatch import Dispatch
from app.catalog import jobs
from app.catalog.jobs import JOBS, Outcome
from app.catalog.repos.run_repo import NetRepo, RunRepo
from app.catalog.runs import Busy
from app.catalog.services import Services
from app.kernel import errors

log = logs.get(__name__)


def task_of(job_id: str) -> str:
    """The name of the task that does this job of the net."""
    return "catalog." + job_id.lower().replace("-", "_")


def begin(services: Services, *, job_start_at: datetime) -> Any:
    """A net for the day of `job_start_at` has begun. Busy when one is at work."""
    with services.db.transaction("catalog") as conn:
        repo = NetRepo(conn)
        if not repo.begin(services.clock.new_id(), env=services.env, job_start_at=job_start_at):
            raise Busy("A net is at work.")
        return repo.at_work(env=services.env)


def resume(services: Services) -> Any:
    """The newest net that failed goes on with the jobs that did. NotFound when there is none."""
    try:
        with services.db.transaction("catalog") as conn:
            found = NetRepo(conn).reopen(env=services.env)
    except errors.UniqueViolated:  # another one has begun at the same moment
        found = None
    if found is None:
        raise errors.NotFound("No net has failed, or another one is at work.")
    return found


def begin_daily(services: Services, dispatch: Dispatch) -> None:
    """The day's net has begun, where this instance has an application of the marketplace."""
    if not services.settings.catalog_application_id:
        return
    try:
        begin(services, job_start_at=services.clock.now().replace(microsecond=0))
    except Busy:
        log.warning("net_still_at_work")
    advance(services, dispatch)


def advance(services: Services, dispatch: Dispatch) -> None:
    """A hint is on its way for each job of the net whose turn it is: the last may be lost with a worker."""
    net, past = _at_work(services)
    for job_id in ready(past) if net is not None else ():
        if job_id not in past or past[job_id].status != "running":
            dispatch.send(task_of(job_id))


def run(services: Services) -> list[Outcome]:
    """The jobs of the net at work have been done one after the other, up to the first that failed."""
    outcomes = []
    while (outcome := run_next(services)) is not None:
        outcomes.append(outcome)
    return outcomes


def run_next(services: Services, *, only: str | None = None) -> Outcome | None:
    """One job of the net at work whose turn it is, or this one, has been done; None when it is none's turn.

    A run of it that broke or failed goes on where it stopped, in the first try of a net that is resumed.
    """
    net, past = _at_work(services)
    turn = ready(past) if net is not None else []
    for job_id in turn if only is None else {only}.intersection(turn):
        before = past.get(job_id)
        resumed = before.run_id if before is not None and before.status in ("broken", "failed") else None
        try:
            with tracing.span("catalog.run_job", {"job_id": job_id, "net_id": str(net.net_id)}):
                outcome = jobs.run_job(
                    services, job_id, job_start_at=net.job_start_at, net_id=net.net_id, resume=resumed
                )
        except Busy:
            continue
        _settle(services, net.net_id, outcome)
        return outcome
    return None


def _at_work(services: Services) -> tuple[Any, dict[str, Any]]:
    """The net at work, or None, and the newest run of each of its jobs."""
    with services.db.transaction("catalog") as conn:
        net = NetRepo(conn).at_work(env=services.env)
        if net is None:
            return None, {}
        RunRepo(conn).break_dead()
        return net, NetRepo(conn).jobs(net.net_id)


def ready(past: dict[str, Any]) -> list[str]:
    """The jobs whose turn it is: those before them are through, and they are not."""
    through = {job_id for job_id, run in past.items() if run.status == "success"}
    return [
        job_id for job_id, job in JOBS.items() if job_id not in through and through.issuperset(job.behind)
    ]


def _settle(services: Services, net_id: Any, outcome: Outcome) -> None:
    """The net is over when a job failed, or all are through."""
    with services.db.transaction("catalog") as conn:
        repo = NetRepo(conn)
        status = "failed" if outcome.status == "failed" else "success"
        if (status == "failed" or not ready(repo.jobs(net_id))) and repo.end(net_id, status=status):
            log.info("net_ended", net_id=str(net_id), status=status, last_job=outcome.job_id)
