"""Files that kill their worker, work that takes too long, and beats that come twice."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.faults.nodes import ProcessContainer
from tests.faults.world import World

BOMB = """
import os, signal
from app.uploads import parse
make = parse.make
def explode(file, **declared):
    if b"BOMB" in file.read(4096):
        os.kill(os.getpid(), signal.SIGKILL)
    return make(file, **declared)
parse.make = explode
"""


def test_a_file_that_kills_its_worker_is_given_up(world: World) -> None:
    (world.folder / "sitecustomize.py").write_text(BOMB)
    poisoned = world.start_worker("poisoned", "parse", PYTHONPATH=f"{world.folder}:{world.env['PYTHONPATH']}")
    for worker in world.workers:
        if worker.name.startswith("parse"):
            worker.kill("SIGKILL")
    try:
        (bad,) = world.hand_in(1, rows=10)
        world.sql(f"UPDATE data_uploads SET next_attempt_at = 'infinity' WHERE id = '{bad}'")
        path = world.sql(f"SELECT file_url FROM data_uploads WHERE id = '{bad}'")[0][0].removeprefix(
            "file://"
        )
        with Path(path).open("ab") as file:
            file.write(b"BOMB")
        world.sql(f"UPDATE data_uploads SET next_attempt_at = '-infinity' WHERE id = '{bad}'")
        world.hand_in(2, rows=500)
        world.settle()
        found = world.sql(f"SELECT error_code, attempts FROM data_uploads WHERE id = '{bad}'")
        assert found == [("attempts_exhausted", 5)]
        world.check(failed=[bad])
    finally:
        poisoned.teardown()
        world.workers.remove(poisoned)


def test_work_beyond_the_hard_time_limit_is_killed_and_taken_up_again(world: World) -> None:
    limited = world.start_worker("limited", "parse,promote", "--time-limit", "1", "--soft-time-limit", "60")
    for worker in world.workers:
        if worker.name.startswith("parse"):
            worker.kill("SIGSTOP")
    try:
        world.hand_in(2, rows=30_000)
        world.settle()
        world.check()
    finally:
        limited.teardown()
        world.workers.remove(limited)


def test_two_beats_do_the_work_of_one(world: World) -> None:
    beats = [
        ProcessContainer(
            f"beat{number}",
            [sys.executable, "-m", "celery", "-A", "workers.fleet", "beat", "--pidfile=", "--schedule",
             str(world.folder / f"beat{number}.db")],
            world.env,
            world.folder / f"beat{number}.log",
        )
        for number in (1, 2)
    ]  # fmt: skip
    upkeep = world.start_worker("upkeep", "intake,events,cleanup")
    try:
        world.hand_in(4, rows=2_000)
        world.settle()
        world.wait_for(
            lambda: world.sql("SELECT count(*) FROM audit WHERE action = 'event_received'") == [(4,)],
            "not every event arrived",
        )
        time.sleep(1)  # time for one event too many
        assert world.sql("SELECT count(*) FROM audit WHERE action = 'event_received'") == [(4,)]
        world.check()
    finally:
        for process in [*beats, upkeep]:
            process.teardown()
        world.workers.remove(upkeep)
