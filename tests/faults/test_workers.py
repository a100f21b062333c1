"""Workers die, freeze and are stopped; the uploads do not notice."""

from __future__ import annotations

import os
import random
import signal
import time

import psutil
import pytest

from tests import patience
from tests.faults.world import LEASE_SECONDS, SEEDS, World

WAYS_TO_STOP = {
    # what Celery calls it, as the fleet is run: the signals that lead to it, each a moment after the last
    "soft": ["SIGQUIT"],
    "warm": ["SIGINT"],
    "cold": ["SIGTERM", "SIGTERM"],
    "hard": ["SIGQUIT", "SIGQUIT", "SIGQUIT"],
}


def test_an_undisturbed_fleet_leaves_what_serial_processing_leaves(world: World) -> None:
    world.hand_in(6, workspaces=2)
    world.settle()
    world.check()


@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_a_pool_process_is_killed(world: World, status: str) -> None:
    world.hand_in(4, rows=8_000)
    _, owner = world.wait_for_status(status)
    world.worker_of(owner).kill_children()
    world.settle()
    world.check()


@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_a_whole_worker_is_killed(world: World, status: str) -> None:
    world.hand_in(4, rows=8_000)
    _, owner = world.wait_for_status(status)
    world.worker_of(owner).kill("SIGKILL")
    world.settle()
    world.check()


@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_a_frozen_worker_that_wakes_after_its_upload_was_retaken_writes_nothing(
    world: World, status: str
) -> None:
    world.hand_in(2, rows=8_000)
    upload_id, owner = world.wait_for_status(status)
    frozen = world.worker_of(owner)
    frozen.signal_group(signal.SIGSTOP)
    world.wait_for(
        lambda: world.sql(
            f"SELECT 1 FROM audit WHERE upload_id = '{upload_id}' AND action = 'lease_expired'"
        ),
        "the lease of the frozen worker did not expire",
    )
    world.settle()
    frozen.signal_group(signal.SIGCONT)
    time.sleep(LEASE_SECONDS)
    world.check()


@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_a_stopped_worker_hands_its_upload_back_within_ten_seconds(world: World, status: str) -> None:
    world.hand_in(2, rows=60_000)
    upload_id, owner = world.wait_for_status(status)
    stopped = world.worker_of(owner)
    stopped.kill("SIGTERM")
    assert stopped.wait(10 * patience.PATIENCE) is not None
    # It was finished in the time that a stopped worker has, or handed back: no lease has to run out.
    assert world.sql(f"SELECT count(*) FROM data_uploads WHERE owner_id = '{owner}'") == [(0,)]
    expired = f"SELECT count(*) FROM audit WHERE action = 'lease_expired' AND upload_id = '{upload_id}'"
    assert world.sql(expired) == [(0,)]
    world.settle()
    world.check()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", WAYS_TO_STOP)
def test_workers_are_stopped_in_any_way_at_any_moment_of_their_work(
    world: World, how: str, seed: int
) -> None:
    source = random.Random(f"{how} {seed}")
    owners = world.begin_work("processing", "promoting")
    stopped = [world.worker_of(owners[status]) for status in ("processing", "promoting")]
    groups = [worker.pid for worker in stopped]
    for worker in stopped:
        time.sleep(source.uniform(0, 0.3))
        for name in WAYS_TO_STOP[how]:
            worker.kill(name)
            time.sleep(source.uniform(0, 0.2))
    assert all(worker.wait(10 * patience.PATIENCE) is not None for worker in stopped)
    world.wait_for(lambda: not _living(groups), "a process outlives its worker", seconds=10)
    world.settle()
    world.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_process_of_a_worker_is_asked_to_stop_at_once(world: World, seed: int) -> None:
    source = random.Random(seed)
    owners = world.begin_work("processing", "promoting")
    stopped = [world.worker_of(owners[status]) for status in ("processing", "promoting")]
    for worker in stopped:
        time.sleep(source.uniform(0, 0.3))
        worker.signal_group(signal.SIGTERM)
    assert all(worker.wait(10 * patience.PATIENCE) is not None for worker in stopped)
    world.settle()
    world.check()


def _living(groups: list[int]) -> list[psutil.Process]:
    """The processes of these groups, without those that have ended and were not looked after."""
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            if os.getpgid(process.pid) in groups and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        except ProcessLookupError:
            continue
    return found
