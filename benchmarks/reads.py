"""Reads of reference data from memory, beside nginx that answers a constant, in the same run.

    ./scripts/bench reads [--rounds 5] [--seconds 3] [--only throughput|scaling|load|freshness|million]

The server has a core of its own, and everything else the other one, wrk too; what counts is the number of
requests for each second of its processor. nginx and wrk have to be installed. uvicorn with a callable
that answers a constant shows what the safe profile could reach at most.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.adapters import embedded, logs
from app.adapters.settings import Settings
from app.refdata import commands, services
from app.refdata.announce import Announcer
from app.refdata.apply import Applier
from app.refdata.relay import Relaying
from app.refdata.services import Services

TENANT = "tenant-a"
KEY = "the key of the benchmark"
SERVER_CORE, OTHER_CORE = 1, 0
AT_ONCE = 4
"""So many commands are applied in one transaction where many a second are."""

ITEM = {"name": "Name of the entry", "digits": 2, "note": "as long as most of them are, and not longer"}
CONFIG = """
refdata:
  postgres: {urlFromEnv: BENCH_DATABASE}
  redis: {urlFromEnv: BENCH_REDIS}
  query: {checkSeconds: 5}
  dictionaries:
    - {code: ITEMS, apply: {mode: DICTIONARY_ITEM}, reloadOnEvent: KEYS}
    - {code: OTHERS, apply: {mode: DICTIONARY_ITEM}, reloadOnEvent: FULL}
"""
NGINX = """
worker_processes 1; daemon off; pid FOLDER/nginx.pid; error_log /dev/null;
events { worker_connections 2048; }
http {
    access_log off; keepalive_requests 1000000000;
    server { listen 127.0.0.1:PORT; location / { default_type application/json; return 200 'BODY'; } }
}
"""
UVICORN = """
import sys, uvicorn
body = sys.argv[1].encode()
start = {
    "type": "http.response.start", "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
}
async def app(scope, receive, send):
    await send(start)
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, port=int(sys.argv[2]), loop="uvloop", http="httptools", lifespan="off", access_log=False,
            log_config=None, proxy_headers=False)
