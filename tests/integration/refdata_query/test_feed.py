"""What was written is soon in every pod, whatever is lost, made up or broken on its way."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from app.adapters import embedded
from app.adapters.embedded import machine
from tests import patience
from tests.conftest import Servers
from tests.faults.proxy import Proxy
from tests.integration.refdata_query.conftest import Pods
from tests.integration.refdata_query.serving import PROFILES, Serving, World, new_tenant, open_world, place
from tests.integration.threads import wait_until

VISIBLE_SECONDS = 1.0
CAUGHT_UP_SECONDS = 2.0
AWAY_SECONDS = 5.0
CONNECTIONS = 6
"""So many in a row have to show it: of two readers each has been asked, most likely."""


@pytest.fixture(scope="module")
def quiet(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A platform that only these tests write to, so that whatever is announced is theirs."""
    with open_world(servers, tmp_path_factory.mktemp("quiet")) as found:
        yield found


@pytest.fixture(scope="module")
def pair(quiet: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Serving]]:
    """Two pods with folders of their own: one of each profile, the second with two readers."""
    folder = tmp_path_factory.mktemp("pair")
    with ExitStack() as running:
        yield [
            running.enter_context(Serving(quiet, folder / "first", profile="safe")),
            running.enter_context(Serving(quiet, folder / "second", profile="fast", readers=2)),
        ]


def see(
    pods: list[Serving], tenant: str, version: int, *, code: str = "NOTES", seconds: float = VISIBLE_SECONDS
) -> None:
    """Every pod shows the version within so many seconds from now."""
    deadline = time.monotonic() + seconds
    for pod in pods:
        left = max(0.05, deadline - time.monotonic())
        pod.await_version(tenant, version, code=code, seconds=left, times=CONNECTIONS)


def is_ready(pod: Serving) -> bool:
    answer = pod.get("/actuator/health/readiness")
    assert answer.status == 200, answer.body
    return True


# -- from a commit to every pod


@pytest.mark.parametrize("code", ["NOTES", "CURRENCY"])  # which load all, and what has changed
def test_a_change_is_visible_in_every_pod_within_a_second(
    code: str, quiet: World, pair: list[Serving], tenant: str
) -> None:
    for n in range(1, 21):
        version = quiet.write(
            tenant, {"AAA": {"name": f"{n}", "digits": n}, f"B{n:02}": {"digits": 0}}, code=code
        )
        see(pair, tenant, version, code=code)
        for pod in pair:
            assert pod.get(place(tenant, "items/AAA", code=code)).json["digits"] == n
            assert len(pod.get(place(tenant, "all", code=code)).json["items"]) == n + 1


def test_the_last_of_many_changes_is_visible_within_a_second(
    quiet: World, pair: list[Serving], tenant: str
) -> None:
    for n in range(300):
        quiet.write(tenant, {f"k{n % 50}": {"n": n}})
    see(pair, tenant, 300)
    for pod in pair:
        found = pod.get(place(tenant, "all")).json["items"]
        assert found == {f"k{n % 50}": {"n": n} for n in range(250, 300)}


def test_many_tenants_are_visible_as_soon(quiet: World, pair: list[Serving]) -> None:
    tenants = [new_tenant() for _ in range(20)]
    for name in tenants:
        quiet.write(name, {"a": {"of": name}})
    begun = time.monotonic()
    for name in tenants:
        see(pair, name, 1, seconds=3)
        assert all(pod.get(place(name, "items/a")).json == {"of": name} for pod in pair)
    assert time.monotonic() - begun < 3 * patience.PATIENCE


def test_a_pod_that_is_ready_stays_so_while_tenants_come(quiet: World, pair: list[Serving]) -> None:
    """Else the first write of a tenant takes every pod out of service at once."""
    tenants = [new_tenant() for _ in range(15)]
    for name in tenants:
        quiet.write(name, {f"k{n}": {"n": n} for n in range(500)})
        ended = time.monotonic() + 0.2
        while time.monotonic() < ended:
            assert all(is_ready(pod) for pod in pair)
    for name in tenants:
        see(pair, name, 1)


