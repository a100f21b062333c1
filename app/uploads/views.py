"""Uploads over HTTP: requests in, JSON out."""

from __future__ import annotations

import base64
import csv
import io
import re
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO, cast
from uuid import UUID

import flask

from app.access import principal
from app.kernel import errors
from app.uploads import intake, store
from app.uploads.codes import FILE_CODES, ROW_CODES, WARNINGS, row_sentence
from app.uploads.reading import aliases, cells, json_text, records
from app.uploads.services import Services
from app.uploads.states import UPLOAD
from app.uploads.work import TASKS

blueprint = flask.Blueprint("uploads", __name__)

PAGE_ROWS = 100
CHUNK_BYTES = 1 << 20
FIELDS = (
    "workspace_id", "client_id", "platform", "source", "filename", "created_by", "currency",
    "force_partial",
)  # fmt: skip


def _services() -> Services:
    return cast(Services, flask.current_app.extensions["services"])


# -- handing in


@blueprint.post("/v1/uploads")
def create_upload() -> flask.Response:
    """Take in one report: multipart with a file, or a JSON body with the fields and `rows`."""
    principal.require_scope("upload")  # before the body is read
    if flask.request.is_json:
        with _spooled(flask.request.stream) as body:
            return _created(_json_fields(body), body)
    file = flask.request.files.get("file")
    if file is None:
        raise errors.Refused("The field `file` is missing.", code="file_missing")
    fields = {name: flask.request.form.get(name) for name in FIELDS}
    fields["filename"] = fields["filename"] or file.filename
    return _created(fields, cast(BinaryIO, file.stream))


def _created(fields: dict[str, Any], file: BinaryIO) -> flask.Response:
    workspace_id = cast(UUID, _uuid(fields, "workspace_id", required=True))
    request = intake.Request(
        workspace_id=workspace_id,
        who=principal.require("upload", workspace_id).name,
        platform=str(fields.get("platform") or ""),
        source=str(fields.get("source") or "manual"),
        client_id=_uuid(fields, "client_id"),
        filename=fields.get("filename"),
        created_by=_uuid(fields, "created_by"),
        currency=(fields.get("currency") or "").strip().upper() or None,
        force_partial=str(fields.get("force_partial") or "").lower() in ("1", "true", "yes", "on"),
        idempotency_key=flask.request.headers.get("Idempotency-Key"),
    )
    receipt = intake.take_in(_services(), request, file)
    answer = {
        "upload_id": receipt.upload_id,
        "status": receipt.status,
        "duplicate_of": receipt.duplicate_of,
    }
    response = flask.jsonify(answer)
    response.status_code = 200 if receipt.repeated else 201
    response.headers["Location"] = flask.url_for(".show_upload", upload_id=receipt.upload_id)
    return response


def _spooled(stream: Any) -> BinaryIO:
    """The body in a temporary file, rewound: memory does not grow with it."""
    limit = _services().settings.upload_bytes
    spool = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    size = 0
    while chunk := stream.read(CHUNK_BYTES):
        size += len(chunk)
        if size > limit:
            spool.close()
            raise errors.Refused(f"The body is larger than {limit / 2**20:g} MB.", code="file_too_large")
        spool.write(chunk)
    spool.seek(0)
    return cast(BinaryIO, spool)


def _json_fields(body: BinaryIO) -> dict[str, Any]:
    """The top-level values of the body; its rows stay in it, as the file."""
    try:
        fields = {
            found.place: found.value
            for found in json_text.walk(records.text_of(body, "utf-8-sig"))
            if found.what == "value" and found.place in FIELDS
        }
    except (json_text.JsonError, UnicodeDecodeError) as error:
        raise errors.Refused(f"The body is no JSON document: {error}.", code="malformed_json") from None
    if fields.get("source", "api") == "manual":
        raise errors.Refused("A manual upload brings a file.", code="file_missing")
    body.seek(0)
    return {"source": "api", **fields}


def _uuid(fields: Any, name: str, *, required: bool = False) -> UUID | None:
    text = fields.get(name)
    if not text:
        if required:
            raise errors.Refused(f"The field `{name}` is missing.", code=f"invalid_{name}")
        return None
    try:
        return UUID(str(text))
    except ValueError:
        raise errors.Refused(f"`{name}` is no UUID.", code=f"invalid_{name}") from None


# -- looking at uploads


@blueprint.get("/v1/uploads")
def list_uploads() -> flask.Response:
    """Uploads of one workspace, newest first."""
    query = flask.request.args
    workspace_id = _asked_workspace(query)
    status = query.get("status")
    if status and status not in UPLOAD.states:
        raise errors.Refused(f"The status is one of {', '.join(UPLOAD.states)}.", code="invalid_status")
    with _services().db.transaction("read", workspace_id) as conn:
        uploads = store.list_uploads(
            conn,
            client_id=_uuid(query, "client_id"),
            platform=_platform(query),
            status=status,
            from_time=_time(query, "from"),
            to_time=_time(query, "to"),
            before=_from_cursor(query.get("cursor")),
            limit=PAGE_ROWS + 1,
        )
    page = uploads[:PAGE_ROWS]
    more = len(uploads) > PAGE_ROWS
    return flask.jsonify(
        {
            "uploads": [_summary(upload) for upload in page],
            "cursor": _to_cursor(page[-1].created_at) if more else None,
        }
    )


