"""Every transition from every status, and what is taken though it is unusual."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.pipeline import tasks
from tests.integration.pipeline.conftest import Api
from tests.integration.pipeline.tasks import FILE, QUEUES, STAGES

TASK = {"filename": FILE, "shard": 0}
MOST_BYTES = 64 * 1024

WAYS = {"new": (), "started": ("start",), "done": ("start", "done"), "failed": ("start", "fail")}
"""How a task gets to each status."""
OUTCOMES = [
    # from       transition  answer
    ("new",      "start",    "started"),
    ("new",      "done",     409),
    ("new",      "fail",     "failed"),
    ("new",      "retry",    "new"),
    ("started",  "done",     "done"),
    ("started",  "fail",     "failed"),
    ("started",  "retry",    409),
    ("done",     "start",    409),
    ("done",     "done",     "done"),
    ("done",     "fail",     409),
    ("done",     "retry",    409),
    ("failed",   "start",    409),
    ("failed",   "done",     409),
    ("failed",   "fail",     "failed"),
    ("failed",   "retry",    "new"),
]  # fmt: skip
"""All of them but `start` of what is started, which asks who it is."""


@pytest.mark.parametrize("stage", QUEUES)
@pytest.mark.parametrize(("status", "transition", "outcome"), OUTCOMES)
def test_every_transition_from_every_status(
    pipeline: Api, stage: str, status: str, transition: str, outcome: Any
) -> None:
    tasks.ready(pipeline, stage)
    for step in WAYS[status]:
        tasks.move(pipeline, stage, step)

    answer = pipeline.ask("POST", f"/stages/{stage}/{transition}", TASK)

    after = tasks.statuses(pipeline)[STAGES.index(stage)]
    if outcome == 409:
        assert tasks.refused(answer, 409, "invalid_transition")["current_status"] == status
        assert after == status
    else:
        assert (answer.status, answer.json()["status"], after) == (200, outcome, outcome)


@pytest.mark.parametrize("stage", QUEUES)
@pytest.mark.parametrize("upstream", ["new", "started", "failed"])
def test_a_task_does_not_start_before_the_stage_before_it_is_done(
    pipeline: Api, stage: str, upstream: str
) -> None:
    row = dict.fromkeys(STAGES, "new") | {tasks.BEFORE[stage]: upstream}
    tasks.insert(pipeline, [(FILE, 0, tuple(row.values()))])

    answer = pipeline.ask("POST", f"/stages/{stage}/start", TASK | {"worker_id": "worker-1"})

    tasks.refused(answer, 409, "upstream_not_done")
    assert tasks.claim(pipeline, stage) == []


@pytest.mark.parametrize("transition", ["start", "done", "fail", "retry"])
@pytest.mark.parametrize("stage", QUEUES)
def test_a_task_that_nobody_registered_is_not_found(pipeline: Api, stage: str, transition: str) -> None:
    tasks.register(pipeline, [0])

    for task in ({"filename": FILE, "shard": 1}, {"filename": "another", "shard": 0}):
        answer = pipeline.ask("POST", f"/stages/{stage}/{transition}", task)
        tasks.refused(answer, 404, "task_not_found")


def test_an_ingest_of_a_file_that_nobody_registered_is_not_done(pipeline: Api) -> None:
    tasks.register(pipeline, [0], "another")

    answer = pipeline.ask("POST", "/stages/event-ingest/done", {"filename": FILE})

    tasks.refused(answer, 404, "unknown_file")


@pytest.mark.parametrize("transition", ["fail", "retry"])
def test_a_shard_of_an_ingest_that_nobody_registered_is_not_found(pipeline: Api, transition: str) -> None:
    tasks.register(pipeline, [0])

    answer = pipeline.ask("POST", f"/stages/event-ingest/{transition}", {"filename": FILE, "shard": 1})

    tasks.refused(answer, 404, "task_not_found")


@pytest.mark.parametrize("status", ["failed", "new"])
def test_an_ingest_of_which_a_shard_failed_is_done_for_none(pipeline: Api, status: str) -> None:
    tasks.register(pipeline, [0, 1])
    tasks.move(pipeline, "event-ingest", "fail", 1)
    if status == "new":
        tasks.move(pipeline, "event-ingest", "retry", 1)

    answer = pipeline.ask("POST", "/stages/event-ingest/done", {"filename": FILE})

    assert tasks.refused(answer, 409, "invalid_transition")["current_status"] == status
    assert [tasks.statuses(pipeline, shard)[0] for shard in (0, 1)] == ["started", status]


def test_an_ingest_that_failed_and_is_retried_is_begun_by_registering_it_again(pipeline: Api) -> None:
    tasks.register(pipeline, [0, 1])
    tasks.move(pipeline, "event-ingest", "fail", 1, error_code="NO_SPACE")
    assert tasks.move(pipeline, "event-ingest", "retry", 1) == {
        "filename": FILE, "stage": "event-ingest", "status": "new", "updated_rows": 1,
    }  # fmt: skip

    assert tasks.register(pipeline, [0, 1])["created"] is False
    assert tasks.move(pipeline, "event-ingest", "done", None)["updated_rows"] == 2

    assert tasks.moves(pipeline) == {
        (0, "event-ingest"): [(None, "started", 1), ("started", "done", 1)],
        (1, "event-ingest"): [
            (None, "started", 1),
            ("started", "failed", 1),
            ("failed", "new", 1),
            ("new", "started", 2),
            ("started", "done", 2),
        ],
    }


# What is unusual


def test_what_is_unusual_and_right_is_taken(pipeline: Api) -> None:
    """The ends of each range, whole numbers with a part of zero, members that nobody knows, and null."""
    name = "Az09._-" + "a" * 248
    assert len(name) == 255
    answer = pipeline.call(
        "POST", "/files/register?unknown=1", {"filename": name, "shards": [0.0, 32_767, 1e0], "unknown": [{}]}
    )
    assert answer == {"filename": name, "shards": [0, 32_767, 1], "created": True}
    assert [type(shard) for shard in answer["shards"]] == [int, int, int]
    assert len(tasks.register(pipeline, range(1024), "many")["shards"]) == 1024
    tasks.move(pipeline, "event-ingest", "done", None, filename=name, shard_count="unknown")
    started = tasks.move(
        pipeline, "shard-splitter", "start", 32_767.0, filename=name, worker_id=None, lease_token=None,
        lease_seconds=86_400.0,
    )  # fmt: skip
    assert started["shard"] == 32_767
    reason: dict[str, Any] = {
        "error_code": "Az09_.-" + "a" * 93,
        "error_message": "строка\nи ещё одна\t\x7f" + "a" * 4000,
    }
    tasks.move(pipeline, "shard-splitter", "fail", 32_767, filename=name, **reason)
    [task] = [row for row in tasks.history(pipeline, name) if row["to_status"] == "failed"]
    assert {field: task[field] for field in reason} == reason
    tasks.move(pipeline, "shard-splitter", "retry", 32_767, filename=name)
    failed = tasks.move(pipeline, "shard-splitter", "fail", 32_767, filename=name, error_message="a" * 4096)
    assert failed["status"] == "failed"


def test_a_body_of_64_kib_is_not_too_large(pipeline: Api) -> None:
    body = json.dumps({"filename": FILE, "shards": [0]}).encode()

    assert pipeline.ask("POST", "/files/register", body.ljust(MOST_BYTES)).status == 200


def test_a_file_may_be_named_as_a_call_is(pipeline: Api) -> None:
    tasks.refused(pipeline.ask("GET", "/files/register"), 404, "unknown_file")
    tasks.register(pipeline, [0], "register")
    assert pipeline.call("GET", "/files/register")["filename"] == "register"
