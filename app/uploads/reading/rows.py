"""From the records of a file to staging rows: normalised, keyed, and each bad one explained."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from operator import attrgetter
from typing import Any, BinaryIO

from app.kernel.canonical import canonical_json
from app.uploads.reading import aliases, cells, dates, totals
from app.uploads.reading.cells import Problem
from app.uploads.reading.duplicates import Repeats
from app.uploads.reading.entities import Carried, Entities, Staged
from app.uploads.reading.meaning import Meaning
from app.uploads.reading.plan import Plan
from app.uploads.reading.records import BLOCK_RECORDS, Broken, Cells
from app.uploads.reading.rejection import rejection


@dataclass(slots=True)
class Tally:
    """What is counted and added up while a file is read."""

    data: int = 0
    rejected: int = 0  # of them
    totals_skipped: int = 0
    spend: Decimal = Decimal(0)  # of every data row, rejected ones included
    file_total: Decimal | None = None  # spend of the first total row
    warnings: set[str] = field(default_factory=set)


class Rows:
    """One reading of a file by its plan. `tally` and `repeats` are complete when the rows are exhausted.

    Nothing is wrong with most rows of a report. Those of a block are made all at once, column by column; any
    other is looked at by itself.
    """

    def __init__(self, plan: Plan, *, scope: Sequence[str | None], today: date) -> None:
        """`scope`: workspace, client and platform, which begin every natural key."""
        self._plan = plan
        self._width = len(plan.columns)
        self._entities = Entities(plan, scope)
        self._meaning = Meaning(plan, today=today)
        self._key_begin = canonical_json(list(scope))[:-1].decode()
        self.tally = Tally(warnings=self._meaning.warnings)
        self.repeats = Repeats()

    def read(self, file: BinaryIO, *, at_once: int = BLOCK_RECORDS) -> Iterator[list[Staged]]:
        """The staging rows of up to so many records, again and again, in file order.

        Of each data row first its new entities, then its day. Row indexes are dense, from 0: totals,
        subtotals and blank lines take none.
        """
        for begins, rows in self._plan.blocks(file, size=at_once):
            if staged := self._block(begins, rows):
                yield staged

    # -- many rows at once

    def _block(self, lines: Sequence[int], rows: Sequence[Cells]) -> list[Staged]:
        if not self._width or set(map(len, rows)) != {self._width}:
            return [staged for at in range(len(rows)) for staged in self._record(lines[at], rows[at])]
        columns = list(zip(*rows, strict=True))
        carried = self._entities.of_all(rows)  # type: ignore[arg-type]
        days = self._meaning.days(columns, len(rows))
        members, odd = self._meaning.member_columns(columns, rows)  # type: ignore[arg-type]
        odd.update(at for at, one in enumerate(carried) if one.odd)
        odd.update(at for at, day in enumerate(days) if isinstance(day, Problem))
        staged: list[Staged] = []
        begin = 0
        for end in (*sorted(odd), len(rows)):
            run = slice(begin, end)
            if begin < end:
                if self._meaning.spend_index is not None:
                    self.tally.spend += self._meaning.spent(columns[self._meaning.spend_index][run])
                said = [column[run] for column in members]
                staged += self._alike(lines[run], days[run], carried[run], said)
            if end < len(rows):
                staged += self._record(lines[end], rows[end])
            begin = end + 1
        return staged

    def _alike(
        self, lines: Sequence[int], days: Sequence[Any], carried: Sequence[Carried], members: list[Any]
    ) -> list[Staged]:
        """Data rows with nothing wrong, and what they name for the first time."""
        begin = self.tally.data
        named = [
            entity
            for at, one in enumerate(carried)
            if not one.members
            for entity in self._entities.introduce(one, begin + at)
        ]
        raws = [
            f'{{"line":{line},"date":"{day}"{one.members}{"".join(said)}}}'
            for line, day, one, said in zip(lines, days, carried, zip(*members, strict=True), strict=True)
        ]
        keys = [
            hashlib.sha256(f'{self._key_begin},"{day}",{one.key}]'.encode()).hexdigest()
            for day, one in zip(days, carried, strict=True)
        ]
        self.repeats.look_at(keys)
        self.tally.data += len(raws)
        indexes = range(begin, self.tally.data)
        staged = list(map(Staged, itertools.repeat("daily_metric"), indexes, keys, raws))
        return sorted(named + staged, key=attrgetter("row_index")) if named else staged

    # -- one record

    def _record(self, line: int, row: Cells) -> list[Staged]:
        if isinstance(row, Broken):
            return [self._rejected(line, [row.text], [Problem("malformed_row", row.why)])]
        extra = None
        if len(row) != self._width:
            extra = next((cell for cell in row[self._width :] if cell.strip()), None)
            row = row[: self._width] + [""] * (self._width - len(row)) if extra is None else row
        carried = self._entities.of(row)
        day = self._meaning.day(row)
        if (carried.suspect or not isinstance(day, str)) and self._is_no_data(row, carried, day):
            return []
        if self._meaning.spend_index is not None:
            self.tally.spend += self._meaning.spent([row[self._meaning.spend_index]])
        if extra is not None:
            return [self._rejected(line, row, [Problem("too_many_columns", extra)])]
        members = self._meaning.members(row)
        found = [part for part in (day, carried.problem, *members) if isinstance(part, Problem)]
        if found:
            return [self._rejected(line, row, self._in_order(found))]
        return self._alike([line], [day], [carried], [[said] for said in members])

    def _rejected(self, line: int, row: list[str], problems: list[Problem]) -> Staged:
        row_index = self.tally.data
        self.tally.data += 1
        self.tally.rejected += 1
        return Staged("daily_metric", row_index, "", f'{{"line":{line}}}', rejection(line, row, problems))

    def _in_order(self, problems: list[Problem]) -> list[Problem]:
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
        has_metric = any(not cells.is_null(row[index]) for index in self._meaning.metric_indexes)
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
        if of_file and self.tally.file_total is None and self._meaning.spend_index is not None:
            self.tally.file_total = self._meaning.amount(row[self._meaning.spend_index])

    @property
    def _has_entity_column(self) -> bool:
        return self._plan.column(*aliases.ENTITY_FIELDS) is not None

    @property
    def _has_id_column(self) -> bool:
        return self._plan.column("campaign_id", "ad_set_id", "ad_id") is not None
