"""The web process: the door, blueprints, errors as problem+json, health, metrics."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import flask
import flask.json.provider
import werkzeug.exceptions
import werkzeug.middleware.proxy_fix

from app.access import limits, measured, problems, statuses, traces
from app.access import views as access
from app.adapters import exposition, logs, migrations, redaction, tracing
from app.adapters.settings import Settings
from app.kernel import errors
from app.observe import parts
from app.observe.state import State
from app.openapi import views as openapi
from app.pipeline import services as pipeline_services
from app.pipeline import views as pipeline
from app.pipeline.pages import views as pipeline_pages
from app.refdata import services as refdata_services
from app.refdata import views as refdata
from app.suppliers import services as suppliers_services
from app.suppliers.pages import views as suppliers
from app.uploads import pages, services, views
from app.uploads.audit import views as audit
from app.uploads.codes import file_sentence
from app.uploads.webhooks import views as webhooks

log = logs.get(__name__)

FORM_BYTES = 1 << 20
"""What a request may hold beside its file."""

OPEN_ENDPOINTS = ("healthz", "readyz", "metrics_text", *openapi.OPEN_ENDPOINTS)
"""For everybody: they tell nothing about a workspace."""

UPLOAD_ENDPOINTS = ("uploads.create_upload", "pages.hand_in", "pages.take_again")
"""What takes a report in, and counts as one with its key."""


class _Json(flask.json.provider.DefaultJSONProvider):
    """JSON with decimals as text (their digits are exact) and times in ISO 8601."""

    ensure_ascii = False
    sort_keys = False

    @staticmethod
    def default(value: Any) -> Any:
        if isinstance(value, Decimal):
            return format(value, "f")
        if hasattr(value, "isoformat"):
            return value.isoformat()
        return flask.json.provider.DefaultJSONProvider.default(value)


def create_app(settings: Settings | None = None) -> flask.Flask:
    """The application of one instance; settings come from the environment unless given."""
    logs.configure("web")
    tracing.configure("web")
    redaction.guard(logging.getLogger("gunicorn.error"), logging.getLogger("gunicorn.access"))
    settings = settings or Settings.from_env()
    migrations.check(settings.database_url)
    app = flask.Flask(__name__)
    app.json = _Json(app)
    app.config["MAX_CONTENT_LENGTH"] = settings.upload_bytes + FORM_BYTES
    found = app.extensions["services"] = services.connect(settings, name="headworks web")
    app.extensions["suppliers"] = suppliers_services.connect(settings, found.db)
    measured.install(app, found.clock)
    app.before_request(_read_address)
    door = access.Door(settings, found.db, found.clock)
    traces.install(app, quiet_endpoints=("healthz", "readyz", "metrics_text"))
    access.install(
        app,
        door,
        open_endpoints=(*OPEN_ENDPOINTS, *pipeline.ENDPOINTS, *refdata.OPEN_ENDPOINTS),
        public_endpoints=openapi.PUBLIC_ENDPOINTS,
        upload_endpoints=UPLOAD_ENDPOINTS,
    )
    for blueprint in (
        views.blueprint,
        audit.blueprint,
        webhooks.blueprint,
        openapi.blueprint,
        suppliers.blueprint,
        *pages.BLUEPRINTS,
    ):
        app.register_blueprint(blueprint)
    if settings.pipeline_database_url:
        app.extensions["pipeline"] = pipeline_services.connect(settings, open_here=door.is_local)
        app.register_blueprint(pipeline.blueprint)
        app.register_blueprint(pipeline_pages.blueprint)
    if settings.refdata_config:
        app.extensions["refdata"] = refdata_services.connect(
            settings, name="headworks refdata web", open_here=door.is_local
        )
        app.register_blueprint(refdata.blueprint)
    app.register_error_handler(errors.HeadworksError, _headworks_problem)
    app.register_error_handler(werkzeug.exceptions.HTTPException, _http_problem)
    app.register_error_handler(OSError, _os_problem)
    app.register_error_handler(Exception, _unexpected_problem)
    app.extensions["state"] = State(
        parts.of_instance(
            settings, pipeline=app.extensions.get("pipeline"), refdata=app.extensions.get("refdata")
        ),
        found.clock,
    )
    app.add_url_rule("/healthz", view_func=healthz)
    app.add_url_rule("/readyz", view_func=readyz)
    app.add_url_rule("/metrics", view_func=metrics_text)
    if settings.trusted_proxies and not door.is_local:
        trusted = settings.trusted_proxies
        app.wsgi_app = werkzeug.middleware.proxy_fix.ProxyFix(  # type: ignore[method-assign]
            app.wsgi_app, x_for=trusted, x_proto=trusted, x_host=0
        )
    return app


def _read_address() -> None:
    """The query can be read as text, which the framework takes for granted; else BadRequest."""
    try:
        flask.request.query_string.decode()
    except UnicodeDecodeError:
        raise werkzeug.exceptions.BadRequest(
            "The query of the address is no UTF-8: percent-encode it."
        ) from None


def healthz() -> dict[str, str]:
    """The process is alive."""
    return {"status": "alive"}


def readyz() -> tuple[dict[str, str], int]:
    """The process can do its work: the database answers."""
    found: services.Services = flask.current_app.extensions["services"]
    try:
        with found.db.transaction("read"):
            return {"status": "ready"}, 200
    except errors.HeadworksError as error:
        return {"status": "not ready", "reason": error.code}, 503


def metrics_text() -> flask.Response:
    """Metrics for Prometheus: what all processes have counted, and where everything stands now."""
    state: State = flask.current_app.extensions["state"]
    text, content_type = exposition.text(state.read())
    return flask.Response(text, content_type=content_type)


def _headworks_problem(error: errors.HeadworksError) -> flask.Response:
    status = statuses.status_of(error)
    if status >= 500:
        log.warning("request_failed", code=error.code, path=flask.request.path)
    if isinstance(error, limits.TooManyRequests):
        flask.g.rate_levels, flask.g.retry_after = error.levels, error.wait_seconds
    return _problem(status, error.code, error.sentence, **getattr(error, "members", {}))


def _http_problem(error: werkzeug.exceptions.HTTPException) -> Any:
    status = error.code or 500
    if status < 400:  # a redirect
        return error.get_response()
    if status == 413 and flask.request.endpoint in UPLOAD_ENDPOINTS:
        limit = (flask.current_app.config["MAX_CONTENT_LENGTH"] - FORM_BYTES) / 2**20
        return _problem(status, "file_too_large", file_sentence("file_too_large", limit=f"{limit:g} MB"))
    if isinstance(error, werkzeug.exceptions.NotFound):
        return _problem(status, "not_found", statuses.NOTHING_HERE)
    problem = _problem(status, problems.code_of(error), error.description or error.name)
    if isinstance(error, werkzeug.exceptions.MethodNotAllowed) and error.valid_methods:
        problem.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return problem


def _os_problem(error: OSError) -> flask.Response:
    if errors.is_disk_full(error):  # no room to hold the body of a request
        return _headworks_problem(errors.DiskFull())
    return _unexpected_problem(error)


def _unexpected_problem(error: Exception) -> flask.Response:
    log.exception("request_failed", path=flask.request.path, code="internal_error", error=str(type(error)))
    return _problem(500, "internal_error", "Something unexpected went wrong; it is in the log.")


def _problem(status: int, code: str, sentence: str, **members: Any) -> flask.Response:
    """An error: as a page for whoever looks at pages, else as problem+json."""
    if pages.site.wants_page():
        return pages.site.error_page(status, code, sentence)
    return problems.answer(status, code, sentence, **members)
