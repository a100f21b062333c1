"""Campaigns, ad sets and ads as the rows of a file name them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from operator import itemgetter
from typing import NamedTuple

from app.kernel.canonical import canonical_json, name_key, natural_key_hash
from app.uploads.reading import cells, totals
from app.uploads.reading.cells import Problem
from app.uploads.reading.memo import Memo
from app.uploads.reading.plan import Plan

TYPES = ("campaign", "ad_set", "ad")
REMEMBERED = 50_000
"""Combinations that are kept in mind: beyond, an entity may be staged a second time, harmlessly."""


class Entity(NamedTuple):
    """One entity that a row carries, under the natural key (workspace, client, platform, external id)."""

    type: str
    external_id: str
    id_source: str  # platform or name
    key_hash: str
    name: str | None
    status: str | None
    account: str | None


@dataclass(slots=True)
class Carried:
    """What the entity cells of a row say; rows with equal cells share one."""

    entities: tuple[Entity, ...] = ()
    problem: Problem | None = None
    blank: bool = False  # no cell names anything
    labelled: bool = False  # one cell is the label of a total row, and nothing else is named
    with_id: bool = False  # the row has a platform's id for something
    subtotal: bool = False  # one level is a pivot table's "All"
    key: str = ""  # JSON of the external ids, for the daily row's natural key
    members: str = ""  # JSON members of a daily row that point to the staged entities, once they are staged
    odd: bool = False  # rows like this one are looked at by themselves: suspect, or with a problem

    @property
    def suspect(self) -> bool:
        """Whether the row may be no data at all."""
        return self.blank or self.labelled or self.subtotal

    @property
    def has_real_id(self) -> bool:
        """Whether the deepest entity is known by its platform's id."""
        return bool(self.entities) and self.entities[-1].id_source == "platform"


class Staged(NamedTuple):
    """One row of staging_rows; `raw` and `errors` are JSON texts."""

    entity_type: str
    row_index: int
    key_hash: str
    raw: str
    errors: str | None = None


@dataclass(slots=True)
class _Seen:
    row_index: int  # of the staged row that named it first
    said: tuple[str | None, ...]


