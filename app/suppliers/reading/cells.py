"""What a cell says: as a code, a text, a price or a stock figure, by the rules of its column.

A reader gives a cell as str, int, float, bool or None; as a date where the file says so; as a `Fault` where
there is no value. Each rule gives its value, or a `Fault` with the code for which the row is refused.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeAlias

from app.suppliers.reading.names import folded, squeezed

MAX_INTEGER = 2**53 - 1
"""The greatest integer that every reader of JSON understands."""

LONG_NUMBER = 1e15
"""From here on a spreadsheet's number has lost digits."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a cell has no value that counts: a code of the registry."""

    code: str


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
    if isinstance(cell, bool):
        return "true" if cell else "false"
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
    return squeezed(shown(cell)) or None


_FLOATED = re.compile(r"\d+\.0")
_SCIENTIFIC = re.compile(r"\d+(?:[.,]\d+)?[eE]\+?\d+")


def sku(cell: Cell) -> str | Fault:
    """The cell as a code: the digits that it was given, leading zeros too."""
    if type(cell) is str:
        found = " ".join(unicodedata.normalize("NFKC", cell).split())
        if not found:
            return Fault("SKU_EMPTY")
        if _SCIENTIFIC.fullmatch(found):
            return Fault("SKU_PRECISION")
        return found[:-2] if _FLOATED.fullmatch(found) else found
    if cell is None:
        return Fault("SKU_EMPTY")
    if isinstance(cell, Fault):
        return cell
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return Fault("SKU_INVALID")
    if cell != cell or abs(cell) >= LONG_NUMBER:
        return Fault("SKU_PRECISION")
    return number_text(cell) if isinstance(cell, float) else str(cell)


def _spelling(mark: str, group: str | None) -> re.Pattern[str]:
    blanks = " " if group is None else f" {re.escape(group)}"
    return re.compile(
        rf"([-+]?)(\d{{1,3}}(?:([{blanks}])\d{{3}})(?:\3\d{{3}})*|\d+)(?:{re.escape(mark)}(\d+))?"
    )


class Number:
    """How numbers are written in one column."""

    def __init__(self, *, decimal: str, group: str | None) -> None:
        self._group = group
        self._pattern = _spelling(decimal, group)

    def parse(self, found: str) -> Decimal | None:
        """The number in a text without blanks around it; None when it is none."""
        if found.isascii() and found.isdigit():
            return Decimal(found)
        match = self._pattern.fullmatch(" ".join(found.replace("−", "-").split()))
        if not match:
            return None
        whole = match[2].replace(" ", "")
        if self._group:
            whole = whole.replace(self._group, "")
        return Decimal(f"{match[1]}{whole}.{match[4] or '0'}")


@dataclass(frozen=True, slots=True)
class Price:
    """An amount in minor units."""

    minor: int
    rounded: bool = False


EMPTY_PRICE, UNPARSABLE_PRICE = Fault("PRICE_EMPTY"), Fault("PRICE_UNPARSABLE")
ON_REQUEST = Fault("PRICE_ON_REQUEST")


class Money:
    """How prices are written in one column."""

    def __init__(
        self, *, exponent: int, decimal: str, group: str | None, strip: tuple[str, ...],
        on_request: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._unit = Decimal(10) ** exponent
        self._number = Number(decimal=decimal, group=group)
        self._strip = sorted((folded(word) for word in strip), key=len, reverse=True)
        self._on_request = {folded(word) for word in on_request}

    def parse(self, cell: Cell) -> Price | Fault:
        """The cell as an amount in minor units, rounded half up where it has more digits."""
        value = self._value(cell)
        if isinstance(value, Fault):
            return value
        exact = value * self._unit
        minor = int(exact.to_integral_value(ROUND_HALF_UP))
        if minor <= 0:
            return Fault("PRICE_NOT_POSITIVE")
        if minor > MAX_INTEGER:
            return Fault("PRICE_TOO_LARGE")
        return Price(minor, minor != exact)

    def _value(self, cell: Cell) -> Decimal | Fault:
        if isinstance(cell, Fault):
            return cell
        if isinstance(cell, bool):
            return UNPARSABLE_PRICE
        if isinstance(cell, int):
            return Decimal(cell)
        if isinstance(cell, float):
            found = Decimal(f"{cell:.15g}")
            return found if found.is_finite() else UNPARSABLE_PRICE
        if is_blank(cell):
            return EMPTY_PRICE
        return self._value_of_text(cell) if isinstance(cell, str) else UNPARSABLE_PRICE

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


@dataclass(frozen=True, slots=True)
class Stock:
    """A stock figure; `at_least` when there may be more, `raw` when it was written in words."""

    qty: int
    at_least: bool = False
    raw: str | None = None


EMPTY_STOCK = Fault("QTY_EMPTY")
UNPARSABLE_STOCK = Fault("QTY_UNPARSABLE")
_AT_LEAST = re.compile(r"(?:>=?|≥|больше|более|свыше|от)\s*(?P<after>.+)|(?P<before>.+?)\s*\+")


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
        if isinstance(cell, bool):
            return self._words_or(shown(cell), UNPARSABLE_STOCK)
        if isinstance(cell, int):
            return self._figure(Decimal(cell))
        if isinstance(cell, float):
            found = Decimal(f"{cell:.15g}")
            return self._figure(found) if found.is_finite() else UNPARSABLE_STOCK
        if is_blank(cell):
            return EMPTY_STOCK
        return self._of_text(cell) if isinstance(cell, str) else UNPARSABLE_STOCK

    def _words_or(self, cell: str, other: Fault) -> Stock | Fault:
        return self._words.get(folded(cell), other)

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
            return Stock(0) if self._negative == "zero" else Fault("QTY_NEGATIVE")
        if value != value.to_integral_value():
            return Fault("QTY_NOT_INTEGER")
        return Stock(int(value)) if value <= MAX_INTEGER else Fault("QTY_TOO_LARGE")


def of_word(value: int | str) -> Stock:
    """What a config says that a word means: a number, or `N+`."""
    written = str(value)
    return Stock(int(written.removesuffix("+")), written.endswith("+"))
