"""Lists that are text: CSV, JSON, YML, HTML, SpreadsheetML, also zipped; whole, odd and hostile."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app.suppliers.extract import extract
from app.suppliers.extracted import Extracted
from app.suppliers.failures import SupplierFailure
from app.suppliers.reading.limits import Limits
from tests.integration.suppliers.lists import bad_rows, facts, payloads, rules

HEAD = "Code;Name;Price;Stock\n"
ROW = "A-1;Bolt;10.5;5\n"


def read(content: bytes | str, into: Path, *, limits: Limits | None = None, **patch: Any) -> Extracted:
    path = into / "list.bin"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return extract(path, into=into, config=rules(**patch), run_id="r", limits=limits or Limits())


def refusal(content: bytes | str, into: Path, **more: Any) -> str:
    with pytest.raises(SupplierFailure) as caught:
        read(content, into, **more)
    assert caught.value.stage == "gate"
    return caught.value.code


def zipped(*members: tuple[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


# -- what is written


def test_facts_bad_rows_and_counts_lie_in_the_folder(tmp_path: Path) -> None:
    found = read(HEAD + ROW + "A-2;Nut;0;1\n", tmp_path, dq={"max_bad_ratio": 1})
    (line,) = (tmp_path / "facts.ndjson").read_bytes().splitlines()
    assert line == (
        b'{"run_id":"r","supplier":"acme","category_key":"goods",'
        b'"row_id":"9086797156af04ddc4588963e0e21c5ac62a0bfebb061ab0248a7a7e07bf3fbc",'
        b'"row_number":2,"payload":{"currency":"RUB","name":"Bolt","price_minor":1050,"qty":5,'
        b'"qty_min":false,"sku":"A-1"}}'
    )
    assert bad_rows(tmp_path) == [
        {"run_id": "r", "supplier": "acme", "category_key": "goods", "row_number": 3,
         "reason_code": "PRICE_NOT_POSITIVE", "column": "price", "raw": "0", "sku": "A-2"}
    ]  # fmt: skip
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats == {
        "total_rows": 2, "good_rows": 1, "bad_rows": 1, "skipped_rows": 0, "bad_ratio": 0.5, "facts": 1,
        "skus": 1, "price_rounded": 0, "by_category": {"goods": 1},
        "bad_by_reason": {"PRICE_NOT_POSITIVE": 1}, "skipped_by_reason": {},
    }  # fmt: skip
    assert found.stats() == stats


def test_equal_content_has_one_hash_in_whatever_order_and_format(tmp_path: Path) -> None:
    one = read(HEAD + ROW + "A-2;Nut;7;1\n", tmp_path).content_sha256
    objects = [
        {"Code": "A-2", "Name": "Nut", "Price": 7, "Stock": 1},
        {"Code": "A-1", "Name": "Bolt", "Price": 10.5, "Stock": 5},
    ]
    assert read(json.dumps(objects), tmp_path).content_sha256 == one
    assert read(HEAD + ROW + "A-2;Nut;7;2\n", tmp_path).content_sha256 != one


def test_published_codes_that_are_missing_now_are_counted(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    read(HEAD + 'A-1;"say ""sku"":""X""";1;1\n"A ""2""";x;1;1\nЮ-3;x;1;1\n', tmp_path / "old")
    path = tmp_path / "new.csv"
    path.write_text(HEAD + ROW + "X;x;1;1\nЮ-3;y;1;1\n", encoding="utf-8")
    found = extract(
        path, into=tmp_path, config=rules(), run_id="r", previous=tmp_path / "old" / "facts.ndjson"
    )
    assert (found.previous_skus, found.lost_skus, found.skus) == (3, 1, 3)


# -- repeated keys

STORES = "Code;Name;Price;Stock;Store\n"
BY_STORE: dict[str, Any] = {"columns": {"warehouse": {"from": "Store"}}, "key": ["sku", "warehouse"]}


