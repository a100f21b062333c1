"""From an answer of the API to the record of the one target that was asked for.

Both format versions and both generations of the API say the same in other shapes: here they become one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.catalog.failures import TargetFailure

WRAPPERS = frozenset(
    ("Item", "item", "parent", "child", "brother", "ancestor", "sibling", "tagGroup", "tag", "attribute")
)
"""In formatVersion 1 each element of a list is a record in a wrapper of its own; images are as well."""

_NEW_GENRE_KEYS = {"genre": "current", "ancestors": "parents", "siblings": "brothers"}
_NEW_GENRE_FIELDS = {"nameJa": "genreName", "level": "genreLevel"}


OVERALL_GENRE, OVERALL = "0", "【総合"
"""An id that looks like a genre's and is none is answered with the ranking of everything, and that title."""

MOST_LEVELS = 50
"""An answer that is nested deeper is none of the API's, and would break whoever walks through it."""


def flat(value: Any, levels: int = MOST_LEVELS) -> Any:
    """The value without the wrappers of formatVersion 1. TargetFailure where it is nested too deep."""
    if levels == 0:
        raise TargetFailure("unexpected_body", excerpt="nested too deep")
    if isinstance(value, list):
        return [flat(_unwrapped(element), levels - 1) for element in value]
    if isinstance(value, dict):
        return {key: flat(part, levels - 1) for key, part in value.items()}
    return value


def _unwrapped(element: Any) -> Any:
    if isinstance(element, dict) and len(element) == 1:
        ((name, inside),) = element.items()
        if (name in WRAPPERS and isinstance(inside, dict)) or (
            name == "imageUrl" and isinstance(inside, str)
        ):
            return inside
    return element


def item(answer: Mapping[str, Any], target: str) -> Mapping[str, Any]:
    """The item of this code; it alone of the envelope says something about the item."""
    items = _records(answer, "Items", "items")
    if not items:
        raise TargetFailure("not_found")
    found = [one for one in items if one.get("itemCode") == target]
    if not found:
        raise TargetFailure("contract", excerpt=f"asked for {target}, got {items[0].get('itemCode')}")
    return found[0]


def ranking(answer: Mapping[str, Any], target: str) -> Mapping[str, Any]:
    """The ranking: its title, when it was built, and its items."""
    items = _records(answer, "Items", "items")
    if not items:
        raise TargetFailure("not_found")
    if target != OVERALL_GENRE and OVERALL in str(answer.get("title")):
        raise TargetFailure("contract", excerpt=f"asked for genre {target}, got {answer['title']}")
    return {
        "genreId": target, "title": answer.get("title"), "lastBuildDate": answer.get("lastBuildDate"),
        "Items": items,
    }  # fmt: skip


def genre(answer: Mapping[str, Any], target: str) -> Mapping[str, Any]:
    """The genre with its parents, siblings and children."""
    found = {_NEW_GENRE_KEYS.get(key, key): value for key, value in flat(answer).items()}
    for key in ("current", "parents", "brothers", "children"):
        if key in found:
            found[key] = _renamed(found[key])
    current = found.get("current")
    if not isinstance(current, dict) or str(current.get("genreId")) != target:
        raise TargetFailure("contract", excerpt=f"asked for genre {target}")
    return found


def tags(answer: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Every tag of the answer with its group, by its id: those that were asked for, and what came along."""
    found: dict[str, Mapping[str, Any]] = {}
    for group in _records(answer, "tagGroups"):
        of_group = {key: group.get(key) for key in ("tagGroupId", "tagGroupName")}
        for one in group.get("tags") or []:
            if isinstance(one, dict):
                found[str(one.get("tagId"))] = {**one, **of_group}
    return found


def tag(answer: Mapping[str, Any], target: str) -> Mapping[str, Any]:
    """The tag with its group."""
    found = tags(answer)
    if target not in found:
        raise TargetFailure("not_found")
    return found[target]


PICK: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
    "item": item, "ranking": ranking, "genre": genre, "tag": tag,
}  # fmt: skip


def _records(answer: Mapping[str, Any], *names: str) -> list[dict[str, Any]]:
    """The list of records under the first of these names; an answer without it is none."""
    for name in names:
        if isinstance(answer.get(name), list):
            found = flat(answer[name])
            if all(isinstance(one, dict) for one in found):
                return list(found)
    raise TargetFailure("unexpected_body", excerpt=f"no {names[0]} in the answer")


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if isinstance(value, dict):
        return {_NEW_GENRE_FIELDS.get(key, key): part for key, part in value.items()}
    return value
