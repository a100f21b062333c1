"""What the gauges of an instance say, compared with what its parts really hold."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import redis
from prometheus_client.metrics_core import Metric

from app.adapters import broker, dispatch, exposition, metrics
from app.kernel import errors
from app.kernel.clock import SystemClock
from app.observe import parts
from app.observe.state import Part, State
from app.pipeline import services as pipeline_services
from app.pipeline.requests import Claim, MoveIngest, Register
from app.pipeline.states import STAGES
from app.refdata import services as refdata_services
from app.uploads import claims_store, ended, recover, work
from app.uploads.codes import FILE_CODES
from app.uploads.services import Services
from tests.conftest import Servers, work_off
from tests.integration.observe.test_alerts import ALERTS
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.refusing import full_redis, refusing  # noqa: F401
from tests.integration.uploads.conftest import GOOD, Uploads, report

OwnerSql = Callable[[str], list[Any]]
AGO = "now() - interval '10 minutes'"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "HINT_SECONDS", 0.3)


def values(part: Part) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of each gauge by their labels."""
    return of_families(list(part()))


def of_families(families: list[Metric]) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in families
    }


@pytest.fixture
def database(services: Services) -> Part:
    return parts.of_instance(services.settings)["database"]


@pytest.fixture
def uploads(services: Services) -> Uploads:
    return Uploads(services)


def test_an_empty_instance_has_a_zero_for_whatever_may_wait(database: Part) -> None:
    found = values(database)
    for gauge in (metrics.uploads_open, metrics.uploads_oldest_seconds):
        states = ("pending", "processing", "staging_complete", "promoting")
        assert found[gauge.name] == {(name,): 0.0 for name in states}
    for gauge in (metrics.uploads_waiting, metrics.uploads_waiting_seconds):
        assert found[gauge.name] == {("parse",): 0.0, ("promote",): 0.0}
    for gauge in (
        metrics.uploads_put_off, metrics.webhooks_due, metrics.webhooks_due_seconds, metrics.outbox_events,
        metrics.outbox_oldest_seconds, metrics.catalog_nightly, metrics.catalog_net_running_seconds,
    ):  # fmt: skip
        assert found[gauge.name] == {(): 0.0}, gauge.name


def test_an_upload_that_no_worker_takes_waits(database: Part, uploads: Uploads, owner_sql: OwnerSql) -> None:
    uploads.pending()
    owner_sql(f"UPDATE data_uploads SET updated_at = {AGO}")
    found = values(database)
    assert found[metrics.uploads_waiting.name] == {("parse",): 1.0, ("promote",): 0.0}
    assert 600 <= found[metrics.uploads_waiting_seconds.name]["parse",] < 660
    assert 600 <= found[metrics.uploads_oldest_seconds.name]["pending",] < 660


def test_an_upload_waits_since_it_may_be_tried_again_and_not_since_it_was_put_off(
    database: Part, uploads: Uploads, owner_sql: OwnerSql
) -> None:
    uploads.pending()
    owner_sql(f"UPDATE data_uploads SET updated_at = {AGO}, next_attempt_at = now() - interval '5 s'")
    assert 5 <= values(database)[metrics.uploads_waiting_seconds.name]["parse",] < 65
    owner_sql("UPDATE data_uploads SET next_attempt_at = now() + interval '1 minute'")
    found = values(database)
    assert found[metrics.uploads_waiting.name]["parse",] == 0
    assert found[metrics.uploads_put_off.name] == {(): 1.0}


