"""The production tables in PostgreSQL: entities resolved and described, days promoted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

from app.adapters import queries
from app.adapters.database import Connection, json_value
from app.uploads.claims import Claim
from app.uploads.resolve import Existing, Incoming, Place, place

_sql = queries.load("uploads")


@dataclass(frozen=True, slots=True)
class EntityTable:
    """The production table of one entity type, and its queries."""

    table: str
    find: Any
    create: Any
    adopt: Any
    describe: Any
    parents: tuple[str, ...] = ()


ENTITY_TABLES = {
    # Parents come first: this is also the order of promotion (D6.6 §8).
    "campaign": EntityTable(
        "campaigns",
        _sql.find_campaigns,
        _sql.create_campaigns,
        _sql.adopt_campaigns,
        _sql.describe_campaigns,
    ),
    "ad_set": EntityTable(
        "ad_sets",
        _sql.find_ad_sets,
        _sql.create_ad_sets,
        _sql.adopt_ad_sets,
        _sql.describe_ad_sets,
        ("campaign_id",),
    ),
    "ad": EntityTable(
        "ads",
        _sql.find_ads,
        _sql.create_ads,
        _sql.adopt_ads,
        _sql.describe_ads,
        ("campaign_id", "ad_set_id"),
    ),
}


COUNTED = {**{kind: of.table for kind, of in ENTITY_TABLES.items()}, "daily_metric": "daily_metrics"}
"""The production table that the rows of a type become rows of."""


class Reached(NamedTuple):
    """How far a promotion has come: everything up to this row of this type is committed."""

    entity_type: str | None
    row: int


class EntityBatches(NamedTuple):
    """The last rows of the batches of one entity type.

    Whether an entity of them is known by name alone, and whether one may be named more than once.
    """

    ends: list[int]
    by_name: bool
    repeated: bool


class Displaced(Exception):
    """The promotion has come to another place than its worker thinks: a commit's answer was lost, or a
    crash of the server took commits back. `reached` is where it stands.
    """

    def __init__(self, reached: Reached) -> None:
        super().__init__(reached)
        self.reached = reached


@dataclass(frozen=True, slots=True)
class Counts:
    """What was made of some staged rows: promoted and failed ones, and production rows written."""

    promoted: int = 0
    failed: int = 0
    upserted: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.promoted + other.promoted, self.failed + other.failed, self.upserted + other.upserted
        )


@dataclass(frozen=True, slots=True)
class DailyBatch:
    """What one batch of daily rows came to; `unresolved_rows` are among the failed ones."""

    counts: Counts
    unresolved_rows: list[int]


def staged_entities(
    conn: Connection, claim: Claim, entity_type: str, *, after_row: int, limit: int
) -> list[Incoming]:
    """The next staged entities, in file order, with their parents' production ids."""
    rows = _sql.staged_entities(
        conn,
        **claim.staging,
        entity_type=entity_type,
        after_row=after_row,
        limit=limit,
        only_failed=claim.only_failed,
    )
    return [Incoming(*row) for row in rows]


def batches_of_entities(
    conn: Connection, claim: Claim, entity_type: str, *, after_row: int, limit: int
) -> EntityBatches:
    """How the staged entities of one type after this row fall into batches of so many."""
    found = _sql.batches_of_entities(
        conn,
        **claim.staging,
        entity_type=entity_type,
        after_row=after_row,
        limit=limit,
        only_failed=claim.only_failed,
    )
    return EntityBatches(*found)


def find_entities(
    conn: Connection, claim: Claim, entity_type: str, wanted: Sequence[Incoming]
) -> list[Existing]:
    """Every production entity that one of the wanted might be."""
    table = ENTITY_TABLES[entity_type]
    # A name is one below its parents; of a campaign it is one by itself.
    named = {
        (entity.campaign_id, entity.ad_set_id, entity.name): entity
        for entity in wanted
        if entity.name and (entity.campaign_id is not None or not table.parents)
    }.values()
    rows = table.find(
        conn,
        **claim.scope,
        external_ids=list({entity.external_id for entity in wanted}),
        names=[entity.name for entity in named],
        **{f"{parent}s": [getattr(entity, parent) for entity in named] for parent in table.parents},
    )
    return [Existing(*row) for row in rows]


def claimed_names(conn: Connection, claim: Claim, entity_type: str, names: Sequence[str]) -> dict[Place, int]:
    """How many platform ids of the whole upload claim each of these names, in each place."""
    if not names:
        return {}
    rows = _sql.claimed_names(conn, **claim.staging, entity_type=entity_type, names=list(names))
    return {place(row.campaign_id, row.ad_set_id, row.name): row.ids for row in rows}


def create_entities(
    conn: Connection, claim: Claim, entity_type: str, new: Sequence[Incoming]
) -> dict[str, int]:
    """The entities stand in production as this upload says they are; external id → production id."""
    if not new:
        return {}
    rows = ENTITY_TABLES[entity_type].create(
        conn,
        **claim.scope,
        **_attributes(entity_type, new),
        external_ids=[entity.external_id for entity in new],
        id_sources=[entity.id_source for entity in new],
        upload_id=claim.upload_id,
        as_of=claim.created_at,
    )
    return {row.external_id: row.id for row in rows}


