"""No answer is older than its reader asked for, whatever the pod has heard."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.refdata import store
from tests import patience
from tests.conftest import Servers
from tests.faults.proxy import Proxy
from tests.integration.refdata_query.conftest import Pods
from tests.integration.refdata_query.serving import PROFILES, Serving, World, new_tenant, open_world, place
from tests.integration.refdata_query.wire import Answer, Closed
from tests.integration.threads import wait_until

LARGEST = 2**63 - 1


@dataclass
class Bench:
    """A platform, and a pod whose ways to Redis and to PostgreSQL can be broken."""

    world: World
    pod: Serving
    database: Proxy
    profile: str

    def know(self, tenant: str, entries: dict[str, Any] | None = None, code: str = "NOTES") -> None:
        """The pod has version 1 of the tenant's dictionary in memory: of strangers it may ask beforehand."""
        version = self.world.commit(tenant, entries or {"first": {}}, code=code)
        # A tenant that is new to a pod is loaded when somebody asks, which may take longer than one waits.
        wait_until(
            lambda: self.get(tenant, "items/first", version, code=code).status in (200, 404), seconds=30
        )
        self.pod.await_version(tenant, version, code=code)

    def get(
        self, tenant: str, rest: str, version: int | None = None, code: str = "NOTES", **more: Any
    ) -> Answer:
        return self.pod.get(place(tenant, rest, code=code), X_Min_Version=version, **more)


class Benches:
    """Benches by what they are, made when they are first asked for."""

    def __init__(self, servers: Servers, folders: pytest.TempPathFactory, running: ExitStack) -> None:
        self._servers, self._folders, self._running = servers, folders, running
        self._worlds: dict[int, World] = {}
        self._benches: dict[tuple[int, str, bool], Bench] = {}
        nobody = running.enter_context(socket.socket())
        nobody.bind(("127.0.0.1", 0))  # and never listens
        self._nobody = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"

    def world(self, read_wait_ms: int) -> World:
        if read_wait_ms not in self._worlds:
            opened = open_world(
                self._servers, self._folders.mktemp("bench"), consistency={"readWaitMs": read_wait_ms}
            )
            self._worlds[read_wait_ms] = self._running.enter_context(opened)
        return self._worlds[read_wait_ms]

    def get(self, profile: str, *, read_wait_ms: int = 100, deaf: bool = False) -> Bench:
        """A pod that waits so long for a reload; `deaf`: no announcement reaches it."""
        key = read_wait_ms, profile, deaf
        if key not in self._benches:
            world = self.world(read_wait_ms)
            database = Proxy(self._servers.postgres.port or 0)
            self._running.callback(database.close)
            environ = world.platform.environ
            ways = {name: database.leads_to(environ[name]) for name in ("REFDATA_FIRST", "REFDATA_SECOND")}
            pod = Serving(
                world, self._folders.mktemp("pod") / "data", profile=profile,
                environ=ways | {"REFDATA_REDIS": self._nobody if deaf else environ["REFDATA_REDIS"]},
            )  # fmt: skip
            self._running.enter_context(pod)
            self._benches[key] = Bench(world, pod, database, profile)
        return self._benches[key]


