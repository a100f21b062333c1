"""What each row of a list is: a good one with its facts, a bad one, or no data at all."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from app.suppliers.reading import cells
from app.suppliers.reading.cells import Fault, Price, Stock
from app.suppliers.reading.header import Header
from app.suppliers.reading.names import folded
from app.suppliers.reading.payloads import STOCK, Fact, Facts, Found, Part, Template, fact, members, spelled
from app.suppliers.reading.rules import EMPTY_WAREHOUSE, Rules, figures
from app.suppliers.reading.sheets import Cells, Row, block, blocks

RAW_CHARACTERS = 200


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


@dataclass(frozen=True, slots=True)
class Block:
    """What some rows are: their facts in the order of the rows, and why others of them have none."""

    facts: Facts
    bad: list[tuple[int, Bad]] = field(default_factory=list)
    skipped: list[tuple[int, Skipped]] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """How many rows there were of each kind."""

    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    rounded: int = 0


class SheetRows:
    """The rows below the header of one sheet."""

    def __init__(self, rules: Rules, header: Header, *, tally: Tally) -> None:
        self._rules = rules
        self._header = header
        self._tally = tally
        self._columns = header.columns
        self._width = max(header.columns.values(), default=-1) + 1
        self._structure = self._blanks(rules.config.rows.structure_when_blank)
        self._warehouses = [
            (self._columns[f"qty.{index}"], warehouse.warehouse)
            for index, warehouse in enumerate(rules.config.columns.qty.warehouses)
            if f"qty.{index}" in self._columns
        ]
        self._template = self._quick()
        self._white = 0  # rows that show nothing, since the last one that shows something

    def _blanks(self, fields: tuple[str, ...]) -> list[int]:
        """The columns that are all blank in a row of structure; none when there is no such rule."""
        found = []
        for name in fields:
            if name == "qty" and self._rules.config.columns.qty.warehouses:
                found += [at for field_, at in self._columns.items() if field_.startswith("qty.")]
            elif name in self._columns:
                found.append(self._columns[name])
        return found

    def read(self, rows: Iterator[Row]) -> Iterator[Block]:
        """The rows that name goods, many at a time; the others are counted.

        White rows after the last one that shows something are no rows at all.
        """
        for first in itertools.islice(rows, 1):
            yield self._block(
                block([first], max(self._width, len(first[1]))), None
            )  # a row of numbers here is no data
        for some in blocks(rows, self._width):
            yield self._block(some, self._template)

    def _block(self, some: Cells, template: Template | None) -> Block:
        some = self._without_white_end(some)
        # The same as below, in a fraction of the time: most rows are good.
        plain = self._plain(some, template) if template else Found()
        self._tally.rounded += plain.rounded
        found = Block(plain.facts)
        known = set(plain.facts.numbers)
        if len(known) < len(some.numbers):
            left = enumerate(some.numbers)
            self._look_closer([(number, some.row(at)) for at, number in left if number not in known], found)
        return found

    def _without_white_end(self, some: Cells) -> Cells:
        shown = len(some.numbers)
        while shown and _is_white(some.row(shown - 1)):
            shown -= 1
        if shown:
            self._tally.skipped["BLANK_ROW"] += self._white
            self._white = 0
        self._white += len(some.numbers) - shown
        return some if shown == len(some.numbers) else some.some(list(range(shown)))

    def _plain(self, some: Cells, template: Template) -> Found:
        begins_total = self._rules.may_begin_total
        suspects = [
            at for at, cell in enumerate(some.column(0)) if type(cell) is not str or begins_total[cell[:1]]
        ]
        totals = {at for at in suspects if self._is_total(some.row(at))}
        if totals:
            some = some.some([at for at in range(len(some.numbers)) if at not in totals])
        return template.facts(some)

    def _look_closer(self, some: list[Row], block: Block) -> None:
        """What these rows are is added to what is known of their neighbours."""
        plain = len(block.facts.numbers)
        for number, row in some:
            if code := self._no_data(number, row):
                self._tally.skipped[code] += 1
                continue
            what = self._facts(row)
            if isinstance(what, Bad):
                block.bad.append((number, what))
            elif isinstance(what, Skipped):
                block.skipped.append((number, what))
            else:
                block.facts.add(number, what)
        if 0 < plain < len(block.facts.numbers):
            block.facts.sort()

    def _no_data(self, number: int, row: list[Any]) -> str | None:
        if _is_white(row):
            return "BLANK_ROW"
        if number == self._header.at + 1 and _is_numbering(row):
            return "NUMBERING_ROW"
        if self._header.names and _is_header(row, self._header):
            return "HEADER_REPEAT"
        if self._is_total(row):
            return "TOTAL_ROW"
        if self._structure and all(cells.is_blank(row[at]) for at in self._structure):
            return "STRUCTURE_ROW"
        return None

    def _is_total(self, row: list[Any]) -> bool:
        return _first_text(row).startswith(self._rules.totals)

    # -- the fields of a row, at first sight

    def _quick(self) -> Template | None:
        """How the payloads of good rows are put together; None where a good row could be no data."""
        rules, columns, config = self._rules, self._columns, self._rules.config
        parts = [Part("currency", None, constant=spelled(config.currency))]
        named = {"sku": "sku", "price_minor": "price", "warehouse": "warehouse"}
        named |= {name: name for name in rules.texts}
        named |= {rules.key_of(name): f"extra.{name}" for name in rules.extra}
        for key, name in named.items():
            if name in columns:
                parts.append(Part(key, columns[name], rules.fragments[name]))
            elif key != "warehouse":
                parts.append(Part(key, None))
        if rules.fixed:
            parts.append(Part(STOCK, None, constant=members(figures(rules.fixed))))
        elif (at := columns.get("qty", self._warehouses[0][0] if self._warehouses else None)) is not None:
            parts.append(Part(STOCK, at, rules.fragments["qty"]))
        checked = (
            [Part("", columns["currency"], rules.fragments["currency"])] if "currency" in columns else []
        )
        if not self._is_safe_at_first_sight({part.key for part in parts}):
            return None
        return Template(parts, checked=checked, stocks={at: spelled(name) for at, name in self._warehouses})

    def _is_safe_at_first_sight(self, keys: set[str]) -> bool:
        """Whether a row of good fields is data, and `qty` and its like are neighbours in the payload."""
        at = self._columns["price"]
        names = self._header.names
        header_is_price = at < len(names) and isinstance(self._rules.price(names[at]), Price)
        shows = {self._columns["sku"], self._columns["price"]}
        if "qty" in self._columns and self._rules.config.columns.qty.blank == "bad":
            shows.add(self._columns["qty"])
        may_be_structure = bool(self._structure) and not shows & set(self._structure)
        return not header_is_price and not may_be_structure and STOCK in keys and not any(
            STOCK < key < "qty_raw" for key in keys
        )  # fmt: skip

    # -- the fields of a row, at a closer look

    def _facts(self, row: list[Any]) -> list[Fact] | Bad | Skipped:
        rules, columns = self._rules, self._columns
        sku = cells.sku(self._cell(row, "sku"))
        if isinstance(sku, Fault):
            return self._bad(sku, row, "sku")
        price = rules.price(self._cell(row, "price"))
        if isinstance(price, Fault):
            if price is cells.ON_REQUEST:
                return Skipped("PRICE_ON_REQUEST", sku)
            return self._bad(price, row, "price", sku)
        stocks = self._stocks(row)
        if isinstance(stocks, Bad):
            return replace(stocks, sku=sku)
        if not stocks:
            return Skipped("NO_STOCK", sku)
        if (at := columns.get("currency")) is not None and not rules.is_agreed(row[at]):
            return self._bad(Fault("CURRENCY_MISMATCH"), row, "currency", sku)
        self._tally.rounded += price.rounded
        common = self._common(row, sku, price)
        return [fact({**common, **stock}) for stock in stocks]

    def _cell(self, row: list[Any], name: str) -> Any:
        cell = row[self._columns[name]]
        fallback = self._columns.get(f"{name}.fallback")
        return row[fallback] if fallback is not None and cells.is_blank(cell) else cell

    def _stocks(self, row: list[Any]) -> list[dict[str, Any]] | Bad:
        """The stock of the row, for each warehouse that has a figure."""
        if self._rules.config.columns.qty.warehouses:
            return self._by_warehouse(row)
        stock: Stock | Bad | None = self._rules.fixed or self._stock(row, self._columns.get("qty"))
        if isinstance(stock, Bad):
            return stock
        if stock is None:
            return []
        found = figures(stock)
        if (at := self._columns.get("warehouse")) is not None:
            warehouse = cells.text(row[at])
            if warehouse is None:
                return self._bad(EMPTY_WAREHOUSE, row, "warehouse")
            found["warehouse"] = warehouse
        return [found]

    def _by_warehouse(self, row: list[Any]) -> list[dict[str, Any]] | Bad:
        found = []
        for at, warehouse in self._warehouses:
            stock = self._stock(row, at)
            if isinstance(stock, Bad):
                return stock
            if stock is not None:
                found.append({**figures(stock), "warehouse": warehouse})
        return found

    def _stock(self, row: list[Any], at: int | None) -> Stock | Bad | None:
        cell = row[at] if at is not None else None
        stock = self._rules.stock(cell)
        return Bad(stock.code, "qty", _raw(cell)) if isinstance(stock, Fault) else stock

    def _common(self, row: list[Any], sku: str, price: Price) -> dict[str, Any]:
        rules = self._rules
        found: dict[str, Any] = {"sku": sku, "price_minor": price.minor, "currency": rules.config.currency}
        for name, rule in rules.texts.items():
            at = self._columns.get(name)
            found[name] = None if at is None else rule(row[at])
        for name, rule in rules.extra.items():
            at = self._columns.get(f"extra.{name}")
            found[rules.key_of(name)] = None if at is None else rule(row[at])
        return found

    def _bad(self, fault: Fault, row: list[Any], column: str, sku: str | None = None) -> Bad:
        return Bad(fault.code, column, _raw(row[self._columns[column]]), sku)


def _raw(cell: Any) -> str:
    return cells.shown(cell)[:RAW_CHARACTERS]


def _is_white(row: list[Any]) -> bool:
    return all(map(cells.is_blank, row))


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
