"""What is said of a file once all of its rows have been read: counts, report, and whether it passes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, BinaryIO, Protocol

from app.uploads.codes import WARNINGS, file_sentence
from app.uploads.reading.cells import Problem
from app.uploads.reading.duplicates import KeyRow, Settlement
from app.uploads.reading.originals import Originals
from app.uploads.reading.plan import Plan
from app.uploads.reading.rejection import rejection
from app.uploads.reading.rows import Tally
from app.uploads.states import VALID_PERCENT

TOTAL_TOLERANCE = Decimal("0.005")
"""By how much, for each row, a file's total may differ from its rows: platforms round both."""

SHOWN_COLUMNS = 10
"""Unknown columns that are named to the uploader."""


class Reject(Protocol):
    """How many rows were rejected for one reason, and where the first of them stands."""

    @property
    def code(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def first_line(self) -> int | None: ...


def passes(rows: dict[str, int], *, force_partial: bool) -> bool:
    """Whether enough rows are valid to promote them (D6.6 §4.4); an empty report passes."""
    if rows["data"] == 0:
        return True
    if rows["valid"] == 0:
        return False
    return force_partial or rows["valid"] * 100 >= rows["data"] * VALID_PERCENT


class Outcome:
    """What became of the rows whose key stands more than once."""

    def __init__(self) -> None:
        self.merged = self.identical = self.rejected = 0
        self.subtotal_spend = Decimal(0)
        self.subtotals: list[int] = []
        self.warnings: set[str] = set()

    def add(self, key_rows: list[KeyRow], settlement: Settlement) -> None:
        """Count the rows of one key in."""
        for row in key_rows:
            if row.row_index in settlement.subtotals:
                self.subtotal_spend += row.raw.get("spend") or 0
        self.merged += len(settlement.merged)
        self.identical += len(settlement.identical)
        self.rejected += len(settlement.rejected)
        self.subtotals += settlement.subtotals
        if settlement.warning:
            self.warnings.add(settlement.warning)


def row_counts(tally: Tally, outcome: Outcome, rejects: Sequence[Reject]) -> dict[str, int]:
    """How many rows the file has, and of which kinds."""
    data = tally.data - len(outcome.subtotals)
    rejected = sum(reject.rows for reject in rejects)
    return {
        "data": data,
        "valid": data - rejected,
        "rejected": rejected,
        "totals_skipped": tally.totals_skipped + len(outcome.subtotals),
        "merged": outcome.merged,
        "duplicates_identical": outcome.identical,
    }


def report(
    plan: Plan, tally: Tally, *, outcome: Outcome, rejects: Sequence[Reject], rows: dict[str, int]
) -> dict[str, Any]:
    """What is kept with the upload beside its plan. `rejects` come in file order."""
    row_sum = tally.spend - outcome.subtotal_spend
    check = _totals_check(plan, tally.file_total, row_sum, rows["data"])
    warnings = {*plan.warnings, *tally.warnings, *outcome.warnings}
    if check and not check["matches"]:
        warnings.add("totals_mismatch")
    first = rejects[0] if rejects else None
    return {
        "rows": rows,
        "totals_check": check,
        "warnings": sorted(warnings & WARNINGS.keys()),
        "reject_codes": {reject.code: reject.rows for reject in rejects},
        "first_reject": {"line": first.first_line, "code": first.code} if first else None,
    }


def _totals_check(
    plan: Plan, file_total: Decimal | None, row_sum: Decimal, data_rows: int
) -> dict[str, Any] | None:
    """The file's own total against its rows; None where it has none, or several currencies."""
    if file_total is None or len(plan.currency_found) > 1:
        return None
    difference = abs(file_total - row_sum)
    return {
        "file_total": _amount(file_total),
        "row_sum": _amount(row_sum),
        "matches": difference <= TOTAL_TOLERANCE * data_rows,
    }


def _amount(value: Decimal) -> str:
    return format(value.normalize() + 0, "f")


def refusal(plan: Plan, rows: dict[str, int], rejects: Sequence[Reject]) -> tuple[str, str]:
    """Code and sentence for a file of which too few rows are valid."""
    codes = [reject.code for reject in rejects]
    if rows["valid"] == 0 and codes == ["date_range"]:
        covered = plan.preamble[-1] if plan.preamble else "a whole period"
        sentence = file_sentence("date_range", range=covered, advice=_DAILY_ADVICE[plan.platform])
        return "date_range", sentence if plan.day_columns else sentence + _unknown("the day", plan)
    if rows["valid"] == 0 and codes == ["missing_campaign"] and not plan.column(*CAMPAIGN_FIELDS):
        sentence = "No column of the file is known as the campaign, so that no row can be taken."
        return "too_many_rejects", sentence + _unknown("its name or ID", plan)
    if rows["valid"] == 0:
        return "too_many_rejects", "Not one row of the file is valid. Mend the rows, and upload it again."
    sentence = file_sentence(
        "too_many_rejects", rejected=rows["rejected"], data=rows["data"], percent=VALID_PERCENT
    )
    return "too_many_rejects", sentence


CAMPAIGN_FIELDS = ("campaign_name", "campaign_id")


def _unknown(what: str, plan: Plan) -> str:
    """Where a column of the file may hold what is missing, under a name that is not known."""
    names = ", ".join(f"“{name}”" for name in plan.unknown_columns[:SHOWN_COLUMNS])
    return f" If a column holds {what}, name it as in the platform's template: {names}." if names else ""


_DAILY_ADVICE = {
    "meta": "in Ads Manager: Breakdown, By time, Day",
    "google": "in Google Ads: add the segment Time, Day",
    "tiktok": "in TikTok Ads Manager: add the dimension By Day",
}


def explained(rejected: dict[int, tuple[str, int, int]], plan: Plan, file: BinaryIO) -> dict[int, str]:
    """validation_errors of rows that are refused for another one's sake, with their cells.

    `rejected`: row_index → code, the other one's line, the row's own line.
    """
    if not rejected:
        return {}
    originals = Originals(plan, file)
    return {
        row_index: rejection(line, originals.cells(line) or [], [Problem(code, _place(other))])
        for row_index, (code, other, line) in sorted(rejected.items())
    }


def _place(line: int) -> str:
    return f"line {line}" if line > 0 else f"row {-line}"