@blueprint.get("/v1/uploads/<uuid:upload_id>")
def show_upload(upload_id: UUID) -> flask.Response:
    """One upload: its state, counts, what was recognised, and its history."""
    with _services().db.transaction("read", _workspace_of(upload_id)) as conn:
        upload = store.get_upload(conn, upload_id)
        history = store.upload_history(conn, upload_id)
    return flask.jsonify({**_summary(upload), **_details(upload, history)})


@blueprint.get("/v1/uploads/<uuid:upload_id>/errors")
def list_errors(upload_id: UUID) -> flask.Response:
    """Rejected rows and rows that failed promotion, a page at a time, in file order."""
    after_row = _from_row_cursor(flask.request.args.get("cursor"))
    with _services().db.transaction("read", _workspace_of(upload_id)) as conn:
        upload = store.get_upload(conn, upload_id)
        rows = list(store.rejected_rows(conn, upload, after_row=after_row, limit=PAGE_ROWS + 1))
    page = rows[:PAGE_ROWS]
    return flask.jsonify(
        {
            "errors": [_rejected(row) for row in page],
            "cursor": str(page[-1].row_index) if len(rows) > PAGE_ROWS else None,
        }
    )


@blueprint.get("/v1/uploads/<uuid:upload_id>/errors.csv")
def download_errors(upload_id: UUID) -> flask.Response:
    """The rejected rows with their original cells, ready to be mended and uploaded again."""
    workspace_id = _workspace_of(upload_id)
    with _services().db.transaction("read", workspace_id) as conn:
        upload = store.get_upload(conn, upload_id)
    response = flask.Response(_errors_csv(_services(), workspace_id, upload), mimetype="text/csv")
    response.headers["Content-Disposition"] = f'attachment; filename="rejected-{upload_id}.csv"'
    return response


def _errors_csv(services: Services, workspace_id: UUID, upload: Any) -> Iterator[str]:
    columns = (upload.report.get("plan") or {}).get("columns", [])
    yield "\ufeff" + _csv_line([column["header"] for column in columns] + ["line", "code", "reason"])
    after_row = -1
    while True:
        with services.db.transaction("read", workspace_id) as conn:
            rows = list(store.rejected_rows(conn, upload, after_row=after_row, limit=1000))
        for row in rows:
            found = _rejected(row)
            cells = [*found["cells"], *[""] * len(columns)][: max(len(columns), len(found["cells"]))]
            reason = " ".join(error["message"] for error in found["errors"])
            yield _csv_line([*cells, found["line"] or "", found["code"], reason])
        if len(rows) < 1000:
            return
        after_row = rows[-1].row_index


_NO_FORMULA = re.compile(r"^[-+][-\d.,'’\s%]*$")  # a signed number, or a dash for none
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def _csv_line(cells: list[Any]) -> str:
    """A CSV record in which no cell is a formula to a spreadsheet."""
    out = io.StringIO()
    csv.writer(out).writerow([_neutral(str(cell)) for cell in cells])
    return out.getvalue()


def _neutral(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA_STARTS) and not _NO_FORMULA.match(cell) else cell


