"""The document of the API over HTTP, and a page to read it and to try it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import flask
import werkzeug

from app.access import principal
from app.kernel import errors
from app.openapi import document, viewer

blueprint = flask.Blueprint(
    "openapi", __name__, static_folder="static", template_folder="templates", static_url_path="/docs/assets"
)

OPEN_ENDPOINTS = ("openapi.show_docs",)
"""For everybody: it tells what the API is, and nothing about a workspace."""

PUBLIC_ENDPOINTS = ("openapi.show_document", "openapi.show_viewer_file")
"""For everybody, and to be kept by anybody on the way: the same for all."""

YEAR = "public, max-age=31536000, immutable"


@blueprint.get("/openapi.json")
def show_document() -> werkzeug.Response:
    """The document of this instance, with the pipeline and reference data where it serves them."""
    served = flask.current_app.blueprints
    pipeline = document.PIPELINE if "pipeline" in served else ()
    refdata = document.REFDATA if "refdata" in served else ()
    return document_of((*document.INSTANCE, *pipeline, *refdata))


def document_of(parts: tuple[str, ...]) -> werkzeug.Response:
    """The document of these parts; whoever has it already is told so."""
    response = flask.Response(document.as_json(parts), mimetype="application/json")
    response.headers["Cache-Control"] = "public, no-cache"  # kept, and asked about each time
    response.add_etag()
    return response.make_conditional(flask.request)


@blueprint.get("/docs")
def show_docs() -> str:
    """The page; what it needs comes from here."""
    return flask.render_template("openapi/docs.html", own=_own_file, viewer_file=_viewer_file, viewer=viewer)


@blueprint.get("/docs/token")
def show_token() -> flask.Response:
    """What the page sends along with a change, for whoever is let in without a key."""
    principal.current()
    return flask.jsonify({"csrf_token": principal.csrf_token()})


@blueprint.get("/docs/viewer/<filename>")
def show_viewer_file(filename: str) -> werkzeug.Response:
    """A file of Swagger UI; its address changes with its content."""
    file = viewer.files().get(filename)
    if file is None:
        raise errors.NotFound("There is nothing at this address.")
    response = flask.Response(file.content, content_type=file.content_type)
    response.headers["Cache-Control"] = YEAR
    response.add_etag()
    return response.make_conditional(flask.request)


def _viewer_file(name: str) -> str:
    return flask.url_for(".show_viewer_file", filename=name, v=viewer.files()[name].digest)


def _own_file(name: str) -> str:
    content = (Path(str(blueprint.static_folder)) / name).read_bytes()
    return flask.url_for(".static", filename=name, v=hashlib.sha256(content).hexdigest()[:12])
