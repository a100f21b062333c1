"""Reads of reference data as they are had outside: a platform that writes, and pods that answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
import yaml

from app.adapters.embedded import leash, machine
from app.refdata.announce import Announcer
from app.refdata.commands import Command
from app.refdata.relay import Relaying
from tests import patience
from tests.conftest import KEY, SECRET, Servers, run_statement
from tests.integration.refdata.platform import FIRST, SECOND, SEED, Platform, command, open_platform
from tests.integration.refdata_query.wire import Answer, Wire, request
from tests.integration.threads import wait_until

ROOT = Path(__file__).parents[3]
PROFILES = ("safe", "fast")
START_SECONDS = 60.0
STOP_SECONDS = 20.0

BRAKED = """
CREATE TABLE braked (tenant_id text, code text, text jsonb, PRIMARY KEY (tenant_id, code));
CREATE TABLE brake (seconds float8);
INSERT INTO brake VALUES (0);
"""
"""A dictionary that takes as long to load as a test wants."""

BRAKED_DICTIONARY = {
    "code": "BRAKED",
    "loadSql": (
        "with held as materialized (select pg_sleep(seconds)::text as slept from brake)"
        " select code as k, text as v from braked, held where tenant_id = :tenantId"
    ),
    "apply": {
        "upsertSql": (
            "insert into braked values (:tenantId, :key, :payload)"
            " on conflict (tenant_id, code) do update set text = excluded.text"
        ),
        "deleteSql": "delete from braked where tenant_id = :tenantId and code = :key",
    },
}


def place(tenant: str, rest: str = "version", code: str = "NOTES") -> str:
    """The address of something of a dictionary."""
    return f"/v1/tenants/{tenant}/dictionaries/{code}/{rest}"


def new_tenant() -> str:
    """A tenant that nobody has heard of."""
    return f"t-{uuid.uuid4().hex[:12]}"


@dataclass
class World:
    """The write side in this process: what it commits, and what it announces of that."""

    platform: Platform
    relaying: Relaying
    closing: list[Any]

    def commit(self, tenant: str, items: dict[str, Any], *, code: str = "NOTES", **members: Any) -> int:
        """The version that these entries make; nobody is told of it."""
        return self.take(command(code, items, tenantId=tenant, **members))

    def take(self, one: Command) -> int:
        """The version that the command makes; nobody is told of it."""
        [ended] = self.platform.apply(one)
        assert ended.status == "COMMITTED" and ended.version is not None, ended
        return ended.version

    def announce(self) -> int:
        """Whatever was committed is announced; how many versions."""
        return self.relaying.work_off()

    def write(self, tenant: str, items: dict[str, Any], *, code: str = "NOTES", **members: Any) -> int:
        """The version that these entries make, committed and announced."""
        version = self.commit(tenant, items, code=code, **members)
        assert self.announce() >= 1
        return version

    def untold(self, tenant: str, items: dict[str, Any], *, code: str = "NOTES") -> tuple[int, bytes]:
        """The version that these entries make, and its announcement, which is left to the test."""
        version = self.commit(tenant, items, code=code)
        [[text]] = self.platform.sql(
            "UPDATE refdata.outbox_event SET published = true"
            f" WHERE tenant_id = '{tenant}' AND version = {version} AND dict_code = '{code}'"
            " RETURNING payload::text"
        )
        return version, str(text).encode()

    def publish(self, payload: bytes) -> None:
        """The payload is on the channel."""
        with self._redis() as client:
            client.publish(self._config.pub_channel, payload)

    def add(self, payload: bytes, field: bytes = b"payload") -> None:
        """The payload is on the stream."""
        with self._redis() as client:
            client.xadd(self._config.stream_key, {field: payload})

    def trim(self) -> None:
        """Nothing is on the stream any more."""
        with self._redis() as client:
            client.xtrim(self._config.stream_key, maxlen=0, approximate=False)

    def epoch(self, *, second: bool = False) -> str:
        """Of which history the database's versions are."""
        return str(self.platform.sql("SELECT epoch FROM refdata.installation", second=second)[0][0])

    def stored(self, tenant: str) -> dict[str, str]:
        """The notes, each with the database's own text of its JSON."""
        return dict(
            self.platform.sql(
                "SELECT item_key, payload::text FROM refdata.dictionary_item"
                f" WHERE tenant_id = '{tenant}' AND dict_code = 'NOTES' AND NOT deleted"
            )
        )

    @contextmanager
    def braked(self, seconds: float) -> Iterator[None]:
        """Loading BRAKED takes so long while the block runs."""
        self.platform.sql(f"UPDATE brake SET seconds = {seconds}")
        try:
            yield
        finally:
            self.platform.sql("UPDATE brake SET seconds = 0")

    @property
    def _config(self) -> Any:
        return self.platform.services.config.refdata.redis

    def _redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.platform.environ["REFDATA_REDIS"])

    def close(self) -> None:
        for part in self.closing:
            part.close()


