"""Numbers: absence is not zero, garbage is not absence, and marks are decided once per file."""

from __future__ import annotations

import io
from datetime import date
from decimal import Decimal
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies
from report import META, lines, meta, read, table

from app.uploads.reading import numbers, plan
from app.uploads.reading.rows import Rows


@pytest.mark.parametrize(
    "cell", ["", "--", " --", "-", "—", "N/A", "[]", "< 10%", "> 90%", "<=5", "<$0.01", "  ", "-- "]
)
def test_a_null_token_is_null_and_not_zero(cell: str) -> None:
    header = ["Impressions", "Clicks (all)", "Amount spent (USD)", "Reach", "Purchases"]
    columns = ["impressions", "clicks", "spend", "reach", "conversions"]
    rows = [
        [f"2025-09-0{n + 1}", "Kiln", *(cell if name == null else "0" for name in columns)]
        for n, null in enumerate(columns)
    ]
    report = read(table([["Day", "Campaign name", *header], *rows]))
    assert report.rejects == ()
    for column in columns:
        assert report.column(column) == [None if null == column else 0 for null in columns]


@pytest.mark.parametrize(
    "cell",
    [
        "abc",
        "<b>lots",
        "<",
        "> many",
        "<10% of all",
        "#VALUE!",
        "#N/A",
        "12abc",
        "1_000",
        "0x1F",
        "NaN",
        "nan",
        "Infinity",
        "-inf",
        "1.2.3",
        "1,00,0.5",
        "--5",
        "5-",
        "1 2",
        "12%off",
        "unknown",
        "9" * 400,
        "1" + "0" * 12,  # more than numeric(18,6) holds
        "1e400",
        "1e99999999999",
    ],
)
def test_garbage_is_an_error_and_not_null(cell: str) -> None:
    report = read(meta("0.50", cell, *["1.50"] * 18))
    assert (report.refused, report.rejects) == (None, ((3, "invalid_number"),))


@pytest.mark.parametrize("cell", ["ten", "#DIV/0!", "1_000", "NaN", "9" * 30, str(1 << 63)])
def test_garbage_in_a_count_is_an_error(cell: str) -> None:
    report = read(meta("0.50", "1.50", impressions=[cell, "10"]))
    assert report.rejects == ((2, "invalid_number"),)


@pytest.mark.parametrize(
    ("cells", "amounts"),
    [
        pytest.param(["1,234.56", "0.50"], ["1234.56", "0.50"], id="English"),
        pytest.param(["1.234,56", "0,50"], ["1234.56", "0.50"], id="German"),
        pytest.param(["1 234,56", "0,50"], ["1234.56", "0.50"], id="blank"),
        pytest.param(["1\xa0234,56", "0,50"], ["1234.56", "0.50"], id="NBSP"),
        pytest.param(["1\u202f234\u202f567,89", "0,50"], ["1234567.89", "0.50"], id="U+202F"),
        pytest.param(["1'234.56", "0.50"], ["1234.56", "0.50"], id="Swiss"),
        pytest.param(["12,34,567.89", "1,23,456.00"], ["1234567.89", "123456"], id="Indian"),
        pytest.param(["1,234", "0.50"], ["1234", "0.50"], id="another cell has the point"),
        pytest.param(["1,234", "0,50"], ["1.234", "0.50"], id="another cell has the comma"),
        pytest.param(["1.234", "0.50"], ["1.234", "0.50"], id="three decimals"),
        pytest.param(["1.234", "12,5"], ["1234", "12.5"], id="one decimal decides"),
        pytest.param(["1.234", "7.891234"], ["1.234", "7.891234"], id="six decimals decide"),
        pytest.param(["1,204,500", "12,000"], ["1204500", "12000"], id="two commas are thousands"),
        pytest.param(["1.204.500", "12.000"], ["1204500", "12000"], id="two points are thousands"),
        pytest.param(["1 234", "1 234 567"], ["1234", "1234567"], id="blanks are thousands"),
        pytest.param(["1'234", "5"], ["1234", "5"], id="apostrophes are thousands"),
        pytest.param(["0.123", "1.234"], ["0.123", "1.234"], id="no thousands begin with 0"),
        pytest.param(["1234.567", "1.234"], ["1234.567", "1.234"], id="four digits before"),
        pytest.param(["1234", "5"], ["1234", "5"], id="whole amounts"),
        pytest.param(["48682.72", "0"], ["48682.72", "0"], id="no thousands"),
        pytest.param(["999999999999.99", "0.50"], ["999999999999.99", "0.50"], id="the largest"),
        pytest.param(["1.429999948", "0.50"], ["1.43", "0.50"], id="float noise is rounded to six"),
        pytest.param([" 1.50 ", "\xa02.50"], ["1.50", "2.50"], id="blanks around"),
    ],
)
def test_the_decimal_mark_is_decided_by_all_amounts(cells: list[str], amounts: list[str]) -> None:
    report = read(meta(*cells))
    assert (report.refused, report.rejects) == (None, ())
    assert report.column("spend") == [Decimal(amount) for amount in amounts]