@pytest.mark.parametrize(
    ("duplicates", "figures", "good", "bad", "skipped"),
    [
        ("bad", [("A-1", "N", 1, False), ("A-1", "S", 2, False)], 2, {"DUPLICATE_KEY": 1}, {}),
        ("first", [("A-1", "N", 1, False), ("A-1", "S", 2, False)], 2, {}, {"DUPLICATE_ROW": 1}),
        ("sum", [("A-1", "N", 41, True), ("A-1", "S", 2, False)], 3, {}, {}),
    ],
)
def test_a_repeated_key_is_bad_or_left_out_or_added_up(
    duplicates: str, figures: list[Any], good: int, bad: Any, skipped: Any, tmp_path: Path
) -> None:
    rows = "A-1;x;1;1;N\nA-1;x;1;2;S\nA-1;y;1;>40;N\n"
    found = read(STORES + rows, tmp_path, duplicates=duplicates, **BY_STORE)
    got = [(one["sku"], one["warehouse"], one["qty"], one["qty_min"]) for one in payloads(tmp_path)]
    assert got == figures
    assert (found.good_rows, found.bad_by_reason, found.skipped_by_reason) == (good, bad, skipped)
    assert [fact["row_number"] for fact in facts(tmp_path)] == [2, 3]
    assert found.skus == 1


def test_a_sum_beyond_all_bounds_is_refused(tmp_path: Path) -> None:
    rows = f"A-1;x;1;{2**53 - 2}\nA-1;x;1;1\nA-1;x;1;1\n"
    found = read(HEAD + rows, tmp_path, duplicates="sum", dq={"max_bad_ratio": 1})
    assert (found.good_rows, found.bad_by_reason) == (2, {"QTY_TOO_LARGE": 1})
    assert [fact["qty"] for fact in payloads(tmp_path)] == [2**53 - 1]


# -- CSV

RUSSIAN: dict[str, Any] = {
    "columns": {
        "sku": {"from": "Артикул"}, "name": {"from": "Название"}, "price": {"from": "Цена", "decimal": ","},
        "qty": {"from": "Остаток"},
    }
}  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1251"])
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_encoding_and_delimiter_are_found(encoding: str, delimiter: str, tmp_path: Path) -> None:
    text = "Прайс, на 1 мая\n\nАртикул;Название;Цена;Остаток\nЮ-1;Болт, М8;10,50;5;;\n".replace(
        ";", delimiter
    )
    found = read(text.encode(encoding), tmp_path, **RUSSIAN)
    assert (found.good_rows, found.encoding) == (1, "utf-16" if encoding == "utf-16" else encoding)
    assert payloads(tmp_path)[0]["name"] == "Болт, М8"
    assert facts(tmp_path)[0]["row_number"] == 4


def test_a_quote_that_nobody_closes_refuses_the_list(tmp_path: Path) -> None:
    rows = "".join(f"A-{number};x;1;1\n" for number in range(50))
    assert refusal(HEAD + rows + 'B-1;"15 inch;1;1\n' + rows, tmp_path) == "FILE_CORRUPT"
    assert refusal(HEAD + rows + 'B-1;"15 inch;1;1', tmp_path) == "FILE_CORRUPT"


@pytest.mark.parametrize(
    "between",
    [
        'B-1;"15 inch;1;1\nC-1;x;1;1\nD-1;x;1;1\nE-1;"16 inch;1;1\n',  # two stray quotes
        'B-1;"15 inch;1;1\nC-1;16" inch;1;1\n',  # in neighbours
        'B-1;x;1;"1\nC-1;x;1;1\nD-1;x;1;"1\n',  # in the last column
        'B-1;"15 inch;1;1\r\nC-1;x;1;1\r\nD-1;"x";1;1\r\n',
    ],
)
def test_quotes_that_take_rows_into_one_cell_refuse_the_list(between: str, tmp_path: Path) -> None:
    rows = "".join(f"A-{number};x;1;1\n" for number in range(20))
    assert refusal(HEAD + rows + between + rows.replace("A-", "Z-"), tmp_path) == "FILE_CORRUPT"


