"""Rows of one key: repeated, broken down, subtotalled, or in conflict."""

from __future__ import annotations

import hashlib

import pytest
from report import lines, read

from app.uploads.reading.duplicates import Repeats

BROKEN_DOWN = (
    "Day,Campaign name,Campaign ID,Age,Gender,Impressions,Reach,Clicks (all),Link clicks"
    ",Amount spent (USD),Purchases,Purchases conversion value"
)
WITH_ID = "Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD)"
NO_ID = "Day,Campaign name,Impressions,Clicks (all),Amount spent (USD)"


def _row(age: str, gender: str, number: int, day: int = 1, campaign: int = 7) -> str:
    n = number
    return f"2025-09-{day:02d},Kiln,{campaign},{age},{gender},{n},{n},{n},{n},{n}.50,{n},{n}.25"


def test_identical_rows_are_one() -> None:
    report = read(lines(WITH_ID, *["2025-09-01,Kiln,7,10,1,1.50"] * 3, "2025-09-02,Kiln,7,10,1,1.50"))
    assert (report.valid, report.identical, report.merged) == (4, 2, 0)
    assert report.total("spend") == {"USD": 3}


def test_rows_that_differ_only_in_the_writing_of_an_id_or_number_are_identical() -> None:
    text = lines(WITH_ID, "2025-09-01,Kiln,7,10,1,1.50", "2025-09-01, Kiln,c:7,10,1,1.5")
    report = read(text)
    assert (report.identical, report.rejects, report.total("spend")) == (1, (), {"USD": 1.5})


def test_the_rows_of_a_breakdown_are_added() -> None:
    report = read(
        lines(
            BROKEN_DOWN,
            _row("18-24", "male", 1),
            _row("18-24", "female", 2),
            _row("25-34", "male", 3),
        )
    )
    assert (report.valid, report.merged, len(report.daily)) == (3, 2, 1)
    (row,) = report.daily
    assert (row.impressions, row.clicks, row.link_clicks, row.conversions) == (6, 6, 6, 6)
    assert (row.spend, row.conversion_value) == (7.5, 6.75)
    assert row.reach is None


def test_a_breakdown_of_equal_numbers_is_no_repetition() -> None:
    report = read(lines(BROKEN_DOWN, _row("18-24", "male", 5), _row("25-34", "male", 5)))
    assert (report.identical, report.merged, report.column("impressions")) == (0, 1, [10])


def test_a_repeated_row_of_a_breakdown_is_added_once() -> None:
    report = read(
        lines(
            BROKEN_DOWN,
            _row("18-24", "male", 5),
            _row("25-34", "male", 6),
            _row("18-24", "male", 5),
        )
    )
    assert (report.identical, report.merged, report.column("impressions")) == (1, 1, [11])


def test_one_row_of_a_broken_down_file_keeps_its_reach() -> None:
    report = read(lines(BROKEN_DOWN, _row("18-24", "male", 5), _row("18-24", "male", 6, day=2)))
    assert (report.merged, report.column("reach")) == (0, [5, 6])


def test_null_and_a_number_add_up_to_the_number_and_two_nulls_to_null() -> None:
    report = read(
        lines(
            f"{WITH_ID},Age,Purchases",
            "2025-09-01,Kiln,7,10,--,1.50,18-24,--",
            "2025-09-01,Kiln,7,20,3,--,25-34,",
        )
    )
    (row,) = report.daily
    assert (row.impressions, row.clicks, row.spend, row.conversions) == (30, 3, 1.5, None)


@pytest.mark.parametrize(
    ("platform", "header", "rows"),
    [
        ("meta", "Day,Campaign name,Campaign ID,Placement,Impressions", ["feed", "story"]),
        ("meta", "Day,Campaign name,Campaign ID,Device platform,Impressions", ["a", "b"]),
        (
            "meta",
            "Day,Campaign name,Campaign ID,Time of day (ad account time zone),Impressions",
            ["00:00:00 - 00:59:59", "01:00:00 - 01:59:59"],
        ),
        ("google", "Day,Campaign,Campaign ID,Device,Impr.", ["Computers", "Mobile phones"]),
        ("google", "Day,Campaign,Campaign ID,Hour of day,Impr.", ["0", "1"]),
        ("google", "Day,Campaign,Campaign ID,Search term,Impr.", ["kiln", "kilns"]),
        ("google", "Day,Campaign,Campaign ID,Network,Impr.", ["Search", " --"]),
        ("tiktok", "Date,Campaign name,Campaign ID,Country/Region,Impressions", ["DE", "FR"]),
    ],
)
def test_many_columns_are_breakdowns(platform: str, header: str, rows: list[str]) -> None:
    text = lines(header, *[f"2025-09-01,Kiln,7,{cell},{n + 5}" for n, cell in enumerate(rows)])
    report = read(text, platform, "USD")
    assert (report.rejects, report.merged, report.column("impressions")) == ((), 1, [11])


def test_rows_with_ids_and_different_values_are_all_rejected_with_each_other_s_line() -> None:
    text = lines(
        WITH_ID,
        "2025-09-01,Kiln,7,10,1,1.50",
        "2025-09-02,Kiln,7,10,1,1.50",
        "2025-09-01,Kiln,7,11,1,1.60",
    )
    report = read(text)
    assert report.rejects == ((2, "duplicate_key_conflict"), (4, "duplicate_key_conflict"))
    assert report.others == {2: 4, 4: 2}
    assert report.dates == ["2025-09-02"]


