"""Files under keys in an S3-compatible store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO
from urllib.parse import urlsplit

from app.adapters import blobs, s3
from app.kernel import errors


class S3Blobs:
    """Contents as objects below one prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, *, endpoint_url: str | None = None) -> None:
        self._bucket, self._prefix = bucket, prefix
        self._client = s3.client(endpoint_url)

    def put(self, key: str, source: IO[bytes], *, max_bytes: int | None = None) -> blobs.Stored:
        # Spooled first: the size and the limit are known before one byte is sent.
        with tempfile.TemporaryFile() as spool:
            with errors.disk_errors():
                size, digest = blobs.copy(source, spool, max_bytes)
                spool.seek(0)
            with s3.errors_of():
                self._client.put_object(
                    Bucket=self._bucket, Key=self._key(key), Body=spool, ContentLength=size
                )
        return blobs.Stored(f"s3://{self._bucket}/{self._key(key)}", size, digest)

    @contextmanager
    def open(self, url: str) -> Iterator[BinaryIO]:
        with tempfile.TemporaryFile() as spool:
            with s3.errors_of(), errors.disk_errors():
                body = self._client.get_object(Bucket=self._bucket, Key=self._key_of(url))["Body"]
                with body:
                    shutil.copyfileobj(body, spool, blobs.CHUNK_BYTES)
            spool.seek(0)
            yield spool

    def delete(self, url: str) -> None:
        with s3.errors_of():
            self._client.delete_object(Bucket=self._bucket, Key=self._key_of(url))

    def _key(self, key: str) -> str:
        if ".." in key.split("/") or not key:
            raise errors.Fatal(f"The key {key!r} leads out of the store.")
        return f"{self._prefix}/{key}" if self._prefix else key

    def _key_of(self, url: str) -> str:
        parts = urlsplit(url)
        key = parts.path.lstrip("/")
        prefix = f"{self._prefix}/" if self._prefix else ""
        inside = key.startswith(prefix) and ".." not in key.split("/")
        if parts.scheme != "s3" or parts.netloc != self._bucket or not inside:
            raise errors.FileGone()
        return key
