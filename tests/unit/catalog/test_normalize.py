"""Equal things have one hash, however the API spells them; unequal ones have two. Numbers are those of the
behaviours in docs and research: input -> what must come of it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalog import answers
from app.catalog.failures import TargetFailure
from app.catalog.normalize import IN_ORDER, compute_content_hash, normalize
from app.catalog.replay import recordings, shapes

Record = dict[str, Any]

URL = "https://item.rakuten.co.jp/shop/1/"
ITEM: Record = {
    "itemCode": "shop:1", "itemName": "お茶", "itemPrice": 3980, "reviewAverage": Decimal("4.5"),
    "reviewCount": 2, "genreId": 100283, "itemUrl": URL, "tagIds": [1000001, 1000002],
    "smallImageUrls": ["https://i.example/b.jpg?_ex=64x64", "https://i.example/a.jpg?_ex=64x64"],
    "catchcopy": None, "availability": 1,
}  # fmt: skip
RANKED: Record = {
    "genreId": "100283", "title": "週間", "lastBuildDate": "Sat, 28 Jan 2017 00:00:00 +0900",
    "Items": [{"itemCode": f"shop:{rank}", "rank": rank, "itemPrice": 100} for rank in (1, 2, 3)],
}  # fmt: skip
GENRE: Record = {
    "current": {"genreId": 100283, "genreName": "和菓子", "genreLevel": 2},
    "parents": [{"genreId": 551167, "genreName": "スイーツ", "genreLevel": 1}],
    "brothers": [{"genreId": 2, "genreName": "b"}, {"genreId": 1, "genreName": "a"}],
    "children": [{"genreId": 4, "genreName": "d"}, {"genreId": 3, "genreName": "c"}],
}  # fmt: skip


def item(**values: Any) -> Record:
    """The item with these values; `...` takes a field away."""
    return {name: value for name, value in {**ITEM, **values}.items() if value is not ...}


def hashed(record: Record, entity: str = "item") -> str:
    return compute_content_hash(normalize(entity, record))


def refused(record: Record, entity: str = "item") -> str:
    with pytest.raises(TargetFailure) as caught:
        hashed(record, entity)
    return caught.value.category


def recorded_items() -> list[Record]:
    return [dict(versions[-1]) for versions in recordings.index().items.values()]


items = st.sampled_from(recorded_items())
seeds = st.integers(0, 2**32)


def respelled(value: Any, chance: random.Random) -> Any:
    """The same with its keys in another order."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: respelled(value[key], chance) for key in keys}
    return [respelled(one, chance) for one in value] if isinstance(value, list) else value


# What must not change the hash


@given(items)
def test_what_is_normalised_once_stays_as_it_is(record: Record) -> None:
    once = normalize("item", record)
    kept = once.get(IN_ORDER, {})
    assert normalize("item", {**once, **kept}) == once
    assert compute_content_hash(normalize("item", once)) == compute_content_hash(once)


@given(items, seeds)
def test_the_order_of_keys_says_nothing(record: Record, seed: int) -> None:  # 22
    assert hashed(respelled(record, random.Random(seed))) == hashed(record)


@given(items)
def test_the_format_version_says_nothing(record: Record) -> None:
    code = record["itemCode"]
    flat = shapes.envelope([record])
    found = [answers.item(answer, code) for answer in (flat, shapes.wrapped(flat))]
    assert hashed(dict(found[0])) == hashed(dict(found[1])) == hashed(record)


@given(items)
def test_lists_of_records_under_items_in_lower_case_say_the_same(record: Record) -> None:
    envelope = shapes.envelope([record])
    lower = {"items": envelope.pop("Items"), **envelope}
    assert hashed(dict(answers.item(lower, record["itemCode"]))) == hashed(record)


