"""Reference data whose processes die, on a broker of the Kafka protocol and on a Redis Cluster.

HEADWORKS_REFDATA_SECONDS is how long the random faults go on (15 s without it).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import redis

from app.adapters.topics import Message
from app.refdata import consume
from app.refdata.apply import Applier
from app.refdata.commands import Command
from app.refdata.consume import Consuming
from app.refdata.services import Services
from app.refdata.store import Ended
from tests.conftest import Servers
from tests.engines.kafka import MockCluster
from tests.engines.redis_cluster import RedisCluster
from tests.faults import refdata_child
from tests.integration.refdata.chain import in_threads
from tests.integration.refdata.platform import SEED, Platform, chunk, command, open_platform
from tests.integration.refdata.two_databases import databases  # noqa: F401

CHAOS_SECONDS = float(os.environ.get("HEADWORKS_REFDATA_SECONDS", "15"))
ENGINES = ("kafka", "cluster")
AT_ONCE = 8
"""So many processes die at a time: most of it is waiting until the others of a group notice."""

STRIDES = {"kafka": 3, "cluster": 1}
"""Of the steps every so manyth: the effects are the same, and in Kafka a member that died is missed late."""

PATIENCE_SECONDS = 240.0
BATCHES = 40
"""Of commands, in the time of the random faults."""

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.faults.refdata_child"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MockCluster]:
    found = MockCluster(tmp_path_factory.mktemp("kafka"))
    found.start()
    yield found
    found.stop()


@dataclass
class Chain:
    """A platform of its own topics and stream, whose processes are real."""

    platform: Platform
    environ: dict[str, str]

    def publish(self, value: bytes, key: str) -> None:
        of = self.platform.services
        of.publisher.publish(of.config.refdata.kafka.commands_topic, key=key, value=value)

    def begin(self, role: Callable[..., None], last: int = 0) -> Any:
        """A process that dies at its step `last` (0: never)."""
        process = PROCESSES.Process(
            target=role, args=(str(self.platform.config), self.environ, last), daemon=True
        )
        process.start()
        return process

    def dies(self, role: Callable[..., None], last: int) -> bool:
        """Whether the process died at its step; else it did all of its work."""
        process = self.begin(role, last)
        process.join(PATIENCE_SECONDS)
        # 255 is what is told of one whose end nobody saw; an error in it would be 1.
        assert process.exitcode in (0, -signal.SIGKILL, 255), process.exitcode
        return bool(process.exitcode)

    def stream(self) -> list[dict[str, Any]]:
        """What was announced, in order."""
        with redis.RedisCluster.from_url(self.environ["REFDATA_REDIS"].split(",")[0]) as client:
            entries = client.xrange(self.platform.services.config.refdata.redis.stream_key)
        return [json.loads(fields[b"payload"]) for _, fields in entries]

    def letters(self) -> list[str]:
        """The codes of the dead letters."""
        of, kafka = self.platform.services, self.platform.services.config.refdata.kafka
        consumer = of.topics.consumer(kafka.dead_letter_topic, group="test")
        found: list[str] = []
        behind: dict[int, int] = {}
        with contextlib.closing(consumer):
            while len(behind) < kafka.partitions or any(behind.values()):
                messages = consumer.poll(100, 0.5)
                found += [one.headers["error-code"].decode() for one in messages]
                consumer.commit(messages)
                behind = consumer.lag()
        return found


@pytest.fixture(params=ENGINES)
def chains(
    request: pytest.FixtureRequest, servers: Servers, cluster: RedisCluster, kafka: MockCluster,
    databases: tuple[str, str], tmp_path: Path,  # noqa: F811
) -> Iterator[Callable[[], Chain]]:  # fmt: skip
    """As many platforms as a test wants, each with topics of its own on one engine."""
    first, second = databases
    environ = {
        "REFDATA_FIRST": first, "REFDATA_SECOND": second, "REFDATA_REDIS": cluster.url,
        "REFDATA_KAFKA": kafka.bootstrap,
    }  # fmt: skip
    made: list[Chain] = []

    def make() -> Chain:
        name = f"t{uuid.uuid4().hex[:10]}"
        of_kafka = [f"commandsTopic: {name}.commands", f"deadLetterTopic: {name}.dlq", "partitions: 4"]
        of_kafka.append(f"group: {name}")  # a group of Kafka is one, whatever topics its members read
        of_kafka += {
            "kafka": ["leaseSeconds: 6", "bootstrapFromEnv: REFDATA_KAFKA"],
            "cluster": ["leaseSeconds: 2"],
        }[request.param]
        of_redis = ["urlFromEnv: REFDATA_REDIS", "mode: cluster"]
        of_redis += [f"pubChannel: {name}:pub", f"streamKey: {name}:stream"]
        config = tmp_path / f"{name}.yaml"
        config.write_text(
            SEED.read_text()
            .replace("commandsTopic: refdata.commands", "\n    ".join(of_kafka))
            .replace("urlFromEnv: REFDATA_REDIS", "\n    ".join(of_redis))
        )
        platform = Platform(first, second, environ, config, open_platform(servers, config, environ))
        if request.param == "kafka":
            for topic in (f"{name}.commands", f"{name}.dlq"):
                kafka.make(topic)
        else:
            platform.services.ensure_topics()
        made.append(Chain(platform, environ))
        return made[-1]

    yield make
    for chain in made:
        chain.platform.services.close()


# -- killed at each step


def history(tenant: str) -> list[tuple[str, bytes]]:
    """Commands of every kind: key and value."""
    snapshot_id = str(uuid.uuid4())
    first = command("COUNTRY", {"AT": {"name": "Austria"}, "XX": {"name": "gone"}}, tenantId=tenant)
    ones: list[Command] = [
        first,
        chunk("NOTES", snapshot_id, 2, 2, {"b": {"n": 2}}, tenantId=tenant),
        command("CURRENCY", {"EUR": {"name": "Euro", "digits": 2}}, tenantId=tenant, sourceRevision=4),
        first,
        command("COUNTRY", {"BE": {"name": "Atlantis"}}, tenantId=tenant),
        chunk("NOTES", snapshot_id, 1, 2, {"a": {"n": 1}}, tenantId=tenant),
        command("CURRENCY", {"EUR": {"name": "stale", "digits": 0}}, tenantId=tenant, sourceRevision=4),
        command("COUNTRY", {"XX": None}, tenantId=tenant),
        command("NOTES", {"c": {"n": 3}}, tenantId=tenant),
    ]
    return [(one.key, one.encoded()) for one in ones] + [(f"{tenant}:NOTES", b"no command")]


def outbox(platform: Platform, tenant: str) -> dict[str, list[int]]:
    """The versions of each dictionary, in the order in which they were committed."""
    found = defaultdict(list)
    for second in (False, True):
        for one in platform.announcements(second=second):
            if one["tenantId"] == tenant:
                found[one["dictCode"]].append(one["version"])
    return dict(found)


def test_whatever_step_its_process_dies_at_each_command_has_its_effect_once(
    chains: Callable[[], Chain], request: pytest.FixtureRequest
) -> None:
    stride = STRIDES[request.node.callspec.params["chains"]]

    def dies_at(step: int) -> bool:
        chain, tenant = chains(), f"dies-{uuid.uuid4().hex[:8]}"
        for key, value in history(tenant):
            chain.publish(value, key)
        died = chain.dies(refdata_child.apply, step)
        assert not died or not chain.dies(refdata_child.apply, 0)
        assert chain.platform.countries(tenant) == {"AT": "Austria"}
        assert chain.platform.notes(tenant) == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}
        assert chain.platform.currencies(tenant) == {"EUR": ("Euro", 2)}
        assert outbox(chain.platform, tenant) == {"COUNTRY": [1, 2], "NOTES": [1, 2], "CURRENCY": [1]}
        if step % (AT_ONCE * stride) == 1:  # to join a group takes seconds
            assert set(chain.letters()) == {"ITEM_REFUSED", "MALFORMED_COMMAND"}
        return died

    step, died = 1, [True]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while all(died):  # until one came to its end alive: then there are no more steps
            died = list(pool.map(dies_at, range(step, step + AT_ONCE * stride, stride)))
            step += AT_ONCE * stride
    assert step > 30


def test_whatever_step_the_relay_dies_at_each_version_is_announced(chains: Callable[[], Chain]) -> None:
    chain, tenant = chains(), f"tells-{uuid.uuid4().hex[:8]}"
    step = written = 0
    died = True
    while died:
        step += 1
        for _ in range(2):
            written += 1
            chain.platform.apply(
                command("NOTES", {"a": {"n": written}}, tenantId=tenant),
                command("CURRENCY", {"EUR": {"name": "Euro", "digits": written}}, tenantId=tenant),
            )
        died = chain.dies(refdata_child.relay, step)
    assert step > 10
    told: dict[str, list[int]] = defaultdict(list)
    for one in chain.stream():
        if one["tenantId"] == tenant:
            told[one["dictCode"]].append(one["version"])
    for code in ("NOTES", "CURRENCY"):
        assert list(dict.fromkeys(told[code])) == list(range(1, written + 1))
    # Some were announced again: for whoever had died the mark came too late.
    assert sum(map(len, told.values())) > 2 * written


# -- random faults


class Model:
    """What a dictionary holds after its commands, each once, in the order of its topic."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.version = 0
        self._seen: set[uuid.UUID] = set()
        self._chunks: dict[uuid.UUID, dict[int, Command]] = defaultdict(dict)

    def take(self, one: Command) -> None:
        if one.event_id in self._seen:
            return
        self._seen.add(one.event_id)
        if one.chunk is None:
            for item in one.items:
                self.items.pop(item.key, None)
                if item.payload is not None:
                    self.items[item.key] = json.loads(item.payload)
            self.version += 1
            return
        chunks = self._chunks[one.chunk.snapshot_id]
        chunks[one.chunk.index] = one
        if len(chunks) == one.chunk.total:
            self.items = {
                item.key: json.loads(item.payload or b"null")
                for part in chunks.values()
                for item in part.items
            }
            self.version += 1


