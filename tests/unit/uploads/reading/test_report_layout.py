"""Layout: kinds of files, delimiters, lines above the header, ragged records, physical lines."""

from __future__ import annotations

import gzip
import io
import zipfile

import pytest
from report import META, lines, meta, read, table

HEADER = "Day,Campaign name,Impressions,Amount spent (USD)"
ROW = "2025-09-01,Kiln,10,1.50"


def _zip(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "Day,Campaign,Cost,Clicks\n")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        pytest.param(_zip("xl/workbook.xml"), "Excel", id="a workbook of today"),
        pytest.param(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "Excel", id="of 2003"),
        pytest.param(b"%PDF-1.7\n%\xe2\xe3\n1 0 obj\n", "PDF", id="a PDF"),
        pytest.param(b"<!DOCTYPE html><p>Day,Campaign,Cost", "web page", id="a page"),
        pytest.param(b"\xef\xbb\xbf\n  <HTML><body>Day,Campaign", "web page", id="a page, later"),
        pytest.param(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(64), "picture", id="a PNG"),
        pytest.param(b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(64), "picture", id="a JPEG"),
        pytest.param(b"GIF89a" + bytes(64), "picture", id="a GIF"),
        pytest.param(gzip.compress(_zip("xl/workbook.xml")), "Excel", id="a workbook in gzip"),
    ],
)
def test_another_kind_of_file_is_refused_by_its_name(data: bytes, word: str) -> None:
    report = read(data, currency="USD")
    assert report.refused == "unsupported_format"
    assert word.lower() in report.sentence.lower()
    assert "CSV" in report.sentence


