"""Networks between the fleet and its servers break, also without a word; the uploads do not notice."""

from __future__ import annotations

import json
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest
import redis
import structlog

import celeryconfig
from app import web
from app.adapters import embedded
from app.adapters.settings import Settings
from tests.acceptance.conftest import multipart
from tests.conftest import BEARER, KEY, SECRET
from tests.faults.nodes import WorkerContainer
from tests.faults.proxy import Proxy
from tests.faults.world import SEEDS, World, report

SILENT_SECONDS = 3.0
"""Longer than a lease: what was held is taken from its owner."""

LONG_SECONDS = 16.0
"""Longer than a worker tries again in its own process, for the work and then for its failure: 2 x 7 s."""


@contextmanager
def silence(*networks: Proxy, forget: bool, new: bool = True) -> Iterator[None]:
    """Nothing arrives while the block runs; afterwards what was silent goes on, or is forgotten."""
    before = [network.swallowed for network in networks]
    for network in networks:
        network.silence(new=new)
    yield
    for network in networks:
        network.heal(forget=forget)
    assert all(now.swallowed > then for now, then in zip(networks, before, strict=True)), "nobody spoke"


# -- the network to the database


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_connections_to_the_database_are_cut_anywhere_in_their_bytes(
    world: World, status: str, seed: int
) -> None:
    source = random.Random(f"{status} {seed}")
    before = world.to_database.cuts
    world.begin_work(status)
    for _ in range(3):
        world.to_database.cut(within=source)
        time.sleep(0.5)
    world.settle()
    assert world.to_database.cuts - before >= 2
    world.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_answers_to_commits_are_lost(world: World, seed: int) -> None:
    source = random.Random(seed)
    before = world.to_database.lost
    # Far enough apart, so that no piece of work is met at each of its four tries.
    numbers = {10 * number + source.randint(0, 5) for number in range(8)}
    world.to_database.lose_answers(b"COMMIT", numbers)
    world.begin_work("processing")
    world.settle()
    assert world.to_database.lost - before == len(numbers)
    world.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_to_the_database_waits_for_its_answer_for_ever(world: World, seed: int) -> None:
    source = random.Random(seed)
    before = world.to_database.lost
    kinds = [b"BEGIN", b"set_config", b"COPY ", b"FETCH", b"CLOSE", b"COMMIT", b"INSERT INTO", b"UPDATE "]
    for words in kinds:
        world.to_database.lose_answers(words, [source.randint(0, 3)], silently=True)
    world.begin_work("processing")
    world.settle()
    assert world.to_database.lost - before == len(kinds)
    world.check()


@pytest.mark.parametrize("seconds", [1.0, LONG_SECONDS])
def test_the_database_cannot_be_reached_for_a_while(world: World, seconds: float) -> None:
    world.begin_work("processing", "promoting")
    world.to_database.refuse()
    world.to_database.cut()
    time.sleep(seconds)
    world.to_database.heal()
    world.settle()
    world.check()


@pytest.mark.parametrize("forget", [False, True], ids=["stalled", "forgotten"])
def test_the_database_is_silent_for_every_worker_at_once(world: World, forget: bool) -> None:
    world.begin_work("processing", "promoting")
    with silence(world.to_database, forget=forget):
        time.sleep(SILENT_SECONDS)
    world.settle()
    world.check()


def test_old_connections_to_the_database_are_silent_while_uploads_are_claimed(world: World) -> None:
    with silence(world.to_database, forget=True, new=False):
        world.hand_in(6, rows=500, workspaces=3)
        time.sleep(SILENT_SECONDS)
    world.settle()
    world.check()


@contextmanager
def worker_alone(world: World, **env: str) -> Iterator[tuple[WorkerContainer, Proxy]]:
    """A worker with a way to the database of its own; the others are frozen until they are woken."""
    assert world.postgres.port is not None
    with closing(Proxy(world.postgres.port)) as its_own:
        url = its_own.leads_to(world.postgres.dsn)
        worker = world.start_worker("alone", "parse,promote", HEADWORKS_DATABASE_URL=url, **env)
        for other in world.workers[:-1]:
            other.signal_group(signal.SIGSTOP)
        try:
            yield worker, its_own
        finally:
            worker.teardown()
            world.workers.remove(worker)


@pytest.mark.parametrize("status", ["processing", "promoting"])
def test_a_worker_that_alone_was_cut_off_wakes_and_writes_nothing(world: World, status: str) -> None:
    with worker_alone(world) as (alone, network):
        world.hand_in(2, rows=3_000)
        upload_id, owner = world.wait_for_status(status)
        assert world.worker_of(owner) is alone
        with silence(network, forget=False):
            for other in world.workers[:-1]:
                other.signal_group(signal.SIGCONT)
            world.settle()  # the others take its work over
        world.wait_for(lambda: "work_abandoned" in alone.logs(), "it did not see that its upload is gone")
        world.check()
        assert world.sql(
            f"SELECT action FROM audit WHERE upload_id = '{upload_id}' AND owner_id = '{owner}' AND id >="
            f" (SELECT id FROM audit WHERE upload_id = '{upload_id}' AND action = 'lease_expired')"
        ) == [("lease_expired",)]


