"""The runs of the jobs: who is at work, what came of each target, and what is left of a run that broke."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from app.adapters import database, logs
from app.adapters.database import Connection, Database
from app.catalog.context import JobContext
from app.catalog.repos.run_repo import RunRepo
from app.kernel import errors

log = logs.get(__name__)

LEASE_SECONDS = 60.0
BEATS_PER_LEASE = 4


class Busy(errors.Conflict):
    """Another run of this job is at work."""

    code = "job_busy"


class Lost(errors.Conflict):
    """The run is not this process's any more."""

    code = "run_lost"


class Run:
    """One run at work, as its process holds it."""

    def __init__(self, db: Database, run_id: UUID) -> None:
        self._db = db
        self._owner_id = database.this_process()
        self._lost = threading.Event()
        self._done = threading.Event()
        self.run_id = run_id

    def begin(
        self, ctx: JobContext, *, apply_version: int | None, net_id: UUID | None, from_raw: bool = False
    ) -> None:
        """The job is this run's. Busy when another run of it is at work."""
        with self._db.transaction("catalog") as conn:
            repo = RunRepo(conn)
            repo.break_dead()
            begun = repo.begin(
                ctx, apply_version=apply_version, net_id=net_id, from_raw=from_raw,
                owner_id=self._owner_id, lease_seconds=LEASE_SECONDS,
            )  # fmt: skip
            if not begun:
                raise Busy()

    def resume(self, *, apply_version: int | None) -> dict[str, str]:
        """The run is at work again; the targets that it is through with, and how they ended."""
        try:
            return self._resume(apply_version)
        except errors.UniqueViolated:  # another run of the job has begun at the same moment
            raise Busy() from None

    def _resume(self, apply_version: int | None) -> dict[str, str]:
        with self._db.transaction("catalog") as conn:
            repo = RunRepo(conn)
            repo.break_dead()
            resumed = repo.resume(
                self.run_id, apply_version=apply_version, owner_id=self._owner_id,
                lease_seconds=LEASE_SECONDS,
            )  # fmt: skip
            if not resumed:
                raise Busy("The run is at work, has ended well, or another run of its job is at work.")
            return repo.done(self.run_id)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The run stays this process's while the block runs, however long one target takes."""
        heart = threading.Thread(target=self._beat, daemon=True)
        heart.start()
        try:
            yield
        finally:
            self._done.set()
            heart.join(timeout=LEASE_SECONDS)

    def _beat(self) -> None:
        while not self._done.wait(LEASE_SECONDS / BEATS_PER_LEASE):
            try:
                with self._db.transaction("catalog") as conn:
                    extended = RunRepo(conn).extend(
                        self.run_id, owner_id=self._owner_id, lease_seconds=LEASE_SECONDS
                    )
            except errors.HeadworksError as error:
                log.warning("heartbeat_missed", run_id=str(self.run_id), code=error.code)
                continue
            if not extended:
                self._lost.set()
                return

    def check(self, conn: Connection) -> None:
        """What this transaction writes is written only while the run is this process's; else Lost."""
        if self._lost.is_set() or not RunRepo(conn).holds(self.run_id, owner_id=self._owner_id):
            raise Lost()

    def end(self, *, status: str, reason_code: str | None, summary: dict[str, Any], exit_code: int) -> None:
        """The run is over, and what came of it stands in the history."""
        with self._db.transaction("catalog") as conn:
            ended = RunRepo(conn).end(
                self.run_id, status=status, reason_code=reason_code, summary=summary, exit_code=exit_code,
                owner_id=self._owner_id,
            )  # fmt: skip
            if not ended:
                raise Lost()


def newest(db: Database, *, job_id: str | None = None, limit: int = 20) -> list[Any]:
    """The newest runs, of one job or of all."""
    with db.transaction("catalog") as conn:
        return RunRepo(conn).newest(job_id=job_id, limit=limit)


def one(db: Database, run_id: UUID) -> Any:
    """This run; NotFound when there is none."""
    with db.transaction("catalog") as conn:
        found = RunRepo(conn).one(run_id)
    if found is None:
        raise errors.NotFound("There is no such run.")
    return found


def targets(db: Database, run_id: UUID, *, outcome: str | None = None, limit: int = 1000) -> list[Any]:
    """How the targets of a run ended, or those that ended so."""
    with db.transaction("catalog") as conn:
        return RunRepo(conn).targets(run_id, outcome=outcome, limit=limit)
