"""Commands of reference data applied, beside the same rows by bare SQL; and how soon a writer hears of it.

    ./scripts/bench refdata [--rounds 5] [--items 1000000]

Deltas are read from a topic of one partition and applied; the limit is one INSERT … ON CONFLICT of as many
rows, many at a time, without versions, requests and announcements. The broker of the Kafka protocol is the
emulator that the tests have. Snapshots come in chunks of 10,000 items.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import flask
import flask.testing
import psycopg2
import psycopg2.extras

from app.access import problems, statuses
from app.adapters import embedded, logs
from app.adapters.settings import Settings
from app.kernel import errors
from app.refdata import commands, services, views
from app.refdata.apply import Applier
from app.refdata.consume import Consuming
from app.refdata.services import Services
from tests.engines.kafka import KafkaBroker

TENANT = "tenant-a"
TABLES = """
CREATE TABLE product (
    tenant_id text, code text, name text, digits integer, version bigint, deleted boolean,
    PRIMARY KEY (tenant_id, code)
)
"""
CONFIG = """
refdata:
  postgres: {urlFromEnv: BENCH_DATABASE}
  redis: {urlFromEnv: BENCH_REDIS}
  kafka:
    commandsTopic: TOPIC
    deadLetterTopic: TOPIC.dlq
    partitions: 1
    BOOTSTRAP
  dictionaries:
    - code: PRODUCT
      loadSql: select code as k, to_jsonb(p) as v from product p where tenant_id = :tenantId and not deleted
      apply:
        upsertSql: |
          insert into product(tenant_id, code, name, digits, version, deleted)
          values (:tenantId, :key, :payload->>'name', cast(:payload->>'digits' as int), :eventVersion, false)
          on conflict (tenant_id, code) do update
          set name = excluded.name, digits = excluded.digits, version = excluded.version, deleted = false
        deleteSql: update product set deleted = true where tenant_id = :tenantId and code = :key
        snapshotStageSql: |
          insert into product(tenant_id, code, name, digits, version, deleted)
          select :tenantId, key, payload->>'name', cast(payload->>'digits' as int), :eventVersion, false
          from jsonb_to_recordset(:snapshotJson) as entry (key text, payload jsonb)
          on conflict (tenant_id, code) do update
          set name = excluded.name, digits = excluded.digits, version = excluded.version, deleted = false
        snapshotFinalizeSql: |
          delete from product where tenant_id = :tenantId and version < :eventVersion
    - code: NOTES
      apply: {mode: DICTIONARY_ITEM}
"""
BARE = """
INSERT INTO product (tenant_id, code, name, digits, version, deleted) VALUES %s
ON CONFLICT (tenant_id, code) DO UPDATE
SET name = excluded.name, digits = excluded.digits, version = excluded.version, deleted = false
"""


def main() -> None:
    """The tables are on stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=1_000_000, help="of the snapshot")
    parser.add_argument("--only", choices=("deltas", "snapshots", "waiting"))
    options = parser.parse_args()
    logs.configure("benchmark")  # a line for each command, as in a process of the fleet
    print(f"{platform.machine()}, Python {platform.python_version()}, {options.rounds} rounds, medians\n")
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stderr(nowhere),
        tempfile.TemporaryDirectory() as room,
        embedded.Postgres(Path(room) / "postgres") as postgres,
        embedded.Valkey(Path(room) / "valkey") as valkey,
        KafkaBroker(Path(room) / "kafka") as kafka,
    ):
        environ = {
            **os.environ, "BENCH_DATABASE": postgres.dsn, "BENCH_REDIS": valkey.url,
            "BENCH_KAFKA": kafka.bootstrap,
        }  # fmt: skip
        run(postgres.dsn, TABLES)
        if options.only in (None, "deltas"):
            deltas(Path(room), environ, options.rounds)
        if options.only in (None, "snapshots"):
            snapshots(Path(room), environ, options.items)
        if options.only in (None, "waiting"):
            waiting(Path(room), environ)


def run(dsn: str, statement: str) -> None:
    """One statement."""
    with contextlib.closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)


