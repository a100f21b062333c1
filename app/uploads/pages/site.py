"""What all pages share: the blueprint, the choice of a workspace, the words of templates, error pages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

import flask

from app.access import principal
from app.uploads import parameters, questions, store
from app.uploads.pages import figures, words
from app.uploads.services import Services

blueprint = flask.Blueprint("pages", __name__, static_folder="static", template_folder="templates",
                            static_url_path="/assets")  # fmt: skip

WHAT_TO_DO = {
    401: "Sign in, or open the address that your instance printed when it started.",
    403: "Ask whoever runs this instance for the right to do this.",
    404: "It may belong to another workspace, or the address is cut off.",
    409: "Look at the upload again: it may have moved on meanwhile.",
    410: "Upload the file again.",
    413: "Export a shorter time range, or split the report into several files.",
    503: "Something that is needed does not answer at the moment. Try again in a minute.",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The workspace that a page is about, and those that one may change to."""

    workspace_id: UUID | None  # None: there is none yet
    others: tuple[Any, ...] = ()

    @property
    def query(self) -> dict[str, str]:
        """What a link carries, so that the next page is about the same workspace."""
        return {"workspace_id": str(self.workspace_id)} if self.others and self.workspace_id else {}


def services() -> Services:
    """The outside world of this process."""
    return cast(Services, flask.current_app.extensions["services"])


def place(asked: UUID | None = None, *, scope: str = "read") -> Place:
    """The workspace that is asked for, one's own, or the one that was used last."""
    who = principal.current()
    asked = asked or parameters.uuid(flask.request.values, "workspace_id")
    if asked is not None:
        principal.require(scope, asked)
    if who.workspace_id is not None:
        principal.require(scope, who.workspace_id)
        return Place(who.workspace_id)
    with services().db.transaction("dispatch") as conn:
        known = questions.workspaces(conn)
    return Place(asked or (known[0].id if known else None), tuple(known))


def workspace_of(upload_id: UUID, *, scope: str = "read") -> UUID:
    """Where the upload is looked for: one's own workspace, in which another's upload is not there."""
    who = principal.require_scope(scope)
    if who.workspace_id is not None:
        return who.workspace_id
    with services().db.transaction("dispatch") as conn:
        return store.upload_workspace(conn, upload_id)


def render(template: str, about: Place, **values: Any) -> str:
    """A page about a workspace."""
    return flask.render_template(f"pages/{template}", place=about, **values)


def wants_page() -> bool:
    """Whether this request is a person's who looks at a page."""
    if flask.request.path.startswith(("/v1/", "/healthz", "/readyz", "/metrics")):
        return False
    return any(kind == "text/html" for kind, _ in flask.request.accept_mimetypes)


def error_page(status: int, code: str, sentence: str) -> flask.Response:
    """An error as a page that says what to do."""
    text = flask.render_template(
        "pages/error.html",
        place=Place(None),
        status=status,
        code=code,
        title=words.file(code).title if code in words.FILES else words.plain(code),
        sentence=sentence,
        todo=words.FILES[code].todo if code in words.FILES else WHAT_TO_DO.get(status, ""),
        back=_page_of_form(),
    )
    return flask.Response(text, status=status)


def _page_of_form() -> str | None:
    """The page whose form led here, as a path of this site; None when there was no form."""
    came_from = urlsplit(flask.request.referrer or "")
    if flask.request.method != "POST" or came_from.netloc != flask.request.host:
        return None
    return came_from.path + (f"?{came_from.query}" if came_from.query else "")


@blueprint.after_request
def _keep_static_files(response: flask.Response) -> flask.Response:
    if flask.request.endpoint == "pages.static":  # its address changes with its content
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response


def sees_every_workspace() -> bool:
    """Whether this page is shown to somebody who runs the instance."""
    found = principal.found()
    return found is not None and found.workspace_id is None


def serves(blueprint: str) -> bool:
    """Whether this instance has that part."""
    return blueprint in flask.current_app.blueprints


def may_log_out() -> bool:
    """Whether this page is shown to somebody who has logged in."""
    return bool(principal.csrf_token()) and principal.current() is not principal.LOCAL_BROWSER


@cache
def _digest(filename: str) -> str:
    content = (Path(str(blueprint.static_folder)) / filename).read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]


def asset(filename: str) -> str:
    """The address of a static file, a new one whenever its content is."""
    return flask.url_for("pages.static", filename=filename, v=_digest(filename))


@blueprint.record_once
def _teach_templates(state: Any) -> None:
    state.app.jinja_env.filters.update(figures.FILTERS)
    state.app.jinja_env.globals.update(
        asset=asset,
        csrf_token=principal.csrf_token,
        figures=figures,
        may_log_out=may_log_out,
        sees_every_workspace=sees_every_workspace,
        serves=serves,
        words=words,
    )