"""


@dataclass
class Bench:
    """Databases, and what writes to them."""

    room: Path
    environ: dict[str, str]
    of: Services

    def write(self, code: str, items: dict[str, Any], **members: Any) -> int:
        """The version that these items make."""
        return self.write_all(code, [items], **members)[0]

    def write_all(self, code: str, commands_: Sequence[dict[str, Any]], **members: Any) -> list[int]:
        """The versions that these commands make, in one transaction as from a topic."""
        made = []
        for items in commands_:
            body = {
                "eventId": str(uuid.uuid4()), "tenantId": TENANT, "source": "REST", "dictCode": code,
                "eventType": "DELTA",
                "items": [{"key": key, "op": "UPSERT", "payload": payload} for key, payload in items.items()],
            } | members  # fmt: skip
            made.append((commands.decode(json.dumps(body).encode(), now=datetime.now(UTC)), None))
        ended = Applier(lambda: self.of.config, self.of.databases).apply(made)
        assert all(one.error_code is None for one in ended), ended[0].sentence
        return [one.version or 0 for one in ended]

    def fill(self, code: str, number: int) -> int:
        """A dictionary of so many entries."""
        snapshot, total = str(uuid.uuid4()), -(-number // commands.MOST_ITEMS)
        version = 0
        for index in range(total):
            keys = range(index * commands.MOST_ITEMS, min(number, (index + 1) * commands.MOST_ITEMS))
            version = self.write(
                code, {f"k{n}": ITEM | {"digits": n} for n in keys}, eventType="SNAPSHOT",
                snapshotId=snapshot, chunkIndex=index + 1, chunksTotal=total,
            )  # fmt: skip
        return version

    @contextlib.contextmanager
    def relay(self) -> Iterator[None]:
        """What is committed is announced."""
        announcer = Announcer(self.of.config.refdata.redis, self.environ)
        stopped = threading.Event()
        relaying = Relaying(self.of, announcer, self.of.publisher)
        thread = threading.Thread(target=relaying.run, args=(stopped, lambda: None))
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
            announcer.close()

    @contextlib.contextmanager
    def pod(self, server: str, readers: int = 1) -> Iterator[Pod]:
        """A pod that is ready."""
        port = free_port()
        environ = self.environ | {
            "HEADWORKS_REFDATA_SERVER": server, "HEADWORKS_REFDATA_READERS": str(readers),
            "HEADWORKS_REFDATA_BIND": f"127.0.0.1:{port}",
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.refdata", "query"], env=environ, stderr=subprocess.DEVNULL
        )
        try:
            pod = Pod(process, port)
            pod.wait_until_ready()
            yield pod
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@dataclass
class Pod:
    """A pod, and what it costs."""

    process: subprocess.Popen[bytes]
    port: int

    def wait_until_ready(self, seconds: float = 120) -> None:
        """Every dictionary is loaded."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                self.get("/actuator/health")
                return
            assert time.monotonic() < deadline and self.process.poll() is None
            time.sleep(0.05)

    def get(self, path: str) -> tuple[dict[str, str], bytes]:
        """The answer of one request."""
        request = urllib.request.Request(self.url(path), headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return {name.lower(): value for name, value in answer.headers.items()}, answer.read()

    def url(self, path: str) -> str:
        """The address of a path of this pod."""
        return f"http://127.0.0.1:{self.port}{path}"

    def members(self, role: str) -> list[int]:
        """The processes of this role."""
        found = []
        for pid in children(self.process.pid):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if f" query-{role}" in line:
                found.append(pid)
        return found


def children(pid: int) -> list[int]:
    """The processes that this one has started, and theirs."""
    of = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return of + [one for child in of for one in children(child)]


def cpu_seconds(pids: Sequence[int]) -> float:
    """What these processes have used up."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mib(pids: Sequence[int]) -> float:
    """What these processes have in memory, shared pages shared out."""
    found = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        found += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
    return found / 1024


def pin(pids: Sequence[int], core: int) -> None:
    """These processes run on this core alone, all their threads."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), {core})


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Load:
    """What wrk saw."""

    requests: float
    per_cpu_second: float
    p50: float
    p95: float
    p99: float


SCRIPT = """
done = function(summary, latency, requests)
    io.write(string.format("FOUND %d %d %.0f %.0f %.0f %d\\n", summary.requests, summary.duration,
        latency:percentile(50), latency:percentile(95), latency:percentile(99),
        summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout))
end
"""


def wrk(
    url: str, pids: Sequence[int], *, connections: int, seconds: float, core: int = OTHER_CORE,
    headers: Sequence[str] = (), script: str = "",
) -> Load:  # fmt: skip
    """Requests for this address, and what the processes used up for them."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(SCRIPT + script)
        file.flush()
        before = cpu_seconds(pids)
        done = subprocess.run(
            ["taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "-s",
             file.name, "-H", f"Authorization: Bearer {KEY}",
             *[part for one in headers for part in ("-H", one)], url],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        used = cpu_seconds(pids) - before
    found = re.search(r"FOUND (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", done.stdout)
    assert found is not None, done.stdout
    number, took, p50, p95, p99, failed = map(int, found.groups())
    assert failed == 0, done.stdout
    return Load(number / took * 1e6, number / max(used, 0.01), p50 / 1000, p95 / 1000, p99 / 1000)


@contextlib.contextmanager
def nginx(room: Path, body: str) -> Iterator[tuple[str, list[int]]]:
    """nginx that answers this body, whatever is asked for: its address, its processes."""
    port, folder = free_port(), Path(tempfile.mkdtemp(dir=room))
    file = folder / "nginx.conf"
    file.write_text(NGINX.replace("FOLDER", str(folder)).replace("PORT", str(port)).replace("BODY", body))
    process = subprocess.Popen(["nginx", "-c", str(file)], stderr=subprocess.DEVNULL)
    with running(process, port) as found:
        yield found


@contextlib.contextmanager
def uvicorn(body: str) -> Iterator[tuple[str, list[int]]]:
    """uvicorn with a callable that answers this body, whatever is asked for."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", UVICORN, body, str(port)], stderr=subprocess.DEVNULL)
    with running(process, port) as found:
        yield found


@contextlib.contextmanager
def running(process: subprocess.Popen[bytes], port: int) -> Iterator[tuple[str, list[int]]]:
    """The address and the processes of a server that listens."""
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", [process.pid, *children(process.pid)]
    finally:
        process.terminate()
        process.wait(10)