@blueprint.get("/v1/uploads/<uuid:upload_id>/file")
def download_file(upload_id: UUID) -> flask.Response:
    """The file as it was handed in."""
    services = _services()
    with services.db.transaction("read", _workspace_of(upload_id)) as conn:
        upload = store.get_upload(conn, upload_id)
    if not upload.file_url:
        raise errors.NotFound("The file of this upload is not stored yet.")

    def content() -> Iterator[bytes]:
        with services.blobs.open(upload.file_url) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    # Never as what it claims to be: a report is downloaded, not shown in this site's name.
    response = flask.Response(content(), mimetype="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="{upload_id}"'
    return response


@blueprint.post("/v1/uploads/<uuid:upload_id>/requeue")
def requeue(upload_id: UUID) -> tuple[flask.Response, int]:
    """A failed or partial upload is on its way again; the reason stands in the audit log."""
    who = principal.require_scope("ops").name
    body = flask.request.get_json(silent=True) if flask.request.is_json else flask.request.form
    reason = str(body.get("reason") or "").strip() if isinstance(body, Mapping) else ""
    if not reason:
        raise errors.Refused("Say why in the field `reason`: it stands in the audit log.")
    if not cells.storable(reason):
        raise errors.Refused("The reason holds a character that cannot be stored.")
    services = _services()
    workspace_id = _workspace_of(upload_id, "ops")
    with services.db.transaction("requeue", workspace_id) as conn:
        status = store.requeue(conn, upload_id, workspace_id=workspace_id, who=who, why=reason[:500])
    stage = "parse" if status in ("pending", "processing") else "promote"
    services.dispatch.send(TASKS[stage])
    return flask.jsonify({"upload_id": upload_id, "status": status}), 202


@blueprint.get("/v1/performance")
def performance() -> flask.Response:
    """Spend, impressions, clicks and conversions from daily_performance, for each currency."""
    query = flask.request.args
    workspace_id = _asked_workspace(query)
    by = [part for part in (query.get("by") or "day").split(",") if part]
    if unknown := set(by) - {"day", "platform", "campaign"}:
        raise errors.Refused(f"`by` takes day, platform and campaign, not {', '.join(unknown)}.")
    with _services().db.transaction("read", workspace_id) as conn:
        rows = store.performance(
            conn,
            by=by,
            client_id=_uuid(query, "client_id"),
            platform=_platform(query),
            from_date=_time(query, "from"),
            to_date=_time(query, "to"),
            limit=10_000,
        )
    keys = {"day": ["day"], "platform": ["platform"], "campaign": ["campaign_id", "campaign"]}
    hidden = {key for part, names in keys.items() if part not in by for key in names}
    found = [{name: value for name, value in row._asdict().items() if name not in hidden} for row in rows]
    return flask.jsonify({"rows": found})


# -- the shapes of the answers


def _summary(upload: Any) -> dict[str, Any]:
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


def _details(upload: Any, history: list[Any]) -> dict[str, Any]:
    report = upload.report
    return {
        "rows": report.get("rows"),
        "reject_codes": report.get("reject_codes", {}),
        "first_reject": report.get("first_reject"),
        "report": _recognised(report),
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


def _recognised(report: dict[str, Any]) -> dict[str, Any]:
    plan = report.get("plan") or {}
    found = plan.get("currency_found") or []
    columns = plan.get("columns") or []
    check = report.get("totals_check")
    return {
        "encoding": plan.get("encoding"),
        "delimiter": plan.get("delimiter"),
        "header_line": plan.get("header_line"),
        "decimal_mark": plan.get("decimal_mark"),
        "date_order": plan.get("date_order"),
        "currency_found": found[0] if len(found) == 1 else (found or None),
        "columns": {c["header"]: c["field"] for c in columns if c["field"]},
        "unknown_columns": [c["header"] for c in columns if not c["field"] and c["header"]],
        "preamble": plan.get("preamble") or [],
        "totals_check": check,
        "warnings": report.get("warnings") or plan.get("warnings") or [],
        "warning_texts": [
            WARNINGS[code].format(**{**_WARNING_BLANKS, **(check or {}), **plan})
            for code in report.get("warnings") or []
        ],
    }


_WARNING_BLANKS = {"file_total": "", "row_sum": "", "encoding": ""}


def _rejected(row: Any) -> dict[str, Any]:
    """One row that is not in production: where it stands, its cells, and each reason in words."""
    found = row.validation_errors or {
        "line": row.raw_data.get("line"),
        "cells": [],
        "errors": [{"code": row.promotion_error, "column": None, "value": ""}],
    }
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
        "row_index": row.row_index,
        "line": found["line"],
        "code": reasons[0]["code"],
        "cells": found["cells"],
        "errors": reasons,
    }


# -- parameters


def _workspace_of(upload_id: UUID, scope: str = "read") -> UUID:
    """Where the upload is looked for: in the workspace of the key, whatever upload is asked for.

    Another workspace's upload is thereby what an unknown one is: a row that the policies do not show.
    Only a key of every workspace looks up whose it is.
    """
    who = principal.require_scope(scope)
    if who.workspace_id is not None:
        return who.workspace_id
    with _services().db.transaction("dispatch") as conn:
        return store.upload_workspace(conn, upload_id)


def _asked_workspace(query: Any) -> UUID:
    """The workspace that is asked about, if the key may read there."""
    principal.require_scope("read")
    workspace_id = cast(UUID, _uuid(query, "workspace_id", required=True))
    principal.require("read", workspace_id)
    return workspace_id


def _platform(query: Any) -> str | None:
    platform = query.get("platform") or None
    if platform and platform not in aliases.table():
        raise errors.Refused(f"The platform is one of {', '.join(aliases.table())}.", code="invalid_platform")
    return str(platform) if platform else None


def _time(query: Any, name: str) -> datetime | None:
    text = query.get(name)
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise errors.Refused(f"`{name}` is no date or time in ISO 8601.") from None


def _to_cursor(created_at: datetime) -> str:
    return base64.urlsafe_b64encode(created_at.isoformat().encode()).decode()


def _from_cursor(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(base64.urlsafe_b64decode(text.encode()).decode())
    except ValueError:
        raise errors.Refused("The cursor is not one of this list.", code="invalid_cursor") from None


def _from_row_cursor(text: str | None) -> int:
    if not text:
        return -1
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise errors.Refused("The cursor is not one of this list.", code="invalid_cursor")
    return int(text)