def commands_of(source: random.Random, tenant: str) -> Iterator[list[Command]]:
    """Commands of one dictionary for ever, as they are sent: doubled, shuffled, interleaved."""
    while True:
        snapshots = [str(uuid.UUID(int=source.getrandbits(128))) for _ in range(2)]
        parts = [
            chunk("NOTES", one, n, 3, {f"{n}{key}": {"n": source.random()} for key in "ab"}, tenantId=tenant)
            for one in snapshots
            for n in (1, 2, 3)
        ]
        changes = [{source.choice("xyz"): source.choice([None, {"n": source.random()}])} for _ in range(12)]
        deltas = [command("NOTES", change, tenantId=tenant) for change in changes]
        ones = parts + deltas
        ones += source.sample(ones, 5)
        source.shuffle(ones)
        yield ones


def test_random_deaths_and_rebalances_lose_nothing_and_double_nothing(chains: Callable[[], Chain]) -> None:
    chain, source = chains(), random.Random(1)
    tenants = [f"chaos-{uuid.uuid4().hex[:6]}" for _ in range(6)]
    models = {tenant: Model() for tenant in tenants}
    sent = {tenant: commands_of(random.Random(tenant), tenant) for tenant in tenants}
    early: list[Any] = []
    heard: dict[str, set[int]] = defaultdict(set)
    stopped = threading.Event()

    def listen() -> None:
        config = chain.platform.services.config.refdata.redis
        with redis.RedisCluster.from_url(chain.environ["REFDATA_REDIS"].split(",")[0]) as client:
            node = client.get_redis_connection(client.get_random_node())
            with node.pubsub() as channel:
                channel.subscribe(config.pub_channel)
                while not stopped.is_set():
                    message = channel.get_message(ignore_subscribe_messages=True, timeout=0.2)
                    one = json.loads(message["data"]) if message else {"tenantId": None}
                    if one["tenantId"] in models:
                        heard[one["tenantId"]].add(one["version"])
                        committed = chain.platform.sql(
                            "SELECT version FROM refdata.dictionary_meta"
                            f" WHERE tenant_id = '{one['tenantId']}' AND dict_code = 'NOTES'"
                        )[0][0]
                        if committed < one["version"]:
                            early.append(one)

    listener = threading.Thread(target=listen)
    listener.start()
    roles = [refdata_child.member] * 3 + [refdata_child.announcing] * 2
    processes = [chain.begin(role) for role in roles]
    next_kill = time.monotonic() + 1
    for _ in range(BATCHES):
        time.sleep(CHAOS_SECONDS / BATCHES)
        tenant = source.choice(tenants)
        for one in next(sent[tenant]):
            chain.publish(one.encoded(), one.key)
            models[tenant].take(one)
        if time.monotonic() > next_kill:
            next_kill = time.monotonic() + source.uniform(0.5, 2.0)
            at = source.randrange(len(roles))
            processes[at].kill()
            processes[at].join()
            processes[at] = chain.begin(roles[at])
    expected = {tenant: model.version for tenant, model in models.items()}
    wait_for(lambda: {tenant: len(heard[tenant]) for tenant in tenants} == expected)
    stopped.set()
    listener.join()
    for process in processes:
        process.kill()
        process.join()
    assert early == []
    for tenant, model in models.items():
        assert chain.platform.notes(tenant) == dict(sorted(model.items.items()))
        assert outbox(chain.platform, tenant)["NOTES"] == list(range(1, model.version + 1))
        assert heard[tenant] == set(range(1, model.version + 1))
    assert sum(expected.values()) > 100


