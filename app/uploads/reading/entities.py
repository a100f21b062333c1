"""Campaigns, ad sets and ads as the rows of a file name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import NamedTuple

from app.uploads.reading import totals
from app.uploads.reading.cells import Problem
from app.uploads.reading.levels import FALLBACK, FIELDS, TYPES, Entity, Level, Path, getter
from app.uploads.reading.memo import Memo
from app.uploads.reading.plan import Plan

REMEMBERED = 20_000
"""Combinations that are kept in mind: beyond, an entity may be staged a second time, harmlessly."""


@dataclass(slots=True)
class Carried:
    """What the entity cells of a row say; rows with equal cells share one."""

    entities: tuple[Entity, ...] = ()
    problem: Problem | None = None
    blank: bool = False  # no cell names anything
    labelled: bool = False  # one cell is the label of a total row, and nothing else is named
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


class Entities:
    """The entities of one file, each known by the first row that named it."""

    def __init__(self, plan: Plan, scope: Sequence[str | None]) -> None:
        """`scope`: workspace, client and platform, which begin every natural key."""
        fields = {name for names in FIELDS.values() for name in names}
        columns = [
            column
            for column in plan.columns
            if (column.field in fields and column is plan.column(column.field))
            or column.field.endswith(FALLBACK)
        ]
        levels = [Level(kind, columns, scope) for kind in TYPES]
        self._levels = [(at, level) for at, level in enumerate(levels) if level.is_there]
        self._cells = getter([column.index for column in columns])
        # Of each type, by external id: named first where, last how.
        self._staged: dict[str, dict[str, tuple[int, str | None, str | None, str | None]]]
        self._forget()
        self._known: Memo[tuple[str, ...], Carried] = Memo(
            self._read, remembered=REMEMBERED, forgotten=self._forget
        )

    def of(self, row: Sequence[str]) -> Carried:
        """What this row carries."""
        return self._known[self._cells(row)]

    def of_all(self, rows: Sequence[Sequence[str]]) -> list[Carried]:
        """What each of these rows carries."""
        return list(map(self._known.__getitem__, map(self._cells, rows)))

    def _forget(self) -> None:
        self._staged = {kind: {} for kind in TYPES}

    def introduce(self, carried: Carried, row_index: int) -> list[Staged]:
        """Staging rows for what no earlier row named, or named with other attributes.

        Afterwards `carried.members` points to the staged entities.
        """
        staged: list[Staged] = []
        members = ""
        for entity in carried.entities:
            seen = self._staged[entity.type].get(entity.external_id)
            first_row = row_index if seen is None else seen[0]
            now = first_row, entity.name, entity.status, entity.account
            if seen != now:
                self._staged[entity.type][entity.external_id] = now
                staged.append(_staged_entity(entity, row_index, members))
            members += f',"{entity.type}":{first_row}'
        carried.members = members if carried.has_real_id else members + ',"by_name":true'
        carried.entities = ()  # whom it names is known by now, and there are many
        return staged

    def _read(self, named: tuple[str, ...]) -> Carried:
        entities: list[Entity] = []
        problem: Problem | None = None
        subtotal = with_id = False
        path: Path = ()
        keys = ["null"] * len(TYPES)
        for at, level in self._levels:
            said = level.said(named)
            path += said.path
            problem = problem or said.problem
            subtotal = subtotal or said.is_all
            with_id = with_id or said.platform_id is not None
            if entity := said.entity or level.named(said, path):
                entities.append(entity)
                path += (entity.external_id,)
                keys[at] = _json(entity.external_id)
        alone = entities[0].name if len(entities) == 1 and not with_id else None
        labelled = alone is not None and totals.is_label(alone)
        blank = not entities and problem is None
        if problem is None and keys[0] == "null":
            problem = Problem("missing_campaign")
        odd = blank or labelled or subtotal or problem is not None
        return Carried(tuple(entities), problem, blank, labelled, subtotal, ",".join(keys), odd=odd)


def _staged_entity(entity: Entity, row_index: int, parents: str) -> Staged:
    """`parents`: JSON members that point to the staged entities above."""
    account = f',"account":{_json(entity.account)}' if entity.account else ""
    raw = (
        f'{{"external_id":{_json(entity.external_id)},"id_source":"{entity.id_source}"'
        f',"name":{_json(entity.name)},"status":{_json(entity.status)}{parents}{account}}}'
    )
    return Staged(entity.type, row_index, entity.key_hash, raw)


def _json(text: str | None) -> str:
    return "null" if text is None else encode_basestring(text)
