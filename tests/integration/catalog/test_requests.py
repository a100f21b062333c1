"""What the API answers with, and what comes of it. Numbers are those of the behaviours that were collected
from recordings and reports: input -> what must come of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.catalog.client import MOST_TRIES
from app.catalog.replay import faults, recordings
from app.catalog.replay.faults import Fault
from tests.integration.catalog.world import World

CODE = "book:17924463"
ITEM = {"itemCode": CODE}
EVERY = "/IchibaItem/Search/"


def one(world: World, **options: Any) -> tuple[str, str | None]:
    """How the item ended."""
    return world.ends(world.run("JOB-I-01", only=[CODE], **options))[CODE]


def details(world: World) -> Any:
    ((attempts, status, excerpt),) = world.sql(
        "SELECT attempts, http_status, excerpt FROM apl.etl_run_target"
    )
    return attempts, status, excerpt


def nothing_written(world: World) -> bool:
    return not any(world.tables().values())


def codes(world: World, count: int) -> list[str]:
    return sorted(world.api.ids("item"))[:count]


def test_what_is_said_of_a_failure_names_no_key(world: World) -> None:
    asked = f"GET /?applicationId={world.settings.catalog_application_id} accessKey: pk_secret".encode()
    world.api.fault(Fault({"itemCode": CODE}, status=503, body=asked, times=MOST_TRIES))
    assert one(world) == ("failed", "server_error")
    assert details(world)[2] == "GET /?applicationId=… accessKey: …"


# 1: too many requests


def test_a_429_is_waited_for_and_the_target_goes_through(world: World) -> None:  # 1
    world.api.fault(faults.too_many_requests(ITEM, 4))
    assert one(world) == ("applied", None)
    assert len(world.api.requests) == 5
    for at, slept in enumerate(world.clock.slept):
        assert 2**at <= slept <= 1.5 * 2**at


def test_a_target_that_is_answered_with_429_only_has_failed_after_five_tries(world: World) -> None:  # 1
    world.api.fault(faults.too_many_requests(ITEM, 100))
    assert one(world) == ("failed", "rate_limited")
    attempts, status, excerpt = details(world)
    assert (attempts, status, len(world.api.requests)) == (MOST_TRIES, 429, MOST_TRIES)
    assert "number of allowed requests has been exceeded" in excerpt
    assert nothing_written(world)


@pytest.mark.parametrize(
    "asked, least, most", [("7", 7, 7), ("100000", 60, 60), ("-1", 1, 1.5), ("soon", 1, 1.5)]
)
def test_what_the_service_asks_for_is_waited_but_no_longer_than_a_minute(
    world: World, asked: str, least: float, most: float
) -> None:  # 1
    world.api.fault(faults.too_many_requests(ITEM, retry_after=asked))
    assert one(world) == ("applied", None)
    assert least <= world.clock.slept[0] <= most


@pytest.mark.parametrize("year, seconds", [("2026", 30), ("99999999999999999999", 1)])
def test_a_date_to_wait_for_is_understood_and_a_senseless_one_ignored(
    world: World, year: str, seconds: int
) -> None:  # 1
    headers = {"Date": "Sat, 28 Nov 2026 03:00:00 GMT", "Retry-After": f"Sat, 28 Nov {year} 03:00:30 GMT"}
    world.api.fault(replace(faults.too_many_requests(ITEM), headers=headers))
    assert one(world) == ("applied", None)
    assert seconds <= world.clock.slept[0] <= 1.5 * seconds


def test_a_429_slows_all_who_share_the_application(world: World) -> None:  # 1
    world.settings = replace(world.settings, catalog_interval_seconds=0.05, catalog_application_id="slowed")
    world.api.fault(faults.too_many_requests(ITEM, retry_after="2"))
    first = world.services.client.fetch_item(item_code=CODE)
    assert first["itemCode"] == CODE
    other = [request.at for request in world.api.requests]
    assert other[1] - other[0] >= 2.0


def test_a_storm_of_429_ends_the_job_early(world: World) -> None:  # 1
    world.api.fault(faults.too_many_requests(EVERY, 1000))
    found = world.run("JOB-I-01", only=codes(world, 60))
    assert (found.status, found.reason_code, found.exit_code) == ("failed", "rate_limited", 1)
    # five in a row, and those that the other threads were at
    assert len(world.api.requests) <= 9 * MOST_TRIES
    assert nothing_written(world)


def test_failures_with_successes_between_them_are_no_storm(world: World) -> None:  # 1
    some = codes(world, 40)
    world.settings = replace(world.settings, catalog_threads=1)
    for code in some[::2]:
        world.api.fault(faults.system_error({"itemCode": code}, 5))
    found = world.run("JOB-I-01", only=some)
    assert found.reason_code == "too_many_failures"
    assert found.summary["outcomes"] == {"failed": 20, "applied": 20}


# 3, 6: what is asked, and who may ask


def test_items_are_asked_for_whether_in_stock_or_not(world: World) -> None:  # 3
    one(world)
    (request,) = world.api.requests
    assert request.query["availability"] == "0"
    assert (request.query["hits"], request.query["formatVersion"]) == ("1", "2")


def test_the_access_key_stands_in_no_address(world: World) -> None:
    one(world)
    (request,) = world.api.requests
    assert request.headers["accesskey"] == "pk_secret"
    assert "pk_secret" not in str(request.query) + request.path


STOPS = {
    "403 of the gateway": (faults.forbidden(EVERY, 99), "access"),
    "403 of the old host": (faults.forbidden_in_old_shape(EVERY, 99), "access"),
    "401": (Fault(EVERY, 99, status=401, body=b"{}"), "access"),
    **{
        name: (Fault(EVERY, 99, status=400, body=recordings.error(name).body), "configuration")
        for name in ("400_retired_version", "400_accessKey_missing", "400_wrong_parameter_applicationId")
    },
}


@pytest.mark.parametrize("name", STOPS)
def test_what_every_target_would_fail_of_ends_the_job_at_the_first(world: World, name: str) -> None:  # 6
    fault, category = STOPS[name]
    world.settings = replace(world.settings, catalog_threads=1)
    world.api.fault(fault)
    found = world.run("JOB-I-01", only=codes(world, 50))
    assert (found.status, found.reason_code, found.exit_code) == ("failed", category, 1)
    assert len(world.api.requests) == 1
    assert nothing_written(world)


def test_a_version_that_was_retired_ends_the_job_at_the_first(world: World) -> None:  # 6
    world.settings = replace(
        world.settings, catalog_threads=1, catalog_apis="item=/ichibams/api/IchibaItem/Search/20220601"
    )
    found = world.run("JOB-I-01", only=codes(world, 50))
    assert (found.reason_code, len(world.api.requests)) == ("configuration", 1)


# 31: what is no answer


NO_ANSWERS = {
    "a page": (faults.html_page, "unexpected_body"),
    "an error with status 200": (faults.error_with_status_200, "unexpected_body"),
    "nothing": (faults.empty, "unexpected_body"),
    "too much": (faults.huge, "unexpected_body"),
    "half an answer": (faults.truncated, "connection"),
    "no answer": (faults.dropped, "connection"),
    "500": (faults.system_error, "server_error"),
    "503": (faults.under_maintenance, "server_error"),
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_answer_is_never_stored(world: World, name: str) -> None:  # 31
    make, category = NO_ANSWERS[name]
    world.api.fault(make(ITEM, 5))
    assert one(world) == ("failed", category)
    assert len(world.api.requests) == MOST_TRIES
    assert nothing_written(world)
    assert one(world) == ("applied", None)


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_answer_is_asked_for_again(world: World, name: str) -> None:  # 31
    world.api.fault(NO_ANSWERS[name][0](ITEM, 4))
    assert one(world) == ("applied", None)
    assert len(world.api.requests) == 5


ODD_BODIES = {
    "NUL": b"\x00\x01 no JSON",
    "half a character": rb'{"error": "\ud800"}',
    "a list": b"[]", "a number": b"5", "null": b"null", "NaN": b'{"Items": NaN}',
    "no list": b'{"Items": {"a": 1}}', "no records": b'{"Items": [5]}', "another key": b'{"Things": []}',
    "without end": b'{"a":' * 100_000, "nested": b'{"Items": [' + b"[" * 900 + b"]" * 900 + b"]}",
    "errors": b'{"errors": {"errorCode": 403, "errorMessage": "x"}}',
    "long digits": b'{"Items": [{"itemCode": ' + b"9" * 5000 + b"}]}",
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_BODIES)
def test_an_odd_body_is_one_targets_failure_and_not_the_jobs(world: World, name: str) -> None:  # 19, 31
    world.api.fault(Fault(ITEM, 5, status=200, body=ODD_BODIES[name]))
    some = [*codes(world, 30), CODE]
    found = world.run("JOB-I-01", only=some)
    assert world.ends(found)[CODE] == ("failed", "unexpected_body")
    assert found.summary["outcomes"] == {"applied": 30, "failed": 1}


def test_a_refused_target_is_not_asked_for_again(world: World) -> None:  # 27
    body = recordings.error("400_wrong_parameter_genreId").body
    world.api.fault(Fault(ITEM, status=400, body=body))
    assert one(world) == ("failed", "target_refused")
    assert len(world.api.requests) == 1


def test_a_slow_answer_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.services.client
    monkeypatch.setitem(client._pool.connection_pool_kw, "timeout", 0.1)
    world.api.fault(faults.slow(ITEM, 1, delay_seconds=0.5))
    assert client.fetch_item(item_code=CODE)["itemCode"] == CODE
    assert len(world.api.requests) == 2


# 33: nothing to do


@pytest.mark.parametrize("job_id", ["JOB-R-01", "JOB-I-01", "JOB-G-01", "JOB-T-01"])
def test_a_job_without_targets_says_so(world: World, job_id: str) -> None:  # 33
    found = world.run(job_id)
    assert (found.status, found.reason_code, found.exit_code) == ("success", "no_targets", 3)
    assert not world.api.requests
