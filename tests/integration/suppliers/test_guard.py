"""Whatever is in a file, the process that asked for it lives on, and nothing is left of the one that read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from app.suppliers import extract as extracting
from app.suppliers.extract import extract
from app.suppliers.failures import SupplierFailure
from app.suppliers.reading.limits import Limits
from tests import patience
from tests.integration.suppliers.lists import payloads, rules


def until(found: Callable[[], Any]) -> Any:
    deadline = patience.deadline(30)
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """A file that never comes to an end: whoever reads it waits."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def reader_of(parent: int) -> int | None:
    """The reading process that this process has started, once it is at work."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"\nPPid:\t{parent}\n" in (entry / "status").read_text():
                if b"app.suppliers.reading.job" in (entry / "cmdline").read_bytes():
                    return int(entry.name)
        except OSError:
            continue
    return None


def limit_of(pid: int, name: str) -> str:
    """The soft limit of a process, as the kernel tells it."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line.removeprefix(name).split()[0] for line in lines if line.startswith(name))


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.fixture
def reading(silent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The reading process while it waits for its file."""
    monkeypatch.setenv("HEADWORKS_SECRET", "do-not-tell")
    into = tmp_path / "into"
    into.mkdir()
    limits = Limits(seconds=60, memory_bytes=400 << 20)

    def read() -> None:
        with pytest.raises(SupplierFailure):
            extract(silent, into=into, config=rules(), run_id="r", limits=limits)

    work = threading.Thread(target=read)
    work.start()
    pid = until(lambda: reader_of(os.getpid()))
    try:
        until(lambda: limit_of(pid, "Max address space") == str(400 << 20))
        yield pid
    finally:  # another test would take it for its own
        os.kill(pid, signal.SIGKILL)
        work.join()


def test_the_reader_has_limits_no_secrets_and_no_files_of_others(reading: int) -> None:
    assert (limit_of(reading, "Max cpu time"), limit_of(reading, "Max core file size")) == ("61", "0")
    assert b"do-not-tell" not in Path(f"/proc/{reading}/environ").read_bytes()
    descriptors = {str(entry.readlink()) for entry in Path(f"/proc/{reading}/fd").iterdir()}
    assert all(found.startswith("pipe:") or "deleted" in found for found in descriptors), descriptors
    assert os.getsid(reading) == reading


def test_a_reader_that_takes_too_long_is_ended(silent: Path, tmp_path: Path) -> None:
    with pytest.raises(SupplierFailure) as caught:
        extract(silent, into=tmp_path, config=rules(), run_id="r", limits=Limits(seconds=2))
    assert (caught.value.code, caught.value.detail) == ("READER_TIMEOUT", {"seconds": 2})
    assert reader_of(os.getpid()) is None
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


ASK = """
import sys; from pathlib import Path; from app.suppliers.extract import extract
from tests.integration.suppliers.lists import rules
extract(Path(sys.argv[1]), into=Path(sys.argv[2]), config=rules(), run_id="r")
"""


def test_the_reader_dies_with_whoever_asked(silent: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    asking = subprocess.Popen([sys.executable, "-c", ASK, str(silent), str(into)])
    try:
        pid = until(lambda: reader_of(asking.pid))
        until(lambda: limit_of(pid, "Max core file size") == "0")
    finally:
        asking.kill()
        asking.wait()
    until(lambda: not is_alive(pid))


def test_a_list_that_needs_too_much_memory_is_refused_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[" + "[]," * 3_000_000 + "[]]")
    limits = Limits(memory_bytes=200 << 20)
    with pytest.raises(SupplierFailure) as caught:
        extract(path, into=tmp_path, config=rules(), run_id="r", limits=limits)
    assert caught.value.code == "READER_CRASHED"
    assert "MemoryError" in (tmp_path / "diag" / "reader.txt").read_text()
    assert not list(tmp_path.glob(".room-*"))


def test_a_reader_that_is_killed_is_a_crash(
    silent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = threading.Thread(target=lambda: os.kill(until(lambda: reader_of(os.getpid())), signal.SIGKILL))
    killer.start()
    with pytest.raises(SupplierFailure) as caught:
        extract(silent, into=tmp_path, config=rules(), run_id="r")
    killer.join()
    assert (caught.value.code, caught.value.detail) == ("READER_CRASHED", {"exit_code": -signal.SIGKILL})


def test_a_reader_that_is_not_there_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extracting.sys, "executable", "/bin/false")
    with pytest.raises(SupplierFailure) as caught:
        extract(tmp_path, into=tmp_path, config=rules(), run_id="r")
    assert caught.value.code == "READER_CRASHED"


# -- workbooks that would end a native reader


def base(rows: int = 3) -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    book.active.append(["Code", "Name", "Price", "Stock"])
    for number in range(rows):
        book.active.append([f"A-{number}", "x", 1, 1])
    return book


def with_sheet(source: Path, target: Path, change: Callable[[bytes], bytes]) -> None:
    """A copy of a workbook whose first sheet is another one."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data) if name == "xl/worksheets/sheet1.xml" else data)


@pytest.mark.parametrize(("quote", "codes"), [('"', ["FILE_TOO_LARGE"]), ("'", ["FILE_TOO_LARGE"])])
def test_a_space_in_the_last_cell_of_a_sheet_ends_nobody(
    quote: str, codes: list[str], tmp_path: Path
) -> None:
    base().save(tmp_path / "base.xlsx")
    corner = b'<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t> </t></is></c></row></sheetData>'
    corner = corner.replace(b'"', quote.encode())
    with_sheet(tmp_path / "base.xlsx", tmp_path / "l.xlsx", lambda xml: xml.replace(b"</sheetData>", corner))
    with pytest.raises(SupplierFailure) as caught:
        extract(tmp_path / "l.xlsx", into=tmp_path, config=rules(), run_id="r")
    assert caught.value.code in codes


def test_a_cell_that_lies_about_its_row_ends_the_reader_only(tmp_path: Path) -> None:
    base().save(tmp_path / "base.xlsx")
    corner = b'<row><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    with_sheet(tmp_path / "base.xlsx", tmp_path / "l.xlsx", lambda xml: xml.replace(b"</sheetData>", corner))
    with pytest.raises(SupplierFailure) as caught:
        extract(tmp_path / "l.xlsx", into=tmp_path, config=rules(), run_id="r")
    assert caught.value.code in ("READER_CRASHED", "FILE_TOO_LARGE")


@pytest.mark.parametrize("said", [b"A1:D2", b"A1:XFD1048576"])
def test_what_a_sheet_says_of_its_own_size_does_not_count(said: bytes, tmp_path: Path) -> None:
    base(rows=50).save(tmp_path / "base.xlsx")
    with_sheet(tmp_path / "base.xlsx", tmp_path / "l.xlsx", lambda xml: xml.replace(b"A1:D51", said))
    found = extract(tmp_path / "l.xlsx", into=tmp_path, config=rules(), run_id="r")
    assert found.good_rows == 50


@pytest.mark.parametrize(
    "rename",
    [lambda name: name.replace("sharedStrings", "SharedStrings"), lambda name: name.replace("/", "\\")],
)
def test_parts_may_be_spelled_in_other_ways(rename: Callable[[str], str], tmp_path: Path) -> None:
    base().save(tmp_path / "base.xlsx")
    with (
        zipfile.ZipFile(tmp_path / "base.xlsx") as old,
        zipfile.ZipFile(tmp_path / "list.csv", "w") as new,
    ):
        for name in old.namelist():
            new.writestr(rename(name), old.read(name))
    found = extract(tmp_path / "list.csv", into=tmp_path, config=rules(), run_id="r")
    assert (found.format, found.good_rows) == ("xlsx", 3)


@pytest.mark.parametrize(
    "declared", [b'<!DOCTYPE x [<!ENTITY a "b">]>', b'<!DOCTYPE x SYSTEM "file:///etc/hostname">']
)
def test_a_workbook_that_declares_anything_is_refused(declared: bytes, tmp_path: Path) -> None:
    base().save(tmp_path / "base.xlsx")
    with_sheet(
        tmp_path / "base.xlsx",
        tmp_path / "l.xlsx",
        lambda xml: xml.replace(b"<worksheet", declared + b"<worksheet"),
    )
    with pytest.raises(SupplierFailure) as caught:
        extract(tmp_path / "l.xlsx", into=tmp_path, config=rules(), run_id="r")
    assert caught.value.code == "XML_ENTITY"


def test_a_workbook_cut_short_is_corrupt(tmp_path: Path) -> None:
    base(rows=500).save(tmp_path / "base.xlsx")
    content = (tmp_path / "base.xlsx").read_bytes()
    (tmp_path / "l.xlsx").write_bytes(content[: len(content) // 2])
    with pytest.raises(SupplierFailure) as caught:
        extract(tmp_path / "l.xlsx", into=tmp_path, config=rules(), run_id="r")
    assert caught.value.code == "FILE_CORRUPT"


def test_a_table_need_not_begin_in_the_corner(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row, cells in ((4, ["Code", "Name", "Price", "Stock"]), (6, ["A-1", "x", 1, 2])):
        for column, cell in enumerate(cells, start=3):
            book.active.cell(row, column, cell)
    book.save(tmp_path / "l.xlsx")
    found = extract(tmp_path / "l.xlsx", into=tmp_path, config=rules(), run_id="r")
    assert (found.good_rows, found.skipped_by_reason) == (1, {"BLANK_ROW": 1})
    assert payloads(tmp_path)[0]["qty"] == 2


def test_the_reader_starts_without_what_checks_configs() -> None:
    code = "import sys; from app.suppliers.reading import job; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
