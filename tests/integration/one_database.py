"""One database for all tests of a module, empty at the beginning of each.

Making a database takes longer than most tests. A module that imports both fixtures has one:
`from tests.integration.one_database import database_url, emptied`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.conftest import Servers

EMPTY = """
DO $$
DECLARE
    day text;
BEGIN
    FOR day IN
        SELECT inhrelid::regclass::text FROM pg_inherits
        WHERE inhparent IN ('staging_rows'::regclass, 'staging_id_resolution'::regclass)
    LOOP
        EXECUTE 'DROP TABLE ' || day;
    END LOOP;
    TRUNCATE workspaces, data_uploads, campaigns, ad_sets, ads, daily_metrics, outbox, audit, api_keys,
        sessions, webhook_subscriptions, webhook_deliveries, webhook_attempts RESTART IDENTITY CASCADE;
END
$$
"""


@pytest.fixture(scope="module")
def database_url(servers: Servers) -> Iterator[str]:
    """A migrated database of this module's own."""
    name = f"module_{uuid.uuid4().hex[:12]}"
    servers.sql(f"CREATE DATABASE {name} TEMPLATE template_migrated")
    yield servers.dsn_of(name)
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(autouse=True)
def emptied(servers: Servers, database_url: str) -> None:
    """No test finds what another one left."""
    servers.sql(EMPTY, dsn=database_url)
