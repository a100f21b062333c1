"""The page where reports are handed in: guessed, checked beforehand, uploaded, one or many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast
from uuid import UUID

import flask
from werkzeug.datastructures import FileStorage

from app.access import principal
from app.access import views as access
from app.kernel import errors
from app.uploads import answers, dry_run, intake, parameters, questions, store
from app.uploads.guess import Guess, guess
from app.uploads.pages import blank, site, words
from app.uploads.pages.site import blueprint
from app.uploads.reading import cells, formats

MOST_FILES = 50
RECENT = 5
GUESSED_BYTES = formats.SAMPLE_BYTES
ANSWERS = ("platform", "currency", "date_order", "decimal_mark", "force_partial")
"""What a file may leave open, to be chosen when it is handed in or once it has failed for that."""
CHOICES = ("client_id", *ANSWERS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one of the files of a form."""

    filename: str
    platform: str | None
    upload_id: UUID | None = None
    duplicate_of: UUID | None = None
    checked: dict[str, Any] | None = None
    columns: tuple[dict[str, Any], ...] = ()  # of a checked file
    code: str | None = None
    sentence: str | None = None


@blueprint.get("/")
def start() -> str:
    """The form, and the last uploads."""
    return _form()


def _form(problem: str = "", *, outcomes: tuple[Outcome, ...] = ()) -> str:
    place = site.place()
    clients, recent = [], []
    if place.workspace_id is not None:
        with site.services().db.transaction("read", place.workspace_id) as conn:
            clients = questions.clients(conn)
            recent = store.list_uploads(
                conn, client_id=None, platform=None, status=None, from_time=None, to_time=None,
                before=None, limit=RECENT,
            )  # fmt: skip
    return site.render(
        "start.html",
        place,
        clients=clients,
        recent=recent,
        currencies=sorted(cells.CURRENCIES),
        given=flask.request.values,
        problem=problem,
        outcomes=outcomes,
        limit_bytes=site.services().settings.upload_bytes,
        most_files=MOST_FILES,
    )


@blueprint.post("/guess")
def guess_platform() -> flask.Response:
    """Whose report the first bytes of a file are, for the form to fill in."""
    principal.current()
    file = flask.request.files.get("file")
    found = guess(file.stream.read(GUESSED_BYTES)) if file else Guess(None)
    return flask.jsonify(
        {
            "platform": found.platform,
            "possible": list(found.possible),
            "code": found.code,
            "sentence": found.sentence,
        }
    )


@blueprint.post("/uploads")
def hand_in() -> flask.typing.ResponseReturnValue:
    """Each file of the form is uploaded, or checked when that was asked for."""
    files = [file for file in flask.request.files.getlist("file") if file.filename]
    problem = _problem_of(files)
    if problem and site.wants_page():
        return _form(problem), 422
    if problem:
        raise errors.Refused(problem, code="file_missing")
    workspace_id = _workspace()
    access.count_uploads(len(files) - 1)
    checks = flask.request.form.get("action") == "check"
    outcomes = tuple(_outcome(file, workspace_id, checks=checks) for file in files)
    return _answer(outcomes, workspace_id, checks=checks)


def _problem_of(files: list[FileStorage]) -> str:
    if not files:
        return "Choose a file first: the CSV or JSON report as the platform exported it."
    return f"Choose at most {MOST_FILES} files at a time." if len(files) > MOST_FILES else ""


def _workspace() -> UUID:
    """The workspace that is uploaded into; a new one when that was asked for."""
    who = principal.current()
    asked = flask.request.form.get("workspace_id")
    if who.workspace_id is None and asked in (None, "", "new"):
        found = site.services().clock.new_id()
    else:
        found = parameters.uuid(flask.request.form, "workspace_id") or cast(UUID, who.workspace_id)
    principal.require("upload", found)
    return found


