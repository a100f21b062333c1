"""An S3-compatible service: its client, and its errors in the product's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import botocore.config
import botocore.exceptions
import urllib3.exceptions

from app.kernel import errors


def client(endpoint_url: str | None = None) -> Any:
    """A client that makes no retries of its own: the failure table decides about them."""
    config = botocore.config.Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1})
    return boto3.client("s3", endpoint_url=endpoint_url, config=config)


_CONNECTION = (
    botocore.exceptions.HTTPClientError,
    botocore.exceptions.ConnectionError,
    botocore.exceptions.IncompleteReadError,
    botocore.exceptions.ResponseStreamingError,
    urllib3.exceptions.HTTPError,
)

# error code, or the status where the answer names none
_CODES: dict[str, type[errors.HeadworksError]] = {
    "NoSuchKey": errors.FileGone,
    "NoSuchBucket": errors.FileGone,
    "404": errors.FileGone,
    "SlowDown": errors.RateLimited,
    "503": errors.RateLimited,
    "429": errors.RateLimited,
    "TooManyRequests": errors.RateLimited,
    "Throttling": errors.RateLimited,
    "RequestLimitExceeded": errors.RateLimited,
    "AccessDenied": errors.AccessDenied,
    "403": errors.AccessDenied,
    "InvalidAccessKeyId": errors.AccessDenied,
    "SignatureDoesNotMatch": errors.AccessDenied,
    "InternalError": errors.ConnectionLost,
    "500": errors.ConnectionLost,
    "502": errors.ConnectionLost,
    "504": errors.ConnectionLost,
    "RequestTimeout": errors.ConnectionLost,
    "PreconditionFailed": errors.Conflict,  # a conditional write came too late
    "ConditionalRequestConflict": errors.Conflict,
    "412": errors.Conflict,
}


@contextmanager
def errors_of() -> Iterator[None]:
    """What the service answers is one of the product's own errors."""
    try:
        yield
    except botocore.exceptions.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        kind = _CODES.get(code) or _CODES.get(status)
        if kind is None:
            raise
        raise kind() from error
    except _CONNECTION as error:
        raise errors.ConnectionLost("The object store cannot be reached.") from error
