"""One batch of promotion in an open transaction: up to 1,000 staged rows of one type (D6.6 §5.3, §8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.adapters import database, logs
from app.adapters.database import Connection
from app.kernel import errors
from app.uploads import production_store
from app.uploads.claims import Claim
from app.uploads.production_store import ENTITY_TABLES, Counts, Reached
from app.uploads.resolve import Incoming, Resolution, names_at_stake, resolve
from app.uploads.states import PROMOTION_BATCH_ROWS

log = logs.get(__name__)

DAYS = "daily_metric"
ORDER = (*ENTITY_TABLES, DAYS)
"""Parents before children, facts last."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The staged rows of one type after one row and up to another; for days they are not looked at."""

    entity_type: str
    after_row: int
    last_row: int
    entities: tuple[Incoming, ...] = ()
    resolution: Resolution | None = None  # of the entities, by what production holds

    @property
    def rows(self) -> int:
        """How many rows it has at most."""
        return len(self.entities) or self.last_row - self.after_row

    @property
    def reached(self) -> Reached:
        """How far the upload has come with it."""
        return Reached(self.entity_type, self.last_row)


def after(conn: Connection, claim: Claim, reached: Reached) -> Iterator[Batch]:
    """What is to be promoted after this, batch by batch; each is looked for when it is asked for."""
    for entity_type in ORDER[ORDER.index(reached.entity_type or ORDER[0]) :]:
        after_row = reached.row if entity_type == reached.entity_type else -1
        batches = _days_after if entity_type == DAYS else _entities_after
        yield from batches(conn, claim, entity_type, after_row)


def _entities_after(conn: Connection, claim: Claim, entity_type: str, row: int) -> Iterator[Batch]:
    full = True
    while full:
        found = production_store.staged_entities(
            conn, claim, entity_type, after_row=row, limit=PROMOTION_BATCH_ROWS
        )
        if found:
            resolution = _resolve(conn, claim, entity_type, found)
            yield Batch(entity_type, row, found[-1].row_index, tuple(found), resolution)
            row = found[-1].row_index
        full = len(found) == PROMOTION_BATCH_ROWS


