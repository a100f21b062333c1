"""Files that are damaged or forged in ways that their readers stumble over: each is refused, with why."""

from __future__ import annotations

import errno
import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app.suppliers.failures import SupplierFailure
from app.suppliers.reading import formats
from tests.integration.suppliers.binary_lists import Shared, biff5, changed, xlsb
from tests.integration.suppliers.lists import payloads, read_here

LIST = b"Code;Name;Price;Stock\nA-1;Bolt;1;5\n"
ROWS = [["Code", "Name", "Price", "Stock"], ["A-1", "Bolt", 1, 5]]


def refusal(content: bytes, into: Path, **patch: Any) -> str:
    with pytest.raises(SupplierFailure) as caught:
        read_here(content, into, **patch)
    return caught.value.code


def zipped(content: bytes = LIST, *, name: str = "list.csv", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_whose_content_is_damaged_is_corrupt(method: int, tmp_path: Path) -> None:
    content = bytearray(zipped(LIST * 50, method=method))
    at = content.index(b"list.csv") + len(b"list.csv")
    content[at + 10 : at + 30] = b"\xff" * 20
    assert refusal(bytes(content), tmp_path) == "FILE_CORRUPT"


@pytest.mark.parametrize("part", ["xl/workbook.xml", "xl/styles.xml"])
def test_a_workbook_whose_part_is_damaged_is_corrupt(part: str, tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("xl/workbook.xml", "xl/styles.xml"):
            archive.writestr(name, "<a>" + "b" * 500 + "</a>")
    content = bytearray(out.getvalue())
    at = content.index(part.encode()) + len(part)
    content[at : at + 8] = b"\xff" * 8
    assert refusal(bytes(content), tmp_path) == "FILE_CORRUPT"


def test_a_method_that_nobody_knows_is_corrupt(tmp_path: Path) -> None:
    content = bytearray(zipped(method=zipfile.ZIP_STORED))
    content[8:10] = struct.pack("<H", 77)
    central = content.index(b"PK\x01\x02")
    content[central + 10 : central + 12] = struct.pack("<H", 77)
    assert refusal(bytes(content), tmp_path) == "FILE_CORRUPT"


def test_a_member_without_a_name_is_no_table(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("list.csv"), LIST)
        archive.writestr(zipfile.ZipInfo("\0"), b"")
    assert zipfile.ZipFile(io.BytesIO(out.getvalue())).namelist() == ["list.csv", ""]
    assert read_here(out.getvalue(), tmp_path).good_rows == 1


def test_a_disk_that_is_full_is_no_damage_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(formats.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        read_here(zipped(), tmp_path)


@pytest.mark.parametrize("span", [" " * 8 + "2", "\t\n 2 ", "", "x", "-1", "9" * 50, "٢"])
def test_a_cell_may_say_anything_of_its_width(span: str, tmp_path: Path) -> None:
    page = (
        "<table><tr><th>Code<th>Name<th>Price<th>Stock</tr>"
        f'<tr><td>A-1<td rowspan="{span}">Bolt<td>1<td>5</tr></table>'
    )
    assert read_here(page.encode(), tmp_path).good_rows == 1
    assert payloads(tmp_path)[0]["sku"] == "A-1"


@pytest.mark.parametrize("depth", [300, 600, 900, 960, 990, 5000])
@pytest.mark.parametrize("half", ["", "\\ud800"], ids=["whole", "half a character"])
def test_json_that_is_nested_deep_is_read_or_refused(depth: int, half: str, tmp_path: Path) -> None:
    row = {"Code": "A-1", "Name": "@", "Price": "1", "Stock": "5"}
    content = json.dumps([row]).replace('"@"', "[" * depth + f'"{half}"' + "]" * depth).encode()
    try:
        assert read_here(content, tmp_path).good_rows == 1
    except SupplierFailure as failure:
        assert failure.code == "FILE_CORRUPT"


def test_an_old_workbook_of_a_code_page_that_nobody_knows_is_corrupt(tmp_path: Path) -> None:
    content = biff5({"S": ROWS}, codepage=57392)
    assert refusal(content, tmp_path) == "FILE_CORRUPT"


def test_an_old_workbook_whose_styles_lead_nowhere_is_corrupt(tmp_path: Path) -> None:
    def far(kind: int, data: bytes) -> bytes:
        return data[:4] + b"\xff\xff" + data[6:] if kind in (0x0203, 0x0204) else data

    content = changed(biff5({"S": ROWS}, codepage=1251), far)
    try:
        read_here(content, tmp_path)
    except SupplierFailure as failure:
        assert failure.code == "FILE_CORRUPT"


def test_a_workbook_at_which_the_native_reader_panics_is_corrupt(tmp_path: Path) -> None:
    out = io.BytesIO()
    book = io.BytesIO(xlsb({"S": [[Shared("Code")], ["A"]]}))
    with zipfile.ZipFile(book) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("sharedStrings.bin"):  # the texts that cells point to are not there
                data = b"\x9f\x01\x08" + bytes(8) + b"\xa0\x01\x00"
            new.writestr(name, data)
    assert refusal(out.getvalue(), tmp_path) == "FILE_CORRUPT"
