"""What a cell says: as a code, a text, a price or a stock figure, by the rules of its column.

A reader gives a cell as str, int, float or None; as `Truth` where it is true or false; as a date where the
file says so; as a `Fault` where there is no value. No two cells that differ in meaning are equal, as 1 and
True would be: what a cell says may be looked up. Each rule gives its value, or a `Fault` with the code for
which the row is refused.
"""

from __future__ import annotations

import enum
import math
import re
import unicodedata
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple, TypeAlias

from app.suppliers.reading.names import folded, squeezed

MAX_INTEGER = 2**53 - 1
"""The greatest integer that every reader of JSON understands."""

LONG_NUMBER = 1e15
"""From here on a spreadsheet's number has lost digits."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a cell has no value that counts: a code of the registry."""

    code: str


class Truth(enum.Enum):
    """A cell that is true or false."""

    TRUE = "true"
    FALSE = "false"


FORMULA_NO_VALUE = Fault("FORMULA_NO_VALUE")
CELL_ERROR = Fault("CELL_ERROR")

Cell: TypeAlias = Any


def is_blank(cell: Cell) -> bool:
    """Whether the cell shows nothing."""
    return cell is None or (isinstance(cell, str) and (not cell or cell.isspace()))


def shown(cell: Cell) -> str:
    """The cell as text, as a spreadsheet shows it: 15 digits, no `.0`."""
    if cell is None or isinstance(cell, Fault):
        return ""
    if isinstance(cell, Truth):
        return str(cell.value)
    if isinstance(cell, float):
        return number_text(cell)
    return str(cell)


def number_text(value: float) -> str:
    """A number in plain digits, 15 of them at most."""
    if abs(value) < LONG_NUMBER and value.is_integer():
        return str(int(value))
    if not math.isfinite(value):
        return str(value)
    return format(Decimal(f"{value:.15g}").normalize() + 0, "f")


def text(cell: Cell) -> str | None:
    """The cell as text; None when it shows nothing."""
    return squeezed(cell if type(cell) is str else shown(cell)) or None


EMPTY_SKU, INVALID_SKU, IMPRECISE_SKU = Fault("SKU_EMPTY"), Fault("SKU_INVALID"), Fault("SKU_PRECISION")
_FLOATED = re.compile(r"\d+\.0")
_SCIENTIFIC = re.compile(r"\d+(?:[.,]\d+)?[eE]\+?\d+")


def sku(cell: Cell) -> str | Fault:
    """The cell as a code: the digits that it was given, leading zeros too."""
    if type(cell) is str:
        return _sku_of_text(cell)
    if cell is None:
        return EMPTY_SKU
    if isinstance(cell, Fault):
        return cell
    if not isinstance(cell, int | float):
        return INVALID_SKU
    if cell != cell or abs(cell) >= LONG_NUMBER:
        return IMPRECISE_SKU
    return number_text(cell) if isinstance(cell, float) else str(cell)


def _sku_of_text(cell: str) -> str | Fault:
    if not (cell.isascii() and cell.isprintable()) or " " in cell:
        cell = " ".join(unicodedata.normalize("NFKC", cell).split())
    if not cell:
        return EMPTY_SKU
    if cell.isdigit() or not cell[0].isdigit():
        return cell
    if _SCIENTIFIC.fullmatch(cell):
        return IMPRECISE_SKU
    return cell[:-2] if _FLOATED.fullmatch(cell) else cell


def _spelling(mark: str, group: str | None) -> re.Pattern[str]:
    blanks = " " if group is None else f" {re.escape(group)}"
    return re.compile(
        rf"([-+]?)(\d{{1,3}}(?:([{blanks}])\d{{3}})(?:\3\d{{3}})*|\d+)(?:{re.escape(mark)}(\d+))?"
    )


LONGEST_NUMBER = 40
"""Characters of a number in a text; what is longer is no price and no stock, and costly to work out."""


class Number:
    """How numbers are written in one column."""

    def __init__(self, *, decimal: str, group: str | None) -> None:
        self._group = group
        self._pattern = _spelling(decimal, group)

    def parse(self, found: str) -> Decimal | None:
        """The number in a text without blanks around it; None when it is none."""
        if len(found) > LONGEST_NUMBER:
            return None
        if found.isascii() and found.isdigit():
            return Decimal(found)
        match = self._pattern.fullmatch(" ".join(found.replace("−", "-").split()))
        if not match:
            return None
        whole = match[2].replace(" ", "")
        if self._group:
            whole = whole.replace(self._group, "")
        return Decimal(f"{match[1]}{whole}.{match[4] or '0'}")


class Price(NamedTuple):
    """An amount in minor units."""

    minor: int
    rounded: bool = False


EMPTY_PRICE, UNPARSABLE_PRICE = Fault("PRICE_EMPTY"), Fault("PRICE_UNPARSABLE")
NOT_POSITIVE_PRICE, TOO_LARGE_PRICE = Fault("PRICE_NOT_POSITIVE"), Fault("PRICE_TOO_LARGE")
ON_REQUEST = Fault("PRICE_ON_REQUEST")

_EXACT = Context(prec=2 * LONGEST_NUMBER)