@contextlib.contextmanager
def serving(room: Path, environ: dict[str, str], *, kafka: bool) -> Iterator[Services]:
    """The parts of a process, with a topic of its own."""
    config = room / f"{uuid.uuid4().hex}.yaml"
    bootstrap = "bootstrapFromEnv: BENCH_KAFKA" if kafka else ""
    config.write_text(CONFIG.replace("TOPIC", config.stem).replace("BOOTSTRAP", bootstrap))
    settings = Settings(database_url="", broker_url="", data_dir=room, refdata_config=str(config))
    of = services.connect(settings, name="benchmark", environ=environ)
    of.ensure_topics()
    try:
        yield of
    finally:
        of.close()


@contextlib.contextmanager
def applying(of: Services) -> Iterator[Consuming]:
    """A member of the group, with every partition."""
    kafka = of.config.refdata.kafka
    consumer = of.topics.consumer(kafka.commands_topic, group=kafka.group)
    with contextlib.closing(consumer):
        loop = Consuming(
            consumer, of.publisher, Applier(lambda: of.config, of.databases), lambda: of.config, of.clock
        )
        while not consumer.lag():
            loop.work_off(0.1)
        yield loop


def command(code: str, items: list[tuple[str, dict[str, Any]]], **members: Any) -> bytes:
    """As it goes to the topic."""
    body = {
        "eventId": str(uuid.uuid4()), "tenantId": TENANT, "source": "KAFKA", "dictCode": code,
        "eventType": "DELTA",
        "items": [{"key": key, "op": "UPSERT", "payload": payload} for key, payload in items],
    } | members  # fmt: skip
    return commands.decode(json.dumps(body).encode(), now=datetime.now(UTC)).encoded()


# -- deltas


def deltas(room: Path, environ: dict[str, str], rounds: int) -> None:
    """Items applied per second, for commands of different sizes, beside bare SQL."""
    print("| commands | engine | items/s | commands/s | bare SQL, items/s | of bare SQL |")
    print("|---|---|---|---|---|---|")
    for size, number in ((1, 3000), (10, 2000), (100, 500)):
        for kafka in (True, False):
            taken, bare = [], []
            for round_ in range(rounds):
                items = [
                    [
                        (f"k{(n * size + i) % 50_000}", {"name": f"name {round_}", "digits": n})
                        for i in range(size)
                    ]
                    for n in range(number)
                ]
                with serving(room, environ, kafka=kafka) as of, applying(of) as loop:
                    topic = of.config.refdata.kafka.commands_topic
                    for one in items:
                        of.publisher.publish(topic, key=f"{TENANT}:PRODUCT", value=command("PRODUCT", one))
                    began, done = time.monotonic(), 0
                    while done < number:
                        done += loop.work_off(1.0)
                    taken.append(time.monotonic() - began)
                bare.append(by_sql(environ["BENCH_DATABASE"], items))
            seconds, limit = statistics.median(taken), statistics.median(bare)
            rate, limit_rate = size * number / seconds, size * number / limit
            print(
                f"| {number:,} of {size} | {'Kafka protocol' if kafka else 'Redis streams'} | {rate:,.0f} |"
                f" {number / seconds:,.0f} | {limit_rate:,.0f} | {rate / limit_rate:.2f} |", flush=True
            )  # fmt: skip


def by_sql(dsn: str, items: list[list[tuple[str, dict[str, Any]]]]) -> float:
    """Seconds for the same rows, 500 at a time, with a commit for each 200 commands."""
    with contextlib.closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        began = time.monotonic()
        for start in range(0, len(items), 200):
            rows = {
                key: (TENANT, key, payload["name"], payload["digits"], 1, False)
                for one in items[start : start + 200] for key, payload in one
            }  # fmt: skip
            psycopg2.extras.execute_values(cursor, BARE, list(rows.values()), page_size=500)
            connection.commit()
        return time.monotonic() - began


# -- snapshots


