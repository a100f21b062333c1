"""Which sheets of a workbook are read, and where in them a table begins."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, time
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.worksheet.cell_range import CellRange
from openpyxl.worksheet.worksheet import Worksheet

from app.suppliers.extract import extract
from app.suppliers.failures import SupplierFailure
from tests.integration.suppliers.lists import facts, payloads, read_here, rules

HEAD = ["Code", "Name", "Price", "Stock"]


def goods(*codes: str) -> list[list[Any]]:
    return [HEAD, *([code, "x", 10, 1] for code in codes)]


def workbook(
    tables: dict[str, list[list[Any]]], change: Callable[[openpyxl.Workbook], None] | None = None
) -> bytes:
    """A workbook with these sheets, changed before it is saved."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in tables.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    if change:
        change(book)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def hiding(name: str, state: str = "hidden") -> Callable[[openpyxl.Workbook], None]:
    def change(book: openpyxl.Workbook) -> None:
        book[name].sheet_state = state

    return change


def merging(*ranges: str, below: int = 0) -> Callable[[openpyxl.Workbook], None]:
    """These ranges are merged, each so many rows further down."""

    def change(book: openpyxl.Workbook) -> None:
        for one in ranges:
            found = CellRange(one)
            found.shift(row_shift=below)
            book.worksheets[0].merge_cells(found.coord)

    return change


def refusal(content: bytes, into: Path, **patch: Any) -> tuple[str, dict[str, Any]]:
    with pytest.raises(SupplierFailure) as caught:
        read_here(content, into, **patch)
    assert caught.value.stage == "gate"
    return caught.value.code, caught.value.detail


def categories(into: Path) -> list[tuple[str, str]]:
    return [(fact["category_key"], fact["payload"]["sku"]) for fact in facts(into)]


# -- which sheets

SHEETS: dict[str, Any] = {
    "category_key": None,
    "sheets": [
        {"name": "Шины", "category_key": "tyres", "required": True},
        {"match": "Диски*", "category_key": "wheels"},
    ],
    "ignore_sheets": ["Обложка", "служ*"],
}


def test_a_sheet_has_the_category_of_its_name_or_of_the_pattern_that_fits(tmp_path: Path) -> None:
    tables = {
        "ДИСКИ  литые": goods("D-1"), "\u00a0шины": goods("T-1", "T-2"), "Диски": goods("D-2"),
    }  # fmt: skip
    found = read_here(workbook(tables), tmp_path, **SHEETS)
    assert categories(tmp_path) == [
        ("wheels", "D-1"), ("tyres", "T-1"), ("tyres", "T-2"), ("wheels", "D-2"),
    ]  # fmt: skip
    assert found.by_category == {"wheels": 2, "tyres": 2}
    assert (found.sheets, found.alerts) == (tuple(tables), ())


@pytest.mark.parametrize(
    ("order", "category"), [(["Диски*", "Диски л*"], "first"), (["Диски л*", "Диски*"], "first")]
)
def test_the_first_entry_that_fits_counts(order: list[str], category: str, tmp_path: Path) -> None:
    entries = [{"match": order[0], "category_key": "first"}, {"match": order[1], "category_key": "second"}]
    read_here(workbook({"Диски литые": goods("D-1")}), tmp_path, category_key=None, sheets=entries)
    assert categories(tmp_path) == [(category, "D-1")]


def test_a_name_is_no_pattern_and_a_pattern_needs_its_star(tmp_path: Path) -> None:
    entries = [{"name": "Диски*", "category_key": "a"}, {"match": "Диск", "category_key": "b"}]
    found = read_here(
        workbook({"Диски": goods("D-1"), "диск": goods("D-2")}), tmp_path, category_key=None, sheets=entries
    )
    assert categories(tmp_path) == [("b", "D-2")]
    assert found.alerts == (("SHEET_UNKNOWN", "Диски"), ("SHEET_OPTIONAL_MISSING", "Диски*"))


