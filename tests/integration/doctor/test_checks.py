"""What the doctor says of healthy and of broken parts, all of them real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import flask
import pytest
import redis
import structlog
from werkzeug.serving import make_server

from app import web
from app.adapters import dispatch
from app.adapters.database import Database
from app.adapters.settings import Settings
from app.doctor import checks
from app.kernel import errors
from app.kernel.clock import SystemClock
from tests import patience
from tests.conftest import KEY, SECRET, Servers, SetClock
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.refusing import full_redis, refusing  # noqa: F401
from tests.integration.suppliers.tree import A, tree

ROOT = Path(__file__).parents[3]
OwnerSql = Callable[[str], list[Any]]
PROCESSES = ("workers", "beat", "web")
"""What is seen by the processes of a fleet, which these tests have only where they start one."""


@pytest.fixture
def settings(servers: Servers, database_url: str, tmp_path: Path) -> Settings:  # noqa: F811
    return Settings(database_url=database_url, broker_url=servers.valkey.url, data_dir=tmp_path)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "HINT_SECONDS", 0.3)
    monkeypatch.setattr(checks, "BEAT_SECONDS", 0.5)


def finding(settings: Settings, check: str, **of: Any) -> checks.Finding:
    found = {one.check: one for one in checks.examine(settings, of.get("clock", SystemClock()))}
    assert list(found) == list(checks.CHECKS)
    return found[check]


@pytest.mark.parametrize("check", [name for name in checks.CHECKS if name not in PROCESSES])
def test_a_part_that_is_well_is_ok(check: str, settings: Settings) -> None:
    found = finding(settings, check)
    assert (found.state, found.advice) == ("ok", ""), found


def test_a_database_that_is_not_there_is_named_without_its_password(settings: Settings) -> None:
    gone = replace(settings, database_url="postgresql://headworks:hush@127.0.0.1:1/headworks")
    found = checks.examine(gone, SystemClock())
    assert [one.state for one in found if one.check in ("database", "schema", "clock", "work")] == [
        "failed"
    ] * 4
    assert "HEADWORKS_DATABASE_URL" in found[0].advice
    assert "hush" not in str(found)
    assert {one.state for one in found if one.check in ("broker", "storage", "disk")} == {"ok"}


def test_a_database_of_another_revision_names_the_command(settings: Settings, servers: Servers) -> None:
    servers.sql("UPDATE alembic_version SET version_num = '0000'", dsn=settings.database_url)
    try:
        found = finding(settings, "schema")
    finally:
        servers.sql(
            f"UPDATE alembic_version SET version_num = '{checks.migrations.newest()}'",
            dsn=settings.database_url,
        )
    assert found.state == "failed"
    assert "headworks migrate" in found.found


def test_a_user_without_a_role_is_told_which(settings: Settings, servers: Servers) -> None:
    user = f"poor_{uuid.uuid4().hex[:8]}"
    servers.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'poor'")
    servers.sql(f"GRANT headworks_dispatch, headworks_read TO {user}")
    servers.sql(f"GRANT SELECT ON alembic_version TO {user}", dsn=settings.database_url)
    host = settings.database_url.rpartition("@")[2]
    try:
        found = finding(replace(settings, database_url=f"postgresql://{user}:poor@{host}"), "schema")
    finally:
        servers.sql(f"DROP OWNED BY {user}", dsn=settings.database_url)
        servers.sql(f"DROP ROLE {user}")
    assert found.state == "failed"
    assert "headworks_parse" in found.found
    assert "headworks_read" not in found.found


@pytest.mark.parametrize(("hours", "state"), [(-1, "warning"), (0, "ok"), (1, "warning")])
def test_clocks_that_are_apart_are_told(hours: int, state: str, settings: Settings) -> None:
    found = finding(settings, "clock", clock=SetClock(time=SystemClock().now() + timedelta(hours=hours)))
    assert found.state == state


def test_a_broker_that_is_not_there_stops_no_other_check(settings: Settings) -> None:
    found = checks.examine(replace(settings, broker_url="redis://:hush@127.0.0.1:1/0"), SystemClock())
    states = {one.check: one.state for one in found}
    assert (states["broker"], states["workers"], states["work"]) == ("failed", "failed", "ok")
    assert "hush" not in str(found)


SAYS = {"full": "maxmemory", "replica": "primary", "no replicas": "min-replicas-to-write"}


def test_a_broker_that_takes_nothing_is_told_with_the_reason(settings: Settings, refusing: str) -> None:  # noqa: F811
    found = {one.check: one for one in checks.examine(settings, SystemClock())}
    assert found["broker"].state == "failed"
    assert "takes nothing" in found["broker"].found
    assert SAYS[refusing] in found["broker"].found
    assert "Nothing is lost" in found["broker"].advice


def test_workers_that_cannot_be_asked_are_not_said_to_be_missing(
    settings: Settings,
    full_redis: None,  # noqa: F811
) -> None:
    found = finding(settings, "workers")
    assert found.state == "failed"
    assert "not known" in found.found
    assert "No worker answers" not in found.found
    assert "celery" not in found.advice, "those that run need no other"


def test_a_database_that_turns_the_user_away_is_told_in_its_own_words(
    settings: Settings, servers: Servers
) -> None:
    user = f"many_{uuid.uuid4().hex[:8]}"
    servers.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'hush' CONNECTION LIMIT 0")
    host = settings.database_url.rpartition("@")[2]
    try:
        found = finding(replace(settings, database_url=f"postgresql://{user}:hush@{host}"), "database")
    finally:
        servers.sql(f"DROP ROLE {user}")
    assert found.state == "failed"
    assert "turns this user away: too many connections for role" in found.found
    assert "who they are" in found.advice
    assert "hush" not in str(found)


@pytest.fixture
def evicting(servers: Servers) -> Iterator[None]:
    with redis.Redis.from_url(servers.valkey.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        yield
        client.config_set("maxmemory-policy", "noeviction")


def test_a_broker_that_forgets_is_told(settings: Settings, evicting: None) -> None:
    found = finding(settings, "broker")
    assert found.state == "failed"
    assert "noeviction" in found.found


def test_queues_without_a_worker_are_named_with_the_command(settings: Settings) -> None:
    found = finding(settings, "workers")
    assert found.state == "failed"
    assert "parse, promote" in found.found
    assert "celery -A workers.fleet worker -Q" in found.advice


@pytest.fixture
def beating(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A beat of this broker, which is given its time."""
    monkeypatch.setattr(checks, "BEAT_SECONDS", 30.0 * patience.PATIENCE)
    command = ["celery", "-A", "workers.fleet", "beat", "--schedule", str(settings.data_dir / "schedule")]
    env = {
        **os.environ, "HEADWORKS_DATABASE_URL": settings.database_url,
        "HEADWORKS_BROKER_URL": settings.broker_url, "HEADWORKS_DATA_DIR": str(settings.data_dir),
    }  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", *command, "--pidfile="], cwd=ROOT, env=env)
    yield process
    process.kill()
    process.wait()