# -- members that come and go


class Left(Exception):
    """The member has left its group."""


class Remembering(Applier):
    """What applies commands, and what became of each."""

    def __init__(self, of: Services) -> None:
        super().__init__(lambda: of.config, of.databases)
        self.ended: list[Ended] = []

    def apply(self, commands: Sequence[tuple[Command, str | None]]) -> list[Ended]:
        found = super().apply(commands)
        self.ended += found
        return found


class Member:
    """A member of the group that applies commands, in this process."""

    def __init__(self, of: Services, running: ExitStack) -> None:
        kafka = of.config.refdata.kafka
        self._partitions = kafka.partitions
        self._consumer = of.topics.consumer(kafka.commands_topic, group=kafka.group)
        running.callback(self._consumer.close)
        self.applier = Remembering(of)
        self.loop = Consuming(self._consumer, of.publisher, self.applier, lambda: of.config, of.clock)

    @property
    def ended(self) -> list[Ended]:
        return self.applier.ended

    def leave_before_commit(self, send: Callable[[], None]) -> list[Ended]:
        """Commands that it applied and did not commit; they are sent until there are some."""
        committed = len(self.ended)

        def leave(messages: Sequence[Message]) -> None:
            if messages:
                self._consumer.close()
                raise Left

        with mock.patch.object(self._consumer, "commit", leave), pytest.raises(Left):
            for _ in turns():
                send()
                self.loop.work_off(0.5)
        return self.ended[committed:]

    def work_all_off(self) -> None:
        """Every partition is this member's, and nothing waits in one."""
        for _ in turns():
            if self.loop.work_off(0.2):
                continue
            behind = self._consumer.lag()
            if len(behind) == self._partitions and not any(behind.values()):
                return