@pytest.mark.parametrize(
    ("tables", "change"),
    [
        ({"Диски": goods("D-1")}, None),
        ({"Диски": goods("D-1"), "Шины": goods("T-1")}, hiding("Шины")),
        ({"Диски": goods("D-1"), "Шины": goods("T-1")}, hiding("Шины", "veryHidden")),
        ({"Диски": goods("D-1"), "Шины": []}, None),
        ({"Диски": goods("D-1"), "Шины": [[None, " "], ["\u00a0"]]}, None),  # white space is nothing
    ],
    ids=["gone", "hidden", "very hidden", "empty", "white"],
)
def test_without_a_required_sheet_its_goods_would_be_gone(
    tables: dict[str, Any], change: Any, tmp_path: Path
) -> None:
    assert refusal(workbook(tables, change), tmp_path, **SHEETS) == ("SHEET_MISSING", {"sheet": "Шины"})


@pytest.mark.parametrize("wheels", [None, []], ids=["gone", "empty"])
def test_a_sheet_that_need_not_be_there_is_told_of(wheels: list[Any] | None, tmp_path: Path) -> None:
    tables = {"Шины": goods("T-1")} | ({} if wheels is None else {"Диски": wheels})
    found = read_here(workbook(tables), tmp_path, **SHEETS)
    assert found.alerts == (("SHEET_OPTIONAL_MISSING", "Диски*"),)
    assert found.by_category == {"tyres": 1}


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_a_hidden_sheet_is_left_out_and_told_of(state: str, tmp_path: Path) -> None:
    tables = {"Диски старые": goods("D-1"), "Шины": goods("T-1"), "Диски": goods("D-2")}
    found = read_here(workbook(tables, hiding("Диски старые", state)), tmp_path, **SHEETS)
    assert found.alerts == (("SHEET_HIDDEN", "Диски старые"),)
    assert categories(tmp_path) == [("tyres", "T-1"), ("wheels", "D-2")]


def test_a_hidden_sheet_need_not_be_a_list(tmp_path: Path) -> None:
    tables = {"Шины": goods("T-1"), "Диски": [["расчёт"]], "Итоги": goods("X")}

    def hide(book: openpyxl.Workbook) -> None:
        hiding("Диски")(book)
        hiding("Итоги")(book)

    found = read_here(workbook(tables, hide), tmp_path, **SHEETS)
    assert found.alerts == (
        ("SHEET_HIDDEN", "Диски"), ("SHEET_HIDDEN", "Итоги"), ("SHEET_OPTIONAL_MISSING", "Диски*"),
    )  # fmt: skip


def test_an_unknown_sheet_is_told_of_and_an_ignored_one_is_not(tmp_path: Path) -> None:
    tables = {
        "обложка ": [["Прайс"]], "Шины": goods("T-1"), "Акции": goods("A-1"), "Служебный": goods("S-1"),
        "Служ. скрытый": [["x"]], "Диски": goods("D-1"),
    }  # fmt: skip
    found = read_here(workbook(tables, hiding("Служ. скрытый")), tmp_path, **SHEETS)
    assert found.alerts == (("SHEET_UNKNOWN", "Акции"),)
    assert categories(tmp_path) == [("tyres", "T-1"), ("wheels", "D-1")]


@pytest.mark.parametrize(
    ("header", "code"), [(["Code", "Name", "Stock"], "COLUMN_MISSING"), (["Прайс"], "HEADER_NOT_FOUND")]
)
@pytest.mark.parametrize("name", ["Шины", "Диски"])
def test_a_sheet_without_its_header_fails_the_whole_list(
    header: list[str], code: str, name: str, tmp_path: Path
) -> None:
    tables = {"Диски литые": goods("D-1"), "Шины": goods("T-1"), "Диски": goods("D-2")}
    path = tmp_path / "list.xlsx"
    path.write_bytes(workbook({**tables, name: [header, ["T-1", "x", 1, 1]]}))
    with pytest.raises(SupplierFailure) as caught:
        extract(path, into=tmp_path, config=rules(**SHEETS), run_id="r")
    assert caught.value.code == code
    assert [one.name for one in tmp_path.iterdir()] == ["list.xlsx"]  # no part of it either


def test_a_key_is_unique_over_all_sheets(tmp_path: Path) -> None:
    tables = {"Шины": goods("A-1", "A-2"), "Диски": goods("A-3", "A-1")}
    found = read_here(workbook(tables), tmp_path, **SHEETS)
    assert categories(tmp_path) == [("tyres", "A-1"), ("tyres", "A-2"), ("wheels", "A-3")]
    assert found.bad_by_reason == {"DUPLICATE_KEY": 1}


