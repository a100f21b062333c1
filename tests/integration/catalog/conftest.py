"""A catalog of one's own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.database import Database
from app.adapters.settings import Settings
from app.catalog.replay.server import ReplayServer
from tests.conftest import Servers
from tests.integration.catalog.shelves import (  # noqa: F401
    array_shelf,
    pgvector_server,
    pgvector_url,
    shelf,
    vector_shelf,
)
from tests.integration.catalog.world import EMPTY, World
from tests.integration.one_database import database_url  # noqa: F401


@pytest.fixture(scope="module")
def catalog_db(servers: Servers, database_url: str) -> Iterator[Database]:  # noqa: F811
    """A pool of connections to the module's database."""
    db = Database(database_url, name="headworks test", pool_size=6)
    yield db
    db.close()


@pytest.fixture
def world(servers: Servers, catalog_db: Database, database_url: str, tmp_path: Path) -> Iterator[World]:  # noqa: F811
    """An empty catalog and an API that answers as recorded, at any pace."""
    servers.sql(EMPTY, dsn=database_url)
    with ReplayServer() as api:
        settings = Settings(
            database_url=database_url, broker_url=servers.valkey.url, data_dir=tmp_path, catalog_url=api.url,
            catalog_application_id="12345678-aaaa-bbbb-cccc-1234567890ab", catalog_access_key="pk_secret",
            catalog_interval_seconds=0.0, catalog_raw_url=(tmp_path / "raw").as_uri(),
        )  # fmt: skip
        yield World(catalog_db, api, tmp_path, settings)
