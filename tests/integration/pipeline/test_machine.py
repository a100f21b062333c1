"""A model of the four stages, and the pipeline: whatever is asked in whatever order, both say the same."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.integration.pipeline.conftest import Api

STAGES = ("event-ingest", "shard-splitter", "shard-worker", "mysql-sender")
QUEUES = STAGES[1:]
FILES = ("a", "b")
SHARDS = (0, 1)
WORKERS = ("w1", "w2")

EXAMPLES = int(os.environ.get("HEADWORKS_TEST_EXAMPLES") or 16)

files = st.sampled_from(FILES)
shards = st.sampled_from(SHARDS)
queues = st.sampled_from(QUEUES)
workers = st.sampled_from(WORKERS)


@dataclass
class Stage:
    """Where one stage of one task stands."""

    status: str = "new"
    attempt: int = 0
    worker: str | None = None
    token: str | None = None
    stale: str = str(uuid.UUID(int=7))  # a token that it had before, once there was one
    leased: bool = False


@dataclass
class Task:
    """One shard of one file."""

    made: int
    stages: dict[str, Stage] = field(default_factory=lambda: {name: Stage() for name in STAGES})
    history: list[tuple[str, str | None, str]] = field(default_factory=list)

    def move(self, stage: str, target: str) -> None:
        one = self.stages[stage]
        self.history.append((stage, one.status, target))
        one.status = target


def before(stage: str) -> str:
    return STAGES[STAGES.index(stage) - 1]


class Machine(RuleBasedStateMachine):
    """The model answers first, then the pipeline."""

    api: ClassVar[Api]

    def __init__(self) -> None:
        super().__init__()
        self.api.sql("TRUNCATE pipeline_tracking, pipeline_history")
        self.tasks: dict[tuple[str, int], Task] = {}
        self.made = 0

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = self.api.ask(method, path, body)
        return answer.status, json.loads(answer.data)

    def of_file(self, filename: str) -> list[Task]:
        return [task for (name, _), task in sorted(self.tasks.items()) if name == filename]

    # -- event-ingest

    @rule(filename=files, wanted=st.lists(shards, min_size=1, max_size=4))
    def register(self, filename: str, wanted: list[int]) -> None:
        distinct = list(dict.fromkeys(wanted))
        missing = [shard for shard in distinct if (filename, shard) not in self.tasks]
        expected = {"filename": filename, "shards": distinct, "created": bool(missing)}
        body = {"filename": filename, "shards": wanted}
        assert self.ask("POST", "/files/register", body) == (200, expected)
        for shard in sorted(missing):
            self.made += 1
            task = self.tasks[filename, shard] = Task(self.made)
            task.history.append(("event-ingest", None, "started"))
            task.stages["event-ingest"] = Stage("started", attempt=1)
        for shard in distinct:
            one = self.tasks[filename, shard].stages["event-ingest"]
            if one.status == "new":
                self.tasks[filename, shard].move("event-ingest", "started")
                one.attempt += 1

    @rule(filename=files, transition=st.sampled_from(["done", "fail", "retry"]), shard=st.none() | shards)
    def move_ingest(self, filename: str, transition: str, shard: int | None) -> None:
        if transition == "done":
            shard = None
        target = {"done": "done", "fail": "failed", "retry": "new"}[transition]
        sources = {"done": ["started"], "failed": ["new", "started"], "new": ["failed"]}[target]
        concerned = [
            task for (name, number), task in sorted(self.tasks.items())
            if name == filename and shard in (None, number)
        ]  # fmt: skip
        body = {"filename": filename} | ({} if shard is None else {"shard": shard})
        status, answer = self.ask("POST", f"/stages/event-ingest/{transition}", body)
        if not concerned:
            code = "unknown_file" if shard is None else "task_not_found"
            assert (status, answer["code"]) == (404, code)
            return
        stand = [task.stages["event-ingest"].status for task in concerned]
        if any(one not in (*sources, target) for one in stand):
            assert (status, answer["code"]) == (409, "invalid_transition")
            return
        assert (status, answer["updated_rows"]) == (200, len(concerned))
        for task, one in zip(concerned, stand, strict=True):
            if one != target:
                task.move("event-ingest", target)

    # -- the stages that are handed out

    @rule(
        stage=queues, filename=files, shard=shards, worker=st.none() | workers,
        lease=st.sampled_from([None, 600]), token=st.sampled_from(["none", "right", "old"]),
    )  # fmt: skip
    def start(
        self, stage: str, filename: str, shard: int, worker: str | None, lease: int | None, token: str
    ) -> None:
        task = self.tasks.get((filename, shard))
        body: dict[str, Any] = {
            "filename": filename,
            "shard": shard,
            "worker_id": worker,
            "lease_seconds": lease,
        }
        sent = self.sent(task, stage, token)
        status, answer = self.ask("POST", f"/stages/{stage}/start", body | {"lease_token": sent})
        if task is None:
            assert (status, answer["code"]) == (404, "task_not_found")
            return
        one = task.stages[stage]
        if one.status == "new" and task.stages[before(stage)].status == "done":
            assert (status, answer["status"]) == (200, "started")
            task.move(stage, "started")
            one.attempt += 1
            one.worker, one.leased = worker, lease is not None
            one.token = self.token_of(stage, filename, shard)
            assert (one.token is not None) == one.leased
            if worker or lease:
                assert (answer["attempt"], answer["lease_token"]) == (one.attempt, one.token)
            return
        mine = (worker is not None and worker == one.worker) or (sent is not None and sent == one.token)
        if one.status == "started" and mine:
            assert (status, answer["status"]) == (200, "started")
            return
        code = {"started": "already_started", "new": "upstream_not_done"}.get(
            one.status, "invalid_transition"
        )
        assert (status, answer["code"], answer["current_status"]) == (409, code, one.status)

    @rule(stage=queues, filename=files, shard=shards, transition=st.sampled_from(["done", "fail"]),
          token=st.sampled_from(["none", "right", "old"]), times=st.integers(1, 2))  # fmt: skip
    def finish(self, stage: str, filename: str, shard: int, transition: str, token: str, times: int) -> None:
        target = {"done": "done", "fail": "failed"}[transition]
        for _ in range(times):
            task = self.tasks.get((filename, shard))
            sent = self.sent(task, stage, token)
            body = {"filename": filename, "shard": shard, "lease_token": sent}
            status, answer = self.ask("POST", f"/stages/{stage}/{transition}", body)
            if task is None:
                assert (status, answer["code"]) == (404, "task_not_found")
                continue
            one = task.stages[stage]
            sources = ["started"] if target == "done" else ["new", "started"]
            if sent is not None and sent != one.token:
                assert (status, answer["code"]) == (409, "lease_lost")
            elif one.status in sources:
                assert (status, answer["status"]) == (200, target)
                task.move(stage, target)
                one.leased = False
            elif one.status == target:
                assert (status, answer["status"]) == (200, target)
            else:
                assert (status, answer["code"], answer["current_status"]) == (
                    409,
                    "invalid_transition",
                    one.status,
                )

    @rule(stage=queues, filename=files, shard=shards)
    def retry(self, stage: str, filename: str, shard: int) -> None:
        task = self.tasks.get((filename, shard))
        status, answer = self.ask("POST", f"/stages/{stage}/retry", {"filename": filename, "shard": shard})
        if task is None:
            assert (status, answer["code"]) == (404, "task_not_found")
        elif task.stages[stage].status == "failed":
            assert status == 200
            self.made_new(task, stage)
        elif task.stages[stage].status == "new":
            assert status == 200
        else:
            assert (status, answer["code"]) == (409, "invalid_transition")

    @rule(stage=st.sampled_from(STAGES), filename=st.none() | files, dry_run=st.booleans())
    def retry_failed(self, stage: str, filename: str | None, dry_run: bool) -> None:
        failed = [
            (name, shard) for (name, shard), task in self.tasks.items()
            if task.stages[stage].status == "failed" and filename in (None, name)
        ]  # fmt: skip
        body = {"filename": filename, "dry_run": dry_run}
        status, answer = self.ask("POST", f"/stages/{stage}/retry-failed", body)
        assert (status, answer["matched"], answer["dry_run"]) == (200, len(failed), dry_run)
        assert answer["retried"] == (0 if dry_run else len(failed))
        assert sorted((item["filename"], item["shard"]) for item in answer["items"]) == sorted(failed)
        if not dry_run:
            for place in failed:
                self.made_new(self.tasks[place], stage)

    @rule(stage=queues, worker=workers, limit=st.integers(1, 4))
    def claim(self, stage: str, worker: str, limit: int) -> None:
        waiting = sorted(
            (task.made, place) for place, task in self.tasks.items()
            if task.stages[stage].status == "new" and task.stages[before(stage)].status == "done"
        )[:limit]  # fmt: skip
        body = {"worker_id": worker, "limit": limit, "lease_seconds": 600}
        status, answer = self.ask("POST", f"/queues/{stage}/claim", body)
        assert status == 200
        items = {(item["filename"], item["shard"]): item for item in answer["items"]}
        assert sorted(items) == sorted(place for _, place in waiting)
        for place, item in items.items():
            one = self.tasks[place].stages[stage]
            self.tasks[place].move(stage, "started")
            one.attempt += 1
            one.worker, one.token, one.leased = worker, item["lease_token"], True
            assert item["attempt"] == one.attempt

    @precondition(
        lambda self: any(stage.leased for task in self.tasks.values() for stage in task.stages.values())
    )
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """The lease of a task runs out, and somebody looks: it waits again."""
        held = [
            (place, stage) for place, task in sorted(self.tasks.items()) for stage in QUEUES
            if task.stages[stage].leased
        ]  # fmt: skip
        (filename, shard), stage = data.draw(st.sampled_from(held))
        column = stage.replace("-", "_")
        self.api.sql(
            f"UPDATE pipeline_tracking SET {column}_lease_expires_at = now() - interval '1 s'"
            " WHERE filename = %(filename)s AND shard = %(shard)s",
            filename=filename, shard=shard,
        )  # fmt: skip
        self.api.sweep()
        self.made_new(self.tasks[filename, shard], stage)

    @precondition(
        lambda self: any(stage.leased for task in self.tasks.values() for stage in task.stages.values())
    )
    @rule(data=st.data(), right=st.booleans())
    def heartbeat(self, data: st.DataObject, right: bool) -> None:
        held = [
            (place, stage) for place, task in sorted(self.tasks.items()) for stage in QUEUES
            if task.stages[stage].leased
        ]  # fmt: skip
        (filename, shard), stage = data.draw(st.sampled_from(held))
        token = self.sent(self.tasks[filename, shard], stage, "right" if right else "old")
        body = {"filename": filename, "shard": shard, "lease_token": token, "lease_seconds": 900}
        status, answer = self.ask("POST", f"/queues/{stage}/heartbeat", body)
        assert status == (200 if right else 409)
        if not right:
            assert answer["code"] == "lease_lost"

    def made_new(self, task: Task, stage: str) -> None:
        task.move(stage, "new")
        one = task.stages[stage]
        one.stale = one.token or one.stale
        one.worker, one.token, one.leased = None, None, False

    def sent(self, task: Task | None, stage: str, token: str) -> str | None:
        one = task.stages[stage] if task else Stage()
        return {"none": None, "right": one.token, "old": one.stale}[token]

    def token_of(self, stage: str, filename: str, shard: int) -> str | None:
        column = stage.replace("-", "_")
        [(found,)] = self.api.sql(
            f"SELECT {column}_lease_token::text FROM pipeline_tracking"
            " WHERE filename = %(filename)s AND shard = %(shard)s",
            filename=filename, shard=shard,
        )  # fmt: skip
        return found  # type: ignore[no-any-return]

    # -- what both say

    @invariant()
    def files_agree(self) -> None:
        for filename in FILES:
            tasks = {shard: task for (name, shard), task in sorted(self.tasks.items()) if name == filename}
            status, answer = self.ask("GET", f"/files/{filename}?details=true")
            if not tasks:
                assert status == 404
                continue
            assert [one["shard"] for one in answer["shards"]] == list(tasks)
            for one in answer["shards"]:
                for name, stage in tasks[one["shard"]].stages.items():
                    assert one[f"{name.replace('-', '_')}_status"] == stage.status
                    told = one["stages"][name]
                    assert (told["status"], told["attempt"]) == (stage.status, stage.attempt)
                    assert (told["lease_expires_at"] is not None) == stage.leased

    @invariant()
    def summary_agrees(self) -> None:
        _, answer = self.ask("GET", "/metrics/summary")
        assert answer["total"] == len(self.tasks)
        for name in STAGES:
            counts = Counter(task.stages[name].status for task in self.tasks.values())
            expected = {status: counts[status] for status in ("new", "started", "done", "failed")}
            assert answer["by_stage"][name.replace("-", "_")] == expected

    @invariant()
    def history_agrees(self) -> None:
        rows = self.api.sql(
            "SELECT filename, shard, stage, from_status, to_status FROM pipeline_history ORDER BY id"
        )
        found: dict[tuple[str, int], list[tuple[str, str | None, str]]] = {}
        for filename, shard, *move in rows:
            found.setdefault((filename, shard), []).append(tuple(move))
        assert found == {place: task.history for place, task in self.tasks.items()}


def test_the_pipeline_and_its_model_agree(pipeline: Api) -> None:
    class Served(Machine):
        api = pipeline

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Served,
        settings=hypothesis.settings(
            max_examples=EXAMPLES, stateful_step_count=50, deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )  # fmt: skip
