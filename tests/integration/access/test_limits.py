"""Limits for each key: exact at their boundary, shared by all processes, and off without Redis."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from app.access import limits
from app.adapters import buckets, embedded
from app.adapters.buckets import Bucket, Buckets
from tests.conftest import KEY, Servers, SetClock
from tests.integration.access.conftest import LIST, OURS, THEIRS, Web
from tests.integration.access.test_keys import refused
from tests.integration.threads import at_once

TICK = timedelta(microseconds=1)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def tokens(servers: Servers, clock: SetClock) -> Buckets:
    return Buckets(servers.valkey.url, clock, prefix=f"test-{uuid.uuid4().hex}:")


@pytest.fixture
def redis_client(servers: Servers) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(servers.valkey.url, protocol=2) as client:
        yield client


TEN = Bucket("ten", capacity=10, per_minute=60)


def left(taken: tuple[bool, list[Any]]) -> tuple[bool, int, float]:
    given, (level,) = taken
    return given, level.left, level.wait_seconds


# -- the bucket


def test_a_full_bucket_gives_its_capacity_and_not_one_more(tokens: Buckets) -> None:
    assert [left(tokens.take(TEN)) for _ in range(10)] == [(True, n, 0 if n else 1) for n in range(9, -1, -1)]
    assert left(tokens.take(TEN)) == (False, 0, 1)


def test_a_token_comes_back_to_the_microsecond(tokens: Buckets, clock: SetClock) -> None:
    for _ in range(10):
        tokens.take(TEN)
    clock.time += timedelta(seconds=1) - TICK
    assert left(tokens.take(TEN)) == (False, 0, 0.000001)
    clock.time += TICK
    assert left(tokens.take(TEN)) == (True, 0, 1)
    assert left(tokens.take(TEN)) == (False, 0, 1)


def test_a_refusal_costs_nothing(tokens: Buckets, clock: SetClock) -> None:
    for _ in range(30):
        tokens.take(TEN)
    clock.time += timedelta(seconds=10)
    assert left(tokens.take(TEN)) == (True, 9, 0)


def test_a_bucket_never_holds_more_than_its_capacity(tokens: Buckets, clock: SetClock) -> None:
    tokens.take(TEN)
    clock.time += timedelta(days=365)
    assert sum(tokens.take(TEN)[0] for _ in range(20)) == 10


def test_a_clock_that_is_behind_gives_nothing_away(tokens: Buckets, clock: SetClock) -> None:
    for _ in range(10):
        tokens.take(TEN)
    clock.time -= timedelta(hours=1)
    assert not tokens.take(TEN)[0]
    clock.time += timedelta(hours=1, seconds=1)
    assert [tokens.take(TEN)[0] for _ in range(2)] == [True, False]


def test_of_two_buckets_both_give_or_none(tokens: Buckets) -> None:
    two = Bucket("two", capacity=2, per_minute=60)
    assert [tokens.take(TEN, two)[0] for _ in range(3)] == [True, True, False]
    assert left(tokens.take(TEN)) == (True, 7, 0)  # the refused one took nothing here


def test_a_look_takes_nothing(tokens: Buckets) -> None:
    one = Bucket("one", capacity=1, per_minute=60)
    assert [tokens.take(one, tokens=0)[0] for _ in range(3)] == [True] * 3
    assert tokens.take(one)[0]
    assert not tokens.take(one, tokens=0)[0]


def test_processes_at_once_take_no_more_than_there_is(servers: Servers, clock: SetClock) -> None:
    prefix = f"test-{uuid.uuid4().hex}:"
    fifty = Bucket("fifty", capacity=50, per_minute=60)

    def process() -> int:
        own = Buckets(servers.valkey.url, clock, prefix=prefix)
        return sum(own.take(fifty)[0] for _ in range(20))

    assert sum(at_once(*[process] * 5)) == 50


def test_one_request_is_one_round_trip(redis_client: redis.Redis, tokens: Buckets) -> None:
    two = Bucket("two", capacity=20, per_minute=60)
    tokens.take(TEN, two)  # the script is known from here on
    end = uuid.uuid4().hex
    sent = []
    with redis_client.monitor() as monitor:
        tokens.take(TEN, two)
        tokens.take(Bucket(end, capacity=1, per_minute=1))
        for command in monitor.listen():
            if end in command["command"]:
                break
            sent.append(command)
    assert [c["command"].split()[0] for c in sent if c["client_type"] != "lua"] == ["EVALSHA"]


def test_a_bucket_leaves_redis_when_it_is_full_again(
    servers: Servers, redis_client: redis.Redis, clock: SetClock
) -> None:
    prefix = f"test-{uuid.uuid4().hex}:"
    Buckets(servers.valkey.url, clock, prefix=prefix).take(TEN)
    assert 0 < redis_client.pttl(f"{prefix}ten") <= 1000


def test_a_redis_that_lost_its_scripts_goes_on(redis_client: redis.Redis, tokens: Buckets) -> None:
    tokens.take(TEN)
    redis_client.script_flush()
    assert left(tokens.take(TEN)) == (True, 8, 0)


def test_without_redis_everything_passes_and_it_is_not_asked_at_every_request(clock: SetClock) -> None:
    asked = []
    clock.monotonic = lambda: 100.0  # type: ignore[method-assign]
    away = Buckets(f"redis://127.0.0.1:{embedded.free_port()}/0", clock)
    real = away._take
    away._take = lambda **arguments: asked.append(1) or real(**arguments)
    assert [away.take(TEN) for _ in range(5)] == [(True, [])] * 5
    assert len(asked) == 1
    clock.monotonic = lambda: 100.0 + buckets.AWAY_SECONDS  # type: ignore[method-assign]
    away.take(TEN)
    assert len(asked) == 2


# -- over HTTP


def test_a_key_makes_as_many_requests_as_it_may_and_not_one_more(make_web: Callable[..., Web]) -> None:
    site = make_web(rate_per_minute=30)
    key = site.key().text
    answers = [site.get(key=key) for _ in range(30)]
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].headers["RateLimit"] == '"requests";r=29;t=2'
    assert answers[-1].headers["RateLimit"] == '"requests";r=0;t=60'
    assert answers[-1].headers["RateLimit-Policy"] == '"requests";q=30;w=60'
    answer = site.get(key=key)
    assert "30 requests a minute" in refused(answer, 429, "too_many_requests")
    assert (answer.headers["Retry-After"], answer.headers["RateLimit"]) == ("2", '"requests";r=0;t=60')
    site.clock.time += timedelta(seconds=2) - TICK
    assert site.get(key=key).status_code == 429
    site.clock.time += TICK
    assert [site.get(key=key).status_code for _ in range(2)] == [200, 429]


def test_a_limit_is_of_one_key(make_web: Callable[..., Web]) -> None:
    site = make_web(rate_per_minute=2)
    one, two = site.key(OURS).text, site.key(OURS).text
    assert [site.get(key=one).status_code for _ in range(3)] == [200, 200, 429]
    assert site.get(key=two).status_code == 200


def test_a_session_counts_with_its_key(make_web: Callable[..., Web]) -> None:
    site = make_web(rate_per_minute=2)
    key = site.key().text
    client = site.logged_in(key)
    assert [client.get(LIST).status_code, site.get(key=key).status_code] == [200, 200]
    refused(client.get(LIST), 429, "too_many_requests")
    refused(site.get(key=key), 429, "too_many_requests")


def test_refused_requests_count_as_well(make_web: Callable[..., Web]) -> None:
    site = make_web(rate_per_minute=2)
    key = site.key().text
    foreign = f"/v1/uploads?workspace_id={THEIRS}"
    assert [site.get(foreign, key).status_code for _ in range(3)] == [404, 404, 429]


def test_uploads_have_a_limit_of_their_own(make_web: Callable[..., Web]) -> None:
    site = make_web(uploads_per_minute=3)
    bearer = {"Authorization": f"Bearer {site.key().text}"}

    def upload() -> Any:
        return site.client().post("/v1/uploads", data={"workspace_id": str(OURS)}, headers=bearer)

    assert [upload().status_code for _ in range(4)] == [422, 422, 422, 429]
    answer = upload()
    assert answer.headers["Retry-After"] == "20"
    assert answer.headers["RateLimit-Policy"] == '"requests";q=600;w=60, "uploads";q=3;w=60'
    assert site.client().get(LIST, headers=bearer).status_code == 200
    site.later(seconds=20)
    assert [upload().status_code for _ in range(2)] == [422, 429]


def test_a_request_that_hands_in_several_reports_counts_as_all_of_them(make_web: Callable[..., Web]) -> None:
    site = make_web(uploads_per_minute=6)
    bearer = {"Authorization": f"Bearer {site.key().text}"}

    def hand_in(number: int) -> Any:
        return site.client().post("/several", data={"number": number}, headers=bearer)

    assert [hand_in(n).status_code for n in (4, 3, 2, 1)] == [200, 429, 200, 429]
    assert hand_in(3).headers["Retry-After"] == "30"
    assert hand_in(0).status_code == 200
    own = {"Authorization": f"Bearer {KEY}"}
    assert site.client().post("/several", data={"number": 100}, headers=own).status_code == 200


def test_the_instance_s_own_key_and_a_limit_of_zero_have_no_limit(make_web: Callable[..., Web]) -> None:
    site = make_web(rate_per_minute=1)
    assert [site.get(key=KEY).status_code for _ in range(3)] == [200] * 3
    unlimited = make_web(rate_per_minute=0)
    answers = [unlimited.get(key=unlimited.key().text) for _ in range(3)]
    assert [(a.status_code, a.headers.get("RateLimit")) for a in answers] == [(200, None)] * 3


def test_without_redis_requests_are_answered(make_web: Callable[..., Web]) -> None:
    site = make_web(rate_per_minute=1)
    site.app.extensions["access"].limits = limits.Limits(
        site.app.extensions["access"].settings,
        Buckets(f"redis://127.0.0.1:{embedded.free_port()}/0", site.clock),
    )
    key = site.key().text
    answers = [site.get(key=key) for _ in range(3)]
    assert [(a.status_code, a.headers.get("RateLimit")) for a in answers] == [(200, None)] * 3
    assert site.get(key="wrong").status_code == 401
