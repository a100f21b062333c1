"""Files and tasks in a wanted state, and what the tests of the pipeline ask again and again."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tests import patience
from tests.integration.pipeline.conftest import Api

FILE = "20250101000000"
STAGES = ("event-ingest", "shard-splitter", "shard-worker", "mysql-sender")
QUEUES = STAGES[1:]
STATUSES = ("new", "started", "done", "failed")
BEFORE = dict(zip(QUEUES, STAGES, strict=False))

HISTORY_FIELDS = {
    "id", "shard", "stage", "from_status", "to_status", "attempt", "worker_id", "error_code",
    "error_message", "at",
}  # fmt: skip
PATIENCE_SECONDS = 10.0

T = TypeVar("T")


def column(stage: str) -> str:
    """The column of the stage's status, by the specification."""
    return f"{stage.replace('-', '_')}_status"


def register(api: Api, shards: Sequence[int] = (0, 1), filename: str = FILE) -> Any:
    """The answer to the registration of a file."""
    return api.call("POST", "/files/register", {"filename": filename, "shards": list(shards)})


def move(
    api: Api,
    stage: str,
    transition: str,
    shard: float | None = 0,
    *,
    filename: str = FILE,
    status: int = 200,
    **fields: Any,
) -> Any:
    """The body of the answer to one transition, which has this status."""
    task = {"filename": filename} | ({} if shard is None else {"shard": shard})
    return api.call("POST", f"/stages/{stage}/{transition}", task | fields, status)


def ready(api: Api, stage: str, shards: Sequence[int] = (0,), filename: str = FILE) -> None:
    """The file's shards wait for the stage, each stage before it done."""
    register(api, shards, filename)
    move(api, "event-ingest", "done", None, filename=filename)
    for earlier in QUEUES[: QUEUES.index(stage)]:
        for shard in shards:
            move(api, earlier, "start", shard, filename=filename)
            move(api, earlier, "done", shard, filename=filename)


def claim(api: Api, stage: str, worker_id: str = "worker-1", **fields: Any) -> list[dict[str, Any]]:
    """What one claim takes."""
    items = api.call("POST", f"/queues/{stage}/claim", {"worker_id": worker_id} | fields)["items"]
    return list(items)


def failed(api: Api, stage: str, shard: int = 0, filename: str = FILE, **reason: Any) -> None:
    """The task that waits for the stage has been started and has failed."""
    move(api, stage, "start", shard, filename=filename)
    move(api, stage, "fail", shard, filename=filename, **reason)


def statuses(api: Api, shard: int = 0, filename: str = FILE) -> tuple[str, ...]:
    """The task's statuses in the database, in the order of the stages."""
    [row] = api.sql(
        f"SELECT {', '.join(map(column, STAGES))} FROM pipeline_tracking"
        " WHERE filename = %(filename)s AND shard = %(shard)s",
        filename=filename,
        shard=shard,
    )
    return row


def insert(api: Api, rows: Sequence[tuple[str, int, Sequence[str]]], **columns: Any) -> None:
    """Tasks with these statuses are in the database, whether or not transitions lead there."""
    names = ("filename", "shard", *map(column, STAGES), *columns)
    for filename, shard, stages in rows:
        values = dict(zip(names, (filename, shard, *stages, *columns.values()), strict=True))
        api.sql(
            f"INSERT INTO pipeline_tracking ({', '.join(names)})"
            f" VALUES ({', '.join(f'%({name})s' for name in names)})",
            **values,
        )


def read(api: Api, path: str, query: dict[str, Any]) -> Any:
    """The answer to a question, whatever the names of its parameters."""
    answer = api.ask("GET", f"{path}?{urllib.parse.urlencode(query)}")
    assert answer.status == 200, (answer.status, answer.data)
    return json.loads(answer.data)


def pages(api: Api, path: str, member: str, **query: Any) -> list[list[dict[str, Any]]]:
    """Every page of a list, read by its cursors to the end."""
    found: list[list[dict[str, Any]]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = read(api, path, query | cursor)
        found.append(page[member])
        if page["cursor"] is None:
            return found
        cursor = {"cursor": page["cursor"]}


def history(api: Api, filename: str = FILE) -> list[dict[str, Any]]:
    """Every change of the file's tasks, oldest first."""
    return [row for page in pages(api, f"/files/{filename}/history", "history", limit=1000) for row in page]


def moves(api: Api, filename: str = FILE) -> dict[tuple[int, str], list[tuple[str | None, str, int]]]:
    """The history of each task's stage as (from, to, attempt)."""
    return moves_of(history(api, filename))


def moves_of(rows: Sequence[dict[str, Any]]) -> dict[tuple[int, str], list[tuple[str | None, str, int]]]:
    """The same of rows that have been read."""
    found = defaultdict(list)
    for row in rows:
        found[row["shard"], row["stage"]].append((row["from_status"], row["to_status"], row["attempt"]))
    return dict(found)


def expire(api: Api, stage: str, shard: int = 0, filename: str = FILE) -> None:
    """The lease of the task has run out a second ago; nobody has noticed yet."""
    lease = f"{stage.replace('-', '_')}_lease_expires_at"
    changed = api.sql(
        f"UPDATE pipeline_tracking SET {lease} = now() - interval '1 second'"
        f" WHERE filename = %(filename)s AND shard = %(shard)s AND {lease} IS NOT NULL RETURNING id",
        filename=filename,
        shard=shard,
    )
    assert len(changed) == 1


def expired(api: Api, stage: str, shard: int = 0, filename: str = FILE) -> None:
    """The lease of the task has run out, and the task waits again."""
    expire(api, stage, shard, filename)
    waits_again(api, stage, shard, filename)


def waits_again(api: Api, stage: str, shard: int = 0, filename: str = FILE) -> None:
    """The pipeline has noticed that the lease of the task has run out: somebody looked at the queue."""

    def looked() -> bool:
        api.call("GET", f"/queues/{stage}", limit=1)
        return statuses(api, shard, filename)[STAGES.index(stage)] == "new"

    eventually(looked)


def eventually(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """The condition holds; AssertionError when it does not within this time."""
    deadline = patience.deadline(seconds)
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def at_once(*calls: Callable[[], T]) -> list[T]:
    """What the calls return, each made by a thread of its own at the same moment."""
    gate = threading.Barrier(len(calls))

    def pass_gate(call: Callable[[], T]) -> T:
        gate.wait(PATIENCE_SECONDS * patience.PATIENCE)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(pass_gate, calls))


def refused(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The problem in an answer, which has all that problems have."""
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json"), (
        answer.data
    )
    problem = json.loads(answer.data)
    assert {"type", "title", "status", "code", "detail"} <= set(problem)
    assert (problem["status"], problem["code"]) == (status, code), problem
    return dict(problem)


def combinations() -> Iterator[tuple[str, str]]:
    """Every pair of statuses."""
    return ((earlier, own) for earlier in STATUSES for own in STATUSES)
