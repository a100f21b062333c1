"""A whole fleet: the processes of the Procfile on a database and a broker of their own."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from playwright.sync_api import Browser, sync_playwright

from app import cli
from app.adapters import embedded
from tests import patience
from tests.acceptance.browser import ARGUMENTS, CHROMIUM
from tests.acceptance.collector import Collector
from tests.conftest import KEY, SECRET, Servers

ROOT = Path(__file__).parent.parent.parent
TERMINAL = ("completed", "partial", "failed")
TOKEN_SECRET = "a secret that signs the tokens of this test run"
TENANTS = """
  security:
    tenant:
      algorithms: [HS256]
      secretFromEnv: REFDATA_TOKEN_SECRET
"""
"""Who may speak for a tenant: whoever has a token that names it."""


def token_of(tenant_id: str) -> str:
    """A token that speaks for this tenant, for an hour."""
    claims = {"sub": "tests", "tenant_id": tenant_id, "exp": int(time.time()) + 3600}
    return jwt.encode(claims, TOKEN_SECRET, algorithm="HS256")


class Problem(Exception):
    """The API answered with a problem."""

    def __init__(self, status: int, body: dict[str, Any], headers: Any) -> None:
        super().__init__(f"{status} {body}")
        self.status, self.body, self.headers = status, body, headers


@dataclass(frozen=True)
class Api:
    """The HTTP API of one running fleet, used as any client would."""

    url: str
    key: str = KEY

    def send(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, bytes]:
        """Status, headers and body; Problem for an error answer."""
        request = urllib.request.Request(self.url + path, data=body, headers=headers or {})
        if self.key:
            request.add_header("Authorization", f"Bearer {self.key}")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            assert error.headers["Content-Type"] == "application/problem+json", text
            raise Problem(error.code, json.loads(text), error.headers) from None

    def get(self, path: str, **query: str) -> Any:
        text = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        return json.loads(self.send(text)[2])

    def post_json(self, path: str, body: Any) -> Any:
        return json.loads(self.send(path, json.dumps(body).encode(), {"Content-Type": "application/json"})[2])

    def upload(self, content: bytes, *, headers: dict[str, str] | None = None, **fields: str | None) -> Any:
        """POST /v1/uploads as multipart; returns the answer."""
        body, content_type = multipart(content, {"source": "manual", **fields})
        return json.loads(
            self.send("/v1/uploads", body, {"Content-Type": content_type, **(headers or {})})[2]
        )

    def finished(self, upload_id: str, *, seconds: float = 60) -> Any:
        """The upload once it is terminal."""
        deadline = patience.deadline(seconds)
        while (upload := self.get(f"/v1/uploads/{upload_id}"))["status"] not in TERMINAL:
            assert time.monotonic() < deadline, upload
            time.sleep(0.05)
        return upload


def multipart(content: bytes, fields: dict[str, str | None]) -> tuple[bytes, str]:
    """A multipart body as curl sends it, and its content type."""
    boundary = uuid.uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
        if value is not None
    ]
    parts += [
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="report"\r\n\r\n'.encode(),
        content,
        f"\r\n--{boundary}--\r\n".encode(),
    ]
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"


@dataclass(frozen=True)
class RunningFleet:
    """A fleet, and where its parts are."""

    api: Api
    dsn: str
    data: Path
    env: dict[str, str]
    processes: embedded.Fleet


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Where the fleet's traces go."""
    with Collector() as found:
        yield found


@pytest.fixture(scope="session")
def fleet(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, collector: Collector
) -> Iterator[RunningFleet]:
    """The Procfile's processes, shared by the tests of a run: each takes workspaces of its own."""
    data = tmp_path_factory.mktemp("fleet")
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with embedded.Valkey(data / "valkey") as valkey, running(servers, data, valkey.url, **traced) as found:
        yield found


