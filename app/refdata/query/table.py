"""A dictionary of a tenant at one version: an image, and what has changed since. Nothing of it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.refdata.query import image
from app.refdata.query.image import Image, Standing

Changes = Mapping[bytes, bytes | None]
"""Payloads by what their entries begin with; None: the entry is gone."""

Place = tuple[str, str]
"""Tenant and code of a dictionary."""

SMALL = 10_000
"""A dictionary of so many entries is a plain map in each reader: a look-up takes a twentieth of the time."""

STEP = 1000
"""So many entries are copied at once where all are read."""


@dataclass(frozen=True, slots=True)
class Table:
    """A dictionary at one version."""

    place: Place
    standing: Standing
    base: Image
    changes: Changes
    count: int
    checksum: int
    """The same wherever the same entries are, however they came there."""
    size: int
    """How long the texts of all entries are together."""
    plain: Mapping[bytes, bytes] | None
    """All entries of a small dictionary."""

    @classmethod
    def of(cls, place: Place, base: Image, *, plain: bool = False) -> Table:
        """The dictionary as the image has it; `plain`: as a map, if it is small."""
        entries = dict(base.entries()) if plain and base.count <= SMALL else None
        return cls(place, base.standing, base, {}, base.count, base.checksum, base.size, entries)

    def after(self, standing: Standing, changes: Changes) -> Table:
        """The dictionary with these changes."""
        count, checksum, size = self.count, self.checksum, self.size
        for token, payload in changes.items():
            before = self.find(token)
            if before is not None:
                count -= 1
                size -= len(token) + len(before)
                checksum -= image.sum_of(token, before)
            if payload is not None:
                count += 1
                size += len(token) + len(payload)
                checksum += image.sum_of(token, payload)
        plain = None if self.plain is None else _merged(self.plain, changes)
        whole = {**self.changes, **changes}
        return Table(self.place, standing, self.base, whole, count, checksum & image.WORD, size, plain)

    def find(self, token: bytes) -> bytes | None:
        """The payload of this entry; None: there is none."""
        if self.plain is not None:
            return self.plain.get(token)
        if token in self.changes:
            return self.changes[token]
        return self.base.find(token)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Every entry, in no order."""
        for token, payload in self.base.entries():
            if token not in self.changes:
                yield token, payload
        for token, changed in self.changes.items():
            if changed is not None:
                yield token, changed

    def texts(self, after: bytes = b"", limit: int | None = None) -> Iterator[tuple[bytes, int, bytes]]:
        """The entries behind this one in their order, up to STEP of them at a time.

        Of each step its text, which begins with a comma, how many entries it is, and what the last one
        begins with. `limit`: so many entries at most.
        """
        left = self.count if limit is None else limit
        changed = iter(sorted(token for token in self.changes if token > after))
        index = self.base.first_from(after)
        if after and index < self.base.count and self.base.token(index) == after:
            index += 1
        token = next(changed, None)
        while left > 0:
            stop = self.base.count if token is None else self.base.first_from(token, index)
            while index < stop and left > 0:
                upto = min(index + STEP, stop, index + left)
                yield self.base.text(index, upto), upto - index, self.base.token(upto - 1)
                left -= upto - index
                index = upto
            if token is None or left <= 0:
                return
            if index < self.base.count and self.base.token(index) == token:
                index += 1
            payload = self.changes[token]
            if payload is not None:
                yield token + payload, 1, token
                left -= 1
            token = next(changed, None)

    def save(self, path: Path) -> Table:
        """The same with an image of its own at this path."""
        return Table.of(self.place, image.write(path, self.entries(), self.standing))


def _merged(plain: Mapping[bytes, bytes], changes: Changes) -> dict[bytes, bytes]:
    found = dict(plain)
    for token, payload in changes.items():
        if payload is None:
            found.pop(token, None)
        else:
            found[token] = payload
    return found