def test_how_long_an_upload_is_in_its_status_does_not_begin_anew_with_each_owner(
    database: Part, uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    uploads.pending()
    owner_sql(f"UPDATE data_uploads SET created_at = {AGO}")

    def claim(owner_id: str) -> None:
        with services.db.transaction("dispatch") as conn:
            assert claims_store.claim_upload(conn, "parse", owner_id=owner_id, lease_seconds=60)

    claim("first")
    assert values(database)[metrics.uploads_oldest_seconds.name]["processing",] < 60
    owner_sql(f"UPDATE audit SET at = {AGO} WHERE to_status = 'processing'")
    owner_sql("UPDATE data_uploads SET lease_expires_at = now() - interval '1 s'")
    with services.db.transaction("dispatch") as conn:
        assert len(claims_store.take_expired_leases(conn)) == 1
    claim("second")
    found = values(database)
    assert found[metrics.uploads_open.name]["processing",] == 1
    assert 600 <= found[metrics.uploads_oldest_seconds.name]["processing",] < 660


def test_events_wait_until_they_are_published(database: Part, uploads: Uploads, owner_sql: OwnerSql) -> None:
    uploads.finished()
    owner_sql(f"UPDATE outbox SET created_at = {AGO}")
    found = values(database)
    assert found[metrics.outbox_events.name] == {(): 1.0}
    assert 600 <= found[metrics.outbox_oldest_seconds.name][()] < 660
    owner_sql("UPDATE outbox SET published_at = now()")
    assert values(database)[metrics.outbox_events.name] == {(): 0.0}


SUBSCRIPTION = "33333333-3333-4333-8333-333333333333"
SUBSCRIBE = f"""
INSERT INTO webhook_subscriptions (id, workspace_id, url, topics, sealed_secret, created_by)
VALUES ('{SUBSCRIPTION}', gen_random_uuid(), 'https://a.example/', '{{ingestion-complete}}', 's', 'me');
INSERT INTO webhook_deliveries (subscription_id, workspace_id, event_key, payload, next_attempt_at)
SELECT '{SUBSCRIPTION}', gen_random_uuid(), at::text, '{{}}', now() + at * interval '1 minute'
FROM unnest(ARRAY[-10, -1, 10]) at
"""


def test_deliveries_whose_time_has_come_wait_unless_nobody_wants_them(
    database: Part, owner_sql: OwnerSql
) -> None:
    owner_sql(SUBSCRIBE)
    found = values(database)
    assert found[metrics.webhooks_due.name] == {(): 2.0}
    assert 600 <= found[metrics.webhooks_due_seconds.name][()] < 660
    owner_sql("UPDATE webhook_subscriptions SET disabled_at = now()")
    assert values(database)[metrics.webhooks_due.name] == {(): 0.0}


def net(owner_sql: OwnerSql, *, began: int, ended: int | None, status: str) -> None:
    """A net that began and ended so many hours ago."""
    end = "NULL" if ended is None else f"now() - interval '{ended} hours'"
    owner_sql(
        "INSERT INTO apl.etl_net (net_id, env, job_start_at, started_at, ended_at, status) VALUES"
        f" (gen_random_uuid(), 'dev', now(), now() - interval '{began} hours', {end}, '{status}')"
    )


@pytest.fixture
def no_nets(owner_sql: OwnerSql) -> Iterator[None]:
    owner_sql("DELETE FROM apl.etl_net")
    yield
    owner_sql("DELETE FROM apl.etl_net")


def test_the_catalog_is_as_old_as_its_last_success(
    database: Part, owner_sql: OwnerSql, no_nets: None
) -> None:
    age, running = metrics.catalog_net_age_seconds.name, metrics.catalog_net_running_seconds.name
    assert age not in values(database)
    net(owner_sql, began=50, ended=49, status="failed")
    assert 50 * 3600 <= values(database)[age][()] < 50 * 3600 + 60, "since the first one began"
    net(owner_sql, began=30, ended=29, status="success")
    net(owner_sql, began=5, ended=4, status="failed")
    assert 29 * 3600 <= values(database)[age][()] < 29 * 3600 + 60
    net(owner_sql, began=2, ended=None, status="running")
    assert 2 * 3600 <= values(database)[running][()] < 2 * 3600 + 60


def test_only_an_instance_with_an_application_fetches_at_night(services: Services) -> None:
    with_one = replace(services.settings, catalog_application_id="an-application")
    found = values(parts.of_instance(with_one)["database"])
    assert found[metrics.catalog_nightly.name] == {(): 1.0}


def test_a_database_that_is_away_raises_what_it_is(services: Services) -> None:
    gone = replace(services.settings, database_url="postgresql://headworks:hush@127.0.0.1:1/headworks")
    with pytest.raises(errors.ConnectionLost):
        list(parts.of_instance(gone)["database"]())


# -- the broker and the fleet


def test_hints_that_wait_are_counted_by_queue(services: Services, servers: Servers) -> None:
    url = servers.valkey.url.rsplit("/", 1)[0] + "/7"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    found = parts.of_instance(replace(services.settings, broker_url=url))
    assert set(values(found["broker"])[metrics.queue_messages.name].values()) == {0.0}
    dispatch.CeleryDispatch(url, SystemClock()).send("uploads.parse")
    told = values(found["broker"])[metrics.queue_messages.name]
    assert told["parse",] == 1.0
    assert sum(told.values()) == 1.0


def test_a_queue_without_a_worker_has_none(services: Services) -> None:
    found = values(parts.of_instance(services.settings)["fleet"])[metrics.queue_workers.name]
    assert found == {(queue,): 0.0 for queue in dispatch.queues()}
    assert {"parse", "promote", "catalog"} <= {queue for (queue,) in found}


@pytest.mark.parametrize("part", ["broker", "fleet"])
def test_a_broker_that_is_away_raises_what_it_is(part: str, services: Services) -> None:
    gone = replace(services.settings, broker_url="redis://127.0.0.1:1/0")
    with pytest.raises(errors.ConnectionLost):
        list(parts.of_instance(gone)[part]())


def test_a_broker_that_answers_and_takes_nothing_is_away(services: Services, refusing: str) -> None:  # noqa: F811
    broker = parts.of_instance(services.settings)["broker"]
    with pytest.raises(errors.Transient):
        list(broker())


def test_the_redis_of_event_streams_is_the_brokers_part_as_well(
    services: Services,
    servers: Servers,
    full_redis: None,  # noqa: F811
) -> None:
    apart = replace(services.settings, broker_url="memory://", redis_url=servers.valkey.url)
    assert apart.redis_urls == (servers.valkey.url,)
    assert services.settings.redis_urls == (services.settings.broker_url,)
    with pytest.raises(errors.MemoryFull):
        for url in apart.redis_urls:
            broker.check_takes(url)


def test_connections_are_counted_with_how_many_there_may_be(database: Part, owner_sql: OwnerSql) -> None:
    found = values(database)
    most = found[metrics.database_connections_most.name][()]
    assert 0 < found[metrics.database_connections.name][()] <= most
    [[allowed]] = owner_sql("SELECT current_setting('max_connections')::integer AS n")
    assert most < allowed


def test_every_part_has_an_alert_for_when_it_does_not_answer(services: Services) -> None:
    names = {*parts.of_instance(services.settings), "pipeline", "refdata"}
    told = " ".join(rule["expr"] for rule in ALERTS)
    alerted = re.findall(r'headworks_part_up\{part=~?"([^"]+)"\}\) == 0', told)
    assert {name for found in alerted for name in found.split("|")} == names


def test_the_disk_is_that_of_the_data_folder(services: Services) -> None:
    found = values(parts.of_instance(services.settings)["disk"])
    assert 0 < found[metrics.disk_free_bytes.name][()] < found[metrics.disk_size_bytes.name][()]


# -- pipeline and reference data


def test_the_tasks_of_a_pipeline_are_told_by_stage(services: Services, servers: Servers) -> None:
    name = f"pipeline_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    url = servers.dsn_of(name)
    found = pipeline_services.connect(replace(services.settings, pipeline_database_url=url), open_here=True)
    part = parts.of_instance(services.settings, pipeline=found)["pipeline"]
    splitter = STAGES["shard-splitter"]
    try:
        found.pipeline.register(Register("20250101000000", [0, 1]))
        found.pipeline.move_ingest("done", MoveIngest("20250101000000", None))
        servers.sql("UPDATE pipeline_tracking SET created_at = now() - interval '10 minutes'", dsn=url)
        told = values(part)
        assert told[metrics.pipeline_tasks.name]["shard-splitter", "new"] == 2.0
        assert len(told[metrics.pipeline_tasks.name]) == 16
        assert 600 <= told[metrics.pipeline_oldest_ready.name]["shard-splitter",] < 660
        assert told[metrics.pipeline_stuck.name]["shard-splitter",] == 0.0
        found.pipeline.claim(splitter, Claim(worker_id="a", limit=2, lease_seconds=60))
        servers.sql(
            "UPDATE pipeline_tracking SET shard_splitter_started_at = now() - interval '1 hour',"
            " shard_splitter_lease_expires_at = NULL WHERE shard = 1",
            dsn=url,
        )
        told = values(part)
        assert told[metrics.pipeline_stuck.name]["shard-splitter",] == 1.0
        assert told[metrics.pipeline_oldest_ready.name]["shard-splitter",] == 0.0
    finally:
        found.pipeline.db.close()
        servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def claims(outcome: str) -> float:
    return float(metrics.pipeline_claims.labels("mysql-sender", outcome)._value.get())


def test_a_daemon_that_finds_no_work_is_heard_of_all_the_same(services: Services, servers: Servers) -> None:
    name = f"pipeline_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    settings = replace(services.settings, pipeline_database_url=servers.dsn_of(name))
    found = pipeline_services.connect(settings, open_here=True)
    before = claims("empty")
    try:
        found.pipeline.claim(STAGES["mysql-sender"], Claim(worker_id="a", limit=2, lease_seconds=60))
        assert claims("empty") == before + 1
    finally:
        found.pipeline.db.close()
        servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


CONFIG = """
refdata:
  postgres: {urlFromEnv: HEADWORKS_TEST_REFDATA}
  redis: {urlFromEnv: HEADWORKS_BROKER_URL}
  dictionaries:
    - {code: COUNTRY, apply: {mode: DICTIONARY_ITEM}}
"""


def test_versions_that_nobody_has_announced_wait(
    services: Services, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"refdata_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name}")
    path = services.settings.data_dir / "refdata.yaml"
    path.write_text(CONFIG)
    monkeypatch.setenv("HEADWORKS_TEST_REFDATA", servers.dsn_of(name))
    monkeypatch.setenv("HEADWORKS_BROKER_URL", servers.valkey.url)
    of = refdata_services.connect(replace(services.settings, refdata_config=str(path)), name="tests")
    part = parts.of_instance(services.settings, refdata=of)["refdata"]
    try:
        assert values(part)[metrics.refdata_outbox_events.name] == {("postgres",): 0.0}
        servers.sql(
            "INSERT INTO refdata.outbox_event (tenant_id, dict_code, version, event_id, payload, created_at)"
            f" VALUES ('t', 'COUNTRY', 1, gen_random_uuid(), '{{}}', {AGO})",
            dsn=servers.dsn_of(name),
        )
        told = values(part)
        assert told[metrics.refdata_outbox_events.name] == {("postgres",): 1.0}
        assert 600 <= told[metrics.refdata_outbox_oldest_seconds.name]["postgres",] < 660
    finally:
        of.close()
        servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_gauges_are_those_that_are_described(services: Services) -> None:
    found = State(parts.of_instance(services.settings), SystemClock()).read()
    known = {one.name for one in vars(metrics).values() if isinstance(one, metrics.Asked)}
    assert {family.name for family in found} <= known


# -- what is counted on the way


def count(counter: Any, *labels: str) -> float:
    return float(counter.labels(*labels)._value.get())


BAD = report("no day,Spring,101,100,10,1.50", "2025-05-01,Spring,101,-1,10,1.50", "2025-05-02,A,102,1,1,1.50")


def test_what_a_file_was_refused_for_is_counted_once(uploads: Uploads) -> None:
    rows = count(metrics.rows_rejected, "invalid_date"), count(metrics.rows_rejected, "negative_count")
    failed = count(metrics.uploads_finished, "failed")
    upload_id = uploads.finished(BAD)
    code = uploads.show(upload_id).error_code
    assert code == "too_many_rejects"
    assert count(metrics.rows_rejected, "invalid_date") == rows[0] + 1
    assert count(metrics.rows_rejected, "negative_count") == rows[1] + 1
    assert count(metrics.uploads_finished, "failed") == failed + 1
    assert count(metrics.upload_failures, code, "file") >= 1


def test_a_file_that_cannot_be_read_is_counted_with_its_code(uploads: Uploads) -> None:
    failed, of_code = (
        count(metrics.uploads_finished, "failed"),
        count(metrics.upload_failures, "unknown_header", "file"),
    )
    uploads.finished(b"a,b\n1,2\n3,4\n")
    assert count(metrics.uploads_finished, "failed") == failed + 1
    assert count(metrics.upload_failures, "unknown_header", "file") == of_code + 1


def test_an_upload_is_timed_from_its_creation(uploads: Uploads, owner_sql: OwnerSql) -> None:
    of = metrics.upload_seconds.labels("completed")
    before, created = of._sum.get(), count(metrics.uploads_created, "meta", "manual")
    uploads.pending()
    owner_sql(f"UPDATE data_uploads SET created_at = {AGO}")
    work_off(uploads.services)
    assert 600 <= of._sum.get() - before < 660
    assert count(metrics.uploads_created, "meta", "manual") == created + 1


def test_an_upload_that_is_given_up_by_the_sweep_is_counted(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    before = count(metrics.upload_failures, "attempts_exhausted", "ours")
    upload_id = uploads.pending()
    with services.db.transaction("dispatch") as conn:
        assert claims_store.claim_upload(conn, "parse", owner_id="gone", lease_seconds=60)
    owner_sql("UPDATE data_uploads SET attempts = 5, lease_expires_at = now() - interval '1 s'")
    assert recover.sweep(services) == 1
    assert uploads.show(upload_id).status == "failed"
    assert count(metrics.upload_failures, "attempts_exhausted", "ours") == before + 1


def test_a_stage_that_is_put_off_says_why(
    uploads: Uploads, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = count(metrics.uploads_deferred, "disk_full")

    def full(*_: Any) -> None:
        raise errors.DiskFull()

    uploads.pending(GOOD, workspace_id=UUID(int=1))
    assert work.run_next(services, "parse", full)
    assert count(metrics.uploads_deferred, "disk_full") == before + 1


def test_whose_fault_a_failure_is_depends_on_its_code_alone() -> None:
    assert {code for code in FILE_CODES if ended.fault_of(code) == "ours"} == {
        "file_not_found", "attempts_exhausted"
    }  # fmt: skip
    of_errors = {one.code for one in vars(errors).values() if hasattr(one, "code")}
    # what is told to whoever asks, and fails no upload; or is the file's fault
    assert of_errors - set(ended.OURS) == {"not_found", "invalid_request", "malformed_file", "memory_full"}


def test_a_failure_of_ours_is_known_before_it_happens() -> None:
    ended.know_codes()
    text, _ = exposition.text()
    for code in ended.OURS:
        assert f'headworks_upload_failures_total{{code="{code}",fault="ours"}}'.encode() in text