def test_a_text_of_many_lines_with_delimiters_in_it_is_kept(tmp_path: Path) -> None:
    text = "for summer; winter\nand; all; year\n;\n"
    found = read(HEAD + f'A-1;"{text}";1;1\n' + "A-2;x;1;1\n", tmp_path)
    assert (found.good_rows, found.bad_rows) == (2, 0)


def test_quotes_and_line_breaks_in_cells_are_kept(tmp_path: Path) -> None:
    read(HEAD + 'A-1;15" rim;1;1\nA-2;"two\nlines ""x""";1;1', tmp_path)
    assert [fact["name"] for fact in payloads(tmp_path)] == ['15" rim', 'two lines "x"']


def test_markup_and_formulas_are_only_texts(tmp_path: Path) -> None:
    read(HEAD + '=1+1;<b>x</b>;1;1\n../../etc;"&amp;";1;1\n', tmp_path)
    assert [(one["sku"], one["name"]) for one in payloads(tmp_path)] == [
        ("=1+1", "<b>x</b>"), ("../../etc", "&amp;"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "FILE_EMPTY"),
        (b" \n \r\n", "HEADER_NOT_FOUND"),
        ("a;b;c\n1;2;3\n", "HEADER_NOT_FOUND"),
        ("Code;Name;Stock\nA;x;1\n", "COLUMN_MISSING"),
        ("Code;Price;Price;Stock\nA;1;2;1\n", "COLUMN_AMBIGUOUS"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "FORMAT_UNKNOWN"),
        (b"%PDF-1.7\n", "FORMAT_UNKNOWN"),
        (b"\x7fELF\x02\x01\x01\0\0", "FORMAT_UNKNOWN"),
        (b"Rar!\x1a\x07\x01\0", "FORMAT_UNSUPPORTED"),
        (b"7z\xbc\xaf\x27\x1c\0\x04", "FORMAT_UNSUPPORTED"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 3000, "FILE_CORRUPT"),
        (b"PK\x03\x04" + b"\0" * 300, "FILE_CORRUPT"),
        (HEAD + ("x" * 140_000) + ";n;1;1\n", "FILE_CORRUPT"),
    ],
)
def test_what_is_no_list_is_refused_by_its_content(content: bytes | str, code: str, tmp_path: Path) -> None:
    assert refusal(content, tmp_path) == code


def test_columns_may_have_numbers_instead_of_names(tmp_path: Path) -> None:
    columns = {"sku": {"from": 1}, "name": {"from": 2}, "price": {"from": 3}, "qty": {"from": 4}}
    found = read("A-1;x;1;1\nA-2;x;1;1\n", tmp_path, header={"rows": 0}, columns=columns)
    assert (found.good_rows, facts(tmp_path)[0]["row_number"]) == (2, 1)


# -- JSON


def test_arrays_of_an_object_are_sheets(tmp_path: Path) -> None:
    row = {"code": "A-1", " NAME ": "x", "Price": "1", "Stock": 1}
    content = json.dumps({"made": "today", "Tyres": [row], "Wheels": [{**row, "code": "B-1"}], "Other": []})
    sheets = [
        {"name": "tyres", "category_key": "tyres", "required": True},
        {"match": "wh*", "category_key": "wheels"},
    ]  # fmt: skip
    found = read(content, tmp_path, category_key=None, sheets=sheets)
    assert found.by_category == {"tyres": 1, "wheels": 1}
    assert found.alerts == (("SHEET_UNKNOWN", "Other"),)


def test_numbers_of_json_keep_all_their_digits(tmp_path: Path) -> None:
    rows = '[{"Code": 12345678901234567890, "Name": 1.50, "Price": 90071992547409.91, "Stock": 3}]'
    read(rows, tmp_path)
    (found,) = payloads(tmp_path)
    assert (found["sku"], found["price_minor"]) == ("12345678901234567890", 2**53 - 1)


