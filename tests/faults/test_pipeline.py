"""Daemons of every stage die at random and lose answers; by the pipeline's account each task was done once.

HEADWORKS_PIPELINE_TASKS is how many tasks there are (240 without it, 2000 for a long run).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
import urllib3

from app.adapters import embedded
from app.pipeline import states
from app.pipeline.client import PipelineClient
from app.pipeline.states import QUEUES
from tests import patience
from tests.conftest import Servers
from tests.faults.proxy import Proxy

TASKS = int(os.environ.get("HEADWORKS_PIPELINE_TASKS", "240"))
SHARDS = 20
LEASE_SECONDS = 2
WORKERS = [stage for stage in QUEUES for _ in range(3)][:8]
"""Eight daemons of the stages that are handed out; this process is the daemon of the first stage."""

SWEEP = 1.0
GRACE = 2.0  # until a claim comes that looks for leases that have run out


@pytest.fixture
def database_url(servers: Servers) -> Iterator[str]:
    name = f"pipeline_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    yield servers.dsn_of(name)
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def server_port(database_url: str) -> Iterator[int]:
    """The pipeline alone, as it is run."""
    port = embedded.free_port()
    environ = {**os.environ, "HEADWORKS_PIPELINE_DATABASE_URL": database_url}
    argv = [sys.executable, "-m", "app.cli", "pipeline", "serve", "--bind", f"127.0.0.1:{port}"]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until_ready(port)
            yield port
        finally:
            server.terminate()


def wait_until_ready(port: int) -> None:
    until = patience.deadline(30)
    while time.monotonic() < until:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            if urllib3.request("GET", f"http://127.0.0.1:{port}/readyz", retries=False).status == 200:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not answer")


@pytest.fixture
def network(server_port: int) -> Iterator[Proxy]:
    """The network between the daemons and the pipeline, which loses answers."""
    found = Proxy(server_port)
    found.heal()
    yield found
    found.close()


class Daemons:
    """The daemons, each begun again when it dies."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._begun = 0
        self.killed = 0
        self.processes = [self._begin(stage) for stage in WORKERS]

    def _begin(self, stage: str) -> subprocess.Popen[bytes]:
        self._begun += 1
        program = [
            sys.executable, "-m", "tests.faults.pipeline_daemon", self._url, stage, f"{stage}-{self._begun}",
            str(LEASE_SECONDS), str(self._begun),
        ]  # fmt: skip
        return subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill_one(self, source: random.Random) -> None:
        """One of them is no more, and another one of its stage begins."""
        at = source.randrange(len(self.processes))
        self.processes[at].send_signal(signal.SIGKILL)
        self.processes[at].wait()
        self.killed += 1
        self.processes[at] = self._begin(WORKERS[at])

    def end(self) -> None:
        """None is left."""
        for process in self.processes:
            process.kill()
            process.wait()


def test_every_task_is_done_once_whoever_dies_and_whatever_is_lost(network: Proxy, database_url: str) -> None:
    source = random.Random(7)
    url = f"http://127.0.0.1:{network.port}"
    client = PipelineClient(url, worker_id="event-ingest")
    network.lose_answers(b"POST /api/v1/pipeline", [n for n in range(200_000) if source.random() < 0.03])
    daemons = Daemons(url)
    try:
        for number in range(TASKS // SHARDS):
            filename = f"2025010100{number:04}"
            client.register(filename, range(SHARDS))
            client.finish_ingest(filename)
        end = time.monotonic() + 60 + TASKS / 5
        killed_at = time.monotonic() + 2.0
        while (sent := client.summary()["by_stage"]["mysql_sender"]["done"]) < TASKS:
            assert time.monotonic() < end, client.summary()
            if time.monotonic() > killed_at:
                daemons.kill_one(source)
                killed_at = time.monotonic() + source.uniform(0.5, 2.0)
            for stage in QUEUES:
                client.retry_failed(stage)
            time.sleep(0.2)
    finally:
        daemons.end()
    assert (sent, daemons.killed > 3, network.lost > TASKS / 20) == (TASKS, True, True)
    assert done_by_stage(database_url) == dict.fromkeys(states.STAGES, TASKS)
    assert longest_after_lease(database_url) < LEASE_SECONDS + SWEEP + GRACE


def done_by_stage(database_url: str) -> dict[str, int]:
    """How many tasks were done in each stage; AssertionError when one was done twice in the same."""
    rows = ask(database_url, "SELECT filename, shard, stage FROM pipeline_history WHERE to_status = 'done'")
    assert len(rows) == len(set(rows))
    return dict(Counter(stage for _, _, stage in rows))


def longest_after_lease(database_url: str) -> float:
    """The longest that a task was at work before its lease had run out and it waited again, in seconds."""
    ((longest,),) = ask(
        database_url,
        "SELECT extract(epoch FROM max(h.at - (SELECT max(b.at) FROM pipeline_history b"
        " WHERE (b.filename, b.shard, b.stage, b.to_status) = (h.filename, h.shard, h.stage, 'started')"
        " AND b.id < h.id))) FROM pipeline_history h WHERE h.error_code = 'LEASE_EXPIRED'",
    )
    return float(longest or 0.0)


def ask(database_url: str, statement: str) -> list[tuple[Any, ...]]:
    connection = psycopg2.connect(database_url, connect_timeout=5)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    finally:
        connection.close()