WAYS: dict[str, tuple[Callable[[World, bytes], None], ...]] = {
    "the channel alone": (World.publish,),
    "the stream alone": (World.add,),
    "both, the stream first": (World.add, World.publish),
    "both, twice": (World.publish, World.add, World.add, World.publish),
}


@pytest.mark.parametrize("way", WAYS)
def test_one_way_is_enough(way: str, quiet: World, pair: list[Serving], tenant: str) -> None:
    for n in range(1, 4):
        version, payload = quiet.untold(tenant, {"a": {"n": n}})
        for send in WAYS[way]:
            send(quiet, payload)
        see(pair, tenant, version)
        assert all(pod.get(place(tenant, "items/a")).json == {"n": n} for pod in pair)


def test_announcements_in_any_order_take_nothing_back(quiet: World, pair: list[Serving], tenant: str) -> None:
    told = [quiet.untold(tenant, {"a": {"n": n}})[1] for n in range(1, 9)]
    for payload in (told[7], told[2], told[0], told[5], told[7], told[0]):
        quiet.publish(payload)
        quiet.add(payload)
    see(pair, tenant, 8)
    for payload in told[:3]:
        quiet.publish(payload)
        quiet.add(payload)
    version, payload = quiet.untold(tenant, {"b": {}})
    quiet.publish(payload)
    see(pair, tenant, version)
    assert all(pod.get(place(tenant, "items/a")).json == {"n": 8} for pod in pair)


def test_only_the_last_of_what_was_announced_is_enough(
    quiet: World, pair: list[Serving], tenant: str
) -> None:
    """Of a dictionary that is loaded by keys, too: what lies between was missed."""
    for code in ("NOTES", "CURRENCY"):
        quiet.write(tenant, {"AAA": {"name": "a", "digits": 1}}, code=code)
        see(pair, tenant, 1, code=code)
        for n in range(2, 6):
            quiet.commit(tenant, {f"K0{n}": {"name": "k", "digits": n}}, code=code)
        quiet.platform.sql("UPDATE refdata.outbox_event SET published = true", second=code == "CURRENCY")
        quiet.write(tenant, {"ZZZ": {"name": "z", "digits": 0}}, code=code)
        see(pair, tenant, 6, code=code)
        for pod in pair:
            found = pod.get(place(tenant, "all", code=code)).json["items"]
            assert sorted(found) == ["AAA", "K02", "K03", "K04", "K05", "ZZZ"]


# -- messages that are none


def message(tenant: str, **members: Any) -> dict[str, Any]:
    """An announcement, with these instead."""
    return {
        "eventId": str(uuid.uuid4()), "tenantId": tenant, "dictCode": "NOTES", "version": 2,
        "committedAt": "2026-02-27T12:00:01Z", "items": 1, **members,
    }  # fmt: skip


