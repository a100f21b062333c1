"""Dates: the account's day, its order decided on the whole column, a range is not a day."""

from __future__ import annotations

import pytest
from report import lines, read, table

from app.uploads.reading import cells, dates


def _file(*days: str, header: str = "Day") -> str:
    rows = [[day, "Kiln", "1", "1.50"] for day in days]
    return table([[header, "Campaign name", "Impressions", "Amount spent (USD)"], *rows])


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        pytest.param(["2025-09-01"], ["2025-09-01"], id="ISO"),
        pytest.param(["2024-02-29"], ["2024-02-29"], id="a leap day"),
        pytest.param(["2025-09-01 00:00:00"], ["2025-09-01"], id="midnight"),
        pytest.param(["2025-09-01T00:00:00"], ["2025-09-01"], id="with T"),
        pytest.param(["2025-09-01T00:00:00Z"], ["2025-09-01"], id="UTC"),
        pytest.param(["2025-09-01T23:30:00-0800"], ["2025-09-01"], id="behind UTC"),
        pytest.param(["2025-09-01T00:30:00+09:00"], ["2025-09-01"], id="before UTC"),
        pytest.param(["2025-09-01 23:59:59"], ["2025-09-01"], id="the last second"),
        pytest.param([" 2025-09-01 "], ["2025-09-01"], id="blanks around"),
        pytest.param(["01/09/2025", "13/09/2025"], ["2025-09-01", "2025-09-13"], id="D/M/Y"),
        pytest.param(["9/1/2025", "9/13/2025"], ["2025-09-01", "2025-09-13"], id="M/D/Y"),
        pytest.param(["01.09.2025", "13.09.2025"], ["2025-09-01", "2025-09-13"], id="D.M.Y"),
        pytest.param(["31-08-2023", "01-09-2023"], ["2023-08-31", "2023-09-01"], id="D-M-Y"),
        pytest.param(["2025/09/01", "2025/9/2"], ["2025-09-01", "2025-09-02"], id="Y/M/D"),
        pytest.param(["Sep 1, 2025", "Jan 31, 2024"], ["2025-09-01", "2024-01-31"], id="US"),
        pytest.param(["1 September 2025", "2 May 2025"], ["2025-09-01", "2025-05-02"], id="GB"),
        pytest.param(["September 1, 2025"], ["2025-09-01"], id="a whole month name"),
        pytest.param(["1 sept. 2026"], ["2026-09-01"], id="French"),
        pytest.param(["10 de dez. de 2022"], ["2022-12-10"], id="Brazilian"),
        pytest.param(["2025年1月1日", "2025年9月30日"], ["2025-01-01", "2025-09-30"], id="ja"),
        pytest.param(["03/03/2025", "3/3/2025"], ["2025-03-03", "2025-03-03"], id="day = month"),
    ],
)
def test_a_day_is_read_as_written(cells: list[str], days: list[str]) -> None:
    rows = [[day, f"Kiln {n}", "1", "1.50"] for n, day in enumerate(cells)]
    header = ["Day", "Campaign name", "Impressions", "Amount spent (USD)"]
    report = read(table([header, *rows]))
    assert (report.refused, report.rejects, report.dates) == (None, (), days)


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (["1. September 2025", "12. März 2025"], ["2025-09-01", "2025-03-12"]),
        (["1 déc. 2025", "12 août 2025"], ["2025-12-01", "2025-08-12"]),
        (["1 de enero de 2025", "12 ago 2025"], ["2025-01-01", "2025-08-12"]),
        (["1 gen 2025", "12 luglio 2025"], ["2025-01-01", "2025-07-12"]),
        (["1 mrt. 2025", "12 mei 2025"], ["2025-03-01", "2025-05-12"]),
        (["1 сент. 2025 г.", "12 мая 2025 г."], ["2025-09-01", "2025-05-12"]),
        (["2025년 9월 1일", "2025년 12월 31일"], ["2025-09-01", "2025-12-31"]),
        (["1 de fevereiro de 2025", "12 de set. de 2025"], ["2025-02-01", "2025-09-12"]),
    ],
    ids=["de", "fr", "es", "it", "nl", "ru", "ko", "pt-BR"],
)
def test_names_of_months_are_known_in_the_languages_of_the_headers(cells: list[str], days: list[str]) -> None:
    report = read(_file(*cells))
    assert (report.rejects, report.dates) == ((), days)


@pytest.mark.parametrize(
    "cells",
    [
        ["01/09/2025"],
        ["01/02/2025", "02/02/2025", "10/02/2025"],
        ["1.2.2025", "12.12.2025"],
        ["03/03/2025", "03/04/2025"],  # the first one reads the same, the second does not
    ],
)
def test_a_column_that_may_be_read_in_two_orders_fails_the_file(cells: list[str]) -> None:
    assert read(_file(*cells)).refused == "ambiguous_date"


@pytest.mark.parametrize(("order", "day"), [("dmy", "2025-09-01"), ("mdy", "2025-01-09")])
def test_what_the_uploader_says_of_the_dates_is_believed(order: str, day: str) -> None:
    report = read(_file("01/09/2025"), date_order=order)
    assert (report.refused, report.dates) == (None, [day])


def test_days_that_contradict_the_uploader_are_rejected_and_turn_no_other_day() -> None:
    report = read(_file("01/09/2025", "02/31/2025", "2025-10-12"), date_order="dmy")
    assert (report.codes, report.dates) == (["invalid_date"], ["2025-09-01", "2025-10-12"])


def test_the_only_deciding_day_may_stand_on_the_last_row() -> None:
    rows = [f"01/09/2025,Campaign {n},1,1.50" for n in range(2000)]
    header = "Day,Campaign name,Impressions,Amount spent (USD)"
    report = read(lines(header, *rows, "13/09/2025,Campaign 0,1,1.50"))
    assert (report.refused, set(report.dates)) == (None, {"2025-09-01", "2025-09-13"})


