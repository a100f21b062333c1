"""What was recorded twice, 70 minutes apart or in two shapes: exactly what changed has a new hash (21)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from app.catalog import answers
from app.catalog.normalize import compute_content_hash, normalize
from app.catalog.replay import recordings
from app.catalog.replay.recordings import Recording

FORMAT_PAIRS = [
    ("genre", "genre_search_aab1a62_2017-01-16_84b12b9e", "genre_search_0ab2af6_2021-08-14_4dc91e01"),
    ("tag", "tag_search_6cd2cfa_2019-09-09_4eb88422", "tag_search_0ab2af6_2021-08-14_503e0544"),
]  # fmt: skip


def pairs(entity: str) -> Iterator[tuple[Recording, Recording]]:
    """Each question of the entity that was recorded twice, with its two answers."""
    asked: dict[str, list[Recording]] = defaultdict(list)
    for one in recordings.answers():
        if one.uri and one.entity == entity and one.status == 200:
            asked[one.uri].append(one)
    for found in asked.values():
        if len(found) > 1:
            first, second = found
            yield first, second


def body(one: Recording) -> Any:
    return json.loads(one.body, parse_float=Decimal)


def things(one: Recording, key: str) -> dict[str, Any]:
    """The items of an answer by their code or rank."""
    return {str(item[key]): item for item in answers.flat(body(one)["Items"]) if item.get(key)}


def changed(entity: str, key: str) -> tuple[int, list[tuple[Any, Any, bool]]]:
    """How many things two answers have in common, and those that have another hash."""
    both, other = 0, []
    for first, second in pairs(entity):
        before, after = things(first, key), things(second, key)
        for name in before.keys() & after.keys():
            both += 1
            hashes = {compute_content_hash(normalize("item", one[name])) for one in (before, after)}
            if len(hashes) == 2:
                other.append((before[name], after[name], before[name] == after[name]))
    return both, other


def test_three_of_793_items_changed_in_seventy_minutes() -> None:  # 21
    both, other = changed("item", "itemCode")
    assert both == 793
    assert len(other) == 3
    fields = {
        name
        for before, after, _ in other
        for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }  # fmt: skip
    assert fields <= {"reviewCount", "reviewAverage", "startTime", "endTime"}


def test_eighteen_of_48_ranking_entries_changed_in_seventy_minutes() -> None:  # 21
    both, other = changed("ranking", "itemCode")
    assert both == 48
    assert len(other) == 18
    assert sum(before.get("rank") != after.get("rank") for before, after, _ in other) >= 17


@pytest.mark.parametrize("entity, key", [("item", "itemCode"), ("ranking", "itemCode")])
def test_no_thing_that_is_the_same_has_another_hash(entity: str, key: str) -> None:  # 21
    assert not any(same for _, _, same in changed(entity, key)[1])


@pytest.mark.parametrize("entity, first, second", FORMAT_PAIRS)
def test_both_format_versions_are_one_tree(entity: str, first: str, second: str) -> None:
    found = [
        one for name in (first, second) for one in recordings.answers() if one.path.endswith(f"{name}.json")
    ]
    assert [one.format_version for one in found] == [1, 2]
    trees = [trees_of(entity, body(one)) for one in found]
    assert trees[0]
    assert trees[0] == trees[1]
    hashes = [{key: compute_content_hash(tree) for key, tree in some.items()} for some in trees]
    assert hashes[0] == hashes[1]


def trees_of(entity: str, answer: Any) -> dict[str, Any]:
    if entity == "tag":
        return {tag: normalize("tag", record) for tag, record in answers.tags(answer).items()}
    genre = str(answer["current"]["genreId"])
    return {genre: normalize("genre", answers.genre(answer, genre))}


def test_the_same_genre_in_the_order_of_another_day_is_one_tree() -> None:
    """The children of the root came in another order four years later."""
    of_root = [
        answers.genre(body(one), "0")
        for one in recordings.answers()
        if one.path.startswith("rakuten-ws_rws-ruby-sdk/genre_search_")
    ]
    common = set.intersection(*({child["genreId"] for child in one["children"]} for one in of_root))
    some = [
        {"current": one["current"], "children": [c for c in one["children"] if c["genreId"] in common]}
        for one in of_root
    ]
    first, second = ([child["genreId"] for child in one["children"]] for one in some)
    assert first != second
    trees = [normalize("genre", one) for one in some]
    assert [c["genreId"] for c in trees[0]["children"]] == [c["genreId"] for c in trees[1]["children"]]