@given(items, st.sampled_from(["wsc_i_is_1", "wsc_i_ra_2-a", ""]))
def test_who_asked_says_nothing(record: Record, asked: str) -> None:  # 15
    """Also where the address has more in its query."""

    def with_id(url: str) -> str:
        return f"{url}{'&' if '?' in url else '?'}rafcid={asked}"

    told = {name: with_id(record[name]) for name in ("itemUrl", "shopUrl") if record.get(name)}
    assert hashed({**record, **told}) == hashed(record)


@pytest.mark.parametrize(
    "query", ["a=b/c", "a=%2f&b", "b=&a=1", "q=%E3%81%8A+x", "q=a%20b", "", "_ex=64x64", "xrafcid=1"]
)
def test_the_rest_of_an_address_stays_letter_by_letter(query: str) -> None:  # 15
    plain = f"{URL}?{query}" if query else URL
    for tracked in (f"{URL}?rafcid=x&{query}", f"{plain}{'&' if query else '?'}rafcid=x"):
        assert normalize("item", item(itemUrl=tracked))["itemUrl"] == plain


def test_an_address_of_the_affiliates_is_the_one_that_it_leads_to() -> None:  # 15
    link = "https://hb.afl.rakuten.co.jp/hgc/0a1b2c/?pc=https%3A%2F%2Fitem.rakuten.co.jp%2Fshop%2F1%2F&m=x"
    assert hashed(item(itemUrl=link)) == hashed(item())
    found = json.dumps(normalize("item", item(itemUrl=link, affiliateUrl=link, shopAffiliateUrl=link)))
    assert "0a1b2c" not in found


@given(items)
def test_http_and_https_are_one(record: Record) -> None:  # 14
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        return value.replace("https://", "http://", 1) if isinstance(value, str) else value

    names = ("itemUrl", "shopUrl", "smallImageUrls", "mediumImageUrls")
    told = {name: plain(record[name]) for name in names if name in record}
    assert hashed({**record, **told}) == hashed(record)


@pytest.mark.parametrize(
    "name, same",
    [
        ("itemPrice", [3980, "3980"]),  # 7
        ("genreId", [100283, "100283"]),  # 9
        ("reviewAverage", [5, "5", Decimal("5.0"), "5.00", 5.0]),  # 8
        ("reviewAverage", [Decimal("4.57"), "4.57", 4.57, "4.570"]),  # 8
        ("reviewAverage", [0, "0", Decimal("0.0"), "0.00", Decimal("-0.0")]),  # 8
        ("affiliateRate", [4, "4", "4.0"]),
        ("someNewNumber", [4, Decimal("4.0"), Decimal("4.00")]),
    ],
)
def test_a_number_is_one_however_it_is_spelled(name: str, same: list[Any]) -> None:
    assert len({hashed(item(**{name: value})) for value in same}) == 1


@pytest.mark.parametrize("spelled", [0, "0", 30, "030", "+30"])
def test_a_number_is_a_number_in_the_record(spelled: Any) -> None:  # 7, 9
    assert normalize("item", item(itemPrice=spelled))["itemPrice"] == int(spelled)


@pytest.mark.parametrize("name", ["catchcopy", "itemCaption", "startTime", "endTime", "pointRateStartTime"])
def test_nothing_is_nothing_however_it_is_spelled(name: str) -> None:  # 10
    assert len({hashed(item(**{name: value})) for value in ("", None, ..., "　", " \n")}) == 1


def test_a_field_that_nobody_knows_is_kept() -> None:  # 10
    assert normalize("item", item(somethingNew="x"))["somethingNew"] == "x"


@given(st.permutations([1045372, 1016365, 1016365, 5]))
def test_tags_are_a_set(tags: list[int]) -> None:  # 11
    assert normalize("item", item(tagIds=tags))["tagIds"] == [5, 1016365, 1045372]


@given(items, seeds)
def test_the_order_of_images_counts_only_beside_the_hash(record: Record, seed: int) -> None:
    images = list(record["smallImageUrls"])
    random.Random(seed).shuffle(images)
    other = {**record, "smallImageUrls": images}
    assert hashed(other) == hashed(record)
    kept = normalize("item", other).get(IN_ORDER, {}).get("smallImageUrls", [])
    assert [url.partition("://")[2] for url in kept] == [url.partition("://")[2] for url in images]


