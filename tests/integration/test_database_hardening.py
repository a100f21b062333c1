"""What the schema leaves to nobody: ways around its grants that are in no table of grants."""

from __future__ import annotations

import pytest

from tests.conftest import Servers
from tests.integration.one_database import database_url  # noqa: F401

OURS = "n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"
OF_EXTENSIONS = "SELECT objid FROM pg_depend WHERE deptype = 'e'"

FINDINGS = {
    # what is looked for: the query that finds it, row by row
    "a function that runs as the owner and looks names up where its caller says": f"""
        SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE p.prosecdef AND {OURS} AND p.oid NOT IN ({OF_EXTENSIONS})
        AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS s
                        WHERE s LIKE 'search_path=%' AND s ~ ', *"?pg_temp"?$' AND s !~ '\\$user')""",
    "a function that runs as the owner and that everybody may call": f"""
        SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE p.prosecdef AND {OURS} AND has_function_privilege('public', p.oid, 'EXECUTE')""",
    "a schema in which everybody may make things": f"""
        SELECT n.nspname FROM pg_namespace n
        WHERE {OURS} AND has_schema_privilege('public', n.oid, 'CREATE')""",
    "a schema in which a role may make things": f"""
        SELECT r.rolname, n.nspname FROM pg_namespace n, pg_roles r
        WHERE {OURS} AND r.rolname LIKE 'headworks\\_%' AND has_schema_privilege(r.oid, n.oid, 'CREATE')""",
    "a role that may make schemas": """
        SELECT rolname FROM pg_roles
        WHERE rolname LIKE 'headworks\\_%' AND has_database_privilege(oid, current_database(), 'CREATE')""",
    "a role that is another one as well": """
        SELECT m.member::regrole, m.roleid::regrole FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member
        WHERE r.rolname LIKE 'headworks\\_%'""",
    "rights that things will have that are made later": "SELECT defaclrole::regrole FROM pg_default_acl",
    "a table or sequence that everybody may use": f"""
        SELECT c.oid::regclass, a.privilege_type FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) a
        WHERE {OURS} AND a.grantee = 0 AND c.oid NOT IN ({OF_EXTENSIONS})""",
    "a right that a role may hand on": f"""
        SELECT c.oid::regclass, a.grantee::regrole FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) a
        WHERE {OURS} AND a.is_grantable AND a.grantee <> c.relowner""",
    "a table that belongs to a role": f"""
        SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE {OURS} AND pg_get_userbyid(c.relowner) LIKE 'headworks\\_%'""",
    "a role that sets sequences": f"""
        SELECT r.rolname, c.oid::regclass
        FROM pg_roles r, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE {OURS} AND c.relkind = 'S' AND r.rolname LIKE 'headworks\\_%'
        AND has_sequence_privilege(r.oid, c.oid, 'UPDATE')""",
    "a trigger or rule that runs as somebody else unseen": f"""
        SELECT t.tgname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
        JOIN pg_namespace n ON n.oid = p.pronamespace WHERE {OURS} AND p.prosecdef AND NOT t.tgisinternal""",
}


@pytest.mark.parametrize("what", FINDINGS)
def test_nobody_has_a_way_around_the_grants(what: str, servers: Servers, database_url: str) -> None:  # noqa: F811
    assert servers.sql(FINDINGS[what], dsn=database_url) == []


PLANTED = {
    "a function that runs as the owner and looks names up where its caller says": (
        "CREATE FUNCTION x() RETURNS int LANGUAGE sql SECURITY DEFINER"
        " SET search_path = pg_temp, public AS 'SELECT 1'"
    ),
    "a function that runs as the owner and that everybody may call": (
        "CREATE FUNCTION y() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'"
    ),
    "a schema in which everybody may make things": "GRANT CREATE ON SCHEMA public TO PUBLIC",
    "a schema in which a role may make things": "GRANT CREATE ON SCHEMA public TO headworks_parse",
    "rights that things will have that are made later": (
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO headworks_parse"
    ),
    "a table or sequence that everybody may use": "GRANT SELECT ON api_keys TO PUBLIC",
    "a right that a role may hand on": "GRANT SELECT ON outbox TO headworks_parse WITH GRANT OPTION",
    "a role that sets sequences": "CREATE SEQUENCE x; GRANT UPDATE ON SEQUENCE x TO headworks_parse",
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_way_around_the_grants_would_be_found(what: str, servers: Servers, database_url: str) -> None:  # noqa: F811
    servers.sql(PLANTED[what], dsn=database_url)
    assert servers.sql(FINDINGS[what], dsn=database_url) != []