def test_a_copy_that_falls_silent_halfway_keeps_nobody_from_its_rows(world: World) -> None:
    with worker_alone(world, HEADWORKS_STAGING_CHUNK_ROWS="10000") as (_, network):
        network.lose_answers(b"spend", [10], silently=True)  # the 11th piece of its rows
        world.hand_in(1, rows=20_000)
        world.wait_for(lambda: network.lost, "no rows were on their way")
        for other in world.workers[:-1]:
            other.signal_group(signal.SIGCONT)
        world.settle()
        world.check()


def test_a_slow_network_costs_time_alone(world: World) -> None:
    world.to_database.delay(0.02)
    world.to_broker.delay(0.02)
    world.hand_in(2, rows=500)
    world.settle()
    world.check()


# -- the network to the broker


@pytest.fixture
def post(world: World) -> Iterator[Callable[[], float]]:
    """Hands one report in over HTTP, where the broker is behind its network; how long that took."""
    broker = {"HEADWORKS_BROKER_URL": world.remote["HEADWORKS_BROKER_URL"]}
    door = {"HEADWORKS_SECRET": SECRET, "HEADWORKS_API_KEY": KEY}
    app = web.create_app(Settings.from_env({**world.env, **broker, **door}))
    client = app.test_client()
    workspace_id = uuid.UUID(int=1)
    fields = {"workspace_id": str(workspace_id), "platform": "meta", "source": "manual"}

    def send() -> float:
        content = report(len(world.sent), rows=500)
        body, content_type = multipart(content, fields)
        began = time.monotonic()
        answer = client.post("/v1/uploads", data=body, headers={"Content-Type": content_type, **BEARER})
        seconds = time.monotonic() - began
        assert answer.status_code == 201, answer.text
        world.sent.append((uuid.UUID(json.loads(answer.data)["upload_id"]), workspace_id, content))
        return seconds

    yield send
    app.extensions["services"].db.close()
    structlog.reset_defaults()


def test_an_idle_fleet_hears_again_after_the_broker_was_silent(world: World) -> None:
    with silence(world.to_broker, forget=True):
        time.sleep(SILENT_SECONDS)
    world.begin_work("processing")
    world.settle()
    world.check()


def test_reports_are_taken_in_while_the_broker_is_silent_for_a_fleet_at_work(
    world: World, post: Callable[[], float]
) -> None:
    post()  # this connection to the broker falls silent, too
    world.begin_work("processing", "promoting")
    began = time.monotonic()
    with silence(world.to_broker, forget=True):
        assert post() < celeryconfig.broker_transport_options["socket_timeout"] + 5
        time.sleep(max(0.0, began + 15 - time.monotonic()))
    world.settle()
    world.check()


def test_connections_to_the_broker_are_cut_again_and_again(world: World) -> None:
    source = random.Random(SEEDS[0])
    deadline = time.monotonic() + 6
    world.begin_work("processing")
    while time.monotonic() < deadline:
        world.to_broker.cut(within=source if source.random() < 0.5 else None)
        time.sleep(source.uniform(0.1, 0.6))
    world.hand_in(2, rows=500, first_seed=50)
    world.settle()
    world.check()


def test_the_broker_cannot_be_reached_for_a_while(world: World) -> None:
    world.begin_work("processing", "promoting")
    world.to_broker.refuse()
    world.to_broker.cut()
    time.sleep(6)
    world.to_broker.heal()
    world.hand_in(2, rows=500, first_seed=50)
    world.settle()
    world.check()


def test_another_and_empty_broker_takes_the_place_of_the_first(world: World) -> None:
    with embedded.Valkey(world.folder / "second") as second:
        with redis.Redis.from_url(second.url) as client:
            client.config_set("requirepass", urlsplit(world.valkey.url).password)
        assert second.port is not None
        world.begin_work("processing")
        world.to_broker.switch(second.port)
        world.to_broker.cut()
        world.hand_in(2, rows=500, first_seed=50)  # the hints go to the first one, which nobody hears
        world.settle()
        world.check()
        world.to_broker.renew()


# -- both


def test_both_networks_are_silent_at_once(world: World) -> None:
    world.begin_work("processing", "promoting")
    with silence(world.to_database, world.to_broker, forget=True):
        world.hand_in(3, rows=500, workspace=3)
        time.sleep(SILENT_SECONDS)
    world.settle()
    world.check()
