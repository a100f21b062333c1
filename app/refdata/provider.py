"""Where a dictionary's entries are (section 4): in any tables of any PostgreSQL, by configured SQL."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import psycopg2
import psycopg2.errors
import psycopg2.extensions

from app.adapters.database import Connection
from app.kernel import errors
from app.refdata import states, store
from app.refdata.commands import MOST_ITEMS, Command, Item
from app.refdata.config import Dictionary
from app.refdata.templates import Template

PAGE = 500
"""So many statements go to the server at once, and so many rows come back at once."""

REFUSALS = (psycopg2.IntegrityError, psycopg2.DataError, psycopg2.errors.RaiseException)
"""What the database says of an item; whatever else goes wrong is not the item's fault."""

Numbered = tuple[Command, int]
"""A command, and the version that its dictionary has with it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CommandRefused(errors.Fatal):
    """The command cannot have its effect; its code is one of `states.CODES`."""

    def __init__(self, code: str, sentence: str = "") -> None:
        super().__init__(sentence or states.CODES[code].sentence, code=code)


class DictionaryProvider(Protocol):
    """What the platform needs of wherever a dictionary's entries are."""

    def load_all(self, conn: Connection, tenant_id: str) -> Iterator[tuple[str, str]]:
        """Every entry, as key and JSON text."""

    def load_keys(self, conn: Connection, tenant_id: str, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Those of the entries that are there, as key and JSON text."""

    def apply_deltas(self, conn: Connection, deltas: Sequence[Numbered]) -> None:
        """The items of one tenant's deltas are in the dictionary, in their order. CommandRefused."""

    def replace(self, conn: Connection, command: Command, version: int) -> None:
        """The entries of `refdata_wanted` are the dictionary's, and no others. CommandRefused."""


class PostgresSqlProvider:
    """A dictionary whose SQL is configured."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._of = dictionary

    def load_all(self, conn: Connection, tenant_id: str) -> Iterator[tuple[str, str]]:
        """Every entry, as key and JSON text."""
        text = store.entries_as_text(self._load_sql)
        with conn.cursor("refdata_load") as cursor:
            cursor.itersize = 5000
            cursor.execute(text, self._of_tenant(tenant_id))
            yield from cursor

    def load_keys(self, conn: Connection, tenant_id: str, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Those of the entries that are there, as key and JSON text."""
        values = self._of_tenant(tenant_id) | {"keys": _array(keys)}
        with conn.cursor() as cursor:
            # By the type of the key, so that its index can be used; not every text is of that type.
            cursor.execute("savepoint keys")
            try:
                cursor.execute(store.entries_of_keys(self._load_sql, typed=True), values)
            except psycopg2.DataError:
                cursor.execute("rollback to savepoint keys")
                cursor.execute(store.entries_of_keys(self._load_sql, typed=False), values)
            yield from cursor

    @contextmanager
    def validated(self, conn: Connection, tenant_id: str) -> Iterator[None]:
        """What is done in this block leaves the dictionary as it has to be. CommandRefused otherwise."""
        rules = self._of.validation
        if rules is None:
            yield
            return
        before = self._count(conn, tenant_id)
        yield
        now = self._count(conn, tenant_id)
        least = max(rules.min_items, math.ceil(before * (100 - rules.max_drop_percent) / 100))
        if now < least:
            raise CommandRefused(
                "VALIDATION_FAILED",
                f"The dictionary would have {now:,} entries instead of {before:,}, and needs {least:,}.",
            )
        there = {key for key, _ in self.load_keys(conn, tenant_id, rules.required_keys)}
        if missing := [key for key in rules.required_keys if key not in there]:
            raise CommandRefused("VALIDATION_FAILED", f"The dictionary would lack the key {missing[0]}.")

    def _count(self, conn: Connection, tenant_id: str) -> int:
        with conn.cursor() as cursor:
            cursor.execute(store.count_of_entries(self._load_sql), self._of_tenant(tenant_id))
            return int(cursor.fetchone()[0])

    def archive(self, conn: Connection, tenant_id: str, version: int, *, versions: int) -> None:
        """The entries are kept as this version; of those kept before, so many in all."""
        if versions == 0:
            return
        values = self._of_tenant(tenant_id) | {"version": version, "most": MOST_ITEMS}
        with conn.cursor() as cursor:
            cursor.execute(store.archive_of_entries(self._load_sql), values)
        store.trim_archive(conn, (tenant_id, self._of.code), versions)

    @property
    def _load_sql(self) -> str | None:
        return self._of.load.sql if self._of.load else None

    def _of_tenant(self, tenant_id: str) -> dict[str, Any]:
        return {"tenantId": tenant_id, "dictCode": self._of.code}

    def drift(self, conn: Connection, tenant_id: str) -> Any:
        """What driftCheckSql says: another value than before means that the tables have changed."""
        assert self._of.drift_check is not None
        with conn.cursor() as cursor:
            cursor.execute(self._of.drift_check.sql, self._of_tenant(tenant_id))
            return cursor.fetchone()

    def apply_deltas(self, conn: Connection, deltas: Sequence[Numbered]) -> None:
        """The items of one tenant's deltas are in the dictionary, in their order. CommandRefused."""
        if self._of.is_item:
            store.upsert_entries(conn, [command for command, _ in deltas])
            return
        changes = [
            (item, values)
            for command, version in deltas
            for values in (_of_event(command, version),)
            for item in command.items
        ]
        with conn.cursor() as cursor:
            for start in range(0, len(changes), PAGE):
                page = changes[start : start + PAGE]
                statements = [
                    cursor.mogrify(self._template(item).sql, values | _of_item(item)) for item, values in page
                ]
                try:
                    cursor.execute(b";".join((b"savepoint page", *statements, b"release savepoint page")))
                except REFUSALS:
                    cursor.execute("rollback to savepoint page")
                    self._name_the_item(cursor, [item for item, _ in page], statements)
                    raise

    def _name_the_item(self, cursor: Any, page: Sequence[Item], statements: Sequence[bytes]) -> None:
        """CommandRefused with the key of the first item that the database refuses."""
        for item, statement in zip(page, statements, strict=True):
            try:
                cursor.execute(statement)
            except REFUSALS as error:
                sentence = f"The database refuses the item {item.key}: {error.diag.message_primary}."
                raise CommandRefused("ITEM_REFUSED", sentence) from None

    def _template(self, item: Item) -> Template:
        template = self._of.delete if item.payload is None else self._of.upsert
        if template is None:
            missing = "deleteSql" if item.payload is None else "upsertSql"
            raise CommandRefused("READ_ONLY_DICTIONARY", f"The dictionary has no {missing}.")
        return template

    def replace(self, conn: Connection, command: Command, version: int) -> None:
        """The entries of `refdata_wanted` are the dictionary's, and no others. CommandRefused."""
        chunk = command.chunk
        if chunk is None or not self._of.takes_snapshots:
            raise CommandRefused("READ_ONLY_DICTIONARY", "The dictionary has no SQL for snapshots.")
        if self._of.is_item:
            store.replace_entries(conn, command)
            return
        values = _of_event(command, version) | {"snapshotId": str(chunk.snapshot_id)}
        with conn.cursor() as cursor:
            if self._of.replace:
                cursor.execute(self._of.replace.sql, values | {"snapshotJson": _entries(conn, None)})
            if self._of.stage and self._of.finalize:
                for index in range(1, chunk.total + 1):
                    part = {"snapshotJson": _entries(conn, index), "chunkIndex": index}
                    cursor.execute(self._of.stage.sql, values | part)
                cursor.execute(self._of.finalize.sql, values)


def _array(texts: Sequence[str]) -> str:
    """The texts as PostgreSQL writes an array, which can then become one of any type."""
    quoted = ('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts)
    return "{" + ",".join(quoted) + "}"


def _of_item(item: Item) -> dict[str, str | None]:
    return {"key": item.key, "payload": None if item.payload is None else item.payload.decode()}


def _of_event(command: Command, version: int) -> dict[str, Any]:
    return {
        "tenantId": command.tenant_id, "dictCode": command.dict_code, "eventId": str(command.event_id),
        "occurredAt": command.occurred_at, "eventVersion": version, "sourceRevision": command.source_revision,
        "eventEpoch": (command.occurred_at - _EPOCH) // timedelta(milliseconds=1),
    }  # fmt: skip


def _entries(conn: Connection, chunk_index: int | None) -> Any:
    """What :snapshotJson stands for: a part of the statement, so that the rows stay in the server."""
    return psycopg2.extensions.AsIs(f"({store.snapshot_json(conn, chunk_index)})")
