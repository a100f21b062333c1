"""Suppliers' lists from inbox to published state, beside their bare readers in the same run.

    ./scripts/bench suppliers [--rows-percent 100] [--rounds 3]

For each format the bare reader reads every cell of the list, and a run publishes it; in turns, so that
both meet the same machine. Printed are the medians as a table for docs/performance.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xlwt

from tests.integration.suppliers.tree import Tree, tree

HEADER = [
    "Code",
    "Name",
    "Brand",
    "Price",
    "Stock",
    "Width",
    "Height",
    "Radius",
    "Season",
    "Country",
    "EAN",
    "Note",
]
CONFIG: dict[str, Any] = {
    "columns": {
        "sku": {"from": "Code"}, "name": {"from": "Name"}, "brand": {"from": "Brand"},
        "price": {"from": "Price"}, "qty": {"from": "Stock"},
    },
    "extra": {"ean": {"from": "EAN", "type": "code"}},
    "file_stability_window": 0,
    "older_input": "publish",
}  # fmt: skip


def row(number: int) -> list[Any]:
    """One row of goods: twelve cells, texts and numbers as in real lists."""
    return [
        f"A{number:07}", f"Tyre {number % 977} winter {number}", f"Brand {number % 60}",
        1000 + number % 9000 + 0.5, number % 40, 205, 55, 16, "winter", "KR", 4_600_000_000_000 + number, "",
    ]  # fmt: skip


# -- lists


def make_csv(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(HEADER)
        writer.writerows(row(number) for number in range(rows))


def make_xls(path: Path, rows: int) -> None:
    book = xlwt.Workbook()
    sheet = book.add_sheet("List")
    for at, cells in enumerate([HEADER, *map(row, range(rows))]):
        for column, cell in enumerate(cells):
            sheet.write(at, column, cell)
        if at % 1000 == 0:
            sheet.flush_row_data()
    book.save(str(path))


def make_xlsx(path: Path, rows: int) -> None:
    """With shared strings, as spreadsheet programs write them."""
    strings: dict[str, int] = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in PARTS.items():
            book.writestr(name, content)
        with book.open("xl/worksheets/sheet1.xml", "w") as sheet:
            sheet.write(b'<worksheet xmlns="%b"><sheetData>' % MAIN)
            for at, cells in enumerate([HEADER, *map(row, range(rows))], start=1):
                sheet.write(_xml_row(at, cells, strings))
            sheet.write(b"</sheetData></worksheet>")
        texts = "".join(f"<si><t>{text}</t></si>" for text in strings)
        book.writestr("xl/sharedStrings.xml", f'<sst xmlns="{MAIN.decode()}">{texts}</sst>')


def _xml_row(at: int, cells: list[Any], strings: dict[str, int]) -> bytes:
    out = io.StringIO()
    out.write(f'<row r="{at}">')
    for column, cell in enumerate(cells):
        place = f"{chr(65 + column)}{at}"
        if isinstance(cell, str):
            if cell:
                number = strings.setdefault(cell, len(strings))
                out.write(f'<c r="{place}" t="s"><v>{number}</v></c>')
        else:
            out.write(f'<c r="{place}"><v>{cell}</v></c>')
    out.write("</row>")
    return out.getvalue().encode()


MAIN = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
PARTS = {
    "[Content_Types].xml": (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/>'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_TYPE}.worksheet+xml"/>'
        f'<Override PartName="/xl/sharedStrings.xml" ContentType="{_TYPE}.sharedStrings+xml"/></Types>'
    ),
    "_rels/.rels": (
        f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1"'
        f' Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
    ),
    "xl/workbook.xml": (
        f'<workbook xmlns="{MAIN.decode()}" xmlns:r="{_OFFICE}"><sheets>'
        '<sheet name="List" sheetId="1" r:id="rId1"/></sheets></workbook>'
    ),
    "xl/_rels/workbook.xml.rels": (
        f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="rId2" Type="{_OFFICE}/sharedStrings" Target="sharedStrings.xml"/>'
        "</Relationships>"
    ),
}

# -- the bare readers, each in a process of its own like the run's

BARE = {
    "xlsx": "import python_calamine as c\n"
    "n = sum(1 for _ in c.CalamineWorkbook.from_path(p).get_sheet_by_index(0).iter_rows())",
    "xls": "import xlrd\n"
    "s = xlrd.open_workbook(p, formatting_info=True).sheet_by_index(0)\n"
    "n = sum(1 for i in range(s.nrows) if s.row(i))",
    "csv": "import csv\nn = sum(1 for _ in csv.reader(open(p, encoding='utf-8', newline=''), delimiter=';'))",
}
MEASURED = (
    "import sys, time, resource\np = sys.argv[1]\nt = time.perf_counter()\n{code}\n"
    "print(time.perf_counter() - t, n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def bare(kind: str, path: Path) -> tuple[float, int]:
    """Seconds and peak KiB of reading every row, without the start of Python and its imports."""
    code = MEASURED.format(code=BARE[kind])
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    seconds, _, peak = done.stdout.split()
    return float(seconds), int(peak)


def published(mine: Tree, path: Path) -> tuple[float, int]:
    """Seconds from the file in the inbox to the published state, and peak KiB of the reading process."""
    target = mine.layout.inbox(mine.supplier) / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    # Another content each time: a list is published once.
    target.write_bytes(path.read_bytes())
    begun = time.perf_counter()
    outcome = mine.run()
    seconds = time.perf_counter() - begun
    assert outcome.status == "PASS", outcome
    return seconds, mine.manifest(outcome.run_id)["facts"]


def peak_of_reader(path: Path, folder: Path) -> int:
    """Peak KiB of the process that reads the list."""
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom app.suppliers import config\n"
        "from app.suppliers.reading.job import Job, read\nfrom app.suppliers.reading.limits import Limits\n"
        "source, into, rules = map(Path, sys.argv[1:])\n"
        "read(Job(source, into, config.load(rules, rules.stem), 'r', None, Limits(), into, 0))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    (into := folder / f"peak-{path.name}").mkdir()
    arguments = [str(path), str(into), str(folder / "configs" / "acme.yaml")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


MAKERS: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "xlsx": (make_xlsx, 100_000), "xls": (make_xls, 60_000), "csv": (make_csv, 1_000_000),
}  # fmt: skip


def main() -> None:
    """The table is on stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows-percent", type=int, default=100, help="of the full size of each list")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", choices=MAKERS, action="append")
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, {options.rounds} rounds, medians\n")
    print("| list | bare reader | rows/s | inbox to state | rows/s | of the reader's speed | peak memory |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as room:
        for kind in options.format or MAKERS:
            measure(kind, Path(room) / kind, options)


def measure(kind: str, folder: Path, options: argparse.Namespace) -> None:
    """One line of the table."""
    make, full = MAKERS[kind]
    rows = full * options.rows_percent // 100
    folder.mkdir()
    mine = tree(folder)
    mine.configure(**CONFIG)
    path = folder / f"list.{kind}"
    make(path, rows)
    readers, runs = [], []
    for number in range(options.rounds):
        readers.append(bare(kind, path)[0])
        again = mine.of(f"acme{number}")
        again.configure(**CONFIG)
        seconds, facts = published(again, path)
        assert facts == rows
        runs.append(seconds)
    reader, run = statistics.median(readers), statistics.median(runs)
    peak = peak_of_reader(path, folder) / 1024
    print(
        f"| {rows:,} rows × {len(HEADER)}, {kind.upper()} | {reader:.2f} s | {rows / reader:,.0f}"
        f" | {run:.2f} s | {rows / run:,.0f} | {reader / run:.2f} | {peak:.0f} MiB |",
        flush=True,
    )


if __name__ == "__main__":
    main()
