"""From the records of a file to staging rows: normalised, keyed, and each bad one explained."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, BinaryIO

from app.kernel.canonical import canonical_json
from app.uploads.reading import actions, aliases, cells, dates, numbers, totals
from app.uploads.reading.cells import Problem
from app.uploads.reading.entities import Carried, Entities, Staged
from app.uploads.reading.header import Column
from app.uploads.reading.plan import Plan
from app.uploads.reading.records import Broken

REMEMBERED = 8_000
"""Distinct cells that a column keeps in mind with what they mean."""

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


@dataclass(slots=True)
class Tally:
    """What is counted and added up while a file is read."""

    data: int = 0
    totals_skipped: int = 0
    spend: Decimal = Decimal(0)  # of every data row, rejected ones included
    file_total: Decimal | None = None  # spend of the first total row
    warnings: set[str] = field(default_factory=set)


class _Memo(dict[Any, Any]):
    """What each distinct cell of a column means, worked out once."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __missing__(self, cell: Any) -> Any:
        if len(self) >= REMEMBERED:
            self.clear()
        value = self[cell] = self._read(cell)
        return value


class Rows:
    """One reading of a file by its plan. `tally` is complete when the rows are exhausted."""

    def __init__(self, plan: Plan, *, scope: Sequence[str | None], today: date) -> None:
        """`scope`: workspace, client and platform, which begin every natural key."""
        self.tally = Tally()
        self._plan = plan
        self._width = len(plan.columns)
        self._tomorrow = today + timedelta(days=1)
        self._entities = Entities(plan, scope)
        self._key_begin = canonical_json(list(scope))[:-1].decode()
        self._days = _Memo(self._day)
        self._metrics = [self._metric(name) for name in aliases.METRICS]
        self._columns = [(memo, column.index) for memo, column in self._metrics if column]
        self._absent = "".join(
            f',"{name}":null'
            for name, (_, column) in zip(aliases.METRICS, self._metrics, strict=True)
            if column is None
        )
        self._currency_column = plan.column("currency")
        self._currencies = _Memo(self._currency)
        spend = self._metrics[0][1]
        self._spend_index = spend.index if spend else None
        self._amounts = _Memo(self._amount)
        hours = [plan.column("metric_hour")] if plan.column("metric_hour") else []
        self._breakdown = [c.index for c in (*plan.all_of("breakdown"), *hours) if c]
        self._breakdowns = _Memo(_json_list)
        self._fingerprinted = any(_leaves_open(column) for column in plan.columns)

    def read(self, file: BinaryIO) -> Iterator[list[Staged]]:
        """For each data row its staging rows, in file order: new entities first, then the day.

        Row indexes are dense, from 0: totals, subtotals and blank lines take none.
        """
        for line, record in self._plan.records(file):
            if isinstance(record, Broken):
                problem = Problem("malformed_row", record.why)
                yield [self._rejected(line, [record.text], [problem])]
                continue
            staged = self._row(line, record)
            if staged:
                yield staged

    def _row(self, line: int, row: list[str]) -> list[Staged]:
        extra = None
        if len(row) != self._width:
            extra = next((cell for cell in row[self._width :] if cell.strip()), None)
            row = row[: self._width] + [""] * (self._width - len(row)) if extra is None else row
        carried = self._entities.of(row)
        day = self._day_of(row)
        if (carried.suspect or not isinstance(day, str)) and self._is_no_data(row, carried, day):
            return []
        spent = self._amounts[row[self._spend_index]] if self._spend_index is not None else None
        if spent is not None:
            self.tally.spend += spent
        if extra is not None:
            return [self._rejected(line, row, [Problem("too_many_columns", extra)])]
        return self._data(line, row, carried, day)

    def _data(self, line: int, row: list[str], carried: Carried, day: str | Problem) -> list[Staged]:
        metrics = [memo[row[index]] for memo, index in self._columns]
        currency = self._currency_of(row)
        breakdown = self._breakdown_of(row)
        try:
            # Joining is the check: a Problem among the parts is no text.
            members = "".join([*metrics, breakdown, self._fingerprint(row)])  # type: ignore[list-item]
            key_day = '"' + day + '",'  # type: ignore[operator]
            ending = ',"currency":"' + currency + '"'  # type: ignore[operator]
        except TypeError:
            return [self._rejected(line, row, self._problems(row, carried, day, currency, metrics))]
        if carried.problem:
            return [self._rejected(line, row, self._problems(row, carried, day, currency, metrics))]
        row_index = self.tally.data
        self.tally.data += 1
        staged = [] if carried.fragment else self._entities.introduce(carried, row_index)
        key = f"{self._key_begin},{key_day}{carried.key}]"
        raw = f'{{"line":{line},"date":"{day}"{carried.fragment}{ending}{members}{self._absent}'
        raw += "}" if carried.has_real_id else ',"by_name":true}'
        key_hash = hashlib.sha256(key.encode()).hexdigest()
        staged.append(Staged("daily_metric", row_index, key_hash, raw))
        return staged

    def _rejected(self, line: int, row: list[str], problems: list[Problem]) -> Staged:
        row_index = self.tally.data
        self.tally.data += 1
        return Staged("daily_metric", row_index, "", f'{{"line":{line}}}', rejection(line, row, problems))

    def _problems(
        self, row: list[str], carried: Carried, day: object, currency: object, metrics: list[object]
    ) -> list[Problem]:
        found = [
            day,
            carried.problem,
            currency,
            *metrics,
            self._fingerprint(row),
            self._breakdown_of(row),
        ]
        problems = [problem for problem in found if isinstance(problem, Problem)]
        order = {column.header: column.index for column in self._plan.columns}
        # A row about no single day is that before anything else.
        return sorted(problems, key=lambda p: (p.code != "date_range", order.get(p.column, self._width)))

    # -- rows that are no data

    def _is_no_data(self, row: list[str], carried: Carried, day: str | Problem) -> bool:
        said = [cell for cell in row if not cells.is_null(cell)]
        if not said or (len(said) == 1 and totals.is_no_data(said[0])):
            return True
        day_cells = [row[column.index] for column in self._plan.day_columns]
        if carried.subtotal or any(map(dates.is_subtotal, day_cells)):
            self.tally.totals_skipped += 1
            return True
        has_metric = any(not cells.is_null(row[index]) for _, index in self._columns)
        labelled = carried.labelled and (not isinstance(day, str) or self._has_id_column)
        dated_label = carried.blank and any(map(totals.is_label, day_cells))
        if not has_metric or not (self._is_blank_total(carried) or labelled or dated_label):
            return False
        self.tally.totals_skipped += 1
        self._remember_total(row, day)
        return True

    def _is_blank_total(self, carried: Carried) -> bool:
        return carried.blank and self._has_entity_column

    def _remember_total(self, row: list[str], day: str | Problem) -> None:
        # A total of one day, as pivot tables have it, is no total of the file.
        of_file = not isinstance(day, str) or len(self._plan.day_columns) == 2
        if of_file and self.tally.file_total is None and self._spend_index is not None:
            self.tally.file_total = self._amounts[row[self._spend_index]]

    @property
    def _has_entity_column(self) -> bool:
        return self._plan.column(*aliases.ENTITY_FIELDS) is not None

    @property
    def _has_id_column(self) -> bool:
        return self._plan.column("campaign_id", "ad_set_id", "ad_id") is not None

    # -- the parts of a row

    def _day_of(self, row: list[str]) -> str | Problem:
        columns = self._plan.day_columns
        if len(columns) == 1:
            return self._days[row[columns[0].index]]  # type: ignore[no-any-return]
        if not columns:
            return Problem("date_range", "a period" if not self._plan.preamble else self._plan.preamble[-1])
        return self._days[row[columns[0].index], row[columns[1].index]]  # type: ignore[no-any-return]

    def _day(self, cell: str | tuple[str, str]) -> str | Problem:
        """The ISO date of a day's cell, or of the two ends of a range."""
        header = self._plan.day_columns[0].header
        ends = [cell] if isinstance(cell, str) else list(cell)
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
            self.tally.warnings.add("future_date")
        return day.isoformat()

    def _metric(self, name: str) -> tuple[_Memo, Column | None]:
        """How a metric's cells become a JSON member, and the column that has them."""
        for source in (name, *_OTHER_SOURCES.get(name, ())):
            column = self._plan.column(source)
            if column and (read := READERS.get((name, column.type))):
                return _Memo(self._member(name, column, read)), column
        return _Memo(str), None

    def _member(self, name: str, column: Column, read: Read) -> Callable[[str], str | Problem]:
        def member(cell: str) -> str | Problem:
            value = read(cell, self._plan.decimal_mark)
            if isinstance(value, Problem):
                return Problem(value.code, value.value, column.header)
            if value is None:
                return f',"{name}":null'
            if name == "spend" and value < 0:
                self.tally.warnings.add("negative_spend")
            return f',"{name}":{format(value.normalize() + 0, "f")}'

        return member

    def _amount(self, cell: str) -> Decimal | None:
        """The spend in a cell, for adding up; None where there is none to add."""
        column = self._metrics[0][1]
        assert column is not None
        value = READERS["spend", column.type](cell, self._plan.decimal_mark)
        return value if isinstance(value, Decimal) else None

    def _currency_of(self, row: list[str]) -> str | Problem:
        column = self._currency_column
        return self._currencies[row[column.index] if column else ""]  # type: ignore[no-any-return]

    def _currency(self, cell: str) -> str | Problem:
        header = self._currency_column.header if self._currency_column else ""
        value = cells.currency(cell)
        if isinstance(value, Problem):
            return Problem(value.code, value.value, header)
        return value or self._plan.currency or Problem("missing_currency", "", header)

    def _breakdown_of(self, row: list[str]) -> str | Problem:
        if not self._breakdown:
            return ""
        return self._breakdowns[tuple([row[index] for index in self._breakdown])]  # type: ignore[no-any-return]

    def _fingerprint(self, row: list[str]) -> str | Problem:
        """Tells apart rows that differ only in columns that are not stored."""
        if not self._fingerprinted:
            return ""
        text = "\x1f".join(row)
        if "\x00" in text:
            return Problem("invalid_character", next(cell for cell in row if "\x00" in cell))
        return f',"rest":{zlib.crc32(text.encode("utf-8", "surrogatepass"))}'


_OTHER_SOURCES = {
    "spend": ("spend_micros",),
    "conversions": ("actions",),
    "conversion_value": ("action_values",),
}


def _leaves_open(column: Column) -> bool:
    """Whether rows may differ in this column and yet be staged alike."""
    return column.field in ("", *aliases.UNSTORED) and bool(column.header)


def _json_list(values: tuple[str, ...]) -> str | Problem:
    texts = [cells.text(value) for value in values]
    for text in texts:
        if isinstance(text, Problem):
            return text
    return f',"breakdown":{json.dumps(texts, ensure_ascii=False)}'


def rejection(line: int, row: Sequence[str], problems: Sequence[Problem]) -> str:
    """JSON of `validation_errors`: the physical line, the original cells, and what is wrong.

    Characters that PostgreSQL cannot store are shown by the replacement picture ␀.
    """
    found = {
        "line": line if line > 0 else None,
        "cells": [_shown(cell) for cell in row],
        "errors": [
            {"code": p.code, "column": p.column or None, "value": _shown(p.value)[:200]} for p in problems
        ],
    }
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _shown(cell: str) -> str:
    if cells.storable(cell):
        return cell
    return cell.replace("\x00", "␀").encode("utf-8", "replace").decode()
