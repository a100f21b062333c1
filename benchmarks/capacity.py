"""How many pods 2,000,000 reads a second need, and what breaks first when there are many of them.

    ./scripts/bench capacity             # the tables, from docs/capacity.json
    ./scripts/bench capacity --measure   # that file is made anew on this machine; takes two minutes

The model multiplies what was measured on one pod. It was not run with so many: what it leaves out, such as
load balancers, sidecars and TLS, is said in docs/capacity.md.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import math
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import redis

from app.adapters import embedded, logs
from app.refdata.query import loading
from app.refdata.query.image import Image
from app.refdata.query.loading import Source

ROOT = Path(__file__).parents[1]
FILE, PAGE = ROOT / "docs" / "capacity.json", ROOT / "docs" / "capacity.md"
BEGIN, END = "<!-- tables: made by ./scripts/bench capacity -->", "<!-- end of tables -->"

TARGET = 2_000_000
LOAD = 0.6  # of each core that answers
PODS = (50, 100, 400)
ITEMS = (1_000, 100_000, 1_000_000)
PRIMARY_CORES = 16
LINK_BYTES = 10e9 / 8
RELAY, COALESCE, JITTER = 0.010, 0.020, 0.050
CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class Load:
    """What one load of a dictionary costs, by its number of entries."""

    database_cpu: float
    pod_cpu: float
    sent_bytes: float


@dataclass(frozen=True)
class Measured:
    """What was measured on one pod."""

    machine: str
    reads_per_core: dict[str, float]
    full: dict[int, Load]
    by_keys: Load
    check_cpu: float
    """Of the database, for one comparison of all versions (a hundred dictionaries)."""
    delivery_cpu: float
    """Of Redis, for one announcement to one pod."""

    @classmethod
    def read(cls, path: Path = FILE) -> Measured:
        """As the file has it."""
        found = json.loads(path.read_text())
        found["full"] = {int(number): Load(**load) for number, load in found["full"].items()}
        found["by_keys"] = Load(**found["by_keys"])
        return cls(**found)


# -- the model


def pods_needed(measured: Measured) -> list[tuple[str, int]]:
    """Cores that answer, by server."""
    return [(server, math.ceil(TARGET / (rate * LOAD))) for server, rate in measured.reads_per_core.items()]


def shared(starts: Sequence[float], demand: float, capacity: float, most: float) -> list[float]:
    """When jobs that begin at these times end: they share the capacity evenly, none takes over `most`."""
    waiting = sorted(starts, reverse=True)
    running: list[float] = []  # what was done for everybody when each is over
    now = done = 0.0
    ends: list[float] = []
    while waiting or running:
        rate = min(most, capacity / len(running)) if running else 0.0
        next_end = now + (running[0] - done) / rate if running else math.inf
        next_start = waiting[-1] if waiting else math.inf
        moment = min(next_end, next_start)
        done += rate * (moment - now)
        now = moment
        if next_end <= next_start:
            heapq.heappop(running)
            ends.append(now)
        else:
            waiting.pop()
            heapq.heappush(running, done + demand)
    return ends


def stampede(load: Load, pods: int) -> tuple[float, float, float]:
    """Seconds from the commit until half, 95 and 99 of a hundred pods have a change that all of them load."""
    chance = random.Random(pods)
    starts = [RELAY + COALESCE + chance.random() * JITTER for _ in range(pods)]
    loaded = shared(starts, load.database_cpu, PRIMARY_CORES, 1.0)
    sent = shared(loaded, load.sent_bytes, LINK_BYTES, LINK_BYTES)
    ends = sorted(end + load.pod_cpu for end in sent)
    return tuple(ends[min(len(ends) - 1, math.ceil(len(ends) * part) - 1)] for part in (0.5, 0.95, 0.99))  # type: ignore[return-value]


def most_changes(load: Load, pods: int) -> float:
    """Changes a second of one dictionary at which the primary or its link has nothing left."""
    return min(PRIMARY_CORES / (pods * load.database_cpu), LINK_BYTES / (pods * load.sent_bytes))


def tables(measured: Measured) -> str:
    """The tables of the page."""
    lines = [
        f"Measured on {measured.machine}.",
        "",
        f"| {TARGET:,} reads/s | reads per core and second | cores that answer, at {LOAD:.0%} load |",
        "|---|---|---|",
        *(
            f"| {server} | {measured.reads_per_core[server]:,.0f} | {number} |"
            for server, number in pods_needed(measured)
        ),
        "",
        "| one load | database | pod | bytes |",
        "|---|---|---|---|",
        *(_row(f"all of {number:,} entries", load) for number, load in measured.full.items()),
        _row("one changed key", measured.by_keys),
        "",
        "| entries | pods | way | p50 | p95 | p99 | changes/s at most | p95 ≤ 0.3 s, p99 ≤ 1 s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, full in measured.full.items():
        for pods in PODS:
            for way, load in (("FULL", full), ("KEYS", measured.by_keys)):
                p50, p95, p99 = stampede(load, pods)
                holds = "yes" if p95 <= 0.3 and p99 <= 1 else "**no**"
                lines.append(
                    f"| {number:,} | {pods} | {way} | {p50:.2f} s | {p95:.2f} s | {p99:.2f} s |"
                    f" {most_changes(load, pods):,.1f} | {holds} |"
                )
    lines += [
        "",
        "| pods | Redis: the last is told after | changes/s at most | database, for comparing versions |",
        "|---|---|---|---|",
    ]
    for pods in PODS:
        told = pods * measured.delivery_cpu
        check = pods / CHECK_SECONDS * measured.check_cpu
        lines.append(f"| {pods} | {told * 1000:.1f} ms | {1 / told:,.0f} | {check:.1%} of a core |")
    return "\n".join(lines)


def _row(what: str, load: Load) -> str:
    return (
        f"| {what} | {load.database_cpu * 1000:,.2f} ms | {load.pod_cpu * 1000:,.2f} ms |"
        f" {load.sent_bytes / 1e6:,.3f} MB |"
    )


# -- measuring


def measure(reads_per_core: dict[str, float]) -> Measured:
    """The constants, on this machine."""
    from benchmarks.reads import bench_of

    full: dict[int, Load] = {}
    with bench_of() as bench:
        db, url = bench.of.databases["postgres"], bench.environ["BENCH_DATABASE"]
        dictionary = bench.of.config.dictionaries["OTHERS"]
        source = Source(("tenant-a", "OTHERS"), dictionary, "public")
        folder = bench.room
        for number in ITEMS:
            bench.fill("OTHERS", number)
            rounds = max(3, 200_000 // number)  # the server's time is counted in hundredths of a second
            path = folder / f"measured-{number}.image"
            before, began = _database_cpu(url, db), time.process_time()
            for _ in range(rounds):
                loading.load_all(db, source, path)
            took = time.process_time() - began
            full[number] = Load((_database_cpu(url, db) - before) / rounds, took / rounds, Image(path).size)
        by_keys, check = _small_costs(bench, db, url, source)
    return Measured(f"{_machine()}", reads_per_core, full, by_keys, check, _delivery_cpu())


def _small_costs(bench: Any, db: Any, url: str, source: Source) -> tuple[Load, float]:
    from app.refdata import store

    rounds = 300
    before, began = _database_cpu(url, db), time.process_time()
    for _ in range(rounds):
        with db.transaction(None, snapshot=True) as conn:
            now = source.standing(conn)
            store.changed_keys(conn, source.place, now.version - 1, now.version)
            source.of_keys(conn, ["k77"])
    keys = Load((_database_cpu(url, db) - before) / rounds, (time.process_time() - began) / rounds, 1000.0)
    for number in range(100):
        bench.write("ITEMS", {"k": number}, tenantId=f"tenant-{number}")
    before = _database_cpu(url, db)
    for _ in range(rounds):
        store.standings(db)
    return keys, (_database_cpu(url, db) - before) / rounds


def _database_cpu(url: str, db: Any) -> float:
    """What the one connection's process of the server has used up."""
    from benchmarks.reads import cpu_seconds

    with db.statement() as conn:
        return cpu_seconds([conn.info.backend_pid])


