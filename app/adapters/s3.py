"""An S3-compatible service: its client, and its errors in the product's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import botocore.config
import botocore.exceptions
import botocore.handlers
import obstore.exceptions
import obstore.store
import urllib3.exceptions
from obstore.auth.boto3 import Boto3CredentialProvider

from app.kernel import errors


def client(endpoint_url: str | None = None) -> Any:
    """A client that makes no retries of its own: the failure table decides about them."""
    config = botocore.config.Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1})
    made = boto3.client("s3", endpoint_url=endpoint_url, config=config)
    # What is put is sent at once: to ask the service first would be a round trip more for each object.
    made.meta.events.unregister("before-call.s3", botocore.handlers.add_expect_header)
    return made


NO_CREDENTIALS = "There are no credentials for the object store: see AWS_ACCESS_KEY_ID or AWS_PROFILE."
REFUSED = "The object store refuses these credentials."
UNREACHABLE = "The object store cannot be reached."

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
        raise (kind(REFUSED) if kind is errors.AccessDenied else kind()) from error
    except botocore.exceptions.NoCredentialsError as error:
        raise errors.AccessDenied(NO_CREDENTIALS) from error
    except _CONNECTION as error:
        raise errors.ConnectionLost(UNREACHABLE) from error


class Bucket:
    """Small objects below a prefix of a bucket, each put once.

    By obstore: boto3 spends four times as long in the interpreter for an object of some kilobytes, and
    a job of the catalog puts thousands of them from a few threads.
    """

    def __init__(self, name: str, *, prefix: str = "", endpoint_url: str = "") -> None:
        try:
            credentials = Boto3CredentialProvider()  # from wherever the rest of the product has them
        except ValueError:
            raise errors.AccessDenied(NO_CREDENTIALS) from None
        self._store = obstore.store.S3Store(
            name, prefix=prefix or None, endpoint=endpoint_url or None, credential_provider=credentials,
            client_options={"allow_http": True, "connect_timeout": "5s", "timeout": "30s"},
            retry_config={"max_retries": 0},
        )  # fmt: skip

    def create(self, key: str, content: bytes, *, media_type: str) -> str | None:
        """The object stands; its entity tag. Conflict when there is one of this name, or is to be."""
        with _errors_of_objects():
            done = self._store.put(
                key, content, mode="create", use_multipart=False, attributes={"Content-Type": media_type}
            )
        return done["e_tag"]

    def entity_tag(self, key: str) -> str | None:
        """The tag of the object; FileGone when there is none."""
        with _errors_of_objects():
            return self._store.head(key)["e_tag"]

    def read(self, key: str) -> bytes:
        """What the object holds; FileGone when there is none."""
        with _errors_of_objects():
            return bytes(self._store.get(key).bytes())


_OBJECT_ERRORS: dict[type[Exception], type[errors.HeadworksError]] = {
    obstore.exceptions.AlreadyExistsError: errors.Conflict,
    obstore.exceptions.PreconditionError: errors.Conflict,
    FileNotFoundError: errors.FileGone,
}


@contextmanager
def _errors_of_objects() -> Iterator[None]:
    # Not `from error`: its text holds the service's whole answer, with addresses in it.
    try:
        yield
    except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError):
        raise errors.AccessDenied(REFUSED) from None
    except (obstore.exceptions.BaseError, FileNotFoundError) as error:
        kind = _OBJECT_ERRORS.get(type(error))
        raise (kind() if kind else errors.ConnectionLost(UNREACHABLE)) from None
