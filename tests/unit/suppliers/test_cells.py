"""What a cell says, by the rules of its column."""

from __future__ import annotations

from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.suppliers.reading import cells
from app.suppliers.reading.cells import Fault, Money, Price, Quantity, Stock, Truth


def code_of(found: Any) -> Any:
    return found.code if isinstance(found, Fault) else found


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("A-1", "A-1"),
        ("  A \u00a0 1\r\n", "A 1"),  # no-break space, line break
        ("aBc", "aBc"),
        ("№5", "No5"),  # NFKC
        ("００12", "0012"),
        ("00012", "00012"),
        ("12345.0", "12345"),
        ("12345.00", "12345.00"),
        ("6501.3101012", "6501.3101012"),
        ("A1.0", "A1.0"),
        ("1.2E+12", "SKU_PRECISION"),
        ("1,2e12", "SKU_PRECISION"),
        ("3E5", "SKU_PRECISION"),
        ("12E", "12E"),
        (12345.0, "12345"),
        (6501.3101012, "6501.3101012"),
        (0.1 + 0.2, "0.3"),  # 15 digits
        (16100040000.0, "16100040000"),
        (999999999999999.0, "999999999999999"),
        (1e15, "SKU_PRECISION"),
        (-1e15, "SKU_PRECISION"),
        (float("nan"), "SKU_PRECISION"),
        (float("inf"), "SKU_PRECISION"),
        ("", "SKU_EMPTY"),
        (" \u00a0\t", "SKU_EMPTY"),
        (None, "SKU_EMPTY"),
        (Truth.TRUE, "SKU_INVALID"),
        (date(2026, 1, 1), "SKU_INVALID"),
        (cells.FORMULA_NO_VALUE, "FORMULA_NO_VALUE"),
        (cells.CELL_ERROR, "CELL_ERROR"),
    ],
)
def test_a_code_keeps_every_digit_it_was_given(cell: Any, expected: str) -> None:
    assert code_of(cells.sku(cell)) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (" a \u00a0b\n", "a b"),
        ("e\u0301", "é"),  # NFC
        ("№5", "№5"),  # not NFKC
        ("", None),
        ("  ", None),
        (None, None),
        (5.0, "5"),
        (5.25, "5.25"),
        (1e300, "1" + "0" * 300),
        (float("inf"), "inf"),
        (Truth.FALSE, "false"),
        (cells.CELL_ERROR, None),
    ],
)
def test_a_text_is_trimmed_and_squeezed(cell: Any, expected: str | None) -> None:
    assert cells.text(cell) == expected


DOT = Money(exponent=2, decimal=".", group=None, strip=())
COMMA = Money(exponent=2, decimal=",", group=".", strip=("руб.", "₽"), on_request=("звоните",))


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("10", Price(1000)),
        ("10.5", Price(1050)),
        ("1 109.71", Price(110971)),
        ("1\u00a0109.71", Price(110971)),
        ("1\u202f109\u202f000", Price(110900000)),
        ("+7.00", Price(700)),
        ("0.005", Price(1, rounded=True)),
        ("19.994", Price(1999, rounded=True)),
        ("19.995", Price(2000, rounded=True)),
        ("19.990", Price(1999)),
        (19.99, Price(1999)),  # 19.99 * 100 is 1998.999...
        (1234.565, Price(123457, rounded=True)),
        (1.005, Price(101, rounded=True)),  # as shown, not as stored
        (0.1 + 0.2, Price(30)),
        (90071992547409.91, Price(9007199254740990)),  # 15 digits
        (90071992547410.0, "PRICE_TOO_LARGE"),
        ("90071992547409.91", Price(9007199254740991)),
        ("90071992547409.92", "PRICE_TOO_LARGE"),
        ("90071992547410", "PRICE_TOO_LARGE"),
        ("96000005001005", "PRICE_TOO_LARGE"),
        ("1e5", "PRICE_UNPARSABLE"),
        ("10 50", "PRICE_UNPARSABLE"),  # no group of three
        ("1 0000", "PRICE_UNPARSABLE"),
        ("1,234.50", "PRICE_UNPARSABLE"),
        ("10.", "PRICE_UNPARSABLE"),
        (".5", "PRICE_UNPARSABLE"),
        ("10 руб.", "PRICE_UNPARSABLE"),
        ("9" * 41, "PRICE_UNPARSABLE"),
        ("9" * 40, "PRICE_TOO_LARGE"),
        ("0", "PRICE_NOT_POSITIVE"),
        ("0.004", "PRICE_NOT_POSITIVE"),
        ("-5", "PRICE_NOT_POSITIVE"),
        (0.0, "PRICE_NOT_POSITIVE"),
        (-1.5, "PRICE_NOT_POSITIVE"),
        (float("inf"), "PRICE_UNPARSABLE"),
        (Truth.TRUE, "PRICE_UNPARSABLE"),
        (date(2026, 1, 1), "PRICE_UNPARSABLE"),
        ("", "PRICE_EMPTY"),
        (" \u00a0", "PRICE_EMPTY"),
        (None, "PRICE_EMPTY"),
        (cells.FORMULA_NO_VALUE, "FORMULA_NO_VALUE"),
    ],
)
def test_a_price_becomes_minor_units_or_a_reason(cell: Any, expected: Any) -> None:
    assert code_of(DOT.parse(cell)) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("1.234,50 руб.", Price(123450)),
        ("1.234,50 РУБ.", Price(123450)),
        ("₽ 5", Price(500)),
        ("1 234,50", Price(123450)),
        ("1234.50", "PRICE_UNPARSABLE"),  # not 123450
        ("1.234 567", "PRICE_UNPARSABLE"),  # two marks between groups
        ("Звоните", "PRICE_ON_REQUEST"),
        ("звоните!", "PRICE_UNPARSABLE"),
    ],
)
def test_a_column_has_its_own_spelling(cell: str, expected: Any) -> None:
    assert code_of(COMMA.parse(cell)) == expected


