"""Claims, leases, heartbeats, and what happens to a task whose daemon has gone."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

import pytest

from tests.integration.pipeline import tasks
from tests.integration.pipeline.conftest import Api
from tests.integration.pipeline.tasks import FILE, QUEUES

STAGE = "shard-worker"
FOREIGN = str(uuid.UUID(int=4))
CLAIMED = {"filename", "shard", "created_at", "attempt", "lease_token", "lease_expires_at"}


def seconds_left(api: Api, expires_at: str) -> float:
    """How long a lease runs from now, by the clock of the database."""
    [(now,)] = api.sql("SELECT now()")
    left: timedelta = datetime.fromisoformat(expires_at) - now
    return left.total_seconds()


def beat(api: Api, token: str, shard: int = 0, status: int = 200, **fields: object) -> dict[str, object]:
    task = {"filename": FILE, "shard": shard, "lease_token": token}
    found: dict[str, object] = api.call("POST", f"/queues/{STAGE}/heartbeat", task | fields, status)
    return found


# Claims


@pytest.mark.parametrize("stage", QUEUES)
def test_a_claim_takes_the_oldest_and_starts_them(pipeline: Api, stage: str) -> None:
    for filename in ("c", "a", "b"):  # by age, not by name
        tasks.ready(pipeline, stage, [0], filename)

    answer = pipeline.call("POST", f"/queues/{stage}/claim", {"worker_id": "worker-1", "limit": 2})

    assert set(answer) == {"stage", "items"}
    assert answer["stage"] == stage
    assert [(item["filename"], item["shard"], item["attempt"]) for item in answer["items"]] == [
        ("c", 0, 1),
        ("a", 0, 1),
    ]
    for item in answer["items"]:
        assert set(item) == CLAIMED
        assert str(uuid.UUID(item["lease_token"])) == item["lease_token"]
        assert tasks.statuses(pipeline, 0, item["filename"])[tasks.STAGES.index(stage)] == "started"
        details = pipeline.call("GET", f"/files/{item['filename']}", details="true")["shards"][0]
        assert details["stages"][stage]["worker_id"] == "worker-1"
        assert details["stages"][stage]["lease_expires_at"] == item["lease_expires_at"]
        assert details["created_at"] == item["created_at"]
    assert [item["filename"] for item in pipeline.call("GET", f"/queues/{stage}")["items"]] == ["b"]


def test_a_claim_takes_one_task_for_a_minute_unless_it_says_more(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE, [0, 1, 2])

    [first] = tasks.claim(pipeline, STAGE)
    second, _ = tasks.claim(pipeline, STAGE, limit=5, lease_seconds=86_400)

    assert 55 < seconds_left(pipeline, first["lease_expires_at"]) <= 60
    assert 86_395 < seconds_left(pipeline, second["lease_expires_at"]) <= 86_400


def test_a_claim_of_an_empty_queue_takes_nothing(pipeline: Api) -> None:
    tasks.register(pipeline)

    assert tasks.claim(pipeline, STAGE, limit=10) == []
    assert pipeline.sql("SELECT count(*) FROM pipeline_history WHERE stage = 'shard-worker'") == [(0,)]


# Starts with a lease


def test_a_start_without_worker_and_lease_answers_as_the_specification_does(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)

    assert tasks.move(pipeline, STAGE, "start") == {
        "filename": FILE,
        "shard": 0,
        "stage": STAGE,
        "status": "started",
    }


def test_a_start_with_a_worker_tells_its_attempt_and_no_lease(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)

    answer = tasks.move(pipeline, STAGE, "start", worker_id="worker-1")

    assert answer == {
        "filename": FILE,
        "shard": 0,
        "stage": STAGE,
        "status": "started",
        "attempt": 1,
        "lease_token": None,
        "lease_expires_at": None,
    }
    assert tasks.move(pipeline, STAGE, "start", worker_id="worker-1") == answer


def test_a_start_with_a_lease_tells_its_token_and_its_end(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)

    answer = tasks.move(pipeline, STAGE, "start", lease_seconds=30)

    assert set(answer) == {
        "filename", "shard", "stage", "status", "attempt", "lease_token", "lease_expires_at",
    }  # fmt: skip
    assert 25 < seconds_left(pipeline, answer["lease_expires_at"]) <= 30
    assert tasks.move(pipeline, STAGE, "done", lease_token=answer["lease_token"])["status"] == "done"


def test_a_start_is_repeated_by_its_token_or_its_worker_only(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    token = tasks.move(pipeline, STAGE, "start", worker_id="worker-1", lease_seconds=30)["lease_token"]

    assert tasks.move(pipeline, STAGE, "start", lease_token=token)["status"] == "started"
    repeated = tasks.move(pipeline, STAGE, "start", worker_id="worker-1", lease_seconds=30)
    assert (repeated["lease_token"], repeated["attempt"]) == (token, 1)
    for somebody_else in ({}, {"worker_id": "worker-2"}, {"lease_token": FOREIGN}, {"lease_seconds": 30}):
        task = {"filename": FILE, "shard": 0} | somebody_else
        answer = pipeline.ask("POST", f"/stages/{STAGE}/start", task)
        assert tasks.refused(answer, 409, "already_started")["current_status"] == "started"
    assert tasks.moves(pipeline)[0, STAGE] == [("new", "started", 1)]


def test_a_claimed_task_is_started_again_by_its_worker_only(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    [item] = tasks.claim(pipeline, STAGE)

    assert tasks.move(pipeline, STAGE, "start", worker_id="worker-1")["lease_token"] == item["lease_token"]
    tasks.move(pipeline, STAGE, "start", status=409, worker_id="worker-2")


# Tokens


@pytest.mark.parametrize("transition", ["done", "fail"])
def test_a_task_ends_by_its_token_and_by_no_other(pipeline: Api, transition: str) -> None:
    tasks.ready(pipeline, STAGE)
    [item] = tasks.claim(pipeline, STAGE)
    task = {"filename": FILE, "shard": 0}

    answer = pipeline.ask("POST", f"/stages/{STAGE}/{transition}", task | {"lease_token": FOREIGN})

    assert tasks.refused(answer, 409, "lease_lost")["current_status"] == "started"
    assert tasks.statuses(pipeline)[2] == "started"
    for _ in "first", "repeat":
        tasks.move(pipeline, STAGE, transition, lease_token=item["lease_token"])
    assert len(tasks.moves(pipeline)[0, STAGE]) == 2


def test_a_task_that_ended_refuses_the_token_of_another(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    tasks.claim(pipeline, STAGE)
    tasks.move(pipeline, STAGE, "done")

    answer = pipeline.ask(
        "POST", f"/stages/{STAGE}/done", {"filename": FILE, "shard": 0, "lease_token": FOREIGN}
    )

    tasks.refused(answer, 409, "lease_lost")


def test_a_token_of_one_task_does_not_open_another(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE, [0, 1])
    first, second = tasks.claim(pipeline, STAGE, limit=2)

    for own, other in ((first, second), (second, first)):
        task = {"filename": FILE, "shard": own["shard"], "lease_token": other["lease_token"]}
        tasks.refused(pipeline.ask("POST", f"/stages/{STAGE}/done", task), 409, "lease_lost")
        tasks.refused(pipeline.ask("POST", f"/queues/{STAGE}/heartbeat", task), 409, "lease_lost")


def test_a_token_of_one_stage_does_not_open_the_next(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    [worker] = tasks.claim(pipeline, STAGE)
    tasks.move(pipeline, STAGE, "done", lease_token=worker["lease_token"])
    tasks.claim(pipeline, "mysql-sender")

    task = {"filename": FILE, "shard": 0, "lease_token": worker["lease_token"]}

    tasks.refused(pipeline.ask("POST", "/stages/mysql-sender/done", task), 409, "lease_lost")


@pytest.mark.parametrize("transition", ["done", "fail"])
def test_who_claimed_before_a_retry_has_no_say(pipeline: Api, transition: str) -> None:
    tasks.ready(pipeline, STAGE)
    [old] = tasks.claim(pipeline, STAGE)
    tasks.move(pipeline, STAGE, "fail", lease_token=old["lease_token"])
    tasks.move(pipeline, STAGE, "retry")
    task = {"filename": FILE, "shard": 0, "lease_token": old["lease_token"]}

    for _ in "while it waits", "while another works":
        tasks.refused(pipeline.ask("POST", f"/stages/{STAGE}/{transition}", task), 409, "lease_lost")
        tasks.claim(pipeline, STAGE, "worker-2")
    assert tasks.moves(pipeline)[0, STAGE][-1] == ("new", "started", 2)


# Heartbeats


def test_a_heartbeat_extends_the_lease_from_now(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    [item] = tasks.claim(pipeline, STAGE, lease_seconds=10)

    answer = beat(pipeline, item["lease_token"], lease_seconds=300)

    assert set(answer) == {"filename", "shard", "stage", "lease_expires_at"}
    assert (answer["filename"], answer["shard"], answer["stage"]) == (FILE, 0, STAGE)
    assert 295 < seconds_left(pipeline, str(answer["lease_expires_at"])) <= 300
    shorter = str(beat(pipeline, item["lease_token"])["lease_expires_at"])
    assert 55 < seconds_left(pipeline, shorter) <= 60
    assert len(tasks.moves(pipeline)[0, STAGE]) == 1


def test_a_heartbeat_before_the_sweep_saves_a_lease_that_has_run_out_or_tells_that_it_is_lost(
    pipeline: Api,
) -> None:
    tasks.ready(pipeline, STAGE)
    [item] = tasks.claim(pipeline, STAGE)
    tasks.expire(pipeline, STAGE)
    task = {"filename": FILE, "shard": 0, "lease_token": item["lease_token"]}

    answer = pipeline.ask("POST", f"/queues/{STAGE}/heartbeat", task)

    assert answer.status in (200, 409)
    if answer.status == 200:
        tasks.move(pipeline, STAGE, "done", lease_token=item["lease_token"])
    else:
        tasks.refused(answer, 409, "lease_lost")


@pytest.mark.parametrize("transition", ["done", "fail"])
def test_what_has_ended_has_no_lease_to_extend(pipeline: Api, transition: str) -> None:
    tasks.ready(pipeline, STAGE)
    [item] = tasks.claim(pipeline, STAGE)
    tasks.move(pipeline, STAGE, transition, lease_token=item["lease_token"])

    assert beat(pipeline, item["lease_token"], status=409)["code"] == "lease_lost"


def test_what_is_at_work_without_a_lease_has_none_to_extend(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    tasks.move(pipeline, STAGE, "start")

    assert beat(pipeline, FOREIGN, status=409)["code"] == "lease_lost"


def test_a_heartbeat_of_a_task_that_nobody_registered_is_refused(pipeline: Api) -> None:
    assert beat(pipeline, FOREIGN, status=404)["code"] == "task_not_found"


# Leases that have run out


@pytest.mark.parametrize("stage", QUEUES)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/queues/{}"), ("POST", "/queues/{}/claim"), ("GET", "/stuck")]
)
def test_whoever_looks_for_work_brings_back_what_a_dead_daemon_held(
    pipeline: Api, stage: str, method: str, path: str
) -> None:
    tasks.ready(pipeline, stage, [0, 1])
    gone, _ = tasks.claim(pipeline, stage, "dead", limit=2)
    tasks.expire(pipeline, stage, gone["shard"])
    body = {"worker_id": "alive", "limit": 10} if method == "POST" else None

    def noticed() -> bool:
        pipeline.call(method, path.format(stage), body)
        return "LEASE_EXPIRED" in [row["error_code"] for row in tasks.history(pipeline)]

    tasks.eventually(noticed, seconds=3)

    rows = [row for row in tasks.history(pipeline) if row["shard"] == gone["shard"] and row["stage"] == stage]
    expiry = rows[1]
    assert (expiry["from_status"], expiry["to_status"], expiry["attempt"]) == ("started", "new", 1)
    assert expiry["error_code"] == "LEASE_EXPIRED"
    assert expiry["worker_id"] == "dead"
    assert len(rows) == (3 if method == "POST" else 2)
    assert len(tasks.moves(pipeline)[1 - gone["shard"], stage]) == 1, "the other lease still runs"


def test_a_task_whose_daemon_has_gone_is_another_daemons(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    [old] = tasks.claim(pipeline, STAGE, "dead")
    tasks.expired(pipeline, STAGE)

    [new] = tasks.claim(pipeline, STAGE, "alive")

    assert (new["attempt"], new["created_at"]) == (2, old["created_at"])
    assert new["lease_token"] != old["lease_token"]
    for transition in ("done", "fail"):
        task = {"filename": FILE, "shard": 0, "lease_token": old["lease_token"]}
        tasks.refused(pipeline.ask("POST", f"/stages/{STAGE}/{transition}", task), 409, "lease_lost")
    assert beat(pipeline, old["lease_token"], status=409)["code"] == "lease_lost"
    tasks.move(pipeline, STAGE, "done", lease_token=new["lease_token"])
    assert tasks.moves(pipeline)[0, STAGE] == [
        ("new", "started", 1),
        ("started", "new", 1),
        ("new", "started", 2),
        ("started", "done", 2),
    ]


@pytest.mark.parametrize("transition", ["done", "fail"])
def test_a_dead_daemon_that_comes_back_does_not_end_what_waits_again(pipeline: Api, transition: str) -> None:
    tasks.ready(pipeline, STAGE)
    [item] = tasks.claim(pipeline, STAGE)
    tasks.expired(pipeline, STAGE)

    task = {"filename": FILE, "shard": 0, "lease_token": item["lease_token"]}
    answer = pipeline.ask("POST", f"/stages/{STAGE}/{transition}", task)

    assert tasks.refused(answer, 409, "lease_lost")["current_status"] == "new"
    assert tasks.statuses(pipeline)[2] == "new"


def test_a_lease_of_a_start_runs_out_too(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    tasks.move(pipeline, STAGE, "start", lease_seconds=60)

    tasks.expired(pipeline, STAGE)

    assert tasks.moves(pipeline)[0, STAGE] == [("new", "started", 1), ("started", "new", 1)]


def test_a_lease_of_a_second_runs_out_by_itself(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE)
    tasks.claim(pipeline, STAGE, "dead", lease_seconds=1)

    tasks.eventually(lambda: tasks.claim(pipeline, STAGE, "alive"), seconds=5)

    assert [to for _, to, _ in tasks.moves(pipeline)[0, STAGE]] == ["started", "new", "started"]


def test_what_has_ended_is_not_brought_back(pipeline: Api) -> None:
    """Both tasks' leases ran out; the one that was done in time stays so."""
    tasks.ready(pipeline, STAGE, [0, 1])
    for item in tasks.claim(pipeline, STAGE, limit=2):
        if item["shard"] == 0:
            tasks.move(pipeline, STAGE, "done", lease_token=item["lease_token"])
    pipeline.sql("UPDATE pipeline_tracking SET shard_worker_lease_expires_at = now() - interval '1 second'")

    tasks.waits_again(pipeline, STAGE, 1)

    assert tasks.statuses(pipeline, 0)[2] == "done"
    assert len(tasks.moves(pipeline)[0, STAGE]) == 2


def test_a_task_that_was_started_without_a_lease_is_never_taken_back(pipeline: Api) -> None:
    tasks.ready(pipeline, STAGE, [0, 1])
    tasks.move(pipeline, STAGE, "start", 0)
    tasks.move(pipeline, STAGE, "start", 1, lease_seconds=60)
    pipeline.sql("UPDATE pipeline_tracking SET shard_worker_started_at = now() - interval '1 year'")

    tasks.expired(pipeline, STAGE, 1)  # a sweep has been

    assert tasks.statuses(pipeline, 0)[2] == "started"
