"""A dictionary comes from its database: all of it, or the keys that have changed (section 6.2)."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import Any

import psycopg2

from app.adapters.database import Connection, Database
from app.kernel import errors
from app.refdata import store
from app.refdata.config import Dictionary
from app.refdata.provider import PostgresSqlProvider
from app.refdata.query import image
from app.refdata.query.image import Image, Standing, token_of
from app.refdata.query.table import Changes, Place, Table

LOAD_SECONDS = 300.0
"""So long one statement that loads a whole dictionary may take."""

MOST_KEYS = 5_000
"""More changed keys than this are loaded with the whole dictionary."""

NULL = b"null"


class Source:
    """Where one dictionary of a tenant is loaded from."""

    def __init__(self, place: Place, dictionary: Dictionary, schema: str) -> None:
        self.place = place
        self.dictionary = dictionary
        self.schema = schema
        self._provider = PostgresSqlProvider(dictionary)

    def standing(self, conn: Connection) -> Standing:
        """Where the dictionary stands, in the snapshot that this transaction sees."""
        return Standing(*store.standing(conn, self.place, self.schema))

    def all(self, conn: Connection) -> list[tuple[bytes, bytes]]:
        """Every entry, in the same snapshot."""
        return list(_entries(self._provider.load_all(conn, self.place[0])))

    def of_keys(self, conn: Connection, keys: Sequence[str]) -> dict[bytes, bytes | None]:
        """These entries, in the same snapshot; None: there is none."""
        possible = [key for key in keys if "\0" not in key]  # which no text of the database has
        found = dict(_entries(self._provider.load_keys(conn, self.place[0], possible)))
        return {token: found.get(token) for token in map(token_of, (key.encode() for key in keys))}

    def drift(self, conn: Connection) -> object:
        """What driftCheckSql says, in the same snapshot."""
        return self._provider.drift(conn, self.place[0])

    def changes(self, conn: Connection, known: Standing, now: Standing) -> Changes | None:
        """What has changed between the two; None: that is not known, or too much."""
        is_ahead = known.version < now.version <= known.version + MOST_KEYS
        if self.dictionary.reload_on_event != "KEYS" or known.epoch != now.epoch or not is_ahead:
            return None
        keys = store.changed_keys(conn, self.place, known.version, now.version)
        return self.of_keys(conn, keys) if keys is not None and len(keys) <= MOST_KEYS else None


def _entries(rows: Iterable[tuple[Any, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for key, payload in rows:
        if key is None:
            raise image.BadEntries("loadSql has a row whose key is NULL.")
        yield token_of(key.encode()), NULL if payload is None else payload.encode()


def load_all(db: Database, source: Source, path: Path) -> None:
    """The image of the dictionary is at this path. Transient, or Fatal where its SQL cannot be used."""
    try:
        with db.transaction(None, timeout_seconds=LOAD_SECONDS, snapshot=True) as conn:
            standing = source.standing(conn)
            entries = source.all(conn)
    except psycopg2.Error as error:
        raise errors.Fatal(f"{error.pgcode}: {error.diag.message_primary}", code="TEMPLATE_FAILED") from None
    image.write(path, entries, standing)


class Builders:
    """Processes that make large images, so that the loader goes on meanwhile."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None

    def load_all(self, url: str, source: Source, path: Path) -> None:
        """As `load_all`, in another process."""
        self._submit(_load_all, url, source.place, source.dictionary, source.schema, path).result()

    def save(self, table: Table, path: Path) -> Future[None]:
        """The dictionary gets an image of its own, in another process."""
        return self._submit(_save, table.place, table.base.path, table.standing, dict(table.changes), path)

    def _submit(self, work: Any, *arguments: Any) -> Future[None]:
        with self._lock:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(self._number, mp_context=context)
            try:
                return self._pool.submit(work, *arguments)
            except BrokenProcessPool:
                self._pool = None
                raise errors.Transient("A builder has died.", code="builder_died") from None

    def close(self) -> None:
        """Nothing is built any more."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._pool = None


@cache
def _database(url: str) -> Database:
    return Database(url, name="headworks refdata builder", pool_size=1)


def _load_all(url: str, place: Place, dictionary: Dictionary, schema: str, path: Path) -> None:
    load_all(_database(url), Source(place, dictionary, schema), path)


def _save(place: Place, base: Path, standing: Standing, changes: Changes, path: Path) -> None:
    Table.of(place, Image(base)).after(standing, changes).save(path)