def _attributes(entity_type: str, entities: Sequence[Incoming]) -> dict[str, list[Any]]:
    parents = ENTITY_TABLES[entity_type].parents
    return {
        "names": [entity.name for entity in entities],
        "statuses": [entity.status for entity in entities],
        "accounts": [entity.account for entity in entities],
        **{f"{name}s": [getattr(entity, name) for entity in entities] for name in parents},
    }


def adopt_entities(conn: Connection, claim: Claim, entity_type: str, adopted: Mapping[int, str]) -> None:
    """Entities that were known by name bear their platform's id."""
    if adopted:
        ENTITY_TABLES[entity_type].adopt(conn, ids=list(adopted), external_ids=list(adopted.values()))


def describe_entities(conn: Connection, claim: Claim, entity_type: str, said: Mapping[int, Incoming]) -> None:
    """The newest attributes of each entity stand; production id → what this upload says."""
    if not said:
        return
    ENTITY_TABLES[entity_type].describe(
        conn,
        ids=list(said),
        **_attributes(entity_type, list(said.values())),
        upload_id=claim.upload_id,
        as_of=claim.created_at,
    )


def save_resolutions(
    conn: Connection, claim: Claim, entity_type: str, resolved: Mapping[int, int | None], **why: Any
) -> None:
    """The staged entities know which production rows they are; `codes`: row_index → why none."""
    codes: Mapping[int, str] = why.get("codes", {})
    _sql.save_resolutions(
        conn,
        **claim.staging,
        entity_type=entity_type,
        first_row=min(resolved),
        last_row=max(resolved),
        row_indexes=list(resolved),
        resolved_ids=list(resolved.values()),
        error_codes=[codes.get(row_index) for row_index in resolved],
    )


def forget_missing(conn: Connection, claim: Claim) -> int:
    """Resolved entities that production has no more are resolved no longer; how many those were.

    When the upload is tried again, they are made anew.
    """
    return int(_sql.forget_missing(conn, **claim.staging))


def add_warning(conn: Connection, claim: Claim, code: str) -> None:
    """The upload's report has this warning."""
    _sql.add_warning(conn, **claim.fence, code=code)


def promote_daily_metrics(conn: Connection, claim: Claim, *, after_row: int, last_row: int) -> DailyBatch:
    """The staged days of this range stand in production, each metric with its newest number."""
    row = _sql.promote_daily_metrics(
        conn,
        **claim.staging,
        **claim.scope,
        as_of=claim.created_at,
        after_row=after_row,
        last_row=last_row,
        only_failed=claim.only_failed,
    )
    counts = Counts(row.promoted, row.failed, row.upserted)
    return DailyBatch(counts, list(row.unresolved_rows or ()))


def clear_promotion_errors(conn: Connection, claim: Claim, *, after_row: int, last_row: int) -> None:
    """The rows of this range are in production after all."""
    _sql.clear_promotion_errors(conn, **claim.staging, after_row=after_row, last_row=last_row)


def explain_unresolved(conn: Connection, claim: Claim, row_indexes: Sequence[int]) -> None:
    """These rows are marked with the reason why they are not in production."""
    _sql.explain_unresolved(conn, **claim.staging, row_indexes=list(row_indexes))


def fail_daily_row(conn: Connection, claim: Claim, row_index: int, code: str) -> int:
    """This row, and those that it carries, are not in production; returns how many that is."""
    return int(_sql.fail_daily_row(conn, **claim.staging, row_index=row_index, code=code))


def fail_daily_batch(conn: Connection, claim: Claim, *, after_row: int, last_row: int, code: str) -> int:
    """The rows of this range, and those that they carry, are not in production; how many that is."""
    return int(
        _sql.fail_daily_batch(conn, **claim.staging, after_row=after_row, last_row=last_row, code=code)
    )


def fail_entity_batch(
    conn: Connection, claim: Claim, entity_type: str, *, after_row: int, last_row: int, code: str
) -> None:
    """The staged entities of this range are no production rows: the days that name them fail, too."""
    _sql.fail_entity_batch(
        conn,
        **claim.staging,
        entity_type=entity_type,
        after_row=after_row,
        last_row=last_row,
        code=code,
    )


def set_promoting(
    conn: Connection, claim: Claim, before: Reached, after: Reached, written: Mapping[str, Counts]
) -> Any:
    """The promotion has come from one place to the next once this transaction commits.

    `written`: what was made of the rows of each type. Displaced when it is not at the first place. Returns
    the upload's valid_rows, promoted_rows and failed_rows.
    """
    total = sum(written.values(), Counts())
    upserted = {COUNTED[kind]: counts.upserted for kind, counts in written.items()}
    row = _sql.set_promoting(
        conn,
        **claim.fence,
        before_type=before.entity_type,
        before_row=before.row,
        entity_type=after.entity_type,
        last_row=after.row,
        promoted=total.promoted,
        failed=total.failed,
        upserted=json_value(upserted),
    )
    if row is None:
        raise Displaced(_reached(conn, claim))
    return row


def _reached(conn: Connection, claim: Claim) -> Reached:
    row = _sql.promotion_progress(conn, **claim.fence)
    if row is None:
        raise claim.lost
    return Reached(*row)


def affected_dates(conn: Connection, claim: Claim) -> list[date]:
    """The days that this upload wrote, in order."""
    return list(_sql.affected_dates(conn, **claim.staging))
