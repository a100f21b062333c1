"""The product's codes in the words of people who run campaigns: what is the matter, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """A state of an upload."""

    label: str
    tone: str  # wait, work, good, warn or bad
    meaning: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A code: a short name for it, and what to do."""

    title: str
    todo: str = ""


PLATFORMS = {"meta": "Meta Ads", "google": "Google Ads", "tiktok": "TikTok Ads"}

SOURCES = {"manual": "by hand", "api": "by API", "webhook": "by webhook"}

STATES = {
    "pending": State("Waiting", "wait", "The file is stored and waits to be read."),
    "processing": State("Reading", "work", "Every row is being read and checked."),
    "staging_complete": State("Checked", "work", "All rows are checked; saving begins in a moment."),
    "promoting": State("Saving", "work", "The valid rows are being saved to your data."),
    "completed": State("Completed", "good", "Every valid row is in your data."),
    "partial": State("Partly completed", "warn", "Some valid rows could not be saved; all others are."),
    "failed": State("Failed", "bad", "Nothing of this file is in your data."),
}

ACTIONS = {
    "created": "Handed in",
    "resumed": "Taken up again",
    "released": "Put back in line",
    "lease_expired": "Worker lost",
    "requeued": "Sent on its way again",
    "event_received": "Told to subscribers",
}

MOVES = {
    "processing": "A worker reads it",
    "staging_complete": "Every row is read",
    "promoting": "A worker saves it",
    "completed": "Everything is saved",
    "partial": "Saved, except for some rows",
    "failed": "Given up",
}
"""What it means that an upload moved into a state."""

FILES = {
    # Where there is nothing to do, the code's own sentence says it.
    "empty_file": Advice("The file is empty"),
    "unsupported_format": Advice("Not a CSV or JSON report"),
    "file_too_large": Advice("The file is too large"),
    "undecodable_text": Advice("The text is damaged"),
    "unknown_header": Advice(
        "No row of column names can be used",
        "Check that the platform is right. The templates show which columns are known.",
    ),
    "ambiguous_column": Advice("One column stands twice, and differs"),
    "ambiguous_number": Advice("Decimals or thousands?"),
    "ambiguous_date": Advice("Day/month or month/day?"),
    "currency_missing": Advice("The currency is missing"),
    "date_range": Advice("The report is not broken down by day"),
    "too_many_rejects": Advice("Too many rows were rejected"),
    "malformed_json": Advice("The JSON is broken", "Download or save the file again."),
    "malformed_file": Advice("The file cannot be read as a table", "Export the report again as CSV."),
    "api_error": Advice(
        "An error message instead of a report",
        "Ask the platform for the report again and upload the answer.",
    ),
    "file_not_found": Advice("The stored file is gone"),
    "attempts_exhausted": Advice(
        "Reading was given up", "Tell whoever runs this instance, then requeue the upload below."
    ),
}

ROWS = {
    "date_range": Advice(
        "Covers several days", "Export the report broken down by day: one row for each day."
    ),
    "missing_date": Advice("No date", "Fill in the day as YYYY-MM-DD, or delete the row."),
    "invalid_date": Advice("Not a date", "Write the day as YYYY-MM-DD, such as 2025-01-31."),
    "invalid_number": Advice(
        "Not a number", "Write digits only, such as 1234 or 1234.50; leave it empty for none."
    ),
    "negative_count": Advice(
        "Negative count", "Impressions, clicks and the like start at 0: correct the cell."
    ),
    "invalid_id": Advice("Not an ID", "Take the ID from the platform once more."),
    "id_scientific_notation": Advice(
        "ID damaged by a spreadsheet",
        "Export again and do not save from the spreadsheet, or format the ID column as text before pasting.",
    ),
    "missing_campaign": Advice("No campaign", "Add the campaign's name or ID to the row."),
    "missing_currency": Advice(
        "No currency", "Fill in the currency, or choose it in the form when uploading."
    ),
    "invalid_currency": Advice("Not a currency", "Use a three-letter code such as USD or EUR."),
    "currency_conflict": Advice(
        "Several currencies for one day", "Rows of the same campaign and day need one currency: correct it."
    ),
    "duplicate_key_conflict": Advice(
        "Contradicts another row",
        "Two rows are about the same thing and day with different numbers: delete the wrong one, or add the"
        " column by which they differ.",
    ),
    "too_many_columns": Advice(
        "More cells than columns", "A cell holds a separator: put it in quotes, or delete the extra cell."
    ),
    "invalid_character": Advice("Invisible character", "Type the cell again by hand."),
    "malformed_row": Advice("Unreadable row", 'Look for a quote (") without its partner in this row.'),
    "ambiguous_name": Advice(
        "Name is not unique", "Add the ID column to the report, so that it is clear which is meant."
    ),
    "unique_violation": Advice(
        "Saving collided", "Requeue the upload: only the failed rows are tried again."
    ),
    "row_refused": Advice("Value out of range", "Check the row's numbers: one is larger than can be stored."),
    "deadlock": Advice("Saving collided", "Requeue the upload: only the failed rows are tried again."),
    "foreign_key_missing": Advice(
        "Campaign could not be saved", "Requeue the upload: only the failed rows are tried again."
    ),
}

