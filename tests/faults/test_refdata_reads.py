"""Pods that answer reads while what they need is away, and while their processes die.

HEADWORKS_REFDATA_READS is how many reads are checked (20,000 without it).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.adapters import embedded
from app.adapters.embedded import machine
from app.adapters.settings import Settings
from app.kernel import errors
from app.refdata import commands, services
from app.refdata.announce import Announcer
from app.refdata.apply import Applier
from app.refdata.relay import Relaying
from app.refdata.services import Services
from tests import patience
from tests.faults.proxy import Proxy
from tests.faults.refdata_history import KEY, TENANT, Client, History, Model

READS = int(os.environ.get("HEADWORKS_REFDATA_READS", "20000"))
CONVERGED_SECONDS = 2.0 * patience.PATIENCE
CODES = ("BY_KEYS", "IN_FULL")
KEYS = [f"k{n}" for n in range(200)]
CONFIG = """
refdata:
  postgres: {urlFromEnv: FAULTY_DATABASE}
  redis: {urlFromEnv: FAULTY_REDIS, pubChannel: CHANNEL}
  dictionaries:
    - {code: BY_KEYS, apply: {mode: DICTIONARY_ITEM}, reloadOnEvent: KEYS}
    - {code: IN_FULL, apply: {mode: DICTIONARY_ITEM}, reloadOnEvent: FULL}
