"""Where the columns of a sheet are: its header, found by the names that the config gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.suppliers.reading import cells
from app.suppliers.reading.names import folded
from app.suppliers.reading.sheets import Merge, Row, refused

if TYPE_CHECKING:
    from app.suppliers.config import Config


@dataclass(frozen=True, slots=True)
class Wanted:
    """A column that the config names: the first of `names` that is there counts."""

    field: str
    names: tuple[str | int, ...]
    required: bool


def wanted(config: Config) -> list[Wanted]:
    """Every column that the config asks for, fields first."""
    columns = config.columns
    found = [Wanted("sku", columns.sku.source, True), Wanted("price", columns.price.source, True)]
    for name in ("sku", "price"):
        fallback = getattr(columns, name).fallback
        if fallback is not None:
            found.append(Wanted(f"{name}.fallback", (fallback,), True))
    if columns.qty.source:
        found.append(Wanted("qty", columns.qty.source, True))
    for index, warehouse in enumerate(columns.qty.warehouses):
        found.append(Wanted(f"qty.{index}", warehouse.source, not warehouse.optional))
    for name, required in (("name", False), ("brand", False), ("warehouse", True), ("currency", True)):
        column = getattr(columns, name)
        if column is not None:
            found.append(Wanted(name, column.source, required))
    found += [Wanted(f"extra.{name}", extra.source, False) for name, extra in config.extra.items()]
    return found


@dataclass(frozen=True, slots=True)
class Header:
    """Where each field of a sheet is, and what of it is not there."""

    columns: dict[str, int]
    missing: tuple[str, ...] = ()  # optional columns, by the name that the config gives first
    names: tuple[str, ...] = ()  # of the row itself, to know it again
    at: int = 0  # the last row of the header; data begins below


@dataclass(slots=True)
class _Best:
    """The row that looks most like a header, though it is none."""

    found: int = 0
    lacks: list[str] = field(default_factory=list)


def by_number(config: Config) -> Header:
    """The header of a list without one: its columns have numbers."""
    columns = {
        column.field: name - 1 for column in wanted(config) for name in column.names if isinstance(name, int)
    }
    lacks = [column for column in wanted(config) if column.required and column.field not in columns]
    if lacks:
        raise refused("COLUMN_MISSING", column=str(lacks[0].names[0]))
    return Header(columns)


def find(config: Config, rows: Iterator[Row], merges: list[Merge]) -> Header:
    """The first row, or pair of rows, that has every required column.

    Takes from `rows` what stands up to the header, and no more. HEADER_NOT_FOUND, COLUMN_MISSING or
    COLUMN_AMBIGUOUS.
    """
    columns = wanted(config)
    required = [column for column in columns if column.required]
    best = _Best()
    above: list[Any] | None = None
    for number, row in rows:
        if number > config.header.search_rows + config.header.rows - 1:
            break
        if config.header.rows == 2:
            names = _composed(above, row, number, merges, fill_right=config.header.fill_right)
            above = row
        else:
            names = [cells.shown(cell) for cell in row]
        if names is None:
            continue
        places = _places([folded(name) for name in names])
        lacks = [column for column in required if not _present(column, places)]
        if not lacks:
            return _header(columns, places, tuple(folded(name) for name in names), number)
        if len(required) - len(lacks) > best.found:
            best = _Best(len(required) - len(lacks), [str(column.names[0]) for column in lacks])
    if 2 * best.found >= len(required):
        raise refused("COLUMN_MISSING", column=best.lacks[0])
    raise refused("HEADER_NOT_FOUND")


def _places(names: list[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        if name:
            places.setdefault(name, []).append(index)
    return places


def _present(column: Wanted, places: dict[str, list[int]]) -> bool:
    return any(isinstance(name, int) or folded(name) in places for name in column.names)


def _header(
    columns: list[Wanted], places: dict[str, list[int]], names: tuple[str, ...], number: int
) -> Header:
    found: dict[str, int] = {}
    missing = []
    for column in columns:
        place = _place(column, places)
        if place is None:
            missing.append(str(column.names[0]))
        else:
            found[column.field] = place
    return Header(found, tuple(missing), names, number)


def _place(column: Wanted, places: dict[str, list[int]]) -> int | None:
    for name in column.names:
        if isinstance(name, int):
            return name - 1
        at = places.get(folded(name))
        if at and len(at) > 1 and column.required:
            raise refused("COLUMN_AMBIGUOUS", column=name)
        if at:
            return at[0]
    return None


def _composed(
    above: list[Any] | None, below: list[Any], number: int, merges: list[Merge], *, fill_right: bool
) -> list[str] | None:
    """The names of two rows, one above the other; None for the first row, which has none above."""
    if above is None:
        return None
    top = _carried(above, number - 1, merges)
    bottom = _carried(below, number, merges)
    width = max(len(top), len(bottom))
    top += [""] * (width - len(top))
    bottom += [""] * (width - len(bottom))
    if fill_right:
        for index in range(1, width):
            top[index] = top[index] or top[index - 1]
    return [_joined(upper, lower) for upper, lower in zip(top, bottom, strict=True)]


def _joined(upper: str, lower: str) -> str:
    parts = [part for part in (upper.strip(), lower.strip()) if part]
    return parts[0] if len(parts) == 2 and folded(parts[0]) == folded(parts[1]) else " / ".join(parts)


def _carried(row: list[Any], number: int, merges: list[Merge]) -> list[str]:
    """The names of a row, where a merged range has its own in every cell."""
    names = [cells.shown(cell) for cell in row]
    for first_row, last_row, first, last in merges:
        if first_row == number and last_row >= number and first < len(names):
            names += [""] * (last + 1 - len(names)) if last < 16_384 else []
            for index in range(first + 1, min(last + 1, len(names))):
                names[index] = names[index] or names[first]
    return names
