"""The way of every target: fetch, normalise, hash, compare, store, apply (seed §4.6)."""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from app.adapters import logs, metrics, retries
from app.adapters.database import Connection, Database
from app.catalog import raw_store
from app.catalog.context import JobContext
from app.catalog.failures import TargetFailure, Then
from app.catalog.normalize import IN_ORDER, compute_content_hash, compute_field_hashes, normalize
from app.catalog.raw_store import RawStore
from app.catalog.repos.run_repo import RunRepo, TargetResult
from app.catalog.repos.staging_repo import Decision, Latest, StagingRepo, StagingRow
from app.catalog.runs import Run
from app.kernel import errors
from app.kernel.clock import Clock

log = logs.get(__name__)

Target = str

AT_ONCE = 50
"""Targets whose lines of the ledger are read together, and whose ends are recorded together: so many are
asked for again, a minute's worth, when a run breaks and goes on."""

STORM = 5
"""So many targets in a row that could not be fetched for the service's sake: it is not tried any longer."""

MOST_PARENTS = 20
"""So many targets may each have to be applied before the next."""


NOTHING: Mapping[str, str] = MappingProxyType({})


class Fetcher(Protocol):
    """Gets the record of a target, or raises a TargetFailure."""

    def __call__(self, target: Target) -> Mapping[str, Any]: ...


class Applier(Protocol):
    """Writes a record to its tables, within the transaction."""

    def __call__(
        self, conn: Connection, normalized: Mapping[str, Any], ctx: JobContext, target: Target
    ) -> None: ...


class TargetProvider(Protocol):
    """Says what a job works on."""

    def __call__(self, ctx: JobContext) -> Iterable[Target]: ...


@dataclass(slots=True)
class Summary:
    """What came of a run so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    categories: Counter[str] = field(default_factory=Counter)
    changed_fields: Counter[str] = field(default_factory=Counter)

    @property
    def total_targets(self) -> int:
        """Those that were to be worked on, and what they needed besides."""
        return self.outcomes.total()

    @property
    def failure_rate(self) -> float:
        """The share of the targets that failed; those that are not there are no failures."""
        return self.outcomes["failed"] / self.total_targets if self.total_targets else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The summary as the seed wants it, and what else is worth knowing."""
        failed = self.outcomes["failed"]
        return {
            "total_targets": self.total_targets,
            "success_count": self.outcomes.total() - failed - self.outcomes["not_found"],
            "failure_count": failed,
            "failure_rate": round(self.failure_rate, 6),
            "outcomes": dict(self.outcomes),
            "categories": dict(self.categories),
            "changed_fields": dict(self.changed_fields),
        }


class Stopped(errors.Fatal):
    """The job ends before its targets do: what failed would fail for all of them."""

    def __init__(self, failure: TargetFailure, summary: Summary) -> None:
        super().__init__(failure.sentence, code=failure.category)
        self.failure = failure
        self.summary = summary


