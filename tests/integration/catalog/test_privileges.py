"""Who may do what in the catalog's schema: its own role what its jobs need, and nobody else anything."""

from __future__ import annotations

from tests.conftest import Servers
from tests.integration.one_database import database_url  # noqa: F401

VERBS = {"S": "SELECT", "I": "INSERT", "U": "UPDATE", "D": "DELETE", "T": "TRUNCATE"}
GRANTS = {
    "staging": "SIU", "shop": "SIU", "item": "SIU", "genre": "SIU", "tag_group": "SIU", "tag": "SIU",
    "target_genre_config": "SIU",
    # what was observed is never changed
    "item_market_snapshot": "SI", "item_review_snapshot": "SI", "item_rank_snapshot": "SI",
    # what an item has not any more goes
    "item_image": "SIUD", "item_tag": "SID", "item_embedding_source": "SIU", "item_embedding": "SIUD",
    "etl_net": "SIU", "etl_run": "SIU", "etl_run_target": "SIU",
}  # fmt: skip


def test_each_role_has_exactly_its_grants_in_the_catalog(servers: Servers, database_url: str) -> None:  # noqa: F811
    tables = "pg_class WHERE relnamespace = 'apl'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
    assert {name for (name,) in servers.sql(f"SELECT relname FROM {tables}", dsn=database_url)} == set(GRANTS)
    verbs = [*VERBS.values(), "REFERENCES", "TRIGGER"]
    found = servers.sql(
        f"SELECT rolname, relname, verb FROM pg_roles, unnest(ARRAY{verbs}) AS verb, {tables}"
        " AND rolname LIKE 'headworks\\_%' AND has_table_privilege(rolname, pg_class.oid, verb)",
        dsn=database_url,
    )
    expected = {
        ("headworks_catalog", table, VERBS[letter]) for table, letters in GRANTS.items() for letter in letters
    }
    assert set(map(tuple, found)) == expected
