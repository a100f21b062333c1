"""The engines that keep the contract of topics, each with what it takes to break it."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from app.adapters import embedded, topics
from app.adapters.topics import Consumer, Engine, Message, Publisher, Topics
from app.kernel.clock import SystemClock
from tests import patience
from tests.engines.kafka import KafkaBroker, MockCluster
from tests.engines.redis_cluster import RedisCluster

PARTITIONS = 4
MAX_BYTES = 1_000_000
ENGINES = ("kafka", "valkey", "cluster")

GROUP_ENGINES = ("kafka-groups", "valkey", "cluster")
"""Those that notice consumers which are gone; see `tests.engines.kafka`."""

LEASE_SECONDS = {"kafka": 6.0, "kafka-groups": 6.0, "valkey": 2.0, "cluster": 2.0}
"""A real Kafka takes no session timeout below 6 s."""

PATIENCE_SECONDS = 30.0


@dataclass
class Place:
    """A running engine and the ways to take it away."""

    name: str
    topics: Topics
    stop: Callable[[], None]  # all of it, or of the cluster one node, in order
    start: Callable[[], None]
    kill: Callable[[], None]  # without a word, where what was acknowledged has to survive that
    freeze: Callable[[], None]
    thaw: Callable[[], None]
    is_breakable: bool = True
    make: Callable[[str], None] | None = None  # a topic, where `ensure` cannot

    @property
    def lease_seconds(self) -> float:
        return self.topics.lease_seconds

    def engine(self) -> Engine:
        """A new one, with connections of its own."""
        return topics.connect(self.topics, SystemClock())


@pytest.fixture(scope="session")
def _places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Place]]:
    running: dict[str, tuple[Any, Place]] = {}

    def find(name: str) -> Place:
        if name not in running:
            server = _SERVERS[name](tmp_path_factory.mktemp(name))
            server.start()
            running[name] = server, _PLACES[name](server)
        return running[name][1]

    yield find
    for server, _ in running.values():
        server.stop()


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, _places: Callable[[str], Place]) -> Place:
    """One engine after the other."""
    return _places(request.param)


@pytest.fixture
def breakable(place: Place) -> Iterator[Place]:
    """An engine that may be stopped; it runs again afterwards."""
    if not place.is_breakable:
        pytest.skip("HEADWORKS_KAFKA_BOOTSTRAP names a cluster, which tests do not stop")
    yield place
    place.thaw()
    place.start()


@pytest.fixture
def topic(place: Place) -> str:
    """A topic of this test's own."""
    name = f"refdata.test-{uuid.uuid4().hex[:10]}"
    if place.make is not None:
        place.make(name)
    else:
        place.engine().ensure(name, partitions=PARTITIONS, max_bytes=MAX_BYTES)
    return name


@pytest.fixture
def publisher(place: Place) -> Iterator[Publisher]:
    """A publisher, closed at the end."""
    made = place.engine().publisher()
    yield made
    made.close()


@pytest.fixture
def consumer(place: Place, topic: str) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers of the topic, by default in one group; closed at the end."""
    made: list[Consumer] = []

    def make(group: str = "apply") -> Consumer:
        made.append(place.engine().consumer(topic, group=f"{topic}-{group}"))
        return made[-1]

    yield make
    for one in made:
        one.close()


def read(consumer: Consumer, count: int, *, seconds: float = PATIENCE_SECONDS) -> list[Message]:
    """So many messages, or all that came in time."""
    found: list[Message] = []
    deadline = patience.deadline(seconds)
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(count - len(found), 0.2)
    return found


def poll_until(is_so: Callable[[], bool], *consumers: Consumer, seconds: float = PATIENCE_SECONDS) -> None:
    """Each consumer polls, and keeps nothing, until it is so."""
    deadline = patience.deadline(seconds)
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        for one in consumers:
            assert one.poll(1, 0.05) == []


def shares(*consumers: Consumer) -> list[set[int]]:
    """The partitions that each has."""
    return [set(one.lag()) for one in consumers]


def by_key(messages: list[Message]) -> dict[str, list[bytes]]:
    """The values of each key, in order."""
    found: dict[str, list[bytes]] = {}
    for message in messages:
        found.setdefault(message.key, []).append(message.value)
    return found


def as_json(topics_: Topics) -> dict[str, Any]:
    """For a process of its own."""
    return asdict(topics_)


def nothing() -> None:
    """Of a cluster that belongs to somebody else, or cannot be stopped."""


def _kafka_groups(server: MockCluster) -> Place:
    where = Topics(bootstrap=server.bootstrap, lease_seconds=LEASE_SECONDS["kafka-groups"])
    five = (nothing,) * 5
    return Place(
        "kafka-groups", where, *five, is_breakable=False, make=None if server.is_real else server.make
    )


def _kafka(server: KafkaBroker) -> Place:
    where = Topics(bootstrap=server.bootstrap, lease_seconds=LEASE_SECONDS["kafka"])

    def start() -> None:
        if not server.runs:
            server.start()

    if server.is_real:
        return Place("kafka", where, nothing, nothing, nothing, nothing, nothing, is_breakable=False)
    # No kill: the emulator promises to keep what it has only when it is told to end.
    return Place("kafka", where, server.stop, start, server.stop, server.freeze, server.thaw)


def _valkey(server: embedded.Valkey) -> Place:
    where = Topics(redis_url=server.url, lease_seconds=LEASE_SECONDS["valkey"])

    def signal_it(signum: signal.Signals) -> Callable[[], None]:
        def send() -> None:
            if server.pid is not None:
                os.kill(server.pid, signum)

        return send

    def start() -> None:
        if server.pid is None:
            server.start()

    freeze, thaw = signal_it(signal.SIGSTOP), signal_it(signal.SIGCONT)
    return Place("valkey", where, server.stop, start, server.kill, freeze, thaw)


def _cluster(server: RedisCluster) -> Place:
    where = Topics(redis_url=server.url, lease_seconds=LEASE_SECONDS["cluster"])
    node = server.nodes[0]

    def start() -> None:
        if not node.runs:
            node.start()
        server.await_ok()

    return Place("cluster", where, node.stop, start, node.kill, node.freeze, node.thaw)


_SERVERS: dict[str, Callable[[Path], Any]] = {
    "kafka": KafkaBroker,
    "kafka-groups": MockCluster,
    "valkey": embedded.Valkey,
    "cluster": RedisCluster,
}
_PLACES: dict[str, Callable[[Any], Place]] = {
    "kafka": _kafka,
    "kafka-groups": _kafka_groups,
    "valkey": _valkey,
    "cluster": _cluster,
}
