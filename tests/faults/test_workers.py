"""Workers die, freeze and are stopped; the uploads do not notice."""

from __future__ import annotations

import signal
import time

import pytest

from tests.faults.world import LEASE_SECONDS, World


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
    _, owner = world.wait_for_status(status)
    stopped = world.worker_of(owner)
    stopped.kill("SIGTERM")
    assert stopped.wait(10) is not None
    # It was finished in the time that a stopped worker has, or handed back: no lease has to run out.
    assert world.sql(f"SELECT count(*) FROM data_uploads WHERE owner_id = '{owner}'") == [(0,)]
    assert world.sql("SELECT count(*) FROM audit WHERE action = 'lease_expired'") == [(0,)]
    world.settle()
    world.check()
