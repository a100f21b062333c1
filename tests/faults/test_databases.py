"""PostgreSQL dies, restarts and drops connections in the middle of every step."""

from __future__ import annotations

import time

import pytest

from tests.faults.world import World, stop_immediately


@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_postgresql_ends_at_once_and_comes_back(world: World, status: str) -> None:
    world.hand_in(4, rows=8_000)
    world.wait_for_status(status)
    stop_immediately(world.postgres)
    time.sleep(0.5)
    world.postgres.start()
    world.settle()
    world.check()


def test_postgresql_ends_while_uploads_are_claimed(world: World) -> None:
    world.hand_in(6, rows=500, workspaces=3)
    stop_immediately(world.postgres)
    world.postgres.start()
    world.settle()
    world.check()


def test_postgresql_ends_while_a_dead_owners_upload_is_taken(world: World) -> None:
    world.hand_in(3, rows=8_000)
    _, owner = world.wait_for_status("processing")
    world.worker_of(owner).kill("SIGKILL")
    stop_immediately(world.postgres)
    time.sleep(2.5)  # the lease runs out while nobody can take it
    world.postgres.start()
    world.settle()
    world.check()


@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_the_connections_of_the_owner_are_terminated(world: World, status: str) -> None:
    world.hand_in(3, rows=8_000)
    world.wait_for_status(status)
    for _ in range(5):
        world.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE '%headworks%' AND pid <> pg_backend_pid()"
        )
        time.sleep(0.2)
    world.settle()
    world.check()
