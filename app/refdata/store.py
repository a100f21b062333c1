"""What the platform keeps of commands, in the database of their dictionary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any
from uuid import UUID

from app.adapters import queries
from app.adapters.database import Connection, Database
from app.refdata import states
from app.refdata.commands import Chunk, Command

_sql = queries.load("refdata")

TABLES = 3
"""The release of sql/refdata_ddl.sql."""

MOST_KEYS = 100
"""So many changed keys an announcement names; of more, readers load the whole dictionary."""

Place = tuple[str, str]
"""Tenant and code of a dictionary."""

Event = tuple[str, UUID]
"""Tenant and id of an event."""


@dataclass(frozen=True, slots=True)
class Version:
    """Where a dictionary stands, and whether it takes no changes but for one snapshot."""

    version: int
    revision: int | None
    is_pinned: bool = False
    pin_allows: UUID | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A command and what became of it: a version, a refusal, or neither while its snapshot is not whole."""

    command: Command
    digest: bytes
    version: int | None = None
    error_code: str | None = None
    sentence: str | None = None
    repeated: bool = False
    traceparent: str | None = None

    @property
    def status(self) -> str:
        """The state of its request."""
        if self.error_code is not None:
            return "FAILED"
        return "COMMITTED" if self.version is not None else "PENDING"


def apply_ddl(db: Database) -> None:
    """The platform's tables are there; where they are those of this release already nothing is asked for."""
    with db.statement() as conn:
        if _sql.there_are_tables(conn) and _sql.installation(conn).tables >= TABLES:
            return
    text = resources.files("sql").joinpath("refdata_ddl.sql").read_text(encoding="utf-8")
    with db.transaction(None) as conn, conn.cursor() as cursor:
        cursor.execute(text)


def renew_epoch(db: Database) -> UUID:
    """Versions are those of another history from now on: everybody who serves loads everything anew."""
    with db.statement() as conn:
        found: UUID = _sql.renew_epoch(conn)
        return found


# -- one transaction of commands


def lock(conn: Connection, places: Iterable[Place], schema: str) -> dict[Place, Version]:
    """The dictionaries' versions, which nobody else changes until the transaction ends."""
    wanted = list(dict.fromkeys(places))
    rows = _sql.lock_versions(
        conn, tenant_ids=[place[0] for place in wanted], dict_codes=[place[1] for place in wanted],
        schema=schema,
    )  # fmt: skip
    return {
        (row.tenant_id, row.dict_code): Version(
            row.version, row.last_source_revision, row.is_pinned, row.pin_allows
        )
        for row in rows
    }


def processed(conn: Connection, commands: Sequence[Command]) -> dict[Event, Any]:
    """What became of those of the commands that had their end before, by tenant and event."""
    rows = _sql.processed(
        conn, tenant_ids=[one.tenant_id for one in commands], event_ids=[one.event_id for one in commands]
    )
    return {(row.tenant_id, row.event_id): row for row in rows}


def end_commands(conn: Connection, ended: Sequence[Ended]) -> None:
    """Versions, events, requests and announcements say what became of the commands; who waits is woken."""
    if not ended:
        return
    commands = [one.command for one in ended]
    _sql.end_commands(
        conn,
        tenant_ids=[one.tenant_id for one in commands],
        event_ids=[one.event_id for one in commands],
        dict_codes=[one.dict_code for one in commands],
        sources=[one.source for one in commands],
        digests=[one.digest for one in ended],
        snapshot_ids=[one.chunk.snapshot_id if one.chunk else None for one in commands],
        versions=[one.version for one in ended],
        revisions=[one.source_revision for one in commands],
        error_codes=[one.error_code for one in ended],
        sentences=[one.sentence for one in ended],
        keys=[_keys(one) for one in commands],
        counts=[len(one.items) for one in commands],
        traceparents=[one.traceparent for one in ended],
    )


def fail_request(conn: Connection, ended: Ended) -> None:
    """The request of this very command has failed, if it still waits."""
    _sql.fail_request(
        conn, tenant_id=ended.command.tenant_id, event_id=ended.command.event_id, digest=ended.digest,
        error_code=ended.error_code, sentence=ended.sentence,
    )  # fmt: skip


def forget_refusal(db: Database, command: Command) -> None:
    """The refusal of this command is forgotten: it may have its effect when it comes again."""
    with db.statement() as conn:
        _sql.forget_refusal(
            conn, tenant_id=command.tenant_id, event_id=command.event_id, digest=command.digest
        )


def discarded_letters(db: Database, letters: Sequence[str]) -> set[str]:
    """Which of these dead letters somebody has discarded."""
    with db.statement() as conn:
        return {row.letter for row in _sql.discarded_letters(conn, letters=list(letters))}


def discard_letter(
    db: Database, letter: str, *, key: str, error_code: str, origin: str, who: str, reason: str
) -> None:
    """The dead letter is none any more, and this person said why."""
    with db.statement() as conn:
        _sql.discard_letter(
            conn, letter=letter, key=key, error_code=error_code, origin=origin, who=who, reason=reason
        )