def _delivery_cpu(subscribers: int = 100, messages: int = 2000) -> float:
    """What Redis uses up to tell one pod of one change."""
    from benchmarks.reads import cpu_seconds

    with tempfile.TemporaryDirectory() as name, embedded.Valkey(Path(name)) as valkey:
        client = redis.Redis.from_url(valkey.url)
        pid = int(client.info("server")["process_id"])
        with _listening(valkey.url, subscribers):
            before = cpu_seconds([pid])
            for _ in range(messages):
                client.publish("refdata:inv:pub", b"x" * 250)
            return (cpu_seconds([pid]) - before) / messages / subscribers


@contextlib.contextmanager
def _listening(url: str, number: int) -> Iterator[None]:
    """So many subscribers, which take what they get."""
    channels = [redis.Redis.from_url(url).pubsub() for _ in range(number)]
    for channel in channels:
        channel.subscribe("refdata:inv:pub")
    over = threading.Event()

    def drain() -> None:
        import selectors

        with selectors.DefaultSelector() as selector:
            for channel in channels:
                selector.register(channel.connection._sock, selectors.EVENT_READ)
            while not over.is_set():
                for key, _ in selector.select(0.2):
                    key.fileobj.recv(1 << 20)  # type: ignore[union-attr]

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for channel in channels:
            channel.close()


def _machine() -> str:
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else "this machine"


def main() -> None:
    """The tables are on stdout, and in the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--reads", help="reads per core and second of the servers: fast=120000,safe=25000")
    options = parser.parse_args()
    logs.configure("benchmark", level="ERROR")
    if options.measure:
        pairs = (one.partition("=") for one in options.reads.split(",")) if options.reads else ()
        rates = {name: float(rate) for name, _, rate in pairs} or Measured.read().reads_per_core
        FILE.write_text(json.dumps(asdict(measure(rates)), indent=1) + "\n")
    found = tables(Measured.read())
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{after}")
    print(found)


if __name__ == "__main__":
    main()
