"""A request is a span, of the caller's trace if it names one; probes and static files are none.

Its path and its query are not told: they may hold what is nobody else's.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import flask
from opentelemetry.trace import Span, SpanKind

from app.adapters import tracing


def install(app: flask.Flask, *, quiet_endpoints: tuple[str, ...]) -> None:
    """Every request of the application is traced from here on, but those to the quiet endpoints."""
    app.before_request(lambda: _begin(quiet_endpoints))
    app.after_request(_note_status)
    app.teardown_request(lambda _error: _end())


def _begin(quiet_endpoints: tuple[str, ...]) -> None:
    request = flask.request
    endpoint = request.endpoint or ""
    if endpoint in quiet_endpoints or endpoint.endswith("static"):
        return
    # Of an address that nobody serves, and of whatever stands in the place of a method, there is no end.
    route = request.url_rule.rule if request.url_rule else None
    method = request.method if route else "_OTHER"
    opened: AbstractContextManager[Span] = tracing.span(
        f"{method} {route}" if route else method,
        {"http.request.method": method, "http.route": route},
        parent=request.headers.get(tracing.HEADER),
        kind=SpanKind.SERVER,
    )
    flask.g.traced = opened, opened.__enter__()


def _note_status(response: flask.Response) -> flask.Response:
    if "traced" in flask.g:
        _, span = flask.g.traced
        span.set_attribute("http.response.status_code", response.status_code)
        if response.status_code >= 500:
            tracing.fail(span, response.status_code)
    return response


def _end() -> None:
    if "traced" in flask.g:
        opened, _ = flask.g.pop("traced")
        opened.__exit__(None, None, None)