def test_of_three_rows_in_conflict_none_is_believed() -> None:
    text = lines(
        WITH_ID,
        "2025-09-01,Kiln,7,10,1,1.50",
        "2025-09-01,Kiln,7,10,1,1.50",
        "2025-09-01,Kiln,7,11,1,1.60",
    )
    report = read(text)
    assert report.daily == ()
    assert {(2, "duplicate_key_conflict"), (4, "duplicate_key_conflict")} <= set(report.rejects)


def test_a_conflict_inside_of_one_cell_of_a_breakdown_is_not_added_up() -> None:
    report = read(
        lines(
            BROKEN_DOWN,
            _row("18-24", "male", 1),
            _row("18-24", "male", 2),
            _row("25-34", "male", 3),
        )
    )
    assert {(2, "duplicate_key_conflict"), (3, "duplicate_key_conflict")} <= set(report.rejects)


def test_rows_without_ids_and_different_values_are_added_with_a_warning() -> None:
    report = read(lines(NO_ID, "2025-09-01,Kiln,10,1,1.50", "2025-09-01,Kiln,11,1,1.60"))
    assert (report.rejects, report.merged, report.column("impressions")) == ((), 1, [21])
    assert "merged_without_ids" in report.warnings


ALL = "All"


@pytest.mark.parametrize(
    ("rows", "impressions", "skipped"),
    [
        pytest.param(
            [
                (ALL, ALL, 6),
                ("18-24", ALL, 3),
                ("18-24", "male", 1),
                ("18-24", "female", 2),
                ("25-34", ALL, 3),
                ("25-34", "male", 3),
            ],
            6,
            3,
            id="two levels above every detail",
        ),
        pytest.param(
            [("18-24", "male", 1), ("18-24", "female", 2), ("18-24", ALL, 3), (ALL, ALL, 3)],
            3,
            2,
            id="below the details",
        ),
        pytest.param(
            [(ALL, "male", 4), ("18-24", "male", 1), ("25-34", "male", 3)],
            4,
            1,
            id="of the first column",
        ),
        pytest.param([(ALL, ALL, 6)], 6, 0, id="without any detail"),
        pytest.param([(ALL, ALL, 6), ("18-24", ALL, 2), ("25-34", ALL, 4)], 6, 1, id="one level of details"),
        pytest.param(
            [
                (ALL, ALL, 6),
                ("18-24", ALL, 3),
                ("25-34", ALL, 3),
                ("25-34", "male", 1),
                ("25-34", "female", 2),
            ],
            6,
            2,
            id="details of one age only",
        ),
        pytest.param(
            [("18-24", ALL, 3), ("25-34", "male", 1), ("25-34", "female", 2)],
            6,
            0,
            id="a subtotal that has no details stands for them",
        ),
    ],
)
def test_subtotals_beside_details_are_skipped(
    rows: list[tuple[str, str, int]], impressions: int, skipped: int
) -> None:
    report = read(lines(BROKEN_DOWN, *[_row(*row) for row in rows]))
    assert (report.rejects, report.column("impressions")) == ((), [impressions])
    assert (report.data, report.totals_skipped) == (len(rows) - skipped, skipped)


def test_subtotals_are_those_of_their_own_key() -> None:
    report = read(
        lines(
            BROKEN_DOWN,
            _row(ALL, ALL, 3),
            _row("18-24", "male", 1),
            _row("18-24", "female", 2),
            _row(ALL, ALL, 9, day=2),
            _row(ALL, ALL, 8, campaign=8),
        )
    )
    assert (report.totals_skipped, report.column("impressions")) == (1, [3, 9, 8])


def test_subtotals_in_the_column_of_ads_are_skipped() -> None:
    text = lines(
        "Day,Campaign name,Ad set name,Ad name,Impressions,Amount spent (USD)",
        "2025-09-01,Kiln,All,All,6,6.00",
        "2025-09-01,Kiln,A,All,3,3.00",
        "2025-09-01,Kiln,A,x,1,1.00",
        "2025-09-01,Kiln,A,y,2,2.00",
        "2025-09-01,Kiln,B,All,3,3.00",
        "2025-09-01,Kiln,B,z,3,3.00",
    )
    report = read(text)
    assert (report.total("spend"), report.totals_skipped) == ({"USD": 6}, 3)
    assert report.entities == (1, 2, 3)


def test_merged_and_repeated_rows_are_valid_rows() -> None:
    report = read(
        lines(
            BROKEN_DOWN,
            _row(ALL, ALL, 3),
            _row("18-24", "male", 1),
            _row("18-24", "female", 2),
            _row("18-24", "female", 2),
        )
    )
    assert (report.data, report.valid, report.merged, report.identical) == (3, 3, 1, 1)
    assert len(report.daily) == report.valid - report.merged - report.identical


@pytest.mark.parametrize("at_once", [1, 500, 3_000, 12_000])
@pytest.mark.parametrize("distance", [1, 400, 4_000, 9_000])
def test_a_key_is_known_again_however_long_ago_it_was_seen(at_once: int, distance: int) -> None:
    keys = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(10_000)]
    again = [keys[number] for number in (0, 3, 999)]
    rows = [*keys[: 1_000 + distance], *again, *keys[1_000 + distance :]]
    repeats = Repeats()
    for begin in range(0, len(rows), at_once):
        repeats.look_at(rows[begin : begin + at_once])
    assert set(again) <= set(repeats.keys)
    assert len(repeats.keys) < len(again) + 5  # two of ten thousand fall on one of 2^27 places now and then
