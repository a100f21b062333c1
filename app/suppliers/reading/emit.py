"""From the sheets of a list to its facts, its bad rows and their counts (ETL CANON §9)."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import add
from pathlib import Path
from typing import IO, TYPE_CHECKING

import orjson

from app.suppliers.reading import cells, header
from app.suppliers.reading.names import folded
from app.suppliers.reading.payloads import Facts
from app.suppliers.reading.rows import Bad, SheetRows, Skipped, Tally
from app.suppliers.reading.rules import Rules
from app.suppliers.reading.sheets import KeyedRow, Row, Sheet, Source, refused
from app.suppliers.reading.sums import Sums

if TYPE_CHECKING:
    from app.suppliers.config import Config
    from app.suppliers.config import Sheet as Configured

MOST_SHEETS = 1000
NAME_CHARACTERS = 200
"""Of a sheet's name, as it is told."""


@dataclass(slots=True)
class Told:
    """What is known of a list once it is read."""

    tally: Tally = field(default_factory=Tally)
    skus: set[bytes] = field(default_factory=set)  # as they are spelled in a payload
    row_ids: list[bytes] = field(default_factory=list)
    categories: Counter[str] = field(default_factory=Counter)
    alerts: list[tuple[str, str]] = field(default_factory=list)  # code and subject
    sheets: list[str] = field(default_factory=list)

    @property
    def facts(self) -> int:
        return len(self.row_ids)

    def content_sha256(self) -> str:
        """One hash of all facts, in whatever order and under whatever run they came."""
        digest = hashlib.sha256()
        self.row_ids.sort()
        for start in range(0, len(self.row_ids), 10_000):
            digest.update(hexadecimal(self.row_ids[start : start + 10_000]))
        return digest.hexdigest()


def hexadecimal(row_ids: list[bytes]) -> bytes:
    """The row_ids as they are written, a line each."""
    return b"".join(row_ids).hex("\n", hashlib.sha256().digest_size).encode() + b"\n"


def emit(source: Source, config: Config, *, into: Path, run_id: str) -> Told:
    """`facts.ndjson`, `bad.ndjson` and `diag/skipped.ndjson` stand in the folder.

    SupplierFailure when the list is refused.
    """
    told = Told()
    (into / "diag").mkdir(exist_ok=True)
    with (
        (into / "facts.ndjson").open("wb", 1 << 20) as facts,
        (into / "bad.ndjson").open("wb") as bad,
        (into / "diag" / "skipped.ndjson").open("wb") as skipped,
        contextlib.ExitStack() as at_the_end,
    ):
        sums = (
            at_the_end.enter_context(contextlib.closing(Sums(into))) if config.duplicates == "sum" else None
        )
        emitter = _Emitter(config, run_id, told, facts=facts, bad=bad, skipped=skipped, sums=sums)
        for sheet, chosen in _chosen(source, config, told):
            told.sheets.append(sheet.name[:NAME_CHARACTERS])
            emitter.sheet(source, sheet, chosen)
        emitter.finish()
    return told


# -- which sheets


def _chosen(source: Source, config: Config, told: Told) -> Iterator[tuple[Sheet, str]]:
    """The sheets that are read and their category, in the order of the list."""
    sheets = source.sheets()
    if len(sheets) > MOST_SHEETS:
        raise refused("FILE_TOO_LARGE", sheets=len(sheets))
    if config.category_key is not None:
        yield from _the_only_one(source, sheets, config, told)
        return
    used: set[int] = set()
    for sheet in sheets:
        place = _entry_of(sheet, config)
        if place is None:
            _tell_unread(sheet, config, told)
        elif not sheet.visible:
            told.alerts.append(("SHEET_HIDDEN", sheet.name[:NAME_CHARACTERS]))
        elif _has_cells(source, sheet):
            used.add(place)
            yield sheet, config.sheets[place].category_key
    for place, entry in enumerate(config.sheets):
        if place not in used:
            _tell_missing(entry, told)


def _the_only_one(
    source: Source, sheets: list[Sheet], config: Config, told: Told
) -> Iterator[tuple[Sheet, str]]:
    read = False
    for sheet in sheets:
        if sheet.visible and not read and (sheet.keyed or _has_cells(source, sheet)):
            read = True
            yield sheet, str(config.category_key)
        elif not sheet.visible or _has_cells(source, sheet):
            _tell_unread(sheet, config, told)
    if not read:
        raise refused("HEADER_NOT_FOUND" if sheets else "SHEET_MISSING")


