"""What the broker must be for hints to arrive: looked at once, when a worker starts."""

from __future__ import annotations

from contextlib import closing

import redis
import redis.exceptions

from app.adapters import logs
from app.adapters.topics.streams_redis import Server, errors_of
from app.kernel import errors

log = logs.get(__name__)

SAFE_POLICY = "noeviction"

PROBE = "headworks:probe"
PROBE_MS = 1000


class UnsafeBroker(errors.Fatal):
    """The broker would lose messages."""

    code = "unsafe_broker"


def check(url: str) -> None:
    """Returns when the broker keeps what it is given; UnsafeBroker says in a sentence what to change.

    A broker that does not answer is not judged: workers wait for it. Other brokers than Redis keep
    their messages by themselves.
    """
    if not url.startswith(("redis://", "rediss://")):
        return
    try:
        with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5, protocol=2) as client:
            policy = client.config_get("maxmemory-policy").get("maxmemory-policy", SAFE_POLICY)
            is_cluster = client.info("cluster").get("cluster_enabled") == 1
    except redis.exceptions.ResponseError:
        log.info("broker_not_judged", reason="CONFIG is not allowed")
        return
    except redis.exceptions.RedisError:
        return
    if is_cluster:
        raise UnsafeBroker(
            "The broker is a node of a Redis Cluster, which Celery cannot use: give HEADWORKS_BROKER_URL a"
            " single Redis, Redis with Sentinel, or RabbitMQ."
        )
    if policy != SAFE_POLICY:
        raise UnsafeBroker(
            f"The broker's maxmemory-policy is {policy}, under which queues and bindings may be evicted:"
            f" set it to {SAFE_POLICY}."
        )


def check_takes(url: str) -> None:
    """Returns when this Redis takes what it is given: one that is full, or a replica, answers nevertheless.

    MemoryFull, or ConnectionLost whose sentence says why. Where this user may not write this key it is not
    judged.
    """
    try:
        with errors_of(), closing(Server(url)) as server:
            server.client.set(PROBE, "", px=PROBE_MS)
    except errors.AccessDenied:
        log.info("broker_not_judged", reason="writing is not allowed")
