"""How the payload of a fact is spelled: RFC 8785, so that equal payloads have equal bytes and one hash.

A payload holds nothing but texts, whole numbers, truth values and null under ASCII keys; then sorted keys
without blanks are all that RFC 8785 asks. Most rows are put together from fragments, column by column for
many rows at once: what a cell comes to in a payload is worked out once for each different cell, or for a
whole column of plain texts at sight.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import orjson

from app.suppliers.reading.cells import LONG_NUMBER, Cell
from app.suppliers.reading.sheets import Cells

Fields: TypeAlias = dict[str, Any]

REMEMBERED = 10_000
"""Different cells of a column whose fragments are kept: names, prices; not every code of a long list."""

MANY = 1_000
"""From so many different cells of a column on, plain texts are told at sight, all at once."""

STOCK = "qty"
"""The place of `qty`, `qty_min` and `qty_raw`, which come from one cell and stand side by side."""


class Fact(NamedTuple):
    """One thing for sale in one place: its code and warehouse, spelled, and its payload."""

    sku: bytes
    warehouse: bytes
    payload: bytes


@dataclass(slots=True)
class Facts:
    """The facts of many rows, column by column, in the order of the rows."""

    numbers: list[int] = field(default_factory=list)  # of the rows they are of
    skus: list[bytes] = field(default_factory=list)
    warehouses: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)

    def add(self, number: int, facts: list[Fact]) -> None:
        """The facts of one more row are the last ones."""
        for fact in facts:
            self.append(number, *fact)

    def append(self, number: int, sku: bytes, warehouse: bytes, payload: bytes) -> None:
        self.numbers.append(number)
        self.skus.append(sku)
        self.warehouses.append(warehouse)
        self.payloads.append(payload)

    def by_row(self) -> Iterator[tuple[int, Facts]]:
        """The number of each row and its facts."""
        all_facts = zip(self.numbers, self.skus, self.warehouses, self.payloads, strict=True)
        for number, some in itertools.groupby(all_facts, key=itemgetter(0)):
            yield number, Facts(*map(list, zip(*some, strict=True)))

    def sort(self) -> None:
        """The facts are in the order of their rows."""
        order = sorted(range(len(self.numbers)), key=self.numbers.__getitem__)
        for name in ("numbers", "skus", "warehouses", "payloads"):
            setattr(self, name, [getattr(self, name)[at] for at in order])


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


# -- what the cells of a column come to


class Rounded(bytes):
    """The fragment of a price that has been rounded."""


class Fragments(dict[Cell, Any]):
    """What the cells of one column come to in a payload; None where a row needs a closer look."""

    def __init__(
        self, fragment: Callable[[Cell], bytes | None], *, at_sight: Callable[[str], bool] | None = None
    ) -> None:
        """`at_sight` tells of many texts in one whether each comes to itself; so does a whole number then."""
        super().__init__()
        self._fragment = fragment
        self._at_sight = at_sight

    def __missing__(self, cell: Cell) -> bytes | None:
        found = self._fragment(cell)
        if len(self) < REMEMBERED:
            self[cell] = found
        return found

    def of(self, cells: list[Cell]) -> list[Any]:
        """The fragment of each cell."""
        if self._at_sight and len(self) >= MANY:
            found = _plain_texts(cells, self._at_sight) or _plain_numbers(cells)
            if found:
                return found
        return list(map(self.__getitem__, cells))


_BETWEEN = "~"


def _plain_texts(cells: list[Cell], at_sight: Callable[[str], bool]) -> list[bytes] | None:
    """The spelling of texts none of which needs a change; None when one may need it, or is no text."""
    try:
        joined = _BETWEEN.join(cells)
    except TypeError:
        return None
    if not joined or not joined.isprintable() or '"' in joined or "\\" in joined or not at_sight(joined):
        return None
    found = f'"{joined}"'.replace(_BETWEEN, '"~"').encode().split(b"~")
    return found if len(found) == len(cells) else None


def _plain_numbers(cells: list[Cell]) -> list[bytes] | None:
    """The spelling of whole numbers; None when one may be none."""
    if set(map(type, cells)) != {float} or not all(map(float.is_integer, cells)):
        return None
    if not -LONG_NUMBER < min(cells) <= max(cells) < LONG_NUMBER:
        return None
    return [b'"%d"' % int(cell) for cell in cells]


_ODD_BLANKS = ("  ", " ~", "~ ", "~~")
_NUMBER_MARKS = ("e", "E", ".", ",")
_NUMBER_LIKE = re.compile(r"(?<=\d)[eE.,]")


def are_texts_at_sight(joined: str) -> bool:
    """Whether none of these texts has a blank too many, is blank, or is not in NFC."""
    has_odd_blanks = joined[0] in " ~" or joined[-1] in " ~" or any(odd in joined for odd in _ODD_BLANKS)
    return not has_odd_blanks and unicodedata.is_normalized("NFC", joined)


def are_codes_at_sight(joined: str) -> bool:
    """Whether each of these texts is a code as it stands."""
    if " " in joined or not are_texts_at_sight(joined) or not unicodedata.is_normalized("NFKC", joined):
        return False
    may_be_number = any(mark in joined for mark in _NUMBER_MARKS)
    return not (may_be_number and _NUMBER_LIKE.search(joined))


# -- whole payloads


@dataclass(frozen=True, slots=True)
class Found:
    """What is plain among some rows: their facts, and how many of their prices were rounded."""

    facts: Facts = field(default_factory=Facts)
    rounded: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One member of the payload: from a column by its fragments, or the same in every row."""

    key: str
    at: int | None
    fragments: Fragments | None = None
    constant: bytes = b"null"