def test_half_a_character_is_shown_as_one_that_cannot_be_read(tmp_path: Path) -> None:
    read(r'[{"Code": "A-1", "Name": "x\ud83d", "Price": 1, "Stock": 1}]', tmp_path)
    assert payloads(tmp_path)[0]["name"] == "x\ufffd"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ('[{"Code": "A", "Price": NaN, "Stock": 1}]', "FILE_CORRUPT"),
        ('[{"Code": "A", "Price": 1', "FILE_CORRUPT"),
        ("[" * 100_000, "FILE_CORRUPT"),
        ('{"a": 1}', "HEADER_NOT_FOUND"),
        ('[{"Code": "A", "Stock": 1}]', "COLUMN_MISSING"),
        (json.dumps({f"sheet {number}": [] for number in range(1001)}), "FILE_TOO_LARGE"),
    ],
)
def test_json_that_is_no_list_is_refused(content: str, code: str, tmp_path: Path) -> None:
    assert refusal(content, tmp_path) == code


def test_odd_values_of_json_refuse_their_rows_only(tmp_path: Path) -> None:
    rows = '[1, null, [], {"Code": true, "Price": 1, "Stock": 1}, {"Code": ["A"], "Price": {}, "Stock": 1},'
    rows += '{"Code": "A", "Price": true, "Stock": 1}, {"Code": "B", "Price": 1, "Stock": 1e400}]'
    found = read(rows, tmp_path, dq={"max_bad_ratio": 1})
    assert found.bad_by_reason == {"SKU_INVALID": 1, "PRICE_UNPARSABLE": 2, "QTY_UNPARSABLE": 1}
    assert found.skipped_by_reason == {"BLANK_ROW": 3}


# -- YML

YML: dict[str, Any] = {
    "columns": {
        "sku": {"from": ["vendorCode", "@id"]}, "price": {"from": "price"}, "name": {"from": "name"},
        "qty": {"from": "@available", "words": {"true": "1+", "false": 0}, "blank": "zero"},
        "currency": {"from": "currencyId"},
    },
    "extra": {"colour": {"from": "param:Цвет"}},
}  # fmt: skip


def catalog(offers: str, *, before: str = '<!DOCTYPE yml_catalog SYSTEM "shops.dtd">') -> str:
    start = f'<?xml version="1.0" encoding="utf-8"?>{before}<yml_catalog><shop>'
    return f"{start}<offers>{offers}</offers></shop></yml_catalog>"


OFFER = (
    '<offer id="7" available="{}"><name>Болт &amp; гайка</name><price>10</price>'
    '<currencyId>RUB</currencyId><param name="Цвет">синий</param></offer>'
)


def test_offers_are_rows_and_their_attributes_and_parameters_columns(tmp_path: Path) -> None:
    found = read(catalog(OFFER.format("true")), tmp_path, **YML)
    assert (found.format, found.good_rows) == ("yml", 1)
    (payload,) = payloads(tmp_path)
    assert (payload["sku"], payload["name"], payload["colour"]) == ("7", "Болт & гайка", "синий")
    assert (payload["qty"], payload["qty_min"]) == (1, True)


def test_a_catalog_without_offers_is_empty_and_one_without_the_element_is_none(tmp_path: Path) -> None:
    assert read(catalog(""), tmp_path, **YML).total_rows == 0
    assert refusal("<?xml version='1.0'?><yml_catalog><shop/></yml_catalog>", tmp_path, **YML) == (
        "HEADER_NOT_FOUND"
    )


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ('<!DOCTYPE y [<!ENTITY a "x"><!ENTITY b "&a;&a;">]>', "XML_ENTITY"),
        ('<!DOCTYPE y [<!ENTITY a SYSTEM "file:///etc/hostname">]>', "XML_ENTITY"),
        ('<!DOCTYPE y [<!ENTITY % a SYSTEM "http://127.0.0.1:1/x">%a;]>', "XML_ENTITY"),
    ],
)
def test_declared_entities_are_refused_and_nothing_is_fetched(
    declared: str, code: str, tmp_path: Path
) -> None:
    assert refusal(catalog(OFFER.format("&a;"), before=declared), tmp_path, **YML) == code