def _entry_of(sheet: Sheet, config: Config) -> int | None:
    """The first entry of the config that fits the sheet."""
    name = folded(sheet.name)
    for place, entry in enumerate(config.sheets):
        if entry.name is not None and folded(entry.name) == name:
            return place
        if entry.match is not None and fnmatchcase(name, folded(entry.match)):
            return place
    return None


def _tell_unread(sheet: Sheet, config: Config, told: Told) -> None:
    name = folded(sheet.name)
    if any(fnmatchcase(name, folded(pattern)) for pattern in config.ignore_sheets):
        return
    code = "SHEET_UNKNOWN" if sheet.visible else "SHEET_HIDDEN"
    told.alerts.append((code, sheet.name[:NAME_CHARACTERS]))


def _tell_missing(entry: Configured, told: Told) -> None:
    name = str(entry.name or entry.match)
    if entry.required:
        raise refused("SHEET_MISSING", sheet=name)
    told.alerts.append(("SHEET_OPTIONAL_MISSING", name))


def _has_cells(source: Source, sheet: Sheet) -> bool:
    if sheet.keyed:
        return True
    return any(not all(map(cells.is_blank, row)) for _, row in source.rows(sheet))


# -- what is written


class _Emitter:
    """Writes the facts and the bad rows of one list."""

    def __init__(
        self, config: Config, run_id: str, told: Told, *,
        facts: IO[bytes], bad: IO[bytes], skipped: IO[bytes], sums: Sums | None,
    ) -> None:  # fmt: skip
        self._config = config
        self._run_id = run_id
        self._told = told
        self._facts, self._bad, self._skipped = facts, bad, skipped
        self._rules = Rules(config)
        self._by_warehouse = "warehouse" in config.key
        # Where a code is the key, the codes that were seen are the keys that were seen.
        self._keys: set[bytes] = set() if self._by_warehouse else told.skus
        self._sums = sums
        self._missing: set[str] | None = None  # optional columns that no sheet had so far

    def sheet(self, source: Source, sheet: Sheet, category: str) -> None:
        """Every row of the sheet is told of."""
        if sheet.keyed:
            names = _Names(self._config)
            rows: Iterator[Row] = names.rows(source.keyed_rows(sheet))
            found = names.header
        else:
            rows = iter(source.rows(sheet))
            found = self._header(source, sheet, rows)
            names = None
        reader = SheetRows(self._rules, found, tally=self._told.tally)
        for block in reader.read(rows):
            for number, bad in block.bad:
                self._refuse(number, category, bad)
            for number, skipped in block.skipped:
                self._pass_over(number, category, skipped)
            if block.facts.numbers:
                self._take(category, block.facts)
        missing = set(names.missing() if names else found.missing)
        self._missing = missing if self._missing is None else self._missing & missing

    def _header(self, source: Source, sheet: Sheet, rows: Iterator[Row]) -> header.Header:
        config = self._config
        if config.header.rows == 0:
            found = header.by_number(config)
        else:
            merges = source.merges(sheet) if config.header.rows == 2 else []
            found = header.find(config, rows, merges)
        codes = {found.columns["sku"], found.columns.get("sku.fallback")}
        codes |= {
            found.columns.get(f"extra.{name}") for name, extra in config.extra.items() if extra.type == "code"
        }
        source.keep_zeros(sheet, {at for at in codes if at is not None})
        return found

    def _take(self, category: str, facts: Facts) -> None:
        """The facts of rows that are good are written, or held back until all rows are known."""
        rows = len(set(facts.numbers))
        keys = self._keys_of(facts)
        new = set(keys)
        # Two facts of one row may have one key; those of two rows may not.
        if self._sums or len(new) != (len(keys) if self._by_warehouse else rows) or new & self._keys:
            for number, some in facts.by_row():
                self._take_row(category, number, some)
            return
        self._keys |= new
        self._told.tally.good += rows
        self._write(category, facts)

    def _keys_of(self, facts: Facts) -> list[bytes]:
        return list(map(add, facts.skus, facts.warehouses)) if self._by_warehouse else facts.skus

    def _take_row(self, category: str, number: int, row: Facts) -> None:
        keys = self._keys_of(row)
        if self._sums:
            if not self._sums.add(category, keys, row):
                return self._refuse(number, category, Bad("QTY_TOO_LARGE", "qty", "", _text(row.skus[0])))
        elif not self._keys.isdisjoint(keys):
            sku = _text(row.skus[0])
            if self._config.duplicates == "first":
                return self._pass_over(number, category, Skipped("DUPLICATE_ROW", sku))
            return self._refuse(number, category, Bad("DUPLICATE_KEY", "sku", sku, sku))
        else:
            self._keys.update(keys)
            self._write(category, row)
        self._told.tally.good += 1
        return None

    def _refuse(self, number: int, category: str, bad: Bad) -> None:
        self._told.tally.bad[bad.code] += 1
        line = {
            "run_id": self._run_id, "supplier": self._config.supplier, "category_key": category,
            "row_number": number, "reason_code": bad.code, "column": bad.column, "raw": bad.raw,
            "sku": bad.sku,
        }  # fmt: skip
        self._bad.write(orjson.dumps(line) + b"\n")

    def _pass_over(self, number: int, category: str, skipped: Skipped) -> None:
        self._told.tally.skipped[skipped.code] += 1
        line = {
            "category_key": category, "row_number": number, "reason_code": skipped.code, "sku": skipped.sku,
        }  # fmt: skip
        self._skipped.write(orjson.dumps(line) + b"\n")

    def _write(self, category: str, facts: Facts) -> None:
        told = self._told
        digests = [hashlib.sha256(payload).digest() for payload in facts.payloads]
        told.row_ids += digests
        told.categories[category] += len(digests)
        if self._by_warehouse:
            told.skus.update(facts.skus)
        row_ids = hexadecimal(digests).split()
        line = self._line(category)
        lines = map(line.__mod__, zip(row_ids, facts.numbers, facts.payloads, strict=True))
        self._facts.write(b"".join(lines))

    def _line(self, category: str) -> bytes:
        """A fact as it is written, but for what differs from row to row; these names need no quoting."""
        return (
            f'{{"run_id":"{self._run_id}","supplier":"{self._config.supplier}","category_key":"{category}",'
            '"row_id":"%b","row_number":%d,"payload":%b}\n'
        ).encode()

    def finish(self) -> None:
        """Facts that were held back are written, and what no sheet had is told."""
        self._told.alerts += [("COLUMN_OPTIONAL_MISSING", name) for name in sorted(self._missing or ())]
        for category, facts in self._sums.facts() if self._sums else ():
            self._write(category, facts)
            self._told.skus.update(facts.skus)