@contextmanager
def running(
    servers: Servers,
    data: Path,
    redis_url: str,
    *,
    by_way_of: Callable[[str], str] = lambda dsn: dsn,
    **more: str,
) -> Iterator[RunningFleet]:
    """A fleet on databases of its own, whose processes reach them `by_way_of` what gives another address."""
    name = f"fleet_{uuid.uuid4().hex[:8]}"
    servers.sql(f"CREATE DATABASE {name} TEMPLATE template_migrated")
    for part in ("pipeline", "refdata"):
        servers.sql(f"CREATE DATABASE {name}_{part}")
    env = environment(by_way_of(servers.dsn_of(name)), redis_url, data)
    env["HEADWORKS_PIPELINE_DATABASE_URL"] = by_way_of(servers.dsn_of(f"{name}_pipeline"))
    env |= refdata_environment(by_way_of(servers.dsn_of(f"{name}_refdata")), data) | more
    processes = embedded.Fleet(ROOT / "Procfile", env=env, logs=data / "logs")
    processes.start()
    try:
        api = Api(env["HEADWORKS_URL"])
        wait_until_ready(api, processes)
        yield RunningFleet(api, servers.dsn_of(name), data, env, processes)
    finally:
        processes.stop()


def environment(dsn: str, redis_url: str, data: Path) -> dict[str, str]:
    """What the processes of a fleet find in their environment."""
    port = embedded.free_port()
    (data / "metrics").mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "HEADWORKS_URL": f"http://127.0.0.1:{port}",
        "HEADWORKS_BIND": f"127.0.0.1:{port}",
        "HEADWORKS_DATABASE_URL": dsn,
        "HEADWORKS_BROKER_URL": redis_url,
        "HEADWORKS_REDIS_URL": redis_url,
        "HEADWORKS_DATA_DIR": str(data),
        "HEADWORKS_API_KEY": KEY,
        "HEADWORKS_SECRET": SECRET,
        "HEADWORKS_FLOWER_ADDRESS": "127.0.0.1",
        "HEADWORKS_FLOWER_PORT": str(embedded.free_port()),
        "HEADWORKS_DROP_STABLE_SECONDS": "0.5",
        "HEADWORKS_WEBHOOKS_TO_LOOPBACK": "on",
        "HEADWORKS_SUPPLIER_CONFIGS_DIR": str(data / "supplier configs"),
        "FLOWER_BASIC_AUTH": "tests:tests",
        "PROMETHEUS_MULTIPROC_DIR": str(data / "metrics"),
    }


def refdata_environment(dsn: str, data: Path) -> dict[str, str]:
    """What makes a fleet serve reference data: the dictionaries of a first start, and tokens of tenants."""
    config = data / "refdata.yaml"
    first = (ROOT / "app" / "refdata" / "first.yaml").read_text(encoding="utf-8")
    config.write_text(first + TENANTS, encoding="utf-8")
    return {
        "HEADWORKS_REFDATA_CONFIG": str(config),
        "HEADWORKS_REFDATA_DATABASE_URL": dsn,
        "REFDATA_TOKEN_SECRET": TOKEN_SECRET,
    }


def wait_until_ready(api: Api, processes: embedded.Fleet, *, seconds: float = 60) -> None:
    """The web process answers; a process that ends instead is named with its last words."""
    deadline = patience.deadline(seconds)
    while True:
        if ended := processes.first_ended():
            raise AssertionError(f"{ended}: {processes.log(ended[0]).read_text()[-2000:]}")
        try:
            api.send("/readyz")
            return
        except (OSError, Problem):
            assert time.monotonic() < deadline, "the fleet is not ready in time"
            time.sleep(0.1)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for the whole run; each test has windows of its own."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(fleet: RunningFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """One command in the environment of the fleet: exit code, stdout, stderr."""
    for name, value in fleet.env.items():
        if name.startswith("HEADWORKS_"):
            monkeypatch.setenv(name, value)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return command
