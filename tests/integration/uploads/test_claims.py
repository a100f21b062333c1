"""Claims: in order, fair between workspaces, three at a time, and fenced (D6.6 §5, uploads.md 4)."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import date
from typing import Any
from uuid import UUID

import psycopg2
import pytest

from app.adapters import queries
from app.kernel import errors
from app.uploads import claims_store, production_store, recover, staging_store, store
from app.uploads.claims import Claim
from app.uploads.production_store import Counts, Reached
from app.uploads.reading.entities import Staged
from app.uploads.services import Services
from app.uploads.staging_store import Chunk, Supply
from tests.integration.one_database import database_url, emptied  # noqa: F401
from tests.integration.threads import wait_until
from tests.integration.uploads.conftest import WORKSPACE, Uploads

OwnerSql = Callable[[str], list[Any]]
A, B, C = (UUID(f"{letter * 8}-0000-4000-8000-000000000000") for letter in "abc")


def claim(
    services: Services, stage: str = "parse", *, owner: str = "worker", lease: float = 60.0
) -> Claim | None:
    try:
        with services.db.transaction("dispatch") as conn:
            return claims_store.claim_upload(conn, stage, owner_id=owner, lease_seconds=lease)
    except errors.Conflict:  # the work went to another claim while this one waited for its lock
        return None


def must_claim(services: Services, stage: str = "parse", **how: Any) -> Claim:
    found = claim(services, stage, **how)
    assert found is not None
    return found


def release(services: Services, held: Claim, **how: Any) -> None:
    with services.db.transaction("dispatch") as conn:
        claims_store.release_upload(conn, held, why="a test", **how)


def fail(services: Services, held: Claim) -> None:
    with services.db.transaction("dispatch") as conn:
        store.fail_upload(
            conn,
            workspace_id=held.workspace_id,
            upload_id=held.upload_id,
            claim_epoch=held.claim_epoch,
            code="malformed_file",
            sentence="It is.",
        )


def finish_staging(services: Services, held: Claim) -> None:
    with services.db.transaction("parse", held.workspace_id) as conn:
        store.finish_staging(conn, held, before=0, staged_rows=9, total_rows=1, valid_rows=1, report={})


def finish_promotion(services: Services, held: Claim) -> None:
    with services.db.transaction("promote", held.workspace_id) as conn:
        store.finish_promotion(conn, held, status="completed", affected_dates=[], emits_event=False)


def lose_lease(services: Services, owner_sql: OwnerSql, held: Claim) -> None:
    """The owner was not heard of in time, and a sweep has seen it."""
    owner_sql(
        f"UPDATE data_uploads SET lease_expires_at = now() - interval '1 s' WHERE id = '{held.upload_id}'"
    )
    assert recover.sweep(services) == 1


def hand_in(owner_sql: OwnerSql, workspace_id: UUID, count: int) -> None:
    """Uploads whose files nobody will read."""
    owner_sql(f"INSERT INTO workspaces (id) VALUES ('{workspace_id}') ON CONFLICT DO NOTHING")
    owner_sql(
        "INSERT INTO data_uploads (id, workspace_id, platform, source, file_url, created_at)"
        f" SELECT gen_random_uuid(), '{workspace_id}', 'meta', 'manual', 'file:///nothing',"
        f" now() + n * interval '1 ms' FROM generate_series(1, {count}) n"
    )


# -- which one


def test_uploads_of_a_workspace_are_claimed_in_the_order_of_their_creation(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    ids = [uploads.pending() for _ in range(3)]
    owner_sql(f"UPDATE data_uploads SET created_at = created_at - interval '1 d' WHERE id = '{ids[2]}'")
    claimed = [must_claim(services).upload_id for _ in range(3)]
    assert [ids[2], ids[0], ids[1]] == claimed


def test_workspaces_take_turns(services: Services, owner_sql: OwnerSql) -> None:
    for workspace_id, count in ((A, 5), (B, 2), (C, 1)):
        hand_in(owner_sql, workspace_id, count)
    turns = [must_claim(services).workspace_id for _ in range(6)]
    assert turns == [A, B, C, A, B, A]
    assert claim(services) is None  # two of the first workspace are left, but three are active


def test_a_workspace_that_comes_late_is_next(services: Services, owner_sql: OwnerSql) -> None:
    hand_in(owner_sql, A, 5)
    hand_in(owner_sql, B, 5)
    for _ in range(3):
        must_claim(services)
    hand_in(owner_sql, C, 1)
    assert must_claim(services).workspace_id == C


def test_a_fourth_upload_waits_until_one_of_three_is_done(uploads: Uploads, services: Services) -> None:
    ids = [uploads.pending() for _ in range(4)]
    first, _, _ = (must_claim(services) for _ in range(3))
    assert claim(services) is None
    finish_staging(services, first)  # waits for promotion, and counts on
    assert claim(services) is None
    promoted = must_claim(services, "promote")
    assert claim(services) is None
    finish_promotion(services, promoted)
    fourth = must_claim(services)
    assert (ids[0], ids[3]) == (promoted.upload_id, fourth.upload_id)


def test_a_full_workspace_does_not_stand_in_the_way_of_another(
    services: Services, owner_sql: OwnerSql
) -> None:
    hand_in(owner_sql, A, 4)
    for _ in range(3):
        must_claim(services)
    hand_in(owner_sql, B, 1)
    assert must_claim(services).workspace_id == B


def test_an_upload_without_its_file_cannot_be_claimed(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    upload_id = uploads.pending()
    owner_sql("UPDATE data_uploads SET file_url = NULL")
    assert claim(services) is None
    owner_sql("UPDATE data_uploads SET file_url = 'file:///nothing'")
    assert upload_id == must_claim(services).upload_id


def test_an_upload_that_was_put_off_waits_for_its_time(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    later, now = uploads.pending(), uploads.pending()
    owner_sql(f"UPDATE data_uploads SET next_attempt_at = now() + interval '1 h' WHERE id = '{later}'")
    assert now == must_claim(services).upload_id
    assert claim(services) is None
    owner_sql(f"UPDATE data_uploads SET next_attempt_at = now() WHERE id = '{later}'")
    assert later == must_claim(services).upload_id


def test_an_upload_that_has_an_owner_is_claimed_by_nobody_else(uploads: Uploads, services: Services) -> None:
    uploads.pending()
    must_claim(services)
    assert claim(services) is None
    assert claim(services, "promote") is None


def test_a_lease_that_ran_out_is_free_only_after_a_sweep(uploads: Uploads, services: Services) -> None:
    uploads.pending()
    must_claim(services, lease=0.0)
    assert claim(services) is None
    assert recover.sweep(services) == 1
    assert claim(services) is not None


def test_reports_of_one_client_and_platform_are_promoted_in_the_order_of_their_creation(
    uploads: Uploads, services: Services
) -> None:
    older = uploads.pending()
    newer = uploads.pending()
    other_client = uploads.pending(client_id=uuid.uuid4())
    held = {one.upload_id: one for one in (must_claim(services) for _ in range(3))}
    finish_staging(services, held[newer])
    finish_staging(services, held[other_client])
    assert must_claim(services, "promote").upload_id == other_client
    assert claim(services, "promote") is None  # the older one is still being read
    with services.db.transaction("dispatch") as conn:
        assert claims_store.stages_with_work(conn) == []
    finish_staging(services, held[older])
    first = must_claim(services, "promote")
    assert first.upload_id == older
    assert claim(services, "promote") is None
    finish_promotion(services, first)
    assert must_claim(services, "promote").upload_id == newer


def test_a_requeued_upload_waits_for_a_newer_one_that_is_at_work(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    older, newer = uploads.pending(), uploads.pending()
    other_platform = uploads.pending(platform="google")
    for held in [must_claim(services) for _ in range(3)]:
        finish_staging(services, held)
    finish_promotion(services, must_claim(services, "promote"))
    at_work = must_claim(services, "promote")
    assert at_work.upload_id == newer
    owner_sql(
        "UPDATE data_uploads SET status = 'staging_complete', slot = 0, finished_at = NULL"
        f" WHERE id = '{older}'"
    )
    assert must_claim(services, "promote").upload_id == other_platform
    assert claim(services, "promote") is None
    # Nobody is at work on the newer one any more: its turn comes after the older one.
    with services.db.transaction("dispatch") as conn:
        claims_store.release_upload(conn, at_work, why="the worker was asked to stop")
    again = must_claim(services, "promote")
    assert again.upload_id == older
    assert claim(services, "promote") is None
    finish_promotion(services, again)
    assert must_claim(services, "promote").upload_id == newer


@pytest.mark.parametrize("stage", ["parse", "promote"])
def test_an_upload_that_is_put_off_leaves_its_place_and_its_turn_to_others(
    stage: str, uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    ids = [uploads.pending() for _ in range(4)]
    held = [must_claim(services) for _ in range(3)]
    if stage == "promote":
        finish_staging(services, held[0])
        held[0] = must_claim(services, "promote")
    finish_staging(services, held[1])
    assert claim(services, "promote") is None
    with services.db.transaction("dispatch") as conn:
        claims_store.defer_upload(conn, held[0], why="rate_limited", delay_seconds=60)
    assert uploads.show(ids[0]).slot is None
    assert must_claim(services).upload_id == ids[3]
    overtaking = must_claim(services, "promote")
    assert overtaking.upload_id == ids[1]
    owner_sql(f"UPDATE data_uploads SET next_attempt_at = now() WHERE id = '{ids[0]}'")
    assert claim(services, stage) is None  # three others are active
    fail(services, held[2])
    if stage == "promote":  # nor while the one that took its turn is at work
        assert claim(services, stage) is None
        finish_promotion(services, overtaking)
    again = must_claim(services, stage)
    assert (again.upload_id, again.attempts, again.deferrals) == (ids[0], 1, 1)
    slots = [slot for (slot,) in owner_sql("SELECT slot FROM data_uploads WHERE slot IS NOT NULL")]
    assert sorted(slots) == ([0, 1, 2] if stage == "parse" else [0, 1])


# -- again


@pytest.mark.parametrize("stage", ["parse", "promote"])
@pytest.mark.parametrize("how", ["released", "lost"])
def test_an_upload_that_comes_back_has_a_higher_epoch_and_its_slot(
    how: str, stage: str, uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    for _ in range(3):  # of three clients: one client's are promoted one after another
        uploads.pending(client_id=uuid.uuid4())
    held = [must_claim(services) for _ in range(3)]
    if stage == "promote":
        for one in held:
            finish_staging(services, one)
        held = [must_claim(services, "promote") for _ in range(3)]
    slots = dict(owner_sql("SELECT id::text, slot FROM data_uploads"))
    second = held[1]
    if how == "released":
        release(services, second)
    else:
        lose_lease(services, owner_sql, second)
    again = must_claim(services, stage, owner="another")
    assert second.upload_id == again.upload_id
    assert second.claim_epoch < again.claim_epoch
    assert slots == dict(owner_sql("SELECT id::text, slot FROM data_uploads"))


def test_one_that_was_lost_comes_before_those_that_wait(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    uploads.pending()
    second = uploads.pending()
    must_claim(services)
    held = must_claim(services)
    uploads.pending()
    lose_lease(services, owner_sql, held)
    assert second == must_claim(services).upload_id


def test_a_release_forgives_the_attempt_and_a_loss_counts_it(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    uploads.pending()
    held = must_claim(services)
    release(services, held)
    held = must_claim(services)
    assert held.attempts == 1
    lose_lease(services, owner_sql, held)
    assert must_claim(services).attempts == 2


def test_every_claim_and_loss_stands_in_the_history(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    upload_id = uploads.pending()
    lose_lease(services, owner_sql, must_claim(services, owner="one"))
    release(services, must_claim(services, owner="two"))
    found = [(e.action, e.from_status, e.to_status, e.owner_id) for e in uploads.history(upload_id)]
    assert found == [
        ("created", None, "pending", None),
        ("moved", "pending", "processing", "one"),
        ("lease_expired", "processing", "processing", "one"),
        ("resumed", "processing", "processing", "two"),
        ("released", "processing", "processing", "two"),
    ]


# -- three at a time


def test_a_claim_waits_for_one_that_is_not_committed_and_obeys_the_limit(
    services: Services, owner_sql: OwnerSql
) -> None:
    hand_in(owner_sql, A, 4)
    must_claim(services)
    must_claim(services)
    second: list[Claim | None] = []
    waiter = threading.Thread(target=lambda: second.append(claim(services)))
    with services.db.transaction("dispatch") as conn:
        third = claims_store.claim_upload(conn, "parse", owner_id="slow", lease_seconds=60)
        waiter.start()
        wait_until(lambda: owner_sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
        assert third is not None and second == []
    waiter.join(10)
    assert second == [None]
    assert owner_sql("SELECT count(*) FROM data_uploads WHERE status = 'processing'") == [(3,)]


def test_a_claim_that_waited_takes_the_next_upload_and_the_next_slot(
    services: Services, owner_sql: OwnerSql
) -> None:
    hand_in(owner_sql, A, 3)
    second: list[Claim | None] = []
    waiter = threading.Thread(target=lambda: second.append(claim(services)))
    with services.db.transaction("dispatch") as conn:
        first = claims_store.claim_upload(conn, "parse", owner_id="slow", lease_seconds=60)
        waiter.start()
        wait_until(lambda: owner_sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
    waiter.join(10)
    assert first is not None and second[0] is not None
    assert first.upload_id != second[0].upload_id
    assert owner_sql("SELECT slot FROM data_uploads WHERE slot IS NOT NULL ORDER BY 1") == [(0,), (1,)]


@pytest.mark.parametrize("status", ["processing", "staging_complete", "promoting"])
def test_no_hand_can_write_a_fourth_active_upload(
    status: str, services: Services, owner_sql: OwnerSql
) -> None:
    hand_in(owner_sql, A, 4)
    for _ in range(3):
        must_claim(services)
    for slot in ("0", "1", "2", "3", "-1", "NULL"):
        with pytest.raises(psycopg2.IntegrityError):
            owner_sql(f"UPDATE data_uploads SET status = '{status}', slot = {slot} WHERE status = 'pending'")


class RandomWork:
    """A worker that claims, works for a moment and ends in any way that a worker may end."""

    def __init__(self, services: Services, seed: int, until: Callable[[], bool]) -> None:
        self.services, self.random, self.until = services, random.Random(seed), until
        self.done = 0

    def run(self) -> None:
        while not self.until():
            stage = self.random.choice(["parse", "promote"])
            held = claim(self.services, stage, owner=f"worker {id(self)}", lease=0.2)
            if held is None:
                time.sleep(0.005)
                continue
            time.sleep(self.random.uniform(0, 0.02))
            try:
                self.end(stage, held)
                self.done += 1
            except errors.Conflict:
                pass  # the lease was lost meanwhile

    def end(self, stage: str, held: Claim) -> None:
        finish = finish_staging if stage == "parse" else finish_promotion
        chance = self.random.random()
        if chance < 0.05:
            return  # killed: says nothing any more
        if chance < 0.15:
            release(self.services, held)
        elif chance < 0.25:
            fail(self.services, held)
        else:
            finish(self.services, held)


@pytest.mark.parametrize("workspaces", [1, 3])
def test_never_more_than_three_are_active_whatever_twelve_workers_do(
    workspaces: int, services: Services, owner_sql: OwnerSql
) -> None:
    for workspace_id in (A, B, C)[:workspaces]:
        hand_in(owner_sql, workspace_id, 60 // workspaces)
    finished = threading.Event()
    deadline = time.monotonic() + 30
    workers = [RandomWork(services, seed, finished.is_set) for seed in range(12)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    most = 0
    try:
        while not finished.is_set():
            assert time.monotonic() < deadline, "some upload waits for ever"
            for _, active in _active(owner_sql):
                most = max(most, active)
            recover.sweep(services)
            if not owner_sql("SELECT 1 FROM data_uploads WHERE finished_at IS NULL LIMIT 1"):
                finished.set()
    finally:
        finished.set()
        for thread in threads:
            thread.join(10)
    assert most <= 3
    assert max(most_active(owner_sql).values()) == 3
    assert sum(worker.done > 0 for worker in workers) > 1


def _active(owner_sql: OwnerSql) -> list[Any]:
    return owner_sql(
        "SELECT workspace_id, count(*) FROM data_uploads"
        " WHERE status IN ('processing', 'staging_complete', 'promoting') GROUP BY 1"
    )


def most_active(owner_sql: OwnerSql) -> dict[UUID, int]:
    """From the audit log alone: how many uploads of each workspace were active at once, at most."""
    active: dict[UUID, set[UUID]] = {}
    most: Counter[UUID] = Counter()
    for workspace_id, upload_id, action, to_status in owner_sql(
        "SELECT workspace_id, upload_id, action, to_status FROM audit WHERE to_status IS NOT NULL ORDER BY id"
    ):
        now = active.setdefault(workspace_id, set())
        if action != "deferred" and to_status in ("processing", "staging_complete", "promoting"):
            now.add(upload_id)
        else:
            now.discard(upload_id)
        most[workspace_id] = max(most[workspace_id], len(now))
    return dict(most)


# -- a worker that lost its upload and does not know


def chunk_of(held: Claim) -> Chunk:
    row = Staged("daily_metric", 0, "key", '{"line":2,"date":"2025-05-01"}')
    [chunk] = staging_store.chunks(held, Supply(iter([[row]])), limit=10)
    return chunk


def stage(conn: Any, held: Claim) -> None:
    staging_store.copy_chunk(conn, held, chunk_of(held))
    staging_store.set_staged(conn, held, before=held.staged_rows, rows=1, report={"plan": {}})


PARSE_WRITES: dict[str, Callable[[Any, Claim], Any]] = {
    "extend_lease": lambda conn, held: claims_store.extend_lease(conn, held, lease_seconds=60),
    "release_upload": lambda conn, held: claims_store.release_upload(conn, held, why="stop"),
    "fail_upload": lambda conn, held: store.fail_upload(
        conn,
        workspace_id=held.workspace_id,
        upload_id=held.upload_id,
        claim_epoch=held.claim_epoch,
        code="malformed_file",
        sentence="It is.",
    ),
    "staged_rows": staging_store.staged_rows,
    "a chunk": lambda conn, held: stage(conn, held),
    "finish_staging": lambda conn, held: store.finish_staging(
        conn, held, before=1, staged_rows=9, total_rows=9, valid_rows=9, report={"rows": {}}
    ),
}
PROMOTE_WRITES: dict[str, Callable[[Any, Claim], Any]] = {
    **{name: PARSE_WRITES[name] for name in ("extend_lease", "release_upload", "fail_upload")},
    "set_promoting": lambda conn, held: production_store.set_promoting(
        conn,
        held,
        Reached(None, -1),
        Reached("daily_metric", 9),
        {"daily_metric": Counts(promoted=9, failed=9, upserted=9)},
    ),
    "finish_promotion": lambda conn, held: store.finish_promotion(
        conn, held, status="completed", affected_dates=[date(2025, 5, 1)], emits_event=True
    ),
}
WRITES = {"parse": PARSE_WRITES, "promote": PROMOTE_WRITES}
ANY_WORKSPACE = ("extend_lease", "release_upload", "fail_upload")


def write(services: Services, stage: str, name: str, held: Claim) -> None:
    role, workspace_id = ("dispatch", None) if name in ANY_WORKSPACE else (stage, WORKSPACE)
    with services.db.transaction(role, workspace_id) as conn:
        WRITES[stage][name](conn, held)


def requeue_failed(services: Services, upload_id: UUID) -> None:
    with services.db.transaction("parse", WORKSPACE) as conn:
        assert queries.load("uploads").requeue_failed(conn, upload_id=upload_id)


@pytest.mark.parametrize("meanwhile", ["nobody", "another worker", "it failed", "it was requeued"])
@pytest.mark.parametrize("stage", WRITES)
def test_a_worker_that_lost_its_upload_writes_nothing(
    stage: str, meanwhile: str, uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    upload_id = uploads.pending() if stage == "parse" else uploads.parsed()
    zombie = must_claim(services, stage)
    with services.db.transaction("parse", WORKSPACE) as conn:
        staging_store.ensure_staging_day(conn, zombie)
    lose_lease(services, owner_sql, zombie)
    if meanwhile != "nobody":
        owner = must_claim(services, stage, owner="another")
        if meanwhile != "another worker":
            fail(services, owner)
        if meanwhile == "it was requeued":
            requeue_failed(services, upload_id)
            must_claim(services, owner="a third")
    before = everything(owner_sql)
    for name in WRITES[stage]:
        with pytest.raises(errors.Conflict):
            write(services, stage, name, zombie)
            pytest.fail(f"{name} was possible")
    assert before == everything(owner_sql)


@pytest.mark.parametrize(
    ("stage", "last"),
    [(stage, last) for stage in WRITES for last in ("release_upload", "fail_upload", "finish")],
)
def test_the_owner_writes(
    stage: str, last: str, uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    # The other half of the test above: what is refused there is possible here.
    _ = uploads.pending() if stage == "parse" else uploads.parsed()
    held = must_claim(services, stage)
    with services.db.transaction("parse", WORKSPACE) as conn:
        staging_store.ensure_staging_day(conn, held)
    ends = ("release_upload", "fail_upload", "finish_staging", "finish_promotion")
    names = [name for name in WRITES[stage] if name not in ends]
    names += [name for name in WRITES[stage] if name.startswith(last)]
    for name in names:
        before = everything(owner_sql)
        write(services, stage, name, held)
        reads = name == "staged_rows"
        assert reads == (before == everything(owner_sql)), name


def everything(owner_sql: OwnerSql) -> dict[str, list[Any]]:
    tables = ("data_uploads", "staging_rows", "staging_id_resolution", "outbox", "audit", "daily_metrics")
    return {table: owner_sql(f"SELECT t::text FROM {table} t ORDER BY 1") for table in tables}


def test_a_heartbeat_keeps_the_lease_and_nothing_else(
    uploads: Uploads, services: Services, owner_sql: OwnerSql
) -> None:
    uploads.pending()
    held = must_claim(services, lease=5)
    others = "SELECT to_jsonb(u) - 'lease_expires_at' FROM data_uploads u"
    before = owner_sql(others)
    (until,) = owner_sql("SELECT lease_expires_at FROM data_uploads")[0]
    with services.db.transaction("dispatch") as conn:
        claims_store.extend_lease(conn, held, lease_seconds=50)
    assert before == owner_sql(others)
    (later,) = owner_sql("SELECT lease_expires_at FROM data_uploads")[0]
    assert 40 < (later - until).total_seconds() < 60
