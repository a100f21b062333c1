"""JSON from strangers that two readers cannot take for two different things."""

from __future__ import annotations

import json
from typing import Any


def object_of(content: bytes) -> dict[str, Any]:
    """The JSON object in these bytes; ValueError when it is none.

    A key that stands twice, NaN, an infinity, a number of more than 40 characters and nesting
    without end are no JSON here: readers differ in what they make of them.
    """
    try:
        found = _DECODER.decode(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _whole(text: str) -> int:
    if len(text) > 40:
        raise ValueError("a number is too long")
    return int(text)


def _fraction(text: str) -> float:
    if len(text) > 40 or (found := float(text)) in (float("inf"), float("-inf")):
        raise ValueError("a number is too long")
    return found


def _no_number(text: str) -> Any:
    raise ValueError("no number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_whole, parse_float=_fraction, parse_constant=_no_number
)
