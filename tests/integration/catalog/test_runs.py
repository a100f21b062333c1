"""The runs of the jobs: history, thresholds and dry runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from app.catalog import etl_service, runs
from app.catalog.entities import RULES
from app.catalog.replay import faults
from app.catalog.replay.faults import Fault
from app.catalog.runs import Busy
from app.kernel import errors
from tests.integration.catalog.world import START, World

REFUSED = b'{"error": "wrong_parameter", "error_description": "keyword or itemCode is essential parameter"}'


def codes(world: World, count: int) -> list[str]:
    return sorted(world.api.ids("item"))[:count]


def refuse(world: World, *some: str) -> None:
    for code in some:
        world.api.fault(Fault({"itemCode": code}, status=400, body=REFUSED))


def everything(world: World) -> dict[str, list[Any]]:
    """Every row of every table of the catalog, and every file of its data."""
    names = [
        name for (name,) in world.sql(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'apl' ORDER BY 1"
        )
    ]  # fmt: skip
    rows = {name: sorted(map(str, world.sql(f"SELECT * FROM apl.{name}"))) for name in names}
    return {**rows, "files": sorted(map(str, world.folder.rglob("*")))}


# History


def test_a_run_and_its_targets_stand_in_the_history(world: World) -> None:
    there, gone, bad = codes(world, 3)
    world.api.remove("item", gone)
    refuse(world, bad)
    found = world.run("JOB-I-01", only=[there, gone, bad])
    row = runs.one(world.db, found.run_id)
    assert (row.job_id, row.env, row.status, row.exit_code) == ("JOB-I-01", "dev", "failed", 1)
    assert (row.job_start_at, row.apply_version) == (world.start, RULES["item"].apply_version)
    assert row.summary == found.summary
    assert {name: found.summary[name] for name in ("total_targets", "success_count", "failure_count")} == {
        "total_targets": 3, "success_count": 1, "failure_count": 1,
    }  # fmt: skip
    assert found.summary["failure_rate"] == pytest.approx(1 / 3, abs=1e-6)
    (failed,) = runs.targets(world.db, found.run_id, outcome="failed")
    assert (failed.target, failed.category, failed.http_status, failed.attempts) == (
        bad,
        "target_refused",
        400,
        1,
    )
    assert "essential parameter" in failed.excerpt
    assert len(runs.targets(world.db, found.run_id)) == 3


def test_the_newest_runs_come_first_of_one_job_or_of_all(world: World) -> None:
    made = [world.run("JOB-A-01").run_id, world.run("JOB-I-01").run_id, world.run("JOB-A-01").run_id]
    assert [run.run_id for run in runs.newest(world.db)] == made[::-1]
    assert [run.run_id for run in runs.newest(world.db, job_id="JOB-A-01")] == [made[2], made[0]]
    assert [run.run_id for run in runs.newest(world.db, limit=1)] == made[2:]
    with pytest.raises(errors.NotFound):
        runs.one(world.db, uuid4())


def test_a_run_that_ended_well_does_not_go_on(world: World) -> None:
    found = world.run("JOB-I-01", only=codes(world, 1))
    with pytest.raises(Busy):
        world.run("JOB-I-01", resume=found.run_id)


def test_a_failed_run_goes_on_with_what_failed_and_is_judged_as_a_whole(world: World) -> None:
    some = codes(world, 40)
    refuse(world, *some[:3])
    first = world.run("JOB-I-01", only=some)
    assert (first.status, first.reason_code) == ("failed", "too_many_failures")
    refuse(world, some[0])
    before = len(world.api.requests)
    second = world.run("JOB-I-01", only=some, resume=first.run_id)
    assert sorted(r.query["itemCode"] for r in world.api.requests[before:]) == some[:3]
    # one of three failed, but of the run's forty
    assert (second.status, second.summary["outcomes"]) == ("success", {"applied": 39, "failed": 1})
    assert [run.run_id for run in runs.newest(world.db)] == [first.run_id]


def test_a_run_goes_on_for_the_day_that_it_was_begun_for(world: World) -> None:
    (code,) = codes(world, 1)
    refuse(world, code)
    first = world.run("JOB-I-01", only=[code], job_start_at=START)
    world.run("JOB-I-01", only=[code], resume=first.run_id, job_start_at=START + timedelta(days=3))
    assert world.sql("SELECT collected_at FROM apl.item_market_snapshot") == [(START,)]


def test_a_run_goes_on_as_its_own_job_alone_and_not_as_a_dry_one(world: World) -> None:
    (code,) = codes(world, 1)
    refuse(world, code)
    first = world.run("JOB-I-01", only=[code])
    before = everything(world)
    with pytest.raises(errors.Refused):
        world.run("JOB-G-01", resume=first.run_id)
    with pytest.raises(errors.Refused):
        world.run("JOB-I-01", resume=first.run_id, dry_run=True)
    with pytest.raises(errors.NotFound):
        world.run("JOB-I-01", resume=uuid4())
    world.settings = replace(world.settings, catalog_env="prod")
    with pytest.raises(errors.Refused):
        world.run("JOB-I-01", resume=first.run_id)
    assert everything(world) == before


def test_a_limit_is_kept(world: World) -> None:
    found = world.run("JOB-I-01", only=codes(world, 9), limit=4)
    assert (found.summary["total_targets"], len(world.api.requests)) == (4, 4)


def test_a_run_goes_on_with_the_targets_that_it_was_begun_for(world: World) -> None:
    some = codes(world, 9)
    refuse(world, some[1])
    first = world.run("JOB-I-01", only=some, limit=4)
    assert first.summary["total_targets"] == 4
    second = world.run("JOB-I-01", resume=first.run_id)
    assert (second.status, second.summary["outcomes"]) == ("success", {"applied": 4})
    assert sorted(world.ends(second)) == some[:4]


# Thresholds and exit codes


@pytest.mark.parametrize("of, code", [(19, 1), (20, 0)])
def test_more_than_one_item_in_twenty_fails_the_job(world: World, of: int, code: int) -> None:
    some = codes(world, of)
    refuse(world, some[0])
    found = world.run("JOB-I-01", only=some)
    assert (found.exit_code, found.reason_code) == (code, "too_many_failures" if code else None)


@pytest.mark.parametrize("of, code", [(99, 1), (100, 0)])
def test_more_than_one_tag_in_a_hundred_fails_the_job(world: World, of: int, code: int) -> None:
    for tag in range(1, of):
        tags = [{"tagId": tag, "tagName": f"tag {tag}", "parentTagId": 0}]
        world.api.put("tag", str(tag), {"tagGroups": [{"tagGroupId": 1, "tagGroupName": "g", "tags": tags}]})
    found = world.run("JOB-T-01", only=[*map(str, range(1, of)), "-1"])
    assert found.summary["outcomes"] == {"applied": of - 1, "failed": 1}
    assert found.exit_code == code


def test_a_database_that_fails_fails_the_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise errors.Deadlock()

    monkeypatch.setattr(etl_service.StagingRepo, "batch_upsert", away)
    found = world.run("JOB-I-01", only=codes(world, 3))
    assert (found.status, found.reason_code, found.exit_code) == ("failed", "deadlock", 1)
    assert runs.one(world.db, found.run_id).status == "failed"


def test_a_database_that_fails_for_a_moment_does_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = etl_service.StagingRepo.batch_upsert, [2]

    def shaky(*args: Any, **kwargs: Any) -> int:
        if left[0]:
            left[0] -= 1
            raise errors.Deadlock()
        return real(*args, **kwargs)

    monkeypatch.setattr(etl_service.StagingRepo, "batch_upsert", shaky)
    assert world.run("JOB-I-01", only=codes(world, 3)).summary["outcomes"] == {"applied": 3}
    assert left == [0]


def test_a_fault_of_our_own_fails_its_target_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    some = codes(world, 30)
    real = etl_service.normalize

    def broken(entity: str, raw: Any) -> Any:
        return {}["no"] if raw["itemCode"] == some[0] else real(entity, raw)

    monkeypatch.setattr(etl_service, "normalize", broken)
    found = world.run("JOB-I-01", only=some)
    assert world.ends(found)[some[0]] == ("failed", "unexpected")
    assert (found.status, found.summary["outcomes"]) == ("success", {"applied": 29, "failed": 1})


# Dry runs


def test_a_dry_run_writes_nothing_and_tells_what_would_change(world: World) -> None:
    same, other, new, gone = codes(world, 4)
    world.item(other, itemPrice=100, pointRate=1)
    world.run("JOB-I-01", only=[same, other, gone])
    world.item(other, itemPrice=120, pointRate=1)
    world.api.remove("item", gone)
    before = everything(world)
    told: dict[str, Any] = {}
    found = world.run("JOB-I-01", only=[same, other, new, gone], dry_run=True, tell=told.__setitem__)
    assert told == {other: {"itemPrice": (100, 120)}, new: {"new": True}}
    assert found.summary["outcomes"] == {"unchanged": 1, "applied": 2, "not_found": 1}
    assert everything(world) == before


@pytest.mark.parametrize("job_id, only", [("JOB-R-01", "0"), ("JOB-G-01", "551172"), ("JOB-A-01", "")])
def test_a_dry_run_of_any_job_writes_nothing(world: World, job_id: str, only: str) -> None:
    before = everything(world)
    assert world.run(job_id, only=[only] if only else [], dry_run=True).status == "success"
    assert everything(world) == before


def test_a_dry_run_goes_beside_one_at_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = etl_service.JobContext("dev", "JOB-I-01", uuid4(), START)
    runs.Run(world.db, ctx.run_id).begin(ctx, apply_version=1, net_id=None)
    assert world.run("JOB-I-01", only=codes(world, 1), dry_run=True).status == "success"


def test_an_outage_of_the_api_leaves_what_is_known(world: World) -> None:
    some = codes(world, 5)
    world.run("JOB-I-01", only=some)
    before = world.tables()
    world.api.fault(faults.under_maintenance("/IchibaItem/Search/", 1000))
    assert world.run("JOB-I-01", only=some).exit_code == 1
    assert world.tables() == before