def _keys(command: Command) -> str | None:
    keys = list(dict.fromkeys(item.key for item in command.items))
    return json.dumps(keys) if command.chunk is None and len(keys) <= MOST_KEYS else None


# -- snapshots


def begin_snapshot(conn: Connection, command: Command, chunk: Chunk) -> Any:
    """The snapshot of this chunk, as its first chunk described it."""
    return _sql.begin_snapshot(
        conn, **_of(command), snapshot_id=chunk.snapshot_id, chunks_total=chunk.total,
        source_revision=command.source_revision,
    )  # fmt: skip


def add_chunk(conn: Connection, command: Command, chunk: Chunk, items: str, digest: bytes) -> bytes:
    """The chunk is here; the digest of its items as it came first."""
    row = _sql.add_chunk(
        conn,
        **_of(command),
        snapshot_id=chunk.snapshot_id,
        chunk_index=chunk.index,
        digest=digest,
        items=items,
    )
    return bytes(row.digest)


def note_chunk(conn: Connection, ended: Ended, chunk: Chunk) -> None:
    """The chunk's event is known, and its request waits for the other chunks."""
    command = ended.command
    _sql.note_chunk(
        conn, **_of(command), event_id=command.event_id, source=command.source, digest=ended.digest,
        snapshot_id=chunk.snapshot_id,
    )  # fmt: skip


def count_chunks(conn: Connection, command: Command, chunk: Chunk) -> int:
    """How many chunks of the snapshot are here."""
    return int(_sql.count_chunks(conn, **_of(command), snapshot_id=chunk.snapshot_id))


def unpack_snapshot(conn: Connection, command: Command, chunk: Chunk) -> str | None:
    """The snapshot's entries are rows of refdata_wanted; a key that is there twice, or None."""
    _sql.unpack_snapshot(conn, **_of(command), snapshot_id=chunk.snapshot_id)
    _sql.analyze_snapshot(conn)
    found: str | None = _sql.twice_in_snapshot(conn)
    return found


def end_snapshot(conn: Connection, command: Command, chunk: Chunk, version: int) -> None:
    """Every chunk's request has this version."""
    _sql.end_snapshot(conn, **_of(command), snapshot_id=chunk.snapshot_id, version=version)


def expire_snapshots(db: Database, seconds: float) -> list[Any]:
    """Snapshots that were not whole so long after their last chunk are gone, and their requests failed."""
    code = "SNAPSHOT_EXPIRED"
    with db.statement() as conn:
        return list(
            _sql.expire_snapshots(
                conn, seconds=seconds, error_code=code, sentence=states.CODES[code].sentence
            )
        )


def snapshot_json(conn: Connection, chunk_index: int | None) -> str:
    """The expression that is all entries of refdata_wanted, or those of one chunk, as a JSON array."""
    with conn.cursor() as cursor:
        text: bytes = cursor.mogrify(_sql.snapshot_json.sql, {"chunk_index": chunk_index})
    return text.decode().rstrip().rstrip(";")


# -- dictionaries without tables of their own


def upsert_entries(conn: Connection, commands: Sequence[Command]) -> None:
    """The items of one dictionary's commands are in it; of one key several times the last counts."""
    last = {item.key: item.payload for command in commands for item in command.items}
    _sql.upsert_entries(
        conn, **_of(commands[0]), item_keys=list(last),
        payloads=[None if payload is None else payload.decode() for payload in last.values()],
    )  # fmt: skip


def replace_entries(conn: Connection, command: Command) -> None:
    """The entries of refdata_wanted are the dictionary's, and no others."""
    _sql.replace_entries(conn, **_of(command))
    _sql.delete_other_entries(conn, **_of(command))


def entries_as_text(sql: str | None) -> str:
    """The statement whose rows are key and JSON as text: the driver would parse JSON, which nobody needs."""
    return _of_entries(_sql.entries_as_text, sql)


def entries_of_keys(sql: str | None, *, typed: bool) -> str:
    """The same for the entries of the parameter `keys`, an array's text; `typed`: of the type of the key."""
    return _of_entries(_sql.entries_of_keys if typed else _sql.entries_of_texts, sql)


def count_of_entries(sql: str | None) -> str:
    """The statement that counts them."""
    return _of_entries(_sql.count_entries, sql)


def archive_of_entries(sql: str | None) -> str:
    """The statement that keeps them as version `version`, in chunks of `most`."""
    return _of_entries(_sql.archive, sql)


def _of_entries(query: Any, sql: str | None) -> str:
    text: str = query.sql
    return text.replace("ENTRIES", (sql or _sql.load_entries.sql).rstrip().rstrip(";"))


def _of(command: Command) -> dict[str, str]:
    return {"tenant_id": command.tenant_id, "dict_code": command.dict_code}


# -- requests


def add_request(
    db: Database, command: Command, *, content: bytes, digest: bytes, awaited: bool, traceparent: str | None
) -> Any:
    """The request is known, as it came first; `added` says whether that is now."""
    while True:  # once more where another one added it at this very moment
        with db.statement() as conn:
            row = _sql.add_request(
                conn, **_of(command), event_id=command.event_id, digest=digest, command=content,
                awaited=awaited, traceparent=traceparent,
            )  # fmt: skip
        if row is not None:
            return row


