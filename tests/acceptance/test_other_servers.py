"""The whole fleet on what others run in place of the embedded servers: PgBouncer, and RabbitMQ as broker."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psutil
import pytest

from app.adapters import embedded
from app.pipeline.client import PipelineClient
from tests.acceptance.conftest import RunningFleet, running
from tests.acceptance.test_access import changed
from tests.conftest import Servers
from tests.engines import pgbouncer, rabbitmq
from tests.integration.threads import wait_until

HEAD = b"Day,Campaign name,Campaign ID,Ad set name,Ad Set ID,Ad name,Ad ID,Impressions,Amount spent (USD)\n"


def report(rows: int, *, first_ad: int = 0) -> bytes:
    """Rows with an ad each, of which every one cost 1.25."""
    numbers = range(first_ad, first_ad + rows)
    return HEAD + b"".join(b"2025-01-01,Camp,1,Set,2,Ad %d,%d,7,1.25\n" % (n, 1000 + n) for n in numbers)


@dataclass
class Place:
    """A fleet, and what stands in its way."""

    fleet: RunningFleet
    server: pgbouncer.PgBouncer | rabbitmq.RabbitMq
    sql: Callable[[str], list[Any]]

    def hand_in(self, workspace: str, *contents: bytes) -> list[str]:
        """The ids of these reports, handed in one after the other."""
        api = self.fleet.api
        return [
            api.upload(content, workspace_id=workspace, platform="meta")["upload_id"] for content in contents
        ]

    def settled(self, ids: list[str]) -> set[str]:
        """In which states these uploads have ended."""
        return {self.fleet.api.finished(id_, seconds=120)["status"] for id_ in ids}

    def production(self, workspace: str) -> tuple[int, Decimal]:
        """How many metrics the workspace has, and what they cost together."""
        [found] = self.sql(
            f"SELECT count(*), coalesce(sum(spend), 0) FROM daily_metrics WHERE workspace_id = '{workspace}'"
        )
        return found  # type: ignore[no-any-return]

    def worker(self, name: str) -> psutil.Process:
        """The pool process of this member of the fleet."""
        main = psutil.Process(self.fleet.processes.pids[name])
        return main.children()[0]


@pytest.fixture(scope="module", params=["pgbouncer", "rabbitmq"])
def place(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A fleet behind the one, or on the other."""
    engine = {"pgbouncer": pgbouncer, "rabbitmq": rabbitmq}[request.param]
    if not engine.BINARY.exists():
        pytest.skip(f"{request.param} is not installed: see .ci/run")
    data = tmp_path_factory.mktemp(request.param)
    with ExitStack() as started:
        valkey = started.enter_context(embedded.Valkey(data / "valkey"))
        server: pgbouncer.PgBouncer | rabbitmq.RabbitMq
        if request.param == "pgbouncer":
            server = pgbouncer.PgBouncer(data / "pgbouncer", servers.postgres.dsn)
            started.enter_context(server)
            fleet = started.enter_context(running(servers, data, valkey.url, by_way_of=server.leads_to))
        else:
            server = rabbitmq.RabbitMq(data / "rabbitmq")
            started.enter_context(server)
            fleet = started.enter_context(running(servers, data, valkey.url, HEADWORKS_BROKER_URL=server.url))
        yield Place(fleet, server, lambda statement: servers.sql(statement, dsn=fleet.dsn))


def test_reports_of_several_workspaces_are_in_production_once_each(place: Place) -> None:
    workspaces = [str(uuid.uuid4()) for _ in range(3)]
    ids = [
        id_ for n in range(4) for workspace in workspaces
        for id_ in place.hand_in(workspace, report(300, first_ad=200 * n))
    ]  # fmt: skip
    assert place.settled(ids) == {"completed"}
    assert [place.production(workspace) for workspace in workspaces] == [(900, Decimal("1125.00"))] * 3


def test_a_killed_worker_loses_nothing(place: Place) -> None:
    workspace = str(uuid.uuid4())
    ids = place.hand_in(workspace, report(30_000))
    wait_until(
        lambda: place.sql(f"SELECT 1 FROM data_uploads WHERE id = '{ids[0]}' AND owner_id IS NOT NULL"),
        seconds=60,
    )
    for name in ("parse", "promote"):
        place.worker(name).send_signal(signal.SIGKILL)
    assert place.settled(ids) == {"completed"}
    assert place.production(workspace) == (30_000, Decimal("37500.00"))


def test_what_is_handed_in_while_the_server_is_away_is_done_when_it_is_back(place: Place) -> None:
    workspace = str(uuid.uuid4())
    ids = place.hand_in(workspace, report(2_000))
    place.server.stop()
    time.sleep(2)  # the fleet works on without it, and sees that it is gone
    if isinstance(place.server, rabbitmq.RabbitMq):  # only hints go there: reports are taken in
        ids += place.hand_in(workspace, report(2_000, first_ad=1_000))
    place.server.start()
    ids += place.hand_in(workspace, report(2_000, first_ad=2_000))
    assert place.settled(ids) == {"completed"}
    last = Decimal("1.25") * 4_000
    assert place.production(workspace) == (4_000, last)


def test_events_reach_the_audit_log_and_dictionaries_and_tasks_change(place: Place) -> None:
    workspace = str(uuid.uuid4())
    ids = place.hand_in(workspace, report(10))
    assert place.settled(ids) == {"completed"}
    told = f"SELECT 1 FROM audit WHERE upload_id = '{ids[0]}' AND action = 'event_received'"
    wait_until(lambda: place.sql(told), seconds=30)

    changed(place.fleet, workspace, "Austria")  # committed, whatever lies in between

    pipeline = PipelineClient(place.fleet.api.url, token=place.fleet.api.key, worker_id="tests")
    name = f"{uuid.uuid4().hex}.json"
    assert pipeline.register(name, [0])
    assert pipeline.finish_ingest(name) == 1
    assert [task.filename for task in pipeline.claim("shard-splitter", limit=10)] == [name]
