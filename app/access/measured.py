"""How many requests were answered, how, and how fast."""

from __future__ import annotations

import flask

from app.adapters import metrics
from app.kernel.clock import Clock

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def install(app: flask.Flask, clock: Clock) -> None:
    """From now on every request of the application is measured. Before whatever may refuse one."""

    @app.before_request
    def begin() -> None:
        flask.g.began = clock.monotonic()

    # The first to be registered is the last to be called: whatever others make of an answer is in it.
    @app.after_request
    def end(response: flask.Response) -> flask.Response:
        request = flask.request
        endpoint = request.endpoint or "none"
        method = request.method if request.method in METHODS else "other"
        metrics.http_requests.labels(endpoint, method, str(response.status_code)).inc()
        # A socket is open for as long as somebody looks.
        if request.headers.get("Upgrade", "").lower() != "websocket":
            metrics.http_request_seconds.labels(endpoint).observe(clock.monotonic() - flask.g.began)
        return response
