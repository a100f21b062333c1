"""Ad reports: whatever is in a file, it is refused with a known code or read, and read the same however."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

from app.kernel.errors import FileRefused
from app.uploads.codes import FILE_CODES, ROW_CODES
from app.uploads.reading import formats, plan, rows
from tests.fuzz.target import CORPUS, SAMPLES, Target, beginnings

PLATFORMS = ("google", "meta", "tiktok")
DECLARED = (
    plan.Declared("USD"), plan.Declared(), plan.Declared("EUR", "dmy", ","), plan.Declared(None, "mdy", "."),
)  # fmt: skip
MOST_UNPACKED = 1 << 20


def read(content: bytes, platform: str, declared: plan.Declared, at_once: int) -> Any:
    """The plan, the tally and the staged rows; or the code of the refusal."""
    try:
        with formats.unpacked(io.BytesIO(content), max_bytes=MOST_UNPACKED) as file:
            made = plan.make(file, platform=platform, declared=declared)
            stored = plan.Plan.from_json(json.loads(json.dumps(made.as_json())))
            assert stored == made, "the stored plan is another one"
            reader = rows.Rows(stored, scope=["w", None, platform], today=date(2026, 11, 27))
            staged = [one for some in reader.read(file, at_once=at_once) for one in some]
    except FileRefused as refusal:
        assert refusal.code in FILE_CODES, refusal.code
        assert refusal.sentence
        return refusal.code
    return made, reader.tally, staged


def check(data: bytes) -> None:
    """The first byte chooses platform and declaration; the rest is the file."""
    if not data:
        return
    platform, declared = PLATFORMS[data[0] % 3], DECLARED[data[0] // 3 % 4]
    content = data[1:]
    found = read(content, platform, declared, 500)
    assert read(content, platform, declared, 1) == found, "row by row it is another report"
    if not formats.is_gzip(content):
        packed = read(gzip.compress(content, 1), platform, declared, 500)
        assert packed == found, "packed it is another report"
    if isinstance(found, str):
        return
    _, tally, staged = found
    days = [one for one in staged if one.entity_type == "daily_metric"]
    assert len(days) == tally.data
    assert sum(1 for one in days if one.errors) == tally.rejected
    assert len({one.row_index for one in days}) == tally.data
    for one in staged:
        _check_row(one)


def _check_row(one: Any) -> None:
    said = json.loads(one.raw, parse_float=Decimal, parse_int=Decimal)
    one.raw.encode()
    assert not any(isinstance(value, str) and "\x00" in value for value in said.values())
    if one.errors:
        why = json.loads(one.errors)
        one.errors.encode()
        assert why["errors"] and all(error["code"] in ROW_CODES for error in why["errors"])
    elif one.entity_type == "daily_metric":
        date.fromisoformat(said["date"])
        for name in ("spend", "conversion_value"):
            amount = said.get(name)
            assert amount is None or abs(amount) < 10**12
        for name in ("impressions", "clicks", "reach", "link_clicks"):
            count = said.get(name)
            assert count is None or (0 <= count < 2**63 and count == int(count))


def seeds() -> Iterator[bytes]:
    """Reports of every platform, as CSV and JSON, packed and not."""
    for number, platform in enumerate(PLATFORMS):
        files = [path for path in (CORPUS / platform).iterdir() if path.suffix != ".gz"]
        for content in beginnings(files, 3000):
            yield bytes([number]) + content
        for content in beginnings([SAMPLES / f"{platform}.csv"], 1500):
            yield bytes([number]) + content
            yield bytes([number + 3]) + gzip.compress(content, mtime=0)


TARGET = Target(
    check,
    seeds,
    words=(
        b"Day", b"Campaign name", b"Campaign ID", b"Impressions", b"Amount spent (USD)", b"Cost",
        b"Currency code",
        b"Total", b"All", b"--", b"\t", b";", b"|", b'"', b'""', b"\r\n", b"\xff\xfe", b"\xef\xbb\xbf",
        b"1,234.56", b"1.234,56", b"01/02/2025", b"2025-02-01", b"1e9", b'"results"', b'"data"', b'"actions"',
        b'[{"', b"null", b"\\u0000", b"\\ud800", b"\x1f\x8b", b"act_", b"(USD)", b"[28-day click]", b"'=",
    ),
)  # fmt: skip
