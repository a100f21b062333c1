"""Genres and tags: what the API says of them, and what the tables say then. Numbers as in test_requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from app.catalog.reapply import reapply
from app.catalog.replay import faults
from app.catalog.replay.faults import Fault
from tests.integration.catalog.world import World

CHILD, PARENT = "551172", 551169


def run(world: World, job_id: str, target: str) -> tuple[str, str | None]:
    return world.ends(world.run(job_id, only=[target]))[target]


def genres(world: World) -> dict[int, Any]:
    rows = world.sql("SELECT rakuten_genre_id, genre_name, parent_id FROM apl.genre")
    return {genre: (name, parent) for genre, name, parent in rows}


def put_tag(world: World, tag_id: int, parent: int = 0, name: str = "", group: int = 1, **more: Any) -> None:
    tag = {"tagId": tag_id, "tagName": name or f"tag {tag_id}", "parentTagId": parent, **more}
    groups = [{"tagGroupId": group, "tagGroupName": f"group {group}", "tags": [tag]}]
    world.api.put("tag", str(tag_id), {"tagGroups": groups})


def known_tags(world: World) -> list[Any]:
    return world.sql("SELECT rakuten_tag_id, parent_tag_id, rakuten_tag_group_id FROM apl.tag ORDER BY 1")


def asked(world: World) -> list[list[str]]:
    return [request.query["tagId"].split(",") for request in world.api.requests]


def used(world: World, tags: Iterable[int]) -> None:
    """An item has these tags."""
    world.item("book:17924463", tagIds=list(tags))
    world.run("JOB-I-01", only=["book:17924463"])


# Genres


def test_a_genre_stands_under_its_parents(world: World) -> None:
    assert run(world, "JOB-G-01", CHILD) == ("applied", None)
    assert genres(world) == {
        PARENT: ("医薬品・コンタクト・介護", None), int(CHILD): ("医療計測器", PARENT),
    }  # fmt: skip


def test_another_genre_than_the_one_asked_for_is_refused(world: World) -> None:  # 26
    world.api.put("genre", CHILD, world.api.record("genre", "0"))
    assert run(world, "JOB-G-01", CHILD) == ("failed", "contract")
    assert not any(world.tables().values())


@pytest.mark.parametrize("status, body, end", [
    (404, b'{"error": "not_found"}', ("not_found", "not_found")),
    (400, b'{"error": "wrong_parameter", "error_description": "wrong genreId format"}',
     ("failed", "target_refused")),
])  # fmt: skip
def test_a_genre_that_was_removed_stays_and_is_told_of(
    world: World, status: int, body: bytes, end: Any
) -> None:  # 27
    run(world, "JOB-G-01", CHILD)
    before = world.tables()
    world.api.fault(Fault({"genreId": CHILD}, status=status, body=body))
    assert run(world, "JOB-G-01", CHILD) == end
    assert world.tables() == before


def test_a_genre_that_moves_has_another_parent(world: World) -> None:  # 27
    run(world, "JOB-G-01", CHILD)
    record = world.api.record("genre", CHILD)
    moved = {"genreId": 100001, "genreName": "elsewhere", "genreLevel": 1}
    world.api.put("genre", CHILD, {**record, "parents": [moved]})
    assert run(world, "JOB-G-01", CHILD) == ("applied", None)
    assert genres(world)[int(CHILD)] == ("医療計測器", 100001)


def test_children_in_another_order_are_the_same(world: World) -> None:
    run(world, "JOB-G-01", CHILD)
    record = world.api.record("genre", CHILD)
    assert len(record["children"]) > 1
    world.api.put("genre", CHILD, {**record, "children": record["children"][::-1]})
    assert run(world, "JOB-G-01", CHILD) == ("unchanged", None)


def test_a_genre_that_failed_is_a_target_again_on_another_day(world: World) -> None:
    world.item("book:17924463", genreId=CHILD)
    world.run("JOB-I-01", only=["book:17924463"])
    world.sql("UPDATE apl.staging SET saved_at = saved_at - interval '3 days'")
    world.api.fault(faults.system_error({"genreId": CHILD}, 5))
    assert world.ends(world.run("JOB-G-01")) == {CHILD: ("failed", "server_error")}
    assert world.ends(world.run("JOB-G-01")) == {CHILD: ("applied", None)}
    assert world.run("JOB-G-01").reason_code == "no_targets"


# Tags


def test_tags_are_fetched_ten_by_one_request(world: World) -> None:
    some = sorted(world.api.ids("tag"))[:25]
    used(world, map(int, some))
    world.api.clear_faults()
    before = len(world.api.requests)
    found = world.run("JOB-T-01")
    assert found.summary["outcomes"] == {"applied": 25}
    assert [len(ids) for ids in [r.query["tagId"].split(",") for r in world.api.requests[before:]]] == [
        10,
        10,
        5,
    ]


def test_of_ten_tags_the_one_that_is_unknown_is_told_and_the_others_stand(world: World) -> None:  # 29
    some = [*sorted(world.api.ids("tag"))[:9], "999"]
    found = world.run("JOB-T-01", only=some)
    assert found.summary["outcomes"] == {"applied": 9, "not_found": 1}
    assert world.ends(found)["999"] == ("not_found", "not_found")
    assert found.status == "success"
    assert len(asked(world)) == 1


@pytest.mark.parametrize("bad", ["-5", "0", "99999999999"])
def test_of_ten_tags_the_one_that_is_none_does_not_fail_the_others(world: World, bad: str) -> None:  # 29
    some = [*sorted(world.api.ids("tag"))[:9], bad]
    found = world.run("JOB-T-01", only=some)
    assert found.summary["outcomes"] == {"applied": 9, "failed": 1}
    assert world.ends(found)[bad] == ("failed", "target_refused")


def test_a_tag_without_a_parent_has_none(world: World) -> None:  # 28
    put_tag(world, 5)
    assert run(world, "JOB-T-01", "5") == ("applied", None)
    assert known_tags(world) == [(5, None, 1)]


@pytest.mark.parametrize("threads", [1, 4])
def test_a_parent_comes_before_its_child_whatever_the_order(world: World, threads: int) -> None:  # 28
    world.settings = replace(world.settings, catalog_threads=threads)
    put_tag(world, 5, parent=6)
    put_tag(world, 6, parent=7)
    put_tag(world, 7, group=2)
    found = world.run("JOB-T-01", only=["5", "6", "7"])
    assert found.summary["outcomes"] == {"applied": 3}
    assert known_tags(world) == [(5, 6, 1), (6, 7, 1), (7, None, 2)]
    assert asked(world) == [["5", "6", "7"]]


def test_a_parent_that_is_no_target_is_fetched(world: World) -> None:  # 28
    put_tag(world, 5, parent=6)
    put_tag(world, 6)
    found = world.run("JOB-T-01", only=["5"])
    assert world.ends(found) == {"5": ("applied", None), "6": ("applied", None)}
    assert asked(world) == [["5"], ["6"]]
    assert world.ledger("tag", "6")[1] == 1


def test_a_parent_that_the_answer_brings_along_is_not_asked_for(world: World) -> None:  # 28
    put_tag(world, 5, parent=6)
    child = world.api.record("tag", "5")["tagGroups"][0]
    tags = [*child["tags"], {"tagId": 6, "tagName": "parent", "parentTagId": 0}]
    world.api.put("tag", "5", {"tagGroups": [{**child, "tags": tags}]})
    assert run(world, "JOB-T-01", "5") == ("applied", None)
    assert known_tags(world) == [(5, 6, 1), (6, None, 1)]
    assert asked(world) == [["5"]]


def test_a_tag_whose_parent_nobody_knows_fails_and_is_tried_again(world: World) -> None:  # 28
    put_tag(world, 5, parent=6)
    used(world, [5])
    first = world.run("JOB-T-01")
    assert world.ends(first) == {"5": ("failed", "parent_missing"), "6": ("not_found", "not_found")}
    assert known_tags(world) == []
    put_tag(world, 6)
    world.sql("UPDATE apl.staging SET saved_at = saved_at - interval '3 days'")
    second = world.run("JOB-T-01")
    assert world.ends(second)["5"] == ("applied", None)
    assert known_tags(world) == [(5, 6, 1), (6, None, 1)]


def test_tags_that_are_each_others_parents_are_no_end(world: World) -> None:  # 28
    put_tag(world, 5, parent=6)
    put_tag(world, 6, parent=5)
    assert run(world, "JOB-T-01", "5") == ("failed", "parent_missing")


def test_a_tag_is_the_same_whichever_tags_are_fetched_with_it(world: World) -> None:
    put_tag(world, 5, parent=6)
    put_tag(world, 6)
    put_tag(world, 7)
    world.run("JOB-T-01", only=["5", "6"])
    before = world.tables()
    assert run(world, "JOB-T-01", "5") == ("unchanged", None)
    assert world.run("JOB-T-01", only=["5", "7"]).summary["outcomes"] == {"unchanged": 1, "applied": 1}
    assert [row for row in world.table("staging") if row[2] in "56"] == before["staging"]


def test_a_tag_that_moves_has_another_parent_and_group(world: World) -> None:
    put_tag(world, 5)
    put_tag(world, 6)
    world.run("JOB-T-01", only=["5", "6"])
    put_tag(world, 5, parent=6, group=3)
    run(world, "JOB-T-01", "5")
    assert known_tags(world) == [(5, 6, 3), (6, None, 1)]


def test_reapplied_tags_come_behind_their_parents_too(world: World) -> None:
    put_tag(world, 5, parent=6)
    put_tag(world, 6)
    world.run("JOB-T-01", only=["5", "6"])
    world.sql("DELETE FROM apl.tag")
    requests = len(world.api.requests)
    found = reapply(world.services, "JOB-T-01", job_start_at=world.start, everything=True)
    assert found.status == "success"
    assert known_tags(world) == [(5, 6, 1), (6, None, 1)]
    assert len(world.api.requests) == requests
    assert json.dumps(world.raw_objects()).count("ancestors") == 0