def test_an_optional_column_is_missing_where_no_sheet_has_it(tmp_path: Path) -> None:
    bare = [["Stock", "Price", "Code"], [2, 5, "D-1"]]
    patch = {**SHEETS, "columns": {"brand": {"from": "Brand"}}}
    found = read_here(workbook({"Шины": goods("T-1"), "Диски": bare}), tmp_path, **patch)
    assert found.alerts == (("COLUMN_OPTIONAL_MISSING", "Brand"),)
    assert [(one["sku"], one["price_minor"], one["qty"], one["name"]) for one in payloads(tmp_path)] == [
        ("T-1", 1000, 1, "x"), ("D-1", 500, 2, None),
    ]  # fmt: skip


def test_a_workbook_of_one_category_is_its_first_visible_sheet_with_cells(tmp_path: Path) -> None:
    tables = {"Лист0": goods("X"), "Лист1": [], "Лист2": goods("A-1"), "Лист3": [], "Лист4": goods("B-1")}
    found = read_here(workbook(tables, hiding("Лист0")), tmp_path)
    assert categories(tmp_path) == [("goods", "A-1")]
    assert found.alerts == (("SHEET_HIDDEN", "Лист0"), ("SHEET_UNKNOWN", "Лист4"))
    assert refusal(workbook({"Лист1": []}), tmp_path)[0] == "HEADER_NOT_FOUND"


# -- where the table begins


def test_what_stands_above_the_header_and_numbers_below_it_are_no_goods(tmp_path: Path) -> None:
    rows = [
        ["ООО «Болт»"], [], ["Прайс на", 46050, "Price", "Code"], ["Code", "Name", "Price"], HEAD,
        [1, 2, 3, 4], ["A-1", "x", 10.55, 3], [1, 2, 3, 4], ["A-2", "y", 7, 4],
    ]  # fmt: skip
    found = read_here(workbook({"Лист1": rows}), tmp_path)
    assert [(one["row_number"], one["payload"]["sku"]) for one in facts(tmp_path)] == [
        (7, "A-1"), (8, "1"), (9, "A-2"),
    ]  # fmt: skip
    assert payloads(tmp_path)[0]["price_minor"] == 1055
    assert (found.skipped_by_reason, found.total_rows) == ({"NUMBERING_ROW": 1}, 4)


@pytest.mark.parametrize(("above", "is_found"), [(29, True), (30, False)])
def test_a_header_beyond_the_rows_that_are_searched_is_none(
    above: int, is_found: bool, tmp_path: Path
) -> None:
    content = workbook({"Лист1": [["Прайс"]] * above + goods("A-1")})
    if is_found:
        assert read_here(content, tmp_path).good_rows == 1
    else:
        assert refusal(content, tmp_path) == ("HEADER_NOT_FOUND", {})


TWO: dict[str, Any] = {
    "header": {"rows": 2},
    "columns": {
        "price": {"from": "Цена / опт"},
        "qty": {
            "from": None,
            "warehouses": [
                {"from": "Остаток / Север", "warehouse": "north"},
                {"from": "Остаток / Юг", "warehouse": "south"},
            ],
        },
    },
}  # fmt: skip
PAIR = [
    ["Code", "Name", "Цена", None, "Остаток", None, None],
    [None, None, "розн", "опт", "Север", "Юг", "Всего"],
    ["A-1", "x", 99, 10, 1, 2, 3],
]


def stocks(into: Path) -> list[tuple[Any, ...]]:
    return [(one["sku"], one["price_minor"], one["warehouse"], one["qty"]) for one in payloads(into)]


UNMERGED = ("COLUMN_MISSING", {"column": "Цена / опт"})
EXPECTED = [("A-1", 1000, "north", 1), ("A-1", 1000, "south", 2)]


@pytest.mark.parametrize("above", [0, 2])
def test_a_header_of_two_rows_with_merged_cells_is_composed(above: int, tmp_path: Path) -> None:
    rows = [["Прайс"]] * above + PAIR
    found = read_here(
        workbook({"Лист1": rows}, merging("A1:A2", "B1:B2", "C1:D1", "E1:G1", below=above)), tmp_path, **TWO
    )
    assert stocks(tmp_path) == EXPECTED
    assert (found.total_rows, found.alerts) == (1, ())


