"""The catalog's items from the API to its tables without the API's pace, beside the parts that bound it.

    ./scripts/bench catalog [--items 2000] [--rounds 5]

The replayed API, an emulated S3 and PostgreSQL are processes of their own on the same cores. Each round
changes every item, runs the items' job, and runs it again; in the same round the API is asked for as many
items and the store is given as many objects by nothing but the libraries that the job uses. Printed are
the medians as a table for docs/performance.md.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import boto3
import urllib3
from moto.server import create_backend_app
from werkzeug.serving import make_server

from app.adapters import embedded, migrations, s3
from app.adapters.database import Database
from app.adapters.settings import Settings
from app.catalog import jobs
from app.catalog.client import ENDPOINTS
from app.catalog.normalize import stable_json
from app.catalog.raw_store import build_key
from app.catalog.replay import invented
from app.catalog.replay.server import ReplayServer
from app.catalog.services import Services
from app.kernel.clock import SystemClock

BUCKET = "raw"
APPLICATION_ID, ACCESS_KEY = "12345678-aaaa-bbbb-cccc-1234567890ab", "pk_secret"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "dummy-id", "AWS_SECRET_ACCESS_KEY": "dummy-secret",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip

# -- the servers beside the job


def serve_api(pipe: Connection, count: int) -> None:
    """The replayed API with so many items; each word on the pipe changes all of them."""
    records = list(invented.items(count))
    with ReplayServer() as api:
        for record in records:
            api.put("item", record["itemCode"], record)
        pipe.send(api.url)
        for change in iter(pipe.recv, None):
            for record in records:
                number = int(record["itemPrice"]) + change
                changed = {**record, "itemPrice": number, "reviewCount": number, "pointRate": change % 10 + 1}
                api.put("item", record["itemCode"], changed)
            pipe.send(change)


def serve_s3(pipe: Connection) -> None:
    """An emulated S3 on a port of this machine."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # for this service alone: for all of them it looks for the one that is meant in its own folder each time
    emulator = create_backend_app("s3")
    server = make_server("127.0.0.1", 0, emulator, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(f"http://127.0.0.1:{server.port}")
    pipe.recv()
    server.shutdown()


@contextmanager
def beside(serve: Callable[..., None], *arguments: Any) -> Iterator[tuple[str, Connection]]:
    """The server in a process of its own: its address, and the pipe to it."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments))
    process.start()
    theirs.close()  # so that the end of the process is seen here
    try:
        yield mine.recv(), mine
    finally:
        mine.send(None)
        process.join()


# -- what bounds the job


def ask_bare(url: str, codes: list[str], threads: int) -> None:
    """Every item has been asked for, by the HTTP library alone."""
    pool = urllib3.PoolManager(maxsize=threads, block=True)
    endpoint = ENDPOINTS["item"]

    def ask(code: str) -> None:
        fields = {**endpoint.query, "itemCode": code, "applicationId": APPLICATION_ID, "formatVersion": "2"}
        address = f"{url}{endpoint.path}/{endpoint.version}"
        assert pool.request("GET", address, fields=fields, headers={"accessKey": ACCESS_KEY}).status == 200

    with ThreadPoolExecutor(threads) as workers:
        list(workers.map(ask, codes))


def put_bare(store: s3.Bucket, bodies: dict[str, bytes], threads: int) -> None:
    """Every object stands, put by the S3 library alone."""

    def put(key: str) -> None:
        store.create(key, bodies[key], media_type="application/json")

    with ThreadPoolExecutor(threads) as workers:
        list(workers.map(put, bodies))


# -- the measurement


def main() -> None:
    """The table is on stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ.update(CREDENTIALS)
    print(f"{platform.machine()}, Python {platform.python_version()}, {options.rounds} rounds, medians\n")
    with (
        tempfile.TemporaryDirectory() as room,
        embedded.Postgres(Path(room) / "postgres") as postgres,
        embedded.Valkey(Path(room) / "valkey") as valkey,
        beside(serve_api, options.items) as (api_url, api),
        beside(serve_s3) as (s3_url, _),
    ):
        migrations.migrate(postgres.dsn)
        boto3.client("s3", endpoint_url=s3_url).create_bucket(Bucket=BUCKET)
        settings = Settings(
            database_url=postgres.dsn, broker_url=valkey.url, data_dir=Path(room), catalog_url=api_url,
            catalog_application_id=APPLICATION_ID, catalog_access_key=ACCESS_KEY,
            catalog_interval_seconds=0.0, catalog_raw_url=f"s3://{BUCKET}", storage_endpoint_url=s3_url,
        )  # fmt: skip
        db = Database(
            settings.database_url, name="headworks benchmark", pool_size=settings.catalog_threads + 2
        )
        measure(Services(settings, db, SystemClock()), api, options)
        db.close()


def measure(services: Services, api: Connection, options: argparse.Namespace) -> None:
    """Every line of the table."""
    codes = [record["itemCode"] for record in invented.items(options.items)]
    settings, threads = services.settings, services.settings.catalog_threads
    start = datetime.now(UTC)

    def run(expected: str) -> float:
        nonlocal start
        start += timedelta(seconds=1)
        begun = time.perf_counter()
        outcome = jobs.run_job(services, "JOB-I-01", job_start_at=start, only=codes)
        assert outcome.summary.get("outcomes") == {expected: len(codes)}, outcome
        return time.perf_counter() - begun

    seconds: dict[str, list[float]] = {"asked": [], "put": [], "changed": [], "unchanged": []}
    seconds["new"] = [run("applied")]
    store = s3.Bucket(BUCKET, endpoint_url=settings.storage_endpoint_url)
    body = stable_json(next(invented.items(1)))
    for number in range(1, options.rounds + 1):
        bodies = {
            build_key(entity="bare", source_id=f"{number}/{code}", content_hash="0"): body for code in codes
        }
        begun = time.perf_counter()
        ask_bare(settings.catalog_url, codes, threads)
        seconds["asked"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        put_bare(store, bodies, threads)
        seconds["put"].append(time.perf_counter() - begun)
        api.send(number)
        api.recv()
        seconds["changed"].append(run("applied"))
        seconds["unchanged"].append(run("unchanged"))
    print("| what | items/s |")
    print("|---|---|")
    for name, title in TITLES.items():
        print(f"| {title} | {len(codes) / statistics.median(seconds[name]):,.0f} |")


TITLES = {
    "asked": "asked of the API by urllib3 alone", "put": "put into the store by obstore alone",
    "new": "new: from the API to raw store, ledger and tables", "changed": "changed: the same",
    "unchanged": "unchanged: asked, compared, left alone",
}  # fmt: skip

if __name__ == "__main__":
    main()
