"""Every example of the specification over HTTP: what is sent, answered, and in the table then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.pipeline.conftest import Api

F = "20250101000000"
STAGES = ("shard-splitter", "shard-worker", "mysql-sender")


def statuses(pipeline: Api) -> list[tuple[Any, ...]]:
    """File, shard and the four statuses of each row."""
    return pipeline.sql(
        "SELECT filename, shard, event_ingest_status, shard_splitter_status, shard_worker_status,"
        " mysql_sender_status FROM pipeline_tracking ORDER BY filename, shard"
    )


def bring(pipeline: Api, *moves: tuple[str, int, str], shards: tuple[int, ...] = (0, 1)) -> None:
    """The file is registered and ingested, then these stages of shards are moved."""
    pipeline.call("POST", "/files/register", {"filename": F, "shards": list(shards)})
    pipeline.call("POST", "/stages/event-ingest/done", {"filename": F})
    for stage, shard, transition in moves:
        pipeline.call("POST", f"/stages/{stage}/{transition}", {"filename": F, "shard": shard})


def through(stage: str, shard: int) -> list[tuple[str, int, str]]:
    """The stages before this one are done."""
    before = STAGES[: STAGES.index(stage)]
    return [(one, shard, transition) for one in before for transition in ("start", "done")]


# -- 1) registering a file


def test_1_a_file_is_registered(pipeline: Api) -> None:
    answer = pipeline.ask("POST", "/files/register", {"filename": F, "shards": [0, 1]})
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(answer.data) == {"filename": F, "shards": [0, 1], "created": True}
    assert statuses(pipeline) == [
        (F, 0, "started", "new", "new", "new"),
        (F, 1, "started", "new", "new", "new"),
    ]


def test_1_registering_again_succeeds_and_changes_nothing(pipeline: Api) -> None:
    bring(pipeline, ("shard-splitter", 0, "start"))
    before = pipeline.sql("SELECT * FROM pipeline_tracking ORDER BY id")
    again = pipeline.call("POST", "/files/register", {"filename": F, "shards": [0, 1]})
    assert again == {"filename": F, "shards": [0, 1], "created": False}
    assert pipeline.sql("SELECT * FROM pipeline_tracking ORDER BY id") == before


def test_1_registering_more_shards_adds_those_that_are_missing(pipeline: Api) -> None:
    bring(pipeline)
    more = pipeline.call("POST", "/files/register", {"filename": F, "shards": [1, 2]})
    assert more == {"filename": F, "shards": [1, 2], "created": True}
    assert [row[1:3] for row in statuses(pipeline)] == [(0, "done"), (1, "done"), (2, "started")]


# -- 2) the end of event-ingest


def test_2_the_ingest_is_done_for_every_shard(pipeline: Api) -> None:
    pipeline.call("POST", "/files/register", {"filename": F, "shards": [0, 1]})
    pipeline.call("POST", "/files/register", {"filename": "another", "shards": [0]})
    for _ in range(2):  # a repeat answers the same
        done = pipeline.call("POST", "/stages/event-ingest/done", {"filename": F})
        assert done == {"filename": F, "updated_rows": 2}
    assert [row[:3] for row in statuses(pipeline)] == [
        (F, 0, "done"), (F, 1, "done"), ("another", 0, "started")
    ]  # fmt: skip


def test_2_the_end_of_a_file_that_nobody_registered_does_not_vanish(pipeline: Api) -> None:
    problem = pipeline.call("POST", "/stages/event-ingest/done", {"filename": F}, status=404)
    assert problem["code"] == "unknown_file"


# -- 3) and 4) transitions of the other stages


@pytest.mark.parametrize("stage", STAGES)
def test_3_a_task_is_started_done_and_failed(stage: str, pipeline: Api) -> None:
    bring(pipeline, *through(stage, 0), *through(stage, 1))
    column = stage.replace("-", "_")
    for shard, moves in ((0, ("start", "done")), (1, ("start", "fail"))):
        for transition in moves:
            status = {"start": "started", "done": "done", "fail": "failed"}[transition]
            for _ in range(1 if transition == "start" else 2):
                answer = pipeline.call(
                    "POST", f"/stages/{stage}/{transition}", {"filename": F, "shard": shard}
                )
                assert answer == {"filename": F, "shard": shard, "stage": stage, "status": status}
            [(found,)] = pipeline.sql(
                f"SELECT {column}_status FROM pipeline_tracking WHERE shard = %(shard)s", shard=shard
            )
            assert found == status


@pytest.mark.parametrize("stage", STAGES)
def test_3_a_task_may_fail_before_it_was_started(stage: str, pipeline: Api) -> None:
    bring(pipeline, *through(stage, 0))
    failed = pipeline.call("POST", f"/stages/{stage}/fail", {"filename": F, "shard": 0})
    assert failed == {"filename": F, "shard": 0, "stage": stage, "status": "failed"}


@pytest.mark.parametrize("stage", STAGES)
def test_4_a_failed_task_is_new_again_and_no_other_is(stage: str, pipeline: Api) -> None:
    bring(pipeline, *through(stage, 0), *through(stage, 1), (stage, 1, "start"), (stage, 1, "fail"))
    pipeline.call("POST", f"/stages/{stage}/start", {"filename": F, "shard": 0})
    for _ in range(2):  # a repeat answers the same
        retried = pipeline.call("POST", f"/stages/{stage}/retry", {"filename": F, "shard": 1})
        assert retried == {"filename": F, "shard": 1, "stage": stage, "status": "new"}
    refused = pipeline.call("POST", f"/stages/{stage}/retry", {"filename": F, "shard": 0}, status=409)
    assert (refused["code"], refused["current_status"]) == ("invalid_transition", "started")
    assert pipeline.call("POST", f"/stages/{stage}/start", {"filename": F, "shard": 1})["status"] == "started"


# -- 5) queues


@pytest.mark.parametrize("stage", STAGES)
def test_5_a_queue_has_what_is_ready_for_the_stage_the_oldest_first(stage: str, pipeline: Api) -> None:
    bring(pipeline, *through(stage, 2), *through(stage, 0), shards=(2, 0, 1))
    expected = [2, 1, 0] if stage == "shard-splitter" else [2, 0]  # shard 1 is not split yet
    pipeline.sql(
        "UPDATE pipeline_tracking"
        " SET created_at = timestamptz '2025-01-01 00:00:00Z' - shard * interval '1 s'"
    )
    found = pipeline.call("GET", f"/queues/{stage}")
    assert found["stage"] == stage
    assert [(item["filename"], item["shard"]) for item in found["items"]] == [(F, one) for one in expected]
    assert found["items"][-1] == {"filename": F, "shard": 0, "created_at": "2025-01-01T00:00:00Z"}

    pipeline.call("POST", f"/stages/{stage}/start", {"filename": F, "shard": 2})
    left = pipeline.call("GET", f"/queues/{stage}")["items"]
    assert [item["shard"] for item in left] == expected[1:]


def test_5_a_queue_is_read_in_parts(pipeline: Api) -> None:
    bring(pipeline, shards=tuple(range(25)))
    pages = [
        [
            item["shard"]
            for item in pipeline.call("GET", "/queues/shard-splitter", limit=10, offset=at)["items"]
        ]
        for at in (0, 10, 20, 30)
    ]
    assert pages == [list(range(10)), list(range(10, 20)), list(range(20, 25)), []]


# -- 6) the statuses of a file


def test_6_a_file_tells_where_its_shards_stand(pipeline: Api) -> None:
    bring(
        pipeline, ("shard-splitter", 0, "start"), ("shard-splitter", 0, "done"), ("shard-worker", 0, "start")
    )
    pipeline.sql("UPDATE pipeline_tracking SET updated_at = '2025-01-01 00:05:00Z'")
    assert pipeline.call("GET", f"/files/{F}") == {
        "filename": F,
        "shards": [
            {
                "shard": 0, "event_ingest_status": "done", "shard_splitter_status": "done",
                "shard_worker_status": "started", "mysql_sender_status": "new",
                "updated_at": "2025-01-01T00:05:00Z",
            },
            {
                "shard": 1, "event_ingest_status": "done", "shard_splitter_status": "new",
                "shard_worker_status": "new", "mysql_sender_status": "new",
                "updated_at": "2025-01-01T00:05:00Z",
            },
        ],
    }  # fmt: skip
    assert pipeline.call("GET", "/files/another", status=404)["code"] == "unknown_file"


# -- 7) the summary


def test_7_the_summary_of_nothing_has_its_zeros(pipeline: Api) -> None:
    zeros = {"new": 0, "started": 0, "done": 0, "failed": 0}
    columns = ("event_ingest", "shard_splitter", "shard_worker", "mysql_sender")
    assert pipeline.call("GET", "/metrics/summary") == {
        "total": 0, "by_stage": dict.fromkeys(columns, zeros), "by_shard": []
    }  # fmt: skip


def test_7_the_summary_counts_every_stage_and_shard(pipeline: Api) -> None:
    pipeline.sql(
        "INSERT INTO pipeline_tracking (filename, shard, event_ingest_status, shard_splitter_status,"
        " shard_worker_status, mysql_sender_status)"
        " SELECT 'f' || n, n %% 2, 'done', 'done', CASE WHEN n <= 10 THEN 'new' WHEN n <= 15 THEN 'started'"
        " WHEN n <= 20 THEN 'failed' ELSE 'done' END,"
        " CASE WHEN n <= 20 OR n > 116 AND n %% 2 = 0 THEN 'failed' WHEN n > 110 THEN 'new' ELSE 'done' END"
        " FROM generate_series(1, 120) AS n"
    )
    found = pipeline.call("GET", "/metrics/summary")
    assert found["total"] == 120
    assert found["by_stage"]["shard_worker"] == {"new": 10, "started": 5, "done": 100, "failed": 5}
    assert found["by_stage"]["event_ingest"] == {"new": 0, "started": 0, "done": 120, "failed": 0}
    assert found["by_shard"] == [
        {"shard": 0, "total": 60, "done": 45, "failed": 12},
        {"shard": 1, "total": 60, "done": 45, "failed": 10},
    ]


# -- the scenarios


def test_a_file_goes_through_the_whole_pipeline(pipeline: Api) -> None:
    """Scenarios 1 to 4, one call after the other, as the daemons make them."""
    pipeline.call("POST", "/files/register", {"filename": F, "shards": [0, 1]})
    assert pipeline.call("GET", "/queues/shard-splitter")["items"] == []
    pipeline.call("POST", "/stages/event-ingest/done", {"filename": F})
    for stage in STAGES:
        items = pipeline.call("GET", f"/queues/{stage}")["items"]
        assert [(item["filename"], item["shard"]) for item in items] == [(F, 0), (F, 1)]
        for item in items:
            task = {"filename": item["filename"], "shard": item["shard"]}
            pipeline.call("POST", f"/stages/{stage}/start", task)
            if stage == "mysql-sender" and item["shard"] == 1:  # it falls over once, and is sent again
                pipeline.call("POST", f"/stages/{stage}/fail", task)
                pipeline.call("POST", f"/stages/{stage}/retry", task)
                pipeline.call("POST", f"/stages/{stage}/start", task)
            pipeline.call("POST", f"/stages/{stage}/done", task)
        assert pipeline.call("GET", f"/queues/{stage}")["items"] == []
    assert statuses(pipeline) == [(F, shard, "done", "done", "done", "done") for shard in (0, 1)]
