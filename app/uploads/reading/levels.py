"""What the cells of one level of a row say: of its campaign and account, its ad set, or its ad."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, NamedTuple

from app.kernel.canonical import canonical_json, name_key, natural_key_hash
from app.uploads.reading import cells
from app.uploads.reading.cells import Problem
from app.uploads.reading.header import Column
from app.uploads.reading.memo import Memo

Path = tuple[str, ...]
"""What stands above a name: the account, and the external ids of its parents."""

FIELDS = {
    # Parents come first.
    "campaign": ("campaign_name", "campaign_id", "campaign_status", "account_id", "account_name"),
    "ad_set": ("ad_set_name", "ad_set_id", "ad_set_status"),
    "ad": ("ad_name", "ad_id", "ad_status"),
}
"""What each level's cells are about; of several columns about one of them the first counts."""

TYPES = tuple(FIELDS)
FALLBACK = "_name_fallback"
"""Ends the fields of columns that may name what a row gives the id of, and nothing else."""


REMEMBERED = 2_000
"""Cells of one level that are kept in mind: parents stand near each other, and no ad is asked for twice."""


class Entity(NamedTuple):
    """One entity that a row carries, under the natural key (workspace, client, platform, external id)."""

    type: str
    external_id: str
    id_source: str  # platform or name
    key_hash: str
    name: str | None
    status: str | None
    account: str | None


class Said(NamedTuple):
    """What the cells of one level say. `entity` is known by it alone when they have the platform's id."""

    name: str | None
    platform_id: str | None
    status: str | None
    account: str | None
    path: Path  # with what the path of names begins
    problem: Problem | None
    is_all: bool  # a pivot table's "All"
    entity: Entity | None


class Level:
    """One level of a file: what its cells say, worked out once for equal cells."""

    def __init__(self, kind: str, columns: Sequence[Column], scope: Sequence[str | None]) -> None:
        """`columns` are those of the rows that `said` is given; `scope` begins every natural key."""
        place = {column.field: at for at, column in reversed(list(enumerate(columns)))}
        fields = [name for name in FIELDS[kind] if name in place]
        fallbacks = [at for at, column in enumerate(columns) if column.field == kind + FALLBACK]
        self.kind = kind
        self.is_there = bool(fields)
        self._cells = getter([*(place[name] for name in fields), *fallbacks])
        self._readers = [_reader(name) for name in fields]
        self._headers = [columns[place[name]].header for name in fields]
        parts = (f"{kind}_name", f"{kind}_id", f"{kind}_status", "account_id", "account_name")
        self._parts = itemgetter(*(fields.index(part) if part in fields else -1 for part in parts))
        # A campaign may really be called "All": it counts as one where the file has no ids.
        self._may_be_all = kind == "campaign" and "campaign_id" not in place
        self._key_hash = key_hasher(scope, kind)
        self._said: Memo[tuple[str, ...], Said] = Memo(self._read, remembered=REMEMBERED)
        self._named: Memo[tuple[Said, Path], Entity] = Memo(self._by_name, remembered=REMEMBERED)

    def said(self, row: Sequence[str]) -> Said:
        """What the row says on this level."""
        return self._said[self._cells(row)]

    def named(self, said: Said, path: Path) -> Entity | None:
        """The entity that bears the name below this path; None where there is no name."""
        return self._named[said, path] if said.name else None

    def _read(self, found: tuple[str, ...]) -> Said:
        values: list[Any] = [read(cell) for read, cell in zip(self._readers, found, strict=False)]
        problem = self._problem(values) if Problem in map(type, values) else None
        values.append(None)  # what is not there
        name, platform_id, status, account, account_name = self._parts(values)
        if platform_id and not name:
            name = self._fallback_name(found[len(self._readers) :])
        bearer = account or account_name
        return Said(
            name,
            platform_id,
            status,
            account,
            (f"account:{bearer}",) if bearer else (),
            problem,
            not (platform_id or self._may_be_all) and cells.is_all(name or ""),
            self._entity(platform_id, "platform", name, status, account) if platform_id else None,
        )

    def _problem(self, values: list[Any]) -> Problem:
        """The first of the values that is one; all of them are nothing afterwards."""
        found = [(at, value) for at, value in enumerate(values) if isinstance(value, Problem)]
        for at, _ in found:
            values[at] = None
        at, first = found[0]
        return Problem(first.code, first.value, self._headers[at])

    def _fallback_name(self, found: Sequence[str]) -> str | None:
        texts = map(cells.text, found)
        return next((text for text in texts if isinstance(text, str)), None)

    def _by_name(self, key: tuple[Said, Path]) -> Entity:
        said, path = key
        assert said.name is not None
        external_id = f"name:{natural_key_hash([*path, name_key(said.name)])}"
        return self._entity(external_id, "name", said.name, said.status, said.account)

    def _entity(
        self, external_id: str, source: str, name: str | None, status: str | None, account: str | None
    ) -> Entity:
        return Entity(self.kind, external_id, source, self._key_hash(external_id), name, status, account)


def _reader(field: str) -> Callable[[str], str | Problem | None]:
    return cells.entity_id if field.endswith("_id") else cells.text


def getter(indexes: Sequence[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """A function from a row to the tuple of its cells at these places."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return lambda row: tuple([row[at] for at in indexes])


def key_hasher(scope: Sequence[str | None], kind: str) -> Callable[[str], str]:
    """A function from an external id to `natural_key_hash` of workspace, client, platform, type and it."""
    begin = canonical_json([*scope, kind])[:-1].decode() + ","

    def key_hash(external_id: str) -> str:
        if not external_id.isascii():
            return natural_key_hash([*scope, kind, external_id])
        return hashlib.sha256(f"{begin}{encode_basestring(external_id)}]".encode()).hexdigest()

    return key_hash
