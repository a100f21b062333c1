"""The rules of one config: what a cell of each field comes to, as a value and as a part of a payload."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from app.suppliers.reading import cells
from app.suppliers.reading.cells import Fault, Money, Price, Quantity, Stock
from app.suppliers.reading.names import folded
from app.suppliers.reading.payloads import (
    Fragments,
    Rounded,
    are_codes_at_sight,
    are_texts_at_sight,
    members,
    spelled,
)

if TYPE_CHECKING:
    from app.suppliers.config import Config, Extra

Rule: TypeAlias = Callable[[cells.Cell], Any]


class Rules:
    """The rules of one config, worked out once for all sheets."""

    def __init__(self, config: Config) -> None:
        self.config = config
        price, qty = config.columns.price, config.columns.qty
        self.price = Money(
            exponent=config.exponent, decimal=price.decimal, group=price.group, strip=price.strip,
            on_request=price.on_request,
        ).parse  # fmt: skip
        self.quantity = Quantity(
            decimal=qty.decimal, group=qty.group, words=dict(qty.words), negative=qty.negative
        ).parse
        self.texts: dict[str, Rule] = {}  # by the key of the payload, which is then the field's name as well
        for name in ("name", "brand"):
            if getattr(config.columns, name) is not None:
                self.texts[name] = cells.text
        self.extra = {name: _extra_rule(extra, config) for name, extra in config.extra.items()}
        self.fixed = cells.of_word(qty.fixed) if qty.fixed is not None else None
        self.totals = tuple(folded(word) for word in config.rows.totals)
        self.may_begin_total = _Initials(self.totals)
        self.fragments = self._fragments()

    def key_of(self, extra: str) -> str:
        """The key of the payload under which an extra field comes."""
        return f"{extra}_minor" if self.config.extra[extra].type == "money" else extra

    def stock(self, cell: cells.Cell) -> Stock | Fault | None:
        """The stock figure in a cell; None where a blank one is none."""
        found = self.quantity(cell)
        if found is cells.EMPTY_STOCK and self.config.columns.qty.blank != "bad":
            return Stock(0) if self.config.columns.qty.blank == "zero" else None
        return found

    def is_agreed(self, cell: cells.Cell) -> bool:
        """Whether a cell names the currency of the list."""
        return folded(cells.shown(cell)) == folded(self.config.currency)

    def _fragments(self) -> dict[str, Fragments]:
        """What cells come to in a payload, by field."""
        stock, blank = self.stock, b"" if self.config.columns.qty.warehouses else None
        found = {
            "sku": Fragments(_of_text(cells.sku), at_sight=are_codes_at_sight),
            "price": Fragments(_of_price(self.price)),
            "qty": Fragments(lambda cell: _of_stock(stock(cell), blank)),
            "warehouse": _texts(lambda cell: cells.text(cell) or EMPTY_WAREHOUSE),
            "currency": Fragments(lambda cell: b"" if self.is_agreed(cell) else None),
        }
        found |= {name: _texts(rule) for name, rule in self.texts.items()}
        for name, rule in self.extra.items():
            found[f"extra.{name}"] = _EXTRA_FRAGMENTS[self.config.extra[name].type](rule)
        return found


EMPTY_WAREHOUSE = Fault("WAREHOUSE_EMPTY")


def _of_text(rule: Rule) -> Rule:
    def fragment(cell: cells.Cell) -> bytes | None:
        found = rule(cell)
        return None if isinstance(found, Fault) else spelled(found)

    return fragment


class _Initials(dict[str, bool]):
    """By the first letter of a cell: whether the cell may begin with one of these words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__({"": bool(words)})
        self._bases = {_base(word) for word in words}

    def __missing__(self, letter: str) -> bool:
        found = (bool(self._bases) and letter.isspace()) or _base(folded(letter)) in self._bases
        self[letter] = found
        return found


def _base(word: str) -> str:
    """The first letter without what may stand above it, which can be a character of its own."""
    return unicodedata.normalize("NFKD", word)[:1]


def _texts(rule: Rule) -> Fragments:
    return Fragments(_of_text(rule), at_sight=are_texts_at_sight)


def _of_amount(rule: Rule) -> Rule:
    def fragment(cell: cells.Cell) -> bytes:
        found = rule(cell)
        return b"null" if found is None else b"%d" % found

    return fragment


def _of_price(rule: Rule) -> Rule:
    def fragment(cell: cells.Cell) -> bytes | None:
        found = rule(cell)
        if isinstance(found, Fault):
            return None
        return Rounded(b"%d" % found.minor) if found.rounded else b"%d" % found.minor

    return fragment


def _of_stock(stock: Stock | Fault | None, blank: bytes | None) -> bytes | None:
    if stock is None:
        return blank
    return None if isinstance(stock, Fault) else members(figures(stock))


def _extra_rule(extra: Extra, config: Config) -> Rule:
    if extra.type == "money":
        money = Money(exponent=config.exponent, decimal=extra.decimal, group=extra.group, strip=extra.strip)
        return lambda cell: _or_none(money.parse(cell))
    return (lambda cell: _or_none(cells.sku(cell))) if extra.type == "code" else cells.text


def _or_none(found: Any) -> Any:
    if isinstance(found, Price):
        return found.minor
    return None if isinstance(found, Fault) else found


_EXTRA_FRAGMENTS: dict[str, Callable[[Rule], Fragments]] = {
    "text": _texts,
    "code": lambda rule: Fragments(_of_text(rule), at_sight=are_codes_at_sight),
    "money": lambda rule: Fragments(_of_amount(rule)),
}


def figures(stock: Stock) -> dict[str, Any]:
    """The members of a payload that a stock figure comes to."""
    found: dict[str, Any] = {"qty": stock.qty, "qty_min": stock.at_least}
    if stock.raw is not None:
        found["qty_raw"] = stock.raw
    return found
