"""Who may write what, and who sees whose rows: grants and policies of the real schema (D6.6 §2.2)."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from datetime import date
from typing import Any
from uuid import UUID

import psycopg2
import pytest

from app.adapters import database
from app.kernel import errors
from tests.conftest import Servers
from tests.integration.threads import at_once

VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
PRODUCTION = ("campaigns", "ad_sets", "ads", "daily_metrics")
STAGING = ("staging_rows", "staging_id_resolution")
VIEWS = ("waiting_uploads", "daily_performance")
REPORTS = ("workspaces", "data_uploads", *STAGING, *PRODUCTION, *VIEWS, "outbox", "audit")
ACCESS = ("api_keys", "sessions")
WEBHOOKS = ("webhook_subscriptions", "webhook_deliveries", "webhook_attempts")
TABLES = (*REPORTS, *ACCESS, *WEBHOOKS, "supplier_locks")

GRANTS: dict[str, dict[str, str]] = {
    # role: what it may do to each table as a whole: Select, Insert, Update, Delete; not named: nothing
    # WRITES data_uploads, reads the request only, NEVER staging, NEVER production
    "intake": {"workspaces": "SI", "data_uploads": "SIU", "audit": "I"},
    # WRITES staging, READS data_uploads (and moves its state), NEVER production
    "parse": {
        "data_uploads": "SU",
        "staging_rows": "SIUD",
        "staging_id_resolution": "SI",
        "audit": "SI",
    },
    # WRITES production and data_uploads, READS staging; the event and the log with the same commit
    "promote": {
        "data_uploads": "SU",
        "staging_rows": "S",
        "staging_id_resolution": "S",
        **dict.fromkeys(PRODUCTION, "SIU"),
        "outbox": "SI",
        "audit": "SI",
    },
    # DELETES expired staging by one function, NEVER production; and what webhooks leave behind
    "cleanup": {"data_uploads": "S", "webhook_subscriptions": "D", "webhook_deliveries": "D"},
    # clears staging for a person's command, NEVER production
    "requeue": {
        "workspaces": "S",
        "data_uploads": "SU",
        "staging_rows": "SD",
        "staging_id_resolution": "SD",
        "audit": "SI",
    },
    # moves ownership alone
    "dispatch": {"workspaces": "SU", "data_uploads": "SU", "waiting_uploads": "S", "audit": "SI"},
    # publishes and marks
    "relay": {"outbox": "SU", "audit": "SI"},
    # answers questions
    "read": dict.fromkeys(REPORTS, "S"),
    # finds out who makes a request, and sees nothing else; nobody else sees a key's hash
    "access": {"api_keys": "SI", "sessions": "SID"},
    # subscribes and delivers, NEVER reports
    "webhooks": {**dict.fromkeys(WEBHOOKS, "SIU"), "audit": "SI"},
    # whose turn it is to read a supplier's list, NEVER anything of a workspace
    "suppliers": {"supplier_locks": "SIU"},
    # the marketplace's catalog in a schema of its own, NEVER anything beside it
    "catalog": {},
}
SEEN_COLUMNS = {
    # role, table: columns that it may read although not the table: addresses and secrets are not among them
    ("promote", "webhook_subscriptions"): {"id", "workspace_id", "topics", "disabled_at", "deleted_at"},
    ("promote", "webhook_deliveries"): {"subscription_id", "event_key"},
    ("dispatch", "webhook_subscriptions"): {
        "id", "workspace_id", "disabled_at", "deleted_at", "owner_id", "claim_epoch", "lease_expires_at",
        "last_claimed_at",
    },
    ("dispatch", "webhook_deliveries"): {"subscription_id", "status", "next_attempt_at"},
    ("cleanup", "webhook_subscriptions"): {"id", "workspace_id", "deleted_at"},
    ("cleanup", "webhook_deliveries"): {"id", "workspace_id", "subscription_id", "created_at"},
}  # fmt: skip
ADDED_COLUMNS = {
    # role, table: columns with which it may add a row although not with others
    ("promote", "webhook_deliveries"): {"subscription_id", "workspace_id", "event_key", "payload"},
}
COLUMNS = {
    ("access", "api_keys"): {"revoked_at", "last_used_at"},
    ("access", "sessions"): {"expires_at"},
    ("dispatch", "webhook_subscriptions"): {
        "owner_id", "claim_epoch", "lease_expires_at", "last_claimed_at",
    },
    # what a lock on the workspace asks for
    ("requeue", "workspaces"): {"last_claimed_at"},
    # role, table: columns that it may update although not the table
    ("promote", "staging_rows"): {"promotion_error"},
    ("promote", "staging_id_resolution"): {"resolved_id", "error_code"},
}  # fmt: skip
FUNCTIONS = {
    # function that runs as the owner: who may call it
    "ensure_staging_day(date)": {"parse"},
    "expired_staging_days(integer)": {"cleanup"},
    "drop_staging_day(date, integer)": {"cleanup"},
}
EVERY_WORKSPACE = {
    # claims, recovery and the relay serve all workspaces
    ("dispatch", "workspaces"),
    ("dispatch", "data_uploads"),
    ("dispatch", "audit"),
    ("relay", "outbox"),
    ("relay", "audit"),
    # a key tells the workspace: until it is found there is none
    ("access", "api_keys"),
    ("access", "sessions"),
    # so do the claims of webhooks, and the end of their log
    ("dispatch", "webhook_subscriptions"),
    ("dispatch", "webhook_deliveries"),
    ("cleanup", "webhook_subscriptions"),
    ("cleanup", "webhook_deliveries"),
}

OURS = UUID("aaaaaaaa-0000-4000-8000-000000000001")
THEIRS = UUID("bbbbbbbb-0000-4000-8000-000000000002")
DAY = date(2026, 3, 1)

INSERTS = {
    # one more row of a workspace, in each table
    "workspaces": "INSERT INTO workspaces (id) VALUES ('{new}')",
    "data_uploads": (
        "INSERT INTO data_uploads (id, workspace_id, platform, source)"
        " VALUES ('{new}', '{ws}', 'meta', 'manual')"
    ),
    "staging_rows": (
        "INSERT INTO staging_rows (upload_id, workspace_id, row_index, entity_type, natural_key_hash,"
        " raw_data, validation_status, staged_on)"
        " VALUES ('{new}', '{ws}', 0, 'daily_metric', 'k', '{{}}', 'valid', '2026-03-01')"
    ),
    "staging_id_resolution": (
        "INSERT INTO staging_id_resolution"
        " (upload_id, workspace_id, entity_type, row_index, natural_key_hash, staged_on)"
        " VALUES ('{new}', '{ws}', 'campaign', 0, 'k', '2026-03-01')"
    ),
    "campaigns": (
        "INSERT INTO campaigns (workspace_id, platform, external_id, id_source, upload_id, as_of)"
        " VALUES ('{ws}', 'meta', '{new}', 'platform', '{new}', now())"
    ),
    "ad_sets": (
        "INSERT INTO ad_sets (workspace_id, platform, external_id, id_source, upload_id, as_of)"
        " VALUES ('{ws}', 'meta', '{new}', 'platform', '{new}', now())"
    ),
    "ads": (
        "INSERT INTO ads (workspace_id, platform, external_id, id_source, upload_id, as_of)"
        " VALUES ('{ws}', 'meta', '{new}', 'platform', '{new}', now())"
    ),
    "daily_metrics": (
        "INSERT INTO daily_metrics"
        " (workspace_id, platform, metric_date, campaign_id, currency, upload_id, as_of)"
        " VALUES ('{ws}', 'meta', '2026-03-01', {campaign}, 'USD', '{new}', now())"
    ),
    "outbox": "INSERT INTO outbox (workspace_id, topic, key, payload) VALUES ('{ws}', 't', '{new}', '{{}}')",
    "audit": "INSERT INTO audit (workspace_id, action) VALUES ('{ws}', 'created')",
    "api_keys": (
        "INSERT INTO api_keys (id, secret_hash, workspace_id, scopes, name, created_by)"
        " VALUES (left('{new}', 8), decode(repeat('00', 32), 'hex'), '{ws}', '{{read}}', 'n', 'tests')"
    ),
    "sessions": (
        "INSERT INTO sessions (id_hash, key_id, expires_at) SELECT sha256('{new}'::bytea), min(id),"
        " now() + interval '1 hour' FROM api_keys WHERE workspace_id = '{ws}'"
    ),
    "webhook_subscriptions": (
        "INSERT INTO webhook_subscriptions (id, workspace_id, url, topics, sealed_secret, created_by)"
        " VALUES ('{new}', '{ws}', 'https://example.com/', '{{ingestion-complete}}', 's', 'tests')"
    ),
    "webhook_deliveries": (
        "INSERT INTO webhook_deliveries (subscription_id, workspace_id, event_key, payload)"
        " VALUES ('{subscription}', '{ws}', '{new}', '{{}}')"
    ),
    "webhook_attempts": (
        "INSERT INTO webhook_attempts (delivery_id, number, workspace_id, owner_id)"
        " VALUES ('{delivery}', 1, '{ws}', 'tests')"
    ),
}
WORKSPACE_COLUMN = {
    "workspaces": "id",
    "sessions": "(SELECT workspace_id FROM api_keys k WHERE k.id = key_id)",
}
CHILDLESS = {
    # rows to which no other row refers
    "webhook_subscriptions": " AND id NOT IN (SELECT subscription_id FROM webhook_deliveries)",
}
CHANGED_COLUMN = {
    # a column that some role may change, in each table
    "workspaces": "last_claimed_at = now()",
    "data_uploads": "updated_at = now()",
    "staging_rows": "promotion_error = 'x'",
    "staging_id_resolution": "error_code = 'x'",
    "campaigns": "updated_at = now()",
    "ad_sets": "updated_at = now()",
    "ads": "updated_at = now()",
    "daily_metrics": "updated_at = now()",
    "outbox": "published_at = now()",
    "audit": "why = 'x'",
    "api_keys": "last_used_at = now()",
    "sessions": "expires_at = now()",
    "webhook_subscriptions": "last_claimed_at = now()",
    "webhook_deliveries": "next_attempt_at = now()",
    "webhook_attempts": "ended_at = now()",
}


class Rows:
    """A migrated database in which two workspaces have a row in every table."""

    def __init__(self, dsn: str) -> None:
        self.db = database.Database(dsn, name="tests")
        self.owner = psycopg2.connect(dsn)
        self.owner.autocommit = True
        self.campaigns: dict[UUID, int] = {}
        self.sql(f"SELECT ensure_staging_day('{DAY}')")
        for workspace_id in (OURS, THEIRS):
            self.sql(f"INSERT INTO workspaces (id) VALUES ('{workspace_id}')")
            for table in INSERTS:
                if table != "workspaces":
                    # Staging's trigger asks even the owner which workspace it works for.
                    own = f"SET headworks.workspace_id = '{workspace_id}'; "
                    self.sql(own + self.insert(table, workspace_id))

    def sql(self, statement: str) -> list[Any]:
        """As the owner of everything, past grants and policies."""
        with self.owner.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def insert(self, table: str, workspace_id: UUID, new: UUID | None = None) -> str:
        if table == "daily_metrics":  # of a campaign that has no such day yet
            self.sql(INSERTS["campaigns"].format(ws=workspace_id, new=uuid.uuid4()))
            self.campaigns[workspace_id] = self.sql("SELECT max(id) FROM campaigns")[0][0]
        subscription, delivery = self.parents(table, workspace_id)
        return INSERTS[table].format(
            ws=workspace_id,
            new=new or uuid.uuid4(),
            campaign=self.campaigns.get(workspace_id),
            subscription=subscription,
            delivery=delivery,
        )

    def parents(self, table: str, workspace_id: UUID) -> tuple[UUID, UUID]:
        """A subscription and a delivery of its own for the row of this table, where it needs them."""
        subscription, delivery = uuid.uuid4(), uuid.uuid4()
        values = {"ws": workspace_id, "subscription": subscription}
        if table in ("webhook_deliveries", "webhook_attempts"):
            self.sql(INSERTS["webhook_subscriptions"].format(**values, new=subscription))
        if table == "webhook_attempts":
            self.sql(INSERTS["webhook_deliveries"].format(**values, new=delivery))
            self.sql(f"UPDATE webhook_deliveries SET id = '{delivery}' WHERE event_key = '{delivery}'")
        return subscription, delivery

    def run(self, role: str, workspace_id: UUID | None, statement: str) -> int:
        """Rows that the statement found or changed, undone afterwards."""
        with self.db.transaction(role, workspace_id) as conn, conn.cursor() as cursor:
            cursor.execute(statement)
            count: int = cursor.rowcount
            conn.rollback()
        return count


@pytest.fixture(scope="module")
def rows(servers: Servers) -> Iterator[Rows]:
    name = f"privileges_{uuid.uuid4().hex[:8]}"
    servers.sql(f"CREATE DATABASE {name} TEMPLATE template_migrated")
    found = Rows(servers.dsn_of(name))
    yield found
    found.db.close()
    found.owner.close()
    servers.sql(f"DROP DATABASE {name} WITH (FORCE)")


def may(role: str, verb: str, table: str) -> bool:
    return verb[0] in GRANTS[role].get(table, "") and verb in ("SELECT", "INSERT", "UPDATE", "DELETE")


PAIRS = [(role, table) for role in GRANTS for table in INSERTS]


# -- grants


def test_every_table_of_the_schema_is_judged_here(rows: Rows) -> None:
    found = rows.sql(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " AND relkind IN ('r', 'p', 'v', 'm') AND NOT relispartition AND relname <> 'alembic_version'"
    )
    assert set(TABLES) == {name for (name,) in found}


def test_every_role_of_the_schema_is_judged_here(rows: Rows) -> None:
    found = rows.sql("SELECT rolname FROM pg_roles WHERE rolname LIKE 'headworks\\_%'")
    assert {f"headworks_{role}" for role in GRANTS} == {name for (name,) in found}


@pytest.mark.parametrize("role", GRANTS)
def test_a_role_has_exactly_its_grants(role: str, rows: Rows) -> None:
    expected = {(table, verb): may(role, verb, table) for table in TABLES for verb in VERBS}
    actual = {
        (table, verb): rows.sql(f"SELECT has_table_privilege('headworks_{role}', '{table}', '{verb}')")[0][0]
        for table in TABLES
        for verb in VERBS
    }
    assert expected == actual


@pytest.mark.parametrize("role", GRANTS)
def test_a_role_changes_only_its_columns(role: str, rows: Rows) -> None:
    for table in TABLES:
        found = rows.sql(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0"
            f" AND has_column_privilege('headworks_{role}', attrelid, attnum, 'UPDATE')"
        )
        allowed = COLUMNS.get((role, table), set())
        if not may(role, "UPDATE", table):
            assert allowed == {name for (name,) in found}, table


@pytest.mark.parametrize(
    ("verb", "expected"), [("SELECT", SEEN_COLUMNS), ("INSERT", ADDED_COLUMNS)], ids=["read", "add"]
)
@pytest.mark.parametrize("role", GRANTS)
def test_a_role_reads_and_adds_only_its_columns(
    role: str, verb: str, expected: dict[tuple[str, str], set[str]], rows: Rows
) -> None:
    for table in TABLES:
        found = rows.sql(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0"
            f" AND has_column_privilege('headworks_{role}', attrelid, attnum, '{verb}')"
        )
        if not may(role, verb, table):
            assert expected.get((role, table), set()) == {name for (name,) in found}, table


@pytest.mark.parametrize("role", GRANTS)
def test_a_role_calls_only_its_functions(role: str, rows: Rows) -> None:
    for function, callers in FUNCTIONS.items():
        (actual,) = rows.sql(f"SELECT has_function_privilege('headworks_{role}', '{function}', 'EXECUTE')")
        assert (role in callers,) == actual, function


def test_every_function_that_runs_as_the_owner_is_judged_here(rows: Rows) -> None:
    found = rows.sql(
        "SELECT oid::regprocedure::text FROM pg_proc"
        " WHERE pronamespace = 'public'::regnamespace AND prosecdef"
    )
    assert {name.replace(", ", ",") for name in FUNCTIONS} == {name.replace(", ", ",") for (name,) in found}


def test_no_role_can_log_in_or_pass_policies(rows: Rows) -> None:
    found = rows.sql(
        "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'headworks\\_%'"
        " AND (rolcanlogin OR rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb)"
    )
    assert found == [(0,)]


FORBIDDEN = [
    # role, verb and table that the seed's box names in so many words
    *[("parse", verb, table) for table in PRODUCTION for verb in ("SELECT", "INSERT", "UPDATE", "DELETE")],
    *[("intake", verb, table) for table in (*STAGING, *PRODUCTION) for verb in ("SELECT", "INSERT")],
    *[("cleanup", verb, table) for table in PRODUCTION for verb in ("SELECT", "UPDATE", "DELETE")],
    *[("promote", verb, table) for table in STAGING for verb in ("INSERT", "DELETE")],
    *[("dispatch", "SELECT", table) for table in (*STAGING, *PRODUCTION)],
    *[("relay", "SELECT", table) for table in (*STAGING, *PRODUCTION, "data_uploads")],
    *[("webhooks", "SELECT", table) for table in (*STAGING, *PRODUCTION, "data_uploads", "outbox")],
    *[("read", "SELECT", table) for table in WEBHOOKS],
    *[("read", verb, table) for table in INSERTS for verb in ("INSERT", "UPDATE", "DELETE")],
]


def statement(rows: Rows, verb: str, table: str, workspace_id: UUID) -> str:
    where = f"WHERE {WORKSPACE_COLUMN.get(table, 'workspace_id')} = '{workspace_id}'"
    return {
        "SELECT": f"SELECT FROM {table} {where}",
        "INSERT": rows.insert(table, workspace_id, workspace_id if table == "workspaces" else None),
        "UPDATE": f"UPDATE {table} SET {CHANGED_COLUMN[table]} {where}",
        "DELETE": f"DELETE FROM {table} {where}{CHILDLESS.get(table, '')}",
    }[verb]


@pytest.mark.parametrize(("role", "verb", "table"), FORBIDDEN)
def test_what_a_role_must_never_do_is_denied(role: str, verb: str, table: str, rows: Rows) -> None:
    with pytest.raises(errors.AccessDenied):
        rows.run(role, OURS, statement(rows, verb, table, OURS))


@pytest.mark.parametrize("column", ["raw_data = '{}'", "validation_status = 'valid'", "merged_into = 1"])
def test_promotion_notes_failures_in_staging_and_changes_nothing_else(column: str, rows: Rows) -> None:
    assert rows.run("promote", OURS, "UPDATE staging_rows SET promotion_error = 'x'") == 1
    with pytest.raises(errors.AccessDenied):
        rows.run("promote", OURS, f"UPDATE staging_rows SET {column}")


# -- row-level security


def test_every_table_with_a_workspace_has_its_policy(rows: Rows) -> None:
    found = rows.sql(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT c.relispartition AND a.attname = 'workspace_id'"
        " AND NOT (c.relrowsecurity AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))"
    )
    assert found == []
    assert rows.sql("SELECT relrowsecurity FROM pg_class WHERE relname = 'workspaces'") == [(True,)]


def test_a_view_shows_what_its_reader_may_see(rows: Rows) -> None:
    found = rows.sql(
        "SELECT relname FROM pg_class WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace"
        " AND NOT coalesce(reloptions, '{}') @> '{security_invoker=true}'"
    )
    assert found == []
    assert rows.run("read", OURS, "SELECT FROM daily_performance") == 1


@pytest.mark.parametrize(("role", "table"), PAIRS)
def test_a_transaction_touches_rows_of_its_own_workspace_alone(role: str, table: str, rows: Rows) -> None:
    everywhere = (role, table) in EVERY_WORKSPACE
    for verb in ("SELECT", "UPDATE", "DELETE"):
        if may(role, verb, table) or (verb == "UPDATE" and (role, table) in COLUMNS):
            assert rows.run(role, OURS, statement(rows, verb, table, OURS)) > 0, verb
            found = rows.run(role, OURS, statement(rows, verb, table, THEIRS))
            assert everywhere == (found > 0), verb


@pytest.mark.parametrize(("role", "table"), [pair for pair in PAIRS if may(pair[0], "INSERT", pair[1])])
def test_a_row_of_another_workspace_is_refused(role: str, table: str, rows: Rows) -> None:
    if table == "workspaces":
        ours, theirs = (rows.insert(table, OURS, new) for new in (OURS, uuid.uuid4()))
        ours += " ON CONFLICT DO NOTHING"
    else:
        ours, theirs = rows.insert(table, OURS), rows.insert(table, THEIRS)
    assert rows.run(role, OURS, ours) == (0 if table == "workspaces" else 1)
    if (role, table) in EVERY_WORKSPACE:
        assert rows.run(role, OURS, theirs) == 1
        return
    with pytest.raises(errors.AccessDenied):
        rows.run(role, OURS, theirs)
    with pytest.raises(errors.AccessDenied):
        rows.run(role, None, theirs)


@pytest.mark.parametrize(
    ("role", "table"),
    [(role, table) for role, table in PAIRS if may(role, "UPDATE", table) and table != "workspaces"],
)
def test_a_row_cannot_be_given_to_another_workspace(role: str, table: str, rows: Rows) -> None:
    if (role, table) in EVERY_WORKSPACE:
        return
    with pytest.raises(errors.AccessDenied):
        rows.run(role, OURS, f"UPDATE {table} SET workspace_id = '{THEIRS}'")


@pytest.mark.parametrize(("role", "table"), PAIRS)
def test_without_a_workspace_no_row_is_seen(role: str, table: str, rows: Rows) -> None:
    if may(role, "SELECT", table):
        found = rows.run(role, None, f"SELECT FROM {table}")
        assert ((role, table) in EVERY_WORKSPACE) == (found > 0)


def test_the_end_of_an_upload_tells_webhooks_of_its_own_workspace_alone(rows: Rows) -> None:
    assert rows.run("promote", OURS, rows.insert("webhook_deliveries", OURS)) == 1
    for workspace_id in (OURS, None):
        with pytest.raises(errors.AccessDenied):
            rows.run("promote", workspace_id, rows.insert("webhook_deliveries", THEIRS))


@pytest.mark.parametrize("role", [role for role in GRANTS if role != "webhooks"])
@pytest.mark.parametrize("column", ["sealed_secret", "previous_secret", "url"])
def test_nobody_but_the_sender_sees_where_to_and_what_signs(column: str, role: str, rows: Rows) -> None:
    with pytest.raises(errors.AccessDenied):
        rows.run(role, OURS, f"SELECT {column} FROM webhook_subscriptions")


# -- staging days: COPY does not pass through the parent's policy


def copy(rows: Rows, role: str, workspace_id: UUID | None, row_workspace: UUID, day: date = DAY) -> int:
    line = f"{uuid.uuid4()}\t{row_workspace}\t0\tdaily_metric\tk\t{{}}\tvalid\t{day}\n"
    with rows.db.transaction(role, workspace_id) as conn, conn.cursor() as cursor:
        cursor.copy_expert(
            f"COPY staging_rows_{day:%Y%m%d} (upload_id, workspace_id, row_index, entity_type,"
            " natural_key_hash, raw_data, validation_status, staged_on) FROM STDIN",
            io.StringIO(line),
        )
        count: int = cursor.rowcount
        conn.rollback()
    return count


def test_parse_copies_rows_of_its_own_workspace_into_a_day(rows: Rows) -> None:
    assert copy(rows, "parse", OURS, OURS) == 1


@pytest.mark.parametrize("workspace_id", [OURS, None], ids=["another workspace", "no workspace"])
def test_a_foreign_row_cannot_be_copied_into_a_day(workspace_id: UUID | None, rows: Rows) -> None:
    with pytest.raises(errors.AccessDenied):
        copy(rows, "parse", workspace_id, THEIRS)


@pytest.mark.parametrize("role", [role for role in GRANTS if role != "parse"])
def test_nobody_else_copies_into_a_day(role: str, rows: Rows) -> None:
    with pytest.raises(errors.AccessDenied):
        copy(rows, role, OURS, OURS)


def test_a_foreign_row_cannot_be_inserted_into_a_day(rows: Rows) -> None:
    foreign = rows.insert("staging_rows", THEIRS).replace("staging_rows", "staging_rows_20260301", 1)
    with pytest.raises(errors.AccessDenied):
        rows.run("parse", OURS, foreign)


@pytest.mark.parametrize("role", GRANTS)
def test_a_day_cannot_be_read_or_changed_past_its_parent(role: str, rows: Rows) -> None:
    # Partitions have no policy of their own: what is granted on them is insert for parse alone.
    days = rows.sql("SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'")
    assert len(days) >= 2
    for (day,) in days:
        granted = {
            verb
            for verb in VERBS
            if rows.sql(f"SELECT has_table_privilege('headworks_{role}', '{day}', '{verb}')")[0][0]
        }
        insert = role == "parse" and day.startswith("staging_rows_")
        assert ({"INSERT"} if insert else set()) == granted, day


def test_a_new_day_made_twice_at_once_is_made_once_and_guarded(rows: Rows) -> None:
    for number in range(1, 6):
        day = date(2026, 4, number)

        def make(day: date = day) -> None:
            with rows.db.transaction("parse", OURS) as conn, conn.cursor() as cursor:
                cursor.execute("SELECT ensure_staging_day(%s)", (day,))

        assert at_once(make, make, make, make) == [None] * 4
        assert copy(rows, "parse", OURS, OURS, day) == 1
        with pytest.raises(errors.AccessDenied):
            copy(rows, "parse", OURS, THEIRS, day)
        make()


@pytest.mark.parametrize("role", [role for role in GRANTS if role != "parse"])
def test_nobody_else_makes_days(role: str, rows: Rows) -> None:
    with pytest.raises(errors.AccessDenied):
        rows.run(role, OURS, "SELECT ensure_staging_day('2026-05-01')")


def test_a_new_day_waits_for_nobody_who_is_at_work_on_others(rows: Rows) -> None:
    # Two lanes of one upload wait for each other's turn with their transactions open: who waited for one of
    # them, and kept the other one waiting, would hold up all three.
    read = "SELECT count(*) FROM staging_rows, staging_id_resolution"
    change = "UPDATE staging_id_resolution SET error_code = 'x'"
    with rows.db.transaction("promote", OURS) as working, working.cursor() as at_work:
        at_work.execute(read)
        at_work.execute(change)
        with rows.db.transaction("parse", OURS) as conn, conn.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            cursor.execute("SELECT ensure_staging_day('2026-05-01')")
            # And nobody waits for whoever makes the day, while that is not committed.
            at_work.execute("SET LOCAL lock_timeout = '2s'")
            at_work.execute(read)
            at_work.execute(change)
    assert copy(rows, "parse", OURS, OURS, date(2026, 5, 1)) == 1
