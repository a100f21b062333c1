"""The body of a request, no larger than it may be."""

from __future__ import annotations

import flask
import werkzeug.exceptions


def read(most_bytes: int) -> bytes:
    """The whole body, which whoever reads the request as JSON has, too. RequestEntityTooLarge above so much.

    The framework cuts a body without a Content-Length off at its limit, and says nothing.
    """
    flask.request.max_content_length = most_bytes + 1
    content = flask.request.get_data()
    if len(content) > most_bytes:
        raise werkzeug.exceptions.RequestEntityTooLarge
    return content