@pytest.fixture(scope="module")
def benches(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    with ExitStack() as running:
        yield Benches(servers, tmp_path_factory, running)


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def hearing(benches: Benches, profile: str) -> Bench:
    """As pods are."""
    return benches.get(profile)


@pytest.fixture
def deaf(benches: Benches, profile: str) -> Bench:
    """No announcement reaches it, and it does not wait: it asks the primary."""
    return benches.get(profile, read_wait_ms=0, deaf=True)


@pytest.fixture
def patient(benches: Benches, profile: str) -> Bench:
    """It waits 5 s for a reload."""
    return benches.get(profile, read_wait_ms=5000)


# -- in memory, or soon there


def test_what_is_in_memory_is_answered_from_there(hearing: Bench, tenant: str) -> None:
    for n in (1, 2, 3):
        hearing.pod.await_version(tenant, hearing.world.write(tenant, {"a": {"n": n}}))
    for version in (0, 1, 2, 3):
        for rest in ("items/a", "items?keys=a", "all", "version"):
            answer = hearing.get(tenant, rest, version)
            assert (answer.status, answer.version, answer["X-Data-Source"]) == (200, 3, "memory")


def test_a_reader_waits_for_the_reload(patient: Bench, tenant: str) -> None:
    patient.pod.await_version(tenant, patient.world.write(tenant, {"a": {"n": 1}}))
    for rest in ("items/a", "items?keys=a", "all", "version"):
        version = patient.get(tenant, "version").version + 1
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(patient.get, tenant, rest, version)
            patient.pod.turn()
            assert not asked.done()
            assert patient.world.write(tenant, {"a": {"n": version}}) == version
            answer = asked.result(4)
        assert (answer.status, answer.version, answer["X-Data-Source"]) == (200, version, "memory")
        if rest != "version":
            assert b'{"n": %d}' % version in answer.body


def test_whoever_waits_holds_nobody_up(patient: Bench, tenant: str) -> None:
    patient.pod.await_version(tenant, patient.world.write(tenant, {"a": {"n": 1}}))
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(patient.get, tenant, "items/a", 2) for _ in range(20)]
        for _ in range(100):
            assert patient.get(tenant, "items/a", 1).json == {"n": 1}
        assert not any(one.done() for one in waiting)
        patient.world.write(tenant, {"a": {"n": 2}})
        assert [one.result(4).json for one in waiting] == [{"n": 2}] * 20


# -- the primary


def test_the_primary_is_asked_when_memory_is_behind(deaf: Bench, tenant: str) -> None:
    deaf.know(tenant)
    for n in range(1, 4):
        version = deaf.world.commit(tenant, {"a": {"n": n}, "b": {"n": -n}})
        one = deaf.get(tenant, "items/a", version)
        assert (one.status, one.json, one.version) == (200, {"n": n}, version)
        assert one["X-Dict-Epoch"] == deaf.world.epoch()
        # The first one asks for a reload, after which memory may have it.
        assert one["X-Data-Source"] == "postgres_fallback"
        some = deaf.get(tenant, "items?keys=b,none,a,b", version)
        assert some.json == {
            "version": version,
            "items": {"b": {"n": -n}, "a": {"n": n}},
            "missing": ["none"],
        }
        deaf.pod.await_version(tenant, version, seconds=2)


@pytest.mark.parametrize("rest", ["items/b", "items?keys=b,a,zz"])
def test_an_answer_of_the_primary_is_that_of_memory(rest: str, deaf: Bench, tenant: str) -> None:
    entries = {"a": {"x": 1.10, "y": [None, 'ü\u2028\\"']}, "b": {"zz": 1, "a": {"n": 12345678901234567890}}}
    deaf.know(tenant)
    version = deaf.world.commit(tenant, entries)
    of_primary = deaf.get(tenant, rest, version)
    assert of_primary["X-Data-Source"] == "postgres_fallback"
    deaf.pod.await_version(tenant, version, seconds=2)
    of_memory = deaf.get(tenant, rest, version)
    assert of_memory["X-Data-Source"] == "memory"
    assert of_primary["ETag"] is None  # nobody has the whole of that version, which the tag stands for
    for name in ("X-Dict-Version", "X-Dict-Epoch", "Content-Type", "Cache-Control", "Content-Length"):
        assert of_primary[name] == of_memory[name] is not None, name
    assert of_primary.body == of_memory.body