def address(code: str, rest: str) -> str:
    """The path of a dictionary."""
    return f"/v1/tenants/{TENANT}/dictionaries/{code}/{rest}"


def median(loads: Sequence[Load]) -> Load:
    """The median of each figure."""
    return Load(*[
        statistics.median(getattr(load, name) for load in loads)
        for name in ("requests", "per_cpu_second", "p50", "p95", "p99")
    ])  # fmt: skip


# -- throughput


def throughput(bench: Bench, rounds: int, seconds: float) -> None:
    """Requests for each second of the server's processor."""
    bench.fill("ITEMS", 10_000)
    keys = ",".join(f"k{n}" for n in range(100, 150))
    item, some, whole = (address("ITEMS", rest) for rest in ("items/k77", f"items?keys={keys}", "all"))
    asked = [
        ("item", item, 16, ()), ("item", item, 64, ()), ("keys=50", some, 16, ()),
        ("all, 10,000 items", whole, 16, ()), ("all, gzip", whole, 16, ("Accept-Encoding: gzip",)),
    ]  # fmt: skip
    found: dict[tuple[str, int, str], list[Load]] = {}
    with bench.pod("safe") as safe, bench.pod("fast") as fast, contextlib.ExitStack() as limits:
        body = fast.get(item)[1].decode()
        of = {
            "nginx, a constant": limits.enter_context(nginx(bench.room, body)),
            "uvicorn, a constant": limits.enter_context(uvicorn(body)),
            "fast": (fast.url(""), fast.members("reader")),
            "safe": (safe.url(""), safe.members("reader")),
        }
        for _, pids in of.values():
            pin(pids, SERVER_CORE)
        for _ in range(rounds):
            for what, path, connections, headers in asked:
                for name, (url, pids) in of.items():
                    if what == "item" or "constant" not in name:
                        load = wrk(
                            url + path, pids, connections=connections, seconds=seconds, headers=headers
                        )
                        found.setdefault((what, connections, name), []).append(load)
    print(
        "| read | connections | server | requests per CPU-second | of nginx | requests/s | p50 | p95 | p99 |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (what, connections, name), loads in found.items():
        load = median(loads)
        limit = found.get((what, connections, "nginx, a constant"))
        ratio = f"{load.per_cpu_second / median(limit).per_cpu_second:.2f}" if limit else ""
        print(
            f"| {what} | {connections} | {name} | {load.per_cpu_second:,.0f} | {ratio} |"
            f" {load.requests:,.0f} | {load.p50:.2f} ms | {load.p95:.2f} ms | {load.p99:.2f} ms |",
            flush=True,
        )


# -- two processes


def scaling(bench: Bench, rounds: int, seconds: float) -> None:
    """Each core has a reader and its own load: both together beside each alone."""
    bench.fill("ITEMS", 10_000)
    path = address("ITEMS", "items/k77")
    print("\n| server | one reader | two readers | ratio |")
    print("|---|---|---|---|")
    for server in ("fast", "safe"):
        ones: list[float] = []
        twos: list[float] = []
        with bench.pod(server) as first, bench.pod(server) as second:
            pods = {OTHER_CORE: first, SERVER_CORE: second}
            for core, pod in pods.items():
                pin(pod.members("reader"), core)

            def load(core: int, pods: dict[int, Pod] = pods) -> float:
                return wrk(pods[core].url(path), [], connections=32, seconds=seconds, core=core).requests

            for _ in range(rounds):
                ones.append(statistics.mean(map(load, pods)))
                with ThreadPoolExecutor() as threads:
                    twos.append(sum(threads.map(load, pods)))
        one, two = statistics.median(ones), statistics.median(twos)
        print(f"| {server} | {one:,.0f}/s | {two:,.0f}/s | {two / one:.2f} |", flush=True)


# -- at 70 % of the peak, and while a dictionary is loaded


DELAY = """
math.randomseed(os.time())
delay = function() return math.floor(-MEAN * math.log(1 - math.random()) + 0.5) end
"""


def under_load(bench: Bench, rounds: int, seconds: float) -> None:
    """How long a read takes while others are at work, and while a dictionary of 100,000 entries is loaded."""
    bench.fill("ITEMS", 10_000)
    bench.fill("OTHERS", 100_000)
    print("\n| server | at | requests/s | p50 | p95 | p99 |")
    print("|---|---|---|---|---|---|")
    path = address("ITEMS", "items/k77")
    for server in ("fast", "safe"):
        with bench.pod(server) as pod, bench.relay():
            pids = pod.members("reader")
            pin(pids, SERVER_CORE)
            peak = wrk(pod.url(path), pids, connections=64, seconds=seconds).requests
            script = DELAY.replace("MEAN", f"{1000 * 256 / (0.7 * peak):.3f}")
            still = median(
                [
                    wrk(pod.url(path), pids, connections=256, seconds=seconds, script=script)
                    for _ in range(rounds)
                ]
            )
            show(f"| {server} | about 70 % of its peak", still)
            stopped = threading.Event()
            written: list[int] = []

            def write(stopped: threading.Event = stopped, written: list[int] = written) -> None:
                while not stopped.is_set():
                    written.append(bench.write("OTHERS", {f"k{len(written)}": ITEM}))
                    stopped.wait(1.0)

            writer = threading.Thread(target=write)
            writer.start()
            busy = median(
                [
                    wrk(pod.url(path), pids, connections=256, seconds=max(seconds, 5), script=script)
                    for _ in range(rounds)
                ]
            )
            stopped.set()
            writer.join()
            show(f"| {server} | the same, 100,000 entries loaded each second", busy)


def show(begin: str, load: Load) -> None:
    """A row."""
    print(
        f"{begin} | {load.requests:,.0f} | {load.p50:.2f} ms | {load.p95:.2f} ms | {load.p99:.2f} ms |",
        flush=True,
    )


# -- freshness


def freshness(bench: Bench, pods: int = 8, per_second: int = 200, seconds: float = 20) -> None:
    """From the commit to the moment at which a reader of every pod is told of the version."""
    bench.fill("ITEMS", 10_000)
    committed: dict[int, float] = {}
    seen: list[dict[int, float]] = [{} for _ in range(pods)]
    with contextlib.ExitStack() as running:
        of = [running.enter_context(bench.pod("fast")) for _ in range(pods)]
        running.enter_context(bench.relay())
        stopped = threading.Event()
        threads = [
            threading.Thread(target=watch, args=(pod, seen[n], stopped), daemon=True)
            for n, pod in enumerate(of)
        ]
        for thread in threads:
            thread.start()
        until(lambda: all(seen))  # each watcher has been told where it begins
        began = time.monotonic()
        for number in range(0, int(per_second * seconds), AT_ONCE):
            wait = began + number / per_second - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            before = time.time()
            changes = [{f"k{n % 10_000}": ITEM | {"digits": n}} for n in range(number, number + AT_ONCE)]
            committed.update(dict.fromkeys(bench.write_all("ITEMS", changes), before))
        rate = len(committed) / (time.monotonic() - began)
        until(lambda: all(max(one) >= max(committed) for one in seen))
        stopped.set()
    delays = []
    for one in seen:
        at, versions = 0, sorted(one)
        for version, moment in sorted(committed.items()):
            while at < len(versions) and versions[at] < version:
                at += 1
            assert at < len(versions), "a version was never seen"
            delays.append((one[versions[at]] - moment) * 1000)
    cuts = statistics.quantiles(delays, n=100)
    print("\n| pods | writes/s | from before the commit until visible in a pod: p50 | p95 | p99 | max |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {pods} | {rate:,.0f} | {cuts[49]:.0f} ms | {cuts[94]:.0f} ms | {cuts[98]:.0f} ms |"
        f" {max(delays):.0f} ms |", flush=True,
    )  # fmt: skip


def watch(pod: Pod, seen: dict[int, float], stopped: threading.Event) -> None:
    """When a reader first told of each version."""
    request = urllib.request.Request(
        pod.url(address("ITEMS", "watch")), headers={"Authorization": f"Bearer {KEY}"}
    )
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60) as stream:
        for line in stream:
            if line.startswith(b"id: "):
                seen.setdefault(int(line[4:]), time.time())
            if stopped.is_set():
                return


