"""A broker that would lose messages is refused at start, in a sentence."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from app.adapters import broker, embedded
from tests.conftest import Servers


@contextlib.contextmanager
def _setting(url: str, name: str, value: str) -> Iterator[None]:
    with redis.Redis.from_url(url) as client:
        before = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)


def test_the_embedded_broker_is_safe(servers: Servers) -> None:
    broker.check(servers.valkey.url)


def test_a_policy_that_evicts_is_refused(servers: Servers) -> None:
    with (
        _setting(servers.valkey.url, "maxmemory-policy", "allkeys-lru"),
        pytest.raises(broker.UnsafeBroker, match=r"is allkeys-lru.*set it to noeviction"),
    ):
        broker.check(servers.valkey.url)


def test_a_broker_that_does_not_answer_is_not_judged() -> None:
    broker.check(f"redis://127.0.0.1:{embedded.free_port()}/0")


def test_other_brokers_are_not_judged() -> None:
    broker.check("amqp://localhost//")


def test_a_worker_does_not_start_on_a_broker_that_evicts(
    servers: Servers, database_url: str, tmp_path: Path
) -> None:
    env = {
        **os.environ,
        "HEADWORKS_DATABASE_URL": database_url,
        "HEADWORKS_BROKER_URL": servers.valkey.url,
        "HEADWORKS_DATA_DIR": str(tmp_path),
    }
    argv = [sys.executable, "-m", "celery", "-A", "workers.fleet", "worker", "-Q", "parse", "-c", "1"]
    with _setting(servers.valkey.url, "maxmemory-policy", "volatile-ttl"):
        ended = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "maxmemory-policy is volatile-ttl" in ended.stderr.strip().splitlines()[-1]