@pytest.mark.parametrize(
    ("code", "entries", "key"),
    [
        ("COUNTRY", {"AT": {"name": "Austria"}}, "AT"),
        ("CURRENCY", {"EUR": {"name": "Euro", "digits": 2}}, "EUR"),  # in the other database
        ("BRAKED", {"x": {"n": 1}}, "x"),
    ],
)
def test_the_primary_is_that_of_the_dictionary(
    code: str, entries: dict[str, Any], key: str, deaf: Bench, tenant: str
) -> None:
    deaf.know(tenant, {"ZZZ": {"name": "first", "digits": 0}}, code)
    version = deaf.world.commit(tenant, entries, code=code)
    answer = deaf.get(tenant, f"items/{key}", version, code=code)
    assert (answer.status, answer.version, answer["X-Data-Source"]) == (200, version, "postgres_fallback")
    assert entries[key].items() <= answer.json.items()
    assert answer["X-Dict-Epoch"] == deaf.world.epoch(second=code == "CURRENCY")
    gone = deaf.world.commit(tenant, {key: None}, code=code)
    assert deaf.get(tenant, f"items/{key}", gone, code=code).refusal == (404, "UNKNOWN_KEY")


ODD_KEYS = [
    "a/b", "a,b", "100%", "%s", "%(key)s", ":key", "'; DROP TABLE mdm_country; --", '"', "\\", "é", "😀",
    "..", "x" * 256,
]  # fmt: skip


@pytest.mark.parametrize("code", ["NOTES", "BRAKED"])
def test_the_primary_is_asked_for_keys_of_any_kind(code: str, deaf: Bench, tenant: str) -> None:
    deaf.know(tenant, code=code)
    for at, key in enumerate(ODD_KEYS):
        version = deaf.world.commit(tenant, {key: {"n": at}}, code=code)
        answer = deaf.get(tenant, f"items/{quote(key, safe='')}", version, code=code)
        assert (answer.status, answer.json, answer.version) == (200, {"n": at}, version), key
    version = deaf.world.commit(tenant, {"last": {}}, code=code)
    some = deaf.get(
        tenant, "items?keys=" + ",".join(quote(key, safe="") for key in ODD_KEYS), version, code=code
    )
    assert some.json["items"] == {key: {"n": at} for at, key in enumerate(ODD_KEYS)}


@pytest.mark.parametrize("key", ["none", "a%00b", "%00", "x" * 1024, "%F0%9F%98%80"])
@pytest.mark.parametrize("code", ["NOTES", "CURRENCY"])
def test_what_the_primary_does_not_have_is_unknown(code: str, key: str, deaf: Bench, tenant: str) -> None:
    deaf.know(tenant, {"ZZZ": {"name": "first", "digits": 0}}, code)
    version = deaf.world.commit(tenant, {"AAA": {"name": "a", "digits": 1}}, code=code)
    answer = deaf.get(tenant, f"items/{key}", version, code=code)
    assert answer.refusal == (404, "UNKNOWN_KEY")
    assert answer.version >= version
    version = deaf.world.commit(tenant, {"AAA": {"name": "a", "digits": 2}}, code=code)
    some = deaf.get(tenant, f"items?keys=AAA,{key}", version, code=code)
    assert (some.status, list(some.json["items"]), len(some.json["missing"])) == (200, ["AAA"], 1)


def test_a_thousand_keys_are_asked_of_the_primary_too(deaf: Bench, tenant: str) -> None:
    deaf.know(tenant)
    version = deaf.world.commit(tenant, {f"k{n}": {"n": n} for n in range(2000)})
    answer = deaf.get(tenant, "items?keys=" + ",".join(f"k{n}" for n in range(1500, 2500)), version)
    assert answer.json["items"] == {f"k{n}": {"n": n} for n in range(1500, 2000)}
    assert answer.json["missing"] == [f"k{n}" for n in range(2000, 2500)]


