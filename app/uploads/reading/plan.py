"""How one file is read: everything that is decided on the whole of it, before the first row counts."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, BinaryIO

from app.kernel import errors
from app.uploads.codes import file_sentence
from app.uploads.reading import aliases, cells, dates, encodings, formats, header, numbers, records
from app.uploads.reading.header import Column
from app.uploads.reading.records import Block, Cells

MAX_JSON_COLUMNS = 1000
EVIDENCE_RECORDS = 1000
"""A cell that stands often counts once in so many records."""
DAY_FIELDS = ("metric_date", "metric_hour")
HEADER_LINES = 200
HEADER_CHARACTERS = 1 << 20
"""Of the lines in which a header is looked for: several times a header of as many columns as may be."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What the uploader says about a file.

    A currency is for amounts whose file names none. The order of dates and the decimal mark hold for the
    whole file: cells that cannot be read so are refused, and nothing is guessed from the others.
    """

    currency: str | None = None
    date_order: str | None = None  # one of dates.ORDERS
    decimal_mark: str | None = None  # one of numbers.MARKS


@dataclass(frozen=True, slots=True)
class Plan:
    """The dialect of one file. It is stored with the upload, so that a second reading is the same."""

    platform: str
    kind: str  # csv, json or ndjson
    encoding: str
    delimiter: str | None = None
    header_line: int | None = None
    header_record: int | None = None
    rows_at: str | None = None
    columns: tuple[Column, ...] = ()
    decimal_mark: str = "."
    date_order: str | None = None
    currency: str | None = None  # of a row without its own: header suffix, else declared
    currency_found: tuple[str, ...] = ()
    preamble: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The plan as a JSON object, for `from_json`."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**own, "columns": [column.as_json() for column in self.columns]}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Plan:
        """The plan that was stored."""
        lists = {key: tuple(stored[key]) for key in ("currency_found", "preamble", "warnings")}
        columns = tuple(Column(**column) for column in stored["columns"])
        return cls(**{**stored, **lists, "columns": columns})

    def column(self, *fields: str) -> Column | None:
        """The column of the first of these fields that the file has."""
        for name in fields:
            for column in self.columns:
                if column.field == name:
                    return column
        return None

    def all_of(self, name: str) -> tuple[Column, ...]:
        """Every column of one field."""
        return tuple(column for column in self.columns if column.field == name)

    @property
    def day_columns(self) -> tuple[Column, ...]:
        """The column of the day, or those of a range's two ends; none when the file names no day."""
        if day := self.column(*DAY_FIELDS):
            return (day,)
        ends = self.column("range_start"), self.column("range_end")
        return (ends[0], ends[1]) if ends[0] and ends[1] else ()

    @property
    def unknown_columns(self) -> list[str]:
        return [column.header for column in self.columns if not column.field and column.header]

    def blocks(self, file: BinaryIO, *, size: int = records.BLOCK_RECORDS) -> Iterator[Block]:
        """The records below the header, with the cells in the order of the columns, some at a time."""
        if self.kind != "csv":
            found = self._json_records(file)
            while some := list(itertools.islice(found, size)):
                yield [begin for begin, _ in some], [row for _, row in some]
            return
        header_line = self.header_line or 0
        for begins, rows in records.csv_blocks(file, self.encoding, self.delimiter or ",", size=size):
            first = bisect.bisect_right(begins, header_line)
            if first < len(rows):
                yield begins[first:], rows[first:]

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Cells]]:
        """The records below the header, one by one, each with where it begins."""
        for begins, rows in self.blocks(file):
            yield from zip(begins, rows, strict=True)

    def _json_records(self, file: BinaryIO) -> Iterator[tuple[int, Cells]]:
        keys = [column.header for column in self.columns]
        for line, row in _objects(file, self):
            if isinstance(row, records.Broken):
                yield line, row
            else:
                found = dict(records.flat(row))
                yield line, [found.get(key, "") for key in keys]


def _objects(file: BinaryIO, plan: Plan) -> Iterator[tuple[int, dict[str, Any] | records.Broken]]:
    if plan.kind == "ndjson":
        return records.ndjson_objects(file, plan.encoding)
    return records.json_objects(file, plan.encoding, plan.rows_at)


