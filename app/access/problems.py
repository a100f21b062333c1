"""How a refusal looks over HTTP: problem+json (RFC 9457), a code for programs and a sentence for people."""

from __future__ import annotations

from typing import Any

import flask
import werkzeug.exceptions

from app.kernel import errors

MEDIA_TYPE = "application/problem+json"

STATUS_OF_CODE = {
    "file_too_large": 413,
    "unsupported_format": 415,
    "not_found": 404,
    "conflict": 409,
    "unauthorized": 401,
    "forbidden": 403,
    "tenant_mismatch": 403,
    "csrf": 403,
    "too_many_requests": 429,
    "invalid_json": 400,
}
STATUS_OF_KIND: tuple[tuple[type[errors.HeadworksError], int], ...] = (
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.FileRefused, 422),
    (errors.Refused, 422),
    (errors.FileGone, 410),
    (errors.AccessDenied, 403),
    (errors.RateLimited, 503),
    (errors.Transient, 503),
)

NOTHING_HERE = "There is nothing at this address."


def status_of(error: errors.HeadworksError) -> int:
    """The HTTP status that goes with an error."""
    found = STATUS_OF_CODE.get(error.code)
    if found is None:
        found = next((status for kind, status in STATUS_OF_KIND if isinstance(error, kind)), 500)
    return found


def code_of(error: werkzeug.exceptions.HTTPException) -> str:
    """The code that goes with an HTTP error, such as `method_not_allowed`."""
    return error.name.lower().replace(" ", "_")


def answer(status: int, code: str, sentence: str, **members: Any) -> flask.Response:
    """The problem as an answer; `error_code` is the word that uploads use for its code."""
    response = flask.jsonify({
        "type": "about:blank", "title": code.replace("_", " "), "status": status, "code": code,
        "error_code": code, "detail": sentence, **members,
    })  # fmt: skip
    response.status_code = status
    response.content_type = MEDIA_TYPE
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
