"""Numbers, sizes, times and ids as a person reads them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from uuid import UUID

NONE = "–"
WHOLE_CURRENCIES = frozenset("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split())
"""Currencies without a minor unit."""


def number(value: int | Decimal | None) -> str:
    """`1,234,567`, or a dash."""
    return NONE if value is None else f"{value:,}"


def amount(value: Decimal | str | None, currency: str = "") -> str:
    """An amount with as many decimals as its currency has: `1,234.50`."""
    if value is None:
        return NONE
    step = Decimal(1) if currency in WHOLE_CURRENCIES else Decimal("0.01")
    return f"{Decimal(value).quantize(step, ROUND_HALF_UP):,}"


def exact(value: str | None) -> str:
    """An amount with all of its digits, at least two decimals."""
    if value is None:
        return NONE
    found = Decimal(value)
    exponent = found.as_tuple().exponent
    digits = max(2, -exponent) if isinstance(exponent, int) else 2
    return f"{found:,.{digits}f}"


def percent(part: int | Decimal | None, whole: int | Decimal | None) -> str:
    """`1.25 %`, or a dash when there is nothing to divide."""
    if part is None or not whole:
        return NONE
    return f"{Decimal(100) * Decimal(part) / Decimal(whole):.2f} %"


def ratio(part: Decimal | None, whole: int | None, currency: str) -> str:
    """An amount for each one, or a dash."""
    return NONE if part is None or not whole else amount(Decimal(part) / whole, currency)


def compact(value: Decimal) -> str:
    """`12k`, `3.5M`: for an axis."""
    for unit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if abs(value) >= unit:
            return f"{(value / unit).normalize():f}{letter}"
    return f"{value.normalize():f}"


def size(value: int | None) -> str:
    """`4.2 MB`."""
    if value is None:
        return NONE
    if value < 1024:
        return f"{value} bytes"
    return f"{value / 1024:.1f} KB" if value < 1 << 20 else f"{value / 2**20:.1f} MB"


def duration(seconds: float | None) -> str:
    """`about 3 s`, `about 4 min`."""
    if seconds is None:
        return NONE
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min"


def day(value: date | None) -> str:
    """`31 Jan 2025`."""
    return NONE if value is None else f"{value.day} {value:%b %Y}"


def moment(value: datetime | None) -> str:
    """`31 Jan 2025, 14:03 UTC`; the browser shows it in its own time zone."""
    return NONE if value is None else f"{value.day} {value:%b %Y, %H:%M} UTC"


def clock(value: datetime) -> str:
    """`14:03:07`."""
    return f"{value:%H:%M:%S}"


def short(value: UUID | str | None) -> str:
    """The first and last digits of an id: enough to tell the ids of a list apart."""
    text = str(value or "")
    return f"{text[:8]}…{text[-4:]}" if len(text) > 16 else text


def lines(value: int, one: str, many: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{value:,} {one if value == 1 else many}"


FILTERS: dict[str, Any] = {
    "number": number,
    "amount": amount,
    "exact": exact,
    "size": size,
    "duration": duration,
    "day": day,
    "moment": moment,
    "clock": clock,
    "short": short,
    "count": lines,
}
"""The filters of the templates."""
