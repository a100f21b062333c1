"""Whose report a file is: right or unknown, never sure and wrong."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from app.uploads import guess
from tests.conftest import CORPUS, corpus_cases

UNKNOWABLE = {
    "google/editor_export_utf16le_no_bom_no_metrics.csv",  # has no metric
    "google/login_page.csv",
    "meta/xlsx_renamed.csv",
    "tiktok/empty.csv",
    "tiktok/report_code_40105.json",  # an error message, without a row
}


def of(content: bytes) -> guess.Guess:
    return guess.guess(content[: 64 * 1024])


@pytest.mark.parametrize("case", corpus_cases(), ids=lambda case: str(case["file"]))
def test_the_platform_of_every_report_is_known_or_nothing_is_said(case: dict[str, Any]) -> None:
    found = of((CORPUS / case["file"]).read_bytes())
    assert found.platform == (None if case["file"] in UNKNOWABLE else case["platform"])


@pytest.mark.parametrize("case", corpus_cases(), ids=lambda case: str(case["file"]))
@pytest.mark.parametrize("size", [1, 7, 64, 333, 2000])
def test_a_few_bytes_never_lead_to_a_wrong_platform(size: int, case: dict[str, Any]) -> None:
    found = guess.guess((CORPUS / case["file"]).read_bytes()[:size])
    assert found.platform in (None, case["platform"])


def test_columns_that_several_platforms_have_decide_nothing() -> None:
    found = of(b"Campaign,Impressions,Clicks\nSpring,1,1\n")
    assert found.platform is None
    assert len(found.possible) > 1


def test_a_file_that_is_no_report_is_named_for_what_it_is() -> None:
    found = of(b"PK\x03\x04" + bytes(100))
    assert (found.platform, found.code) == (None, "unsupported_format")
    assert "Excel" in (found.sentence or "")


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8b", b"\x1f\x8b" + bytes(100), b"[" * 60_000, b'{"a":' * 10_000, b'"' * 60_000, bytes(64_000),
     b"\xff\xfe" + b"\x00\xd8" * 1000, b"a,b\n" * 16_000, gzip.compress(bytes(50_000_000))],
)  # fmt: skip
def test_a_hostile_beginning_is_no_report(content: bytes) -> None:
    assert of(content).platform is None
