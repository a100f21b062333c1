"""How a refusal looks over HTTP: problem+json (RFC 9457), a code for programs and a sentence for people."""

from __future__ import annotations

from typing import Any

import flask
import werkzeug.exceptions

MEDIA_TYPE = "application/problem+json"


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
