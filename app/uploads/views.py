"""Uploads over HTTP: requests in, JSON out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any, BinaryIO, cast
from uuid import UUID

import flask

from app.access import principal
from app.kernel import errors
from app.uploads import answers, dry_run, intake, parameters, rejected, store
from app.uploads.reading import cells, json_text, records
from app.uploads.services import Services
from app.uploads.work import TASKS

blueprint = flask.Blueprint("uploads", __name__)

PAGE_ROWS = 100
MOST_SUMS = 10_000
CHUNK_BYTES = 1 << 20
FIELDS = (*parameters.FIELDS, "dry_run")


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
    workspace_id = parameters.required_uuid(fields, "workspace_id")
    who = principal.require("upload", workspace_id).name
    key = flask.request.headers.get("Idempotency-Key")
    request = parameters.upload_request(fields, idempotency_key=key, who=who)
    if parameters.flag(fields, "dry_run"):
        return flask.jsonify(answers.checked(request, dry_run.check(_services(), request, file)))
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
            if found.what == "value" and found.place in (*FIELDS, "rows")
        }
    except (json_text.JsonError, UnicodeDecodeError) as error:
        raise errors.Refused(f"The body is no JSON document: {error}.", code="malformed_json") from None
    if "rows" in fields:  # as a value: an array would be gone through
        raise errors.Refused("`rows` is no array.", code="malformed_json")
    if fields.get("source") in (None, ""):
        fields["source"] = "api"
    if fields["source"] == "manual":
        raise errors.Refused("A manual upload brings a file.", code="file_missing")
    body.seek(0)
    return fields


# -- looking at uploads


@blueprint.get("/v1/uploads")
def list_uploads() -> flask.Response:
    """Uploads of one workspace, newest first."""
    query = flask.request.args
    workspace_id = _asked_workspace(query)
    with _services().db.transaction("read", workspace_id) as conn:
        uploads = store.list_uploads(
            conn,
            client_id=parameters.uuid(query, "client_id"),
            platform=parameters.platform(query),
            status=parameters.status(query),
            from_time=parameters.time(query, "from"),
            to_time=parameters.time(query, "to"),
            before=parameters.from_cursor(query.get("cursor")),
            limit=PAGE_ROWS + 1,
        )
    page = uploads[:PAGE_ROWS]
    more = len(uploads) > PAGE_ROWS
    return flask.jsonify(
        {
            "uploads": [answers.summary(upload) for upload in page],
            "cursor": parameters.to_cursor(page[-1].created_at) if more else None,
        }
    )


@blueprint.get("/v1/uploads/<uuid:upload_id>")
def show_upload(upload_id: UUID) -> flask.Response:
    """One upload: its state, counts, what was recognised, and its history."""
    with _services().db.transaction("read", _workspace_of(upload_id)) as conn:
        upload = store.get_upload(conn, upload_id)
        history = store.upload_history(conn, upload_id)
    return flask.jsonify({**answers.summary(upload), **answers.details(upload, history)})


@blueprint.get("/v1/uploads/<uuid:upload_id>/errors")
def list_errors(upload_id: UUID) -> flask.Response:
    """Rejected rows and rows that failed promotion, a page at a time, in file order."""
    after_row = parameters.from_row_cursor(flask.request.args.get("cursor"))
    services = _services()
    with services.db.transaction("read", _workspace_of(upload_id)) as conn:
        upload = store.get_upload(conn, upload_id)
        rows = list(store.rejected_rows(conn, upload, after_row=after_row, limit=PAGE_ROWS + 1))
    page = rows[:PAGE_ROWS]
    return flask.jsonify(
        {
            "errors": list(rejected.explained(services, upload, page)),
            "cursor": str(page[-1].row_index) if len(rows) > PAGE_ROWS else None,
        }
    )


@blueprint.get("/v1/uploads/<uuid:upload_id>/errors.csv")
def download_errors(upload_id: UUID) -> flask.Response:
    """The rejected rows with their original cells, ready to be mended and uploaded again."""
    workspace_id = _workspace_of(upload_id)
    with _services().db.transaction("read", workspace_id) as conn:
        upload = store.get_upload(conn, upload_id)
    response = flask.Response(rejected.as_csv(_services(), workspace_id, upload), mimetype="text/csv")
    response.headers["Content-Disposition"] = f'attachment; filename="rejected-{upload_id}.csv"'
    return response


@blueprint.get("/v1/uploads/<uuid:upload_id>/file")
def download_file(upload_id: UUID) -> flask.Response:
    """The file as it was handed in."""
    services = _services()
    with services.db.transaction("read", _workspace_of(upload_id)) as conn:
        upload = store.get_upload(conn, upload_id)
    # Never as what it claims to be: a report is downloaded, not shown in this site's name.
    response = flask.Response(answers.original(services, upload), mimetype="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="{upload_id}"'
    return response


@blueprint.post("/v1/uploads/<uuid:upload_id>/requeue")
def requeue(upload_id: UUID) -> tuple[flask.Response, int]:
    """A failed or partial upload is on its way again; the reason stands in the audit log."""
    who = principal.require_scope("ops").name
    body = flask.request.get_json(silent=True) if flask.request.is_json else flask.request.form
    given = body.get("reason") if isinstance(body, Mapping) else None
    reason = given.strip() if isinstance(given, str) else ""
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
            client_id=parameters.uuid(query, "client_id"),
            platform=parameters.platform(query),
            from_date=parameters.time(query, "from"),
            to_date=parameters.time(query, "to"),
            limit=MOST_SUMS,
        )
    keys = {"day": ["day"], "platform": ["platform"], "campaign": ["campaign_id", "campaign"]}
    hidden = {key for part, names in keys.items() if part not in by for key in names}
    found = [{name: value for name, value in row._asdict().items() if name not in hidden} for row in rows]
    return flask.jsonify({"rows": found})


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
    workspace_id = parameters.required_uuid(query, "workspace_id")
    principal.require("read", workspace_id)
    return workspace_id
