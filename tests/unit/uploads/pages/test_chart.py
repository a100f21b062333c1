"""Where the bars of a chart stand."""

from __future__ import annotations

import math
from datetime import date, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from app.uploads.pages import chart
from app.uploads.pages.chart import HEIGHT, WIDTH

MAY = date(2025, 5, 1)
SERIES = ("meta", "google")


def show(series: str, value: Decimal) -> str:
    return f"{series} {value}"


def drawn(values: dict[tuple[int, str], str]) -> chart.Chart:
    """A chart of values by day after the first of May."""
    found = {(MAY + timedelta(days=day), name): Decimal(value) for (day, name), value in values.items()}
    days = min(day for day, _ in found), max(day for day, _ in found)
    result = chart.draw(found, SERIES, days=days, show=show)
    assert result is not None
    return result


def test_nothing_is_drawn_of_nothing() -> None:
    assert chart.draw({}, SERIES, days=(MAY, MAY), show=show) is None


def test_bars_of_a_day_stand_on_each_other() -> None:
    last = drawn({(0, "meta"): "30", (20, "meta"): "10", (20, "google"): "20"}).stacks[-1]
    lower, upper = last.bars
    assert (lower.series, upper.series) == SERIES
    assert math.isclose(lower.y + lower.height, HEIGHT, abs_tol=0.1)
    assert math.isclose(upper.y + upper.height, lower.y, abs_tol=0.1)
    assert math.isclose(upper.height, 2 * lower.height, abs_tol=0.1)
    assert last.text == "21 May 2025: meta 10, google 20"


def test_every_day_between_has_its_place_and_a_day_without_data_says_so() -> None:
    found = drawn({(0, "meta"): "1", (30, "meta"): "1"})
    assert len(found.stacks) == 31
    assert found.stacks[7].text == "8 May 2025: nothing" and found.stacks[7].bars == ()
    assert found.labels == ("1 May 2025", "16 May 2025", "31 May 2025")


def test_an_amount_below_zero_hangs_from_the_line() -> None:
    found = drawn({(0, "meta"): "100", (20, "meta"): "-50"})
    (bar,) = found.stacks[-1].bars
    assert math.isclose(bar.y, found.zero) and bar.height > 0
    assert 0 < found.zero < HEIGHT


def test_a_long_time_is_drawn_by_the_week_and_loses_nothing() -> None:
    found = drawn({(day, "meta"): "1" for day in range(200)})
    assert found.weekly and len(found.stacks) < 32
    assert found.stacks[1].text.startswith("week of ") and found.stacks[1].text.endswith("meta 7")


def test_the_lines_across_are_round_numbers_from_the_top_down() -> None:
    found = drawn({(0, "meta"): "873", (20, "meta"): "1"})
    assert [tick.label for tick in found.ticks] == ["1k", "500", "0"]
    assert [tick.y for tick in found.ticks] == [0, HEIGHT / 2, HEIGHT]


amounts = st.decimals("-1e9", "1e9", places=2)


@given(st.dictionaries(st.tuples(st.integers(0, 400), st.sampled_from(SERIES)), amounts, min_size=1))
def test_every_bar_is_within_the_drawing(values: dict[tuple[int, str], Decimal]) -> None:
    found = drawn({key: str(value) for key, value in values.items()})
    for stack in found.stacks:
        for bar in stack.bars:
            assert bar.x >= -0.1 and bar.x + bar.width <= WIDTH + 0.1
            assert bar.y >= -0.1 and bar.y + bar.height <= HEIGHT + 0.1
    assert 2 <= len(found.ticks) <= 12
