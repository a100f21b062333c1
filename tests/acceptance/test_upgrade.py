"""A release takes the place of the one before while reports come in: none is lost, doubled or refused."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tarfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest

from app.adapters import embedded
from tests.acceptance.conftest import ROOT, Api, Problem, environment, wait_until_ready
from tests.acceptance.test_other_servers import report
from tests.conftest import Servers
from tests.integration.threads import wait_until

ARCHIVE = ROOT / "tests" / "previous_release" / "release.tar.xz"
ROWS = 400


@dataclass
class Release:
    """The code of one release, and its fleet."""

    code: Path
    env: dict[str, str]
    fleet: embedded.Fleet

    @classmethod
    def of(cls, code: Path, env: dict[str, str], logs: Path) -> Release:
        own = {**env, "PYTHONPATH": str(code)}
        return cls(code, own, embedded.Fleet(code / "Procfile", env=own, logs=logs))

    def migrate(self) -> None:
        """The database has this release's schema."""
        argv = [sys.executable, "-m", "app.cli", "migrate"]
        done = subprocess.run(argv, cwd=self.code, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def start(self) -> Api:
        """Its fleet works, and answers there."""
        self.fleet.start()
        api = Api(self.env["HEADWORKS_URL"])
        wait_until_ready(api, self.fleet)
        return api

    @property
    def groups(self) -> set[int]:
        """Of its processes, as the operating system has them."""
        return {os.getpgid(pid) for pid in self.fleet.pids.values()}


@dataclass
class Callers:
    """They hand in one report after the other, to whichever web process is there."""

    workspace: str
    webs: list[Api] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    refused: list[object] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing more is handed in."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._done.wait(0.2):
                return
            try:
                self.sent.append(self._hand_in(report(ROWS, first_ad=ROWS * number)))
            except (Problem, OSError, IndexError) as error:
                self.refused.append(error)

    def _hand_in(self, content: bytes) -> str:
        key = uuid.uuid4().hex  # as a balancer does: what one does not take goes to the next
        for api in list(self.webs)[:-1]:
            try:
                return self._upload(api, content, key)
            except OSError:
                continue
        return self._upload(self.webs[-1], content, key)

    def _upload(self, api: Api, content: bytes, key: str) -> str:
        headers = {"Idempotency-Key": key}
        answer = api.upload(content, workspace_id=self.workspace, platform="meta", headers=headers)
        return str(answer["upload_id"])


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The code of the release before this one."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "previous", filter="data")
    return tmp_path / "previous" / "headworks"


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[embedded.Valkey]:
    with embedded.Valkey(tmp_path / "valkey") as found:
        yield found


def test_a_release_takes_the_place_of_the_one_before_under_work(
    previous: Path, valkey: embedded.Valkey, servers: Servers, tmp_path: Path
) -> None:
    name = f"upgrade_{uuid.uuid4().hex[:8]}"
    servers.sql(f"CREATE DATABASE {name}")
    dsn = servers.dsn_of(name)
    stored = {"HEADWORKS_STORAGE_URL": (tmp_path / "files").as_uri()}
    releases = []
    for label, code in (("old", previous), ("new", ROOT)):
        (tmp_path / label).mkdir()
        env = environment(dsn, valkey.url, tmp_path / label) | stored
        releases.append(Release.of(code, env, tmp_path / label / "logs"))
    old, new = releases
    callers = Callers(str(uuid.uuid4()))

    def completed() -> int:
        [(count,)] = servers.sql("SELECT count(*) FROM data_uploads WHERE status = 'completed'", dsn=dsn)
        return int(count)

    def more(count: int) -> None:
        """So many more reports are completed."""
        goal = completed() + count
        wait_until(lambda: completed() >= goal, seconds=60)

    old.migrate()
    callers.webs.append(old.start())
    try:
        callers.start()
        more(5)
        new.migrate()  # expand: the old one goes on with it
        more(5)
        callers.webs.append(new.start())  # side by side
        more(10)
        for release in releases:  # either finishes what the other has begun
            wait_until(lambda release=release: workers_of(servers, dsn) & release.groups, seconds=60)
        assert old.fleet.first_ended() is None
        callers.webs.pop(0)  # the balancer's first step
        time.sleep(0.5)
        old.fleet.stop()
        more(10)
        callers.stop()
        wait_until(lambda: completed() == len(callers.sent), seconds=60)
    finally:
        callers.stop()
        for release in releases:
            release.fleet.stop()

    assert callers.refused == []
    assert servers.sql("SELECT DISTINCT status FROM data_uploads", dsn=dsn) == [("completed",)]
    [found] = servers.sql("SELECT count(*), sum(spend), max(source_rows) FROM daily_metrics", dsn=dsn)
    count = ROWS * len(callers.sent)
    assert found == (count, Decimal("1.25") * count, 1)


def workers_of(servers: Servers, dsn: str) -> set[int]:
    """The process groups that the uploads were with."""
    owners = servers.sql("SELECT DISTINCT owner_id FROM audit WHERE owner_id LIKE '%/%'", dsn=dsn)
    found = set()
    for (owner,) in owners:
        try:
            found.add(os.getpgid(int(owner.rsplit("/", 1)[1])))
        except (ProcessLookupError, ValueError):
            continue
    return found