"""


@dataclass
class Pod:
    """One pod of the fleet."""

    port: int
    process: subprocess.Popen[bytes]

    def get(self, path: str) -> dict[str, Any]:
        """The JSON at this path."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {KEY}"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return dict(json.load(answer))

    def versions(self) -> dict[str, tuple[int, str]]:
        """Version and checksum of each dictionary; nothing of one that does not answer."""
        found = {}
        for code in CODES:
            with contextlib.suppress(OSError):
                says = self.get(f"/v1/tenants/{TENANT}/dictionaries/{code}/version")
                found[code] = (says["version"], says["checksum"])
        return found

    def member(self, role: str) -> int:
        """The process of this role."""
        of = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return next(
            int(pid) for pid in of if f"query-{role}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        )


@dataclass
class Fleet:
    """Databases, pods, and somebody who writes."""

    postgres: embedded.Postgres
    valkey: embedded.Valkey
    proxy: Proxy
    of: Services
    pods: list[Pod]
    history: History
    stopped: threading.Event = field(default_factory=threading.Event)

    def write(self, model: Model, items: dict[str, Any]) -> None:
        """The entries are committed; it is tried until it is known that they are."""
        body = {
            "eventId": str(uuid.uuid4()), "tenantId": TENANT, "source": "REST", "dictCode": model.code,
            "eventType": "DELTA",
            "items": [
                {"key": key, "op": "DELETE"} if payload is None
                else {"key": key, "op": "UPSERT", "payload": payload}
                for key, payload in items.items()
            ],
        }  # fmt: skip
        command = commands.decode(json.dumps(body).encode(), now=datetime.now(UTC))
        model.wrote(model.committed + 1, items)
        applier = Applier(lambda: self.of.config, self.of.databases)
        while True:
            try:
                [ended] = applier.apply([(command, None)])
                break
            except errors.Transient:
                if self.stopped.wait(0.05):
                    return
        assert ended.version == model.committed + 1
        model.committed = ended.version

    def keep_writing(self) -> None:
        """About fifty versions a second, in turn of each dictionary."""
        chance = random.Random(7)
        while not self.stopped.wait(0.02):
            model = self.history.models[chance.randrange(len(self.history.models))]
            keys = chance.sample(KEYS, chance.randint(1, 3))
            self.write(
                model, {key: None if chance.random() < 0.1 else {"n": chance.random()} for key in keys}
            )

    @contextlib.contextmanager
    def fault(self) -> Iterator[None]:
        """Something is out of order; afterwards every pod soon has what was committed until then."""
        began = time.monotonic()
        self.history.faults.append((began, float("inf")))
        yield
        ended = time.monotonic()
        self.history.faults[-1] = (began, ended + CONVERGED_SECONDS)
        wanted = {model.code: model.committed for model in self.history.models}
        while behind := self.behind(wanted):
            assert time.monotonic() < ended + CONVERGED_SECONDS, behind
            time.sleep(0.02)

    def behind(self, wanted: dict[str, int]) -> str:
        """Which pod does not have these versions; empty: each has."""
        for number, pod in enumerate(self.pods):
            has = pod.versions()
            if any(has.get(code, (-1, ""))[0] < version for code, version in wanted.items()):
                return f"pod {number} has {has}, wanted are {wanted}"
        return ""

    def wait_until(self, is_so: Callable[[], bool], seconds: float = 30) -> None:
        """It has become so."""
        deadline = patience.deadline(seconds)
        while True:
            with contextlib.suppress(OSError, StopIteration):
                if is_so():
                    return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def is_ready(self, pod: Pod) -> bool:
        """Whether the pod answers, and has heard from its loader lately."""
        return pod.get("/actuator/health").get("loader") == "UP"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three pods: one hears everything, one is behind a network of its own, the channel never reaches one."""
    with contextlib.ExitStack() as running:
        postgres = running.enter_context(embedded.Postgres(tmp_path / "postgres"))
        valkey = running.enter_context(embedded.Valkey(tmp_path / "valkey"))
        proxy = Proxy(int(valkey.url.rsplit(":", 1)[1].split("/")[0]))
        running.callback(proxy.close)
        environ = {
            **os.environ, "FAULTY_DATABASE": postgres.dsn, "FAULTY_REDIS": valkey.url,
            "HEADWORKS_DATA_DIR": str(tmp_path), "HEADWORKS_API_KEY": KEY,
        }  # fmt: skip
        config = write_config(tmp_path / "refdata.yaml", "refdata:inv:pub")
        settings = Settings(database_url="", broker_url="", data_dir=tmp_path, refdata_config=str(config))
        of = services.connect(settings, name="faults", environ=environ)
        running.callback(of.close)
        announcer = Announcer(of.config.refdata.redis, environ)
        running.callback(announcer.close)
        history = History([Model(code) for code in CODES])
        found = Fleet(postgres, valkey, proxy, of, [], history)
        for model in history.models:
            found.write(model, {key: {"n": -1} for key in KEYS})
        deaf = write_config(tmp_path / "deaf.yaml", "nobody:speaks:here")
        far = proxy.leads_to(valkey.url)
        of_pods = (("fast", valkey.url, config), ("safe", far, config), ("fast", valkey.url, deaf))
        for number, (server, redis_url, file) in enumerate(of_pods):
            port = machine.free_port()
            log = running.enter_context((tmp_path / f"pod-{number}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", "workers.refdata", "query"], stderr=log,
                env=environ | {
                    "HEADWORKS_REFDATA_CONFIG": str(file), "HEADWORKS_REFDATA_BIND": f"127.0.0.1:{port}",
                    "HEADWORKS_REFDATA_SERVER": server, "FAULTY_REDIS": redis_url,
                },
            )  # fmt: skip
            found.pods.append(Pod(port, process))
        try:
            for pod in found.pods:
                found.wait_until(lambda pod=pod: found.is_ready(pod))  # type: ignore[misc]
            relaying = Relaying(of, announcer, of.publisher)
            with ThreadPoolExecutor() as threads:
                relay = threads.submit(relaying.run, found.stopped, lambda: None)
                writer = threads.submit(found.keep_writing)
                try:
                    yield found
                finally:
                    found.stopped.set()
                    relay.result(30)
                    writer.result(30)
        finally:
            for pod in found.pods:
                pod.process.send_signal(signal.SIGTERM)
            codes = [pod.process.wait(30 * patience.PATIENCE) for pod in found.pods]
        assert codes == [0, 0, 0]


def write_config(path: Path, channel: str) -> Path:
    """A configuration whose pods listen to this channel."""
    path.write_text(CONFIG.replace("CHANNEL", channel))
    return path


def test_no_answer_is_below_its_barrier_or_other_than_its_version(fleet: Fleet) -> None:
    clients = [Client(fleet.history, [pod.port for pod in fleet.pods], KEYS, seed) for seed in range(4)]
    over = threading.Event()

    def ask() -> None:
        async def all_clients() -> None:
            await asyncio.gather(*(client.run(lambda: not over.is_set()) for client in clients))

        asyncio.run(all_clients())

    with ThreadPoolExecutor() as threads:
        asking = threads.submit(ask)
        try:
            while True:
                for fault in FAULTS:
                    wait_for_reads(fleet, fleet.history.reads + READS // (2 * len(FAULTS)))
                    fault(fleet)
                if fleet.history.reads >= READS:
                    break
        finally:
            over.set()
            asking.result(60)
    print(f"{fleet.history.reads} reads: {fleet.history.sources}, excused {fleet.history.excused}")
    assert fleet.history.wrong == []
    assert fleet.history.sources["memory"] > READS // 2
    assert (
        fleet.history.sources["postgres_fallback"] > 0
    )  # the deaf pod was asked for what it could not know yet
    fleet.stopped.set()
    fleet.wait_until(lambda: agree(fleet))


def agree(fleet: Fleet) -> bool:
    """Whether all pods have the same entries, at the versions that were committed."""
    found = [pod.versions() for pod in fleet.pods]
    committed = {model.code: model.committed for model in fleet.history.models}
    has = {code: version for code, (version, _) in found[0].items()}
    return found[0] == found[1] == found[2] and has == committed


def wait_for_reads(fleet: Fleet, number: int) -> None:
    """So many reads have been answered."""
    fleet.wait_until(lambda: fleet.history.reads >= number or bool(fleet.history.wrong), 60)
    assert fleet.history.wrong == []


# -- what goes wrong


def redis_is_down(fleet: Fleet) -> None:
    with fleet.fault():
        fleet.valkey.kill()
        time.sleep(3.0)
        fleet.valkey.start()


def network_is_silent(fleet: Fleet) -> None:
    with fleet.fault():
        fleet.proxy.silence()
        time.sleep(4.0)
        fleet.proxy.heal()


def postgres_is_restarted(fleet: Fleet) -> None:
    with fleet.fault():
        fleet.postgres.kill()
        time.sleep(1.0)
        fleet.postgres.start()


def reader_is_killed(fleet: Fleet) -> None:
    with fleet.fault():
        pod = fleet.pods[0]
        os.kill(pod.member("reader"), signal.SIGKILL)
        fleet.wait_until(lambda: fleet.is_ready(pod))


def loader_is_killed(fleet: Fleet) -> None:
    with fleet.fault():
        pod = fleet.pods[1]
        killed = pod.member("loader")
        os.kill(killed, signal.SIGKILL)
        fleet.wait_until(lambda: pod.member("loader") != killed and fleet.is_ready(pod))


def pod_stands_still(fleet: Fleet) -> None:
    with fleet.fault():
        pids = [fleet.pods[2].member(role) for role in ("reader", "loader")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.0)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


FAULTS = (
    redis_is_down, network_is_silent, postgres_is_restarted, reader_is_killed, loader_is_killed,
    pod_stands_still,
)  # fmt: skip