def test_what_was_asked_of_the_primary_is_soon_in_memory(deaf: Bench, tenant: str) -> None:
    deaf.know(tenant)
    version = deaf.world.commit(tenant, {"a": {"n": 1}})
    assert deaf.get(tenant, "items/a", version)["X-Data-Source"] == "postgres_fallback"
    deaf.pod.await_version(tenant, version, seconds=2)
    answer = deaf.get(tenant, "items/a", version)
    assert (answer["X-Data-Source"], answer.json) == ("memory", {"n": 1})


def test_fallbacks_are_counted(deaf: Bench, tenant: str) -> None:
    def count() -> float:
        text = deaf.pod.get("/actuator/prometheus").body.decode()
        found = re.findall(
            r"^postgres_fallback_reads(?:_total)?(?:\{[^}]*\})? ([0-9.e+]+)$", text, re.MULTILINE
        )
        return sum(map(float, found))

    deaf.know(tenant)
    before = count()
    version = deaf.world.commit(tenant, {"a": {}})
    assert deaf.get(tenant, "items/a", version)["X-Data-Source"] == "postgres_fallback"
    wait_until(lambda: count() == before + 1)


def test_all_waits_for_the_reload(deaf: Bench, tenant: str) -> None:
    deaf.know(tenant)
    version = deaf.world.commit(tenant, {"a": {"n": 1}, "first": None})
    answer = deaf.get(tenant, "all", version)
    assert (answer.status, answer["X-Data-Source"]) == (200, "memory")
    assert answer.json == {"version": version, "items": {"a": {"n": 1}}}


def test_all_of_what_loads_too_long_is_to_be_asked_for_again(hearing: Bench, tenant: str) -> None:
    world, pod = hearing.world, hearing.pod
    pod.await_version(tenant, world.write(tenant, {"a": {"n": 1}}, code="BRAKED"), code="BRAKED")
    with world.braked(6):
        version = world.write(tenant, {"a": {"n": 2}}, code="BRAKED")
        begun = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(hearing.get, tenant, "all", version, code="BRAKED")
            while not asked.done():  # who does not ask for more has the version before at once
                now = time.monotonic()
                assert hearing.get(tenant, "items/a", code="BRAKED").json == {"n": 1}
                assert time.monotonic() - now < 0.5 * patience.PATIENCE
            answer = asked.result()
        assert 1.5 < time.monotonic() - begun < 4
        assert answer.refusal == (503, "RELOADING")
        assert int(answer["Retry-After"] or "") >= 1
    pod.await_version(tenant, version, code="BRAKED")
    assert hearing.get(tenant, "all", version, code="BRAKED").json["items"] == {"a": {"n": 2}}


# -- what is not committed


@pytest.mark.parametrize("rest", ["items/a", "items/none", "items?keys=a", "all", "all?limit=5", "version"])
@pytest.mark.parametrize("ahead", [1, 1000, LARGEST - 1])
def test_what_is_not_committed_is_not_answered(rest: str, ahead: int, hearing: Bench, tenant: str) -> None:
    hearing.pod.await_version(tenant, hearing.world.write(tenant, {"a": {"secret": "text"}}))
    begun = time.monotonic()
    answer = hearing.get(tenant, rest, 1 + ahead)
    assert answer.refusal == (409, "VERSION_NOT_COMMITTED")
    assert time.monotonic() - begun < 1
    assert b"secret" not in answer.body
    assert answer["ETag"] is None


def test_nor_what_is_begun(hearing: Bench, tenant: str) -> None:
    world = hearing.world
    hearing.pod.await_version(tenant, world.write(tenant, {"a": {"n": 1}}))
    with world.platform.services.databases["postgres"].transaction(None) as conn, conn.cursor() as cursor:
        cursor.execute(
            "UPDATE refdata.dictionary_meta SET version = 2 WHERE tenant_id = %s AND dict_code = 'NOTES'",
            (tenant,),
        )
        assert hearing.get(tenant, "items/a", 2).refusal == (409, "VERSION_NOT_COMMITTED")
        conn.rollback()


