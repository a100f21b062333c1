"""What the loader of a pod and its readers tell each other, over a socket of the pod's folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

_LENGTH_BYTES = 4
LONGEST_PATH = 100  # of a socket; Linux takes 107 bytes


class Whole(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A dictionary from now on: an image, and what has changed since."""

    tenant_id: str
    dict_code: str
    epoch: UUID
    version: int
    path: str
    changes: dict[bytes, bytes | None]
    is_checked: bool
    """Whether the database was asked; if not, it is as a file had it."""


class Changed(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A dictionary has changed since a version."""

    tenant_id: str
    dict_code: str
    epoch: UUID
    since: int
    version: int
    changes: dict[bytes, bytes | None]


class Gone(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A dictionary is not served any more."""

    tenant_id: str
    dict_code: str


class Pulse(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The loader lives."""

    is_ready: bool
    waits_for: str
    """What is missing, if it is not ready."""
    ages: dict[str, float | None]
    """By dictionary, for how many seconds it was not compared with its database, at most; None: this loader
    has not compared it yet."""
    behind: dict[str, int]
    """By dictionary, how many versions it is behind what was heard of, of the tenant furthest behind."""
    unread: int | None
    """Announcements on the stream that were not read; None: Redis does not say."""


class Entries(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The database's answer to an `Ask`."""

    number: int
    epoch: UUID
    version: int
    payloads: list[bytes | None] | None
    """None: the version is not committed."""


class Failed(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The database could not be asked."""

    number: int
    code: str


class Want(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Somebody waits for this version of a dictionary, or for the dictionary: version 0."""

    tenant_id: str
    dict_code: str
    version: int


class Ask(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Some entries of a dictionary, from its database, if it has this version there."""

    number: int
    tenant_id: str
    dict_code: str
    version: int
    keys: list[str]


def socket_in(folder: Path) -> Path:
    """The socket of the pod in its folder, by a path that is short enough for a socket."""
    found = folder / "loader.sock"
    if len(os.fsencode(found)) <= LONGEST_PATH:
        return found
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # as long as this process lives
    return Path(f"/proc/self/fd/{descriptor}") / found.name


FromLoader = Whole | Changed | Gone | Pulse | Entries | Failed
FromReader = Want | Ask

_encoder = msgspec.msgpack.Encoder()
from_loader = msgspec.msgpack.Decoder(FromLoader)
from_reader = msgspec.msgpack.Decoder(FromReader)


def encode(frame: FromLoader | FromReader) -> bytes:
    """The frame as it goes through the socket."""
    content = _encoder.encode(frame)
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


async def read(stream: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    """The next frame; IncompleteReadError when the other side is gone."""
    length = int.from_bytes(await stream.readexactly(_LENGTH_BYTES), "big")
    return decoder.decode(await stream.readexactly(length))
