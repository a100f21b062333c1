"""Where a dictionary's entries are (section 4): in any tables of any PostgreSQL, by configured SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import psycopg2
import psycopg2.errors
import psycopg2.extensions

from app.adapters.database import Connection
from app.kernel import errors
from app.refdata import states, store
from app.refdata.commands import Command, Item
from app.refdata.config import Dictionary
from app.refdata.templates import Template

PAGE = 500
"""So many statements go to the server at once, and so many rows come back at once."""

REFUSALS = (psycopg2.IntegrityError, psycopg2.DataError, psycopg2.errors.RaiseException)
"""What the database says of an item; whatever else goes wrong is not the item's fault."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CommandRefused(errors.Fatal):
    """The command cannot have its effect; its code is one of `states.CODES`."""

    def __init__(self, code: str, sentence: str = "") -> None:
        super().__init__(sentence or states.CODES[code].sentence, code=code)


class DictionaryProvider(Protocol):
    """What the platform needs of wherever a dictionary's entries are."""

    def load_all(self, conn: Connection, tenant_id: str) -> Iterator[tuple[str, str]]:
        """Every entry, as key and JSON text."""

    def apply_delta(self, conn: Connection, command: Command, version: int) -> None:
        """The command's items are in the dictionary, in their order. CommandRefused."""

    def replace(self, conn: Connection, command: Command, version: int) -> None:
        """The entries of `refdata_wanted` are the dictionary's, and no others. CommandRefused."""


class PostgresSqlProvider:
    """A dictionary whose SQL is configured."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._of = dictionary

    def load_all(self, conn: Connection, tenant_id: str) -> Iterator[tuple[str, str]]:
        """Every entry, as key and JSON text."""
        text = store.entries_as_text(self._of.load.sql if self._of.load else None)
        with conn.cursor("refdata_load") as cursor:
            cursor.itersize = 5000
            cursor.execute(text, {"tenantId": tenant_id, "dictCode": self._of.code})
            yield from cursor

    def apply_delta(self, conn: Connection, command: Command, version: int) -> None:
        """The command's items are in the dictionary, in their order. CommandRefused."""
        if self._of.is_item:
            store.upsert_entries(conn, command)
            return
        values = _of_event(command, version)
        with conn.cursor() as cursor:
            for start in range(0, len(command.items), PAGE):
                page = command.items[start : start + PAGE]
                statements = [
                    cursor.mogrify(self._template(item).sql, values | _of_item(item)) for item in page
                ]
                try:
                    cursor.execute(b";".join((b"savepoint page", *statements, b"release savepoint page")))
                except REFUSALS:
                    cursor.execute("rollback to savepoint page")
                    self._name_the_item(cursor, page, statements)
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