@contextmanager
def open_world(
    servers: Servers,
    folder: Path,
    *,
    tenant_rules: Mapping[str, Any] | None = None,
    consistency: Mapping[str, Any] | None = None,
    postgres_dsn: str | None = None,
    redis_url: str | None = None,
) -> Iterator[World]:
    """A platform on two databases of its own, whose dictionaries hold nothing."""
    base = (postgres_dsn or servers.postgres.dsn).rsplit("/", 1)[0]
    names = [f"query_{uuid.uuid4().hex[:10]}" for _ in range(2)]
    dsns = [f"{base}/{name}" for name in names]
    for name, dsn, tables in zip(names, dsns, (FIRST + BRAKED, SECOND), strict=True):
        run_statement(f"{base}/postgres", f"CREATE DATABASE {name}")
        run_statement(dsn, tables)
    environ = {
        "REFDATA_FIRST": dsns[0],
        "REFDATA_SECOND": dsns[1],
        "REFDATA_REDIS": redis_url or servers.valkey.url,
    }
    config = folder / f"{names[0]}.yaml"
    config.write_text(_configuration(names[0], tenant_rules, consistency))
    platform = Platform(dsns[0], dsns[1], environ, config, open_platform(servers, config, environ))
    assert all(platform.services.databases[name] for name in ("postgres", "second"))
    announcer = Announcer(platform.services.config.refdata.redis, environ)
    world = World(
        platform,
        Relaying(platform.services, announcer, platform.services.publisher),
        [announcer, platform.services],
    )
    try:
        yield world
    finally:
        world.close()
        for name in names:
            run_statement(f"{base}/postgres", f"DROP DATABASE {name} WITH (FORCE)")


def _configuration(
    name: str, tenant_rules: Mapping[str, Any] | None, consistency: Mapping[str, Any] | None
) -> str:
    found = yaml.safe_load(SEED.read_text())
    refdata = found["refdata"]
    refdata["kafka"]["commandsTopic"] = f"{name}.commands"
    refdata["redis"] |= {"pubChannel": f"{name}:pub", "streamKey": f"{name}:stream"}
    refdata["consistency"] |= consistency or {}
    refdata["dictionaries"].append(BRAKED_DICTIONARY)
    if tenant_rules is not None:
        refdata["security"] = {"tenant": dict(tenant_rules)}
    return yaml.safe_dump(found, sort_keys=False)


