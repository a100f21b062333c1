"""Single cells of reports and lists: numbers keep their digits, days are days, ids stay what they are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

from app.kernel import spreadsheets
from app.suppliers.reading import cells as of_lists
from app.suppliers.reading.cells import Fault, Money, Price, Quantity, Stock
from app.uploads.reading import actions, aliases, cells, dates, header, numbers, totals
from app.uploads.reading.cells import Problem
from tests.fuzz.target import Target

MILLION = Decimal(10) ** 12
_EXPONENT = re.compile(r"\d[eE]")

MONEYS = (
    Money(exponent=2, decimal=".", group=",", strip=("руб", "€"), on_request=("call",)),
    Money(exponent=2, decimal=",", group=None, strip=()),
    Money(exponent=0, decimal=",", group=".", strip=("¥",)),
)
STOCKS = (
    Quantity(decimal=",", group=None, words={"many": "10+", "нет": 0}, negative="zero"),
    Quantity(decimal=".", group=",", words={}, negative="bad"),
)


def digits_of(cell: str) -> str:
    """The digits that stand in a cell, as ASCII."""
    return "".join(str(unicodedata.decimal(letter)) for letter in cell if letter.isdecimal())


def _check_number(cell: str, mark: str) -> None:
    value = numbers.number(cell, mark)
    assert value is None or isinstance(value, Decimal | Problem)
    if isinstance(value, Decimal):
        plain = format(value, "f")
        assert numbers.number(plain, ".") == value, "written and read again it is another number"
        if not _EXPONENT.search(cell):
            assert digits_of(plain).strip("0") == digits_of(cell).strip("0"), "it has other digits"
        assert ("-" in cell or "−" in cell or "(" in cell) or value >= 0
    for read in (numbers.money, numbers.micros, numbers.fractional):
        amount = read(cell, mark)
        if isinstance(amount, Decimal):
            assert abs(amount) < MILLION
            exponent = amount.as_tuple().exponent
            assert isinstance(exponent, int) and exponent >= -6
            assert read is not numbers.fractional or amount >= 0
    count = numbers.count(cell, mark)
    if isinstance(count, Decimal):
        assert 0 <= count <= numbers.MAX_COUNT and count == int(count)


def _check_day(cell: str) -> None:
    for order in (None, *dates.ORDERS):
        found = dates.day(cell, order)
        assert found is None or isinstance(found, date | Problem)
        if isinstance(found, date):
            assert dates.FIRST_YEAR <= found.year <= dates.LAST_YEAR
            assert dates.day(found.isoformat(), order) == found
    evidence = dates.OrderEvidence()
    evidence.look_at([cell])
    assert not (evidence.ambiguous and evidence.order())


def _check_id_and_text(cell: str) -> None:
    found = cells.entity_id(cell)
    if isinstance(found, str):
        assert cells.entity_id(found) == found, "an id that was read is read as another one"
        assert len(found) <= cells.ID_CHARACTERS and cells.storable(found)
    text = cells.text(cell)
    assert text is None or isinstance(text, Problem) or (text and cells.storable(text))
    currency = cells.currency(cell)
    assert currency is None or isinstance(currency, Problem) or currency in cells.CURRENCIES
    name = aliases.header(cell)
    assert len(name.key) <= 40 * aliases.LONGEST_NAME
    header.name_columns("meta", [cell])
    totals.is_label(cell)
    totals.is_no_data(cell)
    actions.purchases(cell, ".")
    shown = spreadsheets.harmless(cell)
    assert not shown.startswith(("=", "@", "\t", "\r")), "a spreadsheet takes it for a formula"
    assert shown.removeprefix("'") == cell.removeprefix("'")


def _check_of_list(cell: str) -> None:
    sku = of_lists.sku(cell)
    assert isinstance(sku, Fault) or sku
    for money in MONEYS:
        price = money.parse(cell)
        assert isinstance(price, Fault | Price)
        if isinstance(price, Price):
            assert 0 < price.minor <= of_lists.MAX_INTEGER
    for quantity in STOCKS:
        stock = quantity.parse(cell)
        assert isinstance(stock, Fault | Stock)
        if isinstance(stock, Stock):
            assert 0 <= stock.qty <= of_lists.MAX_INTEGER


def check(data: bytes) -> None:
    """The bytes are one cell; half a character may be in it, as JSON can say it."""
    cell = data.decode("utf-8", "surrogatepass") if _is_text(data) else data.decode("latin-1")
    for mark in numbers.MARKS:
        _check_number(cell, mark)
    evidence = numbers.MarkEvidence()
    evidence.look_at([cell])
    assert evidence.mark() in (None, *numbers.MARKS)
    _check_day(cell)
    _check_id_and_text(cell)
    _check_of_list(cell)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


SEEDS = (
    "", "--", "1,234.56", "1.234,56", "1'234.5", "1 234,56", "-5", "(12.00)", "US$1,234.50",
    "12,34,567.00", "< 10%",
    "1e-5", "1.5E+10", "2025-01-31", "31.12.2025", "1/2/25", "45000", "20250131", "Jan 5, 2025",
    "5 de enero de 2025",
    "2025年1月5日", "2025-01-05 10:30:00 PM UTC", "2025-01-01 - 2025-01-31", "2025-01-01~2025-01-02",
    "act_123",
    "campaigns/123~456", "123-456-7890", '="123"', "1.23E+15", "USD", "Amount spent (USD)",
    "Results [28-day click]",
    "Total: account", "Total of 24 results", "١٢٣٫٤٥", "１２３", "=1+1", "@sum", "от 10", "10+", ">5",
    "1 000 руб",
    '[{"action_type":"purchase","value":"3"}]', "jan ፩ 2025", "1" + " " * 60 + "x", "(" + " " * 60 + "x",
    "T" * 90,
)  # fmt: skip


def seeds() -> Iterator[bytes]:
    """Cells as reports write them, and two that once took hours."""
    yield from (text.encode() for text in SEEDS)


TARGET = Target(
    check,
    seeds,
    words=tuple(
        text.encode()
        for text in (
            "USD", "kr.", "R$", "лв.", "(", ")", "-", "−", "+", "’", "'", " ", "\u00a0", "\u202f", "E+",
            "e-", "%",
            "<", "≤", "T", ":", "AM", "p.m.", "Z", "UTC", "+02:00", "年", "月", "日", "~", " to ", " bis ",
            "jan",
            "март", "décembre", "act_", "c:", "/", '="', "\ufeff", "፩", "²", "①", "٣", "+", "более", "[{",
            "null",
        )
    ),
    most_bytes=400,
)  # fmt: skip