class Entities:
    """The entities of one file, each known by the first row that named it."""

    def __init__(self, plan: Plan, scope: Sequence[str | None]) -> None:
        self._plan = plan
        self._scope = list(scope)
        self._key_begin = {kind: canonical_json([*scope, kind])[:-1].decode() + "," for kind in TYPES}
        self._columns = [
            column
            for column in plan.columns
            if (column.field in _ENTITY_COLUMNS and column is plan.column(column.field))
            or column.field == "ad_name_fallback"
        ]
        self._place = {column.field: at for at, column in reversed(list(enumerate(self._columns)))}
        self._readers = [
            (name, self._place[name], cells.entity_id if name.endswith("_id") else cells.text)
            for name in _ENTITY_COLUMNS
            if name in self._place
        ]
        self._fallbacks = [
            at for at, column in enumerate(self._columns) if column.field == "ad_name_fallback"
        ]
        indexes = [column.index for column in self._columns]
        self._cells: Callable[[Sequence[str]], tuple[str, ...]] = (
            itemgetter(*indexes) if len(indexes) > 1 else lambda row: tuple(row[i] for i in indexes)
        )
        self._staged: dict[str, _Seen] = {}
        self._known: Memo[tuple[str, ...], Carried] = Memo(
            self._read, remembered=REMEMBERED, forgotten=self._staged.clear
        )

    def of(self, row: Sequence[str]) -> Carried:
        """What this row carries."""
        return self._known[self._cells(row)]

    def of_all(self, rows: Sequence[Sequence[str]]) -> list[Carried]:
        """What each of these rows carries."""
        return list(map(self._known.__getitem__, map(self._cells, rows)))

    def introduce(self, carried: Carried, row_index: int) -> list[Staged]:
        """Staging rows for what no earlier row named, or named with other attributes.

        Afterwards `carried.members` points to the staged entities.
        """
        staged: list[Staged] = []
        parents: dict[str, int] = {}
        for entity in carried.entities:
            said = (entity.name, entity.status, entity.account)
            seen = self._staged.get(entity.key_hash)
            if seen is None:
                seen = self._staged[entity.key_hash] = _Seen(row_index, said)
                staged.append(_staged_entity(entity, row_index, parents))
            elif seen.said != said:
                seen.said = said
                staged.append(_staged_entity(entity, row_index, parents))
            parents[entity.type] = seen.row_index
        members = _members(parents)
        carried.members = members if carried.has_real_id else members + ',"by_name":true'
        return staged

    def _read(self, named: tuple[str, ...]) -> Carried:
        values: dict[str, str | None] = dict.fromkeys(_ENTITY_COLUMNS)
        problem: Problem | None = None
        for field_name, at, read in self._readers:
            value = read(named[at])
            if isinstance(value, Problem):
                problem = problem or Problem(value.code, value.value, self._columns[at].header)
            else:
                values[field_name] = value
        if values["ad_id"] and not values["ad_name"]:
            values["ad_name"] = self._fallback_name(named)
        carried = Carried(problem=problem)
        identity = {name: values[name] for name in _IDENTITY}
        said = [value for value in identity.values() if value]
        carried.blank = not said and problem is None
        carried.with_id = any(values[f"{kind}_id"] for kind in TYPES)
        carried.labelled = len(said) == 1 and not carried.with_id and totals.is_label(said[0])
        carried.subtotal = self._is_subtotal(values)
        carried.entities = self._entities(values)
        if problem is None and not any(entity.type == "campaign" for entity in carried.entities):
            carried.problem = Problem("missing_campaign")
        by_type = {entity.type: entity.external_id for entity in carried.entities}
        keys = [by_type.get(kind) for kind in TYPES]
        carried.key = ",".join(map(_json, keys))
        carried.odd = carried.suspect or carried.problem is not None
        return carried

    def _fallback_name(self, named: tuple[str, ...]) -> str | None:
        for at in self._fallbacks:
            if isinstance(value := cells.text(named[at]), str):
                return value
        return None

    def _is_subtotal(self, values: dict[str, str | None]) -> bool:
        for kind in TYPES:
            name = values[f"{kind}_name"]
            # A campaign may really be called "All": it counts as one where the file has no ids.
            may_be_name = kind == "campaign" and "campaign_id" not in self._place
            if name and cells.is_all(name) and not values[f"{kind}_id"] and not may_be_name:
                return True
        return False

    def _entities(self, values: dict[str, str | None]) -> tuple[Entity, ...]:
        found: list[Entity] = []
        account = values["account_id"] or values["account_name"]
        path = [f"account:{account}"] if account else []
        for kind in TYPES:
            name, platform_id = values[f"{kind}_name"], values[f"{kind}_id"]
            if not name and not platform_id:
                continue
            if platform_id:
                external_id, source = platform_id, "platform"
            else:
                external_id = f"name:{natural_key_hash([*path, name_key(name or '')])}"
                source = "name"
            key_hash = self._key_hash(kind, external_id)
            found.append(
                Entity(
                    kind,
                    external_id,
                    source,
                    key_hash,
                    name,
                    values[f"{kind}_status"],
                    values["account_id"] if kind == "campaign" else None,
                )
            )
            path = [*path, external_id]
        return tuple(found)

    def _key_hash(self, kind: str, external_id: str) -> str:
        """`natural_key_hash` of workspace, client, platform, type and external id."""
        if not external_id.isascii():
            return natural_key_hash([*self._scope, kind, external_id])
        return hashlib.sha256(f"{self._key_begin[kind]}{_json(external_id)}]".encode()).hexdigest()


_IDENTITY = tuple(f"{kind}_{part}" for kind in TYPES for part in ("name", "id"))
_ENTITY_COLUMNS = (
    *_IDENTITY,
    *(f"{kind}_status" for kind in TYPES),
    "account_id",
    "account_name",
)


def _staged_entity(entity: Entity, row_index: int, parents: dict[str, int]) -> Staged:
    account = f',"account":{_json(entity.account)}' if entity.account else ""
    raw = (
        f'{{"external_id":{_json(entity.external_id)},"id_source":"{entity.id_source}"'
        f',"name":{_json(entity.name)},"status":{_json(entity.status)}{_members(parents)}{account}}}'
    )
    return Staged(entity.type, row_index, entity.key_hash, raw)


def _members(rows: dict[str, int]) -> str:
    """JSON members that point to staged entities."""
    return "".join([f',"{kind}":{row}' for kind, row in rows.items()])


def _json(text: str | None) -> str:
    return "null" if text is None else encode_basestring(text)
