"""The broker dies, forgets and hangs: a hint is only a hint."""

from __future__ import annotations

import contextlib
import threading
import time

import redis

from app.adapters import dispatch
from tests.faults.world import World


def _client(world: World) -> redis.Redis:
    return redis.Redis.from_url(world.valkey.url)


def test_the_broker_is_killed_and_comes_back(world: World) -> None:
    world.hand_in(4, rows=8_000)
    world.wait_for_status("processing")
    world.valkey.kill()
    time.sleep(1)  # long enough for every worker to notice
    world.valkey.start()
    world.settle()
    world.check()


def test_the_broker_is_restarted_three_times_under_work(world: World) -> None:
    for round_number in range(3):
        world.hand_in(2, rows=4_000, first_seed=10 * round_number)
        world.valkey.stop()
        world.valkey.start()
    world.settle()
    world.check()


def test_the_broker_forgets_everything(world: World) -> None:
    world.hand_in(4, rows=4_000)
    world.wait_for_status("processing")
    _client(world).flushall()
    world.settle()
    world.check()


def test_hints_published_after_the_broker_forgot_its_bindings_arrive(world: World) -> None:
    client = _client(world)
    for key in client.keys("_kombu.binding.*"):
        client.delete(key)
    world.hand_in(4, rows=2_000)
    world.settle()
    world.check()


def test_every_connection_of_the_broker_is_killed_again_and_again(world: World) -> None:
    stop = threading.Event()

    def kill_connections() -> None:
        client = _client(world)
        while not stop.wait(0.3):
            for connection in client.client_list():
                if connection["cmd"] != "client|list":
                    with contextlib.suppress(redis.exceptions.ResponseError):  # gone by itself
                        client.client_kill_filter(_id=connection["id"])

    killer = threading.Thread(target=kill_connections)
    killer.start()
    try:
        world.hand_in(4, rows=8_000)
        world.settle()
    finally:
        stop.set()
        killer.join()
    world.check()


def test_a_hint_is_delivered_twice_and_late(world: World) -> None:
    send = world.services.dispatch.send
    world.hand_in(3, rows=2_000)
    for _ in range(20):
        send("uploads.parse")
        send("uploads.promote")
    world.settle()
    for _ in range(5):
        send("uploads.parse")
        send("uploads.promote")
    # An idle worker takes a hint at once: none is left, and what they led to is there.
    world.wait_for(
        lambda: not any(_client(world).llen(queue) for queue in ("parse", "promote")),
        "the late hints were not taken",
    )
    time.sleep(1)  # the last one taken is worked off
    world.check()


def test_uploads_are_taken_in_while_the_broker_is_down(world: World) -> None:
    world.valkey.kill()
    began = time.monotonic()
    world.hand_in(2, rows=2_000)
    assert time.monotonic() - began < 20
    world.valkey.start()
    world.settle()
    world.check()


def test_a_hint_that_is_lost_is_sent_again(world: World) -> None:
    class Lost:
        def send(self, task: str, *, within: float = 0.0) -> None:
            """It never arrives."""

    kept = world.services
    object.__setattr__(world, "services", _with_dispatch(kept, Lost()))
    try:
        world.hand_in(2, rows=2_000)
    finally:
        object.__setattr__(world, "services", kept)
    world.settle()
    world.check()


def test_a_hint_that_dies_with_the_worker_that_took_it_is_sent_again(world: World) -> None:
    # A frozen consumer: the broker hands it the message, and nobody has noted that it did.
    readers = [worker for worker in world.workers if worker.name.startswith("parse")]
    for worker in readers:
        worker.kill("SIGSTOP")
    world.hand_in(2, rows=2_000)
    for worker in readers:
        worker.kill("SIGKILL")
    _client(world).delete("parse", "unacked", "unacked_index")  # nor is any other hint left
    for worker in readers:
        worker.restart()
    world.settle()
    world.check()


def _with_dispatch(services: object, sender: dispatch.Dispatch) -> object:
    from dataclasses import replace

    return replace(services, dispatch=sender)  # type: ignore[type-var]
