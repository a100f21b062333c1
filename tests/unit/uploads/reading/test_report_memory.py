"""What a reading keeps in mind: bounded, and without cycles, since nobody looks for them meanwhile."""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Callable
from datetime import date

import pytest
from report import TODAY

from app.uploads.reading import entities, plan, rows
from app.uploads.reading.records import BLOCK_RECORDS

HEADER = "Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)\n"
DECLARED = plan.Declared(currency="USD")


def _day(number: int) -> str:
    return date(2025, 5, 1 + number % 28).isoformat()


def csv_of(line: Callable[[int], str]) -> Callable[[int], bytes]:
    """A function from a number to a report with so many rows."""
    return lambda count: (HEADER + "".join(f"{line(number)}\n" for number in range(count))).encode()


def json_of(spend: str, *, between: str = ",", around: str = "[]") -> Callable[[int], bytes]:
    """The same as JSON."""
    head, tail = around or ("", "")

    def made(count: int) -> bytes:
        found = [
            {
                "date_start": _day(n), "date_stop": _day(n), "campaign_id": str(n), "campaign_name": f"C{n}",
                "impressions": str(n), "spend": spend, "account_currency": "USD",
            }
            for n in range(count)
        ]  # fmt: skip
        return (head + between.join(map(json.dumps, found)) + tail).encode()

    return made


REPORTS = {
    "nothing wrong": csv_of(lambda n: f"{_day(n)},C{n},{n},{n},1.5"),
    "known by name": csv_of(lambda n: f"{_day(n)},C{n},,{n},1.5"),
    "bad numbers": csv_of(lambda n: f"{_day(n)},C{n},{n},x{n},1.5"),
    "open quotes": csv_of(lambda n: f'{_day(n)},"C{n},{n},{n},1.5' if n % 50 == 0 else f"{_day(n)},C,1,1,1"),
    "too many columns": csv_of(lambda n: f"{_day(n)},C{n},{n},{n},1.5,x"),
    "JSON": json_of("1.5"),
    "bad JSON lines": json_of("q", between="\n", around=""),
}


def read(content: bytes) -> tuple[rows.Rows, int]:
    """The reading of this report, and how many staging rows it gave."""
    file = io.BytesIO(content)
    found = plan.make(file, platform="meta", declared=DECLARED)
    reading = rows.Rows(found, scope=["workspace", None, "meta"], today=TODAY)
    return reading, sum(map(len, reading.read(file)))


def cycles_of(content: bytes) -> int:
    """How many objects are left of cycles that a reading made and forgot."""
    gc.collect()
    gc.freeze()  # only what is new is looked through
    gc.disable()
    try:
        reading, staged = read(content)
        left = gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    assert staged
    del reading
    return left


@pytest.mark.parametrize("kind", REPORTS)
def test_a_reading_leaves_no_cycles_however_many_rows_there_are(kind: str) -> None:
    cycles_of(REPORTS[kind](10))  # what is imported and compiled once
    few, many = cycles_of(REPORTS[kind](200)), cycles_of(REPORTS[kind](4_000))
    assert many <= few + 20, kind


def test_what_is_remembered_of_entities_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entities, "REMEMBERED", 100)
    reading, staged = read(REPORTS["nothing wrong"](1_000))
    assert staged == 2_000
    assert len(reading._entities._known) <= 100
    most = 100 + BLOCK_RECORDS  # what a block names is staged when all of it was looked at
    assert all(len(seen) <= most for seen in reading._entities._staged.values())
