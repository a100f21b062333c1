"""A Redis that answers and takes nothing, in each of the ways in which that happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.conftest import Servers

WAYS = ("full", "replica", "no replicas")


@pytest.fixture
def full_redis(servers: Servers) -> Iterator[None]:
    """It has no memory left."""
    with redis.Redis.from_url(servers.valkey.url) as client:
        yield from _refuses(client, "full")


@pytest.fixture(params=WAYS)
def refusing(request: pytest.FixtureRequest, servers: Servers) -> Iterator[str]:
    """It takes nothing; the way in which."""
    with redis.Redis.from_url(servers.valkey.url) as client:
        for _ in _refuses(client, request.param):
            yield request.param


def _refuses(client: redis.Redis, way: str) -> Iterator[None]:
    try:
        if way == "full":
            client.config_set("maxmemory", 1)
        elif way == "replica":
            client.replicaof("127.0.0.1", "1")
        else:
            client.config_set("min-replicas-to-write", 3)
        yield
    finally:
        client.config_set("maxmemory", 0)
        client.replicaof("NO", "ONE")
        client.config_set("min-replicas-to-write", 0)
