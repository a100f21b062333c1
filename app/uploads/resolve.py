"""Which production row a campaign, ad set or ad of a report is: known, adopted, new or ambiguous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.kernel.canonical import name_key

Place = tuple[int | None, int | None, str]
"""Where a name is unique on a platform: below its campaign and its ad set."""


def place(campaign_id: int | None, ad_set_id: int | None, name: str | None) -> Place:
    """The place of a name; equal for two spellings of the same name."""
    return campaign_id, ad_set_id, name_key(name or "")


class Incoming(NamedTuple):
    """An entity that a report names. Its parents are production rows already."""

    row_index: int
    external_id: str
    id_source: str
    name: str | None
    status: str | None = None
    account: str | None = None
    campaign_id: int | None = None
    ad_set_id: int | None = None
    parent_error: str | None = None

    @property
    def place(self) -> Place:
        return place(self.campaign_id, self.ad_set_id, self.name)


class Existing(NamedTuple):
    """An entity of production."""

    id: int
    external_id: str
    id_source: str
    name: str | None
    campaign_id: int | None = None
    ad_set_id: int | None = None
    account: str | None = None

    @property
    def place(self) -> Place:
        return place(self.campaign_id, self.ad_set_id, self.name)


@dataclass(slots=True)
class Resolution:
    """What becomes of a batch of incoming entities."""

    known: dict[int, int] = field(default_factory=dict)  # row_index → production id
    adopted: dict[int, str] = field(default_factory=dict)  # production id → the platform's id
    created: dict[str, Incoming] = field(default_factory=dict)  # external id → who names it first
    failed: dict[int, str] = field(default_factory=dict)  # row_index → code


def names_at_stake(incoming: Sequence[Incoming], existing: Sequence[Existing]) -> list[str]:
    """The names known by name alone that an id of the upload may take over."""
    if not existing:
        return []
    known = {found.external_id for found in existing}
    wanted = {
        entity.place
        for entity in incoming
        if entity.id_source == "platform" and entity.external_id not in known
    }
    return list(
        {
            found.name
            for found in existing
            if found.id_source == "name" and found.name and found.place in wanted
        }
    )


def resolve(
    incoming: Sequence[Incoming], existing: Sequence[Existing], claims: Mapping[Place, int]
) -> Resolution:
    """Decide for each entity; `created` ones get their production id when they are written.

    By id first. A platform's id whose name is known under the same parents by name alone takes that
    entity over, if no other id of the upload claims the name (`claims`: how many do). A name without
    id is the one entity that bears it; with several, nobody can tell which is meant.
    """
    result = Resolution()
    by_id = {found.external_id: found for found in existing}
    by_place: dict[Place, list[Existing]] = defaultdict(list)
    for found in existing:
        if found.name is not None:
            by_place[found.place].append(found)
    for entity in incoming:
        if entity.parent_error:
            result.failed[entity.row_index] = entity.parent_error
        elif known := by_id.get(entity.external_id):
            result.known[entity.row_index] = known.id
        elif entity.external_id in result.created:
            continue
        else:
            same_name = by_place.get(entity.place, []) if by_place else []
            if entity.id_source == "platform":
                _by_platform_id(entity, same_name, claims, by_id, result)
            else:
                _by_name(entity, same_name, result)
    return result


def _by_platform_id(
    entity: Incoming,
    same_name: list[Existing],
    claims: Mapping[Place, int],
    by_id: dict[str, Existing],
    result: Resolution,
) -> None:
    nameless = [
        known
        for known in same_name
        if known.id_source == "name" and known.id not in result.adopted and _same_account(entity, known)
    ]
    if entity.name is not None and len(nameless) == 1 and claims.get(entity.place) == 1:
        adopted = nameless[0]
        result.adopted[adopted.id] = entity.external_id
        result.known[entity.row_index] = adopted.id
        by_id[entity.external_id] = adopted
    else:
        result.created[entity.external_id] = entity


def _by_name(entity: Incoming, same_name: list[Existing], result: Resolution) -> None:
    bearers = [known for known in same_name if _same_account(entity, known)]
    if not bearers:
        result.created[entity.external_id] = entity
    elif len(bearers) == 1:
        result.known[entity.row_index] = bearers[0].id
    else:
        result.failed[entity.row_index] = "ambiguous_name"


def _same_account(entity: Incoming, known: Existing) -> bool:
    return entity.account is None or known.account is None or entity.account == known.account