def make(file: BinaryIO, *, platform: str, declared: Declared) -> Plan:
    """The plan of a file that is unpacked and seekable; FileRefused when it cannot be read as a report.

    Reads the file twice at most, in bounded memory.
    """
    file.seek(0)
    sample = file.read(formats.SAMPLE_BYTES)
    formats.check(sample)
    encoding = encodings.decide(file, lambda record: header.count_known(platform, record))
    beginning = records.text_of(file, encoding).read(formats.SAMPLE_BYTES)
    plan = Plan(platform, formats.kind(beginning), encoding)
    plan = _csv_shape(plan, file) if plan.kind == "csv" else _json_shape(plan, file)
    return _decide(plan, file, declared)


def _csv_shape(plan: Plan, file: BinaryIO) -> Plan:
    lines = _first_lines(file, plan.encoding)
    found = header.find(plan.platform, lines)
    if found is None:
        raise _no_header(plan.platform, lines)
    return replace(
        plan,
        delimiter=found.delimiter,
        header_line=found.line,
        header_record=found.record,
        columns=found.columns,
        preamble=found.preamble,
        warnings=("other_platform",) if header.fits_another_better(plan.platform, found.columns) else (),
    )


def _first_lines(file: BinaryIO, encoding: str) -> list[str]:
    """The lines among which the header has to be, in bounded memory."""
    lines: list[str] = []
    characters = 0
    for line in itertools.islice(records.text_of(file, encoding), HEADER_LINES):
        lines.append(line)
        characters += len(line)
        if characters > HEADER_CHARACTERS:
            break
    return lines


def _no_header(platform: str, lines: list[str]) -> errors.FileRefused:
    others = header.other_platforms(platform, lines)
    hint = f"It looks like a report of {' or '.join(others)}." if others else ""
    sentence = file_sentence("unknown_header", platform=platform, hint=hint).strip()
    return errors.FileRefused(sentence, code="unknown_header")


def _json_shape(plan: Plan, file: BinaryIO) -> Plan:
    warnings: tuple[str, ...] = ()
    if plan.kind == "json":
        found = records.document(file, plan.encoding)
        if found.error:
            raise errors.FileRefused(file_sentence("api_error", message=found.error), code="api_error")
        warnings = ("more_pages",) if found.more_pages else ()
        plan = replace(plan, rows_at=found.rows_at, warnings=warnings)
    names: dict[str, None] = {}
    for _, row in _objects(file, plan):
        if not isinstance(row, records.Broken) and len(names) < MAX_JSON_COLUMNS:
            names.update(dict.fromkeys(key for key, _ in records.flat(row)))
    columns = tuple(json_column(plan.platform, index, name) for index, name in enumerate(names))
    if names and not header.is_header(plan.platform, columns):
        raise _no_header(plan.platform, [])
    return replace(plan, columns=columns)


def json_column(platform: str, index: int, name: str) -> Column:
    """TikTok groups its fields; a field is known by its own name when not by the whole."""
    (column,) = header.name_columns(platform, [name])
    group, _, rest = name.partition(".")
    if not column.field and group in ("dimensions", "metrics") and rest:
        (column,) = header.name_columns(platform, [rest])
    return replace(column, index=index, header=name)


@dataclass(slots=True)
class _Evidence:
    """What one pass over all records has seen in the columns that decide something."""

    money: numbers.MarkEvidence = field(default_factory=numbers.MarkEvidence)
    fractions: numbers.MarkEvidence = field(default_factory=numbers.MarkEvidence)
    counts: numbers.MarkEvidence = field(default_factory=numbers.MarkEvidence)
    order: dates.OrderEvidence = field(default_factory=dates.OrderEvidence)
    currencies: set[str] = field(default_factory=set)
    any_record: bool = False

    def look_at(self, plan: Plan, columns: list[tuple[str, ...]]) -> None:
        """Take in one block of records, turned into columns."""
        self.any_record = self.any_record or bool(columns)
        days = {column.index for column in plan.day_columns}
        for column in plan.columns:
            if column.index >= len(columns):
                break
            if column.type == "money":
                self.money.look_at(set(columns[column.index]))
            elif column.type == "decimal" and column.field not in aliases.UNSTORED:
                self.fractions.look_at(set(columns[column.index]))
            elif column.type == "int":
                self.counts.look_at(set(columns[column.index]), whole=True)
            elif column.field == "currency":
                found = map(cells.currency, set(columns[column.index]))
                self.currencies |= {code for code in found if isinstance(code, str)}
            if column.index in days:
                self.order.look_at(set(columns[column.index]))