@pytest.mark.parametrize("data", [b"", gzip.compress(b"")], ids=["no byte", "gzip of no byte"])
def test_an_empty_file_is_refused(data: bytes) -> None:
    assert read(data).refused == "empty_file"


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf", b"\n \n\t\r\n", b"\xff\xfe"])
def test_a_file_of_nothing_to_see_is_refused(data: bytes) -> None:
    assert read(data).refused in {"empty_file", "unknown_header"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"], ids=["comma", "semicolon", "tab", "pipe"])
@pytest.mark.parametrize(
    "name",
    ["LR | PMAX | Gems", "a, b, c, d, e, f", "x; y; z; w", "one\ttwo", 'the "best"', "up\ndown"],
)
def test_the_delimiter_is_the_one_under_which_a_header_appears(delimiter: str, name: str) -> None:
    records = [(f"2025-09-0{n}", name, "4711", "10", "1", "1.50") for n in (1, 2, 3)]
    for quote_all in (False, True):
        report = read(table([META, *records], delimiter=delimiter, quote_all=quote_all))
        assert (report.refused, report.delimiter) == (None, delimiter)
        assert (report.names, report.total("spend")) == ([name], {"USD": 4.5})


def test_quotes_inside_of_an_unquoted_cell_are_text() -> None:
    report = read(lines(HEADER, '2025-09-01,5" pipes and 6" pipes,10,1.50'))
    assert report.names == ['5" pipes and 6" pipes']


@pytest.mark.parametrize(
    ("above", "header_line"),
    [
        pytest.param([], 1, id="nothing"),
        pytest.param(["sep=,"], 2, id="the line that Excel wants"),
        pytest.param(["", "", ""], 4, id="blank lines"),
        pytest.param(["Campaign report", "All time"], 3, id="a title and a range"),
        pytest.param(['"Ad report (Oct 25, 2016-Oct 31, 2016)"'], 2, id="a quoted title"),
        pytest.param(["Report, daily; all | accounts", "1 May 2025 - 3 May 2025"], 3, id="marks"),
        pytest.param(['"a title', 'of two lines"', "All time"], 4, id="a title of two lines"),
        pytest.param(["Campaign name,Kiln", "Account name,Harbour"], 3, id="entities, no metric"),
        pytest.param(["Impressions,10", "Reach,20"], 3, id="metrics, no entity"),
        pytest.param([f"note {n}" for n in range(19)], 20, id="nineteen lines"),
    ],
)
def test_lines_above_the_header_are_stepped_over(above: list[str], header_line: int) -> None:
    report = read(lines(*above, HEADER, ROW))
    assert (report.refused, report.header_line) == (None, header_line)
    assert (report.data, report.names) == (1, ["Kiln"])


@pytest.mark.parametrize(
    ("platform", "data"),
    [
        pytest.param("meta", lines(*[f"note {n}" for n in range(20)], HEADER, ROW), id="line 21"),
        pytest.param("meta", lines("Campaign name,Campaign ID", "Kiln,1"), id="no metric"),
        pytest.param("meta", lines("Impressions,Reach", "1,2"), id="no entity and no date"),
        pytest.param("meta", lines("a,b,c", "1,2,3"), id="nothing known"),
        pytest.param("meta", lines("Campaign,Day,Cost,Impr.", "Kiln,2025-09-01,1.50,1"), id="of Google"),
        pytest.param("google", lines("Campaign,Day,Avg. cost,Cost per visit", "K,2025-09-01,1,1"), id="like"),
        pytest.param("meta", "just a letter to somebody\nwith two lines\n", id="a letter"),
    ],
)
def test_a_file_without_a_header_of_the_platform_is_refused(platform: str, data: str) -> None:
    assert read(data, platform, "USD").refused == "unknown_header"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_lines_may_end_in_any_of_three_ways(end: str) -> None:
    rows = [f"2025-09-{n:02d},Kiln,10,1.50" for n in range(1, 11)]
    rows[6] = "2025-09-07,Kiln,ten,1.50"
    report = read(lines(HEADER, *rows, end=end))
    assert (report.data, report.rejects) == (10, ((8, "invalid_number"),))


def test_line_ends_may_be_mixed() -> None:
    ends = ["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\r", "\n", "\r\n", "\n", "\r\n", ""]
    rows = [HEADER, *(f"2025-09-{n:02d},Kiln,10,1.50" for n in range(1, 11))]
    report = read("".join(map("".join, zip(rows, ends, strict=True))))
    assert (report.data, report.rejected, report.total("spend")) == (10, 0, {"USD": 15})


@pytest.mark.parametrize(
    ("row", "rejects"),
    [
        pytest.param("2025-09-02,Kiln,10,1.50,,,", (), id="empty cells too many"),
        pytest.param("2025-09-02,Kiln,10,1.50,,x", ((3, "too_many_columns"),), id="a cell too many"),
        pytest.param("2025-09-02,Kiln,10", (), id="a cell too few"),
        pytest.param("2025-09-02,Kiln", (), id="no metric at all"),
        pytest.param("2025-09-02", ((3, "missing_campaign"),), id="a date alone"),
    ],
)
def test_a_record_may_be_ragged(row: str, rejects: tuple[tuple[int, str], ...]) -> None:
    report = read(lines(HEADER, ROW, row))
    assert (report.data, report.rejects) == (2, rejects)


def test_the_missing_cells_of_a_short_record_are_null() -> None:
    report = read(lines(HEADER, ROW, "2025-09-02,Kiln,10"))
    assert (report.column("spend"), report.column("impressions")) == ([1.5, None], [10, 10])


@pytest.mark.parametrize("blank", ["", "   ", ",,,", "\t", '"",""'])
def test_a_blank_line_is_no_row(blank: str) -> None:
    report = read(lines(HEADER, ROW, blank, blank, "2025-09-02,Kiln,10,1.50", blank))
    assert (report.data, report.rejected, report.totals_skipped) == (2, 0, 0)


@pytest.mark.parametrize(
    "below",
    [
        pytest.param([], id="nothing"),
        pytest.param(["", ""], id="blank lines"),
        pytest.param(["No data available."], id="the sentence"),
        pytest.param(['"No data available.",,,'], id="the sentence and empty cells"),
    ],
)
def test_a_header_without_rows_is_an_empty_report(below: list[str]) -> None:
    report = read(lines(HEADER, *below))
    assert (report.refused, report.data, report.totals_skipped, report.daily) == (None, 0, 0, ())


def test_a_header_may_end_without_a_line_end() -> None:
    report = read(HEADER)
    assert (report.refused, report.data) == (None, 0)


def test_the_line_of_a_record_is_the_physical_one_where_it_begins() -> None:
    rows = [f"2025-09-{n:02d},Kiln,10,1.50" for n in range(1, 20)]
    rows[4] = '2025-09-05,"up\nand\r\ndown",10,1.50'
    rows[9] = '2025-09-10,"two\nlines",ten,1.50'
    report = read(lines("A title", "", HEADER, "", *rows))
    assert report.rejects == ((16, "invalid_number"),)


def test_two_columns_of_the_report_may_be_missing_a_name() -> None:
    report = read(lines(HEADER + ",,", ROW + ",a,b", "2025-09-02,Kiln,10,1.50,c,d"))
    assert (report.refused, report.valid) == (None, 2)


def test_a_gzip_of_several_members_is_read_to_its_end() -> None:
    whole = meta("1.50", "2.50", "3.50").encode()
    packed = gzip.compress(whole[:90]) + gzip.compress(whole[90:])
    assert read(packed).total("spend") == {"USD": 7.5}
