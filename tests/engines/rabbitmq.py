"""A RabbitMQ of these tests' own (Debian: rabbitmq-server), with its own directory of Erlang's nodes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import kombu

from app.adapters.embedded import free_port, leash, machine
from tests import patience

BINARY = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS = 40.0


class RabbitMq:
    """One broker on this machine."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._directory_port, self._node_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self) -> None:
        """It answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "plugins").write_text("[].\n")
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{self.port}\nloopback_users = none\n"
        )
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "ERL_EPMD_PORT": str(self._directory_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        with machine.open_log(self._folder / "server.log") as output:
            if self._directory is None:
                self._directory = leash.start(["epmd"], ends_with=signal.SIGTERM, output=output, env=env)
                self._await(self._directory_port)
            self._process = leash.start([str(BINARY)], ends_with=signal.SIGTERM, output=output, env=env)
        self._await(self.port)
        with kombu.Connection(self.url, connect_timeout=5) as connection:
            connection.ensure_connection(max_retries=20, interval_start=0.5, interval_max=0.5)

    def _await(self, port: int) -> None:
        until = patience.deadline(START_SECONDS)
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=2).close()
                return
            except OSError:
                assert time.monotonic() < until, (self._folder / "server.log").read_text()
                time.sleep(0.1)

    def stop(self) -> None:
        """It has ended in order, and knows its queues at the next start."""
        if self._process is not None:
            leash.stop(self._process, (signal.SIGTERM, 30.0))
            leash.end_group(self._process)
            self._process = None

    def kill(self) -> None:
        """It is gone without a word."""
        if self._process is not None:
            leash.end_group(self._process)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._directory is not None:
            leash.stop(self._directory, (signal.SIGTERM, 5.0))