def test_a_tenant_that_never_wrote_has_no_version_1(hearing: Bench, tenant: str) -> None:
    assert hearing.get(tenant, "items/a", 1).refusal == (409, "VERSION_NOT_COMMITTED")
    assert hearing.get(tenant, "all", 0).json == {"version": 0, "items": {}}


def test_a_deaf_pod_tells_what_is_committed_from_what_is_not(deaf: Bench, tenant: str) -> None:
    version = deaf.world.commit(tenant, {"a": {"n": 1}})
    assert deaf.get(tenant, "items/a", version + 1).refusal == (409, "VERSION_NOT_COMMITTED")
    assert deaf.get(tenant, "items/a", version).json == {"n": 1}


# -- an exact version


def test_an_exact_version_is_that_version(deaf: Bench, tenant: str) -> None:
    deaf.know(tenant, {"a": {"n": 1}})
    for n in (2, 3):
        version = deaf.world.commit(tenant, {"a": {"n": n}})
        answer = deaf.get(tenant, f"items/a?version={version}")
        assert (answer.status, answer.version, answer.json) == (200, version, {"n": n})
        deaf.pod.await_version(tenant, version, seconds=2)
    assert deaf.get(tenant, "items/a?version=4").refusal == (409, "VERSION_NOT_COMMITTED")
    for n in (1, 2, 3):
        old = deaf.get(tenant, f"items/a?version={n}")
        assert (old.status, old.version, old.json) == (200, n, {"n": n})
    # Of both the stricter one holds.
    assert deaf.get(tenant, "items/a?version=2", 2).json == {"n": 2}
    assert deaf.get(tenant, "items/a?version=4", 1).refusal == (409, "VERSION_NOT_COMMITTED")


# -- no primary


@pytest.fixture
def alone(benches: Benches, profile: str) -> Iterator[Bench]:
    """A pod that PostgreSQL can be taken from."""
    found = benches.get(profile)
    yield found
    found.database.renew()
    wait_until(lambda: found.get(new_tenant(), "items/a", 1).status == 409)


def refuse(database: Proxy) -> None:
    database.refuse()
    database.cut()


AWAY: dict[str, Callable[[Proxy], Any]] = {"refuses": refuse, "is silent": Proxy.silence}


@pytest.mark.parametrize("way", AWAY)
def test_without_its_primary_a_pod_answers_what_it_has(way: str, alone: Bench, tenant: str) -> None:
    alone.pod.await_version(tenant, alone.world.write(tenant, {"a": {"n": 1}}))
    AWAY[way](alone.database)
    for rest in ("items/a", "items?keys=a", "all"):
        known = alone.get(tenant, rest, 1)
        assert (known.status, known.version, known["X-Data-Source"]) == (200, 1, "memory")
        begun = time.monotonic()
        answer = alone.get(tenant, rest, 2, seconds=20)
        assert answer.refusal == (503, "PRIMARY_UNAVAILABLE")
        assert int(answer["Retry-After"] or "") >= 1
        assert time.monotonic() - begun < 10 * patience.PATIENCE
    assert alone.pod.health("readiness") == 200
    alone.world.commit(tenant, {"a": {"n": 2}})
    assert alone.get(tenant, "items/a", 2, seconds=20).refusal == (503, "PRIMARY_UNAVAILABLE")
    alone.database.renew()
    wait_until(lambda: alone.get(tenant, "items/a", 2).status == 200)
    assert alone.get(tenant, "items/a", 2).json == {"n": 2}


