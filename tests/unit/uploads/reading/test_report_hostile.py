"""Hostile and broken files: a known answer, in bounded time and memory, and never a crash."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from report import CODES_OF_FILES, CODES_OF_ROWS, Report, lines, read, read_apart, within

HEADER = "Day,Campaign name,Impressions,Amount spent (USD),Note"
ROW = "2025-09-01,Kiln,10,1.50,"
MEGABYTE = 1 << 20


def _sane(report: Report) -> None:
    assert report.refused is None or report.refused in CODES_OF_FILES
    assert set(report.codes) <= CODES_OF_ROWS
    assert report.data == report.valid + report.rejected
    assert len(report.daily) == report.valid - report.merged - report.identical


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(gzip.compress(bytes(16 * MEGABYTE)), id="zero bytes"),
        pytest.param(gzip.compress((lines(HEADER) + (ROW + "\n") * 100_000).encode()), id="a long report"),
    ],
)
def test_a_gzip_that_unpacks_beyond_the_limit_is_refused_early(data: bytes) -> None:
    tracemalloc.start()
    with within(3):
        report = read(data, max_bytes=MEGABYTE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.refused == "file_too_large"
    assert peak < 16 * MEGABYTE


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_the_limit_counts_the_unpacked_bytes_and_includes_its_last_one(packed: bool) -> None:
    text = lines(HEADER, ROW).encode()
    data = gzip.compress(text) if packed else text
    assert read(data, max_bytes=len(text)).refused is None
    if packed:
        assert read(data, max_bytes=len(text) - 1).refused == "file_too_large"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(gzip.compress(lines(HEADER, *[ROW] * 99).encode())[:-9], id="cut off"),
        pytest.param(gzip.compress(lines(HEADER, ROW).encode())[:12], id="cut off at once"),
        pytest.param(b"\x1f\x8b", id="two bytes"),
        pytest.param(b"\x1f\x8b\x08" + bytes(40), id="zero bytes"),
        pytest.param(gzip.compress(lines(HEADER, ROW).encode())[:-8] + bytes(8), id="bad sum"),
        pytest.param(gzip.compress(gzip.compress(lines(HEADER, ROW).encode())), id="twice packed"),
    ],
)
def test_a_damaged_gzip_is_refused(data: bytes) -> None:
    report = read(data)
    assert report.refused in CODES_OF_FILES


@pytest.mark.parametrize(
    "body",
    [
        pytest.param('"2025-09-01,Kiln,10,1.50,\n' * 20_000, id="unclosed quotes"),
        pytest.param('2025-09-01,"Kiln,10,1.50,\n' * 20_001, id="unclosed names"),
        pytest.param('2025-09-01,Kiln,10,1.50,"\n' * 20_001, id="unclosed ends"),
        pytest.param('"' * 200_001, id="quotes"),
        pytest.param('"\n' * 100_001, id="quotes on lines"),
        pytest.param('2025-09-01,"K""' + '""' * 500_000, id="a name of quotes"),
        pytest.param("," * 75_000 + "\n", id="a row of many empty cells"),
        pytest.param("x," * 30_000 + "\n", id="a row of many cells"),
        pytest.param("\n" * 1_000_000, id="a million blank lines"),
        pytest.param("\r" * 200_000, id="carriage returns"),
        pytest.param(" \n" * 30_000, id="lines of blanks"),
        pytest.param(",,,,\n" * 100_000, id="lines of commas"),
        pytest.param("\0" * 1_000_000, id="zero bytes"),
        pytest.param("2025-09-01,\0,10,1.50,\n" * 5_000, id="a zero byte in each row"),
        pytest.param("\ufeff" * 100_000, id="byte order marks"),
        pytest.param("2025-09-01,Kiln," + "9" * 100_000 + ",1.50,\n", id="many digits"),
        pytest.param("2025-09-01,Kiln,1," + "1." * 50_000 + ",\n", id="many points"),
        pytest.param("2025-09-01,Kiln,1," + "1,".join("9" * 9) + "e999999999,\n", id="exponent"),
        pytest.param("2025-09-01,Kiln,1,1e999999999,\n" * 100, id="exponents"),
        pytest.param("2025-09-01,Kiln,1,1e-999999999,\n" * 100, id="negative exponents"),
        pytest.param("9" * 100_000 + ",Kiln,1,1.50,\n", id="a day of many digits"),
        pytest.param("1/" * 50_000 + ",Kiln,1,1.50,\n", id="a day of many parts"),
        pytest.param(" " * 200_000 + "x,Kiln,1,1.50,\n", id="a day far to the right"),
        pytest.param("2025-09-01,T" + "otal " * 50_000 + ",1,1.50,\n", id="a long total"),
        pytest.param("2025-09-01,Kiln,1,1" + " " * 100_000 + "x,\n", id="blanks in a number"),
        pytest.param("2025-09-01,Kiln,1,(" + " " * 100_000 + "x,\n", id="blanks in brackets"),
        pytest.param("2025-09-01,Kiln,1,<" + " " * 100_000 + "x,\n", id="blanks behind a bound"),
        pytest.param("2025" + " " * 100_000 + "x,Kiln,1,1.50,\n", id="blanks in a day"),
        pytest.param("T" * 100_000 + "x,Kiln,1,1.50,\n", id="a day of T"),
        pytest.param("[" * 100_000 + "x,Kiln,1,1.50,\n", id="a day of brackets"),
    ],
)
def test_a_hostile_body_is_read_in_bounded_time(body: str) -> None:
    _sane(read_apart(lines(HEADER, ROW) + body))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param('"2025-09-01,Kiln,10,1.50,\n' * 20_001, id="unclosed quotes"),
        pytest.param('"\n' * 100_001, id="quotes on lines"),
        pytest.param("x," * 30_000 + "\n", id="a row of many cells"),
        pytest.param("\n" * 1_000_000, id="a million blank lines"),
        pytest.param("\0" * 1_000_000, id="zero bytes"),
        pytest.param("x" * 5 * MEGABYTE, id="one long word"),
    ],
)
def test_a_hostile_body_needs_no_header(body: str) -> None:
    _sane(read_apart(body, currency="USD"))


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"x" * 30 * MEGABYTE, id="without a delimiter"),
        pytest.param(b'2025-09-01,"' + b"x" * 30 * MEGABYTE, id="in an open quote"),
    ],
)
def test_a_line_of_thirty_megabytes_is_survived(line: bytes) -> None:
    _sane(read_apart(lines(HEADER, ROW).encode() + line + b"\n"))


@pytest.mark.parametrize("column", [1, 4], ids=["name", "unknown column"])
def test_a_cell_of_200_kilobytes_costs_no_other_row(column: int) -> None:
    cells = ["2025-09-02", "Loft", "10", "1.50", ""]
    cells[column] = "x" * 200_000
    report = read(lines(HEADER, ROW, ",".join(cells), "2025-09-03,Kiln,10,1.50,"))
    assert (report.refused, report.data) == (None, 3)
    assert {"2025-09-01", "2025-09-03"} <= set(report.dates)


@pytest.mark.parametrize("at", [0, 500, 998])
def test_a_row_of_a_million_cells_among_short_ones_needs_no_more_memory_than_it_has(at: int) -> None:
    rows = [ROW] * 999
    rows[at] = ROW + ",x" + "," * 1_000_000
    report = read_apart(lines(HEADER, *rows), seconds=10)
    assert (report.refused, report.data, report.codes) == (None, 999, ["too_many_columns"])


def test_rows_of_a_million_cells_each_are_worked_on_a_few_at_a_time() -> None:
    rows = (ROW + "," * 2_000_000 + "\n") * 20
    report = read_apart(gzip.compress((lines(HEADER, ROW) + rows).encode(), 1), seconds=30, megabytes=300)
    assert (report.refused, report.data, report.rejected) == (None, 21, 0)


def test_a_header_of_a_million_names_is_none() -> None:
    names = ",".join(f"Column {n}" for n in range(300_000))
    with within(10):
        report = read(lines(f"{HEADER},{names}", ROW))
    assert report.refused == "unknown_header"


@pytest.mark.parametrize("at", [3, 450, 499, 500, 2400])
def test_a_quote_that_nobody_closes_costs_its_own_row_wherever_it_stands(at: int) -> None:
    rows = [f"2025-09-01,Kiln {n},10,1.50," for n in range(2500)]
    rows[at] = '2025-09-01,"Kiln,10,1.50,'
    report = read(lines(HEADER, *rows))
    assert (report.refused, report.data, report.codes) == (None, 2500, ["malformed_row"])
    assert len(report.campaigns) == 2499


def test_ten_thousand_columns_are_read() -> None:
    more = [f"Column {n}" for n in range(10_000)]
    row = ROW + "," + ",".join("1" * 10_000)
    with within(3):
        report = read(lines(HEADER + "," + ",".join(more), row, row.replace("Kiln", "Loft")))
    assert (report.refused, report.valid) == (None, 2)


def test_many_columns_of_one_name_are_compared_in_time() -> None:
    with within(3):
        report = read(lines(HEADER + ",Reach" * 1_500, ROW + ",7" * 1_500))
    assert (report.refused, report.column("reach")) == (None, [7])


def test_a_file_that_ends_inside_of_a_quote_loses_no_row_before_it() -> None:
    report = read(lines(HEADER, ROW, "2025-09-02,Kiln,10,1.50,") + '2025-09-03,"Kil')
    assert (report.refused, report.data) == (None, 3)
    assert report.dates[:2] == ["2025-09-01", "2025-09-02"]


def test_a_stray_quote_does_not_swallow_the_rest_unseen() -> None:
    rows = [f"2025-09-{n:02d},Kiln,10,1.50," for n in range(1, 21)]
    rows[9] = '2025-09-10,"Kiln,10,1.50,'
    report = read(lines(HEADER, *rows))
    _sane(report)
    # ten rows have become one cell: that must be seen, as a refusal or a rejected row
    assert report.refused is not None or report.rejected >= 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="arrays"),
        pytest.param('{"a":' * 100_000, id="objects"),
        pytest.param('{"data":' * 50_000, id="wrappers"),
        pytest.param("[" * 100_000 + "]" * 100_000, id="closed arrays"),
        pytest.param('[{"spend":' + "[" * 100_000 + "]" * 100_000 + "}]", id="a deep value"),
        pytest.param('{"data":[' + "{}," * 20_000 + "{}]}", id="empty rows"),
        pytest.param("[" + "5," * 15_000 + "5]", id="numbers for rows"),
        pytest.param("[" + "[]," * 15_000 + "[]]", id="arrays for rows"),
        pytest.param('[{"spend":' + "9" * 1_000_000 + "}]", id="many digits"),
        pytest.param('[{"spend":1e999999999}]', id="exponent"),
        pytest.param('[{"spend":1e-999999999}]', id="negative exponent"),
        pytest.param('[{"impressions":1e999999999}]', id="exponent of a count"),
        pytest.param('[{"campaign_id":1e999999999,"date":"2025-09-01"}]', id="exponent of an id"),
        pytest.param('{"' + "k" * 1_000_000 + '":1}', id="a long key"),
        pytest.param("[{" + ",".join(f'"k{n}":1' for n in range(20_000)) + "}]", id="many keys"),
        pytest.param("[" + ",".join(f'{{"spend":1,"k{n}":1}}' for n in range(10_000)) + "]", id="new keys"),
        pytest.param('{"data":[],"data":[]}', id="a key twice"),
        pytest.param('["\\', id="half an escape"),
        pytest.param('["\\ud800"]', id="half a pair"),
        pytest.param("{}\n" * 15_000, id="empty rows on lines"),
        pytest.param('{"a"\n' * 100_000, id="broken lines"),
        pytest.param("{" * 1_000_000, id="braces"),
        pytest.param("nul", id="half a word"),
        pytest.param("-", id="a sign"),
        pytest.param("{'a': 1}", id="another notation"),
    ],
)
def test_hostile_json_is_answered_in_bounded_time(text: str) -> None:
    _sane(read_apart(text, "tiktok", "USD"))


INSIGHT = {
    "date_start": "2025-09-01", "date_stop": "2025-09-01", "account_currency": "USD", "campaign_id": "7",
    "spend": "1.50", "impressions": "10",
}  # fmt: skip


@pytest.mark.parametrize("depth", [201, 400, 900, 960, 990])
@pytest.mark.parametrize("end", ["", "\n"], ids=["document", "lines"])
def test_what_is_nested_deep_is_refused_and_ends_nobody(depth: int, end: str) -> None:
    row = json.dumps({**INSIGHT, "more": "@"}).replace('"@"', "[" * depth + "]" * depth)
    whole = f"[{row}]" if not end else f"{json.dumps(INSIGHT)}\n{row}\n"
    report = read_apart(whole)
    assert report.refused == ("malformed_json" if not end else None)
    assert report.codes == ([] if not end else ["malformed_row"])


def test_actions_that_are_nested_without_end_are_no_number() -> None:
    report = read_apart(json.dumps([{**INSIGHT, "actions": "[" * 100_000}]))
    assert (report.refused, report.codes) == (None, ["invalid_number"])


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("spend", "9" * 10_000),
        ("impressions", "9" * 10_000),
        ("spend", "1e400"),
        ("spend", "1e999999999"),
        ("impressions", "1e999999999"),
        ("impressions", "9223372036854775808"),
    ],
)
@pytest.mark.parametrize("quote", ["", '"'], ids=["number", "text"])
def test_a_number_that_no_table_holds_rejects_its_row_alone(key: str, number: str, quote: str) -> None:
    row = {
        "date_start": "2025-09-01",
        "date_stop": "2025-09-01",
        "account_currency": "USD",
        "campaign_id": "7",
        "spend": "1.50",
        "impressions": "10",
    }
    rows = [{**row, "campaign_id": str(n)} for n in range(1, 20)]
    text = json.dumps([*rows, {**row, key: "@"}]).replace('"@"', f"{quote}{number}{quote}")
    report = read_apart(text)
    assert (report.refused, report.codes) == (None, ["invalid_number"])


@pytest.mark.parametrize(
    ("gender", "many"),
    [
        pytest.param("male", 8_000, id="details"),
        pytest.param("All", 5_000, id="subtotals of one level"),
    ],
)
def test_many_rows_of_one_key_are_settled_in_bounded_time(gender: str, many: int) -> None:
    rows = [f"2025-09-01,Kiln,7,{n},{gender},{n},1.50" for n in range(many)]
    header = "Day,Campaign name,Campaign ID,Age,Gender,Impressions,Amount spent (USD)"
    report = read_apart(lines(header, *rows))
    assert (report.merged, report.total("spend")) == (many - 1, {"USD": 1.5 * many})


def test_many_rows_in_conflict_are_rejected_in_bounded_time() -> None:
    rows = [f"2025-09-01,Kiln,7,{n},1.50" for n in range(8_000)]
    header = "Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)"
    report = read_apart(lines(header, *rows))
    assert report.rejected == 8_000
