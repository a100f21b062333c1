"""The ledger: what it says of a content before and behind its application."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.catalog.repos.staging_repo import Decision, Latest, StagingRepo, StagingRow
from tests.integration.catalog.world import START, World

A = StagingRow("rakuten", "item", "shop:1", "a" * 64, "raw/a.json", "etag", START)
B = replace(A, content_hash="b" * 64, s3_key="raw/b.json", saved_at=START + timedelta(hours=1))


def put(world: World, *rows: StagingRow) -> int:
    with world.db.transaction("catalog") as conn:
        return StagingRepo(conn).batch_upsert(rows=rows)


def apply(world: World, content_hash: str, version: int) -> bool:
    with world.db.transaction("catalog") as conn:
        return StagingRepo(conn).applied(
            source="rakuten", entity="item", source_id="shop:1", content_hash=content_hash,
            apply_version=version,
        )  # fmt: skip


def line(world: World) -> tuple[object, ...]:
    (found,) = world.sql(
        "SELECT content_hash, saved_at, applied_version, applied_at IS NULL FROM apl.staging"
    )
    return tuple(found)


def test_another_content_is_not_applied_yet(world: World) -> None:
    assert put(world, A) == 1
    assert line(world) == (A.content_hash, START, None, True)
    assert apply(world, A.content_hash, 3)
    assert line(world) == (A.content_hash, START, 3, False)
    assert put(world, B) == 1
    assert line(world) == (B.content_hash, B.saved_at, None, True)


def test_a_content_that_is_applied_already_stands_so(world: World) -> None:
    put(world, replace(A, applied_version=3))
    assert line(world) == (A.content_hash, START, 3, False)
    put(world, replace(B, applied_version=4))
    assert line(world) == (B.content_hash, B.saved_at, 4, False)
    put(world, A)
    assert line(world) == (A.content_hash, START, None, True)


def test_the_same_content_touches_nothing(world: World) -> None:
    put(world, A)
    apply(world, A.content_hash, 3)
    before = world.sql("SELECT * FROM apl.staging")
    assert put(world, replace(A, saved_at=B.saved_at, etag="other")) == 0
    assert world.sql("SELECT * FROM apl.staging") == before


def test_what_was_overtaken_is_not_marked_as_applied(world: World) -> None:
    put(world, A)
    put(world, B)
    assert not apply(world, A.content_hash, 3)
    assert line(world) == (B.content_hash, B.saved_at, None, True)


def test_a_content_is_the_newest_or_it_is_not(world: World) -> None:
    put(world, A)
    with world.db.transaction("catalog") as conn:
        of_item = {"source": "rakuten", "entity": "item", "source_id": "shop:1"}
        assert StagingRepo(conn).exists_hash(**of_item, content_hash=A.content_hash)
        assert not StagingRepo(conn).exists_hash(**of_item, content_hash=B.content_hash)
        assert not StagingRepo(conn).exists_hash(**{**of_item, "entity": "tag"}, content_hash=A.content_hash)


@pytest.mark.parametrize(
    "content_hash, version, decision",
    [
        ("a", 3, Decision.SKIP),
        ("a", 2, Decision.REAPPLY),
        ("a", 4, Decision.REAPPLY),
        ("a", None, Decision.REAPPLY),
        ("b", 3, Decision.STORE_AND_APPLY),
        ("b", None, Decision.STORE_AND_APPLY),
    ],
)
def test_a_content_is_stored_applied_or_skipped(
    content_hash: str, version: int | None, decision: Decision
) -> None:
    assert Latest("a", {}, "key", version, START).decide(content_hash, 3) is decision
