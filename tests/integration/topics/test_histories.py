"""Recorded histories: producers, consumers that are killed at random, and an engine that goes away.

Each message is a number of its key. Every line that a worker wrote before it was killed stands in one log,
in the order of handling. TOPIC_SEEDS="2 3 4" makes other histories.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from app.adapters.topics import Outgoing
from app.kernel import errors
from tests.integration.topics.conftest import ENGINES, Place, as_json

SEEDS = [int(seed) for seed in os.environ.get("TOPIC_SEEDS", "1").split()]
KEYS, EACH, BATCH = 12, 60, 6
STEPS = 5
DEADLINE_SECONDS = 90.0


class Workers:
    """Three consumers in processes of their own; a killed one is followed by another."""

    def __init__(self, place: Place, topic: str, log: Path) -> None:
        asked = {"topics": as_json(place.topics), "topic": topic, "group": f"{topic}-apply"}
        self._argv = [sys.executable, "-m", "tests.integration.topics.worker"]
        self._argv.append(json.dumps({**asked, "log": str(log), "commits": True, "limit": 5}))
        self._processes = [self._start() for _ in range(3)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._argv, stderr=subprocess.DEVNULL)

    def kill(self, number: int) -> None:
        """That one is gone, and another one comes."""
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start()

    def end(self) -> None:
        """None is left."""
        for process in self._processes:
            process.kill()
            process.wait()


def handled(log: Path) -> dict[str, list[int]]:
    """Of each key the messages that were handled, in order."""
    found: dict[str, list[int]] = {}
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        if not line.startswith("committed "):
            _, key, value = line.split()
            found.setdefault(key, []).append(int(value))
    return found


def publish_all(place: Place, topic: str, number: int, chance: random.Random) -> None:
    """A producer: its keys' messages in order; what was refused is published again."""
    publisher = place.engine().publisher()
    keys = [f"producer:{number}:{k}" for k in range(KEYS // 2)]
    for start in range(0, EACH, BATCH):
        batch = [Outgoing(key, str(n).encode()) for n in range(start, start + BATCH) for key in keys]
        while True:
            try:
                publisher.publish_all(topic, batch)
                break
            except errors.ConnectionLost:
                continue
        time.sleep(chance.uniform(0, 0.4))
    publisher.close()


def history(place: Place, topic: str, tmp_path: Path, seed: int, *, kills: bool, outage: bool) -> None:
    chance = random.Random(seed)
    log = tmp_path / "handled"
    workers = Workers(place, topic, log)
    try:
        producers = [
            threading.Thread(target=publish_all, args=(place, topic, number, random.Random(seed + number)))
            for number in range(2)
        ]
        for producer in producers:
            producer.start()
        for number in range(STEPS):
            time.sleep(chance.uniform(0.3, 1.5))
            if kills:
                workers.kill(chance.randrange(3))
            if outage and number == STEPS // 2:
                place.kill()
                time.sleep(chance.uniform(0.1, 2.0))
                place.start()
        for producer in producers:
            producer.join(DEADLINE_SECONDS)
            assert not producer.is_alive()
        expected = {f"producer:{p}:{k}": list(range(EACH)) for p in range(2) for k in range(KEYS // 2)}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while {key: sorted(set(values)) for key, values in handled(log).items()} != expected:
            assert time.monotonic() < deadline, "some message was never handled"
            time.sleep(0.1)
    finally:
        workers.end()
    firsts = {key: list(dict.fromkeys(values)) for key, values in handled(log).items()}
    assert firsts == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("place", ["kafka-groups", "valkey", "cluster"], indirect=True)
def test_every_message_is_handled_and_first_in_order_though_consumers_are_killed(
    place: Place, topic: str, tmp_path: Path, seed: int
) -> None:
    history(place, topic, tmp_path, seed, kills=True, outage=False)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("place", [name for name in ENGINES if name != "kafka"], indirect=True)
def test_so_it_is_though_the_engine_is_killed_as_well(
    breakable: Place, topic: str, tmp_path: Path, seed: int
) -> None:
    history(breakable, topic, tmp_path, seed, kills=True, outage=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("place", ["kafka"], indirect=True)
def test_so_it_is_though_a_kafka_broker_is_restarted(
    breakable: Place, topic: str, tmp_path: Path, seed: int
) -> None:
    # No consumer is killed: this broker would wait for it, see `tests.engines.kafka`.
    history(breakable, topic, tmp_path, seed, kills=False, outage=True)
