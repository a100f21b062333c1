"""Answers in the two shapes that `formatVersion` chooses between, and the whole answers around records.

In 2 lists hold their records as they are; in 1 each record is the only value of an object of its own:
`{"Items": [{"Item": {…}}]}`, images `[{"imageUrl": "…"}]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Record = dict[str, Any]

# the list: the key that formatVersion 1 puts around each of its values
WRAPPERS = {
    "Items": "Item",
    "Products": "Product",
    "smallImageUrls": "imageUrl",
    "mediumImageUrls": "imageUrl",
    "parents": "parent",
    "children": "child",
    "brothers": "brother",
    "tagGroups": "tagGroup",
    "tags": "tag",
}


def flat(answer: Any) -> Any:
    """The answer as formatVersion 2 gives it; one that is flat already, or in part, stays so."""
    if isinstance(answer, list):
        return [flat(value) for value in answer]
    if isinstance(answer, dict):
        return {
            key: [flat(_unwrapped(one, WRAPPERS.get(key))) for one in value]
            if isinstance(value, list)
            else flat(value)
            for key, value in answer.items()
        }
    return answer


def wrapped(answer: Any) -> Any:
    """A flat answer as formatVersion 1 gives it."""
    if isinstance(answer, list):
        return [wrapped(value) for value in answer]
    if isinstance(answer, dict):
        return {
            key: [{WRAPPERS[key]: wrapped(one)} for one in value]
            if key in WRAPPERS and isinstance(value, list)
            else wrapped(value)
            for key, value in answer.items()
        }
    return answer


def envelope(items: Sequence[Record]) -> Record:
    """The flat answer of an item search that found these items and no more."""
    found = len(items)
    return {
        "count": found,
        "page": 1,
        "first": min(1, found),
        "last": found,
        "hits": found,
        "carrier": 0,
        "pageCount": min(1, found),
        "Items": list(items),
        "GenreInformation": [],
        "TagInformation": [],
    }


def searched(entry: Record) -> Record:
    """An item of a ranking as item search gives it: its numbers are numbers, its rank is gone.

    `tagIds` and `giftFlag` stay absent, since rankings do not tell them.
    """
    item = {key: value for key, value in entry.items() if key not in ("rank", "carrier")}
    for key in ("itemPrice", "affiliateRate", "reviewAverage"):
        item[key] = _number(item[key])
    return item


def _unwrapped(value: Any, wrapper: str | None) -> Any:
    return value[wrapper] if wrapper and isinstance(value, dict) and set(value) == {wrapper} else value


def _number(text: Any) -> Any:
    number = float(text)
    return int(number) if number.is_integer() else number