def await_request(db: Database, tenant_id: str, event_id: UUID) -> None:
    """Whoever waits for the request's end will be woken by it."""
    with db.statement() as conn:
        _sql.await_request(conn, tenant_id=tenant_id, event_id=event_id)


def mark_published(db: Database, tenant_id: str, event_id: UUID) -> None:
    """The topic has the request's command."""
    with db.statement() as conn:
        _sql.mark_published(conn, tenant_id=tenant_id, event_id=event_id)


def request(db: Database, tenant_id: str, event_id: UUID) -> Any:
    """The request as it stands; None: it is not known here."""
    with db.statement() as conn:
        return _sql.request(conn, tenant_id=tenant_id, event_id=event_id)


def unpublished(conn: Connection, *, seconds: float, limit: int) -> list[Any]:
    """Requests whose command no topic has acknowledged so long after they came."""
    return list(_sql.unpublished_requests(conn, seconds=seconds, limit=limit))


def mark_published_in(conn: Connection, tenant_id: str, event_id: UUID) -> None:
    """The topic has the request's command."""
    _sql.mark_published(conn, tenant_id=tenant_id, event_id=event_id)


# -- announcements


def take_announcements(conn: Connection, limit: int) -> list[Any]:
    """What is to be announced, the oldest first; nothing while another one announces."""
    return list(_sql.take_announcements(conn, limit=limit)) if _sql.may_announce(conn) else []


def mark_announced(conn: Connection, ids: list[int]) -> None:
    """These are announced."""
    _sql.mark_announced(conn, ids=ids)


def unannounced(db: Database) -> Any:
    """How many wait to be announced, and for how many seconds."""
    with db.statement() as conn:
        return _sql.unannounced(conn)


def trim(db: Database, *, announced_hours: int, days: int) -> int:
    """What ended long ago is forgotten, ten thousand rows of a kind at a time; how many went."""
    with db.statement() as conn:
        return int(
            _sql.trim_announced(conn, hours=announced_hours)
            + _sql.trim_processed(conn, days=days)
            + _sql.trim_requests(conn, days=days)
            + _sql.trim_snapshots(conn, days=days)
        )


def version(db: Database, tenant_id: str, dict_code: str) -> int:
    """The version of the dictionary that is committed; 0: nothing was ever written."""
    with db.statement() as conn:
        return int(_sql.version(conn, tenant_id=tenant_id, dict_code=dict_code) or 0)


# -- what readers ask for


def standings(db: Database) -> tuple[UUID, dict[Place, int]]:
    """The epoch of the database, and the committed version of each of its dictionaries."""
    with db.statement() as conn:
        rows = list(_sql.standings(conn))
    return rows[0].epoch, {
        (row.tenant_id, row.dict_code): row.version for row in rows if row.tenant_id is not None
    }


def standing(conn: Connection, place: Place, schema: str) -> tuple[UUID, int]:
    """The epoch and the dictionary's version; names are looked up in `schema` by this transaction."""
    row = _sql.standing(conn, tenant_id=place[0], dict_code=place[1], schema=schema)
    return row.epoch, row.version


def changed_keys(conn: Connection, place: Place, since: int, version: int) -> list[str] | None:
    """The keys that changed behind the version `since`; None: they are not all known."""
    found: list[str] | None = _sql.changed_keys(
        conn, tenant_id=place[0], dict_code=place[1], since=since, version=version
    )
    return found


# -- what a person does with versions


def trim_archive(conn: Connection, place: Place, versions: int) -> None:
    """Only so many versions of the dictionary are kept."""
    _sql.trim_archive(conn, tenant_id=place[0], dict_code=place[1], versions=versions)


def archived(db: Database, place: Place) -> list[Any]:
    """The versions of the dictionary that are kept, the oldest first."""
    with db.statement() as conn:
        return list(_sql.archived(conn, tenant_id=place[0], dict_code=place[1]))


def archived_items(db: Database, place: Place, version: int, chunk_index: int) -> str:
    """The entries of one chunk of a version that is kept, as a JSON array."""
    with db.statement() as conn:
        return str(
            _sql.archived_items(
                conn, tenant_id=place[0], dict_code=place[1], version=version, chunk_index=chunk_index
            )
        )


def pin(db: Database, place: Place, reason: str, allows: UUID | None = None) -> bool:
    """The dictionary takes no changes but for the snapshot `allows`; whether it was ever written."""
    with db.statement() as conn:
        return bool(_sql.pin(conn, tenant_id=place[0], dict_code=place[1], reason=reason, allows=allows))


def unpin(db: Database, place: Place) -> bool:
    """The dictionary takes changes again; whether it did not."""
    with db.statement() as conn:
        return bool(_sql.unpin(conn, tenant_id=place[0], dict_code=place[1]))


def pinned(db: Database, place: Place) -> Any:
    """The dictionary's version, and since when and why it is pinned; None: it was never written."""
    with db.statement() as conn:
        return _sql.pinned(conn, tenant_id=place[0], dict_code=place[1])
