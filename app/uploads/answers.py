"""The shapes of the answers about uploads: the same facts for the API and for the pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, TypeVar

from app.kernel import errors
from app.uploads import intake
from app.uploads.codes import FILE_CODES, ROW_CODES, WARNINGS, row_sentence
from app.uploads.dry_run import Checked
from app.uploads.services import Services

Piece = TypeVar("Piece", str, bytes)

CHUNK_BYTES = 1 << 20


def summary(upload: Any) -> dict[str, Any]:
    """An upload as it stands in a list."""
    return {
        "upload_id": upload.id,
        "workspace_id": upload.workspace_id,
        "client_id": upload.client_id,
        "platform": upload.platform,
        "source": upload.source,
        "filename": upload.filename,
        "status": upload.status,
        "error_code": upload.error_code,
        "error_text": upload.error_text,
        "created_at": upload.created_at,
        "finished_at": upload.finished_at,
        "row_count": upload.row_count,
        "promoted_rows": upload.promoted_rows,
        "failed_rows": upload.failed_rows,
        "duplicate_of": upload.duplicate_of,
    }


_COUNTED = ("campaigns", "ad_sets", "ads", "daily_metrics")


def details(upload: Any, history: list[Any]) -> dict[str, Any]:
    """What is told about one upload beside its summary."""
    report = upload.report
    return {
        "rows": report.get("rows"),
        "reject_codes": report.get("reject_codes", {}),
        "first_reject": report.get("first_reject"),
        "report": recognised(report),
        "upserted": {name: upload.upserted.get(name, 0) for name in _COUNTED},
        "affected_dates": upload.affected_dates,
        "attempts": upload.attempts,
        "size_bytes": upload.size_bytes,
        "staged_rows": upload.staged_rows,
        "history": [
            {
                "action": entry.action,
                "from": entry.from_status,
                "to": entry.to_status,
                "at": entry.at,
                "owner": entry.owner_id,
                "why": entry.why,
            }
            for entry in history
        ],
    }


def columns(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The columns of the file as they were recognised, in the order of a rejected row's cells."""
    return (report.get("plan") or {}).get("columns") or []


def recognised(report: dict[str, Any]) -> dict[str, Any]:
    """What was recognised in the file, from the stored report."""
    plan = report.get("plan") or {}
    found = plan.get("currency_found") or []
    names = columns(report)
    check = report.get("totals_check")
    return {
        "encoding": plan.get("encoding"),
        "delimiter": plan.get("delimiter"),
        "header_line": plan.get("header_line"),
        "decimal_mark": plan.get("decimal_mark"),
        "date_order": plan.get("date_order"),
        "currency_found": found[0] if len(found) == 1 else (found or None),
        "columns": {c["header"]: c["field"] for c in names if c["field"]},
        "unknown_columns": [c["header"] for c in names if not c["field"] and c["header"]],
        "preamble": plan.get("preamble") or [],
        "totals_check": check,
        "warnings": report.get("warnings") or plan.get("warnings") or [],
        "warning_texts": [
            WARNINGS[code].format(**{**_WARNING_BLANKS, **(check or {}), **plan})
            for code in report.get("warnings") or []
        ],
    }


_WARNING_BLANKS = {"file_total": "", "row_sum": "", "encoding": ""}


def rejected(row_index: int, found: Mapping[str, Any]) -> dict[str, Any]:
    """One row that is not in production: where it stands, its cells, and each reason in words.

    `found`: its line, cells and errors, in the shape of validation_errors.
    """
    reasons = [
        {
            "code": error["code"],
            "column": error["column"],
            "value": error["value"],
            "message": row_sentence(error["code"], value=error["value"])
            if error["code"] in ROW_CODES
            else FILE_CODES.get(error["code"], error["code"]),
        }
        for error in found["errors"]
    ]
    return {
        "row_index": row_index,
        "line": found["line"],
        "code": reasons[0]["code"],
        "cells": found["cells"],
        "errors": reasons,
    }


def checked(request: intake.Request, found: Checked) -> dict[str, Any]:
    """What an upload of this file would have told, without an id, since there is none."""
    report = found.report
    return {
        "dry_run": True,
        "workspace_id": request.workspace_id,
        "client_id": request.client_id,
        "platform": request.platform,
        "source": request.source,
        "filename": request.filename,
        "size_bytes": found.size_bytes,
        "status": found.status,
        "error_code": found.error_code,
        "error_text": found.error_text,
        "rows": report.get("rows"),
        "reject_codes": report.get("reject_codes", {}),
        "first_reject": report.get("first_reject"),
        "errors": [rejected(row.row_index, row.validation_errors) for row in found.rejected],
        "report": recognised(report),
    }


def original(services: Services, upload: Any) -> Iterator[bytes]:
    """The file as it was handed in, piece by piece; FileGone or Transient before the first one."""
    if not upload.file_url:
        raise errors.NotFound("The file of this upload is not stored yet.")

    def content() -> Iterator[bytes]:
        with services.blobs.open(upload.file_url) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    return begun(content())


def begun(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The same pieces, with the first one at hand.

    What fails before it is an answer of its own; later, an answer can only break off.
    """
    return chain(list(islice(pieces, 1)), pieces)
