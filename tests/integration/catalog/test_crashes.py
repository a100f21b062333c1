"""A run that breaks anywhere goes on where it stopped, and comes to the tables of one that did not."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from app.catalog import etl_service, jobs, runs
from app.catalog.replay import demo, faults
from app.catalog.runs import Busy
from tests.integration.catalog.killed import ONCE, STEPS
from tests.integration.catalog.world import EMPTY, START, World
from tests.integration.threads import wait_until

SOME = 8


def codes(world: World, count: int = SOME) -> list[str]:
    return sorted(world.api.ids("item"))[:count]


def start_again(world: World) -> None:
    world.sql(EMPTY)
    shutil.rmtree(world.folder / "raw")


def lease_is_over(world: World) -> Any:
    """Nobody has heard of the process for longer than its lease; the run that was its own."""
    ((run_id, start),) = world.sql(
        "UPDATE apl.etl_run SET expires_at = now() - interval '1 s' WHERE status = 'running'"
        " RETURNING run_id, job_start_at"
    )
    return run_id, start


@pytest.mark.parametrize("go_on", [True, False], ids=["the run goes on", "another run"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_nothing_is_half(world: World, step: str, go_on: bool) -> None:  # 34
    some = codes(world)
    call = 1 if step in ONCE else 4
    words = ["run", "JOB-I-01", *(word for code in some for word in ("--only", code))]
    program = [sys.executable, "-m", "tests.integration.catalog.killed", step, str(call), *words]
    done = subprocess.run(
        program, env=environment(world, HEADWORKS_CATALOG_THREADS="1"), capture_output=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done
    assert step in ONCE or len(world.table("staging")) in (3, 4)
    run_id, start = lease_is_over(world)
    if go_on:
        found = world.run("JOB-I-01", resume=run_id)
        assert (found.run_id, found.status) == (run_id, "success")
    else:
        assert world.run("JOB-I-01", only=some, job_start_at=start).status == "success"
    statuses = [status for (status,) in world.sql("SELECT status FROM apl.etl_run ORDER BY started_at")]
    assert statuses == ["success"] if go_on else ["broken", "success"]
    tables = world.tables()
    assert len(tables["raw"]) == len(tables["staging"]) == SOME
    start_again(world)
    world.run("JOB-I-01", only=some, job_start_at=start)
    assert tables == world.tables()


# A real process


def environment(world: World, **more: str) -> dict[str, str]:
    settings = world.settings
    return {
        **os.environ,
        "HEADWORKS_DATABASE_URL": settings.database_url,
        "HEADWORKS_BROKER_URL": settings.broker_url,
        "HEADWORKS_DATA_DIR": str(settings.data_dir),
        "HEADWORKS_CATALOG_URL": settings.catalog_url,
        "HEADWORKS_CATALOG_APPLICATION_ID": settings.catalog_application_id,
        "HEADWORKS_CATALOG_ACCESS_KEY": settings.catalog_access_key,
        "HEADWORKS_CATALOG_INTERVAL_SECONDS": str(settings.catalog_interval_seconds),
        "HEADWORKS_CATALOG_RAW_URL": settings.catalog_raw_url,
        **more,
    }


def command(world: World, *words: str, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", "catalog", *words], env=environment(world, **more),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_run_whose_process_was_killed_goes_on_where_it_stopped(world: World) -> None:  # 34
    demo.add_invented(world.api, 230)
    some = [code for code in sorted(world.api.ids("item")) if code.startswith("shop-0")]
    assert len(some) == 230
    last = some[215]
    world.api.fault(faults.slow({"itemCode": last}, delay_seconds=60))
    process = command(world, "run", "JOB-I-01", *(word for code in some for word in ("--only", code)))
    try:
        wait_until(lambda: process.poll() is not None or asked(world).count(last) == 1, seconds=60)
        assert process.poll() is None, process.communicate()
        with pytest.raises(Busy):
            world.run("JOB-I-01", only=some)
    finally:
        process.kill()
        process.communicate()
    before = len(world.api.requests)
    with pytest.raises(Busy):  # nobody knows yet that it is dead
        world.run("JOB-I-01", only=some)
    run_id, start = lease_is_over(world)
    found = world.run("JOB-I-01", only=some, resume=run_id)
    assert (found.status, found.summary["total_targets"]) == ("success", 230)
    # the first two hundred were through, and nobody is asked for them again
    assert sorted(asked(world)[before:]) == some[200:]
    found_tables = world.tables()
    start_again(world)
    world.run("JOB-I-01", only=some, job_start_at=start)
    assert found_tables == world.tables()


def asked(world: World) -> list[str]:
    return [request.query.get("itemCode", "") for request in world.api.requests]


def test_two_processes_keep_the_pace_together(world: World) -> None:
    """Requests arrive a moment later than they are sent; the marketplace's own limit is one a second."""
    world.settings = replace(world.settings, catalog_interval_seconds=1.1, catalog_application_id="of two")
    genres = [genre for genre in world.api.ids("genre") if genre != "0"][:3]
    both = [
        command(world, "run", "JOB-I-01", *(word for code in codes(world, 3) for word in ("--only", code))),
        command(world, "run", "JOB-G-01", *(word for genre in genres for word in ("--only", genre))),
    ]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    arrived = [request.at for request in world.api.requests]
    assert len(arrived) == 6
    assert min(after - before for before, after in itertools.pairwise(arrived)) >= 0.95
    assert arrived[-1] - arrived[0] >= 5 * 1.1 - 0.15


def test_a_run_that_another_process_took_over_writes_nothing_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # 34
    world.settings = replace(world.settings, catalog_threads=1)
    some = codes(world)
    real = etl_service.normalize
    calls = [0]

    def losing(entity: str, raw: Any) -> Any:
        calls[0] += 1
        if calls[0] == 4:
            world.sql("UPDATE apl.etl_run SET owner_id = 'another/1' WHERE status = 'running'")
        return real(entity, raw)

    monkeypatch.setattr(etl_service, "normalize", losing)
    with pytest.raises(runs.Lost):
        world.run("JOB-I-01", only=some)
    assert len(world.table("staging")) == len(world.table("item")) == 3
    assert world.sql("SELECT status, owner_id FROM apl.etl_run") == [("running", "another/1")]


def test_a_run_is_held_for_as_long_as_its_process_lives(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LEASE_SECONDS", 2.0)
    (code,) = codes(world, 1)
    world.api.fault(faults.slow({"itemCode": code}, delay_seconds=6))
    begun = "SELECT count(*) FROM apl.etl_run WHERE clock_timestamp() > started_at + interval '4 s'"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.run, "JOB-I-01", only=[code])
        wait_until(lambda: world.sql(begun) == [(1,)])
        with pytest.raises(Busy):  # twice as long as a lease, and still its own
            world.run("JOB-I-01", only=[code])
        assert first.result(60).status == "success"


def test_jobs_of_other_kinds_run_beside_it(world: World) -> None:
    ctx = jobs.JobContext(env="dev", job_id="JOB-I-01", run_id=world.clock.new_id(), job_start_at=START)
    runs.Run(world.db, ctx.run_id).begin(ctx, apply_version=1, net_id=None)
    with pytest.raises(Busy):
        world.run("JOB-I-01", only=codes(world))
    assert world.run("JOB-G-01", only=["551172"]).status == "success"
    world.settings = replace(world.settings, catalog_env="prod")
    assert world.run("JOB-I-01", only=codes(world)).status == "success"