@pytest.mark.parametrize("name", ["fetched_at", "requested_at", "request_id", "response_headers"])
def test_what_is_about_the_fetching_is_not_about_the_thing(name: str) -> None:
    assert hashed(item(**{name: "2026-11-28"})) == hashed(item())
    assert name not in normalize("item", item(**{name: "2026-11-28"}))


def test_what_the_envelope_says_is_not_about_the_item() -> None:  # 20
    changed = {"count": 77, "hits": 30, "first": 2, "last": 5, "page": 3, "pageCount": 9, "carrier": 1}
    answer = {**shapes.envelope([ITEM]), **changed, "GenreInformation": [1], "TagInformation": [2]}
    assert hashed(dict(answers.item(answer, "shop:1"))) == hashed(ITEM)


@given(st.permutations(RANKED["Items"]))
def test_a_ranking_is_sorted_by_rank(entries: list[Record]) -> None:  # 23
    assert normalize("ranking", {**RANKED, "Items": entries})["Items"] == RANKED["Items"]


@given(st.permutations(GENRE["children"]), st.permutations(GENRE["brothers"]))
def test_children_and_siblings_of_a_genre_have_no_order(children: Any, brothers: Any) -> None:
    assert hashed({**GENRE, "children": children, "brothers": brothers}, "genre") == hashed(GENRE, "genre")


def test_the_spelling_of_genres_of_2026_says_the_same() -> None:
    names = {"genreName": "nameJa", "genreLevel": "level"}
    keys = {"current": "genre", "parents": "ancestors", "brothers": "siblings"}

    def new(value: Any) -> Any:
        if isinstance(value, list):
            return [new(one) for one in value]
        return {names.get(name, name): one for name, one in value.items()}

    answer = {keys.get(key, key): new(value) for key, value in GENRE.items()}
    assert hashed(dict(answers.genre(answer, "100283")), "genre") == hashed(GENRE, "genre")


# What must change it


@given(items, st.data())
def test_every_other_change_changes_the_hash(record: Record, data: st.DataObject) -> None:  # 21
    name = data.draw(st.sampled_from(sorted(set(record) - {"affiliateUrl", "shopAffiliateUrl", "itemCode"})))
    assert hashed({**record, name: another(record[name])}) != hashed(record)


def another(value: Any) -> Any:
    if isinstance(value, list):
        return value[1:] if value else ["1"]
    if isinstance(value, int | float | Decimal):
        return value + 1
    return f"{value}1" if value else "1"


@pytest.mark.parametrize(
    "entity, record, other",
    [
        ("ranking", RANKED, {"lastBuildDate": "Sun, 29 Jan 2017 00:00:00 +0900"}),  # as every day's build
        ("ranking", RANKED, {"Items": [*RANKED["Items"][:2], {**RANKED["Items"][2], "itemCode": "shop:4"}]}),
        ("ranking", RANKED, {"Items": RANKED["Items"][:2]}),
        ("genre", GENRE, {"parents": []}),
        ("genre", GENRE, {"current": {**GENRE["current"], "genreName": "洋菓子"}}),
        ("item", ITEM, {"tagIds": []}),
        ("item", {**ITEM, "tagIds": []}, {"tagIds": None}),  # unknown is not none (12)
    ],
)
def test_another_content_has_another_hash(entity: str, record: Record, other: Record) -> None:
    assert hashed({**record, **other}, entity) != hashed(record, entity)


# Texts


