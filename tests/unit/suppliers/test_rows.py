"""What each row of a list is, and that the quick look at a good row says what the closer look says."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.suppliers import config
from app.suppliers.reading import cells, header, payloads
from app.suppliers.reading.cells import Truth
from app.suppliers.reading.payloads import Fact
from app.suppliers.reading.rows import Bad, SheetRows, Skipped, Tally
from app.suppliers.reading.rules import Rules
from app.suppliers.reading.sheets import block

USUAL: dict[str, Any] = {
    "version": 1, "supplier": "acme", "category_key": "goods", "currency": "RUB",
    "columns": {
        "sku": {"from": "Code"}, "name": {"from": "Name"}, "price": {"from": "Price"},
        "qty": {"from": "Stock"},
    },
    "dq": {"min_fact_count": 1, "max_bad_ratio": 0.1, "allow_empty_snapshot": False},
}  # fmt: skip
HEADER = ["Code", "Name", "Price", "Stock"]


def with_columns(**columns: Any) -> dict[str, Any]:
    return {"columns": {**USUAL["columns"], **columns}}


def read(
    rows: list[list[Any]], names: list[str] = HEADER, /, *, closer: bool = False, **patch: Any
) -> tuple[list[Any], Tally]:
    """What the rows below a header with these names are; `closer`: without the quick look."""
    rules = config.Config.model_validate({**USUAL, **patch})
    numbered = iter([(number, list(row)) for number, row in enumerate([names, *rows], start=1)])
    found, tally = header.find(rules, numbered, []), Tally()
    reader = SheetRows(Rules(rules), found, tally=tally)
    if closer:
        reader._template = None
    told: list[tuple[int, Any]] = []
    for some in reader.read(numbered):
        good = [
            (number, list(map(Fact, row.skus, row.warehouses, row.payloads)))
            for number, row in some.facts.by_row()
        ]
        assert [number for number, _ in good] == sorted(set(some.facts.numbers))
        told += sorted([*good, *some.bad, *some.skipped], key=itemgetter(0))
    return told, tally


def payload(what: Any) -> dict[str, Any]:
    (fact,) = what
    found: dict[str, Any] = json.loads(fact.payload)
    return found


GOOD: list[Any] = ["A-1", "Bolt", 10.5, 5.0]
FIRST = ["A-0", "Nut", 1.0, 1.0]


@pytest.mark.parametrize("closer", [False, True])
def test_a_good_row_is_a_fact_in_its_one_spelling(closer: bool) -> None:
    rows, tally = read([FIRST, GOOD], closer=closer)
    assert [number for number, _ in rows] == [2, 3]
    assert rows[1][1][0].payload == (
        b'{"currency":"RUB","name":"Bolt","price_minor":1050,"qty":5,"qty_min":false,"sku":"A-1"}'
    )
    assert tally.skipped.total() == 0


@pytest.mark.parametrize(
    ("row", "code", "patch"),
    [
        ([None, " ", "\u00a0", ""], "BLANK_ROW", {}),
        (["code", " NAME", "Price ", "Stock"], "HEADER_REPEAT", {}),
        (["Итого:", None, 10.0, 5.0], "TOTAL_ROW", {"rows": {"totals": ["итого"]}}),
        ([None, "Итого", 10.0, 5.0], "TOTAL_ROW", {"rows": {"totals": ["итого"]}}),
        (["Шины", None, None, None], "STRUCTURE_ROW", {"rows": {"structure_when_blank": ["price", "qty"]}}),
        (
            ["A-1", None, "звоните", 5.0], "PRICE_ON_REQUEST",
            with_columns(price={"from": "Price", "on_request": ["Звоните"]}),
        ),
        (["A-1", None, 5.0, None], "NO_STOCK", with_columns(qty={"from": "Stock", "blank": "none"})),
        (
            ["A-1", None, 5.0, ""], "STRUCTURE_ROW",
            with_columns(qty={"from": "Stock", "blank": "zero"})
            | {"rows": {"structure_when_blank": ["qty"]}},
        ),
    ],
)  # fmt: skip
def test_a_row_that_is_no_data_is_counted_apart(row: list[Any], code: str, patch: dict[str, Any]) -> None:
    rows, tally = read([FIRST, row, GOOD], **patch)
    passed_over = {what.code: 1 for _, what in rows if isinstance(what, Skipped)}
    assert [number for number, what in rows if not isinstance(what, Skipped)] == [2, 4]
    assert passed_over | dict(+tally.skipped) == {code: 1}


def test_numbers_of_columns_are_no_data_right_below_the_header_only() -> None:
    rows, tally = read([[1.0, 2.0, "3", 4.0], GOOD, [1.0, 2.0, "3", 4.0]])
    assert ([number for number, _ in rows], dict(+tally.skipped)) == ([3, 4], {"NUMBERING_ROW": 1})


def test_white_rows_at_the_end_are_no_rows() -> None:
    _, tally = read([FIRST, [], GOOD, [None], ["", " "]])
    assert dict(+tally.skipped) == {"BLANK_ROW": 1}


@pytest.mark.parametrize(
    ("row", "code", "column"),
    [
        (["", "x", "", ""], "SKU_EMPTY", "sku"),  # the first reason counts
        (["A", "x", "", ""], "PRICE_EMPTY", "price"),
        (["A", "x", 5.0, "?"], "QTY_UNPARSABLE", "qty"),
        (["A"], "PRICE_EMPTY", "price"),  # a short row
        (["A", "x", cells.FORMULA_NO_VALUE, 1.0], "FORMULA_NO_VALUE", "price"),
        ([Truth.TRUE, "x", 1.0, 1.0], "SKU_INVALID", "sku"),
    ],
)
def test_a_bad_row_has_one_reason(row: list[Any], code: str, column: str) -> None:
    (_, _), (_, what) = read([FIRST, row])[0]
    assert isinstance(what, Bad) and (what.code, what.column) == (code, column)


def test_what_stood_in_a_bad_cell_is_kept_short() -> None:
    (_, _), (_, what) = read([FIRST, ["A", "x", "y" * 5000, 1.0]])[0]
    assert what.raw == "y" * 200


def test_a_blank_code_or_price_falls_back_on_another_column() -> None:
    patch = with_columns(
        sku={"from": "Code", "fallback": "Name"}, price={"from": "Price", "fallback": "Stock"}
    )
    rows, _ = read([FIRST, [" ", "Bolt 5", None, 7.0]], **patch)
    found = payload(rows[1][1])
    assert (found["sku"], found["price_minor"]) == ("Bolt 5", 700)


WAREHOUSES = with_columns(
    qty={
        "warehouses": [
            {"from": "North", "warehouse": "north"}, {"from": "South", "warehouse": '50% "south"'},
        ],
        "blank": "none",
    }
)  # fmt: skip
WIDE = ["Code", "Name", "Price", "North", "South"]


@pytest.mark.parametrize("closer", [False, True])
def test_a_row_is_a_fact_for_each_warehouse_with_a_figure(closer: bool) -> None:
    rows, _ = read(
        [["A-0", None, 1.0, 1.0, None], ["A-1", None, 1.0, "", ">5"], ["A-2", None, 1.0, 3.0, 4.0],
         ["A-3", None, 1.0, None, None], ["A-4", None, 1.0, 2.0, "?"]],
        WIDE, closer=closer, **WAREHOUSES,
    )  # fmt: skip
    found = [
        [(p["sku"], p["warehouse"], p["qty"]) for p in map(json.loads, (fact.payload for fact in what))]
        for _, what in rows
        if isinstance(what, list)
    ]
    south = '50% "south"'
    assert found == [
        [("A-0", "north", 1)], [("A-1", south, 5)], [("A-2", "north", 3), ("A-2", south, 4)],
    ]  # fmt: skip
    assert rows[-2][1] == Skipped("NO_STOCK", "A-3")
    assert isinstance(rows[-1][1], Bad) and rows[-1][1].sku == "A-4"


FULL = ["Code", "Name", "Price", "Stock", "Brand", "Store", "Cur", "RRP", "Art", "Note"]
EVERYTHING: dict[str, Any] = {
    **with_columns(
        sku={"from": "Code", "fallback": "Art"},
        price={"from": "Price", "strip": ["руб"], "on_request": ["call"]},
        qty={"from": "Stock", "words": {"есть": "1+", "нет": 0}, "blank": "zero", "negative": "zero"},
        brand={"from": "Brand"}, warehouse={"from": "Store"}, currency={"from": "Cur"},
    ),
    "extra": {
        "rrp": {"from": "RRP", "type": "money"}, "art": {"from": "Art", "type": "code"},
        "note": {"from": "Note"}, "gone": {"from": "Gone"}, "gone_price": {"from": "Gone", "type": "money"},
    },
    "rows": {"totals": ["Итого"], "structure_when_blank": ["price", "qty"]},
}  # fmt: skip
NUMBERS = st.sampled_from([0.0, 1.0, 5.0, 2.5, 10.005, -1.0, 1e16, 123456.78])
TEXTS = st.sampled_from(
    ["", " ", "5", "1 000.50", ">5", "есть", "call", "rub", "RUB", "Итого 5", 'a"\\\n\x01b', "e\u0301", "№ 7",
     "12.0", "Code", "\u2028", "😀", "5 руб"]
)  # fmt: skip
ODD = st.sampled_from([None, Truth.TRUE, cells.CELL_ERROR, cells.FORMULA_NO_VALUE])
ROW = st.lists(TEXTS | NUMBERS | ODD | st.text(max_size=5), min_size=0, max_size=len(FULL))
LIKELY = st.tuples(
    st.text(min_size=1, max_size=5), TEXTS, st.sampled_from([5.0, "7.5", 10.005]),
    st.sampled_from([1.0, ">5"]), TEXTS, st.sampled_from(["A", "B\t"]), st.sampled_from(["rub", "USD"]),
    TEXTS | NUMBERS, TEXTS | NUMBERS, TEXTS,
).map(list)  # fmt: skip


def surrogate_free(rows: list[list[Any]]) -> bool:
    return all(
        not any("\ud800" <= letter <= "\udfff" for letter in cell)
        for row in rows
        for cell in row
        if isinstance(cell, str)
    )


@settings(deadline=None, max_examples=300)
@given(st.lists(LIKELY | ROW, max_size=6).filter(surrogate_free), st.sampled_from([0, 1, 20_000]))
def test_the_quick_look_says_what_the_closer_look_says(rows: list[list[Any]], remembered: int) -> None:
    with mock.patch.object(payloads, "MANY", remembered):  # beyond, plain texts are told at sight
        quick, quick_tally = read([["A", *[None] * 9], *rows], FULL, **EVERYTHING)
    closer, closer_tally = read([["A", *[None] * 9], *rows], FULL, closer=True, **EVERYTHING)
    assert quick == closer
    assert (quick_tally, closer_tally) == (closer_tally, quick_tally)


def test_the_quick_look_is_what_good_rows_are_read_by() -> None:
    rules = config.Config.model_validate({**USUAL, **EVERYTHING})
    found = header.find(rules, iter([(1, list(FULL))]), [])
    template = SheetRows(Rules(rules), found, tally=Tally())._template
    assert template is not None
    row = ["A-1", "Bolt", 10.005, ">5", "B", "S", "rub", 12.0, 7.0, "n"]
    plain = template.facts(block([(2, row), (3, [*row[:6], "USD", *row[7:]])], len(row)))
    assert (plain.facts.numbers, plain.rounded) == ([2], 1)


@pytest.mark.parametrize(
    ("column", "at_sight", "odd"),
    [
        (
            ["A-1", "0012", "Б7", "x_"], "code",
            ["A~1", "1E5", "12.0", "12,0", " A", "A ", "A B", "", "Ａ", 'A"', "A\\", 5.0, 1e15],
        ),
        (
            ["a", "Шина зимняя", "x - y"], "text",
            ["a  b", " a", "a ", "", "a\u00a0b", "и\u0306", 'a"', "a\\b", None],
        ),
    ],
)  # fmt: skip
def test_texts_that_come_to_themselves_are_told_at_sight(
    column: list[Any], at_sight: str, odd: list[Any]
) -> None:
    tell = {"code": payloads.are_codes_at_sight, "text": payloads.are_texts_at_sight}[at_sight]
    asked: list[Any] = []
    with mock.patch.object(payloads, "MANY", 0):
        known = payloads.Fragments(lambda cell: asked.append(cell) or b"closer", at_sight=tell)  # type: ignore[func-returns-value]
        assert known.of(column) == [payloads.spelled(cell) for cell in column] and asked == []
        assert known.of([12.0, -0.0]) == [b'"12"', b'"0"'] and asked == []
        for cell in odd:
            assert known.of([*column, cell])[-1] == b"closer"
            assert cell == 5.0 or known.of([cell]) == [b"closer"]
        for number in (1.5, 1e15, -1e15, float("nan"), 1, None):
            assert known.of([2.0, number])[-1] == b"closer"


@pytest.mark.parametrize(
    ("names", "patch"),
    [
        (["Code", "Name", "100", "Stock"], with_columns(price={"from": "100"})),  # the header is a price
        (HEADER, {**with_columns(), "extra": {"qty_note": {"from": "Name"}}}),  # would part qty from qty_raw
        (HEADER, {"rows": {"structure_when_blank": ["name"]}}),  # a good row may be structure
    ],
)
def test_where_a_good_row_may_be_no_data_there_is_no_quick_look(
    names: list[str], patch: dict[str, Any]
) -> None:
    rules = config.Config.model_validate({**USUAL, **patch})
    found = header.find(rules, iter([(1, list(names))]), [])
    assert SheetRows(Rules(rules), found, tally=Tally())._template is None
    rows, _ = read([FIRST, ["A-1", "Bolt", 5.0, ">5"]], names, **patch)
    keys = list(json.loads(rows[1][1][0].payload))
    assert keys == sorted(keys)
