"""A net: every job of a day in its order, up to the first that fails, and on from there."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.catalog import net
from app.catalog.jobs import JOBS
from app.catalog.replay import demo, faults
from app.catalog.runs import Busy
from app.kernel import errors
from tests.conftest import RecordedHints
from tests.integration.catalog.test_nearest import with_the_model
from tests.integration.catalog.world import START, World
from tests.integration.threads import at_once

pytestmark = with_the_model

ORDER = ["JOB-R-01", "JOB-I-01", "JOB-G-01", "JOB-T-01", "JOB-A-01", "JOB-E-01", "JOB-E-02"]
GENRE = "/IchibaGenre/Search/"


@pytest.fixture
def day(world: World) -> World:
    """A catalog with goods of which everything is known."""
    demo.add_invented(world.api, 24)
    world.wanted(201351)
    return world


def nets(world: World) -> list[tuple[str, int]]:
    return world.sql(
        "SELECT n.status, count(r.*) FROM apl.etl_net n LEFT JOIN apl.etl_run r USING (net_id)"
        " GROUP BY net_id ORDER BY n.started_at"
    )


def test_the_jobs_of_a_net_are_done_in_their_order_for_one_start(day: World) -> None:
    net.begin(day.services, job_start_at=START)
    found = net.run(day.services)
    assert [outcome.job_id for outcome in found] == ORDER
    assert {outcome.status for outcome in found} == {"success"}
    assert day.sql("SELECT DISTINCT job_start_at FROM apl.etl_run") == [(START,)]
    assert nets(day) == [("success", 7)]
    assert day.sql("SELECT count(*), bool_and(is_active) FROM apl.item") == [(6, True)]
    assert day.table("tag")
    assert net.run(day.services) == []


def test_the_same_net_again_changes_nothing(day: World) -> None:
    found = []
    for _ in range(2):
        net.begin(day.services, job_start_at=START)
        net.run(day.services)
        found.append(day.tables())
    assert found[0] == found[1]
    assert nets(day) == [("success", 7), ("success", 7)]


def test_a_job_waits_for_those_before_it() -> None:
    assert {name: job.behind for name, job in JOBS.items()} == {
        "JOB-R-01": (), "JOB-I-01": ("JOB-R-01",), "JOB-G-01": ("JOB-I-01",), "JOB-T-01": ("JOB-I-01",),
        "JOB-A-01": ("JOB-G-01", "JOB-T-01"), "JOB-E-01": ("JOB-A-01",), "JOB-E-02": ("JOB-E-01",),
    }  # fmt: skip


def test_a_job_that_fails_ends_the_net_and_it_goes_on_with_that_job(day: World) -> None:
    day.api.fault(faults.forbidden(GENRE, 99))
    net.begin(day.services, job_start_at=START)
    found = net.run(day.services)
    assert [(outcome.job_id, outcome.status) for outcome in found] == [
        ("JOB-R-01", "success"), ("JOB-I-01", "success"), ("JOB-G-01", "failed"),
    ]  # fmt: skip
    assert nets(day) == [("failed", 3)]
    assert day.sql("SELECT bool_or(is_active) FROM apl.item") == [(False,)]
    day.api.clear_faults()
    before = len(day.api.requests)
    assert net.resume(day.services).job_start_at == START
    again = net.run(day.services)
    assert [(outcome.job_id, outcome.status) for outcome in again] == [(job, "success") for job in ORDER[2:]]
    assert again[0].run_id == found[2].run_id
    assert not [r for r in day.api.requests[before:] if "IchibaItem" in r.path]
    assert day.sql("SELECT DISTINCT job_start_at FROM apl.etl_run") == [(START,)]
    assert nets(day) == [("success", 7)]


def test_a_net_whose_job_broke_goes_on_by_itself(day: World) -> None:
    net.begin(day.services, job_start_at=START)
    assert net.run_next(day.services) is not None
    day.sql(
        "INSERT INTO apl.etl_run (run_id, net_id, env, job_id, job_start_at, owner_id, expires_at)"
        " SELECT gen_random_uuid(), net_id, env, 'JOB-I-01', job_start_at, 'dead/1', now() - interval '1 s'"
        " FROM apl.etl_net"
    )
    assert [outcome.job_id for outcome in net.run(day.services)] == ORDER[1:]
    assert nets(day) == [("success", 7)]


def test_a_job_at_work_elsewhere_is_left_alone(day: World) -> None:
    net.begin(day.services, job_start_at=START)
    day.sql(
        "INSERT INTO apl.etl_run (run_id, net_id, env, job_id, job_start_at, owner_id, expires_at)"
        " SELECT gen_random_uuid(), net_id, env, 'JOB-R-01', job_start_at, 'alive/1', now() + interval '1 h'"
        " FROM apl.etl_net"
    )
    assert net.run(day.services) == []
    assert nets(day) == [("running", 1)]


def test_one_net_is_at_work_at_a_time(day: World) -> None:
    begun = at_once(*[lambda: net.begin(day.services, job_start_at=START)] * 6)
    assert sum(isinstance(one, Busy) for one in begun) == 5
    assert [one for one in begun if isinstance(one, Exception) and not isinstance(one, Busy)] == []
    assert nets(day) == [("running", 0)]
    day.settings = replace(day.settings, catalog_env="prod")
    net.begin(day.services, job_start_at=START)
    assert nets(day) == [("running", 0), ("running", 0)]


def test_a_net_that_failed_goes_on_once(day: World) -> None:
    with pytest.raises(errors.NotFound):
        net.resume(day.services)
    day.api.fault(faults.forbidden("/Ranking/", 1))
    net.begin(day.services, job_start_at=START)
    net.run(day.services)
    resumed = at_once(*[lambda: net.resume(day.services)] * 4)
    assert sum(isinstance(one, errors.NotFound) for one in resumed) == 3
    assert nets(day) == [("running", 1)]


def test_two_who_work_on_one_net_do_each_job_once(day: World) -> None:
    net.begin(day.services, job_start_at=START)
    for _ in range(10):
        at_once(*[lambda: net.run(day.services)] * 2)
        if nets(day) == [("success", 7)]:
            break
    assert day.sql("SELECT job_id FROM apl.etl_run ORDER BY job_id") == [(job,) for job in sorted(ORDER)]
    assert nets(day) == [("success", 7)]


def test_who_looked_before_a_job_began_and_comes_after_its_end_does_not_do_it_again(
    day: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.begin(day.services, job_start_at=START)
    seen = net._at_work(day.services)
    done = net.run_next(day.services, only=ORDER[0])
    assert done is not None and done.status == "success"
    monkeypatch.setattr(net, "_at_work", lambda _: seen)
    assert net.run_next(day.services, only=ORDER[0]) is None
    assert nets(day) == [("running", 1)]


def test_a_job_without_targets_does_not_hold_up_the_net(world: World) -> None:
    net.begin(world.services, job_start_at=START)
    assert [outcome.exit_code for outcome in net.run(world.services)] == [3, 3, 3, 3, 0, 0, 0]
    assert nets(world) == [("success", 7)]


def test_another_day_works_on_that_days_items(day: World) -> None:
    net.begin(day.services, job_start_at=START)
    net.run(day.services)
    net.begin(day.services, job_start_at=START + timedelta(days=1))
    found = {outcome.job_id: outcome.reason_code for outcome in net.run(day.services)}
    # the ranking is the same, so that nothing of it is of the next day
    assert found == dict.fromkeys(ORDER) | dict.fromkeys(ORDER[1:4], "no_targets")


def test_a_hint_is_sent_for_each_job_whose_turn_it_is(day: World) -> None:
    hints = RecordedHints()
    net.advance(day.services, hints)
    assert hints.sent == []
    net.begin_daily(day.services, hints)
    net.advance(day.services, hints)
    assert hints.sent == ["catalog.job_r_01"] * 2
    for _ in range(2):
        net.run_next(day.services)
    hints.sent.clear()
    net.advance(day.services, hints)
    assert hints.sent == ["catalog.job_g_01", "catalog.job_t_01"]
    assert net.run_next(day.services, only="JOB-A-01") is None
    done = net.run_next(day.services, only="JOB-T-01")
    assert done is not None and done.job_id == "JOB-T-01"


def test_no_request_holds_words_of_a_search(day: World) -> None:  # 32
    """Words can be too short or too long for the API; the jobs ask by ids alone."""
    net.begin(day.services, job_start_at=START)
    net.run(day.services)
    asked = {name for request in day.api.requests for name in request.query}
    assert asked == {
        "applicationId", "format", "formatVersion", "genreId", "genrePath", "itemCode", "tagId",
        "availability", "hits",
    }  # fmt: skip
