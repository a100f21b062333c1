"""Which HTTP status goes with an error."""

from __future__ import annotations

from app.kernel import errors

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
