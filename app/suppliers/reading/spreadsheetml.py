"""Lists that are SpreadsheetML, the XML of Excel 2003: programs write it as it needs no library."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError

import defusedxml
import defusedxml.ElementTree

from app.suppliers.reading.cells import CELL_ERROR, FORMULA_NO_VALUE, Truth
from app.suppliers.reading.excel import moment
from app.suppliers.reading.limits import Limits
from app.suppliers.reading.sheets import refused
from app.suppliers.reading.tables import Table, Tables

SPACE = "{urn:schemas-microsoft-com:office:spreadsheet}"
MAX_DEPTH = 100
NO_DAY = date(1899, 12, 31)
"""The day of a cell that is a time only."""


def opened(path: Path, limits: Limits) -> Tables:
    """The sheets of the workbook; SupplierFailure when its XML is broken or declares anything."""
    try:
        return Tables("spreadsheetml", None, _tables(path, limits))
    except defusedxml.DefusedXmlException:
        raise refused("XML_ENTITY") from None
    except (ParseError, ValueError, LookupError) as error:
        raise refused("FILE_CORRUPT", format="spreadsheetml", problem=type(error).__name__) from None


def _tables(path: Path, limits: Limits) -> list[Table]:
    found: list[Table] = []
    above: list[Element] = []
    row = 0
    for event, element in defusedxml.ElementTree.iterparse(path, events=("start", "end"), forbid_dtd=True):
        if event == "start":
            above.append(element)
            if len(above) > MAX_DEPTH:
                raise refused("FILE_CORRUPT", format="spreadsheetml", depth=len(above))
            if element.tag == f"{SPACE}Worksheet":
                found.append(Table(limits, name=element.get(f"{SPACE}Name", "")))
                row = 0
            continue
        above.pop()
        if element.tag == f"{SPACE}Row" and found:
            row = _number(element, "Index", row + 1)
            _put_row(found[-1], row, element)
            row += _number(element, "Span", 0)  # so many equal, blank rows follow
        elif element.tag.endswith("}Visible") and found:
            found[-1].visible = (element.text or "").strip() == "SheetVisible"
        if above and element.tag == f"{SPACE}Row":
            above[-1].remove(element)  # memory does not grow with the XML
    return found


def _put_row(table: Table, row: int, element: Element) -> None:
    column = 0
    for cell in element:
        if cell.tag != f"{SPACE}Cell":
            continue
        column = _number(cell, "Index", column + 1)
        across = _number(cell, "MergeAcross", 0)
        table.put(row, column - 1, _value(cell), down=_number(cell, "MergeDown", 0), across=across)
        column += across


def _number(element: Element, name: str, default: int) -> int:
    found = element.get(f"{SPACE}{name}")
    number = default if found is None else int(found[:9])
    if number < 0:
        raise ValueError(name)
    return number


def _value(cell: Element) -> Any:
    data = cell.find(f"{SPACE}Data")
    text = "".join(data.itertext()) if data is not None else ""
    if data is None or not text:
        is_text = data is not None and data.get(f"{SPACE}Type") == "String"
        return FORMULA_NO_VALUE if cell.get(f"{SPACE}Formula") and not is_text else None
    kind = data.get(f"{SPACE}Type")
    if kind == "Number":
        return float(text)
    if kind == "Boolean":
        return Truth.TRUE if text.strip() == "1" else Truth.FALSE
    if kind == "DateTime":
        return _moment(text)
    return CELL_ERROR if kind == "Error" else text


def _moment(text: str) -> Any:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return CELL_ERROR
    return moment(found, has_day=found.date() != NO_DAY)