GARBAGE: dict[str, bytes | dict[str, Any]] = {
    # bytes, or what is other about an announcement (with the right epoch, where none is given)
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'\xff\xfe{"version": 5}',
    "a text": b'"version"',
    "a number": b"5",
    "null": b"null",
    "a list": b"[1, 2, 3]",
    "an empty object": b"{}",
    "NaN": b'{"version": NaN}',
    "very deep": b"[" * 200_000 + b"]" * 200_000,
    "8 MiB": b'{"tenantId": "' + b"x" * (8 << 20) + b'"}',
    "a number without end": b'{"version": ' + b"9" * 100_000 + b"}",
    "no tenant": {"tenantId": None},
    "a tenant of a number": {"tenantId": 5},
    "a tenant of a list": {"tenantId": ["a"]},
    "a tenant that is a path": {"tenantId": "../../../../tmp/evil"},
    "a tenant with a NUL": {"tenantId": "a\x00b"},
    "a tenant without end": {"tenantId": "t" * 100_000},
    "no dictionary": {"dictCode": None},
    "a dictionary of a number": {"dictCode": 7},
    "another dictionary": {"dictCode": "NEVER", "version": 9},
    "one that is not enabled": {"dictCode": "OLD", "version": 9},
    "a dictionary that is a path": {"dictCode": "../NOTES"},
    "no version": {"version": None},
    "a version of text": {"version": "2"},
    "a version of a fraction": {"version": 2.5},
    "a version of true": {"version": True},
    "a version below 0": {"version": -1},
    "version 0": {"version": 0},
    "version 1": {"version": 1},
    "version 7": {"version": 7},
    "version 1,000,000": {"version": 1_000_000},
    "version 2^63 - 1": {"version": 2**63 - 1},
    "version 2^63": {"version": 2**63},
    "version 2^80": {"version": 2**80},
    "version 1e300": {"version": 1e300},
    "another epoch": {"epoch": str(uuid.uuid4()), "version": 9},
    "another epoch and an old version": {"epoch": str(uuid.uuid4()), "version": 1},
    "an epoch that is none": {"epoch": "yesterday", "version": 9},
    "an epoch of a number": {"epoch": 1, "version": 9},
    "no epoch": {"epoch": None, "version": 9},
    "keys of a number": {"keys": 5},
    "keys of numbers": {"keys": [1, 2]},
    "keys that are not there": {"keys": ["none"], "version": 2},
    "keys without end": {"keys": [f"k{n}" for n in range(50_000)]},
    "no keys changed": {"keys": [], "version": 2},
    "items of text": {"items": "many"},
    "a time that is none": {"committedAt": "soon"},
    "more members": {"more": {"a": [1]}},
}


@pytest.mark.parametrize(("way", "code"), [("channel", "NOTES"), ("stream", "CURRENCY")])
@pytest.mark.parametrize("case", GARBAGE)
def test_what_is_no_announcement_changes_and_stops_nothing(
    code: str, case: str, way: str, quiet: World, pair: list[Serving], tenant: str
) -> None:
    made = GARBAGE[case]
    quiet.write(tenant, {"AAA": {"name": "a", "digits": 1}}, code=code)
    see(pair, tenant, 1, code=code)
    epoch = quiet.epoch(second=code == "CURRENCY")
    if isinstance(made, dict):
        whole = message(tenant, dictCode=code, epoch=epoch) | made
        made = json.dumps({name: value for name, value in whole.items() if value is not None}).encode()
    send = quiet.publish if way == "channel" else quiet.add
    send(made)
    for _ in range(3):
        for pod in pair:
            answer = pod.get(place(tenant, "items/AAA", code=code))
            assert (answer.version, answer["X-Dict-Epoch"]) == (1, epoch)
            assert answer.json == {"name": "a", "digits": 1}
    # What comes after it is heard as ever.
    if code == "NOTES":
        version, payload = quiet.untold(tenant, {"AAA": {"digits": 2}})
        send(payload)
    else:
        version = quiet.write(tenant, {"AAA": {"name": "a", "digits": 2}}, code=code)
    see(pair, tenant, version, code=code)
    for pod in pair:
        answer = pod.get(place(tenant, "items/AAA", code=code))
        assert (answer.version, answer.json["digits"], answer["X-Dict-Epoch"]) == (2, 2, epoch)


def test_entries_of_the_stream_that_say_nothing_stop_nothing(
    quiet: World, pair: list[Serving], tenant: str
) -> None:
    quiet.add(b"{}", field=b"other")
    quiet.add(b"", field=b"")
    for n in range(200):
        quiet.add(b"garbage %d" % n)
    version, payload = quiet.untold(tenant, {"a": {}})
    quiet.add(payload)
    see(pair, tenant, version)


def test_made_up_announcements_do_not_keep_a_pod_busy(quiet: World, pair: list[Serving], tenant: str) -> None:
    """A version that is never committed is looked for, and not for ever."""
    quiet.write(tenant, {"a": {}})
    see(pair, tenant, 1)
    for n in range(50):
        quiet.publish(json.dumps(message(tenant, epoch=quiet.epoch(), version=10**9 + n)).encode())
        quiet.publish(json.dumps(message(f"made-up-{n}", epoch=str(uuid.uuid4()), version=5)).encode())
    for pod in pair:  # whatever is done about them has begun, and should end
        pod.turn()
    wait_until(lambda: all(pod.get(place(tenant)).status == 200 for pod in pair))
    time.sleep(2)
    before = sum(cpu_seconds(pod) for pod in pair)
    time.sleep(2)
    assert sum(cpu_seconds(pod) for pod in pair) - before < 1.0
    assert all(pod.get(place(tenant)).version == 1 for pod in pair)


