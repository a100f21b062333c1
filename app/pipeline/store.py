"""The tasks of the pipeline: each call is one statement, and with it one transaction, in the database."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from app.adapters import metrics, queries
from app.adapters.database import Database
from app.kernel import errors
from app.kernel.clock import Clock
from app.pipeline import states
from app.pipeline.requests import (
    Claim,
    FilesQuery,
    Heartbeat,
    HistoryQuery,
    MoveIngest,
    QueueQuery,
    Register,
    RetryFailed,
    Start,
    StuckQuery,
    TasksQuery,
    Transition,
    is_filename,
)
from app.pipeline.states import INGEST, QUEUES, STAGES, TARGETS, Stage

SWEEP_SECONDS = 1.0
"""So long after its lease has run out a task may wait until it is handed out again."""

_sql = {
    name: queries.load(
        "pipeline", STAGE=stage.column, BEFORE=states.BEFORE.get(name, INGEST).column
    )
    for name, stage in STAGES.items()
}  # fmt: skip


ANY = INGEST.name
"""What is the same for all stages is called as of any."""


class UnknownTask(errors.NotFound):
    """No task of this file and shard is registered."""

    code = "task_not_found"


class UnknownFile(errors.NotFound):
    """No file of this name is registered."""

    code = "unknown_file"


class NotNow(errors.Conflict):
    """The task does not stand where this can be done; `current_status` says where it stands."""

    code = "invalid_transition"

    def __init__(self, sentence: str, *, code: str, current_status: str) -> None:
        super().__init__(sentence, code=code)
        self.members = {"current_status": current_status}


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a stage of a task that was started."""

    attempt: int
    lease_token: Any
    lease_expires_at: Any