def _decide(plan: Plan, file: BinaryIO, declared: Declared) -> Plan:
    evidence = _Evidence()
    twins = _Twins(plan)
    width = len(plan.columns)
    for _, rows in plan.blocks(file, size=EVIDENCE_RECORDS):
        # What is to the right of the last name decides nothing, and in one row may be millions of cells.
        named = [row[:width] for row in rows if isinstance(row, list)]
        columns = list(itertools.zip_longest(*named, fillvalue=""))
        evidence.look_at(plan, columns)
        twins.look_at(columns)
    plan = replace(plan, columns=twins.settled())
    suffix = _header_currency(plan)
    found = tuple(sorted(evidence.currencies)) or ((suffix,) if suffix else ())
    currency = suffix or declared.currency
    if evidence.any_record and not found and not currency:
        sentence = file_sentence("currency_missing")
        if "other_platform" in plan.warnings:
            sentence += " Or is it a report of another platform? Its columns fit one better."
        raise errors.FileRefused(sentence, code="currency_missing")
    has_spend = any(plan.all_of(name) for name in ("spend", "spend_micros"))
    warnings = plan.warnings if has_spend or not evidence.any_record else (*plan.warnings, "spend_missing")
    return replace(
        plan,
        decimal_mark=declared.decimal_mark or _decimal_mark(plan, evidence),
        date_order=declared.date_order or _date_order(evidence),
        currency=currency,
        currency_found=found,
        warnings=warnings,
    )


def _decimal_mark(plan: Plan, evidence: _Evidence) -> str:
    """Decided by the amounts; counts and fractions help where the amounts leave it open."""
    money = evidence.money
    mark = money.mark()
    if mark is None and not money.contradictory:
        mark = evidence.fractions.mark() or evidence.counts.mark()
    if mark is None and (money.contradictory or money.undecided):
        # Machines write a point: JSON, and tables under the names of an API's fields.
        if plan.kind == "csv" and not _is_of_api(plan):
            example = money.undecided or "1,234.56 and 1.234,56 in one file"
            raise errors.FileRefused(
                file_sentence("ambiguous_number", example=example), code="ambiguous_number"
            )
    return mark or "."


def _is_of_api(plan: Plan) -> bool:
    found = [aliases.lookup(plan.platform, aliases.header(c.header)) for c in plan.columns]
    return any(alias.locale == "api" for alias in found if alias)


def _date_order(evidence: _Evidence) -> str | None:
    if evidence.order.ambiguous:
        raise errors.FileRefused(
            file_sentence("ambiguous_date", example=evidence.order.undecided or "13/01 and 01/13"),
            code="ambiguous_date",
        )
    return evidence.order.order()


def _header_currency(plan: Plan) -> str | None:
    """The currency in the name of the spend column, else in that of another amount."""
    named = [*plan.all_of("spend"), *(c for c in plan.columns if c.type == "money" and c.field)]
    return next((column.currency for column in named if column.currency), None)


class _Twins:
    """Columns of one name: equal ones are one column, different ones cannot be told apart."""

    def __init__(self, plan: Plan) -> None:
        self._columns = plan.columns
        groups: dict[str, list[int]] = {}
        for column in plan.columns:
            if column.field and column.field not in (*aliases.UNSTORED, "breakdown"):
                groups.setdefault(aliases.header(column.header).key, []).append(column.index)
        self._groups = [group for group in groups.values() if len(group) > 1 and plan.kind == "csv"]
        self._filled: dict[int, int] = {index: 0 for group in self._groups for index in group}

    def look_at(self, columns: list[tuple[str, ...]]) -> None:
        """Compare the twins of one batch; FileRefused at the first difference."""
        for group in self._groups:
            present = [columns[index] for index in group if index < len(columns)]
            for values in zip(*present, strict=True):
                said = {value.strip() for value in values if not cells.is_null(value)}
                if len(said) > 1:
                    name = self._columns[group[0]].header
                    raise errors.FileRefused(
                        file_sentence("ambiguous_column", header=name), code="ambiguous_column"
                    )
            for index, column in zip(group, present, strict=False):
                self._filled[index] += sum(1 for value in column if not cells.is_null(value))

    def settled(self) -> tuple[Column, ...]:
        """The columns; of twins only the one with the most values keeps its meaning."""
        dropped = {
            index
            for group in self._groups
            for index in group
            if index != max(group, key=lambda twin: self._filled[twin])
        }
        return tuple(
            replace(column, field="extra") if column.index in dropped else column for column in self._columns
        )
