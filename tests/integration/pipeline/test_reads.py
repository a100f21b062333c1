"""Everything that is read: queues, files, tasks, stuck work, history, figures."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.integration.pipeline import tasks
from tests.integration.pipeline.conftest import Api
from tests.integration.pipeline.tasks import FILE, QUEUES, STAGES

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
NOTHING = {"new": 0, "started": 0, "done": 0, "failed": 0}
LIMIT_SECONDS = {"event-ingest": 300, "shard-splitter": 180, "shard-worker": 600, "mysql-sender": 300}
"""How long a stage may take before it is stuck."""


def aged(api: Api, fields: str = "created_at", step: str = "1 minute") -> None:
    """Each task is so much younger than the one registered before it, since the new year."""
    values = ", ".join(
        f"{field} = '2025-01-01T00:00:00Z'::timestamptz + place * '{step}'::interval"
        for field in fields.split()
    )
    api.sql(
        f"UPDATE pipeline_tracking SET {values} FROM"
        " (SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM pipeline_tracking) AS placed"
        " WHERE pipeline_tracking.id = placed.id"
    )


def queue_pages(api: Api, stage: str, **query: Any) -> Iterator[list[int]]:
    """The shards on each page of a queue, whose links are followed to the end."""
    answer = api.ask("GET", f"/queues/{stage}", **query)
    origin = "{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(api.url))
    while True:
        assert answer.status == 200, answer.data
        body = answer.json()
        assert set(body) == {"stage", "items"}
        yield [item["shard"] for item in body["items"]]
        if "Link" not in answer.headers:
            return
        link = re.fullmatch(r'<([^>]+)>; rel="next"', answer.headers["Link"])
        assert link, answer.headers["Link"]
        answer = api.pool.request("GET", urllib.parse.urljoin(origin, link[1]))


# Queues


@pytest.mark.parametrize("same_age", [True, False])
@pytest.mark.parametrize("stage", QUEUES)
def test_a_queue_is_read_page_by_page_along_its_links(pipeline: Api, stage: str, same_age: bool) -> None:
    tasks.ready(pipeline, stage, range(7))
    if not same_age:
        aged(pipeline)

    assert list(queue_pages(pipeline, stage, limit=3)) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_last_page_that_is_full_has_no_next(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-worker", range(6))

    assert list(queue_pages(pipeline, "shard-worker", limit=3)) == [[0, 1, 2], [3, 4, 5]]


def test_a_queue_read_by_links_skips_nothing_while_its_tasks_are_taken(pipeline: Api) -> None:
    """What reading by offset cannot do: the page before has been started meanwhile."""
    tasks.ready(pipeline, "shard-worker", range(9))
    found = []

    for page in queue_pages(pipeline, "shard-worker", limit=3):
        found += page
        for shard in page:
            tasks.move(pipeline, "shard-worker", "start", shard)

    assert found == list(range(9))


def test_a_queue_is_read_by_offset(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-worker", range(7))

    def page(**query: int) -> list[int]:
        return [item["shard"] for item in pipeline.call("GET", "/queues/shard-worker", **query)["items"]]

    assert page(limit=3, offset=0) == [0, 1, 2]
    assert page(limit=3, offset=2) == [2, 3, 4]
    assert page(limit=3, offset=6) == [6]
    assert page(limit=3, offset=7) == []
    assert page(offset=5) == [5, 6]


def test_a_queue_shows_a_hundred_tasks_unless_it_is_asked_for_more(pipeline: Api) -> None:
    tasks.register(pipeline, range(120))
    tasks.move(pipeline, "event-ingest", "done", None)

    assert [len(page) for page in queue_pages(pipeline, "shard-splitter")] == [100, 20]
    assert [len(page) for page in queue_pages(pipeline, "shard-splitter", limit=1000)] == [120]


@pytest.mark.parametrize(
    ("query", "shards"),
    [
        ({"updated_from": "2025-01-01T00:02:00Z"}, [2, 3, 4]),
        ({"updated_from": "2025-01-01T00:02:00.000001Z"}, [3, 4]),
        ({"updated_from": "2025-01-01T03:02:00+03:00"}, [2, 3, 4]),
        ({"updated_from": "2025-01-01T00:01:00Z", "updated_to": "2025-01-01T00:03:30Z"}, [1, 2, 3]),
        ({"updated_to": "2025-01-01T00:00:30Z"}, [0]),
        ({"updated_to": "2024-12-31T23:59:59Z"}, []),
        ({"updated_from": "2025-01-01T00:02:00Z", "offset": "1", "limit": "1"}, [3]),
    ],
)
def test_a_queue_is_filtered_by_the_time_of_the_last_change(
    pipeline: Api, query: dict[str, str], shards: list[int]
) -> None:
    tasks.ready(pipeline, "shard-worker", range(5))
    aged(pipeline, "updated_at")

    items = tasks.read(pipeline, "/queues/shard-worker", query)["items"]

    assert [item["shard"] for item in items] == shards


def test_the_links_of_a_queue_keep_its_filter(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-worker", range(8))
    aged(pipeline, "updated_at")
    query = {"updated_from": "2025-01-01T00:02:00+00:00", "updated_to": "2025-01-01T00:05:30Z", "limit": 3}

    assert list(queue_pages(pipeline, "shard-worker", **query)) == [[2, 3, 4], [5]]


def test_reading_a_queue_takes_nothing(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-worker")
    first = pipeline.call("GET", "/queues/shard-worker")

    assert pipeline.call("GET", "/queues/shard-worker") == first
    assert TIME.fullmatch(first["items"][0]["created_at"])


# One file


@pytest.mark.parametrize("query", [{}, {"details": "false"}])
def test_a_file_has_exactly_what_the_specification_shows(pipeline: Api, query: dict[str, str]) -> None:
    tasks.register(pipeline, [3, 1])

    answer = tasks.read(pipeline, f"/files/{FILE}", query)

    assert set(answer) == {"filename", "shards"}
    assert [shard["shard"] for shard in answer["shards"]] == [1, 3]
    for shard in answer["shards"]:
        assert set(shard) == {"shard", *map(tasks.column, STAGES), "updated_at"}
        assert TIME.fullmatch(shard["updated_at"])


def test_a_file_in_detail_tells_who_did_what_and_when(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-splitter")
    [item] = tasks.claim(pipeline, "shard-splitter", "splitter-1")
    tasks.move(
        pipeline, "shard-splitter", "fail", lease_token=item["lease_token"],
        error_code="NO_SPACE", error_message="диск полон\n\"/data\" ✗",
    )  # fmt: skip
    [shard] = pipeline.call("GET", f"/files/{FILE}", details="true")["shards"]

    assert set(shard) == {
        "shard", *map(tasks.column, STAGES), "updated_at", "created_at", "blocked_by", "stages",
    }  # fmt: skip
    assert list(shard["stages"]) == list(STAGES)
    for stage, work in shard["stages"].items():
        assert set(work) == {
            "status", "attempt", "worker_id", "started_at", "finished_at", "lease_expires_at", "error_code",
            "error_message",
        }  # fmt: skip
        assert work["status"] == shard[tasks.column(stage)]
    ingest, splitter = shard["stages"]["event-ingest"], shard["stages"]["shard-splitter"]
    assert (ingest["status"], ingest["attempt"], ingest["error_code"]) == ("done", 1, None)
    assert shard["created_at"] == ingest["started_at"] < ingest["finished_at"] < splitter["started_at"]
    assert (splitter["status"], splitter["attempt"], splitter["worker_id"]) == ("failed", 1, "splitter-1")
    assert (splitter["error_code"], splitter["error_message"]) == ("NO_SPACE", 'диск полон\n"/data" ✗')
    assert splitter["started_at"] < splitter["finished_at"] == shard["updated_at"]
    assert shard["stages"]["shard-worker"] == {
        "status": "new", "attempt": 0, "worker_id": None, "started_at": None, "finished_at": None,
        "lease_expires_at": None, "error_code": None, "error_message": None,
    }  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
def test_what_failed_upstream_is_named_as_what_blocks(pipeline: Api, stage: str) -> None:
    """A failure leaves the stages after it new for ever; details name it. The last blocks none."""
    if stage == "event-ingest":
        tasks.register(pipeline, [0])
        tasks.move(pipeline, stage, "fail", None)
    else:
        tasks.ready(pipeline, stage)
        tasks.failed(pipeline, stage)

    def blocked_by() -> Any:
        return pipeline.call("GET", f"/files/{FILE}", details="true")["shards"][0]["blocked_by"]

    assert blocked_by() == (None if stage == STAGES[-1] else stage)
    tasks.move(pipeline, stage, "retry", None if stage == "event-ingest" else 0)
    assert blocked_by() is None


def test_a_file_that_nobody_registered_is_unknown(pipeline: Api) -> None:
    for path in (f"/files/{FILE}", f"/files/{FILE}/history"):
        tasks.refused(pipeline.ask("GET", path), 404, "unknown_file")


# Files


def test_files_are_listed_by_name_the_newest_first(pipeline: Api) -> None:
    names = ["20250103", "20250101", "20250105", "20250102", "20250104"]
    for name in names:
        tasks.register(pipeline, [0, 1], name)
    tasks.ready(pipeline, "shard-worker", [0, 1, 2], "20250103")

    [newest, *_], [third, *_], _ = tasks.pages(pipeline, "/files", "files", limit=2)

    assert [
        [file["filename"] for file in page] for page in tasks.pages(pipeline, "/files", "files", limit=2)
    ] == [["20250105", "20250104"], ["20250103", "20250102"], ["20250101"]]
    assert set(newest) == {"filename", "shards", "created_at", "updated_at", "by_stage"}
    assert (newest["shards"], newest["by_stage"]["event_ingest"]) == (2, NOTHING | {"started": 2})
    assert (third["filename"], third["shards"]) == ("20250103", 3)
    assert third["by_stage"] == {
        "event_ingest": NOTHING | {"done": 3},
        "shard_splitter": NOTHING | {"done": 3},
        "shard_worker": NOTHING | {"new": 3},
        "mysql_sender": NOTHING | {"new": 3},
    }
    [(created_at, updated_at)] = pipeline.sql(
        "SELECT min(created_at), max(updated_at) FROM pipeline_tracking WHERE filename = '20250103'"
    )
    assert datetime.fromisoformat(third["created_at"]) == created_at
    assert datetime.fromisoformat(third["updated_at"]) == updated_at


def test_files_are_filtered_by_a_status_that_one_of_their_tasks_has(pipeline: Api) -> None:
    tasks.register(pipeline, [0, 1], "a")
    tasks.ready(pipeline, "shard-splitter", [0, 1], "b")
    tasks.failed(pipeline, "shard-splitter", 1, "b")
    tasks.ready(pipeline, "shard-splitter", [0], "c")
    tasks.move(pipeline, "shard-splitter", "start", 0, filename="c")

    def named(status: str) -> list[str]:
        return [file["filename"] for file in tasks.read(pipeline, "/files", {"status": status})["files"]]

    assert named("failed") == ["b"]
    assert named("started") == ["c", "a"]
    [b] = tasks.read(pipeline, "/files", {"status": "failed"})["files"]
    assert b["shards"] == 2, "all shards of a file that is found are counted"


def test_nothing_is_listed_where_nothing_is(pipeline: Api) -> None:
    assert pipeline.call("GET", "/files") == {"files": [], "cursor": None}
    assert pipeline.call("GET", "/tasks") == {"tasks": [], "cursor": None}
    assert pipeline.call("GET", "/stuck") == {"stuck": []}
    for stage in QUEUES:
        assert pipeline.call("GET", f"/queues/{stage}") == {"stage": stage, "items": []}


# History


def test_the_history_of_a_file_has_every_change_oldest_first(pipeline: Api) -> None:
    tasks.register(pipeline, [0, 1])
    tasks.move(pipeline, "event-ingest", "done", None)
    tasks.move(pipeline, "shard-splitter", "start", 1, worker_id="splitter-1")
    tasks.move(
        pipeline, "shard-splitter", "fail", 1, worker_id="splitter-1", error_code="X", error_message="y"
    )
    tasks.move(pipeline, "shard-splitter", "retry", 1)

    answer = pipeline.call("GET", f"/files/{FILE}/history")

    assert set(answer) == {"filename", "history", "cursor"}
    assert (answer["filename"], answer["cursor"]) == (FILE, None)
    rows = answer["history"]
    assert [(r["shard"], r["stage"], r["from_status"], r["to_status"], r["attempt"]) for r in rows] == [
        (0, "event-ingest", None, "started", 1),
        (1, "event-ingest", None, "started", 1),
        (0, "event-ingest", "started", "done", 1),
        (1, "event-ingest", "started", "done", 1),
        (1, "shard-splitter", "new", "started", 1),
        (1, "shard-splitter", "started", "failed", 1),
        (1, "shard-splitter", "failed", "new", 1),
    ]
    assert [(r["worker_id"], r["error_code"], r["error_message"]) for r in rows[4:6]] == [
        ("splitter-1", None, None),
        ("splitter-1", "X", "y"),
    ]
    for row in rows:
        assert set(row) == tasks.HISTORY_FIELDS
        assert TIME.fullmatch(row["at"])
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)


def test_a_long_history_is_read_by_its_cursors(pipeline: Api) -> None:
    tasks.ready(pipeline, "mysql-sender", [0, 1])
    tasks.ready(pipeline, "mysql-sender", [0], "another")
    everything = pipeline.call("GET", f"/files/{FILE}/history")["history"]
    assert len(everything) == 12

    read = tasks.pages(pipeline, f"/files/{FILE}/history", "history", limit=5)

    assert [len(page) for page in read] == [5, 5, 2]
    assert [row for page in read for row in page] == everything
    one = tasks.pages(pipeline, f"/files/{FILE}/history", "history", limit=4, shard=1)
    assert [len(page) for page in one] == [4, 2]
    assert [row for page in one for row in page] == [row for row in everything if row["shard"] == 1]


# Tasks


@pytest.fixture
def variety(pipeline: Api) -> Api:
    """Two files; in shard-splitter one task is new, one started, one done, two failed."""
    tasks.ready(pipeline, "shard-splitter", [0, 1, 2], "a")
    tasks.ready(pipeline, "shard-splitter", [0, 1], "b")
    tasks.move(pipeline, "shard-splitter", "start", 1, filename="a")
    tasks.failed(pipeline, "shard-splitter", 2, "a", error_code="NO_SPACE")
    tasks.move(pipeline, "shard-splitter", "start", 0, filename="b")
    tasks.move(pipeline, "shard-splitter", "done", 0, filename="b")
    tasks.failed(pipeline, "shard-splitter", 1, "b", error_code="BAD_EVENTS")
    aged(pipeline, "updated_at")
    return pipeline


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["a0", "a1", "a2", "b0", "b1"]),
        ({"filename": "b"}, ["b0", "b1"]),
        ({"filename": "nobody"}, []),
        ({"shard": "1"}, ["a1", "b1"]),
        ({"filename": "a", "shard": "2"}, ["a2"]),
        ({"stage": "shard-splitter", "status": "new"}, ["a0"]),
        ({"stage": "shard-splitter", "status": "started"}, ["a1"]),
        ({"stage": "shard-splitter", "status": "done"}, ["b0"]),
        ({"stage": "shard-splitter", "status": "failed"}, ["a2", "b1"]),
        ({"stage": "shard-worker", "status": "new"}, ["a0", "a1", "a2", "b0", "b1"]),
        ({"stage": "event-ingest", "status": "done", "shard": "0"}, ["a0", "b0"]),
        ({"stage": "shard-splitter", "error_code": "NO_SPACE"}, ["a2"]),
        ({"stage": "shard-worker", "error_code": "NO_SPACE"}, []),
        ({"stage": "shard-splitter", "status": "failed", "error_code": "BAD_EVENTS"}, ["b1"]),
        ({"updated_from": "2025-01-01T00:03:00Z"}, ["b0", "b1"]),
        ({"updated_from": "2025-01-01T00:01:00Z", "updated_to": "2025-01-01T00:02:30Z"}, ["a1", "a2"]),
    ],
)
def test_tasks_are_found_by_what_is_known_of_them(
    variety: Api, query: dict[str, str], found: list[str]
) -> None:
    listed = tasks.read(variety, "/tasks", query)

    assert sorted(f"{task['filename']}{task['shard']}" for task in listed["tasks"]) == found
    for task in listed["tasks"]:
        assert set(task) == {"filename", "shard", *map(tasks.column, STAGES), "updated_at"}
        assert tuple(task[tasks.column(stage)] for stage in STAGES) == tasks.statuses(
            variety, task["shard"], task["filename"]
        )


def test_tasks_are_read_by_cursors_with_their_filter(variety: Api) -> None:
    everything = variety.call("GET", "/tasks")["tasks"]

    read = tasks.pages(variety, "/tasks", "tasks", limit=2)

    assert [len(page) for page in read] == [2, 2, 1]
    assert [task for page in read for task in page] == everything
    with_failed = {"stage": "shard-splitter", "status": "failed", "limit": 1}
    failed = tasks.pages(variety, "/tasks", "tasks", **with_failed)
    assert sorted(task["filename"] for page in failed for task in page) == ["a", "b"]


@pytest.mark.parametrize("query", ["status=failed", "error_code=X"])
def test_a_status_or_a_reason_without_its_stage_is_refused(pipeline: Api, query: str) -> None:
    tasks.refused(pipeline.ask("GET", f"/tasks?{query}"), 422, "invalid_request")


# Stuck


def at_work_since(api: Api, stage: str, seconds: int, shard: int = 0) -> None:
    started = f"{stage.replace('-', '_')}_started_at"
    api.sql(
        f"UPDATE pipeline_tracking SET {started} = now() - make_interval(secs => %(seconds)s)"
        " WHERE shard = %(shard)s",
        seconds=seconds,
        shard=shard,
    )


def begun(api: Api, stage: str, shards: list[int]) -> None:
    """The shards are at work in the stage, without a lease."""
    if stage == "event-ingest":
        tasks.register(api, shards)
        return
    tasks.ready(api, stage, shards)
    for shard in shards:
        tasks.move(api, stage, "start", shard, worker_id=f"worker-{shard}")


@pytest.mark.parametrize("stage", STAGES)
def test_what_takes_longer_than_its_stage_should_is_stuck(pipeline: Api, stage: str) -> None:
    begun(pipeline, stage, [0, 1])
    limit = LIMIT_SECONDS[stage]
    at_work_since(pipeline, stage, limit - 10, shard=0)
    at_work_since(pipeline, stage, limit + 10, shard=1)

    [stuck] = pipeline.call("GET", "/stuck")["stuck"]

    assert set(stuck) == {
        "filename", "shard", "stage", "worker_id", "started_at", "attempt", "seconds", "limit_seconds",
    }  # fmt: skip
    assert (stuck["filename"], stuck["shard"], stuck["stage"], stuck["attempt"]) == (FILE, 1, stage, 1)
    assert stuck["worker_id"] == (None if stage == "event-ingest" else "worker-1")
    assert stuck["limit_seconds"] == limit
    assert limit + 10 <= stuck["seconds"] < limit + 30
    assert tasks.statuses(pipeline, 1)[STAGES.index(stage)] == "started", "it is told of, not taken"


def test_stuck_work_is_asked_for_by_stage_age_and_number(pipeline: Api) -> None:
    begun(pipeline, "shard-worker", [0, 1, 2])
    tasks.register(pipeline, [5], "another")
    for shard, seconds in enumerate((700, 900, 800)):
        at_work_since(pipeline, "shard-worker", seconds, shard)
    at_work_since(pipeline, "event-ingest", 400, shard=5)

    def found(**query: Any) -> list[int]:
        return [task["shard"] for task in pipeline.call("GET", "/stuck", **query)["stuck"]]

    assert sorted(found()) == [0, 1, 2, 5]
    assert sorted(found(stage="shard-worker")) == [0, 1, 2]
    assert found(stage="event-ingest") == [5]
    assert found(stage="mysql-sender") == []
    assert sorted(found(older_than_seconds=750)) == [1, 2]
    assert found(stage="shard-worker", limit=1) == [1], "the longest first"


def test_stuck_work_can_be_asked_for_earlier_than_its_limit(pipeline: Api) -> None:
    begun(pipeline, "shard-worker", [0])
    at_work_since(pipeline, "shard-worker", 60)

    [stuck] = pipeline.call("GET", "/stuck", older_than_seconds=30)["stuck"]

    assert (stuck["shard"], stuck["limit_seconds"]) == (0, 30)


def test_a_task_under_a_lease_that_runs_is_not_stuck(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-worker")
    tasks.claim(pipeline, "shard-worker", lease_seconds=600)
    at_work_since(pipeline, "shard-worker", 10_000)

    assert pipeline.call("GET", "/stuck") == {"stuck": []}
    assert pipeline.call("GET", "/stuck", older_than_seconds=1) == {"stuck": []}


@pytest.mark.parametrize("transition", ["done", "fail"])
def test_what_has_ended_is_not_stuck(pipeline: Api, transition: str) -> None:
    begun(pipeline, "shard-worker", [0])
    tasks.move(pipeline, "shard-worker", transition)
    at_work_since(pipeline, "shard-worker", 10_000)

    assert pipeline.call("GET", "/stuck") == {"stuck": []}


# Bulk retry


def test_a_dry_run_tells_what_a_bulk_retry_would_do(variety: Api) -> None:
    path, body = "/stages/shard-splitter/retry-failed", {"dry_run": True}
    both = [
        {"filename": "a", "shard": 2, "error_code": "NO_SPACE"},
        {"filename": "b", "shard": 1, "error_code": "BAD_EVENTS"},
    ]

    assert variety.call("POST", path, body) == {
        "stage": "shard-splitter", "matched": 2, "retried": 0, "dry_run": True, "items": both,
    }  # fmt: skip
    assert tasks.statuses(variety, 2, "a")[1] == "failed"
    assert variety.call("POST", path, {}) == {
        "stage": "shard-splitter", "matched": 2, "retried": 2, "dry_run": False, "items": both,
    }  # fmt: skip
    assert tasks.statuses(variety, 2, "a")[1] == tasks.statuses(variety, 1, "b")[1] == "new"
    assert variety.call("POST", path, {})["matched"] == 0


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"filename": "a"}, ["a2"]),
        ({"shard": 1}, ["b1"]),
        ({"shard": 0}, []),
        ({"error_code": "NO_SPACE"}, ["a2"]),
        ({"error_code": "NO_SPACE", "filename": "b"}, []),
        ({"limit": 1}, ["a2"]),
        ({"filename": None, "shard": None, "error_code": None, "limit": None, "dry_run": None}, ["a2", "b1"]),
    ],
)
def test_a_bulk_retry_takes_what_matches(variety: Api, body: dict[str, Any], found: list[str]) -> None:
    answer = variety.call("POST", "/stages/shard-splitter/retry-failed", body)

    assert [f"{item['filename']}{item['shard']}" for item in answer["items"]] == found
    assert answer["retried"] == len(found)
    waiting = variety.call("GET", "/queues/shard-splitter")["items"]
    assert {f"{item['filename']}{item['shard']}" for item in waiting} == {"a0", *found}


# Figures


def test_a_summary_of_nothing_has_its_zeros(pipeline: Api) -> None:
    assert pipeline.call("GET", "/metrics/summary") == {
        "total": 0,
        "by_stage": {
            "event_ingest": NOTHING,
            "shard_splitter": NOTHING,
            "shard_worker": NOTHING,
            "mysql_sender": NOTHING,
        },
        "by_shard": [],
    }


def metrics(api: Api) -> str:
    answer = api.ask("GET", "/metrics")
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    return answer.data.decode()


def test_metrics_name_no_file(variety: Api) -> None:
    tasks.ready(variety, "shard-splitter", [0], "a-name-of-a-file")

    assert "a-name-of-a-file" not in metrics(variety)
