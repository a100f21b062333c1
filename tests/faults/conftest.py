"""The world of the fault tests: servers of its own, two parse and two promote workers.

It is built once; before each test everything that an earlier one broke is mended, and the tables are
empty. pytest-celery sees its workers and broker as the nodes of its clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import celery
import pytest
from pytest_celery import (
    CeleryBrokerCluster,
    CeleryTestBroker,
    CeleryTestSetup,
    CeleryTestWorker,
    CeleryWorkerCluster,
)

from app.adapters import dispatch, embedded, migrations
from tests.faults.nodes import BrokerContainer
from tests.faults.world import World, environment


@pytest.fixture(scope="session")
def mended(server_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Servers and workers that may be broken and are mended."""
    folder = tmp_path_factory.mktemp("world")
    with (
        embedded.Postgres(server_folder / "world-postgres", durable=False) as postgres,
        embedded.Valkey(server_folder / "world-valkey") as valkey,
    ):
        migrations.migrate(postgres.dsn)
        world = World(postgres, valkey, folder, environment(postgres, valkey, folder))
        for number in (1, 2):
            world.start_worker(f"parse{number}", "parse")
            world.start_worker(f"promote{number}", "promote")
        yield world
        world.close()


@pytest.fixture
def celery_broker_cluster(mended: World) -> CeleryBrokerCluster:
    """The embedded Valkey as pytest-celery's broker."""
    return CeleryBrokerCluster(CeleryTestBroker(BrokerContainer(mended.valkey)))


@pytest.fixture
def celery_backend_cluster() -> None:
    """There is no result backend: state lives in PostgreSQL."""


@pytest.fixture
def celery_worker_cluster(mended: World, celery_setup_app: celery.Celery) -> CeleryWorkerCluster:
    """The four workers as pytest-celery's nodes."""
    return CeleryWorkerCluster(*(CeleryTestWorker(worker, celery_setup_app) for worker in mended.workers))


@pytest.fixture
def celery_setup_app(mended: World) -> celery.Celery:
    """The application that sends the hints."""
    return dispatch.celery_app(mended.valkey.url)


@pytest.fixture
def celery_setup_cls() -> type[CeleryTestSetup]:
    """A setup that leaves its nodes running: the next test goes on with them."""

    class Lasting(CeleryTestSetup):
        def teardown(self) -> None:
            """Nothing ends here."""

    return Lasting


@pytest.fixture
def world(mended: World, request: pytest.FixtureRequest) -> World:
    """Everything runs, and nothing was ever handed in."""
    mended.begin_anew()
    setup: Any = request.getfixturevalue("celery_setup")
    assert len(setup.worker_cluster) == len(mended.workers)
    return mended