class Template:
    """The payloads of one sheet, put together from the fragments of its cells."""

    def __init__(self, parts: list[Part], *, checked: list[Part], stocks: Mapping[int, bytes]) -> None:
        """`checked` must be in order and say nothing. `stocks` are the columns of several warehouses."""
        varying = sorted((part for part in parts if part.fragments is not None), key=lambda part: part.key)
        places = {part.key: place for place, part in enumerate(varying)}
        self._sku, self._price = places["sku"], places["price_minor"]
        self._warehouse = places.get("warehouse")
        picked = [(part.at, part.fragments) for part in varying + checked]
        payload = list(range(len(picked)))
        self._warehouses = []
        for at, name in stocks.items():
            stock = places[STOCK]
            columns = [*payload[:stock], len(picked), *payload[stock + 1 :]]
            picked.append((at, picked[stock][1]))
            named = Part("warehouse", None, constant=name)
            self._warehouses.append(
                (len(picked) - 1, name, columns, _spelling([*parts, named], len(checked)))
            )
        self._picked = [(at, known) for at, known in picked if at is not None and known is not None]
        self._spelling = _spelling(parts, len(checked))

    def facts(self, some: Cells) -> Found:
        """The facts of these rows, as far as each of their cells is plain."""
        numbers, columns = some.numbers, [known.of(some.column(at)) for at, known in self._picked]
        return self._of_warehouses(numbers, columns) if self._warehouses else self._of_each(numbers, columns)

    def _of_each(self, numbers: Sequence[int], columns: list[list[Any]]) -> Found:
        try:
            payloads = list(map(self._spelling.__mod__, zip(*columns, strict=True)))
        except TypeError:  # a fragment is None, and None has no bytes
            kept = [at for at, row in enumerate(zip(*columns, strict=True)) if None not in row]
            numbers = [numbers[at] for at in kept]
            columns = [[column[at] for at in kept] for column in columns]
            payloads = list(map(self._spelling.__mod__, zip(*columns, strict=True)))
        named = columns[self._warehouse] if self._warehouse is not None else [b"null"] * len(numbers)
        facts = Facts(list(numbers), columns[self._sku], named, payloads)
        return Found(facts, list(map(type, columns[self._price])).count(Rounded))

    def _of_warehouses(self, numbers: Sequence[int], columns: list[list[Any]]) -> Found:
        facts, rounded = Facts(), 0
        for number, *row in zip(numbers, *columns, strict=True):
            # A warehouse without a figure has nothing; where none has one, the row is no fact.
            stocked = [] if None in row else [one for one in self._warehouses if row[one[0]] != b""]
            for _, name, picked, spelling in stocked:
                payload = spelling % tuple([row[place] for place in picked])
                facts.append(number, row[self._sku], name, payload)
            rounded += bool(stocked) and type(row[self._price]) is Rounded
        return Found(facts, rounded)


def _spelling(parts: list[Part], checked: int) -> bytes:
    found = []
    for part in sorted(parts, key=lambda one: one.key):
        value = b"%b" if part.fragments is not None else part.constant.replace(b"%", b"%%")
        found.append(value if part.key == STOCK else b'"%b":%b' % (part.key.encode(), value))
    return b"{" + b",".join(found) + b"}" + b"%b" * checked