def cpu_seconds(pod: Serving) -> float:
    """What its processes have computed so far."""
    ticks = 0
    for pid in pod.pids():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


# -- groups of the stream


def test_each_pod_reads_the_stream_for_itself_and_leaves_nothing(
    quiet: World, pods: Pods, tenant: str
) -> None:
    stream = quiet.platform.services.config.refdata.redis.stream_key
    quiet.write(tenant, {"a": {}})
    with redis.Redis.from_url(quiet.platform.environ["REFDATA_REDIS"]) as client:

        def groups() -> dict[str, int]:
            found = client.xinfo_groups(stream)
            return {one["name"].decode(): one["pending"] for one in found}

        before = set(groups())
        made = [pods(quiet) for _ in range(2)]
        own = set(groups()) - before
        assert len(own) == 2
        assert all(name.startswith("refdata-query-pods:") for name in own)
        for n in range(30):
            quiet.write(tenant, {"a": {"n": n}})
        see(made, tenant, 31)
        wait_until(lambda: all(groups()[name] == 0 for name in own))
        for pod in made:
            pod.stop()
        assert set(groups()) == before


# -- servers that are away


@dataclass
class Faulty:
    """A platform on servers of its own, and pods that reach them through networks that break."""

    world: World
    pods: list[Serving]
    redis: Proxy
    postgres: Proxy
    valkey: embedded.Valkey
    server: embedded.Postgres


@pytest.fixture(scope="module")
def faulty_world(
    server_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, embedded.Postgres, embedded.Valkey]]:
    folder = tmp_path_factory.mktemp("faulty")
    with (
        embedded.Postgres(server_folder / "faulty-postgres", durable=False) as postgres,
        embedded.Valkey(server_folder / "faulty-valkey") as valkey,
        open_world(Servers(postgres, valkey), folder) as world,
    ):
        yield world, postgres, valkey


@pytest.fixture(scope="module")
def faulty_pods(
    faulty_world: tuple[World, embedded.Postgres, embedded.Valkey], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Faulty]:
    world, postgres, valkey = faulty_world
    with ExitStack() as running:
        proxies = [Proxy(server.port or 0) for server in (valkey, postgres)]
        for proxy in proxies:
            running.callback(proxy.close)
        environ = world.platform.environ
        ways = {"REFDATA_REDIS": proxies[0].leads_to(environ["REFDATA_REDIS"])}
        ways |= {name: proxies[1].leads_to(environ[name]) for name in ("REFDATA_FIRST", "REFDATA_SECOND")}
        folder = tmp_path_factory.mktemp("pods")
        pods = [
            running.enter_context(Serving(world, folder / profile, profile=profile, environ=ways))
            for profile in PROFILES
        ]
        yield Faulty(world, pods, *proxies, valkey, postgres)


@pytest.fixture
def faulty(faulty_pods: Faulty) -> Iterator[Faulty]:
    yield faulty_pods
    for proxy in (faulty_pods.redis, faulty_pods.postgres):
        proxy.renew()
    tenant = new_tenant()  # the next test begins when all is well again
    faulty_pods.world.write(tenant, {"a": {}})
    for pod in faulty_pods.pods:
        pod.await_version(tenant, 1, seconds=30)