def test_without_the_merged_ranges_the_names_are_others(tmp_path: Path) -> None:
    assert refusal(workbook({"Лист1": PAIR}), tmp_path, **TWO) == UNMERGED
    partly = workbook({"Лист1": PAIR}, merging("C1:D1"))
    assert refusal(partly, tmp_path, **TWO) == ("COLUMN_MISSING", {"column": "Остаток / Юг"})


def test_a_csv_has_no_merged_cells_and_may_be_filled_to_the_right(tmp_path: Path) -> None:
    lines = [[str("" if cell is None else cell) for cell in row] for row in PAIR]
    content = "\n".join(map(";".join, lines)).encode()
    assert refusal(content, tmp_path, **TWO) == UNMERGED
    read_here(content, tmp_path, **{**TWO, "header": {"rows": 2, "fill_right": True}})
    assert stocks(tmp_path) == EXPECTED


# -- codes with zeros in front


def masked(book: openpyxl.Workbook) -> None:
    for sheet in book.worksheets:
        _mask(sheet)


def _mask(sheet: Worksheet) -> None:
    masks = {
        "Code": "00000000",
        "Name": "0000",
        "Price": "00000",
        "Stock": "0000",
        "Art": "000",
        "Alt": "00000",
    }
    for column in sheet.iter_cols():
        for cell in column[1:]:
            cell.number_format = masks.get(str(column[0].value), "General")


def test_a_code_keeps_the_zeros_that_its_format_shows_and_nothing_else_gets_any(tmp_path: Path) -> None:
    rows = [
        [*HEAD, "Art"], [123, 7, 12, 5, 9], [12345678, "x", 1.5, 6, 1234], [123456789, "x", 1, 7, "9"],
        ["42", "x", 1, 8, None], [1.5, "x", 1, 9, 2.5],
    ]  # fmt: skip
    patch = {"extra": {"art": {"from": "Art", "type": "code"}}}
    read_here(workbook({"Лист1": rows}, masked), tmp_path, **patch)
    assert [
        (one["sku"], one["name"], one["price_minor"], one["qty"], one["art"]) for one in payloads(tmp_path)
    ] == [
        ("00000123", "7", 1200, 5, "009"), ("12345678", "x", 150, 6, "1234"), ("123456789", "x", 100, 7, "9"),
        ("42", "x", 100, 8, None), ("1.5", "x", 100, 9, "2.5"),
    ]  # fmt: skip


@pytest.mark.parametrize("mask", ["0", "#000", "000-000", "0.00", "General", "@", "0000000000 "])
def test_a_format_of_anything_but_zeros_adds_none(mask: str, tmp_path: Path) -> None:
    def change(book: openpyxl.Workbook) -> None:
        book.worksheets[0]["A2"].number_format = mask

    read_here(workbook({"Лист1": [HEAD, [12, "x", 1, 1]]}, change), tmp_path)
    assert [one["sku"] for one in payloads(tmp_path)] == ["12"]


def test_each_sheet_has_its_codes_in_columns_of_its_own(tmp_path: Path) -> None:
    tables = {
        "Шины": [HEAD, [123, 7, 12, 5]], "Диски": [["Stock", "Price", "Name", "Code"], [6, 13, 8, 124]],
    }  # fmt: skip
    read_here(workbook(tables, masked), tmp_path, **SHEETS)
    assert [(one["sku"], one["name"], one["price_minor"], one["qty"]) for one in payloads(tmp_path)] == [
        ("00000123", "7", 1200, 5), ("00000124", "8", 1300, 6),
    ]  # fmt: skip


def test_what_a_blank_code_falls_back_on_keeps_its_zeros_too(tmp_path: Path) -> None:
    rows = [[*HEAD, "Alt"], [None, "x", 1, 1, 77], [5, "x", 1, 1, 78]]
    columns = {"sku": {"from": "Code", "fallback": "Alt"}}
    read_here(workbook({"Лист1": rows}, masked), tmp_path, columns=columns)
    assert [one["sku"] for one in payloads(tmp_path)] == ["00077", "00000005"]


BY_NUMBER: dict[str, Any] = {
    "header": {"rows": 0},
    "columns": {"sku": {"from": 1}, "name": {"from": 2}, "price": {"from": 3}, "qty": {"from": 4}},
}


