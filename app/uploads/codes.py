"""Why a file or a row was refused: each code with a sentence for the person who must mend it."""

from __future__ import annotations

FILE_CODES = {
    # code                the file as a whole is refused, because …
    "empty_file": "The file is empty. Export the report again and upload the new file.",
    "unsupported_format": "The file is {what}, not a CSV or JSON report. {advice}",
    "file_too_large": "The file is larger than {limit}. Export a shorter time range, or several files.",
    "undecodable_text": (
        "The text of the file is damaged: {what}. Export the report again, as UTF-8 if there is a"
        " choice, without opening and saving it in another program."
    ),
    "unknown_header": (
        "No row of column names of a {platform} report was found in the first 20 rows: it needs at"
        " least one name, id or date column and one metric column such as impressions or cost. {hint}"
    ),
    "ambiguous_column": (
        "The column “{header}” stands twice with different values, so nobody can tell which one is"
        " right. Remove one of the two and upload the file again."
    ),
    "ambiguous_number": (
        "It cannot be told whether numbers such as {example} have decimals or thousands: no amount in"
        " the file decides it. Say which when you upload it, or export the amounts with two decimals."
    ),
    "ambiguous_date": (
        "It cannot be told whether dates such as {example} are day/month or month/day. Say which when"
        " you upload it, or export the dates as YYYY-MM-DD."
    ),
    "currency_missing": (
        "Nothing says in which currency the amounts are: there is no currency column, no currency in a"
        " column name, and none was given with the upload. Upload the file again with its currency."
    ),
    "date_range": (
        "No row is about a single day: the report covers {range} in one row each. Export it again"
        " broken down by day ({advice})."
    ),
    "too_many_rejects": (
        "{rejected} of {data} rows were rejected; at least {percent} % must be valid. Mend the rejected"
        " rows, or upload the file again with force_partial to take the valid ones only."
    ),
    "malformed_json": "The JSON document is broken: {what}. It may have been cut off while saving.",
    "malformed_file": "The file cannot be read as a table: {what}.",
    "api_error": "The file holds an error message of the platform instead of a report: {message}",
    "file_not_found": "The stored file is gone. Upload it again.",
    "attempts_exhausted": (
        "Reading this file has stopped its worker again and again, so it is not tried any more."
    ),
}

ROW_CODES = {
    # code                  one row is refused, because …
    "date_range": "The row covers {value}, not a single day. Export the report broken down by day.",
    "missing_date": "The row has no date.",
    "invalid_date": "{value} is not a date.",
    "invalid_number": "{value} is not a number.",
    "negative_count": "{value} is negative, but a count cannot be.",
    "invalid_id": "{value} is not an id.",
    "id_scientific_notation": (
        "The id {value} has lost its last digits in a spreadsheet. Export the report again and do not"
        " save it from a spreadsheet, or format the column as text first."
    ),
    "missing_campaign": "The row names no campaign. Add the campaign's name or id to the report.",
    "missing_currency": "The row has no currency, and nothing else in the file or upload says it.",
    "invalid_currency": "{value} is not a currency code such as USD or EUR.",
    "currency_conflict": "The rows of the same entity and day have different currencies ({value}).",
    "duplicate_key_conflict": (
        "Another row ({value}) is about the same entity and day and has different values. Remove"
        " the wrong one, or add the column by which they differ."
    ),
    "too_many_columns": "The row has more cells than there are columns; the extra one holds {value}.",
    "invalid_character": "The cell holds a character that cannot be stored.",
    "malformed_row": "The row cannot be read: {value}.",
    # promotion
    "ambiguous_name": (
        "Several entities have this name, and the row has no id to tell which is meant. Add the id"
        " column to the report."
    ),
    "unique_violation": "The row was refused, since the same key was there unexpectedly.",
    "row_refused": "The row's values were refused by the database.",
    "deadlock": "Other uploads kept writing the same rows at that moment. Requeue the upload.",
    "foreign_key_missing": "The row's campaign could not be written.",
}

WARNINGS = {
    "more_pages": "The file is one page of several: the platform says that more rows follow.",
    "totals_mismatch": "The file's own total is {file_total}, but its rows add up to {row_sum}.",
    "negative_spend": "Some amounts spent are negative (credits). They are taken as they are.",
    "spend_missing": (
        "No column of the file is known as the spend, so these rows bring none. Is the platform right?"
    ),
    "other_platform": "The names of its columns fit a report of another platform better.",
    "merged_without_ids": (
        "Rows of the same names and day were added up, since the file has no ids to tell them apart."
    ),
    "future_date": "Some rows are about days that have not come yet.",
    "reference_missing": "Some ads stand without their ad set, which was deleted while they were promoted.",
}


def file_sentence(code: str, **values: object) -> str:
    """The sentence of a file's code, filled in."""
    return FILE_CODES[code].format(**values)


def row_sentence(code: str, **values: object) -> str:
    """The sentence of a row's code; what is not known is left as an ellipsis."""
    return ROW_CODES[code].format_map(_Lenient(values))


class _Lenient(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return "…"