class Serving:
    """One pod, supervisor and loader and readers, as `python -m workers.refdata query` starts it."""

    def __init__(
        self,
        world: World,
        folder: Path,
        *,
        profile: str = "safe",
        readers: int = 1,
        port: int | None = None,
        environ: Mapping[str, str | None] | None = None,
    ) -> None:
        """`environ` replaces what the pod would have; None takes a variable away."""
        self.port = port or machine.free_port()
        self.folder = folder
        self.profile = profile
        self._log = folder.with_suffix(".log")
        wanted: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "HEADWORKS_REFDATA_CONFIG": str(world.platform.config),
            "HEADWORKS_REFDATA_BIND": f"127.0.0.1:{self.port}",
            "HEADWORKS_REFDATA_SERVER": profile,
            "HEADWORKS_REFDATA_READERS": str(readers),
            "HEADWORKS_DATA_DIR": str(folder),
            "HEADWORKS_API_KEY": KEY,
            "HEADWORKS_SECRET": SECRET,
            **world.platform.environ,
            **(environ or {}),
        }
        self._environ = {name: value for name, value in wanted.items() if value is not None}
        self.process: subprocess.Popen[bytes] | None = None

    def bind(self, host: str) -> None:
        """It listens at another address of this machine."""
        self._environ["HEADWORKS_REFDATA_BIND"] = f"{host}:{self.port}"

    def begin(self) -> Self:
        """The process has been started; it may not listen yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with machine.open_log(self._log) as output:
            self.process = leash.start(
                [sys.executable, "-m", "workers.refdata", "query"],
                ends_with=signal.SIGTERM, output=output, cwd=ROOT, env=self._environ,
            )  # fmt: skip
        return self

    def start(self) -> Self:
        """It is ready."""
        self.begin()
        self.await_health("readiness", 200)
        return self

    def await_health(self, part: str, status: int, seconds: float = START_SECONDS) -> None:
        """The health of this part has the status."""
        deadline = patience.deadline(seconds)
        while self.health(part) != status:
            assert self.process is not None and self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, (part, self.health(part), self.said())
            time.sleep(0.05)

    def health(self, part: str) -> int | None:
        """The status of this part of its health; None while nobody answers."""
        try:
            return self.get(f"/actuator/health/{part}", Authorization=None).status
        except OSError:
            return None

    def terminate(self) -> None:
        """It has been asked to end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """It has ended in order, in time, and left no process behind."""
        if self.process is None:
            return
        process = self.process
        self.terminate()
        try:
            assert process.wait(seconds * patience.PATIENCE) == 0, self.said()
            assert self.pids() == [], self.said()
        finally:
            self.kill()

    def kill(self) -> None:
        """Nothing of it is there any more."""
        if self.process is not None:
            left = self.pids()
            leash.end_group(self.process)
            self.process.wait()
            for pid in left:
                machine.signal_if_there(pid, signal.SIGKILL)
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What went wrong in the block is what the test tells.
        self.stop() if error is None else self.kill()

    def said(self) -> str:
        """The last lines of its log."""
        return machine.tail(self._log)

    # -- asking it

    def wire(self, **more: Any) -> Wire:
        """A new connection."""
        return Wire(self.port, **more)

    def request(self, target: str, **more: Any) -> bytes:
        """The bytes of a request with the instance's key."""
        headers = more.pop("headers", {})
        pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
        if not any(name.lower() == "authorization" for name, _ in pairs):
            pairs.append(("Authorization", f"Bearer {KEY}"))
        more.setdefault("host", f"127.0.0.1:{self.port}")
        return request(target, headers=pairs, **more)

    def get(self, target: str, *, method: str = "GET", seconds: float = 15.0, **headers: Any) -> Answer:
        """The answer on a connection of its own; `X_Min_Version=3` is the header X-Min-Version.

        With the instance's key, unless there is an Authorization (None: none at all).
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with self.wire(seconds=seconds) as wire:
            wire.send(self.request(target, method=method, headers=named))
            return wire.answer(to_head=method == "HEAD")

    def head(self, target: str, **headers: Any) -> Answer:
        """What it says of an address without its body."""
        return self.get(target, method="HEAD", **headers)

    def turn(self) -> None:
        """The one reader has looked at all of its connections since the call."""
        assert self.get("/actuator/health/liveness", Connection="close").status == 200

    def await_version(
        self, tenant: str, version: int, *, code: str = "NOTES", seconds: float = 10.0, times: int = 1
    ) -> None:
        """So many connections in a row are answered with the version, or a newer one."""
        target = place(tenant, code=code)
        wait_until(
            lambda: all(self._version(target) >= version for _ in range(times)), seconds=seconds
        )  # fmt: skip

    def _version(self, target: str) -> int:
        answer = self.get(target)
        return answer.version if answer.status == 200 else -1

    # -- what it costs

    def pids(self) -> list[int]:
        """Every process of it, the supervisor first."""
        assert self.process is not None
        return [pid for pid, session in _sessions() if session == self.process.pid]

    def own_bytes(self) -> int:
        """The memory of all its processes that no file is behind."""
        return sum(_anonymous_bytes(pid) for pid in self.pids())

    def open_files(self) -> int:
        """How many descriptors all its processes have."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.pids())


def _sessions() -> Iterator[tuple[int, int]]:
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            text = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, _, session = text.rpartition(")")[2].split()[:4]
        if state != "Z":
            yield int(folder.name), int(session)


def _anonymous_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))
