"""Single cells: which are empty, and what an id, a text or a currency in one means."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

NULLS = frozenset({"", "--", "-", "—", "–", "N/A", "n/a", "[]"})
"""What platforms write into a cell that has no value."""

ALL = frozenset(
    """
    all alle todos todas tous toutes tutti tutte alles все すべて 全て 全部 所有 전체 الكل
    """.split()
)
"""What a pivot table writes into a breakdown cell of a subtotal, folded."""

CURRENCIES = frozenset(
    """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN
    BZD CAD CDF CHF CLF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL
    GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF
    KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR
    MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG
    SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD
    UYU UZS VED VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWL
    """.split()
)
"""ISO 4217, with the codes that left it while today's platforms still had reports in them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a cell cannot be taken: a code of `codes.ROW_CODES` and the cell."""

    code: str
    value: str = ""
    column: str = ""


def is_null(cell: str) -> bool:
    """Whether the cell stands for "no value"."""
    return cell.strip() in NULLS


def is_all(cell: str) -> bool:
    """Whether the cell marks a subtotal over its column."""
    return cell.strip().casefold() in ALL


def text(cell: str) -> str | Problem | None:
    """The cell as stored: NFC, trimmed; None for a null token."""
    value = cell.strip()
    if value in NULLS:
        return None
    if not storable(value):
        return Problem("invalid_character", cell)
    if not value.isascii():
        value = unicodedata.normalize("NFC", value).strip()
    # A spreadsheet's mark for "this is text", which the list of rejected rows writes, too.
    return value[1:] if value[0] == "'" and _MARKED_TEXT.match(value) else value


def storable(cell: str) -> bool:
    """Whether PostgreSQL can store the text: no NUL, no half of a surrogate pair."""
    return "\x00" not in cell and (cell.isascii() or not _SURROGATE.search(cell))


_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKED_TEXT = re.compile(r"^'[=+\-@]")
_WRAPPED = re.compile(r'^="(.*)"$')
_PREFIX = re.compile(r"^(?:act_|(?:cg|c|a|tp|o|x):)(?=\d)")
_RESOURCE = re.compile(r"^(?:[a-zA-Z]+/[\d~]+/)*[a-zA-Z]+/([\d~]+)$")
_HYPHENATED = re.compile(r"^\d{3}-\d{3}-\d{4}$")
_SCIENTIFIC = re.compile(r"^\d(?:[.,]\d+)?[eE]\+?\d+$")
_FLOAT = re.compile(r"^(\d{1,15})[.,]0+$")
ID_CHARACTERS = 128
_ID = re.compile(rf"^\w[\w:~-]{{0,{ID_CHARACTERS - 1}}}$")
_UNSET = frozenset({"(not set)", "(not provided)"})


def entity_id(cell: str) -> str | Problem | None:
    """A platform's id as text, without what exports and spreadsheets wrap around it."""
    if cell.isascii() and cell.isdigit() and len(cell) <= ID_CHARACTERS:
        return cell
    value = unicodedata.normalize("NFKC", cell).strip()
    if value in NULLS or value in _UNSET:
        return None
    if wrapped := _WRAPPED.match(value):
        value = wrapped[1].strip()
        if value in NULLS:
            return None
    value = _PREFIX.sub("", value.lstrip("'"))
    if _SCIENTIFIC.match(value):
        return Problem("id_scientific_notation", cell)
    if resource := _RESOURCE.match(value):
        value = resource[1]
    elif _HYPHENATED.match(value):
        value = value.replace("-", "")
    elif whole := _FLOAT.match(value):
        value = whole[1]  # up to 15 digits a float is exact
    if not _ID.match(value):
        return Problem("invalid_id" if storable(value) else "invalid_character", cell)
    return value


def currency(cell: str) -> str | Problem | None:
    """An ISO 4217 code."""
    value = cell.strip().upper()
    if value in NULLS:
        return None
    return value if value in CURRENCIES else Problem("invalid_currency", cell)
