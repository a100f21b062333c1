"""The pipeline alone, without the rest of an instance: `headworks pipeline serve`."""

from __future__ import annotations

from typing import Any

import flask
import werkzeug.exceptions

from app.access import exposure, measured, problems, statuses, traces
from app.adapters import logs, tracing
from app.adapters.settings import Settings, SettingsError
from app.kernel import errors
from app.openapi import document
from app.openapi import views as openapi
from app.pipeline import services, views

log = logs.get(__name__)


def create_app(settings: Settings | None = None) -> flask.Flask:
    """The application; settings come from the environment unless given.

    SettingsError without a database, NotSafeToStart where others can reach it and no token is needed.
    """
    logs.configure("pipeline")
    tracing.configure("pipeline")
    settings = settings or Settings.from_env(needs=("pipeline_database_url",))
    if not settings.pipeline_database_url:
        raise SettingsError("HEADWORKS_PIPELINE_DATABASE_URL is not set: the pipeline has its own database.")
    exposure.check_own_key(settings.api_key)
    has_tokens = bool(services.tokens_of(settings))
    is_local = exposure.is_loopback(exposure.host_of(settings.bind))
    if not has_tokens and not is_local:
        raise exposure.NotSafeToStart(
            f"HEADWORKS_PIPELINE_TOKENS is not set, and {settings.bind!r} is not only this machine."
        )
    app = flask.Flask("app.pipeline")
    app.extensions["pipeline"] = services.connect(settings, open_here=is_local and not has_tokens)
    measured.install(app, app.extensions["pipeline"].clock)
    traces.install(app, quiet_endpoints=("healthz", "readyz"))
    app.register_blueprint(views.blueprint)
    app.register_error_handler(errors.HeadworksError, _refusal)
    app.register_error_handler(werkzeug.exceptions.HTTPException, _http_problem)
    app.register_error_handler(Exception, _unexpected)
    app.add_url_rule("/healthz", view_func=healthz)
    app.add_url_rule("/readyz", view_func=readyz)
    app.add_url_rule("/api/openapi.json", view_func=show_document)
    return app


def healthz() -> dict[str, str]:
    """The process is alive."""
    return {"status": "alive"}


def readyz() -> tuple[dict[str, str], int]:
    """The process can do its work: its database answers."""
    found: services.Services = flask.current_app.extensions["pipeline"]
    try:
        found.pipeline.newest_place()
    except errors.HeadworksError as error:
        return {"status": "not ready", "reason": error.code}, 503
    return {"status": "ready"}, 200


def show_document() -> werkzeug.Response:
    """What this server answers, for everybody."""
    return openapi.document_of(document.PIPELINE_ALONE)


def _refusal(error: errors.HeadworksError) -> flask.Response:
    status = statuses.status_of(error)
    if status >= 500:
        log.warning("request_failed", code=error.code, path=flask.request.path)
    return problems.answer(status, error.code, error.sentence, **getattr(error, "members", {}))


def _http_problem(error: werkzeug.exceptions.HTTPException) -> Any:
    if isinstance(error, werkzeug.exceptions.NotFound):
        return problems.answer(404, "not_found", statuses.NOTHING_HERE)
    if (error.code or 500) < 400:
        return error.get_response()
    answer = problems.answer(error.code or 500, problems.code_of(error), error.description or error.name)
    if isinstance(error, werkzeug.exceptions.MethodNotAllowed) and error.valid_methods:
        answer.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return answer


def _unexpected(error: Exception) -> flask.Response:
    log.exception("request_failed", path=flask.request.path, code="internal_error", error=str(type(error)))
    return problems.answer(500, "internal_error", "Something unexpected went wrong; it is in the log.")
