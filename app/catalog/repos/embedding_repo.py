"""Texts that are embedded, and their vectors (JOB-E-01, JOB-E-02)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.adapters import queries
from app.adapters.database import Connection

_sql = queries.load("catalog")

MOST_NEAREST = 1_000
"""Also the most that an index of pgvector looks at in one go (hnsw.ef_search)."""

LOOKED_AT = 200
"""The candidates that the index keeps in hand, at least: five times its default, for fewer misses."""

_WIDTH = re.compile(r"vector\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Source:
    """An item's text with its hash."""

    item_id: UUID
    source_text: str
    source_hash: str


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vector of a text that had this hash when it was read."""

    item_id: UUID
    embedding: Sequence[float]
    source_hash: str


@dataclass(frozen=True, slots=True)
class Near:
    """An item, and the cosine distance to it: 0 the same direction, 2 the opposite one."""

    item_id: UUID
    distance: float


@dataclass(frozen=True, slots=True)
class Column:
    """What the table of vectors is made of on this server."""

    is_vector: bool  # pgvector's type; else arrays
    width: int | None  # of every vector; None: any
    scans_on: bool  # pgvector goes on looking when a model's vectors are not among the nearest of all


class EmbeddingRepo:
    """Texts and vectors of items, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def source_records(self, *, behind: UUID | None, limit: int, most: int) -> list[Any]:
        """The next items in the order of their ids: what their texts are made of, and what stands.

        Of each value so many characters at most.
        """
        return list(_sql.embedding_source_records(self._conn, behind=behind, limit=limit, most=most))

    def write_sources(self, sources: Sequence[Source], *, source_version: int) -> int:
        """These texts stand; the number of those that were other ones before, or of another version."""
        if not sources:
            return 0
        rows: int = _sql.embedding_source_upsert(
            self._conn, item_ids=[one.item_id for one in sources],
            texts=[one.source_text for one in sources], hashes=[one.source_hash for one in sources],
            source_version=source_version,
        )  # fmt: skip
        return rows

    def source_diff(self, *, model: str, behind: UUID | None, limit: int) -> list[Source]:
        """The next items whose text this model has not embedded, or has when it was another text."""
        rows = _sql.embedding_source_diff_select(self._conn, model=model, behind=behind, limit=limit)
        return [Source(row.item_id, row.source_text, row.source_hash) for row in rows]

    def write_embeddings(self, embedded: Sequence[Embedded], *, model: str) -> int:
        """These vectors stand under the hashes of the texts that they are of; their number.

        An item that is gone by now has no vector.
        """
        if not embedded:
            return 0
        rows: int = _sql.embedding_upsert(
            self._conn, model=model, item_ids=[one.item_id for one in embedded],
            embeddings=[_array(one.embedding) for one in embedded],
            hashes=[one.source_hash for one in embedded],
        )  # fmt: skip
        return rows

    def column(self) -> Column:
        """What this server keeps vectors in."""
        row = _sql.embedding_column(self._conn)
        width = _WIDTH.fullmatch(row.column_type)
        version = tuple(int(part) for part in re.findall(r"\d+", row.vector_version or "0"))
        return Column(
            is_vector=row.column_type.startswith("vector"),
            width=int(width[1]) if width else None,
            scans_on=version >= (0, 8),
        )

    def nearest(self, vector: Sequence[float], *, model: str, limit: int) -> list[Near]:
        """The items whose vectors of this model point most nearly where this one does, nearest first."""
        column, limit = self.column(), min(limit, MOST_NEAREST)
        if column.is_vector:
            _sql.embedding_search_settings(
                self._conn, ef_search=str(max(limit, LOOKED_AT)), scans_on=column.scans_on
            )
            query = _sql.embedding_nearest_by_index
        else:
            query = _sql.embedding_nearest_of_all
        rows = query(self._conn, embedding=_array(vector), model=model, limit=limit)
        return [Near(row.item_id, row.distance) for row in rows]


def _array(vector: Sequence[float]) -> str:
    """PostgreSQL's spelling of an array: one text is quicker through the driver than its many numbers."""
    return "{" + ",".join(map(repr, map(float, vector))) + "}"