def turns() -> Iterator[None]:
    """One after the other, as long as there is patience."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline, "it does not come to hold"
        yield


def test_a_member_joins_amid_the_work_and_the_first_leaves_before_its_commit(
    chains: Callable[[], Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "AT_ONCE", 10)  # so that there are many batches
    chain, source = chains(), random.Random(2)
    tenants = [f"turns-{uuid.uuid4().hex[:6]}" for _ in range(6)]
    coming = [itertools.chain.from_iterable(commands_of(random.Random(one), one)) for one in tenants]
    models: dict[str, Model] = defaultdict(Model)
    sent: list[Command] = []

    def publish(ones: list[Command]) -> None:
        for one in ones:
            chain.publish(one.encoded(), one.key)
            models[one.key].take(one)

    def send() -> None:
        euro = {"EUR": {"name": "Euro", "digits": len(sent)}}
        ones = [*map(next, coming), command("CURRENCY", euro, tenantId=source.choice(tenants))]
        publish(ones)
        sent.extend(ones)

    with ExitStack() as running:
        first = Member(chain.platform.services, running)
        for _ in range(24):  # so many commands come with two snapshots
            send()
        for _ in turns():
            if first.loop.work_off(0.5):
                break
        second = Member(chain.platform.services, running)
        with in_threads(second.loop.run):
            for _ in turns():
                if second.ended:
                    break
                if not first.loop.work_off(0.2):
                    send()
            uncommitted = first.leave_before_commit(send)
        second.work_all_off()
        taken_over = [one.command.event for one in second.ended if one.repeated]
        assert uncommitted and {one.command.event for one in uncommitted} <= {*taken_over}
        before = len(second.ended)
        # Each dictionary's in their order, and the dictionaries in another one.
        again = sorted(sent, key=lambda one: one.key, reverse=True)
        publish(again)
        second.work_all_off()
        repeated = second.ended[before:]
    assert len(repeated) == len(again) and all(one.repeated for one in repeated)
    hold_once(chain.platform, sent, models)


def hold_once(platform: Platform, sent: list[Command], models: dict[str, Model]) -> None:
    """Versions have no gap, and each command, or with its chunks each snapshot, was announced once."""
    told = Counter(
        uuid.UUID(one["eventId"])
        for second in (False, True)
        for one in platform.announcements(second=second)
        if f"{one['tenantId']}:{one['dictCode']}" in models
    )
    deltas = {one.event_id for one in sent if one.chunk is None}
    assert {event_id: told.pop(event_id, 0) for event_id in deltas} == dict.fromkeys(deltas, 1)
    chunks: dict[uuid.UUID, dict[int, uuid.UUID]] = defaultdict(dict)
    for one in sent:
        if one.chunk is not None:
            chunks[one.chunk.snapshot_id][one.chunk.index] = one.event_id
    whole = [events.values() for events in chunks.values() if len(events) == 3]
    told_of = [sum(told.pop(event_id, 0) for event_id in events) for events in whole]
    assert whole and told_of == [1] * len(whole)
    assert not told
    for key, model in models.items():
        tenant, _, dict_code = key.partition(":")
        assert outbox(platform, tenant)[dict_code] == list(range(1, model.version + 1))
        if dict_code == "NOTES":
            assert platform.notes(tenant) == dict(sorted(model.items.items()))
        else:
            euro = model.items["EUR"]
            assert platform.currencies(tenant) == {"EUR": (euro["name"], euro["digits"])}


def wait_for(holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.1)
