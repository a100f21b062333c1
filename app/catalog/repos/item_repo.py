"""Items with their shop, images, tags and snapshots (JOB-I-01)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from app.adapters import queries
from app.adapters.database import Connection
from app.catalog.normalize import IN_ORDER
from app.catalog.times import instant

_sql = queries.load("catalog")

IMAGE_LISTS = {"small": "smallImageUrls", "medium": "mediumImageUrls"}


class ItemRepo:
    """Items, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def upsert_shop(self, *, normalized_item: Mapping[str, Any]) -> str:
        """The item's shop is known; its code."""
        code = str(normalized_item["shopCode"])
        _sql.upsert_shop(
            self._conn, rakuten_shop_code=code, shop_name=normalized_item.get("shopName"),
            shop_url=normalized_item.get("shopUrl"),
        )  # fmt: skip
        return code

    def upsert_item(self, *, normalized_item: Mapping[str, Any]) -> UUID:
        """The item says what its record says; its id. Whether it is active is another job's to say."""
        found = normalized_item
        item_id: UUID = _sql.upsert_item(
            self._conn,
            rakuten_item_code=found["itemCode"], rakuten_shop_code=found.get("shopCode"),
            rakuten_genre_id=found.get("genreId"), item_name=found["itemName"],
            catchcopy=found.get("catchcopy"), item_caption=found.get("itemCaption"),
            item_url=found.get("itemUrl"), item_price=found.get("itemPrice"), tax_flag=found.get("taxFlag"),
            postage_flag=found.get("postageFlag"), credit_card_flag=found.get("creditCardFlag"),
            gift_flag=found.get("giftFlag"), availability=found.get("availability"),
            sale_starts_at=instant(found.get("startTime")), sale_ends_at=instant(found.get("endTime")),
        )  # fmt: skip
        return item_id

    def sync_item_images(self, *, item_id: UUID, normalized_item: Mapping[str, Any]) -> int:
        """The item's images are those of the record, in the shop's order; how many there are.

        A record without a list of images of one size says nothing about those, and they stay.
        """
        in_order = {**normalized_item, **normalized_item.get(IN_ORDER, {})}
        known = {size: name for size, name in IMAGE_LISTS.items() if name in in_order}
        images = [
            (size, order, url, _base(url))
            for size, name in known.items()
            for order, url in enumerate(in_order[name])
        ]
        sizes, orders, urls, bases = map(list, zip(*images, strict=True)) if images else ([], [], [], [])
        _sql.sync_item_images(
            self._conn, item_id=item_id, known=list(known), sizes=sizes, orders=orders, urls=urls, bases=bases
        )
        return len(images)

    def update_is_active(self) -> int:
        """Every item is active exactly when its genre and its shop are known; how many changed."""
        rows: int = _sql.item_is_active_update(self._conn)
        return rows

    def has_snapshots(self, *, item_id: UUID) -> bool:
        """Whether it is known what the item cost at some time."""
        return bool(_sql.has_snapshots(self._conn, item_id=item_id))

    def insert_market_snapshot(
        self, *, item_id: UUID, collected_at: datetime, normalized_item: Mapping[str, Any]
    ) -> int:
        """What the item cost at this time stands; 0 when it stood already."""
        found = normalized_item
        rows: int = _sql.insert_market_snapshot(
            self._conn, item_id=item_id, collected_at=collected_at, item_price=found.get("itemPrice"),
            availability=found.get("availability"), postage_flag=found.get("postageFlag"),
            affiliate_rate=found.get("affiliateRate"), point_rate=found.get("pointRate"),
            point_rate_starts_at=instant(found.get("pointRateStartTime")),
            point_rate_ends_at=instant(found.get("pointRateEndTime")),
        )  # fmt: skip
        return rows

    def insert_review_snapshot(
        self, *, item_id: UUID, collected_at: datetime, normalized_item: Mapping[str, Any]
    ) -> int:
        """How the item was reviewed at this time stands; 0 when it stood already."""
        rows: int = _sql.insert_review_snapshot(
            self._conn, item_id=item_id, collected_at=collected_at,
            review_count=normalized_item.get("reviewCount"),
            review_average=normalized_item.get("reviewAverage"),
        )  # fmt: skip
        return rows


class ItemTagRepo:
    """Which tags an item has, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def sync_item_tags(self, *, item_id: UUID, rakuten_tag_ids: Sequence[int]) -> int:
        """The item has these tags and no others; how many of them are new."""
        rows: int = _sql.sync_item_tags(self._conn, item_id=item_id, rakuten_tag_ids=list(rakuten_tag_ids))
        return rows


def _base(url: str) -> str:
    """The address that all sizes of an image share."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
