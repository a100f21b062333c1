"""How the payload of a fact is spelled: RFC 8785, so that equal payloads have equal bytes and one hash.

A payload holds nothing but texts, whole numbers, truth values and null under ASCII keys; then sorted keys
without blanks are all that RFC 8785 asks. Most rows are put together from fragments: what a cell comes to
in a payload is worked out once for each different cell of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import orjson

from app.suppliers.reading.cells import Cell

Fields: TypeAlias = dict[str, Any]

REMEMBERED = 20_000
"""Different cells of a column whose fragments are kept: names, prices; not every code of a long list."""

STOCK = "qty"
"""The place of `qty`, `qty_min` and `qty_raw`, which come from one cell and stand side by side."""


class Fact(NamedTuple):
    """One thing for sale in one place: its code and warehouse, spelled, and its payload."""

    sku: bytes
    warehouse: bytes
    payload: bytes


def spelled(value: str | None) -> bytes:
    """The one spelling of a text. (orjson spells it the same, and takes a kilobyte of memory to do so.)"""
    return b"null" if value is None else encode_basestring(value).encode()


def members(fields: Fields) -> bytes:
    """The spelling of these fields, without the braces around them."""
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)[1:-1]


def fact(fields: Fields) -> Fact:
    """The fact with these fields."""
    payload = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return Fact(spelled(fields["sku"]), spelled(fields.get("warehouse")), payload)


class Rounded(bytes):
    """The fragment of a price that has been rounded."""


class Fragments(dict[Cell, Any]):
    """What the cells of one column come to in a payload; None where a row needs a closer look."""

    def __init__(self, fragment: Callable[[Cell], bytes | None]) -> None:
        super().__init__()
        self._fragment = fragment

    def __missing__(self, cell: Cell) -> bytes | None:
        found = self._fragment(cell)
        if len(self) < REMEMBERED:
            self[cell] = found
        return found


@dataclass(frozen=True, slots=True)
class Part:
    """One member of the payload: from a column by its fragments, or the same in every row."""

    key: str
    at: int | None
    fragments: Fragments | None = None
    constant: bytes = b"null"


class Template:
    """The payloads of one sheet, put together from the fragments of its cells."""

    def __init__(self, parts: list[Part], *, checked: list[Part], stocks: Mapping[int, bytes] | None) -> None:
        """`checked` must be in order and say nothing. `stocks` are the columns of several warehouses."""
        parts = sorted(parts, key=lambda part: part.key)
        varying = [part for part in parts if part.fragments is not None] + checked
        # Never fewer than two, so that a getter gives a tuple: there is a code and a price.
        self._pick = itemgetter(*[part.at for part in varying])
        self._fragments = [part.fragments for part in varying if part.fragments is not None]
        places = {part.key: place for place, part in enumerate(varying)}
        self._sku, self._price = places["sku"], places["price_minor"]
        self._warehouse = places.get("warehouse")
        self._stock = places.get(STOCK)
        self._spelling = _spelling(parts, len(checked))
        self._stocks = [
            (at, warehouse, _spelling([*parts, Part("warehouse", None, constant=warehouse)], len(checked)))
            for at, warehouse in (stocks or {}).items()
        ]

    def facts(self, row: list[Cell]) -> tuple[list[Fact], bool] | None:
        """The facts of the row and whether its price was rounded; None when it needs a closer look."""
        found = [known[cell] for known, cell in zip(self._fragments, self._pick(row))]  # noqa: B905 (speed)
        try:
            if self._stocks:
                facts = self._by_warehouse(row, found)
            else:
                warehouse = found[self._warehouse] if self._warehouse is not None else b"null"
                facts = [Fact(found[self._sku], warehouse, self._spelling % tuple(found))]
        except TypeError:  # one of them is None, and None has no bytes
            return None
        return (facts, type(found[self._price]) is Rounded) if facts else None

    def _by_warehouse(self, row: list[Cell], found: list[Any]) -> list[Fact]:
        assert self._stock is not None
        known = self._fragments[self._stock]
        facts = []
        for at, warehouse, spelling in self._stocks:
            stock = known[row[at]]
            if stock != b"":  # as that of a warehouse without a figure is
                found[self._stock] = stock
                facts.append(Fact(found[self._sku], warehouse, spelling % tuple(found)))
        return facts


def _spelling(parts: list[Part], checked: int) -> bytes:
    found = []
    for part in sorted(parts, key=lambda one: one.key):
        value = b"%b" if part.fragments is not None else part.constant.replace(b"%", b"%%")
        found.append(value if part.key == STOCK else b'"%b":%b' % (part.key.encode(), value))
    return b"{" + b",".join(found) + b"}" + b"%b" * checked