def snapshots(room: Path, environ: dict[str, str], items: int) -> None:
    """Seconds from the first chunk in the topic to the commit of the whole."""
    print(f"\n| snapshot of {items:,} items | from the first chunk to the commit | of it the last chunk |")
    print("|---|---|---|")
    for code, what in (
        ("PRODUCT", "into a table of its own, by SQL"),
        ("NOTES", "without a table of its own"),
    ):
        with serving(room, environ, kafka=True) as of, applying(of) as loop:
            began = time.monotonic()
            sender = threading.Thread(target=send_snapshot, args=(of, code, items))
            sender.start()
            chunks = -(-items // commands.MOST_ITEMS)
            done, last = 0, 0.0
            while done < chunks:
                before = time.monotonic()
                done += loop.work_off(1.0)
                last = time.monotonic() - before
            sender.join()
            print(f"| {what} | {time.monotonic() - began:.1f} s | {last:.1f} s |", flush=True)


def send_snapshot(of: Services, code: str, items: int) -> None:
    """Every chunk is in the topic."""
    snapshot_id = str(uuid.uuid4())
    chunks = -(-items // commands.MOST_ITEMS)
    for index in range(chunks):
        keys = range(index * commands.MOST_ITEMS, min(items, (index + 1) * commands.MOST_ITEMS))
        value = command(
            code, [(f"k{n}", {"name": f"name of {n}", "digits": n % 4}) for n in keys],
            eventType="SNAPSHOT", snapshotId=snapshot_id, chunkIndex=index + 1, chunksTotal=chunks,
        )  # fmt: skip
        of.publisher.publish(of.config.refdata.kafka.commands_topic, key=f"{TENANT}:{code}", value=value)


# -- WAIT_COMMIT


def waiting(room: Path, environ: dict[str, str]) -> None:
    """Milliseconds from the commit to the answer, and of the whole request."""
    print("\n| WAIT_COMMIT, 300 requests one by one | p50 | p95 | p99 |")
    print("|---|---|---|---|")
    for kafka in (True, False):
        with serving(room, environ, kafka=kafka) as of, applying(of) as loop:
            stopped = threading.Event()
            thread = threading.Thread(target=loop.run, args=(stopped, lambda: None))
            thread.start()
            after, whole = [], []
            client = application(of).test_client()
            for n in range(320):
                body = {"dictCode": "PRODUCT", "eventType": "DELTA", "items": [
                    {"key": f"k{n}", "op": "UPSERT", "payload": {"name": "a", "digits": n}}
                ]}  # fmt: skip
                began = time.time()
                answer = client.post(
                    f"/v1/tenants/{TENANT}/updates?consistencyMode=WAIT_COMMIT&timeoutMs=1000", json=body
                )
                ended = time.time()
                assert answer.status_code == 200, answer.data
                if n >= 20:
                    committed = datetime.fromisoformat(answer.get_json()["updatedAt"]).timestamp()
                    after.append((ended - committed) * 1000)
                    whole.append((ended - began) * 1000)
            stopped.set()
            thread.join()
        name = "Kafka protocol" if kafka else "Redis streams"
        for what, values in (("from the commit to the answer", after), ("the whole request", whole)):
            found = statistics.quantiles(values, n=100)
            print(
                f"| {name}: {what} | {found[49]:.1f} ms | {found[94]:.1f} ms | {found[98]:.1f} ms |",
                flush=True,
            )


def application(of: Services) -> flask.Flask:
    """The views of the platform alone, open."""
    app = flask.Flask("benchmark")
    of.api_key = "the key of the benchmark"
    app.extensions["refdata"] = of
    app.register_blueprint(views.blueprint)
    app.register_error_handler(
        errors.HeadworksError,
        lambda error: problems.answer(statuses.status_of(error), error.code, error.sentence),
    )
    app.test_client_class = _Client
    return app


class _Client(flask.testing.FlaskClient):
    """Shows the key."""

    def open(self, *args: Any, **named: Any) -> Any:
        named.setdefault("headers", {"Authorization": "Bearer the key of the benchmark"})
        return super().open(*args, **named)


if __name__ == "__main__":
    main()