def test_many_who_wait_for_a_silent_primary_hold_nobody_up(alone: Bench, tenant: str) -> None:
    alone.pod.await_version(tenant, alone.world.write(tenant, {"a": {"n": 1}}))
    alone.database.silence()
    with ExitStack() as open_ones:
        waiting = [open_ones.enter_context(alone.pod.wire(seconds=30)) for _ in range(300)]
        for wire in waiting:
            wire.send(alone.pod.request(place(tenant, "items/a"), headers={"X-Min-Version": "2"}))
        begun = time.monotonic()
        for _ in range(100):
            assert alone.get(tenant, "items/a", 1).json == {"n": 1}
        assert time.monotonic() - begun < 5 * patience.PATIENCE
        for wire in waiting:
            answer = wire.answer()
            assert answer.refusal == (503, "PRIMARY_UNAVAILABLE")
            assert answer["Retry-After"]
        assert time.monotonic() - begun < 20 * patience.PATIENCE


def test_a_crowd_at_the_primary_is_answered_or_sent_away(deaf: Bench, tenant: str) -> None:
    """Of 300 at once each has its version, or is told to come again; none has less."""
    deaf.know(tenant)
    version = deaf.world.commit(tenant, {"a": {"n": 1}})
    with ExitStack() as open_ones:
        waiting = [open_ones.enter_context(deaf.pod.wire(seconds=30)) for _ in range(300)]
        for wire in waiting:
            wire.send(deaf.pod.request(place(tenant, "items/a"), headers={"X-Min-Version": version}))
        statuses = []
        for wire in waiting:
            answer = wire.answer()
            statuses.append(answer.status)
            if answer.status == 200:
                assert (answer.version, answer.json) == (version, {"n": 1})
            else:
                assert answer.refusal == (503, "PRIMARY_UNAVAILABLE")
                assert answer["Retry-After"]
    assert statuses.count(200) >= 1


# -- the epoch


EPOCHS = [
    # of the header, with the epoch for {}     status
    ("{}", 200),
    ("{upper}", 200),
    (str(uuid.uuid4()), 409),
    ("00000000-0000-0000-0000-000000000000", 409),
]


@pytest.mark.parametrize(("epoch", "status"), EPOCHS)
@pytest.mark.parametrize("rest", ["items/a", "items?keys=a", "all", "version"])
def test_a_version_counts_in_its_epoch(
    rest: str, epoch: str, status: int, hearing: Bench, tenant: str
) -> None:
    hearing.pod.await_version(tenant, hearing.world.write(tenant, {"a": {"n": 1}}))
    own = hearing.world.epoch()
    answer = hearing.get(tenant, rest, 1, X_Dict_Epoch=epoch.format(own, upper=own.upper()))
    assert answer.status == status
    if status == 409:
        assert answer.code == "EPOCH_CHANGED"


@pytest.fixture
def renewed(servers: Servers, tmp_path: Path) -> Iterator[World]:
    """A platform whose epoch a test may change."""
    with open_world(servers, tmp_path) as found:
        yield found


def test_after_a_restore_versions_go_back_under_another_epoch(
    renewed: World, pods: Pods, profile: str, tenant: str
) -> None:
    for n in range(1, 6):
        renewed.write(tenant, {"a": {"n": n}, f"k{n}": {}})
    pod = pods(renewed, profile=profile)
    old = renewed.epoch()
    before = pod.get(place(tenant, "items/a"))
    assert (before.version, before.json, before["X-Dict-Epoch"]) == (5, {"n": 5}, old)
    # The database is that of version 2 again.
    of_tenant = f"tenant_id = '{tenant}' AND dict_code = 'NOTES'"
    renewed.platform.sql(
        f"UPDATE refdata.dictionary_meta SET version = 2 WHERE {of_tenant};"
        f"DELETE FROM refdata.dictionary_item WHERE {of_tenant} AND item_key IN ('k3', 'k4', 'k5');"
        f"UPDATE refdata.dictionary_item SET payload = '{{\"n\": 2}}' WHERE {of_tenant} AND item_key = 'a'"
    )
    new = str(store.renew_epoch(renewed.platform.services.databases["postgres"]))
    assert renewed.write(tenant, {"b": {}}) == 3
    wait_until(lambda: pod.get(place(tenant, "version"))["X-Dict-Epoch"] == new, seconds=2)
    whole = pod.get(place(tenant, "all"))
    assert (whole.version, whole["X-Dict-Epoch"]) == (3, new)
    assert whole.json["items"] == {"a": {"n": 2}, "b": {}, "k1": {}, "k2": {}}
    assert whole["ETag"] != before["ETag"]
    of_old = pod.get(place(tenant, "items/a"), X_Min_Version=3, X_Dict_Epoch=old)
    assert of_old.refusal == (409, "EPOCH_CHANGED")
    assert pod.get(place(tenant, "items/a"), X_Min_Version=3, X_Dict_Epoch=new).json == {"n": 2}
    assert pod.get(place(tenant, "items/a"), X_Min_Version=5).refusal == (409, "VERSION_NOT_COMMITTED")
    # What was version 4 and 5 before is not shown as the version of that number now.
    for n in (4, 5):
        assert renewed.write(tenant, {"a": {"n": 10 * n}}) == n
        pod.await_version(tenant, n)
        assert pod.get(place(tenant, f"items/a?version={n}")).json == {"n": 10 * n}