# -- a million entries


def million(bench: Bench, rounds: int, seconds: float, number: int) -> None:
    """A large dictionary is loaded, served, and loaded anew, while an item of another one is read."""
    bench.fill("ITEMS", 10_000)
    bench.fill("OTHERS", number)
    with bench.pod("fast") as pod, bench.relay():
        pids = pod.members("reader")
        pin(pids, SERVER_CORE)
        began = time.monotonic()
        version = bench.write("OTHERS", {"k1": ITEM})
        until(lambda: version_of(pod, "OTHERS") >= version)
        took = time.monotonic() - began
        path = address("OTHERS", "items/k77")
        script = DELAY.replace("MEAN", f"{1000 * 64 / 10_000:.3f}")
        still = median(
            [
                wrk(pod.url(path), pids, connections=64, seconds=max(seconds, took + 2), script=script)
                for _ in range(rounds)
            ]
        )
        loads = []
        for _ in range(rounds):
            version = bench.write("OTHERS", {"k2": ITEM | {"digits": version}})
            loads.append(
                wrk(pod.url(path), pids, connections=64, seconds=max(seconds, took + 2), script=script)
            )
            assert version_of(pod, "OTHERS") >= version, "not loaded while it was measured"
        peak = memory_mib(pod.members("reader") + pod.members("loader"))
        image = max(one.stat().st_size for one in bench.room.glob("refdata-query/*/*.image"))
    print(f"\n| {number:,} entries | |\n|---|---|")
    print(f"| from the commit until a reader has it, all loaded anew | {took:.1f} s |")
    print(f"| image | {image / (1 << 20):,.0f} MiB, {image / number:,.0f} B an entry |")
    print(
        f"| loader and reader together (PSS) | {peak:,.0f} MiB, {peak * (1 << 20) / number:,.0f} B an entry |"
    )
    for what, load in (("nothing is loaded", still), ("it is loaded anew", median(loads))):
        print(
            f"| 10,000 reads/s while {what} | p50 {load.p50:.2f}, p95 {load.p95:.2f}, p99 {load.p99:.2f} ms |"
        )