def _text(spelled: bytes) -> str:
    return str(orjson.loads(spelled))


class _Names:
    """The columns of a keyed sheet: of each field the first name that a row has."""

    def __init__(self, config: Config) -> None:
        self._wanted = header.wanted(config)
        self._names = [[folded(str(name)) for name in column.names] for column in self._wanted]
        self._seen: set[int] = set()
        self._rows = 0
        self._folded: dict[str, str] = {}
        self.header = header.Header({column.field: at for at, column in enumerate(self._wanted)})

    def rows(self, keyed: Iterator[KeyedRow]) -> Iterator[Row]:
        """The rows as lists; COLUMN_MISSING at the end when no row has a required field."""
        for number, values in keyed:
            self._rows += 1
            named = {self._fold(name): value for name, value in values.items()}
            row = []
            for at, names in enumerate(self._names):
                name = next((name for name in names if name in named), None)
                row.append(named[name] if name is not None else None)
                if name is not None:
                    self._seen.add(at)
            yield number, row
        lacks = [
            column
            for at, column in enumerate(self._wanted)
            if column.required and at not in self._seen and self._rows
        ]
        # Whether a stock that nobody gives is none is for the config to say.
        for column in lacks:
            if column.field not in ("qty",) and not column.field.endswith(".fallback"):
                raise refused("COLUMN_MISSING", column=str(column.names[0]))

    def missing(self) -> list[str]:
        """The optional fields that no row has."""
        return [
            str(column.names[0])
            for at, column in enumerate(self._wanted)
            if not column.required and at not in self._seen and self._rows
        ]

    def _fold(self, name: str) -> str:
        return self._folded.setdefault(name, folded(name))