def test_a_code_keeps_its_zeros_in_a_list_without_a_header(tmp_path: Path) -> None:
    def change(book: openpyxl.Workbook) -> None:
        book.worksheets[0]["A1"].number_format = book.worksheets[0]["C1"].number_format = "00000"

    read_here(workbook({"Лист1": [[42, "x", 12, 1]]}, change), tmp_path, **BY_NUMBER)
    assert [(one["sku"], one["price_minor"]) for one in payloads(tmp_path)] == [("00042", 1200)]


# -- dates

DAYS = ["2026-01-28", "2026-01-28 07:30:00", "12:00:00"]


def test_a_date_in_a_column_of_texts_is_that_date(tmp_path: Path) -> None:
    cells = [datetime(2026, 1, 28), datetime(2026, 1, 28, 7, 30), time(12)]  # noqa: DTZ001 (as in a cell)
    rows = [HEAD, *([f"A-{number}", cell, 1, 1] for number, cell in enumerate(cells))]
    read_here(workbook({"Лист1": rows}), tmp_path)
    assert [one["name"] for one in payloads(tmp_path)] == DAYS
    written = ["2026-01-28T00:00:00.000", "2026-01-28T07:30:00.000", "1899-12-31T12:00:00.000", "2026-02-31T"]
    found = read_here(
        spreadsheetml(
            *(
                [("String", f"A-{number}"), ("DateTime", day), ("Number", 1), ("Number", 1)]
                for number, day in enumerate(written)
            ),
            [("String", "A-9"), ("String", "x"), ("DateTime", written[0]), ("Number", 1)],
        ),
        tmp_path,
    )
    assert [one["name"] for one in payloads(tmp_path)] == [*DAYS, None]
    assert found.bad_by_reason == {"PRICE_UNPARSABLE": 1}


# -- names of files

PAGE = (
    "<html><table><tr><th>Code<th>Name<th>Price<th>Stock</tr><tr><td>A-1<td>x<td>10<td>1</tr></table></html>"
)


def spreadsheetml(*rows: list[tuple[str, object]]) -> bytes:
    """A workbook of Excel 2003 in XML with these cells, each with its type."""
    written = [
        "".join(f'<Cell><Data ss:Type="{kind}">{value}</Data></Cell>' for kind, value in row)
        for row in ([("String", name) for name in HEAD], *rows)
    ]
    space = "urn:schemas-microsoft-com:office:spreadsheet"
    return (
        f'<?xml version="1.0"?><Workbook xmlns="{space}" xmlns:ss="{space}"><Worksheet ss:Name="A"><Table>'
        f"{''.join(f'<Row>{cells}</Row>' for cells in written)}</Table></Worksheet></Workbook>"
    ).encode()


SPREADSHEETML = spreadsheetml([("String", "A-1"), ("String", "x"), ("Number", 10), ("Number", 1)])


@pytest.mark.parametrize(
    ("content", "name", "format"),
    [
        (workbook({"Лист1": goods("A-1")}), "list.xls", "xlsx"),
        (workbook({"Лист1": goods("A-1")}), "list.csv", "xlsx"),
        (workbook({"Лист1": goods("A-1")}), "list.zip", "xlsx"),
        (b"Code;Name;Price;Stock\nA-1;x;10;1\n", "list.xls", "csv"),
        (b"Code,Name,Price,Stock\nA-1,x,10,1\n", "list.xlsx", "csv"),
        (PAGE.encode(), "list.xls", "html"),
        (SPREADSHEETML, "list.xls", "spreadsheetml"),
        (b'[{"Code": "A-1", "Name": "x", "Price": 10, "Stock": 1}]', "list.xlsx", "json"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_list_is_what_is_in_it_whatever_it_is_called(
    content: bytes, name: str, format: str, tmp_path: Path
) -> None:
    found = read_here(content, tmp_path, name=name)
    assert found.format == format
    assert [(one["sku"], one["price_minor"], one["qty"]) for one in payloads(tmp_path)] == [("A-1", 1000, 1)]
    with pytest.raises(SupplierFailure) as caught:
        read_here(content, tmp_path, name=name, input={"formats": ["xls"]})
    assert (caught.value.code, caught.value.detail) == ("FORMAT_UNEXPECTED", {"format": format})