@pytest.mark.parametrize(
    "content",
    [
        catalog(OFFER.format("true"))[:-60],
        catalog("<a>" * 20_000 + "</a>" * 20_000),
        catalog("<offer>&nothing;</offer>", before=""),
    ],
)
def test_a_broken_catalog_is_refused(content: str, tmp_path: Path) -> None:
    assert refusal(content, tmp_path, **YML) in ("FILE_CORRUPT", "XML_ENTITY")


# -- HTML and SpreadsheetML, by the name of a workbook

PAGE = """<html><head><meta charset=windows-1251><style>td {{}}</style></head><body>
<table border=1><tr><th>Артикул<th>Название<th>Цена<th>Остаток</tr>
<tr><td>Ю-1</td><td>Болт&nbsp;<b>М8</b><br>сталь<td> 10,50 </td><td>5</td></tr>
<tr><td>Ю-2<td><table><tr><td>внутри</td></tr></table></td><td>7<td>1
{}</table></body></html>"""


def test_a_table_of_a_web_page_is_read(tmp_path: Path) -> None:
    found = read(PAGE.format("").encode("cp1251"), tmp_path, **RUSSIAN)
    assert (found.format, found.encoding, found.good_rows, found.bad_rows) == ("html", "cp1251", 2, 0)
    assert [(one["sku"], one["name"], one["price_minor"]) for one in payloads(tmp_path)] == [
        ("Ю-1", "Болт М8 сталь", 1050), ("Ю-2", "внутри", 700),
    ]  # fmt: skip


def test_cells_that_span_others_move_those_behind_them(tmp_path: Path) -> None:
    spans = '<tr><td rowspan=2>Ю-3<td>x<td>1<td>1<tr><td>y<td>2<td>2<tr><td colspan="2">Ю-4<td>3<td>3'
    read(PAGE.format(spans).encode(), tmp_path, dq={"max_bad_ratio": 1}, **RUSSIAN)
    assert [(one["sku"], one["price_minor"]) for one in payloads(tmp_path)][2:] == [
        ("Ю-3", 100),
        ("Ю-4", 300),
    ]
    assert [row["reason_code"] for row in bad_rows(tmp_path)] == ["SKU_EMPTY"]


def test_the_page_of_an_error_is_no_list(tmp_path: Path) -> None:
    assert refusal("<html><body><h1>502 Bad Gateway</h1></body></html>", tmp_path) == "FORMAT_UNKNOWN"


def test_a_page_that_reaches_too_far_is_refused(tmp_path: Path) -> None:
    page = "<table>" + "<tr><td>x" * 4000 + "<tr>" + "<td colspan=1000>x" * 17 + "</table>"
    assert refusal(page, tmp_path) == "FILE_TOO_LARGE"


BOOK = """<?xml version="1.0"?><?mso-application progid="Excel.Sheet"?>{before}
<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet"
 xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet" xmlns:x="urn:schemas-microsoft-com:office:excel">
<Worksheet ss:Name="Old"><Table><Row><Cell><Data ss:Type="String">x</Data></Cell></Row></Table>
<x:WorksheetOptions><x:Visible>SheetHidden</x:Visible></x:WorksheetOptions></Worksheet>
<Worksheet ss:Name="Price"><Table><Row ss:Index="3">{names}</Row>{rows}</Table></Worksheet></Workbook>"""
CELL = '<Cell><Data ss:Type="{}">{}</Data></Cell>'
NAMES = "".join(CELL.format("String", name) for name in ("Code", "Name", "Price", "Stock"))


def book(rows: str, before: str = "") -> str:
    return BOOK.format(names=NAMES, rows=rows, before=before)


