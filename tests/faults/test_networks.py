"""Networks between the workers and their servers: connections are cut, refused, or go silent."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults.nodes import WorkerContainer
from tests.faults.proxy import Proxy, cutting
from tests.faults.world import World

SILENT_SECONDS = 15.0
SEEDS = (1, 2, 3)


@dataclass
class Network:
    """Two proxies, and the workers that reach both servers through them alone."""

    database: Proxy
    broker: Proxy
    workers: list[WorkerContainer]

    def mend(self) -> None:
        """New connections pass, and there are no others."""
        for proxy in (self.database, self.broker):
            proxy.heal()
            proxy.drop()


@pytest.fixture(scope="module")
def network_of_module(mended: World) -> Iterator[Network]:
    with Proxy.before(mended.postgres.dsn) as database, Proxy.before(mended.valkey.url) as broker:
        env = {
            "HEADWORKS_DATABASE_URL": database.of(mended.postgres.dsn),
            "HEADWORKS_BROKER_URL": broker.of(mended.valkey.url),
        }
        first = len(mended.workers)
        try:
            for queue in ("parse", "promote"):
                mended.start_worker(f"remote-{queue}", queue, **env)
            yield Network(database, broker, mended.workers[first:])
        finally:
            for worker in mended.workers[first:]:
                worker.teardown()
            del mended.workers[first:]


@pytest.fixture
def network(network_of_module: Network, world: World) -> Iterator[Network]:
    """The network works, and some workers of the fleet are beyond it."""
    yield network_of_module
    network_of_module.mend()


@pytest.fixture
def only_remote(network: Network, world: World) -> Iterator[Network]:
    """Every worker that runs is beyond the network."""
    near = [worker for worker in world.workers if worker not in network.workers]
    for worker in near:
        worker.teardown()  # started again by whoever needs the world next
    yield network


def wait(seconds: float) -> None:
    """Time passes: a silence of a certain length is what these tests are about."""
    threading.Event().wait(seconds)


def silence(proxy: Proxy, *, then: str, seconds: float = SILENT_SECONDS) -> None:
    """Nothing passes for so long; the connections of before are then `resumed` or `forgotten`."""
    proxy.blackhole()
    wait(seconds)
    proxy.resume() if then == "resumed" else proxy.heal()


def owned_by(world: World, network: Network, *statuses: str) -> Any:
    """Waits until a worker beyond the network has an upload in one of these states."""
    names = ", ".join(f"'{status}'" for status in statuses)

    def remote_owner() -> Any:
        for upload_id, owner in world.sql(
            f"SELECT id, owner_id FROM data_uploads WHERE status IN ({names}) AND owner_id IS NOT NULL"
        ):
            if world.worker_of(owner) in network.workers:
                return upload_id
        return None

    return world.wait_for(remote_owner, f"no remote worker has an upload that is {names}")


# -- connections are cut


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("which", ["database", "broker", "both"])
def test_connections_are_cut_at_random(world: World, network: Network, which: str, seed: int) -> None:
    proxies = {"database": [network.database], "broker": [network.broker]}.get(
        which, [network.database, network.broker]
    )
    world.hand_in(4, rows=4_000, first_seed=10 * seed)
    owned_by(world, network, "processing", "promoting")
    with cutting(proxies[0], seed=seed), cutting(proxies[-1], seed=seed + 100):
        world.settle()
    assert all(proxy.dropped for proxy in proxies)
    world.check()


@pytest.mark.parametrize("status", ["processing", "promoting"])
@pytest.mark.parametrize("seconds", [2.0, SILENT_SECONDS])
def test_the_database_refuses_connections_for_a_while(
    world: World, network: Network, status: str, seconds: float
) -> None:
    world.hand_in(3, rows=8_000)
    owned_by(world, network, status)
    network.database.refuse()
    network.database.drop()
    wait(seconds)
    network.database.heal()
    world.settle()
    world.check()


def test_the_broker_refuses_connections_for_a_while(world: World, network: Network) -> None:
    world.hand_in(4, rows=8_000)
    owned_by(world, network, "processing")
    network.broker.refuse()
    network.broker.drop()
    wait(SILENT_SECONDS)
    network.broker.heal()
    world.settle()
    world.check()


# -- connections go silent while other workers are well


@pytest.mark.parametrize("then", ["resumed", "forgotten"])
@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_the_database_goes_silent_for_some_workers(
    world: World, network: Network, status: str, then: str
) -> None:
    world.hand_in(4, rows=8_000)
    owned_by(world, network, status)
    silence(network.database, then=then)
    world.settle()
    world.check()


@pytest.mark.parametrize("then", ["resumed", "forgotten"])
def test_the_broker_goes_silent_for_some_workers(world: World, network: Network, then: str) -> None:
    world.hand_in(4, rows=8_000)
    owned_by(world, network, "processing")
    silence(network.broker, then=then)
    world.settle()
    world.check()


# -- connections go silent for the whole fleet


@pytest.mark.parametrize("then", ["resumed", "forgotten"])
def test_the_broker_goes_silent_for_the_whole_fleet(world: World, only_remote: Network, then: str) -> None:
    world.hand_in(4, rows=8_000)
    owned_by(world, only_remote, "processing")
    silence(only_remote.broker, then=then)
    world.hand_in(2, rows=500, first_seed=50)
    world.settle()
    world.check()


@pytest.mark.parametrize("status", ["processing", "promoting"])
@pytest.mark.parametrize("then", ["resumed", "forgotten"])
def test_the_database_goes_silent_for_the_whole_fleet(
    world: World, only_remote: Network, status: str, then: str
) -> None:
    world.hand_in(4, rows=8_000)
    owned_by(world, only_remote, status)
    silence(only_remote.database, then=then)
    world.settle()
    world.check()


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_every_kind_of_trouble_follows_the_other(world: World, only_remote: Network, seed: int) -> None:
    source = random.Random(seed)
    world.hand_in(6, rows=4_000, workspaces=2)
    for _ in range(12):
        proxy = source.choice([only_remote.database, only_remote.broker])
        source.choice([proxy.drop, proxy.refuse, proxy.blackhole])()
        wait(source.uniform(0.1, 1.5))
        proxy.resume()
    world.settle()
    world.check()