class Money:
    """How prices are written in one column."""

    def __init__(
        self, *, exponent: int, decimal: str, group: str | None, strip: tuple[str, ...],
        on_request: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._unit = 10**exponent
        self._exponent = exponent
        self._decimal = decimal
        self._number = Number(decimal=decimal, group=group)
        self._strip = sorted((folded(word) for word in strip), key=len, reverse=True)
        self._on_request = {folded(word) for word in on_request}
        self._plain = not any(letter.isdigit() for word in (*strip, *on_request) for letter in word)

    def parse(self, cell: Cell) -> Price | Fault:
        """The cell as an amount in minor units, rounded half up where it has more digits."""
        if 0 < (minor := self._at_sight(cell)) <= MAX_INTEGER:
            return Price(minor)
        value = self._value(cell)
        if isinstance(value, Fault):
            return value
        exact = _EXACT.multiply(value, Decimal(self._unit))
        minor = int(exact.to_integral_value(ROUND_HALF_UP))
        if minor <= 0:
            return NOT_POSITIVE_PRICE
        if minor > MAX_INTEGER:
            return TOO_LARGE_PRICE
        return Price(minor, minor != exact)

    def _at_sight(self, cell: Cell) -> int:
        """The amount where it is as plain as most are, worked out in a fifth of the time; else 0."""
        if type(cell) is float and 0 < cell < LONG_NUMBER:
            # The float beside a decimal of at most 15 digits is that decimal, as spreadsheets show it.
            minor = round(cell * self._unit)
            return minor if minor < LONG_NUMBER and minor / self._unit == cell else 0
        if type(cell) is str and cell.isascii() and len(cell) < 15 and self._plain:
            whole, mark, rest = cell.partition(self._decimal)
            if whole.isdigit() and (rest.isdigit() or not mark) and len(rest) <= self._exponent:
                return int(whole + rest.ljust(self._exponent, "0"))
        return 0

    def _value(self, cell: Cell) -> Decimal | Fault:
        if isinstance(cell, Fault):
            return cell
        if isinstance(cell, str):
            return EMPTY_PRICE if is_blank(cell) else self._value_of_text(cell)
        if isinstance(cell, int):
            return Decimal(cell)
        if isinstance(cell, float):
            return Decimal(f"{cell:.15g}") if math.isfinite(cell) else UNPARSABLE_PRICE
        return EMPTY_PRICE if cell is None else UNPARSABLE_PRICE

    def _value_of_text(self, cell: str) -> Decimal | Fault:
        found = cell.strip()
        if self._on_request or self._strip:
            found = folded(found)
            if found in self._on_request:
                return ON_REQUEST
            for word in self._strip:
                found = found.removeprefix(word).removesuffix(word).strip()
        number = self._number.parse(found)
        return UNPARSABLE_PRICE if number is None else number


class Stock(NamedTuple):
    """A stock figure; `at_least` when there may be more, `raw` when it was written in words."""

    qty: int
    at_least: bool = False
    raw: str | None = None


EMPTY_STOCK, UNPARSABLE_STOCK = Fault("QTY_EMPTY"), Fault("QTY_UNPARSABLE")
NEGATIVE_STOCK, BROKEN_STOCK = Fault("QTY_NEGATIVE"), Fault("QTY_NOT_INTEGER")
TOO_LARGE_STOCK = Fault("QTY_TOO_LARGE")
_AT_LEAST = re.compile(r"(?:>=?|≥|больше|более|свыше|от)\s*+(?P<after>.+)|(?P<before>.+?)(?<!\s)\s*+\+")


class Quantity:
    """How stock is written in one column."""

    def __init__(
        self, *, decimal: str, group: str | None, words: dict[str, int | str], negative: str
    ) -> None:
        self._number = Number(decimal=decimal, group=group)
        self._words = {folded(word): of_word(value) for word, value in words.items()}
        self._negative = negative

    def parse(self, cell: Cell) -> Stock | Fault:
        """The cell as a stock figure."""
        if isinstance(cell, Fault):
            return cell
        if isinstance(cell, str):
            if cell.isascii() and cell.isdigit() and len(cell) < 15 and cell not in self._words:
                return Stock(int(cell))
            return EMPTY_STOCK if is_blank(cell) else self._of_text(cell)
        if isinstance(cell, int):
            return self._figure(Decimal(cell))
        if isinstance(cell, float):
            return self._figure(Decimal(f"{cell:.15g}")) if math.isfinite(cell) else UNPARSABLE_STOCK
        if isinstance(cell, Truth):
            return self._words.get(folded(shown(cell)), UNPARSABLE_STOCK)
        return EMPTY_STOCK if cell is None else UNPARSABLE_STOCK

    def _of_text(self, cell: str) -> Stock | Fault:
        found = folded(cell)
        if found in self._words:
            known = self._words[found]
            return Stock(known.qty, known.at_least, squeezed(cell))
        number = self._number.parse(found)
        if number is not None:
            return self._figure(number)
        match = _AT_LEAST.fullmatch(found)
        number = self._number.parse((match["after"] or match["before"]).strip()) if match else None
        if number is None:
            return UNPARSABLE_STOCK
        figure = self._figure(number)
        return figure if isinstance(figure, Fault) else Stock(figure.qty, True, squeezed(cell))

    def _figure(self, value: Decimal) -> Stock | Fault:
        if value < 0:
            return Stock(0) if self._negative == "zero" else NEGATIVE_STOCK
        if value != value.to_integral_value():
            return BROKEN_STOCK
        return Stock(int(value)) if value <= MAX_INTEGER else TOO_LARGE_STOCK


def of_word(value: int | str) -> Stock:
    """What a config says that a word means: a number, or `N+`."""
    written = str(value)
    return Stock(int(written.removesuffix("+")), written.endswith("+"))
