"""Random faults over a stream of uploads; afterwards everything must be as if nothing had happened.

python -m tests.faults.chaos --minutes 10 --seed 1
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2
import redis

from app.adapters import embedded, logs, migrations
from app.kernel import errors
from tests.faults.nodes import WorkerContainer
from tests.faults.world import World, environment, stop_immediately

PAUSE_SECONDS = (1.0, 4.0)
"""Between two faults."""

WORKERS = 2  # of each stage


@dataclass
class Chaos:
    """One run: what is broken, and what was seen."""

    world: World
    random: random.Random
    faults: Counter[str] = field(default_factory=Counter)
    killed: list[tuple[str, float]] = field(default_factory=list)  # owner, database time of its death
    refused: int = 0
    handed_in: int = 0

    def run(self, seconds: float) -> None:
        """Faults and uploads for so long, then everything runs again until all work is done."""
        deadline = time.monotonic() + seconds
        next_fault = time.monotonic()
        while time.monotonic() < deadline:
            self._hand_in()
            if time.monotonic() >= next_fault:
                fault = self.random.choice(FAULTS)
                self.faults[fault.__name__.strip("_")] += 1
                fault(self)
                next_fault = time.monotonic() + self.random.uniform(*PAUSE_SECONDS)
            self._mend_workers()
            time.sleep(self.random.uniform(0.05, 0.4))
        self._mend_workers(everything=True)
        self.world.settle(seconds=180)
        self.world.check()

    def _hand_in(self) -> None:
        try:
            self.world.hand_in(
                1,
                workspace=self.random.randint(1, 4),
                rows=self.random.choice((20, 300, 2_000, 4_000)),
                first_seed=self.random.randint(0, 40),
            )
            self.handed_in += 1
        except errors.HeadworksError:
            self.refused += 1  # nobody was told that it is taken in

    def _mend_workers(self, *, everything: bool = False) -> None:
        for worker in self.world.workers:
            if worker.status != "running" and (everything or self.random.random() < 0.5):
                worker.start()
            if everything:
                worker.signal_group(signal.SIGCONT)

    def recovery_seconds(self) -> list[float]:
        """For each upload whose owner was killed: from the death until it was claimed again."""
        found = []
        for owner, died in self.killed:
            rows = self.world.sql(
                "SELECT min(extract(epoch FROM n.at)) FROM audit l JOIN audit n ON n.upload_id = l.upload_id"
                f" AND n.id > l.id AND n.action = 'resumed' WHERE l.action = 'lease_expired'"
                f" AND l.owner_id = '{owner}' AND extract(epoch FROM l.at) > {died}"
            )
            if rows[0][0] is not None:
                found.append(float(rows[0][0]) - died)
        return found

    # -- faults

    def _owners(self) -> list[str]:
        return [
            owner
            for (owner,) in self.world.sql("SELECT owner_id FROM data_uploads WHERE owner_id IS NOT NULL")
        ]

    def _some_worker(self) -> WorkerContainer:
        running = [worker for worker in self.world.workers if worker.status == "running"]
        return self.random.choice(running or self.world.workers)

    def _note_death(self, worker: WorkerContainer) -> None:
        now = self.world.sql("SELECT extract(epoch FROM clock_timestamp())::float")[0][0]
        held = [owner for owner in self._owners() if self.world.is_of(owner, worker)]
        self.killed += [(owner, now) for owner in held]


def _kill_worker(chaos: Chaos) -> None:
    worker = chaos._some_worker()
    if worker.status == "running":
        chaos._note_death(worker)
        worker.kill("SIGKILL")


def _kill_pool_process(chaos: Chaos) -> None:
    worker = chaos._some_worker()
    if worker.status == "running":
        chaos._note_death(worker)
        worker.kill_children()


def _stop_worker(chaos: Chaos) -> None:
    worker = chaos._some_worker()
    if worker.status == "running":
        worker.kill("SIGTERM")


def _freeze_worker(chaos: Chaos) -> None:
    worker = chaos._some_worker()
    if worker.status == "running":
        worker.signal_group(signal.SIGSTOP)
        time.sleep(chaos.random.uniform(0.5, 5))
        worker.signal_group(signal.SIGCONT)


def _kill_broker(chaos: Chaos) -> None:
    chaos.world.valkey.kill()
    time.sleep(chaos.random.uniform(0, 1))
    chaos.world.valkey.start()


def _restart_broker(chaos: Chaos) -> None:
    chaos.world.valkey.stop()
    chaos.world.valkey.start()


def _empty_broker(chaos: Chaos) -> None:
    with redis.Redis.from_url(chaos.world.valkey.url) as client:
        client.flushall()


def _stop_database(chaos: Chaos) -> None:
    stop_immediately(chaos.world.postgres)
    time.sleep(chaos.random.uniform(0, 1))
    chaos.world.postgres.start()


def _terminate_backends(chaos: Chaos) -> None:
    chaos.world.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE '%headworks%' AND random() < 0.5"
    )


FAULTS: tuple[Callable[[Chaos], None], ...] = (
    _kill_worker,
    _kill_worker,
    _kill_pool_process,
    _stop_worker,
    _freeze_worker,
    _kill_broker,
    _restart_broker,
    _empty_broker,
    _stop_database,
    _terminate_backends,
)


def report(chaos: Chaos, *, seed: int, seconds: float) -> dict[str, Any]:
    """What a run came to, as plain values."""
    recovery = sorted(chaos.recovery_seconds())
    uploads = chaos.world.sql("SELECT count(*), sum(promoted_rows) FROM data_uploads")[0]
    return {
        "seed": seed,
        "seconds": seconds,
        "uploads": uploads[0],
        "rows": uploads[1],
        "refused_while_the_database_was_away": chaos.refused,
        "faults": dict(sorted(chaos.faults.items())),
        "recoveries": len(recovery),
        "recovery_seconds_p50": round(statistics.median(recovery), 2) if recovery else None,
        "recovery_seconds_p99": round(recovery[int(len(recovery) * 0.99)], 2) if recovery else None,
        "most_active_of_a_workspace": chaos.world.most_active(),
    }


def main() -> int:
    """Run, check, and print the report as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    logs.configure("chaos", "ERROR")
    print(f"seed {options.seed}, {options.minutes} minutes", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        os.chmod(folder, 0o711)  # noqa: PTH101 (as root the servers' user passes through)
        return _run(Path(folder), options.minutes * 60, options.seed)


def _run(folder: Path, seconds: float, seed: int) -> int:
    with (
        embedded.Postgres(folder / "postgres", durable=False) as postgres,
        embedded.Valkey(folder / "valkey") as valkey,
    ):
        migrations.migrate(postgres.dsn)
        # The product's own settings: this is what a user may expect.
        world = World(postgres, valkey, folder, environment(postgres, valkey, folder, defaults=True))
        try:
            for number in range(WORKERS):
                world.start_worker(f"parse{number}", "parse")
                world.start_worker(f"promote{number}", "promote")
            chaos = Chaos(world, random.Random(seed))
            chaos.run(seconds)
            print(json.dumps(report(chaos, seed=seed, seconds=seconds), indent=1))
        except (AssertionError, psycopg2.Error) as error:
            print(f"seed {seed} failed: {error}", file=sys.stderr)
            return 1
        finally:
            world.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