@pytest.mark.parametrize(("exponent", "minor"), [(0, 12), (1, 123), (3, 12340)])
def test_a_currency_has_its_own_digits(exponent: int, minor: int) -> None:
    found = Money(exponent=exponent, decimal=".", group=None, strip=()).parse("12.34")
    assert found == Price(minor, rounded=exponent < 2)


@given(st.floats(min_value=1e-4, max_value=1e13, allow_nan=False))
def test_a_number_cell_is_the_decimal_of_15_digits_that_is_shown(cell: float) -> None:
    exact = Decimal(f"{cell:.15g}") * 100
    minor = int(exact.to_integral_value(ROUND_HALF_UP))
    expected = Price(minor, minor != exact) if minor > 0 else cells.NOT_POSITIVE_PRICE
    assert DOT.parse(cell) == expected


@given(st.integers(min_value=1, max_value=10**14))
def test_cells_and_texts_of_one_amount_are_one_amount(minor: int) -> None:
    written = f"{minor // 100}.{minor % 100:02}"
    assert DOT.parse(float(written)) == DOT.parse(written) == Price(minor)


PIECES = Quantity(decimal=",", group=None, words={"Есть": "1+", "нет": 0, "100": 7}, negative="bad")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("5", Stock(5)),
        ("005", Stock(5)),
        ("1 000", Stock(1000)),
        ("5,0", Stock(5)),
        (5.0, Stock(5)),
        ("100", Stock(7, raw="100")),  # words come first
        ("ЕСТЬ", Stock(1, True, "ЕСТЬ")),
        (" нет ", Stock(0, False, "нет")),
        (">40", Stock(40, True, ">40")),
        ("> 40", Stock(40, True, "> 40")),
        (">=40", Stock(40, True, ">=40")),
        ("≥ 40", Stock(40, True, "≥ 40")),
        ("50+", Stock(50, True, "50+")),
        ("БОЛЕЕ50", Stock(50, True, "БОЛЕЕ50")),
        ("больше 30", Stock(30, True, "больше 30")),
        ("свыше 1 000", Stock(1000, True, "свыше 1 000")),
        ("от 5", Stock(5, True, "от 5")),
        ("<5", "QTY_UNPARSABLE"),
        ("под заказ", "QTY_UNPARSABLE"),
        ("5.5", "QTY_UNPARSABLE"),
        ("5,5", "QTY_NOT_INTEGER"),
        (5.5, "QTY_NOT_INTEGER"),
        (">5,5", "QTY_NOT_INTEGER"),
        ("-1", "QTY_NEGATIVE"),
        ("−1", "QTY_NEGATIVE"),
        (-1.0, "QTY_NEGATIVE"),
        ("9007199254740991", Stock(2**53 - 1)),
        ("9007199254740992", "QTY_TOO_LARGE"),
        (float("inf"), "QTY_UNPARSABLE"),
        (Truth.TRUE, "QTY_UNPARSABLE"),
        (None, "QTY_EMPTY"),
        ("", "QTY_EMPTY"),
        (cells.CELL_ERROR, "CELL_ERROR"),
    ],
)
def test_a_stock_figure_is_a_whole_number_perhaps_at_least(cell: Any, expected: Any) -> None:
    assert code_of(PIECES.parse(cell)) == expected


def test_negative_stock_may_count_as_none() -> None:
    lenient = Quantity(decimal=".", group=None, words={}, negative="zero")
    assert lenient.parse("-3") == lenient.parse(-3.0) == Stock(0)


def test_cells_that_differ_in_meaning_are_not_equal() -> None:
    assert Truth.TRUE != 1.0 and hash(Truth.TRUE) != hash(1.0)
