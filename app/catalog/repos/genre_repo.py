"""Genres under their parents (JOB-G-01)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.adapters import queries
from app.adapters.database import Connection

_sql = queries.load("catalog")


class GenreRepo:
    """Genres, within a transaction."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def name(self, genre_id: int) -> str | None:
        """What the genre is called; None when nobody knows it yet."""
        found: str | None = _sql.genre_name(self._conn, rakuten_genre_id=genre_id)
        return found

    def upsert_genre(self, *, normalized_genre: Mapping[str, Any]) -> int:
        """The genre stands under its parents, which are written before it; how many of them changed."""
        path = [*normalized_genre.get("parents", []), normalized_genre["current"]]
        # The API gives them from the top; that the levels say so is certain, the order is not.
        path.sort(key=lambda genre: genre.get("genreLevel", 0))
        changed, parent_id = 0, None
        for genre in path:
            changed += _sql.upsert_genre(
                self._conn, rakuten_genre_id=genre["genreId"], genre_name=genre.get("genreName") or "",
                genre_level=genre.get("genreLevel"), parent_id=parent_id,
            )  # fmt: skip
            parent_id = genre["genreId"]
        return changed
