"""The blank report of a platform: the columns that count, under the names that its exports have."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from app.uploads.pages import words
from app.uploads.reading import aliases


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a blank report, and how it is filled in."""

    name: str
    field: str
    note: str
    example: str
    needed: bool


# field              what belongs into it                                  such as            must be there
_COLUMNS = (
    ("metric_date", "the day, one row for each", "2025-01-31", True),
    ("campaign_name", "the campaign's name; or its ID", "Spring sale", True),
    ("campaign_id", "its ID in the platform; best with it", "120210000000000001", False),
    ("ad_set_name", "leave empty when the report ends at campaigns", "Retargeting", False),
    ("ad_set_id", "format the column as text in a spreadsheet", "120210000000000011", False),
    ("ad_name", "leave empty when the report ends higher", "Video A", False),
    ("ad_id", "format the column as text in a spreadsheet", "120210000000000111", False),
    ("currency", "three letters; or choose it when uploading", "EUR", False),
    ("spend", "with two decimals and a point", "1234.50", True),
    ("impressions", "digits only", "48210", False),
    ("clicks", "digits only", "912", False),
    ("link_clicks", "digits only", "640", False),
    ("reach", "digits only", "31007", False),
    ("conversions", "may have decimals", "12", False),
    ("conversion_value", "with two decimals and a point", "980.00", False),
)  # fmt: skip


def columns(platform: str) -> list[Column]:
    """The columns of the platform's blank report, in order."""
    names = aliases.display(platform)
    return [
        Column(names[field], field, note, example, needed)
        for field, note, example, needed in _COLUMNS
        if field in names
    ]


def content(platform: str) -> str:
    """The blank report as CSV: a line that explains, then the column names.

    The line above the names is read over when the file is uploaded, as titles in exports are.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(
        [
            f"{words.PLATFORMS[platform]} template: one row for each day and ad (or ad set, or campaign)."
            " Dates as 2025-01-31; amounts as 1234.50. Keep the row of names below."
        ]
    )
    writer.writerow([column.name for column in columns(platform)])
    return "\ufeff" + out.getvalue()
