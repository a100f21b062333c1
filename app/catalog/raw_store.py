"""Raw objects: what was fetched, normalised, under keys that name it; none is ever changed (seed §4.3)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from app.catalog.context import SOURCE
from app.catalog.normalize import stable_json
from app.kernel import errors
from app.kernel.clock import Clock

if TYPE_CHECKING:
    from app.adapters import s3


@dataclass(frozen=True, slots=True)
class RawPutResult:
    """Where an object stands, and when it was put or found there."""

    s3_key: str
    etag: str | None
    saved_at: datetime


class RawGone(errors.Fatal):
    """The raw object is not there."""

    code = "raw_object_gone"


class RawStore(Protocol):
    """A store of raw objects."""

    def put_json(self, *, s3_key: str, body: Mapping[str, Any]) -> RawPutResult:
        """The body stands under the key; one that stood there before stays, since the key names it."""

    def get_json(self, *, s3_key: str) -> dict[str, Any]:
        """What stands under the key; RawGone when nothing does."""


def build_key(*, entity: str, source_id: str, content_hash: str, source: str = SOURCE) -> str:
    """The key of one content of one thing; ids are percent-encoded, so that none leaves its folder."""
    encoded = quote(source_id, safe="").replace(".", "%2E")
    return f"raw/source={source}/entity={entity}/source_id={encoded}/hash={content_hash}.json"


def connect(url: str, clock: Clock, *, endpoint_url: str = "") -> RawStore:
    """The store behind `file:///folder` or `s3://bucket/prefix`."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FolderRawStore(Path(unquote(parts.path)), clock)
    if parts.scheme == "s3":
        from app.adapters import s3  # boto3 is large: only where there is a bucket

        return BucketRawStore(
            s3.Bucket(parts.netloc, prefix=parts.path.strip("/"), endpoint_url=endpoint_url), clock
        )
    raise errors.Fatal("The raw store is an address such as s3://bucket/prefix or file:///folder.")


class BucketRawStore:
    """Raw objects below one prefix of a bucket."""

    def __init__(self, bucket: s3.Bucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock

    def put_json(self, *, s3_key: str, body: Mapping[str, Any]) -> RawPutResult:
        try:
            etag = self._bucket.create(s3_key, stable_json(body), media_type="application/json")
        except errors.Conflict:
            # It stands, or somebody is putting it at this moment and may yet fail.
            try:
                etag = self._bucket.entity_tag(s3_key)
            except errors.FileGone:
                raise errors.ConnectionLost("The object is being put by somebody else.") from None
        return RawPutResult(s3_key, etag and etag.strip('"'), self._clock.now())

    def get_json(self, *, s3_key: str) -> dict[str, Any]:
        try:
            return _object(self._bucket.read(s3_key), s3_key)
        except errors.FileGone:
            raise RawGone() from None


class FolderRawStore:
    """Raw objects as files below one folder."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def put_json(self, *, s3_key: str, body: Mapping[str, Any]) -> RawPutResult:
        path = self._folder / s3_key
        with errors.disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".put-") as file:
                file.write(stable_json(body))
                file.flush()
                os.fsync(file.fileno())
                try:
                    os.link(file.name, path)
                except FileExistsError:
                    pass  # the key names the content
                else:
                    _sync_folder(path.parent)
        return RawPutResult(s3_key, None, self._clock.now())

    def get_json(self, *, s3_key: str) -> dict[str, Any]:
        try:
            return _object((self._folder / s3_key).read_bytes(), s3_key)
        except FileNotFoundError:
            raise RawGone() from None


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _object(content: bytes, key: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise errors.Fatal(f"What stands under {key} is no JSON object.", code="raw_object_damaged")
    return found
