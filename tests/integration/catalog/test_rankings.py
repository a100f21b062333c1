"""Rankings: what the API says of one, and what the tables say then. Numbers as in test_requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import structlog.testing

from app.catalog.replay import faults
from tests.integration.catalog.world import World

BUILT = "Sat, 28 Jan 2017 00:00:00 +0900"
BUILT_AT = datetime(2017, 1, 27, 15, tzinfo=UTC)


def entries(world: World, *ranks: int, start: int = 0) -> list[dict[str, Any]]:
    codes = sorted(world.api.ids("item"))[start:]
    return [
        {"itemCode": code, "itemName": code, "rank": rank, "itemPrice": "3980", "reviewAverage": "4.57"}
        for code, rank in zip(codes, ranks, strict=False)
    ]


def put(
    world: World, items: list[dict[str, Any]], built: Any = BUILT, title: str = "週間", genre: str = "0"
) -> None:
    world.api.put("ranking", genre, {"title": title, "lastBuildDate": built, "Items": items})


def run(world: World) -> tuple[str, str | None]:
    return world.ends(world.run("JOB-R-01", only=["0"]))["0"]


def ranks(world: World) -> list[Any]:
    return world.sql(
        "SELECT collected_at, rank, rakuten_item_code FROM apl.item_rank_snapshot ORDER BY 1, 2, 3"
    )


def test_the_rankings_that_are_wanted_are_fetched(world: World) -> None:
    world.wanted(0)
    found = world.run("JOB-R-01")
    assert found.summary["outcomes"] == {"applied": 1}
    assert len(ranks(world)) == 30
    again = world.run("JOB-R-01")
    assert again.summary["outcomes"] == {"unchanged": 1}
    assert len(ranks(world)) == 30


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_the_rank_counts_and_not_the_place(world: World, order: tuple[int, ...]) -> None:  # 23
    items = sorted(entries(world, 1, 2, 3), key=lambda one: order.index(one["rank"]))
    put(world, items)
    assert run(world) == ("applied", None)
    expected = [(BUILT_AT, one["rank"], one["itemCode"]) for one in entries(world, 1, 2, 3)]
    assert ranks(world) == expected
    put(world, entries(world, 1, 2, 3))
    assert run(world) == ("unchanged", None)


@pytest.mark.parametrize(
    "given, event",
    [
        ((1, 2, 2, 3), "ranking_with_repeated_ranks"),
        ((1, 2, 5), "ranking_with_missing_ranks"),
        ((1, 10**12), "ranking_with_missing_ranks"),
        ((1, 2, 3), None),
    ],
)
def test_repeated_and_missing_ranks_are_told(world: World, given: tuple[int, ...], event: str | None) -> None:
    """A ranking of fewer than thirty is nothing to tell of."""  # 23
    put(world, entries(world, *given))
    with structlog.testing.capture_logs() as lines:
        found = run(world)
    told = {line["event"] for line in lines if line["event"].startswith("ranking_")}
    assert told == ({event} if event else set())
    # a rank that no column holds is refused
    assert found == (("applied", None) if max(given) < 10**9 else ("failed", "database"))


def test_numbers_of_rankings_are_texts_and_numbers_alike(world: World) -> None:  # 7, 8
    put(world, entries(world, 1, 2))
    run(world)
    put(world, [{**one, "itemPrice": 3980, "reviewAverage": 4.57} for one in entries(world, 1, 2)])
    assert run(world) == ("unchanged", None)


def test_a_ranked_item_that_nobody_finds_keeps_its_rank(world: World) -> None:  # 24
    gone, there = entries(world, 1, 2)
    put(world, [{**gone, "itemCode": "gone:1"}, there])
    run(world)
    found = world.run("JOB-I-01")
    assert world.ends(found) == {
        "gone:1": ("not_found", "not_found"), there["itemCode"]: ("applied", None),
    }  # fmt: skip
    assert found.status == "success"
    assert [code for _, _, code in ranks(world)] == ["gone:1", there["itemCode"]]


@pytest.mark.parametrize("built", ["", None, "soon"])
def test_a_ranking_that_does_not_say_when_it_was_built_is_of_when_it_was_fetched(
    world: World, built: Any
) -> None:  # 25
    put(world, entries(world, 1, 2), built)
    assert run(world) == ("applied", None)
    assert {at for at, _, _ in ranks(world)} == {world.start}
    assert world.sql("SELECT DISTINCT last_build_date FROM apl.item_rank_snapshot") == [(None,)]


def test_a_time_of_build_is_read_in_both_spellings(world: World) -> None:  # 25
    put(world, entries(world, 1), "2017-01-28T00:00:00+09:00")
    run(world)
    assert {at for at, _, _ in ranks(world)} == {BUILT_AT}


def test_of_one_build_the_first_that_was_seen_stands_and_the_other_is_told(world: World) -> None:  # 25
    put(world, entries(world, 1, 2))
    run(world)
    before = ranks(world)
    put(world, entries(world, 1, 2, start=5))
    with structlog.testing.capture_logs() as lines:
        assert run(world) == ("applied", None)
    assert "ranking_differs_from_its_build" in {line["event"] for line in lines}
    assert ranks(world) == before


def test_the_same_order_of_another_day_is_another_ranking(world: World) -> None:  # 25
    put(world, entries(world, 1, 2))
    run(world)
    put(world, entries(world, 1, 2), "Sun, 29 Jan 2017 00:00:00 +0900")
    assert run(world) == ("applied", None)
    assert len(ranks(world)) == 4


def test_an_empty_ranking_is_not_found_and_what_stands_stays(world: World) -> None:  # 26, 27
    put(world, entries(world, 1, 2))
    run(world)
    before = world.tables()
    put(world, [])
    assert run(world) == ("not_found", "not_found")
    world.api.fault(faults.not_found("/Ranking/"))
    assert run(world) == ("not_found", "not_found")
    assert world.tables() == before


def test_the_ranking_of_everything_is_not_that_of_a_genre(world: World) -> None:  # 26
    world.api.put("ranking", "999999", world.api.record("ranking", "0"))
    ends = world.ends(world.run("JOB-R-01", only=["0", "999999"]))
    assert ends == {"0": ("applied", None), "999999": ("failed", "contract")}
    assert {genre for (genre,) in world.sql("SELECT rakuten_genre_id FROM apl.item_rank_snapshot")} == {0}


@pytest.mark.parametrize("title, told", [("ランキング市場 【医療計測器】", False), ("【花】", True)])
def test_a_ranking_of_another_title_is_told(world: World, title: str, told: bool) -> None:  # 26
    world.run("JOB-G-01", only=["551172"])
    put(world, entries(world, 1), title=title, genre="551172")
    with structlog.testing.capture_logs() as lines:
        assert world.run("JOB-R-01", only=["551172"]).status == "success"
    assert ("ranking_of_another_title" in {line["event"] for line in lines}) is told


@pytest.mark.parametrize(
    "change", [{"rank": None}, {"itemCode": None}, {"rank": "first"}, {"itemCode": ["a"]}]
)
def test_a_ranking_with_an_entry_that_is_none_is_refused(world: World, change: dict[str, Any]) -> None:
    first, second = entries(world, 1, 2)
    put(world, [first, {**second, **change}])
    assert run(world) == ("failed", "contract")
    assert not any(world.tables().values())