class Pipeline:
    """Everything that is known of the tasks, and what moves them."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self.db = db
        self.clock = clock
        self._swept = float("-inf")

    def _one(self, query: Any, **values: Any) -> Any:
        with self.db.statement() as conn:
            return query(conn, **values)

    def _all(self, query: Any, **values: Any) -> list[Any]:
        with self.db.statement() as conn:
            return list(query(conn, **values))

    # -- files

    def register(self, wanted: Register) -> bool:
        """Every shard of the file has a task; whether one of them is new."""
        row = self._one(_sql[ANY].register, filename=wanted.filename, shards=wanted.shards)
        _count_moves(INGEST.name, "", "started", row.inserted)
        return bool(row.inserted)

    def move_ingest(self, transition: str, wanted: MoveIngest) -> int:
        """The ingest of the file, or of one shard, stands there; how many of its tasks do.

        UnknownFile or UnknownTask; NotNow when one of them cannot move there, and then none has.
        """
        target = TARGETS[transition]
        sources = _sources(target)
        row = self._one(
            _sql[ANY].move_ingest, **asdict(wanted), target=target, sources=sources,
        )  # fmt: skip
        if not row.known:
            raise UnknownFile() if wanted.shard is None else UnknownTask()
        if row.refused:
            metrics.pipeline_conflicts.labels(INGEST.name, "invalid_transition").inc()
            raise NotNow(
                f"A shard of this file is {row.refused}: {transition} needs {' or '.join(sources)}.",
                code="invalid_transition", current_status=row.refused,
            )  # fmt: skip
        _count_moves(INGEST.name, "/".join(sources), target, row.known)
        return int(row.known)

    # -- one task

    def start(self, stage: Stage, wanted: Start) -> Held:
        """The task is at work. UnknownTask or NotNow when it cannot be; a repeat finds what it began."""
        row = self._one(_sql[stage.name].start, stage=stage.name, **_members(wanted, "lease_token"))
        if row is None:
            return self._started_before(stage, wanted)
        _count_moves(stage.name, "new", "started")
        return Held(row.attempt, row.lease_token, row.lease_expires_at)

    def _started_before(self, stage: Stage, wanted: Start) -> Held:
        task = self._task(stage, wanted.filename, wanted.shard)
        same = wanted.worker_id is not None and wanted.worker_id == task.worker_id
        same = same or (wanted.lease_token is not None and wanted.lease_token == str(task.lease_token))
        if task.status == "started" and same:
            return Held(task.attempt, task.lease_token, task.lease_expires_at)
        if task.status == "started":
            raise _not_now(stage, "already_started", task.status, "Somebody else is at work on it.")
        if task.status == "new" and task.before != "done":
            before = states.BEFORE[stage.name].name
            raise _not_now(stage, "upstream_not_done", task.status, f"Its {before} is {task.before}.")
        raise _not_now(stage, "invalid_transition", task.status, f"It is {task.status}, and not new.")

    def finish(self, stage: Stage, transition: str, wanted: Transition) -> None:
        """The task's stage is done, or has failed. UnknownTask or NotNow; a repeat changes nothing."""
        target = TARGETS[transition]
        row = self._one(
            _sql[stage.name].finish, stage=stage.name, target=target, sources=_sources(target),
            **_members(wanted),
        )  # fmt: skip
        if row is not None:
            _count_moves(stage.name, row.from_status, target)
            if row.seconds is not None:
                metrics.pipeline_stage_seconds.labels(stage.name, target).observe(row.seconds)
            return
        task = self._task(stage, wanted.filename, wanted.shard)
        if wanted.lease_token is not None and wanted.lease_token != str(task.lease_token):
            raise _not_now(stage, "lease_lost", task.status, "Its lease has run out, or is another's.")
        if task.status != target:
            raise _not_now(stage, "invalid_transition", task.status, f"It is {task.status}.")

    def retry(self, stage: Stage, wanted: Transition) -> None:
        """The task that failed waits for the stage again. UnknownTask or NotNow; a repeat changes nothing."""
        rows = self._all(
            _sql[stage.name].retry, stage=stage.name, filename=wanted.filename, shard=wanted.shard,
            error_code=None, limit=1,
        )  # fmt: skip
        if rows:
            _count_moves(stage.name, "failed", "new")
            return
        task = self._task(stage, wanted.filename, wanted.shard)
        if task.status != "new":
            raise _not_now(stage, "invalid_transition", task.status, f"It is {task.status}, and not failed.")

    def _task(self, stage: Stage, filename: str, shard: int) -> _Stood:
        row = self._one(_sql[ANY].one_task, filename=filename, shard=shard)
        if row is None:
            raise UnknownTask()
        return _stood(row, stage)

    # -- queues

    def claim(self, stage: Stage, wanted: Claim) -> list[Any]:
        """The tasks that wait longest for the stage, at work for this worker under a lease each."""
        self._sweep()
        rows = self._all(_sql[stage.name].claim, stage=stage.name, **asdict(wanted))
        _count_moves(stage.name, "new", "started", len(rows))
        metrics.pipeline_claims.labels(stage.name, "found" if rows else "empty").inc()
        return rows

    def extend_task_lease(self, stage: Stage, wanted: Heartbeat) -> Any:
        """When the lease of the task ends now. UnknownTask; NotNow when it is another's."""
        row = self._one(_sql[stage.name].extend_task_lease, **asdict(wanted))
        if row is None:
            task = self._task(stage, wanted.filename, wanted.shard)
            raise _not_now(stage, "lease_lost", task.status, "Its lease has run out, or is another's.")
        return row.lease_expires_at

    def queue(self, stage: Stage, wanted: QueueQuery) -> list[Any]:
        """The tasks that wait for the stage; one more than asked for says that there are further ones."""
        self._sweep()
        values = asdict(wanted) | {"limit": wanted.limit + 1}
        behind_at, behind_id = values.pop("cursor") or (None, None)
        return self._all(_sql[stage.name].queue, behind_at=behind_at, behind_id=behind_id, **values)

    def _sweep(self) -> None:
        """Tasks whose lease has run out wait again; looked for once a second at most."""
        now = self.clock.monotonic()
        if now < self._swept + SWEEP_SECONDS:
            return
        self._swept = now
        self.return_expired()

    def return_expired(self) -> int:
        """Every task whose lease has run out waits for its stage again; how many were found."""
        found = 0
        for name in QUEUES:
            rows = self._all(_sql[name].return_expired, stage=name, error_code=states.LEASE_EXPIRED)
            found += len(rows)
            metrics.pipeline_leases_expired.labels(name).inc(len(rows))
            _count_moves(name, "started", "new", len(rows))
        return found

    def retry_failed(self, stage: Stage, wanted: RetryFailed) -> tuple[int, list[Any]]:
        """Failed tasks that match wait for the stage again, unless it is a dry run; how many match in all."""
        values = {name: getattr(wanted, name) for name in ("filename", "shard", "error_code", "limit")}
        rows = self._all(_sql[stage.name].failed, **values)
        matched = rows[0].matched if rows else 0
        if not wanted.dry_run:
            rows = self._all(_sql[stage.name].retry, stage=stage.name, **values)
            _count_moves(stage.name, "failed", "new", len(rows))
        return matched, rows

    # -- looking

    def file(self, filename: str) -> list[Any]:
        """Every shard of the file; UnknownFile when there is none."""
        _check_filename(filename)
        rows = self._all(_sql[ANY].shards_of_file, filename=filename)
        if not rows:
            raise UnknownFile()
        return rows

    def history(self, filename: str, wanted: HistoryQuery) -> list[Any]:
        """What happened to the tasks of the file; UnknownFile when there is none."""
        _check_filename(filename)
        rows = self._all(_sql[ANY].history, filename=filename, **asdict(wanted) | {"limit": wanted.limit + 1})
        if not rows:
            self.file(filename)
        return rows

    def files(self, wanted: FilesQuery) -> list[Any]:
        """Files, the newest name first, with how many of their shards stand where."""
        return self._all(_sql[ANY].files, **asdict(wanted) | {"limit": wanted.limit + 1})

    def tasks(self, wanted: TasksQuery) -> list[Any]:
        """Tasks that match, in the order of their making."""
        values = asdict(wanted) | {"limit": wanted.limit + 1}
        return self._all(_sql[values.pop("stage") or INGEST.name].tasks, **values)

    def stuck(self, wanted: StuckQuery) -> list[dict[str, Any]]:
        """Tasks that are at work for longer than their stage should take, the longest first."""
        self._sweep()
        found = []
        for name, stage in STAGES.items():
            if wanted.stage in (None, name):
                limit = wanted.older_than_seconds or stage.stuck_seconds
                rows = self.stuck_in(name, seconds=limit, limit=wanted.limit)
                found += [{**row._asdict(), "stage": name, "limit_seconds": limit} for row in rows]
        return sorted(found, key=lambda task: -task["seconds"])[: wanted.limit]

    def stuck_in(self, stage: str, *, seconds: int | None = None, limit: int) -> list[Any]:
        """Tasks at work in the stage for longer than so many seconds, or than it should take."""
        return self._all(_sql[stage].stuck, seconds=seconds or STAGES[stage].stuck_seconds, limit=limit)

    def summary(self) -> tuple[Any, list[Any]]:
        """How many tasks stand where in each stage, and how far each shard is."""
        return self.counts(), self._all(_sql[ANY].by_shard)

    def counts(self) -> Any:
        """How many tasks stand where in each stage."""
        return self._one(_sql[ANY].summary)

    def oldest_ready(self) -> dict[str, float]:
        """For how many seconds the task that waits longest for each stage has waited."""
        return {name: self._one(_sql[name].oldest_ready) or 0.0 for name in QUEUES}

    def followed(self, place: tuple[str, int], *, filename: str | None, stage: str | None, limit: int) -> Any:
        """What happened behind a place that was followed up to, as far as it is certain."""
        return self._all(
            _sql[ANY].followed, behind_xid=place[0], behind_id=place[1], filename=filename, stage=stage,
            limit=limit,
        )  # fmt: skip

    def newest_place(self) -> tuple[str, int]:
        """The place behind which what happens from now on can be read."""
        return self._one(_sql[ANY].newest_place).xid, 0


