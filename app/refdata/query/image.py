"""A dictionary as an immutable file that the readers of a pod share (mmap).

    header | entries: `,"key":payload` one behind the other, sorted | places of the entries | hash table

The entries between braces, without the first comma, are the JSON object of the whole dictionary. A place is
one word: where its entry begins, and how long the part before the payload is. The hash table finds an entry
with about one look (open addressing, at most two thirds full).
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from json import dumps
from pathlib import Path
from re import compile as pattern
from uuid import UUID

from xxhash import xxh3_64_intdigest

from app.kernel import errors

_HEADER = struct.Struct("<8s16sqQQQQQQ")
_MAGIC = b"HWIMAGE1"
_WORD = 8
_LONGEST_TOKEN = (1 << 16) - 1
_ENTRY = (1 << 32) - 1
WORD = (1 << 64) - 1
"""Checksums count up to this."""

_PLAIN = pattern(rb"[ !#-\[\]-~]*")  # what JSON writes as it is
_BUFFER = 1 << 20


class BadImage(errors.Fatal):
    """The file is no image, or not a whole one."""

    code = "bad_image"


class BadEntries(errors.Refused):
    """What a dictionary's SQL has loaded is no map of keys."""

    code = "BAD_ENTRIES"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a dictionary stood when it was loaded: its version, and the history that this counts in."""

    epoch: UUID
    version: int


def token_of(key: bytes) -> bytes:
    """What an entry begins with: a comma, the key as JSON, a colon. The key is in UTF-8."""
    if _PLAIN.fullmatch(key):
        return b',"%b":' % key
    return b",%b:" % dumps(key.decode(), ensure_ascii=False).encode()


def sum_of(token: bytes, payload: bytes) -> int:
    """What this entry adds to the checksum of its dictionary, whatever the order."""
    return int(xxh3_64_intdigest(token + payload))


def write(path: Path, entries: Iterable[tuple[bytes, bytes]], standing: Standing) -> Image:
    """The image of these entries (token and payload) is at this path, whole or not at all.

    BadEntries when a key is there twice.
    """
    found = sorted(entries)
    places = array("Q")
    at, checksum = _HEADER.size, 0
    for token, payload in found:
        if len(token) > _LONGEST_TOKEN:
            raise BadEntries("loadSql has a key of more than 65,000 bytes.")
        places.append(at << 16 | len(token))
        at += len(token) + len(payload)
        checksum += sum_of(token, payload)
    for (one, _), (other, _) in pairwise(found):
        if one == other:
            raise BadEntries(f"loadSql has the key {one[1:-1].decode()} twice.")
    places.append(at << 16)
    padding = -at % _WORD
    seed = secrets.randbits(63)  # so that nobody can choose keys that all fall into one place
    slots = _slots([token for token, _ in found], seed)
    header = _HEADER.pack(
        _MAGIC, standing.epoch.bytes, standing.version, len(found), len(slots), seed, checksum & WORD, at,
        at + padding + (len(places) + len(slots)) * _WORD,
    )  # fmt: skip
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb", buffering=_BUFFER) as file:
            file.write(header)
            file.writelines(chain.from_iterable(found))
            file.write(b"\0" * padding)
            places.tofile(file)
            slots.tofile(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return Image(path)


def _slots(tokens: list[bytes], seed: int) -> array[int]:
    """The hash table: the upper half of a token's hash, and the number of its entry from 1."""
    size = 1 << (len(tokens) * 3 // 2).bit_length()
    mask = size - 1
    slots = array("Q", bytes(size * _WORD))
    for number, token in enumerate(tokens, start=1):
        hashed = xxh3_64_intdigest(token, seed)
        at = hashed & mask
        while slots[at]:
            at = (at + 1) & mask
        slots[at] = hashed & ~_ENTRY | number
    return slots


class Image:
    """An image that can be read; its file may be deleted meanwhile."""

    __slots__ = (
        "_mask",
        "_memory",
        "_places",
        "_seed",
        "_slots",
        "checksum",
        "count",
        "path",
        "size",
        "standing",
    )

    def __init__(self, path: Path) -> None:
        """The image at this path. BadImage when there is none, or another one than was written."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BadImage(f"The image {path.name} cannot be read: {error}.") from None
        if len(self._memory) < _HEADER.size or self._memory[: len(_MAGIC)] != _MAGIC:
            raise BadImage(f"{path.name} is no image.")
        _, epoch, version, self.count, slots, self._seed, self.checksum, end, size = _HEADER.unpack_from(
            self._memory
        )
        places_at = end + -end % _WORD
        slots_at = places_at + (self.count + 1) * _WORD
        if not size == len(self._memory) == slots_at + slots * _WORD:
            raise BadImage(f"{path.name} is not whole.")
        whole = memoryview(self._memory)
        self._places = whole[places_at:slots_at].cast("Q")
        self._slots = whole[slots_at:].cast("Q")
        self._mask = slots - 1
        self.size = end - _HEADER.size
        self.standing = Standing(UUID(bytes=epoch), version)

    def verified(self) -> Image:
        """The same; BadImage where an entry is not as it was written."""
        found = sum(sum_of(token, payload) for token, payload in self.entries())
        if found & WORD != self.checksum:
            raise BadImage(f"{self.path.name} is damaged.")
        return self

    def find(self, token: bytes) -> bytes | None:
        """The payload of this entry; None: there is none."""
        hashed = xxh3_64_intdigest(token, self._seed)
        at, upper, slots = hashed & self._mask, hashed >> 32, self._slots
        while slot := slots[at]:
            if slot >> 32 == upper:
                number = slot & _ENTRY
                place = self._places[number - 1]
                begin = place >> 16
                middle = begin + (place & 0xFFFF)
                if self._memory[begin:middle] == token:
                    return self._memory[middle : self._places[number] >> 16]
            at = (at + 1) & self._mask
        return None

    def token(self, index: int) -> bytes:
        """What entry number `index` begins with; they are sorted by that."""
        place = self._places[index]
        begin = place >> 16
        return self._memory[begin : begin + (place & 0xFFFF)]

    def first_from(self, token: bytes, low: int = 0) -> int:
        """The index of the first entry, from `low` on, that is not before this one."""
        return bisect_left(range(self.count), token, lo=low, key=self.token)

    def text(self, start: int, stop: int) -> bytes:
        """The entries of these indexes, one behind the other."""
        return self._memory[self._places[start] >> 16 : self._places[stop] >> 16]

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Every entry: what it begins with, and its payload."""
        for index in range(self.count):
            place = self._places[index]
            begin = place >> 16
            middle = begin + (place & 0xFFFF)
            yield self._memory[begin:middle], self._memory[middle : self._places[index + 1] >> 16]