def test_a_workbook_of_2003_is_read(tmp_path: Path) -> None:
    code, stock = CELL.format("String", "0012"), CELL.format("Number", "5")
    price = '<Cell ss:Index="3"><Data ss:Type="Number">10.5</Data></Cell>'
    formula = '<Cell ss:Formula="=1+1"/>'
    rows = f"<Row>{code}{price}{stock}</Row><Row ss:Index='7'>{code}{price}{formula}</Row>"
    found = read(book(rows), tmp_path, dq={"max_bad_ratio": 1})
    assert (found.format, found.alerts) == ("spreadsheetml", (("SHEET_HIDDEN", "Old"),))
    assert [(one["sku"], one["price_minor"], one["qty"]) for one in payloads(tmp_path)] == [("0012", 1050, 5)]
    assert facts(tmp_path)[0]["row_number"] == 4
    assert [(row["row_number"], row["reason_code"]) for row in bad_rows(tmp_path)] == [
        (7, "FORMULA_NO_VALUE")
    ]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (book("", '<!DOCTYPE x [<!ENTITY a "b">]>'), "XML_ENTITY"),
        (book("<Row ss:Index='2000000'>" + NAMES + "</Row>"), "FILE_TOO_LARGE"),
        (book("<Row ss:Index='-5'>" + NAMES + "</Row>"), "FILE_CORRUPT"),
        (book("")[:-30], "FILE_CORRUPT"),
    ],
)
def test_a_hostile_workbook_of_2003_is_refused(content: str, code: str, tmp_path: Path) -> None:
    assert refusal(content, tmp_path) == code


# -- archives


def test_an_archive_counts_as_the_one_table_in_it(tmp_path: Path) -> None:
    members = [
        ("readme.pdf", b"x"),
        ("__MACOSX/._p.csv", b"x"),
        (".hidden.csv", b"x"),
        ("in/p.csv", HEAD + ROW),
    ]
    assert read(zipped(*members), tmp_path, input={"zip": "require"}).good_rows == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bad.ndjson", "diag", "facts.ndjson", "list.bin", "stats.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "code", "settings"),
    [
        (zipped(("a.csv", HEAD), ("b.csv", HEAD)), "ZIP_MEMBERS", {}),
        (zipped(("a.pdf", b"x")), "ZIP_MEMBERS", {}),
        (zipped(("a.zip", zipped(("a.csv", HEAD)))), "ZIP_MEMBERS", {}),
        (zipped(("../../evil.csv", HEAD + ROW)), "ZIP_UNSAFE_NAME", {}),
        (zipped(("/evil.csv", HEAD + ROW)), "ZIP_UNSAFE_NAME", {}),
        (zipped(("..\\evil.csv", HEAD + ROW)), "ZIP_UNSAFE_NAME", {}),
        (zipped(("a.csv", HEAD + ROW)), "FORMAT_UNEXPECTED", {"zip": "refuse"}),
        ((HEAD + ROW).encode(), "FORMAT_UNEXPECTED", {"zip": "require"}),
        ((HEAD + ROW).encode(), "FORMAT_UNEXPECTED", {"formats": ["xlsx"]}),
        (zipped(("a.csv", HEAD + ROW))[:-30], "FILE_CORRUPT", {}),
        (zipped(("content.xml", "<x/>"), ("mimetype", "x")), "FORMAT_UNSUPPORTED", {}),
    ],
)
def test_an_archive_that_holds_no_one_table_is_refused(
    content: bytes, code: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    assert refusal(content, tmp_path, input=settings) == code
    assert not (tmp_path.parent / "evil.csv").exists()


def test_one_of_several_tables_may_be_named(tmp_path: Path) -> None:
    content = zipped(("a.csv", "x"), ("Price 1.CSV", HEAD + ROW))
    assert read(content, tmp_path, input={"member": "price*.csv"}).good_rows == 1


def test_sizes_are_bounded(tmp_path: Path) -> None:
    small = Limits(unpacked_bytes=10_000, ratio=20, ratio_from_bytes=1_000, entries=5)
    assert refusal(HEAD + ROW * 2_000, tmp_path, limits=small) == "FILE_TOO_LARGE"
    assert refusal(zipped(("a.csv", HEAD + ROW * 2_000)), tmp_path, limits=small) == "FILE_TOO_LARGE"
    assert refusal(zipped(("a.csv", b";" * 9_000)), tmp_path, limits=small) == "FILE_TOO_LARGE"  # ratio
    many = zipped(*[(f"{number}.txt", b"") for number in range(6)])
    assert refusal(many, tmp_path, limits=small) == "FILE_TOO_LARGE"
