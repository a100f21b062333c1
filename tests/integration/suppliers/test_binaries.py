"""Workbooks in binary formats: XLS as Excel and 1C write it, XLS of Excel 5, XLSB; whole, locked, damaged."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import xlwt

from app.suppliers import codes
from app.suppliers.extract import extract
from app.suppliers.failures import SupplierFailure
from tests.integration.suppliers.binary_lists import (
    HIDDEN,
    LABEL,
    VERY_HIDDEN,
    Error,
    Packed,
    Shared,
    Shown,
    Table,
    biff5,
    changed,
    encrypted,
    ole,
    with_formats_from,
    xlsb,
)
from tests.integration.suppliers.lists import bad_rows, payloads, read_here, rules

HEAD = ["Code", "Name", "Price", "Stock"]


def style(number_format: str) -> xlwt.XFStyle:
    return xlwt.easyxf(num_format_str=number_format)


Written = list[list[Any]]
"""Rows of cells; a pair is a value and its number format."""


def book_of(tables: dict[str, Written], *, states: dict[str, int] | None = None) -> xlwt.Workbook:
    """A workbook of Excel 97."""
    book = xlwt.Workbook()
    for name, rows in tables.items():
        put(book, name, rows)
        book.get_sheet(name).visibility = (states or {}).get(name, 0)
    return book


def put(book: xlwt.Workbook, name: str, rows: Written) -> None:
    """The workbook has this sheet as well."""
    sheet = book.add_sheet(name)
    for at, row in enumerate(rows):
        for column, cell in enumerate(row):
            if isinstance(cell, tuple):
                sheet.write(at, column, cell[0], style(cell[1]))
            elif cell is not None:
                sheet.write(at, column, cell)


def stream(tables: dict[str, Written], *, states: dict[str, int] | None = None) -> bytes:
    """The stream of such a workbook."""
    found: bytes = book_of(tables, states=states).get_biff_data()
    return found


def xls(tables: dict[str, Written], *, states: dict[str, int] | None = None) -> bytes:
    return ole({"Workbook": stream(tables, states=states)})


def figures(into: Path) -> list[tuple[Any, ...]]:
    return [(one["sku"], one["price_minor"], one["qty"]) for one in payloads(into)]


def refusal(content: bytes, into: Path, **patch: Any) -> str:
    with pytest.raises(SupplierFailure) as caught:
        read_here(content, into, **patch)
    assert caught.value.stage == "gate"
    return caught.value.code


# -- codes and numbers

MASKED = "00000000"


def test_a_code_keeps_the_zeros_that_its_format_shows_and_nothing_else_gets_any(tmp_path: Path) -> None:
    rows = [
        [*HEAD, "Art"],
        [(123, MASKED), (7, "0000"), (12, "00000"), (5, "0000"), (9, "000")],
        [(123456789, MASKED), "x", 1, 6, (1234, "000")],
        [("42", MASKED), "x", 1, 7, None],
        [(1.5, MASKED), "x", 1, 8, (2, "0")],
        [(77, "0"), "x", 1, 9, (3, "000-00")],
    ]  # fmt: skip
    patch = {"extra": {"art": {"from": "Art", "type": "code"}}}
    read_here(xls({"Лист1": rows}), tmp_path, **patch)
    assert [
        (one["sku"], one["name"], one["price_minor"], one["qty"], one["art"]) for one in payloads(tmp_path)
    ] == [
        ("00000123", "7", 1200, 5, "009"), ("123456789", "x", 100, 6, "1234"), ("42", "x", 100, 7, None),
        ("1.5", "x", 100, 8, "2"), ("77", "x", 100, 9, "3"),
    ]  # fmt: skip


def test_codes_keep_their_zeros_in_every_sheet_and_without_a_header(tmp_path: Path) -> None:
    entries = [{"match": "*", "category_key": "goods"}]
    tables = {
        "A": [HEAD, [(1, "000"), "x", (2, "000"), (3, "000")]],
        "B": [["Stock", "Price", "Name", "Code"], [(4, "000"), (5, "000"), "x", (6, "000")]],
    }
    read_here(xls(tables), tmp_path, category_key=None, sheets=entries)
    assert figures(tmp_path) == [("001", 200, 3), ("006", 500, 4)]
    by_number = {"sku": {"from": 1}, "name": {"from": 2}, "price": {"from": 3}, "qty": {"from": 4}}
    read_here(xls({"A": tables["A"][1:]}), tmp_path, header={"rows": 0}, columns=by_number)
    assert figures(tmp_path) == [("001", 200, 3)]


@pytest.mark.parametrize("first", [50, 60, 164])
def test_numbers_under_formats_of_the_program_stay_numbers(first: int, tmp_path: Path) -> None:
    # From 50 on, 1C gives its own formats numbers under which other programs know dates.
    formats = ["#,##0.00", '#,##0" шт."', "0.00", '# ##0.00"р."', "000000", "#,##0.000", "0.0", "#,##0"]
    rows: Written = [HEAD]
    for number, written in enumerate(formats):
        rows.append([(40000 + number, "000000"), "x", (45000.5 + number, written), (number, written)])
    content = ole({"Workbook": with_formats_from(first, stream({"TDSheet": rows}))})
    found = read_here(content, tmp_path)
    assert found.bad_by_reason == {}
    assert figures(tmp_path) == [
        (f"0{40000 + number}", 4_500_050 + 100 * number, number) for number in range(len(formats))
    ]


@pytest.mark.parametrize("first", [50, 164])
def test_a_date_is_no_code_no_price_and_no_stock(first: int, tmp_path: Path) -> None:
    day = (datetime(2026, 1, 28), "DD.MM.YYYY")  # noqa: DTZ001 (as in the cell)
    rows = [HEAD, [day, "x", 1, 1], ["A-2", "x", day, 1], ["A-3", "x", 1, day], ["A-4", "x", 1, 1]]
    content = ole({"Workbook": with_formats_from(first, stream({"Лист1": rows}))})
    found = read_here(content, tmp_path, columns={"qty": {"blank": "zero"}})
    assert found.bad_by_reason == {"SKU_INVALID": 1, "PRICE_UNPARSABLE": 1, "QTY_UNPARSABLE": 1}
    assert figures(tmp_path) == [("A-4", 100, 1)]


@pytest.mark.parametrize("since_1904", [False, True])
@pytest.mark.parametrize("first", [50, 164])
def test_a_date_in_a_column_of_texts_is_that_date(first: int, since_1904: bool, tmp_path: Path) -> None:
    rows = [
        HEAD, ["A-1", (datetime(2026, 1, 28), "DD.MM.YYYY"), 1, 1],  # noqa: DTZ001 (as in the cell)
        ["A-2", (datetime(2026, 1, 28, 7, 30), "DD.MM.YYYY HH:MM"), 1, 1],  # noqa: DTZ001
        ["A-3", (0.5, "HH:MM"), 1, 1], ["A-4", (99_999_999, "DD.MM.YYYY"), 1, 1],
    ]  # fmt: skip
    book = book_of({})
    book.dates_1904 = since_1904
    put(book, "Лист1", rows)
    read_here(ole({"Workbook": with_formats_from(first, book.get_biff_data())}), tmp_path)
    assert [one["name"] for one in payloads(tmp_path)] == [
        "2026-01-28", "2026-01-28 07:30:00", "12:00:00", None,
    ]  # fmt: skip


def test_true_is_no_number_and_an_error_no_value(tmp_path: Path) -> None:
    book = xlwt.Workbook()
    sheet = book.add_sheet("Лист1")
    rows: Written = [
        HEAD, [True, "x", 1, 1], ["A-2", "x", True, 1], ["A-3", "x", 1, False], ["A-4", True, 1, 1],
        [None, "x", 1, 1], ["A-6", "x", None, 1], ["A-7", "x", 1, None], ["A-8", "x", 1, 2],
    ]  # fmt: skip
    for at, row in enumerate(rows):
        for column, cell in enumerate(row):
            if cell is None:
                sheet.row(at).set_cell_error(column, 0x2A)  # #N/A
            else:
                sheet.write(at, column, cell)
    patch = {"columns": {"qty": {"blank": "zero"}, "price": {"fallback": "Stock"}}}
    found = read_here(ole({"Workbook": book.get_biff_data()}), tmp_path, **patch)
    assert found.bad_by_reason == {
        "SKU_INVALID": 1, "PRICE_UNPARSABLE": 1, "QTY_UNPARSABLE": 1, "CELL_ERROR": 3,
    }  # fmt: skip
    assert [(row["row_number"], row["column"]) for row in bad_rows(tmp_path)][3:] == [
        (6, "sku"), (7, "price"), (8, "qty"),
    ]  # fmt: skip
    assert [(one["sku"], one["name"]) for one in payloads(tmp_path)] == [("A-4", "true"), ("A-8", "x")]


# -- sheets and headers


def test_hidden_sheets_are_left_out_and_told_of(tmp_path: Path) -> None:
    goods = {name: [HEAD, [f"{name}-1", "x", 1, 1]] for name in ("H", "V", "A")}
    content = xls(goods, states={"H": HIDDEN, "V": VERY_HIDDEN})
    found = read_here(content, tmp_path)
    assert figures(tmp_path) == [("A-1", 100, 1)]
    assert found.alerts == (("SHEET_HIDDEN", "H"), ("SHEET_HIDDEN", "V"))
    entries = [{"match": "*", "category_key": "goods"}, {"name": "V", "category_key": "v", "required": True}]
    assert refusal(content, tmp_path, category_key=None, sheets=entries[::-1]) == "SHEET_MISSING"


def test_a_header_of_two_rows_with_merged_cells_is_composed(tmp_path: Path) -> None:
    book = xlwt.Workbook()
    sheet = book.add_sheet("TDSheet")
    sheet.write(0, 0, "Прайс")
    for place, name in [
        ((2, 3, 0, 0), "Code"), ((2, 3, 1, 1), "Name"), ((2, 2, 2, 3), "Цена"), ((2, 2, 4, 5), "Остаток"),
    ]:  # fmt: skip
        sheet.write_merge(*place, name)
    for column, name in enumerate(["розн", "опт", "Север", "Юг"], start=2):
        sheet.write(3, column, name)
    for column, cell in enumerate(["A-1", "x", 99, 10, 1, 2]):
        sheet.write(4, column, cell)
    stores = [{"from": f"Остаток / {name}", "warehouse": name} for name in ("Север", "Юг")]
    columns = {"price": {"from": "Цена / опт"}, "qty": {"from": None, "warehouses": stores}}
    content = ole({"Workbook": book.get_biff_data()})
    read_here(content, tmp_path, header={"rows": 2}, columns=columns)
    assert [(one["sku"], one["price_minor"], one["warehouse"], one["qty"]) for one in payloads(tmp_path)] == [
        ("A-1", 1000, "Север", 1), ("A-1", 1000, "Юг", 2),
    ]  # fmt: skip


# -- Excel 5

RUSSIAN: dict[str, Any] = {
    "columns": {
        "sku": {"from": "Код"}, "name": {"from": "Имя"}, "price": {"from": "Цена"},
        "qty": {"from": "Остаток", "words": {"есть": "1+"}},
    },
}  # fmt: skip
OLD: dict[str, Table] = {
    "Шины": [["Код", "Имя", "Цена", "Остаток"], [42, "Шина № 7", 10.5, 3.0], ["Ё-2", "Ещё", 7.0, "есть"]]
}


def in_book(content: bytes) -> bytes:
    return ole({"Book": content})


@pytest.mark.parametrize("contain", [in_book, bytes], ids=["in a container", "bare"])
@pytest.mark.parametrize(
    ("codepage", "encoding", "asked"),
    [
        (None, "cp1251", "auto"),  # old programs leave the code page out, and mean their own
        (1251, "cp1251", "auto"),
        (32769, "cp1252", "auto"),
        (10007, "mac_cyrillic", "auto"),
        (None, "koi8-r", "koi8-r"),
        (1252, "cp1251", "cp1251"),  # the config knows better than the file
    ],
)
def test_texts_of_excel_5_are_read_by_their_code_page(
    codepage: int | None, encoding: str, asked: str, contain: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    tables = OLD
    if encoding == "cp1252":
        tables = {"A": [["Code", "Name", "Price", "Stock"], [42, "Größe", 10.5, 3.0]]}
    elif encoding != "cp1251":  # they have no such sign
        tables = {"Шины": [OLD["Шины"][0], [42, "Шина", 10.5, 3.0]]}
    patch = {**({} if encoding == "cp1252" else RUSSIAN), "input": {"encoding": asked}}
    content = contain(biff5(tables, codepage=codepage, encoding=encoding))
    found = read_here(content, tmp_path, **patch)
    name = {"cp1251": "Шина № 7", "cp1252": "Größe"}.get(encoding, "Шина")
    assert found.sheets == tuple(tables)
    first = payloads(tmp_path)[0]
    assert (first["sku"], first["name"], first["price_minor"], first["qty"]) == ("000042", name, 1050, 3)
    if encoding == "cp1251":
        second = payloads(tmp_path)[1]
        assert (second["sku"], second["name"], second["price_minor"]) == ("Ё-2", "Ещё", 700)
        assert (second["qty"], second["qty_min"], second["qty_raw"]) == (1, True, "есть")


def test_texts_that_are_not_in_their_code_page_refuse_the_list(tmp_path: Path) -> None:
    content = biff5({"A": [["Код"], ["нечёт"]]}, codepage=1200)
    assert refusal(in_book(content), tmp_path, **RUSSIAN) == "FILE_CORRUPT"


# -- XLSB


def test_texts_and_numbers_of_a_binary_workbook_are_read_in_each_of_their_forms(tmp_path: Path) -> None:
    table = [
        [Shared("Code"), "Name", Shared("Price"), "Stock"],
        ["A-1", Shared("Шина"), 10.55, Packed(3)],
        [Packed(42), "Ё", Packed(1055, hundredth=True), 4.0],
        [Shared("0042"), None, Packed(7), Packed(-2)],
    ]
    found = read_here(xlsb({"Лист1": table}), tmp_path)
    assert figures(tmp_path) == [("A-1", 1055, 3), ("42", 1055, 4)]
    assert [one["name"] for one in payloads(tmp_path)] == ["Шина", "Ё"]
    assert (found.format, found.bad_by_reason) == ("xlsb", {"QTY_NEGATIVE": 1})


def test_one_is_not_true_in_a_binary_workbook_either(tmp_path: Path) -> None:
    found = read_here(xlsb({"A": [HEAD, ["A-1", "x", 1.0, True], ["A-2", True, 1.0, 1.0]]}), tmp_path)
    assert found.bad_by_reason == {"QTY_UNPARSABLE": 1}
    assert [(one["sku"], one["name"]) for one in payloads(tmp_path)] == [("A-2", "true")]


def test_a_code_of_a_binary_workbook_keeps_its_zeros_and_nothing_else_gets_any(tmp_path: Path) -> None:
    table = [
        [],  # the places count from the first row of the sheet
        [None, *HEAD],
        [None, Shown(42, "00000"), Shown(7, "000"), Shown(1.5, "000"), Shown(3, "000")],
        [None, Shown(Packed(43), "00000"), "x", 1.0, 4.0],
        [None, Shown(44, "0.00"), "x", Shown(2, "00000"), 5.0],
        [None, 45.0, "x", 3.0, 6.0],
    ]
    read_here(xlsb({"Лист1": table}), tmp_path)
    assert figures(tmp_path) == [("00042", 150, 3), ("00043", 100, 4), ("44", 200, 5), ("45", 300, 6)]
    assert payloads(tmp_path)[0]["name"] == "7"


@pytest.mark.parametrize("formula", [False, True])
def test_an_error_in_a_binary_workbook_refuses_the_row_and_is_never_a_zero(
    formula: bool, tmp_path: Path
) -> None:
    error = Error(formula)
    table = [
        [], HEAD, [error, "x" * 20_000, 1.0, 1.0], ["A-2", error, 1.0, 1.0], ["A-3", "x", error, 1.0],
        ["A-4", "x", 1.0, error], ["A-5", "x", 1.0, None],
    ]  # fmt: skip
    patch = {"columns": {"qty": {"blank": "zero"}, "price": {"fallback": "Stock"}}}
    found = read_here(xlsb({"Лист1": table}), tmp_path, **patch)
    assert found.bad_by_reason == {"CELL_ERROR": 3}
    assert [(row["row_number"], row["column"]) for row in bad_rows(tmp_path)] == [
        (3, "sku"), (5, "price"), (6, "qty"),
    ]  # fmt: skip
    assert [(one["sku"], one["name"], one["qty"]) for one in payloads(tmp_path)] == [
        ("A-2", None, 1), ("A-5", "x", 0),
    ]  # fmt: skip


def test_a_binary_workbook_that_reaches_too_far_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.xlsb"
    path.write_bytes(xlsb({"A": [HEAD, ["A-1", "x", 1.0, 1.0]]}, corner=(1_048_575, 16_383)))
    with pytest.raises(SupplierFailure) as caught:
        extract(path, into=tmp_path, config=rules(), run_id="r")
    assert caught.value.code == "FILE_TOO_LARGE"


def test_hidden_sheets_of_a_binary_workbook_are_left_out_and_told_of(tmp_path: Path) -> None:
    goods = {name: [HEAD, [f"{name}-1", "x", 1.0, 1.0]] for name in ("H", "A", "V")}
    found = read_here(xlsb(goods, states={"H": HIDDEN, "V": VERY_HIDDEN}), tmp_path)
    assert figures(tmp_path) == [("A-1", 100, 1)]
    assert found.alerts == (("SHEET_HIDDEN", "H"), ("SHEET_HIDDEN", "V"))


def test_a_binary_workbook_with_a_part_cut_short_is_corrupt(tmp_path: Path) -> None:
    content = xlsb({"A": [HEAD, *([f"A-{number}", "x", 1.0, 1.0] for number in range(2000))]})
    assert refusal(content[: len(content) // 2], tmp_path) == "FILE_CORRUPT"


# -- locked and damaged

GOODS: dict[str, Written] = {"Лист1": [HEAD, *([f"A-{number}", "x", 1.5, number] for number in range(300))]}


@pytest.mark.parametrize(
    "content",
    [
        ole({"Workbook": encrypted(stream(GOODS))}),
        ole({"Book": encrypted(biff5(OLD, codepage=1251))}),
        ole(
            {"EncryptionInfo": b"\4\0\4\0" + bytes(200), "EncryptedPackage": random.Random(1).randbytes(9000)}
        ),
    ],
    ids=["XLS", "Excel 5", "XLSX"],
)
def test_a_list_with_a_password_is_refused_and_says_so(content: bytes, tmp_path: Path) -> None:
    assert refusal(content, tmp_path) == "FILE_ENCRYPTED"


@pytest.mark.parametrize("eighths", range(1, 8))
def test_a_list_cut_short_is_corrupt_and_no_part_of_it_is_taken(eighths: int, tmp_path: Path) -> None:
    saved = io.BytesIO()
    book_of(GOODS).save(saved)  # with its directory at the end; ours has it in front
    for whole in (saved.getvalue(), xls(GOODS)):
        assert read_here(whole, tmp_path).good_rows == 300
        assert refusal(whole[: len(whole) * eighths // 8], tmp_path) == "FILE_CORRUPT"
    # A program that died while it wrote may leave a whole container with half a workbook in it.
    found = stream(GOODS)
    assert refusal(ole({"Workbook": found[: len(found) * eighths // 8]}), tmp_path) == "FILE_CORRUPT"


@pytest.mark.parametrize("at", [0, 2, 4], ids=["row", "column", "style"])
def test_a_cell_that_is_nowhere_is_damage(at: int, tmp_path: Path) -> None:
    def change(kind: int, data: bytes) -> bytes:
        return data[:at] + b"\xff\xff" + data[at + 2 :] if kind == LABEL else data

    content = in_book(changed(biff5(OLD, codepage=None), change))
    assert refusal(content, tmp_path, **RUSSIAN) == "FILE_CORRUPT"


def test_a_container_of_something_else_is_no_list(tmp_path: Path) -> None:
    assert refusal(ole({"WordDocument": bytes(9000)}), tmp_path) == "FORMAT_UNKNOWN"


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_list_ends_in_counts_or_in_a_refusal(seed: int, tmp_path: Path) -> None:
    luck = random.Random(seed)
    content = bytearray(xls(GOODS) if seed % 2 else in_book(biff5(OLD, codepage=None)))
    # Few bytes anywhere, or many in the part that says where everything is.
    reach, times = (len(content), 40) if seed % 3 else (4096, 12)
    for _ in range(times):
        content[luck.randrange(8, reach)] = luck.randrange(256)
    path = tmp_path / "list.xls"
    path.write_bytes(content)
    try:
        found = extract(path, into=tmp_path, config=rules(**({} if seed % 2 else RUSSIAN)), run_id="r")
    except SupplierFailure as failure:
        assert failure.stage == "gate" and codes.registry()[failure.code].stage == "gate"
        assert not (tmp_path / "facts.ndjson").exists()
    else:
        assert found.total_rows == found.good_rows + found.bad_rows + found.skipped_rows
        assert found.facts == found.good_rows == len(payloads(tmp_path))
        assert found.bad_rows == len(bad_rows(tmp_path))
    assert not list(tmp_path.glob(".room-*"))
