"""Claim and done over HTTP beside the same by bare SQL, and what a claim costs as the table grows.

    ./scripts/bench pipeline [--seconds 5] [--rounds 5] [--clients 8]

The server is `headworks pipeline serve` with two processes, PostgreSQL is at work on the same cores, and the
clients are threads of two processes: each claims one task and says that it is done, again and again.
By bare SQL the same clients send the same two statements themselves.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg2

from app.adapters import embedded, queries
from app.adapters.database import Database
from app.pipeline import services
from app.pipeline.states import QUEUES

STAGE = QUEUES["shard-worker"]
FILL = """
INSERT INTO pipeline_tracking (filename, shard, event_ingest_status, shard_splitter_status)
SELECT 'file-' || n / 100, n %% 100, 'done', 'done' FROM generate_series(%(first)s, %(last)s) AS n
"""
_sql = queries.load("pipeline", STAGE=STAGE.column, BEFORE="shard_splitter")


def main() -> None:
    """The tables are on stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, {options.rounds} rounds, medians\n")
    with (
        tempfile.TemporaryDirectory() as room,
        embedded.Postgres(Path(room) / "postgres") as postgres,
        serving(postgres.dsn, Path(room)) as url,
    ):
        pairs(postgres.dsn, url, options)
        growth(postgres.dsn, options)


@contextlib.contextmanager
def serving(dsn: str, room: Path) -> Iterator[str]:
    """The pipeline alone, as it is run."""
    bind = f"127.0.0.1:{embedded.free_port()}"
    (room / "metrics").mkdir()
    environ = {
        **os.environ, "HEADWORKS_PIPELINE_DATABASE_URL": dsn,
        "PROMETHEUS_MULTIPROC_DIR": str(room / "metrics"),
    }  # fmt: skip
    argv = [sys.executable, "-m", "app.cli", "pipeline", "serve", "--bind", bind]
    with subprocess.Popen(argv, env=environ, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(bind)
            yield f"http://{bind}"
        finally:
            server.terminate()


def wait_for(bind: str) -> None:
    """The server answers."""
    for _ in range(200):
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(bind, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError("the server does not answer")


# -- claim and done

Kind = Callable[[str, str], Callable[[], bool]]
"""Makes what one client does, from an address and its worker_id."""


def by_sql(dsn: str, worker_id: str) -> Callable[[], bool]:
    """One pair, by the two statements."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True

    def pair() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                CLAIM, {"limit": 1, "worker_id": worker_id, "lease_seconds": 60, "stage": STAGE.name}
            )
            task = cursor.fetchone()
            if task is None:
                return False
            cursor.execute(FINISH, {
                "stage": STAGE.name, "target": "done", "sources": ["started"], "filename": task[1],
                "shard": task[2], "worker_id": None, "lease_token": task[6], "error_code": None,
                "error_message": None,
            })  # fmt: skip
        return True

    return pair


CLAIM, FINISH = (str(getattr(_sql, name).sql) for name in ("claim", "finish"))


def by_http(url: str, worker_id: str) -> Callable[[], bool]:
    """One pair, by the two calls."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def call(path: str, body: dict[str, Any]) -> Any:
        connection.request("POST", f"/api/v1/pipeline{path}", json.dumps(body))
        answer = connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status == 200, found
        return found

    def pair() -> bool:
        items = call(f"/queues/{STAGE.name}/claim", {"worker_id": worker_id})["items"]
        for item in items:
            body = {name: item[name] for name in ("filename", "shard", "lease_token")}
            call(f"/stages/{STAGE.name}/done", body)
        return bool(items)

    return pair


def clients(kind: Kind, address: str, number: int, seconds: float) -> float:
    """Pairs a second of so many clients, in two processes."""
    context = multiprocessing.get_context("spawn")
    counted = context.Queue()
    processes = [
        context.Process(target=client_process, args=(kind, address, number // 2, seconds, counted, at))
        for at in range(2)
    ]
    for process in processes:
        process.start()
    found = sum(counted.get() for _ in processes)
    for process in processes:
        process.join()
    return found


def client_process(
    kind: Kind,
    address: str,
    number: int,
    seconds: float,
    counted: Any,
    at: int,
) -> None:
    """Half of the clients; the pairs a second that they came to."""
    done = [0] * number

    def work(client: int) -> None:
        pair = kind(address, f"client-{at}-{client}")
        pair()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            if not pair():
                raise AssertionError("nothing waits any more")
            done[client] += 1

    threads = [threading.Thread(target=work, args=(client,)) for client in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted.put(sum(done) / seconds)


def pairs(dsn: str, url: str, options: argparse.Namespace) -> None:
    """The first table."""
    bare, served = [], []
    for _ in range(options.rounds):
        fill(dsn, int(10_000 * options.seconds))
        bare.append(clients(by_sql, dsn, options.clients, options.seconds))
        fill(dsn, int(10_000 * options.seconds))
        served.append(clients(by_http, url, options.clients, options.seconds))
    sql, http_ = statistics.median(bare), statistics.median(served)
    print(f"| {options.clients} clients | pairs of claim and done a second |")
    print("|---|---|")
    print(f"| bare SQL | {sql:,.0f} |")
    print(f"| over HTTP | {http_:,.0f} |")
    print(f"| ratio | {http_ / sql:.2f} |\n")


def fill(dsn: str, tasks: int) -> None:
    """So many tasks wait, and there are no others."""
    run(dsn, "TRUNCATE pipeline_tracking, pipeline_history")
    run(dsn, FILL, first=1, last=tasks)
    run(dsn, "VACUUM ANALYZE pipeline_tracking")


def run(dsn: str, statement: str, **parameters: Any) -> None:
    """One statement as the owner of the database."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
    connection.close()


# -- growth


def growth(dsn: str, options: argparse.Namespace) -> None:
    """The second table."""
    print("| tasks in the table | one claim |")
    print("|---|---|")
    costs = {}
    for tasks in (10_000, 100_000, 1_000_000):
        fill(dsn, tasks)
        costs[tasks] = statistics.median(claims(dsn, 500))
        print(f"| {tasks:,} | {costs[tasks] * 1000:.2f} ms |", flush=True)
    print(f"| ratio of the last to the first | {costs[1_000_000] / costs[10_000]:.2f} |")


def claims(dsn: str, number: int) -> list[float]:
    """Seconds of each of so many claims."""
    db = Database(dsn, name="headworks benchmark")
    services.apply_ddl(db)
    found = []
    for _ in range(number):
        begun = time.perf_counter()
        with db.statement() as conn:
            rows = list(_sql.claim(conn, limit=1, worker_id="w", lease_seconds=60, stage=STAGE.name))
        found.append(time.perf_counter() - begun)
        assert rows
    db.close()
    return found


if __name__ == "__main__":
    main()