def test_a_text_is_trimmed_of_wide_spaces_too_and_otherwise_untouched() -> None:  # 16, 17
    text = "ﾊﾝﾄﾞ㍑①　Ａ&nbsp;&gt;ﾃｨｰ <b>x</b>\n\nend..."
    found = normalize("item", item(itemName=f"　 {text}\u3000\n", itemCaption="あ" * 9479))
    assert found["itemName"] == text
    assert found["itemCaption"] == "あ" * 9479  # 18


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "お\udfff"])
def test_a_text_that_no_database_takes_is_refused(text: str) -> None:  # 19
    assert refused(item(itemName=text)) == "unstorable"
    assert refused(item(somethingNew={"deep": [text]})) == "unstorable"
    assert refused(item(**{text: "x"})) == "unstorable"


@pytest.mark.parametrize("text", ["9999-12-31 23:59", "2019-10-18 09:00", "0001-01-01 00:00"])
def test_a_time_stays_as_it_was_told(text: str) -> None:  # 30
    assert normalize("item", item(endTime=text))["endTime"] == text


# What is refused

NO_INTEGERS = (True, 3980.0, Decimal("3980"), "3,980", "３９８０", [], {}, "9" * 5000)
WRONG: list[tuple[str, Any]] = [
    *[("itemPrice", value) for value in NO_INTEGERS],
    *[("reviewAverage", value) for value in (True, "4,5", "NaN", "Infinity", "1e999", [], {})],
    *[("tagIds", value) for value in (5, "5", {}, [{}], [[5]], ["x"], [True])],
    *[("smallImageUrls", value) for value in ("https://i.example/a", {}, [5], [{}], [["https://i.example/a"]])],
    *[("itemName", value) for value in (5, [], {}, True, ["お茶"])],
    *[("shopCode", value) for value in (5, {"a": 1})],
    *[("itemUrl", value) for value in (5, ["x"], "http://[::1")],
]  # fmt: skip


@pytest.mark.parametrize("name, value", WRONG)
def test_a_value_of_another_kind_is_refused(name: str, value: Any) -> None:  # 7
    assert refused(item(**{name: value})) == "contract"


@pytest.mark.parametrize(
    "entity, record",
    [
        ("item", item(itemName=...)), ("item", item(itemName="　")), ("item", item(itemCode=None)),
        ("ranking", {**RANKED, "Items": None}),
        ("ranking", {**RANKED, "Items": [{"itemCode": "a:1"}]}),
        ("ranking", {**RANKED, "Items": [{"rank": 1}]}),
        ("ranking", {**RANKED, "Items": ["a:1"]}),
        ("genre", {**GENRE, "current": None}), ("genre", {**GENRE, "current": {"genreName": "x"}}),
        ("genre", {**GENRE, "current": [5]}),
        ("genre", {**GENRE, "parents": [{"genreName": "x"}]}), ("genre", {**GENRE, "parents": {"a": 1}}),
        ("genre", {**GENRE, "children": [5]}), ("genre", {**GENRE, "children": "x"}),
        ("tag", {"tagName": "x", "tagGroupId": 5}), ("tag", {"tagId": 5, "tagName": "x"}),
    ],
)  # fmt: skip
def test_a_record_without_what_makes_it_one_is_refused(entity: str, record: Record) -> None:
    assert refused(record, entity) == "contract"


def nested(levels: int, around: Callable[[Any], Any]) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = around(value)
    return value


@pytest.mark.parametrize("around", [lambda value: [value], lambda value: {"a": value}])
def test_a_record_that_is_nested_without_end_is_refused(around: Callable[[Any], Any]) -> None:
    record = item(somethingNew=nested(900, around))
    with pytest.raises(TargetFailure) as caught:
        hashed(dict(answers.item({"Items": [record]}, "shop:1")))
    assert caught.value.category in ("contract", "unexpected_body")


def test_what_the_api_calls_in_order_is_not_taken_for_ones_own() -> None:
    found = normalize("item", item(in_order={"smallImageUrls": ["https://evil.example/"]}))
    assert "evil" not in json.dumps(found)


def test_an_address_that_leads_to_itself_without_end_is_refused() -> None:
    link = "https://hb.afl.rakuten.co.jp/?pc=" * 2000 + URL
    assert refused(item(itemUrl=link)) == "contract"