FIELDS = {
    "campaign_name": "Campaign",
    "campaign_id": "Campaign ID",
    "campaign_status": "Campaign status",
    "ad_set_name": "Ad set / ad group",
    "ad_set_id": "Ad set / ad group ID",
    "ad_name": "Ad",
    "ad_id": "Ad ID",
    "account_id": "Account ID",
    "account_name": "Account",
    "metric_date": "Day",
    "metric_hour": "Hour (added up to days)",
    "range_start": "First day",
    "range_end": "Last day",
    "currency": "Currency",
    "spend": "Spend",
    "spend_micros": "Spend (in millionths)",
    "impressions": "Impressions",
    "clicks": "Clicks",
    "link_clicks": "Link clicks",
    "reach": "Reach",
    "conversions": "Conversions",
    "conversion_value": "Conversion value",
    "actions": "Conversions (list)",
    "action_values": "Conversion value (list)",
    "breakdown": "Breakdown (added up)",
}
"""Columns that count; all others of the report are read over."""

READ_OVER = {
    "derived": "ratio, worked out from the totals instead",
    "period": "longer than a day",
    "budget": "budget",
    "ad_set_budget": "budget",
}

ENCODINGS = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 with mark",
    "utf-16-le": "UTF-16 (little-endian)",
    "utf-16-be": "UTF-16 (big-endian)",
    "cp932": "Japanese (CP932)",
    "cp1252": "Western (Windows-1252)",
    "cp1251": "Cyrillic (Windows-1251)",
    "cp1250": "Central European (Windows-1250)",
    "gb18030": "Chinese (GB 18030)",
    "cp949": "Korean (CP949)",
    "big5": "Chinese (Big5)",
}

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}

DATE_ORDERS = {"dmy": "day first (31/01/2025)", "mdy": "month first (01/31/2025)"}

DECIMAL_MARKS = {".": "point (1,234.50)", ",": "comma (1.234,50)"}

WARNING_TITLES = {
    "more_pages": "Not the whole report",
    "totals_mismatch": "Totals differ",
    "negative_spend": "Credits in the spend",
    "spend_missing": "No spend",
    "other_platform": "Another platform’s report?",
    "merged_without_ids": "Rows were added up",
    "future_date": "Days in the future",
    "reference_missing": "Ads without their ad set",
}


def state(status: str) -> State:
    """The words for a state of an upload."""
    return STATES[status]


def happened(action: str, to_status: str | None) -> str:
    """What an entry of an upload's history is about."""
    if action == "moved" and to_status in MOVES:
        return MOVES[to_status]
    return ACTIONS.get(action, plain(action))


def row(code: str) -> Advice:
    """The words for why one row was refused, whatever the code."""
    return ROWS.get(code) or FILES.get(code) or Advice(plain(code), "Look at the rows below.")


def file(code: str) -> Advice:
    """The words for why a file was refused, whatever the code."""
    return FILES.get(code) or Advice(plain(code), "Try again; if it stays, tell whoever runs this instance.")


def plain(code: str) -> str:
    """A code without words of its own, readable all the same."""
    return code.replace("_", " ").capitalize()


def column(field: str) -> str:
    """What a column of the report is used for; empty when it is read over."""
    return FIELDS.get(field, "")