@pytest.mark.parametrize(
    "cells",
    [
        ["1.234", "2.500"],
        ["1,234", "2,500"],
        ["1.234", "12", "999"],
        ["1.234", "--", ""],
        ["€1.234", "-2.345"],
    ],
    ids=["points", "commas", "with small ones", "with null", "with signs"],
)
def test_what_may_be_thousands_or_decimals_fails_the_file(cells: list[str]) -> None:
    assert read(meta(*cells)).refused == "ambiguous_number"


@pytest.mark.parametrize(("mark", "amount"), [(",", "1234"), (".", "1.234")])
def test_what_the_uploader_says_of_the_decimals_is_believed(mark: str, amount: str) -> None:
    report = read(meta("1.234"), decimal_mark=mark)
    assert (report.refused, report.column("spend")) == (None, [Decimal(amount)])


def test_amounts_that_contradict_the_uploader_are_rejected_and_turn_no_other_amount() -> None:
    report = read(meta("1.234", "12.50", "0,75"), decimal_mark=",")
    assert (report.codes, report.column("spend")) == (["invalid_number"], [Decimal(1234), Decimal("0.75")])


def test_the_only_deciding_amount_may_stand_on_the_last_row() -> None:
    rows = [f'2025-09-01,Campaign {n},{n},1,1,"1,234"' for n in range(2000)]
    report = read(lines(",".join(META), *rows, "2025-09-01,Last,2000,1,1,0.50"))
    assert (report.refused, report.total("spend")) == (None, {"USD": Decimal("2468000.50")})


@pytest.mark.parametrize("header", ["Purchases conversion value", "CPC (all) (USD)"])
def test_any_column_of_amounts_decides_the_mark(header: str) -> None:
    report = read(
        table(
            [
                ["Day", "Campaign name", "Amount spent (USD)", "Impressions", header],
                ["2025-09-01", "Kiln", "1,234", "1", "0.35"],
                ["2025-09-02", "Kiln", "2,500", "1", "0.45"],
            ]
        )
    )
    assert (report.refused, report.column("spend")) == (None, [1234, 2500])


@pytest.mark.parametrize("cell", ["1.234,56", "1,2", "0,50"])
def test_two_marks_that_contradict_each_other_are_not_both_believed(cell: str) -> None:
    report = read(meta("1,234.56", cell, *["0.50"] * 18))
    assert report.refused == "ambiguous_number" or report.codes == ["invalid_number"]


@pytest.mark.parametrize(
    ("spend", "impressions", "count"),
    [
        ("0.50", "1,606,880", 1606880),
        ("0.50", "9,380", 9380),
        ("0,50", "9.380", 9380),
        ("0,50", "1 606 880", 1606880),
        ("0,50", "1\xa0606\xa0880", 1606880),
        ("0.50", "1'606'880", 1606880),
        ("0.50", "16,06,880", 1606880),
        ("0.50", "0", 0),
        ("0.50", "9223372036854775807", 9223372036854775807),
    ],
)
def test_counts_have_the_thousands_of_the_file(spend: str, impressions: str, count: int) -> None:
    report = read(meta(spend, impressions=[impressions], delimiter=";"))
    assert (report.rejects, report.column("impressions")) == ((), [count])


@pytest.mark.parametrize(
    ("cell", "amount"),
    [
        ("€1,234.50", "1234.50"),
        ("1,234.50 €", "1234.50"),
        ("CA$12.34", "12.34"),
        ("US$ 12.34", "12.34"),
        ("£0.50", "0.50"),
        ("¥1,234.00", "1234"),
        ("₩1,204,500", "1204500"),
        ("EUR 12.00", "12"),
        ("12.00 USD", "12"),
        ("R$ 12.34", "12.34"),
        ("R$\xa012.34", "12.34"),  # as browsers write it
        ("12.34\xa0€", "12.34"),
        ("-$5.00", "-5"),
        ("-5.00", "-5"),
        ("(5.00)", "-5"),
        ("($1,234.50)", "-1234.50"),
        ("₹12,34,567.89", "1234567.89"),
    ],
)
def test_signs_of_currencies_are_stripped(cell: str, amount: str) -> None:
    report = read(meta(cell, "0.50"))
    assert (report.rejects, report.column("spend")) == ((), [Decimal(amount), Decimal("0.50")])


@pytest.mark.parametrize("cell", ["-5.00", "(5.00)"])
def test_a_negative_spend_is_taken_with_a_warning(cell: str) -> None:
    report = read(meta(cell, "0.50"))
    assert (report.valid, report.warnings & {"negative_spend"}) == (2, {"negative_spend"})


