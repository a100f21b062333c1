"""The whole fleet on servers of its own, as `headworks up` starts it, and what it uses up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras

from app.adapters import embedded, migrations
from benchmarks.uploads.report import PLATFORM
from tests.acceptance.conftest import ROOT, Api, environment, multipart, refdata_environment, wait_until_ready

PRODUCTION = "campaigns, ad_sets, ads, daily_metrics"


@dataclass(frozen=True)
class Ended:
    """One upload that is terminal: when it was sent, and when it came to each state (seconds since)."""

    upload_id: str
    status: str
    counts: dict[str, int]
    seconds: float
    reached: dict[str, float]


@dataclass(frozen=True)
class Fleet:
    """A fleet with one worker for each queue, and its database."""

    api: Api
    postgres: embedded.Postgres
    dsn: str
    connection: Any
    processes: embedded.Fleet
    room: Path

    def sql(self, statement: str, *values: Any) -> list[Any]:
        """What the statement returns, run as the owner of everything."""
        with self.connection.cursor(cursor_factory=psycopg2.extras.NamedTupleCursor) as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def forget(self) -> None:
        """Production and staging are empty, and the server has nothing left to do."""
        while True:
            with contextlib.suppress(psycopg2.errors.DeadlockDetected):  # with a worker that looks around
                self.sql(f"TRUNCATE staging_rows, staging_id_resolution, {PRODUCTION}")
                break
        self.settle()

    def settle(self) -> None:
        """What was written is on disk and known to the planner; nothing of it is left for the next round."""
        self.sql(f"VACUUM (ANALYZE) {PRODUCTION}")
        self.sql("CHECKPOINT")

    def new_workspace(self) -> str:
        """A workspace that nobody has used."""
        return str(uuid.uuid4())

    @contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """These members do nothing while the block runs."""
        pids = [pid for name in names for pid in _session(self.processes.pids[name])]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def send(self, content: bytes, *, workspace_id: str) -> tuple[str, float]:
        """The upload's id, and when its sending began."""
        fields = {"workspace_id": workspace_id, "platform": PLATFORM, "source": "manual", "currency": "USD"}
        body, content_type = multipart(content, dict(fields))
        began = time.time()
        headers = {"Content-Type": content_type}
        answer = self.api.send("/v1/uploads", body, headers)
        return str(json.loads(answer[2])["upload_id"]), began

    def upload(
        self, content: bytes, *, workspace_id: str = "", seconds: float = 900, look_seconds: float = 0.02
    ) -> Ended:
        """The report is sent and has come to its end."""
        upload_id, began = self.send(content, workspace_id=workspace_id or self.new_workspace())
        deadline = time.monotonic() + seconds
        while self.sql("SELECT finished_at IS NULL AS open FROM data_uploads WHERE id = %s", upload_id)[
            0
        ].open:
            assert time.monotonic() < deadline, upload_id
            time.sleep(look_seconds)
        return self.ended(upload_id, began)

    def ended(self, upload_id: str, began: float) -> Ended:
        """How the upload went."""
        [row] = self.sql("SELECT * FROM data_uploads WHERE id = %s", upload_id)
        first = "SELECT to_status, min(at) AS at FROM audit WHERE upload_id = %s GROUP BY 1"
        moves = self.sql(first, upload_id)
        reached = {move.to_status: _since(began, move.at) for move in moves if move.to_status}
        reached["created"] = _since(began, row.created_at)
        counts = {"total": row.total_rows, "valid": row.valid_rows, "promoted": row.promoted_rows}
        return Ended(upload_id, row.status, counts, _since(began, row.finished_at), reached)

    def forget_peaks(self) -> None:
        """The peak memory of every process is what it has now."""
        for pid in self._pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peaks(self) -> dict[str, int]:
        """The peak resident memory in MiB of the largest process of each member since then."""
        return {name: max(map(_peak, _session(pid))) for name, pid in self.processes.pids.items()}

    def _pids(self) -> list[int]:
        return [pid for leader in self.processes.pids.values() for pid in _session(leader)]


def _since(began: float, at: datetime) -> float:
    return round(at.timestamp() - began, 4)


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == leader:
            found.append(int(stat.parent.name))
    return found


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


@contextmanager
def running() -> Iterator[Fleet]:
    """A fleet that is ready, on a PostgreSQL that is as durable as in earnest."""
    with (
        tempfile.TemporaryDirectory() as name,
        embedded.Postgres(Path(name) / "postgres") as postgres,
        embedded.Valkey(Path(name) / "valkey") as valkey,
    ):
        room = Path(name) / "data"
        room.mkdir()
        migrations.migrate(postgres.dsn)
        env = environment(postgres.dsn, valkey.url, room)
        env["HEADWORKS_PIPELINE_DATABASE_URL"] = postgres.dsn_of("pipeline")
        env |= refdata_environment(postgres.dsn_of("refdata"), room)
        env |= {"HEADWORKS_UPLOADS_PER_MINUTE": "1000000", "HEADWORKS_RATE_PER_MINUTE": "1000000"}
        processes = embedded.Fleet(ROOT / "Procfile", env=env, logs=room / "logs")
        processes.start()
        try:
            api = Api(env["HEADWORKS_URL"])
            wait_until_ready(api, processes)
            with closing(psycopg2.connect(postgres.dsn)) as connection:
                connection.autocommit = True
                yield Fleet(api, postgres, postgres.dsn, connection, processes, room)
        finally:
            processes.stop()
