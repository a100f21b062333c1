"""The same calls by several daemons at the same moment."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from functools import partial

import pytest

from tests.integration.pipeline import tasks
from tests.integration.pipeline.conftest import Api
from tests.integration.pipeline.tasks import FILE, QUEUES

DAEMONS = 8
ROUNDS = 10


@pytest.mark.parametrize("stage", QUEUES)
def test_of_daemons_that_start_a_task_at_once_one_has_it(pipeline: Api, stage: str) -> None:
    tasks.ready(pipeline, stage, range(ROUNDS))
    for shard in range(ROUNDS):
        start = partial(pipeline.ask, "POST", f"/stages/{stage}/start", {"filename": FILE, "shard": shard})

        answers = tasks.at_once(*[start] * DAEMONS)

        assert Counter(answer.status for answer in answers) == {200: 1, 409: DAEMONS - 1}
        for answer in answers:
            if answer.status == 409:
                assert tasks.refused(answer, 409, "already_started")["current_status"] == "started"
        assert tasks.moves(pipeline)[shard, stage] == [("new", "started", 1)]


def test_a_worker_that_starts_a_task_several_times_at_once_has_started_it_once(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-worker", range(ROUNDS))
    for shard in range(ROUNDS):
        body = {"filename": FILE, "shard": shard, "worker_id": "worker-1", "lease_seconds": 60}
        start = partial(pipeline.call, "POST", "/stages/shard-worker/start", body)

        first, *others = tasks.at_once(*[start] * DAEMONS)

        assert others == [first] * (DAEMONS - 1)
        assert (first["attempt"], first["status"]) == (1, "started")
        assert tasks.moves(pipeline)[shard, "shard-worker"] == [("new", "started", 1)]


@pytest.mark.parametrize(
    ("transition", "target", "begun"),
    [("done", "done", True), ("fail", "failed", True), ("fail", "failed", False)],
)
def test_what_ends_several_times_at_once_has_ended_once(
    pipeline: Api, transition: str, target: str, begun: bool
) -> None:
    tasks.ready(pipeline, "shard-splitter", range(ROUNDS))
    for shard in range(ROUNDS):
        if begun:
            tasks.move(pipeline, "shard-splitter", "start", shard)
        end = partial(tasks.move, pipeline, "shard-splitter", transition, shard)

        answers = tasks.at_once(*[end] * DAEMONS)

        assert [answer["status"] for answer in answers] == [target] * DAEMONS
        status = "started" if begun else "new"
        assert tasks.moves(pipeline)[shard, "shard-splitter"][-1] == (status, target, int(begun))
        assert len(tasks.moves(pipeline)[shard, "shard-splitter"]) == 1 + begun


def test_of_done_and_fail_at_once_one_counts(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-splitter", range(ROUNDS))
    for shard in range(ROUNDS):
        tasks.move(pipeline, "shard-splitter", "start", shard)
        task = {"filename": FILE, "shard": shard}
        ends = [
            partial(pipeline.ask, "POST", f"/stages/shard-splitter/{transition}", task)
            for transition in ("done", "fail") * (DAEMONS // 2)
        ]

        answers = tasks.at_once(*ends)

        *_, (begin, won, attempt) = tasks.moves(pipeline)[shard, "shard-splitter"]
        assert (begin, attempt) == ("started", 1)
        assert len(tasks.moves(pipeline)[shard, "shard-splitter"]) == 2
        for answer, target in zip(answers, ("done", "failed") * (DAEMONS // 2), strict=True):
            assert answer.status == (200 if target == won else 409)
            if answer.status == 409:
                assert tasks.refused(answer, 409, "invalid_transition")["current_status"] == won


def test_a_task_is_retried_once_however_many_ask_one_by_one_and_in_bulk(pipeline: Api) -> None:
    tasks.ready(pipeline, "mysql-sender", range(ROUNDS))
    for shard in range(ROUNDS):
        tasks.failed(pipeline, "mysql-sender", shard)
    one = partial(pipeline.ask, "POST", "/stages/mysql-sender/retry", {"filename": FILE, "shard": 0})
    all_of_them = partial(pipeline.ask, "POST", "/stages/mysql-sender/retry-failed", {})

    answers = tasks.at_once(*[one, all_of_them] * (DAEMONS // 2))

    assert [answer.status for answer in answers] == [200] * DAEMONS
    in_bulk = [json.loads(answer.data) for answer in answers[1::2]]
    retried = [(item["filename"], item["shard"]) for answer in in_bulk for item in answer["items"]]
    assert len(retried) == len(set(retried)) == sum(answer["retried"] for answer in in_bulk)
    for shard in range(ROUNDS):
        assert tasks.moves(pipeline)[shard, "mysql-sender"] == [
            ("new", "started", 1),
            ("started", "failed", 1),
            ("failed", "new", 1),
        ]


def test_claims_at_once_are_disjoint_and_leave_nothing(pipeline: Api) -> None:
    shards = range(DAEMONS * 7)
    tasks.ready(pipeline, "shard-splitter", shards)
    claims = [
        partial(tasks.claim, pipeline, "shard-splitter", f"worker-{n}", limit=5) for n in range(DAEMONS)
    ]

    taken = []
    for _ in shards:
        round_of_claims = [item for items in tasks.at_once(*claims) for item in items]
        taken += round_of_claims
        if not round_of_claims:
            break

    assert sorted(item["shard"] for item in taken) == list(shards)
    assert len({item["lease_token"] for item in taken}) == len(shards)
    assert {item["attempt"] for item in taken} == {1}
    assert pipeline.sql(
        "SELECT shard, to_status, count(*) FROM pipeline_history WHERE stage = 'shard-splitter'"
        " GROUP BY shard, to_status ORDER BY shard"
    ) == [(shard, "started", 1) for shard in shards]


def test_a_claim_and_starts_at_once_give_a_task_to_one(pipeline: Api) -> None:
    tasks.ready(pipeline, "shard-splitter", range(ROUNDS))
    for _ in range(ROUNDS):
        [oldest] = pipeline.call("GET", "/queues/shard-splitter", limit=1)["items"]
        task = {"filename": oldest["filename"], "shard": oldest["shard"]}
        start = partial(pipeline.ask, "POST", "/stages/shard-splitter/start", task)
        take = partial(pipeline.ask, "POST", "/queues/shard-splitter/claim", {"worker_id": "worker-1"})

        answers = tasks.at_once(*[start, take] * 2)

        starts = Counter(answer.status for answer in answers[::2])
        taken = [item["shard"] for answer in answers[1::2] for item in json.loads(answer.data)["items"]]
        assert starts[200] + taken.count(task["shard"]) <= 1
        assert len(taken) == len(set(taken))
        if not pipeline.call("GET", "/queues/shard-splitter")["items"]:
            break
    for rows in tasks.moves(pipeline).values():
        assert [to for _, to, _ in rows].count("started") == 1


def test_registers_of_the_same_shards_in_any_order_make_each_once(pipeline: Api) -> None:
    shards = list(range(40))
    orders = [shards, shards[::-1], shards[20:] + shards[:20], shards[::2] + shards[1::2]]
    for number in range(ROUNDS):
        name = f"file-{number}"
        registers = [
            partial(pipeline.ask, "POST", "/files/register", {"filename": name, "shards": order})
            for order in itertools.islice(itertools.cycle(orders), DAEMONS)
        ]

        answers = tasks.at_once(*registers)

        assert [answer.status for answer in answers] == [200] * DAEMONS
        assert [json.loads(answer.data)["created"] for answer in answers].count(True) == 1
        assert tasks.moves(pipeline, name) == {
            (shard, "event-ingest"): [(None, "started", 1)] for shard in shards
        }


def test_registers_of_shards_that_overlap_make_each_once(pipeline: Api) -> None:
    for number in range(ROUNDS):
        name = f"file-{number}"
        registers = [
            partial(
                pipeline.ask,
                "POST",
                "/files/register",
                {"filename": name, "shards": [(5 * n + step * (-1) ** n) % 40 for step in range(20)]},
            )
            for n in range(DAEMONS)
        ]
        wanted = {(5 * n + step * (-1) ** n) % 40 for n in range(DAEMONS) for step in range(20)}

        answers = tasks.at_once(*registers)

        assert [answer.status for answer in answers] == [200] * DAEMONS
        assert tasks.moves(pipeline, name) == {
            (shard, "event-ingest"): [(None, "started", 1)] for shard in wanted
        }


def test_bulk_calls_of_one_file_at_once_do_not_wait_for_each_other_in_a_circle(pipeline: Api) -> None:
    """Whatever the order in which they come, each shard's changes are a chain, and all shards stand alike."""
    shards = list(range(40))
    for number in range(ROUNDS):
        name = f"file-{number}"
        tasks.register(pipeline, shards, name)
        ingest = {"filename": name}
        calls = [
            partial(pipeline.ask, "POST", "/stages/event-ingest/fail", ingest),
            partial(pipeline.ask, "POST", "/stages/event-ingest/retry", ingest),
            partial(pipeline.ask, "POST", "/files/register", {**ingest, "shards": shards[::-1]}),
            partial(pipeline.ask, "POST", "/stages/event-ingest/done", ingest),
        ]

        answers = tasks.at_once(*calls * 2)

        assert {answer.status for answer in answers} <= {200, 409}
        found = tasks.moves(pipeline, name)
        for rows in found.values():
            assert [begin for begin, _, _ in rows[1:]] == [end for _, end, _ in rows[:-1]]
        assert len({rows[-1] for rows in found.values()}) == 1
