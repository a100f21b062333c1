"""What stands in workbooks beside values: formulas, errors, masks, other spellings of the same XML."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from app.suppliers.extract import extract
from tests.integration.suppliers.lists import bad_rows, payloads, rules

HEAD = (
    '<?xml version="1.0"?><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
    "<sheetData>"
)
NAMES = '<row r="1">' + "".join(
    f'<c r="{place}" t="inlineStr"><is><t>{name}</t></is></c>'
    for place, name in (("A1", "Code"), ("B1", "Price"), ("C1", "Name"), ("D1", "Stock"))
) + "</row>"  # fmt: skip


def workbook(rows: str, *, styles: str | None = None) -> bytes:
    """A workbook whose only sheet has these rows below the usual header, as XML."""
    made = io.BytesIO()
    openpyxl.Workbook().save(made)
    out = io.BytesIO()
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "xl/worksheets/sheet1.xml":
                data = (HEAD + NAMES + rows + "</sheetData></worksheet>").encode()
            target.writestr(name, data)
    return out.getvalue()


def cell(place: str, value: object) -> str:
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
    return f'<c r="{place}"><v>{value}</v></c>'


@pytest.mark.parametrize("blank", ["bad", "zero"])
@pytest.mark.parametrize(
    "formula",
    ["<f>1+1</f>", "<f>1+1</f><v/>", "<f>1+1</f><v></v>", '<f t="shared" si="0"/>', "<f>IF(1,2,3)</f ><v />"],
)
def test_a_formula_without_a_value_is_never_a_zero(formula: str, blank: str, tmp_path: Path) -> None:
    # The styled cell before it holds nothing and ends by itself.
    rows = (
        f'<row r="2">{cell("A2", "A-1")}{cell("B2", 5)}<c r="C2" s="0"/><c r="D2" s="0">{formula}</c></row>'
    )
    rows += f'<row r="3">{cell("A3", "A-2")}{cell("B3", 5)}<c r="C3" s="0" />{cell("D3", 7)}</row>'
    path = tmp_path / "list.xlsx"
    path.write_bytes(workbook(rows))
    found = extract(path, into=tmp_path, config=rules(columns={"qty": {"blank": blank}}), run_id="r")
    assert found.bad_by_reason == {"FORMULA_NO_VALUE": 1}
    assert [(row["row_number"], row["column"]) for row in bad_rows(tmp_path)] == [(2, "qty")]
    assert [fact["sku"] for fact in payloads(tmp_path)] == ["A-2"]


def test_a_formula_that_came_to_an_empty_text_is_a_blank_cell(tmp_path: Path) -> None:
    rows = f'<row r="2">{cell("A2", "A-1")}{cell("B2", 5)}<c r="D2" t="str"><f>A9</f><v></v></c></row>'
    path = tmp_path / "list.xlsx"
    path.write_bytes(workbook(rows))
    found = extract(path, into=tmp_path, config=rules(), run_id="r")
    assert found.bad_by_reason == {"QTY_EMPTY": 1}


@pytest.mark.parametrize("place", ["A", "B", "D"])
def test_an_error_value_refuses_the_row(place: str, tmp_path: Path) -> None:
    cells: dict[str, Any] = {"A": cell("A2", "A-1"), "B": cell("B2", 5), "D": cell("D2", 7)}
    cells[place] = f'<c r="{place}2" s="0" t="e"><f>NA()</f><v>#N/A</v></c>'
    path = tmp_path / "list.xlsx"
    path.write_bytes(workbook(f'<row r="2">{"".join(cells.values())}</row>'))
    found = extract(path, into=tmp_path, config=rules(), run_id="r")
    assert found.bad_by_reason == {"CELL_ERROR": 1}


def test_attributes_in_single_quotes_say_the_same(tmp_path: Path) -> None:
    row = f'<row r="2">{cell("A2", "A-1")}{cell("B2", 5)}<c r="D2"><f>1+1</f></c></row>'.replace('"', "'")
    path = tmp_path / "list.xlsx"
    path.write_bytes(workbook(row))
    found = extract(path, into=tmp_path, config=rules(columns={"qty": {"blank": "zero"}}), run_id="r")
    assert found.bad_by_reason == {"FORMULA_NO_VALUE": 1}


def test_what_excel_escapes_is_read_once(tmp_path: Path) -> None:
    row = cell("A2", "A_x000D_B") + cell("B2", 5) + cell("C2", "_x005F_x0041_") + cell("D2", 1)
    path = tmp_path / "list.xlsx"
    path.write_bytes(workbook(f'<row r="2">{row}</row>'))
    extract(path, into=tmp_path, config=rules(), run_id="r")
    assert [(fact["sku"], fact["name"]) for fact in payloads(tmp_path)] == [("A B", "_x0041_")]


def test_one_is_not_true(tmp_path: Path) -> None:
    truth = '<c r="{}" t="b"><v>1</v></c>'
    rows = f'<row r="2">{cell("A2", "A-1")}{cell("B2", 1)}{cell("D2", 1)}</row>'
    rows += f'<row r="3">{cell("A3", "A-2")}{truth.format("B3")}{cell("D3", 1)}</row>'
    rows += f'<row r="4">{cell("A4", "A-3")}{cell("B4", 1)}{truth.format("D4")}</row>'
    rows += f'<row r="5">{truth.format("A5")}{cell("B5", 1)}{cell("D5", 1)}</row>'
    path = tmp_path / "list.xlsx"
    path.write_bytes(workbook(rows))
    found = extract(path, into=tmp_path, config=rules(dq={"max_bad_ratio": 1}), run_id="r")
    assert found.bad_by_reason == {"PRICE_UNPARSABLE": 1, "QTY_UNPARSABLE": 1, "SKU_INVALID": 1}
    assert found.good_rows == 1


def test_numbers_beyond_all_bounds_refuse_their_rows_only(tmp_path: Path) -> None:
    cells = [("1e999", "x", 1), (1, "x", "1e999"), (1, 1e300, 1)]
    rows = "".join(
        f'<row r="{n}">{cell(f"A{n}", f"A-{n}")}{cell(f"B{n}", b)}{cell(f"C{n}", c)}{cell(f"D{n}", d)}</row>'
        for n, (b, c, d) in enumerate(cells, start=2)
    ).replace(' t="inlineStr"><is><t>1e999</t></is>', "><v>1e999</v>")
    path = tmp_path / "list.xlsx"
    path.write_bytes(workbook(rows))
    found = extract(path, into=tmp_path, config=rules(), run_id="r")
    assert found.bad_by_reason == {"PRICE_UNPARSABLE": 1, "QTY_UNPARSABLE": 1}
    assert [fact["name"] for fact in payloads(tmp_path)] == ["1" + "0" * 300]