def version_of(pod: Pod, code: str) -> int:
    """The version that the pod serves."""
    return int(pod.get(address(code, "version"))[0]["x-dict-version"])


def until(is_so: Callable[[], bool], seconds: float = 120) -> None:
    """It has become so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def main() -> None:
    """The tables are on stdout."""
    parts = ("throughput", "scaling", "load", "freshness", "million")
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--items", type=int, default=1_000_000, help="of the large dictionary")
    parser.add_argument("--only", choices=parts)
    options = parser.parse_args()
    for program in ("wrk", "nginx", "taskset"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed, and nothing can be measured without it.")
    logs.configure("benchmark", level="ERROR")
    os.sched_setaffinity(0, {OTHER_CORE})  # and so are databases and loaders, which are started from here
    print(f"{platform.machine()}, Python {platform.python_version()}, {options.rounds} rounds, medians\n")
    for part in parts:
        if options.only in (None, part):
            with bench_of() as bench:
                {
                    "throughput": lambda: throughput(bench, options.rounds, options.seconds),
                    "scaling": lambda: scaling(bench, options.rounds, options.seconds),
                    "load": lambda: under_load(bench, options.rounds, options.seconds),
                    "freshness": lambda: freshness(bench),
                    "million": lambda: million(bench, options.rounds, options.seconds, options.items),
                }[part]()


@contextlib.contextmanager
def bench_of() -> Iterator[Bench]:
    """Databases of one measurement."""
    with (
        tempfile.TemporaryDirectory() as name,
        embedded.Postgres(Path(name) / "postgres") as postgres,
        embedded.Valkey(Path(name) / "valkey") as valkey,
    ):
        room = Path(name)
        config = room / "refdata.yaml"
        config.write_text(CONFIG)
        environ = {
            **os.environ, "BENCH_DATABASE": postgres.dsn, "BENCH_REDIS": valkey.url,
            "HEADWORKS_REFDATA_CONFIG": str(config), "HEADWORKS_DATA_DIR": name, "HEADWORKS_API_KEY": KEY,
        }  # fmt: skip
        settings = Settings(database_url="", broker_url="", data_dir=room, refdata_config=str(config))
        of = services.connect(settings, name="benchmark", environ=environ)
        try:
            yield Bench(room, environ, of)
        finally:
            of.close()


if __name__ == "__main__":
    main()