class EtlService:
    """The flow that all entities share; what is theirs is given to it."""

    def __init__(
        self, db: Database, store: RawStore, clock: Clock, *, threads: int = 4,
        tell: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:  # fmt: skip
        """`tell` hears of each difference that is found, field by field with what was and what is."""
        self._db = db
        self._store = store
        self._clock = clock
        self._threads = threads
        self._tell = tell

    def run_entity_etl(
        self, *, ctx: JobContext, source: str, entity: str, target_provider: TargetProvider,
        fetcher: Fetcher, applier: Applier, apply_version: int, run: Run,
        done: Mapping[Target, str] = NOTHING, again: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Every target has been through the flow; a summary of what came of them.

        Stopped where a failure would be that of every other target as well. What a target needs is worked
        on before it, also where it is no target itself. `done` are the targets that the run was through with
        before it broke, and how they ended. `again`: nothing was fetched now, and what is
        applied already is applied again.
        """
        work = _Work(self, ctx, source, entity, fetcher, applier, apply_version, run, again)
        work.summary.outcomes.update(done.values())
        wanted = dict.fromkeys(str(target) for target in target_provider(ctx))
        targets = [target for target in list(wanted)[: ctx.limit] if target not in done]
        with ThreadPoolExecutor(self._threads, thread_name_prefix=entity) as pool:
            for start in range(0, len(targets), AT_ONCE):
                work.through(targets[start : start + AT_ONCE], pool)
        return work.summary.as_dict()


@dataclass(slots=True)
class _Work:
    """One run's way through its targets."""

    service: EtlService
    ctx: JobContext
    source: str
    entity: str
    fetcher: Fetcher
    applier: Applier
    apply_version: int
    run: Run
    again: bool
    summary: Summary = field(default_factory=Summary)
    _latest: dict[Target, Latest] = field(default_factory=dict)
    _in_a_row: int = 0
    _stopped_by: TargetFailure | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def through(self, targets: Sequence[Target], pool: ThreadPoolExecutor) -> None:
        """These targets have been through the flow, and their ends stand in the run's history."""
        self._latest = self._looked_up(targets)
        found: dict[Target, TargetResult] = {}
        # Each in a copy of the context: its log lines are the run's, too.
        contexts = [contextvars.copy_context() for _ in targets]
        results = pool.map(lambda context, target: context.run(self._attempt, target), contexts, targets)
        for result in itertools.chain.from_iterable(results):
            # What several others needed was worked on for the first of them, and unchanged for the rest.
            if result.target not in found or result.outcome != "unchanged":
                found[result.target] = result
        for result in found.values():
            self.summary.outcomes[result.outcome] += 1
            if result.category:
                self.summary.categories[result.category] += 1
            metrics.catalog_targets.labels(self.entity, result.outcome).inc()
        if not self.ctx.dry_run:
            with self.service._db.transaction("catalog") as conn:
                self.run.check(conn)
                RunRepo(conn).record(self.run.run_id, list(found.values()))
        if self._stopped_by is not None:
            raise Stopped(self._stopped_by, self.summary)

    def _looked_up(self, targets: Sequence[Target]) -> dict[Target, Latest]:
        with self.service._db.transaction("catalog") as conn:
            return StagingRepo(conn).latest(source=self.source, entity=self.entity, source_ids=targets)

    def _attempt(self, target: Target, below: tuple[Target, ...] = ()) -> list[TargetResult]:
        """How the target ended, behind how those ended that it needed; nothing once the job is stopped."""
        if self._stopped_by is not None:
            return []
        try:
            result = TargetResult(target, self._one(target))
            self._in_a_row = 0
        except TargetFailure as failure:
            below = (*below, target)
            if failure.needs is None or failure.needs in below or len(below) > MOST_PARENTS:
                return [self._failed(target, failure)]
            self._latest |= self._looked_up([failure.needs])
            needed = self._attempt(failure.needs, below)
            if not needed or needed[-1].outcome in ("failed", "not_found"):
                return [*needed, self._failed(target, failure)]
            return [*needed, *self._attempt(target, below)]
        return [result]

    def _failed(self, target: Target, failure: TargetFailure) -> TargetResult:
        then = failure.then
        outcome = "not_found" if then is Then.NOT_FOUND else "failed"
        log.warning(
            "target_not_found" if then is Then.NOT_FOUND else "target_failed",
            job_id=self.ctx.job_id, run_id=str(self.ctx.run_id), entity=self.entity, source_id=target,
            attempt=failure.attempts, category=failure.category, http_status=failure.status,
        )  # fmt: skip
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if then is Then.TRY_AGAIN else 0
            if then is Then.STOP_JOB or self._in_a_row >= STORM:
                self._stopped_by = failure
        return TargetResult(
            target, outcome, failure.attempts, failure.category, failure.status, failure.excerpt or None
        )

    # -- one target

    def _one(self, target: Target) -> str:
        """What came of the target. One that we do not know to deal with is not the end of all others."""
        try:
            return self._through(target)
        except errors.HeadworksError:
            raise
        except Exception as error:
            log.exception("target_broke", run_id=str(self.ctx.run_id), entity=self.entity, source_id=target)
            raise TargetFailure("unexpected", excerpt=type(error).__name__) from error

    def _through(self, target: Target) -> str:
        normalized = normalize(self.entity, self.fetcher(target))
        content_hash = compute_content_hash(normalized)
        latest = self._latest.get(target)
        decision = Decision.STORE_AND_APPLY
        if latest is not None:
            decision = latest.decide(content_hash, self.apply_version)
        if decision is Decision.SKIP and self.again:
            decision = Decision.REAPPLY
        if decision is Decision.SKIP:
            return "unchanged"
        row = None
        if decision is Decision.STORE_AND_APPLY:
            field_hashes = compute_field_hashes(normalized)
            self._compare(latest, field_hashes)
            if self.service._tell is not None:
                self.service._tell(target, self._difference(latest, normalized))
            if not self.ctx.dry_run:
                row = self._stored(target, content_hash, field_hashes, normalized)
        if not self.ctx.dry_run:
            retries.call(lambda: self._apply(target, content_hash, normalized, row), self.service._clock)
        return "applied" if decision is Decision.STORE_AND_APPLY else "reapplied"

    def _compare(self, latest: Latest | None, field_hashes: Mapping[str, str]) -> None:
        """Which fields differ from those of the last content is counted."""
        if latest is not None:
            before = latest.field_hashes
            names = before.keys() | field_hashes.keys()
            with self._lock:
                self.summary.changed_fields.update(
                    name for name in names if before.get(name) != field_hashes.get(name)
                )

    def _difference(self, latest: Latest | None, normalized: Mapping[str, Any]) -> Mapping[str, Any]:
        """What differs from the last content, as far as that one can be read."""
        if latest is None:
            return {"new": True}
        try:
            before = self.service._store.get_json(s3_key=latest.s3_key)
        except (errors.Fatal, errors.Transient) as error:
            return {"not_comparable": error.sentence}
        return difference(before, normalized)

    def _context(self, target: Target) -> JobContext:
        """What was not fetched now was observed when it was saved."""
        latest = self._latest.get(target)
        if not self.again or latest is None:
            return self.ctx
        return replace(self.ctx, job_start_at=latest.saved_at, reapplied=True)

    def _stored(
        self,
        target: Target,
        content_hash: str,
        field_hashes: Mapping[str, str],
        normalized: Mapping[str, Any],
    ) -> StagingRow:
        key = raw_store.build_key(entity=self.entity, source_id=target, content_hash=content_hash)
        try:
            put = retries.call(
                lambda: self.service._store.put_json(s3_key=key, body=normalized), self.service._clock
            )
        except errors.AccessDenied as error:
            raise TargetFailure("access", excerpt=error.sentence) from error
        except (errors.Transient, errors.FileGone) as error:
            raise TargetFailure("raw_store", excerpt=error.sentence) from error
        return StagingRow(
            self.source, self.entity, target, content_hash, put.s3_key, put.etag, put.saved_at, field_hashes,
            applied_version=self.apply_version,
        )  # fmt: skip

    def _apply(
        self, target: Target, content_hash: str, normalized: Mapping[str, Any], row: StagingRow | None
    ) -> None:
        try:
            with self.service._db.transaction("catalog") as conn:
                self.run.check(conn)
                self.applier(conn, normalized, self._context(target), target)
                ledger = StagingRepo(conn)
                if row is not None:
                    ledger.batch_upsert(rows=[row])
                else:
                    ledger.applied(
                        source=self.source, entity=self.entity, source_id=target, content_hash=content_hash,
                        apply_version=self.apply_version,
                    )  # fmt: skip
        except errors.RowError as error:
            raise TargetFailure("database", excerpt=error.sentence) from error


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields that two normalised records differ in, each with what it was and what it is."""
    names = (before.keys() | after.keys()) - {IN_ORDER}
    return {
        name: (before.get(name), after.get(name))
        for name in sorted(names) if before.get(name) != after.get(name)
    }  # fmt: skip