def test_a_pod_that_has_not_heard_of_the_restore_does_not_answer_by_the_old_epoch(
    renewed: World, pods: Pods, profile: str, tenant: str
) -> None:
    renewed.write(tenant, {"a": {"n": 1}})
    pod = pods(renewed, profile=profile)
    new = str(store.renew_epoch(renewed.platform.services.databases["postgres"]))
    version = renewed.commit(tenant, {"a": {"n": 2}})
    answer = pod.get(place(tenant, "items/a"), X_Min_Version=version, X_Dict_Epoch=new)
    assert answer.status in (200, 409)
    if answer.status == 200:
        assert (answer.json, answer["X-Dict-Epoch"], answer.version) == ({"n": 2}, new, version)
    else:
        assert answer.code == "EPOCH_CHANGED"


# -- all at once


WRITES = 3000
KEYS = [f"k{n}" for n in range(8)]
READS = 2000


def history(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The change that makes each version, and what the dictionary holds with it; by version."""
    source = random.Random(seed)
    changes: list[dict[str, Any]] = [{}]
    states: list[dict[str, Any]] = [{}]
    for version in range(1, WRITES + 1):
        keys = source.sample(KEYS, source.randint(1, 3))
        changes.append({key: {"n": version} if source.random() < 0.8 else None for key in keys})
        after = states[-1] | changes[-1]
        states.append({key: value for key, value in after.items() if value is not None})
    return changes, states


class Checked:
    """What is wrong with an answer, by the history of its dictionary."""

    def __init__(self, states: list[dict[str, Any]]) -> None:
        self.states = states
        self.committed = 0

    def wrong(self, kind: str, keys: list[str], barrier: int | None, committed: int, answer: Answer) -> str:
        """Nothing, or a sentence; `committed` is what was, for sure, when the question was asked."""
        if answer.status == 409:
            return "" if barrier is not None and barrier > committed else "409 for what is committed"
        if answer.status == 503:
            return "" if kind == "all" and answer.code == "RELOADING" else f"503 {answer.code}"
        version = answer.version
        if barrier is not None and version < barrier:
            return f"version {version} is below {barrier}"
        state = self.states[version]
        if answer.status == 404:
            return "" if kind == "item" and keys[0] not in state else "404 for what is there"
        if answer.status != 200:
            return f"status {answer.status}"
        found = answer.json
        if kind == "item":
            return "" if found == state.get(keys[0]) else f"{found} is not that of version {version}"
        if kind == "version":
            return "" if found["version"] == version and found["items"] == len(state) else "another version"
        if found["version"] != version:
            return "the version in the body is another one"
        expected = state if kind == "all" else {key: state[key] for key in keys if key in state}
        return "" if found["items"] == expected else f"{found} is not that of version {version}"


@pytest.mark.parametrize("ears", ["hears all", "hears half", "deaf"])
def test_no_answer_is_older_than_asked_for_or_mixed(
    ears: str, benches: Benches, profile: str, tenant: str
) -> None:
    """2,000 reads of all kinds, with barriers around the newest version, while it is written."""
    bench = benches.get(profile, read_wait_ms=0 if ears == "deaf" else 100, deaf=ears == "deaf")
    changes, states = history(7)
    checked, done = Checked(states), threading.Event()
    sources: list[str] = []

    def write() -> None:
        source = random.Random(1)
        for version in range(1, WRITES + 1):
            if done.is_set():
                return
            assert bench.world.commit(tenant, changes[version]) == version
            checked.committed = version
            if ears == "hears all" or source.random() < 0.5:
                bench.world.announce()

    def read(seed: int) -> list[str]:
        source, wrong = random.Random(seed), []
        for _ in range(READS // 4):
            kind = source.choices(["item", "items", "all", "version"], [6, 3, 1, 1])[0]
            keys = source.sample(KEYS, 3) if kind == "items" else [source.choice(KEYS)]
            rest = {"item": f"items/{keys[0]}", "items": "items?keys=" + ",".join(keys)}.get(kind, kind)
            committed = checked.committed
            barrier = source.choice(
                [None, committed, committed, committed, max(0, committed - 2), committed + 1]
            )
            if kind == "version" and barrier is not None:
                barrier = 0
            answer = bench.get(tenant, rest, barrier)
            sources.append(answer["X-Data-Source"] or "")
            if said := checked.wrong(kind, keys, barrier, committed, answer):
                wrong.append(f"{rest} from {barrier}, {committed} committed: {said}")
        return wrong

    with ThreadPoolExecutor(5) as pool:
        writing = pool.submit(write)
        wait_until(lambda: checked.committed > 3)
        wrong = [one for reads in pool.map(read, range(4)) for one in reads]
        done.set()
        writing.result(30)
    assert wrong == []
    assert sources.count("memory") > 50
    if ears == "deaf":
        assert sources.count("postgres_fallback") > 50


def test_readers_on_one_connection_are_answered_in_order_with_what_they_asked_for(
    deaf: Bench, tenant: str
) -> None:
    """Barriers of the primary, of memory and of nobody, in one pipeline."""
    deaf.know(tenant)
    version = deaf.world.commit(tenant, {"a": {"n": 1}})
    barriers = [0, version, version + 1, 0, version, version + 1] * 5
    with deaf.pod.wire() as wire:
        wire.send(
            b"".join(
                deaf.pod.request(place(tenant, "items?keys=a"), headers={"X-Min-Version": barrier})
                for barrier in barriers
            )
        )
        for barrier in barriers:
            answer = wire.answer()
            if barrier > version:
                assert answer.refusal == (409, "VERSION_NOT_COMMITTED")
            else:
                assert answer.version >= barrier
                assert answer.json["items"] == ({"a": {"n": 1}} if answer.version == version else {})


def test_whoever_asks_the_primary_and_goes_away_is_forgotten(alone: Bench, tenant: str) -> None:
    alone.pod.await_version(tenant, alone.world.write(tenant, {"a": {"n": 1}}))
    alone.pod.turn()
    before = alone.pod.open_files()
    alone.database.silence()
    for _ in range(50):
        with alone.pod.wire() as wire:
            wire.send(alone.pod.request(place(tenant, "items/a"), headers={"X-Min-Version": "2"}))
    alone.database.renew()
    # A few connections to the database may be new.
    wait_until(lambda: alone.pod.open_files() <= before + 10, seconds=20)
    with alone.pod.wire() as wire:
        wire.send(alone.pod.request(place(tenant, "items/a"), headers={"X-Min-Version": "1"}))
        assert wire.answer().json == {"n": 1}
        with pytest.raises((Closed, TimeoutError)):
            wire.socket.settimeout(0.25)
            wire.answer()
