"""Two databases for all tests of a module, with the tables that `platform` knows.

A module, or a conftest, that imports the fixture has them:
`from tests.integration.refdata.two_databases import databases`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.conftest import Servers, run_statement
from tests.integration.refdata.platform import FIRST, SECOND


@pytest.fixture(scope="module")
def databases(servers: Servers) -> Iterator[tuple[str, str]]:
    """Where they are: the one with countries and laws, and the one with currencies."""
    names = [f"refdata_{uuid.uuid4().hex[:10]}" for _ in range(2)]
    for name, tables in zip(names, (FIRST, SECOND), strict=True):
        servers.sql(f"CREATE DATABASE {name}")
        run_statement(servers.dsn_of(name), tables)
    yield servers.dsn_of(names[0]), servers.dsn_of(names[1])
    for name in names:
        servers.sql(f"DROP DATABASE {name} WITH (FORCE)")
