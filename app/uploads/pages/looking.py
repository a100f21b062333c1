"""The pages where uploads are looked at: the list, and one upload with all that is known of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote
from uuid import UUID

import flask

from app.access import principal
from app.adapters import logs
from app.kernel import errors
from app.uploads import answers, parameters, progress, questions, rejected, store
from app.uploads.pages import site
from app.uploads.pages.site import blueprint
from app.uploads.reading import cells
from app.uploads.states import UPLOAD
from app.uploads.work import TASKS

log = logs.get(__name__)

LIST_ROWS = 50
REJECTED_ROWS = 25
FILTERS = ("client_id", "platform", "status", "from", "to")


@blueprint.get("/uploads")
def list_page() -> str:
    """Uploads of a workspace, newest first, a page at a time."""
    place = site.place()
    query = flask.request.args
    filters = {
        "client_id": parameters.uuid(query, "client_id"),
        "platform": parameters.platform(query),
        "status": parameters.status(query),
        "from_time": parameters.day(query, "from"),
        "to_time": parameters.day(query, "to", days=1),
        "before": parameters.from_cursor(query.get("cursor")),
    }
    uploads: list[Any] = []
    clients: list[Any] = []
    if place.workspace_id is not None:
        with site.services().db.transaction("read", place.workspace_id) as conn:
            uploads = store.list_uploads(conn, **filters, limit=LIST_ROWS + 1)
            clients = questions.clients(conn)
    kept = {name: query[name] for name in FILTERS if query.get(name)}
    more = len(uploads) > LIST_ROWS
    return site.render(
        "list.html",
        place,
        uploads=uploads[:LIST_ROWS],
        clients=clients,
        states=UPLOAD.states,
        given=query,
        kept=kept,
        cursor=parameters.to_cursor(uploads[LIST_ROWS - 1].created_at) if more else None,
    )


@blueprint.get("/uploads/<uuid:upload_id>")
def show(upload_id: UUID) -> str:
    """One upload: its state, what became of its rows, what was recognised, and its history."""
    workspace_id = site.workspace_of(upload_id)
    after_row = parameters.from_row_cursor(flask.request.args.get("after"))
    # Before the row: it may be a moment older, and the page is about the row.
    passed = progress.look(site.services(), workspace_id, upload_id)
    with site.services().db.transaction("read", workspace_id) as conn:
        upload = store.get_upload(conn, upload_id)
        history = store.upload_history(conn, upload_id)
        rows = list(store.rejected_rows(conn, upload, after_row=after_row, limit=REJECTED_ROWS + 1))
        unsaved = questions.promotion_errors(conn, upload)
        readings = questions.readings(conn, upload_id)
    found = {**answers.summary(upload), **answers.details(upload, history)}
    found["errors"] = _explained(upload, rows[:REJECTED_ROWS])
    return site.render(
        "show.html",
        site.place(workspace_id),
        upload=upload,
        found=found,
        history=history,
        columns=answers.columns(upload.report),
        unsaved=unsaved,
        taken_before=_taken(reading for reading in readings if reading.created_at < upload.created_at),
        taken_later=_taken(reading for reading in readings if reading.created_at > upload.created_at),
        progress=passed,
        terminal=upload.status in progress.TERMINAL,
        after=rows[REJECTED_ROWS - 1].row_index if len(rows) > REJECTED_ROWS else None,
        begun=after_row >= 0,
        currencies=sorted(cells.CURRENCIES),
        may_upload=principal.current().may("upload", workspace_id),
        may_requeue=upload.status in ("failed", "partial") and principal.current().may("ops", workspace_id),
    )


def _explained(upload: Any, rows: list[Any]) -> list[dict[str, Any]]:
    try:
        return list(rejected.explained(site.services(), upload, rows))
    except errors.HeadworksError as error:
        # The rest of the page is not about the stored file.
        log.warning("original_cells_unread", upload_id=str(upload.id), code=error.code)
        return rejected.explained_without_file(rows)


def _taken(readings: Iterable[Any]) -> Any:
    """The last of these readings of one file that did not fail; None when all did."""
    return next((reading for reading in reversed(list(readings)) if reading.status != "failed"), None)


@blueprint.get("/uploads/<uuid:upload_id>/rejected.csv")
def download_rejected(upload_id: UUID) -> flask.Response:
    """The rejected rows as a file to fix and upload again."""
    workspace_id = site.workspace_of(upload_id)
    with site.services().db.transaction("read", workspace_id) as conn:
        upload = store.get_upload(conn, upload_id)
    # As the file itself, so that the program which made it opens the rows as a table.
    delimiter = (upload.report.get("plan") or {}).get("delimiter") or ","
    content = rejected.as_csv(site.services(), workspace_id, upload, delimiter=delimiter)
    response = flask.Response(content, mimetype="text/csv")
    stem = PurePath(_harmless(upload.filename or str(upload_id))).stem
    _attach(response, f"{stem}-rejected.csv")
    return response


def _attach(response: flask.Response, name: str) -> None:
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"


@blueprint.get("/uploads/<uuid:upload_id>/original")
def download_original(upload_id: UUID) -> flask.Response:
    """The file as it was handed in, under its own name."""
    workspace_id = site.workspace_of(upload_id)
    with site.services().db.transaction("read", workspace_id) as conn:
        upload = store.get_upload(conn, upload_id)
    content = answers.original(site.services(), upload)
    response = flask.Response(content, mimetype="application/octet-stream")
    _attach(response, _harmless(upload.filename or str(upload_id)))
    return response


def _harmless(name: str) -> str:
    """A file name without the characters that lead elsewhere, and without an end that runs."""
    found = "".join(letter for letter in name if letter.isprintable() and letter not in '\\/:*?"<>|')
    return found.strip(". ") or "report"


@blueprint.post("/uploads/<uuid:upload_id>/requeue")
def requeue(upload_id: UUID) -> flask.typing.ResponseReturnValue:
    """A failed or partial upload is on its way again; who asked and why stands in its history."""
    workspace_id = site.workspace_of(upload_id, scope="ops")
    reason = (flask.request.form.get("reason") or "").strip()
    if not reason:
        raise errors.Refused("Say why it is sent on its way again: the reason stands in its history.")
    services = site.services()
    who = principal.current().name
    with services.db.transaction("requeue", workspace_id) as conn:
        status = store.requeue(conn, upload_id, workspace_id=workspace_id, who=who, why=reason[:500])
    services.dispatch.send(TASKS["parse" if status in ("pending", "processing") else "promote"])
    return flask.redirect(flask.url_for("pages.show", upload_id=upload_id), 303)
