"""Numbers as reports write them: the decimal mark is decided for a whole file, never for a cell."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from app.uploads.reading.cells import NULLS, Problem

MARKS = (".", ",")
MAX_MONEY = Decimal(10) ** 12  # numeric(18,6)
MAX_COUNT = 2**63 - 1  # bigint
MICRO = Decimal("0.000001")

# Signs and letters that platforms and spreadsheets write beside an amount. A sign is a hint and
# not the currency: `$` is two dozen of them.
_MARK = (
    r"(?:[A-Z]{1,3}\$|[$€£¥₩₹₽₺₴₪₫฿₱₦₡₲₵₸₼₾₭₮¢]|[A-Z]{3}|R\$|S/|Rp|RM|kr\.?|zł|Kč|Ft|лв\.?|руб\.?|р\.|TL"
    r"|lei|円|元|원|圓)"
)
# What is repeated gives nothing back (`*+`): where blanks could belong to either of two neighbours, a cell of
# a few hundred of them would be tried in millions of ways.
_AMOUNT = re.compile(
    rf"^(?P<open>\()?\s*+(?P<sign>[-+])?\s*+(?:{_MARK})?\s*+(?P<sign2>[-+])?\s*+"
    rf"(?P<body>\d[\d.,'’ ]*+|[.,]\d++)\s*+(?:{_MARK})?\s*+(?P<close>\))?$",
    re.ASCII,
)
# Platforms tell less than they know: a share of impressions is "< 10%".
_BOUND = re.compile(rf"^[<>≤≥]=?\s*+(?:{_MARK})?\s*+\d[\d.,]*+\s*+%?$", re.ASCII)
_EXPONENT = re.compile(r"^[-+]?\d+(?:\.\d+)?[eE][-+]?\d{1,2}$", re.ASCII)
_POINT = re.compile(r"^-?\d+\.(?:\d\d?|\d{4,})$", re.ASCII)  # as most amounts are written: no thousands
_SIMPLE = re.compile(r"^-?\d{1,11}\.\d{1,6}$", re.ASCII)
_WRITTEN_PLAINLY = {
    "": re.compile(r"(?:(?:0|[1-9]\d{0,17}+)\n)*+\Z", re.ASCII),
    **{
        mark: re.compile(rf"(?:(?:0|[1-9]\d{{0,10}}+)(?:{re.escape(mark)}\d{{1,6}}+)?+\n)*+\Z", re.ASCII)
        for mark in MARKS
    },
}
_OTHER_THOUSANDS = "'’ "
# Arabic, Persian and full-width digits, marks and blanks, as the ASCII ones that they mean.
_DIGITS = str.maketrans(
    "٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹０１２３４５６７８９٫٬，．−\u00a0\u202f\u2009\u2007",
    "0123456789" * 3 + ".,,.-    ",
)


@dataclass(slots=True)
class MarkEvidence:
    """What the cells of some columns say about the decimal mark of their file."""

    votes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MARKS, 0))
    undecided: str = ""  # a cell that could be read either way

    def look_at(self, cells: Collection[str], *, whole: bool = False) -> None:
        """Count each cell that could only be written with one of the two marks.

        `whole` cells are counts: what could be thousands in them is thousands.
        """
        together = "".join(cells)
        if together.isascii() and "." not in together and "," not in together:
            return
        for cell in cells:
            mark = _mark_of(cell)
            if mark == "?" and whole:
                mark = "," if "." in cell else "."
            if mark in self.votes:
                self.votes[mark] += 1
            elif mark == "?" and not self.undecided:
                self.undecided = cell

    def mark(self, *, minority_percent: int = 10) -> str | None:
        """The mark that the cells agree on; None when they say nothing or contradict each other.

        A few outliers are rows to reject: contradiction begins above `minority_percent`.
        """
        most = max(self.votes, key=lambda mark: self.votes[mark])
        total = sum(self.votes.values())
        if not total or (total - self.votes[most]) * 100 > total * minority_percent:
            return None
        return most

    @property
    def contradictory(self) -> bool:
        return sum(self.votes.values()) > 0 and self.mark() is None


def _mark_of(cell: str) -> str:
    """`.` or `,` when the cell is a number with that decimal mark alone, `?` when with either."""
    if cell.isascii() and "." not in cell and "," not in cell:
        return ""
    if _POINT.match(cell):
        return "."
    match = _AMOUNT.match(cell.strip().translate(_DIGITS))
    if not match:
        return ""
    body = match["body"].strip()
    possible = [mark for mark in ".," if _plain(body, mark) is not None]
    if len(possible) != 1:
        return "?" if len(possible) == 2 and ("." in body or "," in body) else ""
    return possible[0]


def plain(cells: Sequence[str], mark: str) -> list[str] | None:
    """The digits of numbers that are written as most are, with a point and no zeros at the end.

    None when one of them is written in any other way. `mark`: the decimal mark, "" where there is none.
    """
    lines = "\n".join(cells) + "\n"
    if not _WRITTEN_PLAINLY[mark].match(lines) or lines.count("\n") != len(cells):
        return None
    if not mark:
        return list(cells)
    plainly = lines.replace(",", ".").split()
    return [cell.rstrip("0").rstrip(".") if "." in cell else cell for cell in plainly]


def number(cell: str, mark: str) -> Decimal | Problem | None:
    """The number in a cell, exactly; None for a null token and for a bound such as `< 10%`."""
    if (cell.isascii() and cell.isdigit()) or (mark == "." and _SIMPLE.match(cell)):
        return Decimal(cell)
    value = cell.strip()
    if value in NULLS:
        return None
    value = value.translate(_DIGITS)
    if _BOUND.match(value):
        return None
    if _EXPONENT.match(value):  # as JSON writes very small and very large floats
        return Decimal(value)
    match = _AMOUNT.match(value)
    if not match:
        return Problem("invalid_number", cell)
    signs = [sign for sign in (match["sign"], match["sign2"], match["open"]) if sign]
    if len(signs) > 1 or bool(match["open"]) != bool(match["close"]):
        return Problem("invalid_number", cell)
    digits = _plain(match["body"].strip(), mark)
    if digits is None:
        return Problem("invalid_number", cell)
    # Not by a minus, which is a sum and rounds.
    return Decimal(digits).copy_negate() if signs and signs[0] != "+" else Decimal(digits)


_GROUPED = {
    separator: re.compile(rf"^[1-9]\d{{0,2}}(?:{re.escape(separator)}\d{{3}})+$", re.ASCII)
    for separator in f".,{_OTHER_THOUSANDS}"
}
_INDIAN = re.compile(r"^\d{1,2}(?:,\d{2})+,\d{3}$", re.ASCII)


def _plain(body: str, mark: str) -> str | None:
    whole, _, fraction = body.partition(mark)
    if fraction and not (fraction.isascii() and fraction.isdigit()):
        return None
    if whole.isdigit() or not whole:
        return f"{whole or '0'}.{fraction or '0'}"
    for separator, grouped in _GROUPED.items():
        if separator != mark and separator in whole:
            if grouped.match(whole) or (separator == "," and _INDIAN.match(whole)):
                return f"{whole.replace(separator, '')}.{fraction or '0'}"
            return None
    return None


def money(cell: str, mark: str) -> Decimal | Problem | None:
    """An amount in major units, to a millionth."""
    value = number(cell, mark)
    if isinstance(value, Decimal):
        if abs(value) >= MAX_MONEY:
            return Problem("invalid_number", cell)
        value = value.quantize(MICRO)
    return value


def micros(cell: str, mark: str) -> Decimal | Problem | None:
    """An amount that is written in millionths, in major units."""
    value = number(cell, mark)
    if isinstance(value, Decimal):
        value = value / 1_000_000
        if abs(value) >= MAX_MONEY:
            return Problem("invalid_number", cell)
        value = value.quantize(MICRO)
    return value


def fractional(cell: str, mark: str) -> Decimal | Problem | None:
    """A count that may have a fraction, as conversions do."""
    value = money(cell, mark)
    if isinstance(value, Decimal) and value < 0:
        return Problem("negative_count", cell)
    return value


def count(cell: str, mark: str) -> Decimal | Problem | None:
    """A whole number of things. In such a column a lone mark before three digits is thousands."""
    value = number(cell, mark)
    if isinstance(value, Decimal):
        if value < 0:
            return Problem("negative_count", cell)
        if value != value.to_integral_value() or value > MAX_COUNT:
            return Problem("invalid_number", cell)
        value = value.to_integral_value()
    return value
