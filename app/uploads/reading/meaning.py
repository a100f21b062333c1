"""What the cells of a row say, as members of the JSON that is staged for its day."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

from app.uploads.reading import actions, aliases, cells, dates, numbers
from app.uploads.reading.cells import Problem
from app.uploads.reading.header import Column
from app.uploads.reading.memo import Memo
from app.uploads.reading.plan import Plan

Read = Callable[[str, str], Decimal | Problem | None]

READERS: dict[tuple[str, str], Read] = {
    # metric             type       how its cells are read
    ("spend", "money"): numbers.money,
    ("spend", "micros"): numbers.micros,
    ("impressions", "int"): numbers.count,
    ("clicks", "int"): numbers.count,
    ("link_clicks", "int"): numbers.count,
    ("reach", "int"): numbers.count,
    ("conversions", "decimal"): numbers.fractional,
    ("conversions", "list"): actions.purchases,
    ("conversion_value", "money"): numbers.money,
    ("conversion_value", "list"): actions.purchases,
}
_OTHER_SOURCES = {
    "spend": ("spend_micros",),
    "conversions": ("actions",),
    "conversion_value": ("action_values",),
}
_ZERO = Decimal(0)
SHORT = 19
"""A count of fewer digits is one that can be stored, and is read without further ado."""

Said = str | Problem
"""A JSON member with its leading comma, or why there is none."""


class _Single(NamedTuple):
    """A column that says one thing of its row. `mark`: its decimal mark, where cells may be plain digits."""

    memo: Memo[str, Said]
    place: int
    name: str = ""
    mark: str | None = None

    def plain(self, column: Sequence[str]) -> list[Said] | None:
        """What the cells say, where most differ and all are plain numbers, which need no look at each."""
        if self.mark is None or not _differ(column):
            return None
        digits = numbers.plain(column, self.mark)
        return None if digits is None else [f',"{self.name}":{number}' for number in digits]


def _differ(cells_of_column: Sequence[str]) -> bool:
    """Whether it is not worth while to remember what each cell says."""
    return 2 * len(set(cells_of_column)) > len(cells_of_column)


class Meaning:
    """The meaning of every cell of one file but those that name entities.

    `warnings` grows while it is read.
    """

    def __init__(self, plan: Plan, *, today: date) -> None:
        self.warnings: set[str] = set()
        self._plan = plan
        self._tomorrow = today + timedelta(days=1)
        self._day_columns = plan.day_columns
        self._days: Memo[tuple[str, ...], Said] = Memo(self._day)
        self._currency_column = plan.column("currency")
        metrics = {name: self._metric(name) for name in aliases.METRICS}
        spend = metrics["spend"]
        self.metric_indexes = [column.index for column in metrics.values() if column]
        self.spend_index = spend.index if spend else None
        self._spend_type = spend.type if spend else ""
        self._spend_mark = self._mark(spend) if spend else None
        self._amounts: Memo[str, Decimal] = Memo(lambda cell: self.amount(cell) or _ZERO)
        self._single = [
            _Single(Memo(self._member(name, column)), column.index, name, self._mark(column))
            for name, column in metrics.items()
            if column
        ]
        if self._currency_column:
            self._single.insert(0, _Single(Memo(self._currency), self._currency_column.index))
        hours = [plan.column("metric_hour")] if plan.column("metric_hour") else []
        self._breakdown = [c.index for c in (*plan.all_of("breakdown"), *hours) if c]
        self._breakdowns: Memo[tuple[str, ...], Said] = Memo(_json_list)
        self._fingerprinted = any(_leaves_open(column) for column in plan.columns)
        currency = "" if self._currency_column else self._currency("")
        absent = "".join(f',"{name}":null' for name, column in metrics.items() if column is None)
        self._always: Said = currency + absent if isinstance(currency, str) else currency

    # -- days

    def day(self, row: Sequence[str]) -> Said:
        """The ISO date of the row's day."""
        if not self._day_columns:
            preamble = self._plan.preamble
            return Problem("date_range", preamble[-1] if preamble else "a period")
        return self._days[tuple([row[column.index] for column in self._day_columns])]

    def days(self, columns: Sequence[Sequence[str]], rows: int) -> list[Said]:
        """The day of each of so many rows, given as columns."""
        if not self._day_columns:
            return [self.day(())] * rows
        ends = [columns[column.index] for column in self._day_columns]
        return list(map(self._days.__getitem__, zip(*ends, strict=True)))

    def _day(self, ends: tuple[str, ...]) -> Said:
        """The ISO date of a day's cell, or of the two ends of a range."""
        header = self._day_columns[0].header
        found = [dates.day(end, self._plan.date_order) for end in ends]
        for day in found:
            if isinstance(day, Problem):
                return Problem(day.code, day.value, header)
        if None in found:
            return Problem("missing_date", "", header)
        if len(set(found)) > 1:
            return Problem("date_range", f"{ends[0]} to {ends[1]}", header)
        day = found[0]
        assert isinstance(day, date)
        if day > self._tomorrow:
            self.warnings.add("future_date")
        return day.isoformat()

    # -- everything else

    def members(self, row: Sequence[str]) -> list[Said]:
        """What the row says of its day."""
        said = [self._always, *(each.memo[row[each.place]] for each in self._single)]
        if self._fingerprinted:
            said.append(_fingerprint(row))
        if self._breakdown:
            said.append(self._breakdowns[tuple([row[index] for index in self._breakdown])])
        return said

    def member_columns(
        self, columns: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]
    ) -> tuple[list[list[Said]], set[int]]:
        """What each row says of its day, as columns; and which rows have Problems."""
        said: list[list[Said]] = []
        problems: set[int] = set()

        def add(column: list[Said], *, clean: bool) -> None:
            said.append(column)
            if not clean:
                problems.update(at for at, member in enumerate(column) if isinstance(member, Problem))

        add([self._always] * len(rows), clean=isinstance(self._always, str))
        for each in self._single:
            column = columns[each.place]
            if (found := each.plain(column)) is not None:
                said.append(found)
            else:
                add(list(map(each.memo.__getitem__, column)), clean=each.memo.clean)
        if self._fingerprinted:
            add(list(map(_fingerprint, rows)), clean=False)
        if self._breakdown:
            values = zip(*(columns[index] for index in self._breakdown), strict=True)
            found = list(map(self._breakdowns.__getitem__, values))
            add(found, clean=self._breakdowns.clean)
        return said, problems

    def _metric(self, name: str) -> Column | None:
        """The column that has the metric."""
        for source in (name, *_OTHER_SOURCES.get(name, ())):
            column = self._plan.column(source)
            if column and (name, column.type) in READERS:
                return column
        return None

    def _mark(self, column: Column) -> str | None:
        """The decimal mark in the column's numbers; None for what is not written in digits alone."""
        return {"int": "", "money": self._plan.decimal_mark, "decimal": self._plan.decimal_mark}.get(
            column.type
        )

    def _member(self, name: str, column: Column) -> Callable[[str], Said]:
        read = READERS[name, column.type]
        counts = column.type == "int"
        mark = self._plan.decimal_mark

        def member(cell: str) -> Said:
            if counts and len(cell) < SHORT and cell.isascii() and cell.isdigit():
                return f',"{name}":{int(cell)}'
            value = read(cell, mark)
            if isinstance(value, Problem):
                return Problem(value.code, value.value, column.header)
            if value is None:
                return f',"{name}":null'
            if name == "spend" and value < 0:
                self.warnings.add("negative_spend")
            return f',"{name}":{format(value.normalize() + 0, "f")}'

        return member

    def _currency(self, cell: str) -> Said:
        header = self._currency_column.header if self._currency_column else ""
        found = cells.currency(cell)
        if isinstance(found, Problem):
            return Problem(found.code, found.value, header)
        code = found or self._plan.currency
        return f',"currency":"{code}"' if code else Problem("missing_currency", "", header)

    # -- the spend, for adding up

    def amount(self, cell: str) -> Decimal | None:
        """The spend in a cell; None where there is none to add."""
        value = READERS["spend", self._spend_type](cell, self._plan.decimal_mark)
        return value if isinstance(value, Decimal) else None

    def spent(self, cells_of_spend: Sequence[str]) -> Decimal:
        """The sum of the spend in these cells."""
        if self._spend_mark is not None and _differ(cells_of_spend):
            if (plain := numbers.plain(cells_of_spend, self._spend_mark)) is not None:
                return sum(map(Decimal, plain), _ZERO)
        return sum(map(self._amounts.__getitem__, cells_of_spend), _ZERO)


def _leaves_open(column: Column) -> bool:
    """Whether rows may differ in this column and yet be staged alike."""
    return column.field in ("", *aliases.UNSTORED) and bool(column.header)


def _fingerprint(row: Sequence[str]) -> Said:
    """Tells apart rows that differ only in columns that are not stored."""
    text = "\x1f".join(row)
    if "\x00" in text:
        return Problem("invalid_character", next(cell for cell in row if "\x00" in cell))
    return f',"rest":{zlib.crc32(text.encode("utf-8", "surrogatepass"))}'


def _json_list(values: tuple[str, ...]) -> Said:
    texts = [cells.text(value) for value in values]
    for text in texts:
        if isinstance(text, Problem):
            return text
    return f',"breakdown":{json.dumps(texts, ensure_ascii=False)}'
