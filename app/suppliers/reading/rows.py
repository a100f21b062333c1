"""What each row of a list is: a good one with its facts, a bad one, or no data at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from app.suppliers.config import Config, Extra
from app.suppliers.reading import cells
from app.suppliers.reading.cells import Fault, Money, Price, Quantity, Stock
from app.suppliers.reading.header import Header
from app.suppliers.reading.names import folded
from app.suppliers.reading.sheets import Row

MEMO_VALUES = 200_000
"""Different cells of a column whose meaning is remembered."""

RAW_CHARACTERS = 200


class _Memo(dict[Any, Any]):
    """What the cells of one column mean, each worked out once."""

    def __init__(self, rule: Any) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, cell: Any) -> Any:
        found = self._rule(cell)
        if len(self) < MEMO_VALUES:
            self[cell] = found
        return found

    def of(self, cell: Any) -> Any:
        # 1, 1.0 and True are one key of a dictionary and three things in a list.
        return self[cell] if type(cell) is str else self._rule(cell)


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that is refused: the code, the column and what stood there."""

    code: str
    column: str
    raw: str
    sku: str | None = None  # where the row has a code


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row with goods that is no fact all the same: the code, and the goods."""

    code: str
    sku: str


@dataclass(slots=True)
class Fact:
    """One thing for sale in one place."""

    row_number: int
    category_key: str
    payload: dict[str, Any]


@dataclass(slots=True)
class Tally:
    """How many rows there were of each kind."""

    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    rounded: int = 0


class Rules:
    """The rules of one config, worked out once for all sheets."""

    def __init__(self, config: Config) -> None:
        self.config = config
        price, qty = config.columns.price, config.columns.qty
        self.sku = _Memo(cells.sku)
        money = Money(
            exponent=config.exponent, decimal=price.decimal, group=price.group, strip=price.strip,
            on_request=price.on_request,
        )  # fmt: skip
        self.price = _Memo(money.parse)
        quantity = Quantity(
            decimal=qty.decimal, group=qty.group, words=dict(qty.words), negative=qty.negative
        )
        self.qty = _Memo(quantity.parse)
        self.text = _Memo(cells.text)
        self.extra = {name: _extra_rule(extra, config) for name, extra in config.extra.items()}
        self.fixed = cells.of_word(qty.fixed) if qty.fixed is not None else None
        self.totals = tuple(folded(word) for word in config.rows.totals)
        self.currency = folded(config.currency)


def _extra_rule(extra: Extra, config: Config) -> _Memo:
    if extra.type == "money":
        money = Money(exponent=config.exponent, decimal=extra.decimal, group=extra.group, strip=extra.strip)
        return _Memo(lambda cell: _or_none(money.parse(cell)))
    return _Memo((lambda cell: _or_none(cells.sku(cell))) if extra.type == "code" else cells.text)


def _or_none(found: Any) -> Any:
    if isinstance(found, Price):
        return found.minor
    return None if isinstance(found, Fault) else found


_NUMBERED = re.compile(r"\d+")


class SheetRows:
    """The rows below the header of one sheet."""

    def __init__(self, rules: Rules, header: Header, category_key: str, *, tally: Tally) -> None:
        self._rules = rules
        self._header = header
        self._category = category_key
        self._tally = tally
        self._columns = header.columns
        self._width = max(header.columns.values(), default=-1) + 1
        self._structure = self._blanks(rules.config.rows.structure_when_blank)
        self._warehouses = [
            (self._columns[f"qty.{index}"], warehouse.warehouse)
            for index, warehouse in enumerate(rules.config.columns.qty.warehouses)
            if f"qty.{index}" in self._columns
        ]

    def _blanks(self, fields: tuple[str, ...]) -> list[int]:
        """The columns that are all blank in a row of structure; none when there is no such rule."""
        found = []
        for name in fields:
            if name == "qty" and self._rules.config.columns.qty.warehouses:
                found += [at for field_, at in self._columns.items() if field_.startswith("qty.")]
            elif name in self._columns:
                found.append(self._columns[name])
        return found

    def read(self, rows: Iterator[Row]) -> Iterator[tuple[int, list[Fact] | Bad | Skipped]]:
        """Each row that names goods, with its facts or why it has none; the others are counted.

        White rows after the last one that shows something are no rows at all.
        """
        blank = 0
        first = True
        for number, row in rows:
            if len(row) < self._width:
                row = row + [None] * (self._width - len(row))
            if all(map(cells.is_blank, row)):
                blank += 1
                first = False
                continue
            self._tally.skipped["BLANK_ROW"] += blank
            blank = 0
            code = self._no_data(row, first=first)
            first = False
            if code is None:
                yield number, self._facts(number, row)
            else:
                self._tally.skipped[code] += 1

    def _no_data(self, row: list[Any], *, first: bool) -> str | None:
        if first and _is_numbering(row):
            return "NUMBERING_ROW"
        if self._header.names and _is_header(row, self._header):
            return "HEADER_REPEAT"
        if self._rules.totals and _first_text(row).startswith(self._rules.totals):
            return "TOTAL_ROW"
        if self._structure and all(cells.is_blank(row[at]) for at in self._structure):
            return "STRUCTURE_ROW"
        return None

    # -- the fields of a row

    def _facts(self, number: int, row: list[Any]) -> list[Fact] | Bad | Skipped:
        rules, columns = self._rules, self._columns
        sku = rules.sku.of(self._cell(row, "sku"))
        if type(sku) is not str:
            return self._bad(sku, row, "sku")
        price = rules.price.of(self._cell(row, "price"))
        if type(price) is not Price:
            if price is cells.ON_REQUEST:
                return Skipped("PRICE_ON_REQUEST", sku)
            return self._bad(price, row, "price", sku)
        stocks = self._stocks(row)
        if isinstance(stocks, Bad):
            return replace(stocks, sku=sku)
        if not stocks:
            return Skipped("NO_STOCK", sku)
        if (at := columns.get("currency")) is not None and not self._is_agreed(row[at]):
            return self._bad(Fault("CURRENCY_MISMATCH"), row, "currency", sku)
        self._tally.rounded += price.rounded
        common = self._common(row, sku, price)
        return [Fact(number, self._category, {**common, **stock}) for stock in stocks]

    def _cell(self, row: list[Any], name: str) -> Any:
        cell = row[self._columns[name]]
        fallback = self._columns.get(f"{name}.fallback")
        return row[fallback] if fallback is not None and cells.is_blank(cell) else cell

    def _is_agreed(self, cell: Any) -> bool:
        return folded(cells.shown(cell)) == self._rules.currency

    def _stocks(self, row: list[Any]) -> list[dict[str, Any]] | Bad:
        """The stock of the row, for each warehouse that has a figure."""
        if self._rules.config.columns.qty.warehouses:
            return self._by_warehouse(row)
        stock: Stock | Bad | None = self._rules.fixed or self._stock(row, self._columns.get("qty"))
        if isinstance(stock, Bad):
            return stock
        if stock is None:
            return []
        found = _figures(stock)
        if (at := self._columns.get("warehouse")) is not None:
            warehouse = self._rules.text.of(row[at])
            if warehouse is None:
                return self._bad(Fault("WAREHOUSE_EMPTY"), row, "warehouse")
            found["warehouse"] = warehouse
        return [found]

    def _by_warehouse(self, row: list[Any]) -> list[dict[str, Any]] | Bad:
        found = []
        for at, warehouse in self._warehouses:
            stock = self._stock(row, at)
            if isinstance(stock, Bad):
                return stock
            if stock is not None:
                found.append({**_figures(stock), "warehouse": warehouse})
        return found

    def _stock(self, row: list[Any], at: int | None) -> Stock | Bad | None:
        cell = row[at] if at is not None else None
        stock = self._rules.qty.of(cell)
        if type(stock) is Stock:
            return stock
        if stock is cells.EMPTY_STOCK and self._rules.config.columns.qty.blank != "bad":
            return Stock(0) if self._rules.config.columns.qty.blank == "zero" else None
        return Bad(stock.code, "qty", _raw(cell))

    def _common(self, row: list[Any], sku: str, price: Price) -> dict[str, Any]:
        found: dict[str, Any] = {
            "sku": sku, "price_minor": price.minor, "currency": self._rules.config.currency,
        }  # fmt: skip
        for name in ("name", "brand"):
            if getattr(self._rules.config.columns, name) is not None:
                at = self._columns.get(name)
                found[name] = None if at is None else self._rules.text.of(row[at])
        for name, rule in self._rules.extra.items():
            at = self._columns.get(f"extra.{name}")
            key = f"{name}_minor" if self._rules.config.extra[name].type == "money" else name
            found[key] = None if at is None else rule.of(row[at])
        return found

    def _bad(self, fault: Fault, row: list[Any], column: str, sku: str | None = None) -> Bad:
        return Bad(fault.code, column, _raw(row[self._columns[column]]), sku)


def _raw(cell: Any) -> str:
    return cells.shown(cell)[:RAW_CHARACTERS]


def _figures(stock: Stock) -> dict[str, Any]:
    found: dict[str, Any] = {"qty": stock.qty, "qty_min": stock.at_least}
    if stock.raw is not None:
        found["qty_raw"] = stock.raw
    return found


def _is_numbering(row: list[Any]) -> bool:
    shown = [cells.shown(cell).strip() for cell in row if not cells.is_blank(cell)]
    return len(shown) > 1 and shown == [str(number) for number in range(1, len(shown) + 1)]


def _is_header(row: list[Any], header: Header) -> bool:
    """Whether the row names the columns once more: those that are read, and any other as well."""
    return all(
        folded(cells.shown(row[at])) == header.names[at]
        for at in header.columns.values()
        if at < len(header.names)
    )


def _first_text(row: list[Any]) -> str:
    return next((folded(cell) for cell in row if isinstance(cell, str) and not cell.isspace() and cell), "")