@dataclass(frozen=True, slots=True)
class _Stood:
    """Where a task stands in one stage."""

    status: str
    before: str | None
    attempt: int
    worker_id: str | None
    lease_token: Any
    lease_expires_at: Any


def _check_filename(filename: str) -> None:
    """An address may hold what no file is called, and what the database cannot be asked: UnknownFile."""
    if not is_filename(filename):
        raise UnknownFile()


def _stood(row: Any, stage: Stage) -> _Stood:
    before = states.BEFORE.get(stage.name)
    of_stage = {
        name: getattr(row, f"{stage.column}_{name}")
        for name in ("status", "attempt", "worker_id", "lease_token", "lease_expires_at")
    }
    return _Stood(before=getattr(row, f"{before.column}_status") if before else None, **of_stage)


def _sources(target: str) -> list[str]:
    return list(states.MACHINE.sources(target, manual=target == "new"))


def _not_now(stage: Stage, code: str, status: str, sentence: str) -> NotNow:
    metrics.pipeline_conflicts.labels(stage.name, code).inc()
    return NotNow(sentence, code=code, current_status=status)


def _count_moves(stage: str, source: str, target: str, number: int = 1) -> None:
    if number:
        metrics.pipeline_transitions.labels(stage, source, target).inc(number)


def _members(wanted: Any, *without: str) -> dict[str, Any]:
    """The members of a request, without some."""
    return {name: value for name, value in asdict(wanted).items() if name not in without}