def test_a_spend_of_zero_is_no_negative_spend() -> None:
    assert "negative_spend" not in read(meta("0.00", "-0.00", "0.50")).warnings


@pytest.mark.parametrize("header", ["Impressions", "Clicks (all)", "Reach", "Link clicks"])
@pytest.mark.parametrize("cell", ["-1", "(1)", "-1,000"])
def test_a_negative_count_is_rejected(header: str, cell: str) -> None:
    report = read(
        table(
            [
                ["Day", "Campaign name", "Amount spent (USD)", header],
                ["2025-09-01", "Kiln", "1.50", cell],
                ["2025-09-02", "Kiln", "1.50", "1"],
            ]
        )
    )
    assert report.rejects == ((2, "negative_count"),)


def test_conversions_have_fractions() -> None:
    text = lines(
        "Day,Campaign,Cost,Conversions,Conv. value",
        '2025-09-01,Kiln,1.50,368.39,"2,127.81"',
        "2025-09-02,Kiln,1.50,0.333333,0.00",
    )
    report = read(text, "google", "USD")
    assert report.column("conversions") == [Decimal("368.39"), Decimal("0.333333")]
    assert report.column("conversion_value") == [Decimal("2127.81"), 0]


@pytest.mark.parametrize(
    ("header", "cell", "amount"),
    [
        ("Cost", "1500000", "1500000"),  # large, but not millionths
        ("cost_micros", "1500000", "1.5"),
        ("metrics.costMicros", "1", "0.000001"),
        ("cost_micros", "0", "0"),
        ("metrics.cost_micros", "-2500000", "-2.5"),
        ("metrics.cost_micros", "9007199254740993", "9007199254.740993"),
    ],
)
def test_millionths_are_told_by_the_name_and_never_by_the_size(header: str, cell: str, amount: str) -> None:
    text = table([["Day", "Campaign", "Clicks", header], ["2025-09-01", "Kiln", "1", cell]])
    assert read(text, "google", "USD").column("spend") == [Decimal(amount)]


@pytest.mark.parametrize("currency", ["JPY", "KRW", "CLP", "ISK"])
def test_a_currency_without_decimals_is_not_multiplied(currency: str) -> None:
    report = read(meta("1234", "500").replace("USD", currency))
    assert report.total("spend") == {currency: 1734}


# -- many numbers at once


def staged(text: str, *, at_once: int) -> tuple[list[Any], Any]:
    """What a reading of so many records at a time stages and counts."""
    file = io.BytesIO(text.encode())
    chosen = plan.make(file, platform="meta", declared=plan.Declared("USD", decimal_mark="."))
    reading = Rows(chosen, scope=["w", None, "meta"], today=date(2026, 1, 1))
    found = [one for group in reading.read(file, at_once=at_once) for one in group]
    return found, reading.tally


@pytest.mark.parametrize("column", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "cell",
    [
        *[
            "7",
            "007",
            "0",
            "00",
            "0.5",
            "10.00",
            "0.10",
            ".5",
            "5.",
            "1.2345678",
            "1e3",
            "-5",
            "+5",
            "--",
            "",
            " 5",
        ],
        *[
            "5 ",
            "1,000",
            "1.000",
            "1_000",
            "٣",
            "5\n6",
            "5\n",
            "\n",
            "x",
            "99999999999999999999",
            "1234567890123.5",
        ],
    ],
)
def test_one_cell_among_hundreds_of_plain_numbers_means_what_it_means_alone(cell: str, column: int) -> None:
    rows = [
        ["2025-09-01", f"Kiln {n}", str(10 + n), f"{n}.{n:02}", str(3 * n), f"{n / 100:.2f}"]
        for n in range(300)
    ]
    rows[150][column] = cell
    header = ["Day", "Campaign name", "Impressions", "Amount spent (USD)", "Reach", "Purchases"]
    text = table([header, *rows])
    assert staged(text, at_once=500) == staged(text, at_once=1)


@pytest.mark.parametrize("mark", [".", ","])
@hypothesis.given(
    cells=strategies.lists(
        strategies.from_regex(r"(0|[1-9][0-9]{0,11})([.,][0-9]{1,7})?", fullmatch=True)
        | strategies.text("0123456789.,-\n ", max_size=6),
        min_size=1,
        max_size=5,
    )
)
def test_a_plain_number_is_the_number_that_it_is(mark: str, cells: list[str]) -> None:
    assert numbers.plain(["12", "3.5".replace(".", mark)], mark) == ["12", "3.5"]
    amounts = [numbers.money(cell, mark) for cell in cells]
    if (found := numbers.plain(cells, mark)) is not None:
        assert [Decimal(one) for one in found] == amounts
        assert found == [format(one.normalize() + 0, "f") for one in amounts if isinstance(one, Decimal)]
    counts = [numbers.count(cell, mark) for cell in cells]
    if (whole := numbers.plain(cells, "")) is not None:
        assert [Decimal(one) for one in whole] == counts
