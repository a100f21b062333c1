"""One Redis or a Redis Cluster: its client, its errors in the product's words, and the names of its keys."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import redis
import redis.backoff
import redis.cluster
import redis.connection
import redis.exceptions
import redis.retry

from app.adapters import logs
from app.kernel import errors

log = logs.get(__name__)

TIMEOUT_SECONDS = 3.0
"""Of one answer of Redis. A call on a cluster may ask three times: ANSWER_SECONDS in all."""

SAFE_POLICY = "noeviction"

UNREACHABLE = "Redis cannot be reached."
REFUSED = "Redis refuses these credentials."
READ_ONLY = "Redis is a replica, which takes no writes: its address has to lead to the primary."
WRITES_STOPPED = {
    # how Redis begins its answer   why it takes no writes
    "MISCONF": "Redis takes no writes since it could not save: make room on its disk, its log says more.",
    "NOREPLICAS": "Redis takes no writes since too few replicas follow it (min-replicas-to-write).",
}

_AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ClusterError,
    redis.exceptions.RedisClusterException,
    redis.exceptions.TryAgainError,
)


@contextmanager
def errors_of() -> Iterator[None]:
    """What Redis answers is one of the product's own errors."""
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise errors.MemoryFull() from error
    except redis.exceptions.ReadOnlyError as error:
        raise errors.ConnectionLost(READ_ONLY) from error
    except (redis.exceptions.AuthenticationError, redis.exceptions.NoPermissionError) as error:
        raise errors.AccessDenied(REFUSED) from error
    except _AWAY as error:
        raise errors.ConnectionLost(UNREACHABLE) from error
    except redis.exceptions.ResponseError as error:
        if (why := WRITES_STOPPED.get(str(error).partition(" ")[0])) is None:
            raise
        raise errors.ConnectionLost(why) from error


class Server:
    """One Redis or a Redis Cluster, whichever answers at the address; found out when it is used first."""

    def __init__(self, url: str) -> None:
        self._urls = [part.strip() for part in url.split(",") if part.strip()]
        self._lock = threading.Lock()
        self._client: Any = None

    @property
    def client(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def close(self) -> None:
        """The connections are closed; the next use makes others."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def nodes(self) -> list[Any]:
        """The masters of a cluster; none of a single Redis."""
        client: Any = self.client
        is_cluster = isinstance(client, redis.cluster.RedisCluster)
        return list(client.get_primaries()) if is_cluster else []

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """What the script returns. Sent whole only to a node that does not know it."""
        with errors_of():
            client = self.client
            try:
                return client.evalsha(_sha(script), len(keys), *keys, *arguments)
            except redis.exceptions.NoScriptError:
                return client.eval(script, len(keys), *keys, *arguments)

    def shape(self, keys: Keys, topic: str) -> tuple[int, int]:
        """The topic's partitions, and its largest message; NotFound."""
        with errors_of():
            partitions, max_bytes = self.client.hmget(keys.topic, "partitions", "max_bytes")
        if partitions is None:
            raise errors.NotFound(f"There is no topic {topic}.")
        return int(partitions), int(max_bytes)

    def check_policy(self) -> None:
        """Raises when a node may evict what it was given; one that does not say is not judged."""
        for node in [self.client.get_redis_connection(node) for node in self.nodes()] or [self.client]:
            try:
                policy = node.config_get("maxmemory-policy").get("maxmemory-policy", SAFE_POLICY)
            except redis.exceptions.ResponseError:
                log.info("redis_not_judged", reason="CONFIG is not allowed")
                continue
            if policy != SAFE_POLICY:
                raise errors.Fatal(
                    f"Redis has the maxmemory-policy {policy}, under which messages may be evicted:"
                    f" set it to {SAFE_POLICY}.",
                    code="unsafe_broker",
                )

    def _connect(self) -> Any:
        # redis-py has no types for these.
        parse_url: Any = redis.connection.parse_url
        node_at: Any = redis.cluster.ClusterNode
        failure: Exception = errors.ConnectionLost(UNREACHABLE)
        for url in self._urls:
            try:
                single = redis.Redis.from_url(
                    url, **_connection(redis.retry.Retry(redis.backoff.NoBackoff(), 0))
                )
                if single.info("cluster").get("cluster_enabled") != 1:
                    return single
                single.close()
                nodes = [parse_url(node) for node in self._urls]
                return redis.cluster.RedisCluster(
                    startup_nodes=[
                        node_at(node.get("host", "localhost"), node.get("port", 6379)) for node in nodes
                    ],
                    **{name: value for name, value in nodes[0].items() if name not in ("host", "port", "db")},
                    **_connection(redis.retry.Retry(redis.backoff.ConstantBackoff(0.05), 1)),
                )
            except _AWAY as error:
                failure = error
        raise failure


def _connection(retry: redis.retry.Retry) -> dict[str, Any]:
    return {
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "retry": retry,
        "protocol": 2,
    }


@cache
def _sha(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


class Keys:
    """The names of what a topic has in Redis."""

    def __init__(self, prefix: str, topic: str) -> None:
        self.topic = f"{prefix}{topic}"
        self.channel = f"{self.topic}:wake"

    def members(self, group: str) -> str:
        return f"{self.topic}:members:{group}"

    def stream(self, partition: int) -> str:
        return f"{{{self.topic}:{partition}}}"

    def state(self, partition: int) -> str:
        return f"{self.stream(partition)}:state"

    def asleep(self, partition: int) -> str:
        return f"{self.stream(partition)}:asleep"

    def owner(self, partition: int, group: str) -> str:
        return f"{self.stream(partition)}:owner:{group}"