def _outcome(file: FileStorage, workspace_id: UUID, *, checks: bool) -> Outcome:
    stream = cast(BinaryIO, file.stream)
    form = flask.request.form
    platform = form.get("platform") or guess(_beginning(stream)).platform
    outcome = Outcome(str(file.filename)[: intake.MAX_FILENAME], platform)
    try:
        if platform is None:
            intake.check_content(site.services(), stream)
            raise errors.Refused(
                "Its columns do not tell which platform it comes from. Choose the platform and try again.",
                code="platform_unknown",
            )
        fields = {name: form.get(name) for name in CHOICES}
        request = parameters.upload_request(
            {
                **fields,
                "workspace_id": workspace_id,
                "platform": platform,
                "source": "manual",
                "filename": outcome.filename,
            },
            idempotency_key=form.get("idempotency_key") or None,
            who=principal.current().name,
        )
        if checks:
            found = dry_run.check(site.services(), request, stream)
            columns = tuple(answers.columns(found.report))
            return replace(outcome, checked=answers.checked(request, found), columns=columns)
        receipt = intake.take_in(site.services(), request, stream)
        return replace(outcome, upload_id=receipt.upload_id, duplicate_of=receipt.duplicate_of)
    except (errors.Refused, errors.FileRefused) as error:
        return replace(outcome, code=error.code, sentence=error.sentence)


def _beginning(stream: BinaryIO) -> bytes:
    stream.seek(0)
    found = stream.read(GUESSED_BYTES)
    stream.seek(0)
    return found


def _answer(
    outcomes: tuple[Outcome, ...], workspace_id: UUID, *, checks: bool
) -> flask.typing.ResponseReturnValue:
    if not site.wants_page():
        return flask.jsonify({"files": [_as_json(outcome, workspace_id) for outcome in outcomes]})
    if checks and flask.request.headers.get("X-Part") == "result":
        return flask.render_template("pages/checked_part.html", outcomes=outcomes)
    if len(outcomes) == 1 and (upload_id := outcomes[0].upload_id):
        return flask.redirect(flask.url_for("pages.show", upload_id=upload_id), 303)
    if checks:
        return site.render("checked.html", site.place(workspace_id), outcomes=outcomes)
    if all(outcome.upload_id is None for outcome in outcomes):
        return _form("", outcomes=outcomes), 422
    return site.render("handed_in.html", site.place(workspace_id), outcomes=outcomes)


def _as_json(outcome: Outcome, workspace_id: UUID) -> dict[str, Any]:
    url = outcome.upload_id and flask.url_for("pages.show", upload_id=outcome.upload_id)
    return {
        "filename": outcome.filename,
        "platform": outcome.platform,
        "upload_id": outcome.upload_id,
        "workspace_id": workspace_id,
        "duplicate_of": outcome.duplicate_of,
        "url": url,
        "code": outcome.code,
        "title": words.file(outcome.code).title if outcome.code else None,
        "sentence": outcome.sentence,
    }


@blueprint.post("/uploads/<uuid:upload_id>/again")
def take_again(upload_id: UUID) -> flask.typing.ResponseReturnValue:
    """The stored file of an upload is a new upload, with what was missing or wrong the first time."""
    workspace_id = site.workspace_of(upload_id, scope="upload")
    services, form = site.services(), flask.request.form
    with services.db.transaction("read", workspace_id) as conn:
        upload = store.get_upload(conn, upload_id)
    if not upload.file_url:
        raise errors.NotFound("The file of this upload is not stored.")
    request = parameters.upload_request(
        {
            "workspace_id": workspace_id,
            "client_id": upload.client_id,
            "filename": upload.filename,
            **{name: form.get(name) or getattr(upload, name) for name in ANSWERS},
        },
        who=principal.current().name,
    )
    with services.blobs.open(upload.file_url) as file:
        receipt = intake.take_in(services, request, file)
    return flask.redirect(flask.url_for("pages.show", upload_id=receipt.upload_id), 303)


@blueprint.get("/templates")
def list_templates() -> str:
    """The blank reports, and what belongs into their columns."""
    found = {platform: blank.columns(platform) for platform in words.PLATFORMS}
    return site.render("templates.html", site.place(), columns=found)


@blueprint.get("/templates/<platform>.csv")
def download_template(platform: str) -> flask.Response:
    """The blank report of a platform."""
    principal.current()
    if platform not in words.PLATFORMS:
        raise errors.NotFound(f"There is a template for each of {', '.join(words.PLATFORMS)}.")
    response = flask.Response(blank.content(platform), mimetype="text/csv")
    response.headers.set("Content-Disposition", "attachment", filename=f"{platform}-template.csv")
    return response
