"""What each entity's record is written to, all in one transaction with its line of the ledger (seed §4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.adapters import logs
from app.adapters.database import Connection
from app.catalog.context import JobContext
from app.catalog.etl_service import Applier
from app.catalog.repos.genre_repo import GenreRepo
from app.catalog.repos.item_repo import ItemRepo, ItemTagRepo
from app.catalog.repos.rank_repo import RankRepo
from app.catalog.repos.tag_repo import TagRepo
from app.catalog.times import instant

log = logs.get(__name__)


def apply_ranking(conn: Connection, normalized: Mapping[str, Any], ctx: JobContext, target: str) -> None:
    """The ranking of the genre stands as it was built."""
    built_at = instant(normalized.get("lastBuildDate"))
    if ctx.reapplied and built_at is None:
        return  # it stands under when it was fetched, which is not known any more
    name = GenreRepo(conn).name(int(target))
    if name and name not in normalized.get("title", name):
        log.warning("ranking_of_another_title", genre_id=target, title=normalized["title"], genre_name=name)
    RankRepo(conn).insert_rank_snapshot(
        run_id=ctx.run_id, genre_id=int(target), ranking_items=normalized.get("Items", []),
        last_build_date=built_at, fetched_at=ctx.job_start_at,
    )  # fmt: skip


def apply_item(conn: Connection, normalized: Mapping[str, Any], ctx: JobContext, target: str) -> None:
    """The item, its shop, images and tags are as the record says; what it cost and its reviews are kept."""
    repo = ItemRepo(conn)
    if normalized.get("shopCode"):
        repo.upsert_shop(normalized_item=normalized)
    item_id = repo.upsert_item(normalized_item=normalized)
    repo.sync_item_images(item_id=item_id, normalized_item=normalized)
    if "tagIds" in normalized:  # a record without them says nothing about tags
        ItemTagRepo(conn).sync_item_tags(item_id=item_id, rakuten_tag_ids=normalized["tagIds"])
    if ctx.reapplied and repo.has_snapshots(item_id=item_id):
        return  # nothing was observed
    repo.insert_market_snapshot(item_id=item_id, collected_at=ctx.job_start_at, normalized_item=normalized)
    repo.insert_review_snapshot(item_id=item_id, collected_at=ctx.job_start_at, normalized_item=normalized)


def apply_genre(conn: Connection, normalized: Mapping[str, Any], ctx: JobContext, target: str) -> None:
    """The genre stands under its parents."""
    GenreRepo(conn).upsert_genre(normalized_genre=normalized)


def apply_tag(conn: Connection, normalized: Mapping[str, Any], ctx: JobContext, target: str) -> None:
    """The tag stands in its group, under its parent; where nobody knows that one it comes first."""
    repo = TagRepo(conn)
    repo.upsert_tag_group(normalized_tag=normalized)
    repo.upsert_tag(normalized_tag=normalized)


APPLIERS: dict[str, Applier] = {
    "ranking": apply_ranking, "item": apply_item, "genre": apply_genre, "tag": apply_tag,
}  # fmt: skip
