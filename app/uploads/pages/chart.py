"""A bar chart of days: where each bar stands, worked out here and drawn by a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from app.uploads.pages import figures

WIDTH = 1000
HEIGHT = 240
FEWEST_DAYS = 14
"""A bar is never so broad that it looks like a block."""

DAYS_AS_BARS = 92
"""A longer time is shown by the week."""
GAP = 0.25
TICKS = 4

Values = Mapping[tuple[date, str], Decimal]
"""What is drawn: a value for each day and series."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One part of a stack."""

    series: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Stack:
    """What stands over one day or week, with the text that says it."""

    label: str
    text: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A line across, and its value."""

    label: str
    y: float


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of WIDTH by HEIGHT."""

    stacks: tuple[Stack, ...]
    ticks: tuple[Tick, ...]  # from the top
    zero: float
    labels: tuple[str, ...]  # first, middle and last
    weekly: bool


def draw(
    values: Values,
    series: Sequence[str],
    *,
    days: tuple[date, date],
    show: Callable[[str, Decimal], str],
) -> Chart | None:
    """Stacked bars of the days from one to the other; None where there is nothing to draw.

    `show(series, value)` says a value in words. Amounts below zero hang from the zero line.
    """
    if not values:
        return None
    first, last = min(days[0], days[1] - timedelta(days=FEWEST_DAYS - 1)), days[1]
    weekly = (last - first).days >= DAYS_AS_BARS
    totals = _by_period(values, weekly)
    periods = _periods(first, last, weekly)
    highest = max(sum(v for v in _of(totals, p, series) if v > 0) for p in periods)
    lowest = min(sum(v for v in _of(totals, p, series) if v < 0) for p in periods)
    scale = _Scale.over(Decimal(lowest), Decimal(highest))
    slot = WIDTH / len(periods)
    stacks = tuple(
        _stack(period, totals, series, scale=scale, left=slot * at, slot=slot, show=show, weekly=weekly)
        for at, period in enumerate(periods)
    )
    labels = tuple(_label(periods[at], weekly) for at in sorted({0, len(periods) // 2, len(periods) - 1}))
    return Chart(stacks, scale.ticks(), scale.y(Decimal(0)), labels, weekly)


def _by_period(values: Values, weekly: bool) -> dict[tuple[date, str], Decimal]:
    totals: dict[tuple[date, str], Decimal] = {}
    for (day, name), value in values.items():
        key = (_monday(day) if weekly else day, name)
        totals[key] = totals.get(key, Decimal(0)) + value
    return totals


def _periods(first: date, last: date, weekly: bool) -> list[date]:
    step = 7 if weekly else 1
    begin = _monday(first) if weekly else first
    return [begin + timedelta(days=days) for days in range(0, (last - begin).days + 1, step)]


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _of(totals: Values, period: date, series: Sequence[str]) -> list[Decimal]:
    return [totals.get((period, name), Decimal(0)) for name in series]


def _stack(
    period: date,
    totals: Values,
    series: Sequence[str],
    *,
    scale: _Scale,
    left: float,
    slot: float,
    show: Callable[[str, Decimal], str],
    weekly: bool,
) -> Stack:
    bars: list[Bar] = []
    top = bottom = Decimal(0)
    said = []
    for name in series:
        value = totals.get((period, name))
        if value is None:
            continue
        said.append(show(name, value))
        begin = top if value >= 0 else bottom
        y_from, y_to = scale.y(begin), scale.y(begin + value)
        if value >= 0:
            top += value
        else:
            bottom += value
        bars.append(Bar(name, left + slot * GAP / 2, min(y_from, y_to), slot * (1 - GAP), abs(y_to - y_from)))
    label = _label(period, weekly)
    return Stack(label, f"{label}: {', '.join(said) if said else 'nothing'}", tuple(bars))


def _label(period: date, weekly: bool) -> str:
    return f"week of {figures.day(period)}" if weekly else figures.day(period)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to heights: both ends are multiples of a round step."""

    low: Decimal
    high: Decimal
    step: Decimal

    @classmethod
    def over(cls, lowest: Decimal, highest: Decimal) -> _Scale:
        span = max(highest - lowest, Decimal("0.01"))
        rough = span / TICKS
        power = Decimal(10) ** (rough.adjusted())
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        low = (lowest / step).to_integral_value("ROUND_FLOOR") * step
        high = (highest / step).to_integral_value("ROUND_CEILING") * step
        return cls(low, max(high, low + step), step)

    def y(self, value: Decimal) -> float:
        return round(float((self.high - value) / (self.high - self.low)) * HEIGHT, 2)

    def ticks(self) -> tuple[Tick, ...]:
        count = int((self.high - self.low) / self.step)
        values = [self.high - self.step * at for at in range(count + 1)]
        return tuple(Tick(figures.compact(value), self.y(value)) for value in values)