def _days_after(_conn: Connection, claim: Claim, entity_type: str, row: int) -> Iterator[Batch]:
    end = claim.staged_rows - 1
    while row < end:
        last_row = min(row + PROMOTION_BATCH_ROWS, end)
        yield Batch(entity_type, row, last_row)
        row = last_row


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Where batches of one type begin that may be worked on at a time; none when they may not.

    `apart`: nothing in production is written by two of them, so that each writes before its turn to commit.
    """

    begins: Sequence[Reached]
    apart: bool = True


NONE_LEFT = SideBySide(())
"""Nothing may be worked on at a time."""


def side_by_side(conn: Connection, claim: Claim, reached: Reached) -> SideBySide:
    """The batches that are left of this type.

    Batches of days are apart: each key is in one of them alone. Those of entities are where none is named
    twice. They may not be side by side where some are known by name: what an earlier batch makes of a name
    says whom a later one means by it.
    """
    kind, row, size = reached.entity_type, reached.row, PROMOTION_BATCH_ROWS
    if kind == DAYS:
        return SideBySide([Reached(kind, begin) for begin in range(row, claim.staged_rows - 1, size)])
    if kind is None:
        return NONE_LEFT
    left = production_store.batches_of_entities(conn, claim, kind, after_row=row, limit=size)
    if left.by_name:
        return NONE_LEFT
    return SideBySide([Reached(kind, begin) for begin in [row, *left.ends][:-1]], apart=not left.repeated)


def write(conn: Connection, claim: Claim, batch: Batch) -> Counts:
    """The batch stands in production; RowError when the database refuses one of its rows."""
    if batch.resolution is None:
        return _write_days(conn, claim, batch.after_row, batch.last_row)
    written = _write_entities(conn, claim, batch.entity_type, batch.entities, batch.resolution)
    return Counts(upserted=written)


def write_what_can_be(conn: Connection, claim: Claim, batch: Batch) -> Counts:
    """The batch stands in production but for the rows that the database refuses, which know why.

    When the database refuses the batch, its halves are tried, until what it refuses stands alone.
    """
    if batch.entity_type == DAYS:
        return _bisect_days(conn, claim, batch.after_row, batch.last_row)
    return Counts(upserted=_bisect_entities(conn, claim, batch.entity_type, batch.entities))


def fail(conn: Connection, claim: Claim, batch: Batch, *, code: str) -> Counts:
    """No row of the batch is in production, for this reason."""
    after_row, last_row = batch.after_row, batch.last_row
    if batch.entity_type == DAYS:
        failed = production_store.fail_daily_batch(
            conn, claim, after_row=after_row, last_row=last_row, code=code
        )
        return Counts(failed=failed)
    production_store.fail_entity_batch(
        conn, claim, batch.entity_type, after_row=after_row, last_row=last_row, code=code
    )
    return Counts()


# -- campaigns, ad sets, ads


def _bisect_entities(conn: Connection, claim: Claim, entity_type: str, incoming: Sequence[Incoming]) -> int:
    try:
        return database.savepoint(conn, lambda: _resolve_and_write(conn, claim, entity_type, incoming))
    except errors.RowError as error:
        if len(incoming) > 1:
            middle = len(incoming) // 2
            left = _bisect_entities(conn, claim, entity_type, incoming[:middle])
            return left + _bisect_entities(conn, claim, entity_type, incoming[middle:])
        production_store.forget_missing(conn, claim)
        row = incoming[0].row_index
        log.warning("entity_failed", row=row, code=error.code)
        production_store.save_resolutions(conn, claim, entity_type, {row: None}, codes={row: error.code})
        return 0


def _resolve_and_write(conn: Connection, claim: Claim, entity_type: str, incoming: Sequence[Incoming]) -> int:
    decided = _resolve(conn, claim, entity_type, incoming)
    return _write_entities(conn, claim, entity_type, incoming, decided)


def _resolve(conn: Connection, claim: Claim, entity_type: str, incoming: Sequence[Incoming]) -> Resolution:
    existing = production_store.find_entities(conn, claim, entity_type, incoming)
    names = names_at_stake(incoming, existing)
    claims = production_store.claimed_names(conn, claim, entity_type, names)
    return resolve(incoming, existing, claims)


def _write_entities(
    conn: Connection, claim: Claim, entity_type: str, incoming: Sequence[Incoming], decided: Resolution
) -> int:
    """How many entities were written."""
    production_store.adopt_entities(conn, claim, entity_type, decided.adopted)
    known: dict[int, Incoming] = {}
    created: dict[str, Incoming] = {}
    for entity in incoming:
        if (production_id := decided.known.get(entity.row_index)) is not None:
            known[production_id] = _with_what_was_said(entity, known.get(production_id))
        elif entity.external_id in decided.created:
            created[entity.external_id] = _with_what_was_said(entity, created.get(entity.external_id))
    new = production_store.create_entities(conn, claim, entity_type, list(created.values()))
    production_store.describe_entities(conn, claim, entity_type, known)
    ids = {
        entity.row_index: decided.known.get(entity.row_index) or new.get(entity.external_id)
        for entity in incoming
    }
    production_store.save_resolutions(conn, claim, entity_type, ids, codes=decided.failed)
    return len(known) + len(created)


def _with_what_was_said(entity: Incoming, before: Incoming | None) -> Incoming:
    """The later of two rows about one entity, with what only the earlier one says."""
    if before is None:
        return entity
    return Incoming(
        entity.row_index,
        entity.external_id,
        entity.id_source,
        name=entity.name or before.name,
        status=entity.status or before.status,
        account=entity.account or before.account,
        campaign_id=entity.campaign_id or before.campaign_id,
        ad_set_id=entity.ad_set_id or before.ad_set_id,
    )


# -- days


def _write_days(conn: Connection, claim: Claim, after_row: int, last_row: int) -> Counts:
    batch = production_store.promote_daily_metrics(conn, claim, after_row=after_row, last_row=last_row)
    if claim.only_failed:
        production_store.clear_promotion_errors(conn, claim, after_row=after_row, last_row=last_row)
    if batch.unresolved_rows:
        production_store.explain_unresolved(conn, claim, batch.unresolved_rows)
    return batch.counts


def _bisect_days(conn: Connection, claim: Claim, after_row: int, last_row: int) -> Counts:
    try:
        return database.savepoint(conn, lambda: _write_days(conn, claim, after_row, last_row))
    except errors.RowError as error:
        if last_row - after_row > 1:
            middle = (after_row + last_row) // 2
            left = _bisect_days(conn, claim, after_row, middle)
            return left + _bisect_days(conn, claim, middle, last_row)
        if isinstance(error, errors.ForeignKeyMissing) and production_store.forget_missing(conn, claim):
            return _write_day_without(conn, claim, last_row)
        log.warning("row_failed", row=last_row, code=error.code)
        return Counts(failed=production_store.fail_daily_row(conn, claim, last_row, error.code))


def _write_day_without(conn: Connection, claim: Claim, row: int) -> Counts:
    """The day stands without a reference that is gone, and is warned of, or is refused (D6.6 §6.1)."""
    counts = _bisect_days(conn, claim, row - 1, row)
    if counts.promoted:
        production_store.add_warning(conn, claim, "reference_missing")
    return counts
