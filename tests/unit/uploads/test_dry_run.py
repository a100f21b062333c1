"""A dry run says what an upload of the file would have said, and leaves nothing behind."""

from __future__ import annotations

import gzip
import io
import threading
import types
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from app.adapters.settings import Settings
from app.kernel import errors
from app.kernel.clock import SystemClock
from app.uploads import answers, dry_run, intake
from app.uploads.services import Services
from tests.conftest import CORPUS, corpus_cases

HEADER = "Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD)"


class _Clock(SystemClock):
    def now(self) -> datetime:
        return datetime(2026, 11, 27, tzinfo=UTC)


def services(**settings: Any) -> Services:
    """What a dry run needs: limits and the day; there is no database to reach."""
    found = Settings(database_url="", broker_url="", data_dir=Path("/nowhere"), **settings)
    return cast(Services, types.SimpleNamespace(settings=found, clock=_Clock()))


def check(content: bytes, *, platform: str = "meta", limits: Any = None, **fields: Any) -> dict[str, Any]:
    request = intake.Request(uuid.UUID(int=1), platform, "manual", **fields)
    return answers.checked(request, dry_run.check(limits or services(), request, io.BytesIO(content)))


def rows(*lines: str) -> bytes:
    return "\n".join([HEADER, *lines, ""]).encode()


@pytest.mark.parametrize("case", corpus_cases(), ids=lambda case: str(case["file"]))
def test_a_dry_run_says_what_an_upload_of_the_file_leads_to(case: dict[str, Any]) -> None:
    content = (CORPUS / case["file"]).read_bytes()
    found = check(content, platform=case["platform"], currency=case["currency"])
    assert (found["status"], found["error_code"]) == (case["outcome"], case.get("fail_code"))
    assert "upload_id" not in found
    if case["rows"] is None:
        return
    for name in ("rows", "reject_codes", "first_reject"):
        assert found[name] == case[name], name
    for name in ("header_line", "delimiter"):
        assert found["report"][name] == case[name], name
    assert len(found["errors"]) == min(found["rows"]["rejected"], dry_run.FIRST_REJECTS)


def test_the_first_rejected_rows_come_in_file_order_with_their_cells() -> None:
    found = check(
        rows(
            "2025-05-01,A,1,10,1,1.00",
            "2025-05-01,A,1,20,1,1.00",  # contradicts the one above
            "2025-05-02,B,2,many,1,1.00",
            "2025-05-03,C,3,10,1,1.00",
            "2025-05-03,C,3,10,1,2.00",
        )
    )
    assert [(row["line"], row["code"]) for row in found["errors"]] == [
        (2, "duplicate_key_conflict"),
        (3, "duplicate_key_conflict"),
        (4, "invalid_number"),
        (5, "duplicate_key_conflict"),
        (6, "duplicate_key_conflict"),
    ]
    assert found["errors"][0]["cells"] == ["2025-05-01", "A", "1", "10", "1", "1.00"]
    assert found["first_reject"] == {"line": 2, "code": "duplicate_key_conflict"}
    assert "line 3" in found["errors"][0]["errors"][0]["message"]


def test_of_very_many_rejected_rows_the_first_are_shown_and_all_are_counted() -> None:
    same = [f"2025-05-01,A,{number},1,1,{spend}.00" for number in range(400) for spend in (1, 2)]
    found = check(rows("2025-05-01,Z,9000,many,1,1.00", *same))
    assert found["reject_codes"] == {"invalid_number": 1, "duplicate_key_conflict": 800}
    assert [row["line"] for row in found["errors"]] == list(range(2, 2 + dry_run.FIRST_REJECTS))


def test_force_partial_counts_as_it_does_in_an_upload() -> None:
    content = rows("2025-05-01,A,1,10,1,1.00", "2025-05-02,B,2,many,1,1.00")
    assert check(content)["error_code"] == "too_many_rejects"
    assert check(content, force_partial=True)["status"] == "completed"


@pytest.mark.parametrize(
    ("known", "unknown", "code", "told"),
    [
        ("Campaign", "Kampagnen", "too_many_rejects", "its name or ID"),
        ("Day", "Kiedy", "date_range", "the day"),
    ],
)
def test_a_column_that_is_not_known_is_blamed_and_not_its_rows(
    known: str, unknown: str, code: str, told: str
) -> None:
    content = rows("2025-05-01,A,1,10,1,1.00").decode().replace(known, unknown)
    found = check(content.encode())
    assert found["error_code"] == code
    assert f"If a column holds {told}" in found["error_text"] and f"“{unknown}" in found["error_text"]


def test_where_every_row_is_bad_the_rows_are_blamed() -> None:
    found = check(rows("2025-05-01,A,1,many,1,1.00"))
    assert found["error_text"].startswith("Not one row of the file is valid.")


def test_a_file_that_cannot_be_read_fails_with_the_reason_and_what_was_recognised() -> None:
    found = check(b"%PDF-1.7")
    assert (found["status"], found["error_code"], found["rows"]) == ("failed", "unsupported_format", None)
    assert "PDF" in found["error_text"]


def test_a_file_over_the_limit_is_refused_as_an_upload_is() -> None:
    with pytest.raises(errors.Refused) as refused:
        check(rows(), limits=services(upload_bytes=20))
    assert refused.value.code == "file_too_large"


def test_a_packed_file_is_told_with_its_own_size_and_too_large_a_one_is_not_checked() -> None:
    content = gzip.compress(rows(*["2025-05-01,A,1,10,1,1.00"] * 5000))
    found = check(content)
    assert found["size_bytes"] == len(content)
    with pytest.raises(errors.Refused) as refused:
        check(content, limits=services(upload_bytes=len(content) + 1, unpacked_bytes=1 << 30))
    assert refused.value.code == "too_large_to_check"


def test_only_so_many_files_are_checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "_turns", threading.BoundedSemaphore(1))
    with dry_run._turns, pytest.raises(errors.RateLimited):
        check(rows())
    assert check(rows())["status"] == "completed"
    assert check(b"")["status"] == "failed"
    assert check(rows())["status"] == "completed"  # a turn is given back after a refusal, too
