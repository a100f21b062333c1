"""Numbers, ages and amounts of suppliers' lists as people read them."""

from __future__ import annotations


def number(value: int | None) -> str:
    """The number with marks between thousands; a dash where there is none."""
    return "–" if value is None else f"{value:,}"


def age(seconds: float | None) -> str:
    """How long ago, roughly."""
    if seconds is None:
        return "–"
    for limit, size, unit in ((5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def amount(minor: int | None, exponent: int = 2) -> str:
    """An amount in minor units; a dash where there is none."""
    return "–" if minor is None else f"{minor / 10**exponent:,.{exponent}f}"
