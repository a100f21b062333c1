"""Files under keys, on a POSIX file system or in an S3-compatible store: one contract for both."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from app.kernel import errors

CHUNK_BYTES = 1 << 20


class TooLarge(errors.Refused):
    """The content is larger than it may be."""

    code = "file_too_large"


@dataclass(frozen=True, slots=True)
class Stored:
    """What was stored: its address, its size and its SHA-256 in hex."""

    url: str
    size_bytes: int
    sha256: str


class Blobs(Protocol):
    """A store of immutable contents. A key is a relative path of plain names."""

    def put(self, key: str, source: IO[bytes], *, max_bytes: int | None = None) -> Stored:
        """`source` to its end stands under `key`, whole, or not at all; memory stays bounded.

        A second put under a key replaces the content. TooLarge past `max_bytes`.
        """

    def open(self, url: str) -> AbstractContextManager[BinaryIO]:
        """A context manager with the content, seekable; FileGone when there is none."""

    def delete(self, url: str) -> None:
        """Nothing stands at the address; no error when nothing stood there before."""


def connect(url: str, *, endpoint_url: str = "") -> Blobs:
    """The store behind `file:///folder` or `s3://bucket/prefix`."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return PosixBlobs(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        from app.adapters import bucket_blobs  # boto3 is large: only where there is a bucket

        return bucket_blobs.S3Blobs(parts.netloc, parts.path.strip("/"), endpoint_url=endpoint_url or None)
    raise errors.Fatal(
        f"Files cannot be stored at a {parts.scheme!r} address: use file:// or s3://.",
        code="settings",
    )


class PosixBlobs:
    """Contents as files below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def put(self, key: str, source: IO[bytes], *, max_bytes: int | None = None) -> Stored:
        path = self._path(key)
        with errors.disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".incoming-")
            try:
                with os.fdopen(handle, "wb") as target:
                    size, digest = copy(source, target, max_bytes)
                    target.flush()
                    os.fsync(target.fileno())
                Path(name).replace(path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            _sync_folder(path.parent)
        return Stored(path.as_uri(), size, digest)

    @contextmanager
    def open(self, url: str) -> Iterator[BinaryIO]:
        try:
            file = self._path_of(url).open("rb")
        except FileNotFoundError:
            raise errors.FileGone() from None
        with file:
            yield file

    def delete(self, url: str) -> None:
        self._path_of(url).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        path = (self._folder / key).resolve()
        if not path.is_relative_to(self._folder) or path == self._folder:
            raise errors.Fatal(f"The key {key!r} leads out of the store.")
        return path

    def _path_of(self, url: str) -> Path:
        return self._path(unquote(urlsplit(url).path))


def copy(source: IO[bytes], target: IO[bytes], max_bytes: int | None) -> tuple[int, str]:
    """What is left of `source` is in `target`; returns its size and its SHA-256 in hex."""
    size, digest = 0, hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        size += len(chunk)
        if max_bytes is not None and size > max_bytes:
            raise TooLarge(f"The file is larger than {max_bytes / 2**20:g} MB, the most that is taken.")
        digest.update(chunk)
        target.write(chunk)
    return size, digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    # Without this the file's name may be lost with the power, although its content was synced.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