def cut(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.cut()


BREAKS: dict[str, tuple[Callable[[Proxy], Any], Callable[[Proxy], Any]]] = {
    # how a network breaks                    and is whole again
    "refused": (cut, Proxy.heal),
    "silent, and late": (Proxy.silence, Proxy.heal),
    "silent, and forgotten": (Proxy.silence, lambda proxy: proxy.heal(forget=True)),
}


@pytest.mark.parametrize("is_trimmed", [False, True], ids=["kept", "trimmed"])
@pytest.mark.parametrize("way", BREAKS)
def test_what_was_missed_without_redis_is_caught_up(
    way: str, is_trimmed: bool, faulty: Faulty, tenant: str
) -> None:
    breaks, heals = BREAKS[way]
    world, later = faulty.world, new_tenant()
    world.write(tenant, {"a": {"n": 0}})
    see(faulty.pods, tenant, 1)
    breaks(faulty.redis)
    ended = time.monotonic() + AWAY_SECONDS
    n = 1
    while time.monotonic() < ended:
        n += 1
        assert world.write(tenant, {"a": {"n": n}}) == n
        for pod in faulty.pods:
            answer = pod.get(place(tenant, "items/a"), X_Min_Version="1")
            assert answer.status == 200 and answer.version >= 1
            assert is_ready(pod)
    world.write(later, {"a": {}})
    if is_trimmed:
        world.trim()
    heals(faulty.redis)
    see(faulty.pods, tenant, n, seconds=CAUGHT_UP_SECONDS)
    assert all(pod.get(place(tenant, "items/a")).json == {"n": n} for pod in faulty.pods)
    see(faulty.pods, later, 1, seconds=CAUGHT_UP_SECONDS)
    version = world.write(tenant, {"b": {}})
    see(faulty.pods, tenant, version, seconds=CAUGHT_UP_SECONDS)


def test_redis_may_be_restarted_and_empty(faulty: Faulty, tenant: str) -> None:
    world = faulty.world
    world.write(tenant, {"a": {"n": 0}})
    see(faulty.pods, tenant, 1)
    faulty.valkey.stop()
    version = world.commit(tenant, {"a": {"n": 1}})
    assert world.announce() == 0  # nobody is there to be told
    for pod in faulty.pods:
        assert pod.get(place(tenant, "items/a"), X_Min_Version=version).json == {"n": 1}
    faulty.valkey.start()
    with redis.Redis.from_url(world.platform.environ["REFDATA_REDIS"]) as client:
        client.flushall()  # it has forgotten groups and stream, too
    version = world.commit(tenant, {"a": {"n": 2}})
    wait_until(lambda: world.announce() > 0)
    see(faulty.pods, tenant, version, seconds=CAUGHT_UP_SECONDS)
    for n in range(3):
        see(faulty.pods, tenant, world.write(tenant, {"a": {"n": n}}), seconds=CAUGHT_UP_SECONDS)


@pytest.mark.parametrize("way", BREAKS)
def test_what_was_missed_without_postgresql_is_caught_up(way: str, faulty: Faulty, tenant: str) -> None:
    breaks, heals = BREAKS[way]
    world = faulty.world
    world.write(tenant, {"a": {"n": 0}})
    see(faulty.pods, tenant, 1)
    breaks(faulty.postgres)
    for n in range(1, 6):
        world.write(tenant, {"a": {"n": n}})
    ended = time.monotonic() + AWAY_SECONDS
    while time.monotonic() < ended:
        for pod in faulty.pods:
            answer = pod.get(place(tenant, "items/a"))
            assert (answer.version, answer.json) == (1, {"n": 0})
            assert is_ready(pod)
    heals(faulty.postgres)
    see(faulty.pods, tenant, 6, seconds=CAUGHT_UP_SECONDS)
    assert all(pod.get(place(tenant, "items/a")).json == {"n": 5} for pod in faulty.pods)


def test_postgresql_may_be_restarted(faulty: Faulty, tenant: str) -> None:
    world = faulty.world
    world.write(tenant, {"a": {"n": 0}})
    see(faulty.pods, tenant, 1)
    faulty.server.stop()
    for pod in faulty.pods:
        assert pod.get(place(tenant, "items/a")).json == {"n": 0}
        assert pod.get(place(tenant, "items/a"), X_Min_Version="2").refusal == (503, "PRIMARY_UNAVAILABLE")
    faulty.server.start()
    wait_until(lambda: world.platform.sql("SELECT 1") == [(1,)])
    version = world.commit(tenant, {"a": {"n": 1}})
    wait_until(lambda: world.announce() > 0)
    see(faulty.pods, tenant, version, seconds=CAUGHT_UP_SECONDS)


def test_both_may_be_away_at_once(faulty: Faulty, tenant: str) -> None:
    world = faulty.world
    world.write(tenant, {"a": {"n": 0}})
    see(faulty.pods, tenant, 1)
    for proxy in (faulty.redis, faulty.postgres):
        cut(proxy)
    version = world.write(tenant, {"a": {"n": 1}})
    for pod in faulty.pods:
        assert pod.get(place(tenant, "items/a")).json == {"n": 0}
        assert pod.get(place(tenant, "items/a"), X_Min_Version=version).refusal == (
            503,
            "PRIMARY_UNAVAILABLE",
        )
    for proxy in (faulty.postgres, faulty.redis):
        proxy.heal()
    see(faulty.pods, tenant, version, seconds=CAUGHT_UP_SECONDS)


# -- starts


@dataclass
class Starts:
    """Pods that begin while servers are away."""

    world: World
    pods: Pods
    database: Proxy
    environ: dict[str, str]
    profile: str
    folder: Path
    port: int

    def begin(self) -> Serving:
        """The pod, always with the same folder and port, whether it gets ready or not."""
        found = Serving(
            self.world, self.folder, profile=self.profile, port=self.port, environ=self.environ
        )  # fmt: skip
        return found.begin()

    def images(self) -> list[Path]:
        """The files that it has left."""
        return sorted(path for path in (self.folder / "refdata-query").rglob("*") if path.is_file())


@pytest.fixture(params=PROFILES)
def starts(request: pytest.FixtureRequest, servers: Servers, pods: Pods, tmp_path: Path) -> Iterator[Starts]:
    with ExitStack() as running:
        world = running.enter_context(open_world(servers, tmp_path))
        database = Proxy(servers.postgres.port or 0)
        running.callback(database.close)
        environ = {
            name: database.leads_to(world.platform.environ[name])
            for name in ("REFDATA_FIRST", "REFDATA_SECOND")
        }
        yield Starts(world, pods, database, environ, request.param, tmp_path / "data", machine.free_port())


def test_without_a_database_and_without_files_it_waits(starts: Starts, tenant: str) -> None:
    starts.world.write(tenant, {"a": {"n": 1}})
    cut(starts.database)
    pod = starts.begin()
    try:
        pod.await_health("liveness", 200)
        health = pod.get("/actuator/health/readiness", Authorization=None)
        assert (health.status, json.loads(health.body)["status"]) == (503, "OUT_OF_SERVICE")
        assert pod.get("/actuator/health", Authorization=None).status == 503
        for rest in ("items/a", "items?keys=a", "all", "version", "watch"):
            answer = pod.get(place(tenant, rest))
            assert (answer.refusal, answer["Retry-After"]) == ((503, "LOADING"), "1")
        # Who asks for what cannot be is told so all the same.
        assert pod.get(place(tenant, "items/a"), X_Min_Version="x").refusal == (400, "invalid_version")
        assert pod.get(place(tenant, "items/a", code="NEVER")).refusal == (404, "UNKNOWN_DICTIONARY")
        starts.database.heal()
        pod.await_health("readiness", 200, seconds=10)
        answer = pod.get(place(tenant, "items/a"))
        assert (answer.json, answer["X-Data-Source"]) == ({"n": 1}, "memory")
        pod.stop()
    finally:
        pod.kill()


@pytest.mark.parametrize("redis_is_there", [True, False])
def test_without_a_database_it_answers_from_its_files(
    redis_is_there: bool, starts: Starts, tenant: str
) -> None:
    tenants = [tenant, "..", ".", "-", "A", "a"]  # names that would be something to a file system
    for name in tenants:
        starts.world.write(name, {"a": {"of": name}, "b/../c": {"n": 1.50}})
    starts.world.write(tenant, {"EUR": {"name": "Euro", "digits": 2}}, code="CURRENCY")
    pod = starts.begin()
    pod.await_health("readiness", 200)
    before = {name: pod.get(f"/v1/tenants/{name}/dictionaries/NOTES/all") for name in tenants}
    pod.stop()
    assert starts.images() != []
    outside = {path for path in starts.folder.rglob("*") if path.is_file()} - set(starts.images())
    cut(starts.database)
    if not redis_is_there:
        starts.environ["REFDATA_REDIS"] = "redis://127.0.0.1:9/0"
    pod = starts.begin()
    try:
        pod.await_health("readiness", 200, seconds=15)
        for name in tenants:
            answer = pod.get(f"/v1/tenants/{name}/dictionaries/NOTES/all")
            assert (answer.status, answer["X-Data-Source"]) == (200, "snapshot")
            assert answer.body == before[name].body
            assert (answer.version, answer["ETag"]) == (before[name].version, before[name]["ETag"])
            assert answer["X-Dict-Epoch"] == starts.world.epoch()
        euro = pod.get(place(tenant, "items/EUR", code="CURRENCY"))
        assert (euro.json["digits"], euro["X-Data-Source"]) == (2, "snapshot")
        told = json.loads(pod.get(place(tenant)).body)
        assert (told["source"], told["items"]) == ("snapshot", 2)
        assert pod.get(place(tenant, "items/a"), X_Min_Version="1").json == {"of": tenant}
        assert pod.get(place(tenant, "items/a"), X_Min_Version="2").refusal == (503, "PRIMARY_UNAVAILABLE")
        starts.world.write(tenant, {"a": {"of": "later"}})
        starts.database.heal()
        pod.await_version(tenant, 2, seconds=5)
        answer = pod.get(place(tenant, "items/a"))
        assert (answer.json, answer["X-Data-Source"]) == ({"of": "later"}, "memory")
        wait_until(lambda: pod.get(place("A", "items/a"))["X-Data-Source"] == "memory")
        assert {path for path in starts.folder.rglob("*") if path.is_file()} - set(starts.images()) == outside
        pod.stop()
    finally:
        pod.kill()


def test_what_changed_while_a_pod_was_down_is_there_when_it_is_ready(starts: Starts, tenant: str) -> None:
    starts.world.write(tenant, {"a": {"n": 1}})
    pod = starts.begin()
    pod.await_health("readiness", 200)
    pod.stop()
    starts.world.write(tenant, {"a": {"n": 2}})
    starts.world.trim()
    pod = starts.begin()
    try:
        pod.await_health("readiness", 200)
        pod.await_version(tenant, 2, seconds=2)
        assert pod.get(place(tenant, "items/a"))["X-Data-Source"] == "memory"
        pod.stop()
    finally:
        pod.kill()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "zeros": lambda content: bytes(len(content)),
    "garbage": lambda content: b"garbage" * (len(content) // 7 + 1),
    "one bit in the middle": lambda content: flipped(content, len(content) // 2),
    "one bit near the end": lambda content: flipped(content, len(content) - 10),
    "longer": lambda content: content + b"more",
}


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :] if content else content


def test_a_damaged_file_is_not_believed(starts: Starts) -> None:
    """Each of these tenants has a file of its own, damaged in its own way; one is left as it was."""
    ways = {new_tenant(): damage for damage in (*DAMAGE, "none")}
    entries = {
        tenant: {f"{damage} {n}": {"n": n, "text": "x" * 50} for n in range(200)}
        for tenant, damage in ways.items()
    }
    for tenant in ways:
        starts.world.write(tenant, entries[tenant])
    pod = starts.begin()
    pod.await_health("readiness", 200)
    before = {tenant: pod.get(place(tenant, "all")).body for tenant in ways}
    pod.stop()
    contents = {path: path.read_bytes() for path in starts.images()}
    for damage, spoil in DAMAGE.items():
        [path] = [path for path, content in contents.items() if f'"{damage} 0"'.encode() in content]
        path.write_bytes(spoil(contents[path]))
    cut(starts.database)
    pod = starts.begin()
    try:
        pod.await_health("liveness", 200)
        wait_until(lambda: any(pod.get(place(tenant, "all")).status == 200 for tenant in ways), seconds=30)
        # Whatever was seen of the damage: the data as they were, or none.
        found = {tenant: pod.get(place(tenant, "all")) for tenant in ways}
        wrong = [
            ways[tenant]
            for tenant, answer in found.items()
            if answer.body != before[tenant] and (answer.status != 503 or answer.code != "LOADING")
        ]
        assert wrong == []
        assert [ways[tenant] for tenant, answer in found.items() if answer.status == 200][-1:] == ["none"]
        starts.database.heal()
        pod.await_health("readiness", 200, seconds=10)
        for tenant in ways:
            assert pod.get(place(tenant, "all")).json["items"] == entries[tenant]
        pod.stop()
    finally:
        pod.kill()


def test_the_files_of_another_history_are_not_kept(starts: Starts, tenant: str) -> None:
    """The folder is that of a pod of another database: nothing of it is seen once this one answers."""
    starts.world.write(tenant, {"a": {"n": 1}})
    for n in range(2, 8):
        starts.world.write(tenant, {"a": {"n": n}})
    pod = starts.begin()
    pod.await_health("readiness", 200)
    pod.stop()
    starts.world.platform.sql(
        f"UPDATE refdata.dictionary_meta SET version = 3 WHERE tenant_id = '{tenant}';"
        f"UPDATE refdata.dictionary_item SET payload = '{{\"n\": 33}}' WHERE tenant_id = '{tenant}';"
        "UPDATE refdata.installation SET epoch = gen_random_uuid()"
    )
    pod = starts.begin()
    try:
        pod.await_health("readiness", 200)
        wait_until(lambda: pod.get(place(tenant))["X-Dict-Epoch"] == starts.world.epoch(), seconds=2)
        answer = pod.get(place(tenant, "items/a"))
        assert (answer.version, answer.json, answer["X-Data-Source"]) == (3, {"n": 33}, "memory")
        pod.stop()
    finally:
        pod.kill()


# -- a loader that hangs


def test_a_loader_that_hangs_is_seen_in_the_metrics_as_in_readiness(starts: Starts, tenant: str) -> None:
    """Its readers tell how old they are: it cannot say itself that it is silent."""
    starts.world.write(tenant, {"a": {"n": 1}})
    pod = starts.begin()
    try:
        pod.await_health("readiness", 200)
        wait_until(lambda: told(pod)["headworks_refdata_loader_up"] == 1)
        assert staleness(pod) < 30
        assert "dict_version_lag" in told(pod)
        [loader] = [pid for pid in pod.pids() if b"query-loader" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(loader, signal.SIGSTOP)
        try:
            wait_until(lambda: told(pod)["headworks_refdata_loader_up"] == 0, seconds=15)
            health = pod.get("/actuator/health/readiness", Authorization=None).json
            assert (health["status"], health["loader"]) == ("UP", "DOWN")
            assert told(pod)["headworks_refdata_pod_ready"] == 1, "it answers from memory"
            assert "dict_version_lag" not in told(pod), "nobody knows it"
            before = staleness(pod)
            time.sleep(1)
            assert staleness(pod) >= before + 1
            assert json.loads(pod.get(place(tenant)).body)["ageSeconds"] >= 5
        finally:
            os.kill(loader, signal.SIGCONT)
        wait_until(lambda: told(pod)["headworks_refdata_loader_up"] == 1)
        wait_until(lambda: staleness(pod) < 5.5, seconds=15)
        pod.stop()
    finally:
        pod.kill()


def told(pod: Serving) -> dict[str, float]:
    """The values of the pod's metrics by their names; of those with labels the largest."""
    text = pod.get("/actuator/prometheus", Authorization=None).body.decode()
    found: dict[str, float] = {}
    for name, value in re.findall(r"^(\w+)(?:\{.*?\})? (\S+)$", text, re.MULTILINE):
        found[name] = max(found.get(name, 0.0), float(value))
    return found


def staleness(pod: Serving) -> float:
    return told(pod)["headworks_refdata_staleness_seconds"]