def test_a_beat_that_works_is_seen_by_what_it_sends(
    settings: Settings, beating: subprocess.Popen[bytes]
) -> None:
    found = finding(settings, "beat")
    assert (found.state, found.advice) == ("ok", ""), found


def test_a_beat_that_hangs_is_told(
    settings: Settings, beating: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finding(settings, "beat").state == "ok"
    beating.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(checks, "BEAT_SECONDS", 5.0)
    found = finding(settings, "beat")
    assert (found.state, found.found) == ("failed", "Nothing was sent in 5 s that beat sends every two.")
    assert "there must be one" in found.advice


def test_a_beat_that_cannot_be_seen_is_not_said_to_be_missing(settings: Settings) -> None:
    found = finding(replace(settings, broker_url="redis://:hush@127.0.0.1:1/0"), "beat")
    assert found.state == "failed"
    assert "not known" in found.found and "Start process beat" not in found.advice
    assert "hush" not in str(found)


@pytest.fixture
def web_process(settings: Settings) -> Iterator[Callable[..., str]]:
    """A web at an address of this machine; returns `host:port`."""
    running: list[Any] = []

    def serve(app: Any = None) -> str:
        served = app or web.create_app(replace(settings, secret=SECRET, api_key=KEY))
        running.append(make_server("127.0.0.1", 0, served, threaded=True))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"127.0.0.1:{running[-1].server_port}"

    yield serve
    for server in running:
        server.shutdown()
        server.server_close()
        if isinstance(server.app, flask.Flask):
            server.app.extensions["services"].db.close()
    structlog.reset_defaults()


NOWHERE = "http://127.0.0.1:1"


def test_a_web_that_answers_is_ok(settings: Settings, web_process: Callable[..., str]) -> None:
    address = web_process()
    for here in (
        replace(settings, url=f"http://{address}/"),
        replace(settings, url=NOWHERE, bind=f"0.0.0.0:{address.rpartition(':')[2]}"),
        replace(settings, url=f"http://{address}", bind="0.0.0.0:1"),
        replace(settings, url=f"http://{address}", bind="unix:/run/web.sock"),
    ):
        found = finding(here, "web")
        assert (found.state, found.found) == ("ok", f"The web at http://{address} answers."), found


def test_a_web_that_is_not_there_is_told(settings: Settings) -> None:
    found = finding(replace(settings, url=NOWHERE, bind="0.0.0.0:2"), "web")
    assert found.state == "failed"
    assert "http://127.0.0.1:2 (" in found.found and f"{NOWHERE} (" in found.found
    assert "Start process web" in found.advice


def test_a_web_that_cannot_work_is_told_with_the_reason(
    settings: Settings, web_process: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(settings, url=f"http://{web_process()}")

    def away(*_: Any, **__: Any) -> None:
        raise errors.ConnectionLost()

    monkeypatch.setattr(Database, "transaction", away)
    found = finding(here, "web")
    assert (found.state, "not ready: connection_lost" in found.found) == ("failed", True)
    assert "Start process web" not in found.advice


@pytest.mark.parametrize("body", [b"<html>welcome", b"[]", b'{"status": "up"}'])
def test_what_is_no_web_of_ours_is_told(
    body: bytes, settings: Settings, web_process: Callable[..., str]
) -> None:
    def another(_environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    found = finding(replace(settings, url=f"http://{web_process(another)}"), "web")
    assert (found.state, "something else answers 200" in found.found) == ("failed", True), found


def test_a_folder_that_is_missing_is_told(settings: Settings, tmp_path: Path) -> None:
    found = checks.examine(replace(settings, data_dir=tmp_path / "nowhere"), SystemClock())
    assert {one.check: one.state for one in found}["disk"] == "failed"
    assert not list(tmp_path.glob("nowhere/files/doctor/*"))


def test_a_full_disk_is_told_before_it_is_full(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FREE_BYTES", 1 << 60)
    assert finding(settings, "disk").state == "warning"


def test_a_storage_that_cannot_be_written_is_told(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    found = finding(replace(settings, storage_url=(tmp_path / "a file").as_uri()), "storage")
    assert found.state == "failed"


def test_uploads_that_wait_too_long_are_told(settings: Settings, emptied: None, servers: Servers) -> None:  # noqa: F811
    workspace_id = uuid.uuid4()
    servers.sql(f"INSERT INTO workspaces (id) VALUES ('{workspace_id}')", dsn=settings.database_url)
    servers.sql(
        "INSERT INTO data_uploads (id, workspace_id, platform, source, file_url, updated_at)"
        f" VALUES (gen_random_uuid(), '{workspace_id}', 'meta', 'manual', 'file:///x',"
        " now() - interval '5 min')",
        dsn=settings.database_url,
    )
    found = finding(settings, "work")
    assert found.state == "warning"
    assert "1 uploads wait, the oldest for 30" in found.found


def test_an_old_state_of_a_supplier_is_told(settings: Settings, tmp_path: Path) -> None:
    mine = tree(tmp_path)
    here = replace(
        settings, suppliers_dir=str(mine.layout.root), supplier_configs_dir=str(mine.layout.configs)
    )
    mine.configure()
    mine.put(A)
    assert mine.run().status == "PASS"
    assert finding(here, "suppliers").state == "ok"
    found = finding(here, "suppliers", clock=SetClock(time=SystemClock().now() + timedelta(hours=49)))
    assert (found.state, "acme" in found.found) == ("warning", True)


def test_a_folder_that_lists_cannot_leave_is_told(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tree(tmp_path)
    here = replace(
        settings, suppliers_dir=str(mine.layout.root), supplier_configs_dir=str(mine.layout.configs)
    )
    inbox = mine.put(A).parent
    may = os.access
    # Root may write everywhere; whether another user may is for the system to say.
    monkeypatch.setattr(os, "access", lambda path, mode: path != inbox and may(path, mode))
    found = finding(here, "suppliers")
    assert (found.state, str(inbox) in found.found) == ("failed", True)


@pytest.fixture
def with_pipeline(settings: Settings, servers: Servers) -> Iterator[Settings]:
    """The instance with a pipeline, in an empty database."""
    name = f"pipeline_{uuid.uuid4().hex[:8]}"
    servers.sql(f"CREATE DATABASE {name}")
    yield replace(settings, pipeline_database_url=servers.dsn_of(name))
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_tasks_of_the_pipeline_that_take_too_long_are_told(with_pipeline: Settings, servers: Servers) -> None:
    assert finding(with_pipeline, "pipeline").state == "ok"
    servers.sql(
        "INSERT INTO pipeline_tracking (filename, shard, event_ingest_status, event_ingest_started_at)"
        " SELECT 'a', shard, 'started', now() - make_interval(mins => shard)"
        " FROM unnest('{2,6}'::integer[]) AS shard",
        dsn=with_pipeline.pipeline_database_url,
    )
    found = finding(with_pipeline, "pipeline")
    assert (found.state, found.found[:8]) == ("warning", "1 tasks "), found
    assert "event-ingest" in found.found


def test_a_pipeline_whose_database_is_not_there_is_told_without_its_password(settings: Settings) -> None:
    gone = replace(settings, pipeline_database_url="postgresql://headworks:hush@127.0.0.1:1/pipeline_db")
    found = finding(gone, "pipeline")
    assert (found.state, "HEADWORKS_PIPELINE_DATABASE_URL" in found.advice) == ("failed", True)
    assert "hush" not in str(found)


@pytest.fixture
def with_refdata(
    settings: Settings, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    """The instance with reference data, in an empty database."""
    name = f"refdata_{uuid.uuid4().hex[:8]}"
    servers.sql(f"CREATE DATABASE {name}")
    dsn = servers.dsn_of(name)
    monkeypatch.setenv("DOCTOR_REFDATA", dsn)
    monkeypatch.setenv("DOCTOR_REDIS", servers.valkey.url)
    config = tmp_path / "refdata.yaml"
    config.write_text(
        "refdata:\n  postgres: {urlFromEnv: DOCTOR_REFDATA}\n  redis: {urlFromEnv: DOCTOR_REDIS}\n"
        "  dictionaries:\n    - {code: NOTES, apply: {mode: DICTIONARY_ITEM}}\n"
    )
    yield replace(settings, refdata_config=str(config))
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_versions_that_nobody_announces_are_told(with_refdata: Settings, servers: Servers) -> None:
    assert finding(with_refdata, "refdata").state == "ok"
    servers.sql(
        "INSERT INTO refdata.outbox_event (tenant_id, event_id, dict_code, version, payload, created_at)"
        " VALUES ('t', gen_random_uuid(), 'NOTES', 1, '{}', now() - interval '90 seconds')",
        dsn=os.environ["DOCTOR_REFDATA"],
    )
    found = finding(with_refdata, "refdata")
    assert (found.state, "1 versions wait" in found.found) == ("warning", True)
    assert "refdata-relay" in found.advice


def test_a_configuration_of_reference_data_that_cannot_be_used_is_told(with_refdata: Settings) -> None:
    Path(with_refdata.refdata_config).write_text("refdata: {postgres: 1}\n")
    found = finding(with_refdata, "refdata")
    assert (found.state, "refdata.postgres" in found.found) == ("failed", True)
