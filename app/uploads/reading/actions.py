"""Meta's `actions`: overlapping counts of the same sales, of which one is taken and none is added."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from app.uploads.reading import numbers
from app.uploads.reading.cells import Problem

PURCHASES = ("omni_purchase", "purchase", "offsite_conversion.fb_pixel_purchase")
"""The families of one fact, best first."""


def purchases(cell: str, _mark: str) -> Decimal | Problem | None:
    """The purchases in a list of `{action_type, value}`; None when it has none."""
    if not cell.strip():
        return None
    try:
        actions = json.loads(cell)
    except (ValueError, RecursionError):
        return Problem("invalid_number", cell[:200])
    values = _values(actions if isinstance(actions, list) else [])
    found = next((values[family] for family in PURCHASES if family in values), None)
    if found is None:
        return None
    total = Decimal(0)
    for value in found:
        amount = numbers.number(str(value), ".")
        if not isinstance(amount, Decimal):
            return Problem("invalid_number", str(value)[:200])
        total += amount
    return total if abs(total) < numbers.MAX_MONEY else Problem("invalid_number", cell[:200])


def _values(actions: list[Any]) -> dict[str, list[Any]]:
    """The default-window values of each action type: the same type may stand there in parts."""
    values: dict[str, list[Any]] = {}
    for action in actions:
        if isinstance(action, dict) and action.get("value") is not None:
            values.setdefault(str(action.get("action_type")), []).append(action["value"])
    return values