def test_two_orders_in_one_column_are_not_both_believed() -> None:
    report = read(_file("13/01/2025", "01/14/2025"))
    assert report.refused == "ambiguous_date" or report.codes.count("invalid_date") >= 1


@pytest.mark.parametrize(
    "cell",
    [
        "2025-02-29",
        "31/02/2025",
        "32 May 2025",
        "2025-13-01",
        "0000-00-00",
        "yesterday",
        "Foo 1, 2025",
        "2025-09",
        "2025-09-01x",
        "99/99/9999",
        "2025年13月1日",
        "1e5",
        "20250901T",
    ],
)
def test_what_is_no_day_of_the_calendar_is_rejected(cell: str) -> None:
    days = [f"{n}/08/2025" for n in range(1, 20)] if "/" in cell else ["2025-08-01"] * 19
    rows = [[day, f"Kiln {n}", "1", "1.50"] for n, day in enumerate([*days, cell])]
    header = ["Day", "Campaign name", "Impressions", "Amount spent (USD)"]
    report = read(table([header, *rows]))
    assert (report.refused, report.rejects) == (None, ((21, "invalid_date"),))


@pytest.mark.parametrize("cell", ["", "--", " --", "-"])
def test_a_row_with_names_and_no_day_has_no_date(cell: str) -> None:
    assert read(_file("2025-09-01", cell)).rejects == ((3, "missing_date"),)


RANGE = "Reporting starts,Reporting ends"


@pytest.mark.parametrize(
    ("starts", "ends", "codes", "days"),
    [
        ("2025-09-01", "2025-09-01", [], ["2025-09-01"]),
        ("2025-09-01", "2025-09-02", ["date_range"], []),
        ("2025-09-01", "2025-09-30", ["date_range"], []),
    ],
)
def test_equal_ends_of_a_range_are_a_day(starts: str, ends: str, codes: list[str], days: list[str]) -> None:
    text = lines(f"Campaign name,{RANGE},Impressions,Amount spent (USD)", f"Kiln,{starts},{ends},1,1.50")
    report = read(text)
    assert (report.codes, report.dates) == (codes, days)


def test_the_day_beats_the_range_of_the_report() -> None:
    text = lines(
        f"{RANGE},Day,Campaign name,Impressions,Amount spent (USD)",
        "2025-09-01,2025-09-30,2025-09-07,Kiln,1,1.50",
    )
    assert read(text).dates == ["2025-09-07"]


@pytest.mark.parametrize(
    ("platform", "header", "row"),
    [
        pytest.param("google", "Campaign,Cost,Impr.", "Kiln,1.50,1", id="no date"),
        pytest.param("google", "Month,Campaign,Cost,Impr.", "2025-09,Kiln,1.50,1", id="a month"),
        pytest.param("google", "Week,Campaign,Cost,Impr.", "2025-09-01,Kiln,1.50,1", id="a week"),
        pytest.param("google", "Year,Campaign,Cost,Impr.", "2025,Kiln,1.50,1", id="a year"),
        pytest.param("google", "Day of week,Campaign,Cost,Impr.", "Monday,Kiln,1.50,1", id="a weekday"),
        pytest.param(
            "meta",
            "Starts,Ends,Campaign name,Impressions,Amount spent",
            "2025-09-01,2025-09-01,Kiln,1,1.50",
            id="the life of an ad",
        ),
        pytest.param(
            "meta",
            "Day,Campaign name,Impressions,Amount spent",
            "2025-09-01 - 2025-09-30,Kiln,1,1.50",
            id="a range in one cell",
        ),
    ],
)
def test_what_is_not_about_one_day_is_a_range(platform: str, header: str, row: str) -> None:
    report = read(lines(header, row, row.replace("Kiln", "Loft")), platform, "USD")
    assert (report.refused, report.codes) == (None, ["date_range", "date_range"])


def test_a_week_column_does_not_spoil_a_day_column() -> None:
    text = lines("Week,Day,Campaign,Cost,Impr.", "2025-09-01,2025-09-03,Kiln,1.50,1")
    assert read(text, "google", "USD").dates == ["2025-09-03"]


def test_one_row_of_a_range_among_days_is_rejected_alone() -> None:
    days = [f"2025-09-{n:02d},2025-09-{n:02d},Kiln,1,1.50" for n in range(1, 20)]
    text = lines(
        f"{RANGE},Campaign name,Impressions,Amount spent (USD)",
        *days,
        "2025-09-01,2025-09-19,Kiln,19,28.50",
    )
    report = read(text)
    assert (report.valid, report.rejects) == (19, ((21, "date_range"),))


def test_the_hours_of_a_day_are_added_to_that_day() -> None:
    text = lines(
        "stat_time_hour,campaign_id,spend,impressions,reach",
        *(f"2025-09-01 {hour:02d}:00:00,4711,0.50,10,9" for hour in range(24)),
        "2025-09-02 00:00:00,4711,0.50,10,9",
    )
    report = read(text, "tiktok", "USD")
    assert (report.merged, report.dates) == (23, ["2025-09-01", "2025-09-02"])
    assert (report.column("spend"), report.column("impressions")) == ([12, 0.5], [240, 10])
    assert report.column("reach") == [None, 9]


@pytest.mark.parametrize("sign", ["፩", "𐩀", "²𐩀"])
def test_a_digit_that_is_no_decimal_figure_is_no_day_and_no_crash(sign: str) -> None:
    assert dates.day(f"jan {sign} 2025", None) == cells.Problem("invalid_date", f"jan {sign} 2025")
