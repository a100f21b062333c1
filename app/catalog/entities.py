"""What is particular to each entity, as data: versions, limits, how fields are spelled (seed §4.2.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

RANKING_APPLY_VERSION = 1
ITEM_APPLY_VERSION = 1
GENRE_APPLY_VERSION = 1
TAG_APPLY_VERSION = 1
"""Each is raised by hand in the change after which an applier writes something else."""

META = frozenset(
    ("fetched_at", "requested_at", "request_id", "response_headers", "http_status", "api_version")
)
"""What is about the fetching and not about the thing."""

OF_AFFILIATES = frozenset(("affiliateUrl", "shopAffiliateUrl"))
"""They name the affiliate whose key fetched them, in whatever shape."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How one entity is normalised and applied."""

    apply_version: int
    required: tuple[str, ...]  # a record without them is none
    integers: frozenset[str] = frozenset()
    decimals: frozenset[str] = frozenset()
    urls: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()  # of texts or numbers
    records: frozenset[str] = frozenset()  # lists of records
    sorted_lists: frozenset[str] = frozenset()  # of the lists, whose order says nothing
    kept_in_order: frozenset[str] = frozenset()  # of these, whose order is needed beside the hash
    max_failure_rate: float = 0.01


_ITEM = Rules(
    ITEM_APPLY_VERSION,
    required=("itemCode", "itemName"),
    integers=frozenset((
        "itemPrice", "genreId", "availability", "taxFlag", "postageFlag", "creditCardFlag", "giftFlag",
        "imageFlag", "shopOfTheYearFlag", "shipOverseasFlag", "asurakuFlag", "reviewCount", "pointRate",
        "rank", "carrier", "tagIds", "itemPriceMin1", "itemPriceMin2", "itemPriceMin3", "itemPriceMax1",
        "itemPriceMax2", "itemPriceMax3", "hasPriceRange",
    )),
    decimals=frozenset(("reviewAverage", "affiliateRate")),
    urls=frozenset(("itemUrl", "shopUrl", "smallImageUrls", "mediumImageUrls")),
    texts=frozenset((
        "itemCode", "itemName", "catchcopy", "itemCaption", "shopCode", "shopName", "startTime", "endTime",
        "pointRateStartTime", "pointRateEndTime", "title", "lastBuildDate",
    )),
    lists=frozenset(("smallImageUrls", "mediumImageUrls", "tagIds")),
    records=frozenset(("Items",)),
    sorted_lists=frozenset(("smallImageUrls", "mediumImageUrls", "tagIds")),
    kept_in_order=frozenset(("smallImageUrls", "mediumImageUrls")),
    max_failure_rate=0.05,
)  # fmt: skip
_TAG = frozenset(("tagGroupId", "tagId", "parentTagId"))

RULES: dict[str, Rules] = {
    "item": _ITEM,
    "ranking": replace(
        _ITEM,
        apply_version=RANKING_APPLY_VERSION,
        required=("Items",),
        sorted_lists=frozenset(),
        max_failure_rate=0.01,
    ),
    "genre": Rules(
        GENRE_APPLY_VERSION,
        required=("current",),
        integers=_TAG | {"genreId", "genreLevel"},
        texts=frozenset(("genreName",)),
        records=frozenset(("parents", "brothers", "children")),
    ),
    "tag": Rules(
        TAG_APPLY_VERSION,
        required=("tagId", "tagGroupId"),
        integers=_TAG,
        texts=frozenset(("tagName", "tagGroupName")),
    ),
}
