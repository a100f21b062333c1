"""A broker that speaks the Kafka protocol.

By default `noida-db --only kafka` from the package noida-db: an emulator with groups, transactions and
persistence in one small binary, and not Apache Kafka. It keeps what it has when it is told to end; what
it acknowledged in the seconds before a kill -9 it may lose, which is why tests only stop it.

What it does not do is to miss a member of a group: a consumer that was killed keeps its partitions for
ever. Neither does it always bring a rebalance to an end that begins while another one does. What needs
that runs against the mock cluster inside librdkafka, which knows groups and sessions but no restart.

With HEADWORKS_KAFKA_BOOTSTRAP set, both are the cluster that is named there, which is never stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from app.adapters.embedded import free_port, leash, machine

START_SECONDS = 20.0

NAMED = "HEADWORKS_KAFKA_BOOTSTRAP"


class MockCluster:
    """librdkafka's own mock of a cluster, in this process; topics come to be with 4 partitions."""

    def __init__(self, _folder: Path) -> None:
        self.is_real = NAMED in os.environ
        self.bootstrap = os.environ.get(NAMED, "")
        self._owner: Producer | None = None

    def start(self) -> None:
        """Its broker listens, for other processes too."""
        if not self.is_real:
            self._owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0})
            (broker,) = self._owner.list_topics(timeout=START_SECONDS).brokers.values()
            self.bootstrap = f"{broker.host}:{broker.port}"

    def make(self, topic: str) -> None:
        """The topic is there: the mock makes it for whoever asks, and takes no request to make it."""
        assert self._owner is not None
        self._owner.list_topics(topic, timeout=START_SECONDS)

    def stop(self) -> None:
        """The mock and what it held are gone."""
        self._owner = None


class KafkaBroker:
    """A running broker; `is_real` when it is a cluster that somebody named."""

    def __init__(self, folder: Path) -> None:
        named = os.environ.get(NAMED, "")
        self.is_real = bool(named)
        self._folder = folder
        self._port = 0 if named else free_port()
        self.bootstrap = named or f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The broker answers a request for its metadata."""
        if not self.is_real:
            from noida_db import cli  # The wheel has no public name for the path of its binary.

            binary = Path(cli.__file__).with_name("noida-db")
            self._folder.mkdir(parents=True, exist_ok=True)
            argv = [str(binary), "start", "--only", "kafka", "--kafka-port", str(self._port)]
            argv += ["--data-dir", str(self._folder / "data")]
            with machine.open_log(self._folder / "server.log") as output:
                self._process = leash.start(argv, ends_with=signal.SIGTERM, output=output)
        self._await_answer()

    def stop(self) -> None:
        """The broker has ended in order, and kept what it had."""
        if self._process is not None:
            leash.stop(self._process, (signal.SIGTERM, 10.0))
            self._process = None

    @property
    def runs(self) -> bool:
        """Whether the broker was started and not stopped."""
        return self._process is not None

    def freeze(self) -> None:
        """Its connections stand, and nothing answers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        # Its log lines would say, each 50 ms, that the broker is not there yet.
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        while True:
            try:
                admin.list_topics(timeout=1.0)
                return
            except KafkaException as error:
                ended = self._process is not None and self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    said = machine.tail(self._folder / "server.log")
                    raise RuntimeError(f"no Kafka broker at {self.bootstrap}:\n{said}") from error
