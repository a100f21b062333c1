"""Items: what the API says of one, and what the tables say then. Numbers as in test_requests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from app.catalog.replay import faults
from tests.integration.catalog.world import World

CODE = "book:17924463"
ITEM = {"itemCode": CODE}


def run(world: World, *only: str) -> tuple[str, str | None]:
    """How the first of them ended."""
    some = only or (CODE,)
    return world.ends(world.run("JOB-I-01", only=list(some)))[some[0]]


def item(world: World, columns: str, code: str = CODE) -> Any:
    found = world.sql(f"SELECT {columns} FROM apl.item WHERE rakuten_item_code = %(code)s", code=code)
    return found[0] if found else None


def tags(world: World) -> list[int]:
    return [tag for (tag,) in world.sql("SELECT rakuten_tag_id FROM apl.item_tag ORDER BY 1")]


# 2, 3, 4, 5: which item


def test_an_item_that_is_gone_is_counted_apart_and_stays_as_it_was(world: World) -> None:  # 2
    run(world)
    before = world.tables()
    world.api.remove("item", CODE)
    found = world.run("JOB-I-01", only=[CODE])
    assert world.ends(found)[CODE] == ("not_found", "not_found")
    assert (found.status, found.exit_code, found.summary["failure_rate"]) == ("success", 0, 0)
    assert world.tables() == before


def test_items_that_are_gone_do_not_fail_the_job_however_many(world: World) -> None:  # 2, 24
    found = world.run("JOB-I-01", only=[f"gone:{number}" for number in range(20)])
    assert (found.status, found.summary["outcomes"]) == ("success", {"not_found": 20})
    assert not any(world.tables().values())


def test_an_item_that_is_sold_out_is_an_item(world: World) -> None:  # 3
    world.item(CODE, availability=0)
    assert run(world) == ("applied", None)
    assert item(world, "availability") == (0,)


def test_another_item_than_the_one_asked_for_is_refused(world: World) -> None:  # 4
    other = world.api.record("item", sorted(world.api.ids("item"))[0])
    world.api.fault(faults.finding(ITEM, other))
    assert run(world) == ("failed", "contract")
    assert not any(world.tables().values())
    assert len(world.api.requests) == 1


def test_half_a_character_in_the_code_of_another_item_breaks_no_history(world: World) -> None:  # 4, 19
    body = json.dumps({"Items": [{"itemCode": "\ud800", "itemName": "x"}]}).encode()
    world.api.fault(faults.Fault(ITEM, status=200, body=body))
    assert run(world) == ("failed", "contract")
    assert world.sql("SELECT excerpt FROM apl.etl_run_target") == [(f"asked for {CODE}, got ?",)]


def test_of_several_items_the_one_asked_for_is_taken(world: World) -> None:  # 5
    other = world.api.record("item", sorted(world.api.ids("item"))[0])
    right = world.api.record("item", CODE)
    world.api.fault(faults.finding(ITEM, other, right, {**right, "itemName": "second"}))
    assert run(world) == ("applied", None)
    assert item(world, "item_name") == (right["itemName"],)
    assert world.sql("SELECT count(*) FROM apl.item") == [(1,)]


# 7 to 10: values


def test_numbers_as_texts_are_the_same_numbers(world: World) -> None:  # 7, 8, 9
    world.item(CODE, itemPrice=3980, reviewAverage=5, genreId="100283", reviewCount=7, affiliateRate=4)
    run(world)
    assert item(world, "item_price, rakuten_genre_id") == (3980, 100283)
    before = world.tables()
    world.item(
        CODE, itemPrice="3980", reviewAverage="5.00", genreId=100283, reviewCount="7", affiliateRate=4.0
    )
    assert run(world) == ("unchanged", None)
    assert world.tables() == before


@pytest.mark.parametrize("price", ["3,980", 3980.5, True, [3980]])
def test_a_price_that_is_no_whole_number_is_refused(world: World, price: Any) -> None:  # 7
    world.item(CODE, itemPrice=price)
    assert run(world) == ("failed", "contract")
    assert not any(world.tables().values())


def test_a_number_that_no_column_holds_is_one_targets_failure(world: World) -> None:
    other = sorted(world.api.ids("item"))[0]
    world.item(CODE, itemPrice=10**19)
    found = world.run("JOB-I-01", only=[CODE, other])
    assert world.ends(found) == {CODE: ("failed", "database"), other: ("applied", None)}
    assert item(world, "1") is None
    assert [row[0] for row in world.sql("SELECT source_id FROM apl.staging")] == [other]


def test_the_genre_of_an_item_finds_the_genre_whatever_its_kind(world: World) -> None:  # 9
    genre = next(genre for genre in world.api.ids("genre") if genre != "0")
    world.item(CODE, genreId=genre)
    run(world)
    assert item(world, "is_active") == (False,)
    world.run("JOB-G-01", only=[genre])
    assert world.run("JOB-A-01").summary == {"updated": 1}
    assert item(world, "is_active") == (True,)
    assert world.run("JOB-A-01").summary == {"updated": 0}


def test_an_empty_text_is_no_text(world: World) -> None:  # 10
    world.item(CODE, catchcopy="", itemCaption="　", startTime="", affiliateUrl="")
    run(world)
    assert item(world, "catchcopy, item_caption, sale_starts_at") == (None, None, None)
    world.item(CODE, catchcopy=None, itemCaption=..., startTime=None, affiliateUrl=...)
    assert run(world) == ("unchanged", None)


def test_a_field_that_the_api_adds_is_kept(world: World) -> None:  # 10
    world.item(CODE, itemPriceMin1="100", somethingNew={"a": ["b"]})
    run(world)
    (body,) = world.raw_objects().values()
    assert (body["itemPriceMin1"], body["somethingNew"]) == (100, {"a": ["b"]})


# 11, 12: tags


def test_tags_in_another_order_are_the_same(world: World) -> None:  # 11
    world.item(CODE, tagIds=[1045372, 1016365])
    run(world)
    world.item(CODE, tagIds=[1016365, 1045372, 1016365])
    assert run(world) == ("unchanged", None)
    assert tags(world) == [1016365, 1045372]


def test_no_tags_take_all_away_and_unknown_tags_none(world: World) -> None:  # 12
    world.item(CODE, tagIds=[1, 2])
    run(world)
    world.item(CODE, tagIds=...)
    assert run(world) == ("applied", None)
    assert tags(world) == [1, 2]
    world.item(CODE, tagIds=None)
    assert run(world) == ("unchanged", None)
    world.item(CODE, tagIds=[2, 3])
    run(world)
    assert tags(world) == [2, 3]
    world.item(CODE, tagIds=[])
    run(world)
    assert tags(world) == []


# 13 to 18: addresses and texts


def images(world: World) -> list[Any]:
    return world.sql("SELECT size, sort_order, image_url, base_url FROM apl.item_image ORDER BY 1, 2")


def test_images_keep_their_order_size_and_base(world: World) -> None:  # 13
    world.item(
        CODE, smallImageUrls=["http://t.example/b.jpg?_ex=64x64", "http://t.example/a.jpg?_ex=64x64"],
        mediumImageUrls=["http://t.example/b.jpg?_ex=128x128"],
    )  # fmt: skip
    run(world)
    expected = [
        ("medium", 0, "https://t.example/b.jpg?_ex=128x128", "https://t.example/b.jpg"),
        ("small", 0, "https://t.example/b.jpg?_ex=64x64", "https://t.example/b.jpg"),
        ("small", 1, "https://t.example/a.jpg?_ex=64x64", "https://t.example/a.jpg"),
    ]
    assert images(world) == expected
    world.item(CODE, mediumImageUrls=...)  # unknown is not none
    assert run(world) == ("applied", None)
    assert images(world) == expected
    world.item(CODE, smallImageUrls=["http://t.example/a.jpg?_ex=64x64"], mediumImageUrls=[])
    run(world)
    assert images(world) == [("small", 0, "https://t.example/a.jpg?_ex=64x64", "https://t.example/a.jpg")]


def test_another_scheme_changes_nothing(world: World) -> None:  # 14
    record = world.item(CODE, itemUrl="http://item.rakuten.co.jp/book/17924463/")
    run(world)
    before = world.tables()
    text = json.dumps(record)
    assert "http://" in text
    world.api.put("item", CODE, json.loads(text.replace("http://", "https://")))
    assert run(world) == ("unchanged", None)
    assert world.tables() == before


def test_another_application_changes_nothing_and_its_id_is_nowhere(world: World) -> None:  # 15
    url = "https://item.rakuten.co.jp/book/17924463/"
    shop = "https://www.rakuten.co.jp/book/"
    for application in ("12345678-aaaa", "99999999-bbbb"):
        link = f"https://hb.afl.rakuten.co.jp/hgc/{application}/?pc={url.replace('/', '%2F')}"
        world.item(
            CODE, itemUrl=f"{url}?rafcid=wsc_i_is_{application}", affiliateUrl=link, shopAffiliateUrl=link,
            shopUrl=f"{shop}?rafcid=wsc_i_ra_{application}",
        )  # fmt: skip
        run(world)
    assert world.sql("SELECT outcome FROM apl.etl_run_target ORDER BY outcome") == [
        ("applied",),
        ("unchanged",),
    ]
    assert (item(world, "item_url"), world.sql("SELECT shop_url FROM apl.shop")) == ((url,), [(shop,)])
    for application in ("12345678-aaaa", "99999999-bbbb"):
        assert application not in str(world.tables())


def test_texts_stand_as_the_shop_wrote_them(world: World) -> None:  # 16, 17, 18
    name = "ﾊﾝﾄﾞｸﾘｰﾑ①　&nbsp;&gt;50㍑ &#9834; …"
    caption = "あ" * 9_479
    world.item(CODE, itemName=f"　{name}　", itemCaption=f"{caption}\n")
    run(world)
    assert item(world, "item_name, item_caption") == (name, caption)
    (body,) = world.raw_objects().values()
    assert (body["itemName"], body["itemCaption"]) == (name, caption)


# 19, 30: what no column takes


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_a_text_that_no_database_takes_is_one_targets_failure(world: World, text: str) -> None:  # 19
    other = sorted(world.api.ids("item"))[0]
    body = json.dumps({"Items": [{**world.api.record("item", CODE), "itemName": text}]}).encode()
    world.api.fault(faults.Fault(ITEM, status=200, body=body))
    found = world.run("JOB-I-01", only=[CODE, other])
    assert world.ends(found) == {CODE: ("failed", "unstorable"), other: ("applied", None)}
    assert len(world.raw_objects()) == 1


@pytest.mark.parametrize(
    "text, expected",
    [
        ("9999-12-31 23:59", datetime(9999, 12, 31, 14, 59, tzinfo=UTC)),
        ("2019-10-18 09:00", datetime(2019, 10, 18, 0, 0, tzinfo=UTC)),
        ("2019-10-18 08:59", datetime(2019, 10, 17, 23, 59, tzinfo=UTC)),
        ("0001-01-01 00:00", None), ("0000-00-00 00:00", None), ("soon", None),
    ],
)  # fmt: skip
def test_a_time_is_of_japan_and_a_senseless_one_is_none(world: World, text: str, expected: Any) -> None:  # 30
    world.item(CODE, startTime=text, pointRateEndTime=text)
    assert run(world) == ("applied", None)
    assert item(world, "sale_starts_at") == (expected,)
    assert world.sql("SELECT point_rate_ends_at FROM apl.item_market_snapshot") == [(expected,)]


# 35, 36


def test_an_item_without_a_genre_is_an_item_that_is_not_active(world: World) -> None:  # 35
    world.item(CODE, genreId=...)
    assert run(world) == ("applied", None)
    world.run("JOB-A-01")
    assert item(world, "rakuten_genre_id, is_active") == (None, False)
    assert world.run("JOB-G-01").reason_code == "no_targets"


def test_which_fields_changed_is_counted_and_what_they_were_is_kept(world: World) -> None:  # 36
    world.item(CODE, itemPrice=100, pointRate=1)
    run(world)
    world.item(CODE, itemPrice=100, pointRate=5)
    found = world.run("JOB-I-01", only=[CODE])
    assert found.summary["changed_fields"] == {"pointRate": 1}
    assert world.sql("SELECT item_price, point_rate FROM apl.item_market_snapshot ORDER BY collected_at") == [
        (100, 1),
        (100, 5),
    ]
    assert world.sql("SELECT count(*) FROM apl.item_review_snapshot") == [(2,)]


def test_an_item_of_another_shape_is_one_targets_failure(world: World) -> None:
    other = sorted(world.api.ids("item"))[0]
    world.item(CODE, shopName={"a": 1})
    found = world.run("JOB-I-01", only=[CODE, other])
    assert world.ends(found) == {CODE: ("failed", "contract"), other: ("applied", None)}
