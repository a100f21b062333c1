"""Reference data on two databases whose tables have nothing in common, and one Redis."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.adapters.settings import Settings
from app.kernel.clock import Clock
from app.refdata import commands, services
from app.refdata.apply import Applier
from app.refdata.commands import Command
from app.refdata.services import Services
from app.refdata.store import Ended
from tests.conftest import Servers, run_statement

SEED = Path(__file__).parent / "seed.yaml"
TENANT = "tenant-a"

FIRST = """
CREATE TABLE mdm_country (
    tenant_id text, code text, name text NOT NULL, updated_at_epoch bigint, deleted boolean,
    PRIMARY KEY (tenant_id, code), CHECK (name <> 'Atlantis')
);
CREATE TABLE laws (tenant_id text, code text, text jsonb);
CREATE FUNCTION refdata_replace_country_snapshot(tenant text, entries jsonb) RETURNS void LANGUAGE sql AS $$
    DELETE FROM mdm_country WHERE tenant_id = tenant;
    INSERT INTO mdm_country
    SELECT tenant, e ->> 'key', e -> 'payload' ->> 'name', 0, false FROM jsonb_array_elements(entries) AS e;
$$;
"""
SECOND = """
CREATE SCHEMA mdm;
CREATE TABLE mdm.mdm_currency (
    tenant_id varchar(40), ccy char(3), name text, digits integer, version bigint, deleted boolean,
    PRIMARY KEY (tenant_id, ccy)
);
"""


@dataclass
class Platform:
    """One platform, and what its databases say."""

    first: str
    second: str
    environ: dict[str, str]
    config: Path
    services: Services

    @property
    def applier(self) -> Applier:
        """What applies commands here."""
        return Applier(lambda: self.services.config, self.services.databases)

    def apply(self, *ones: Command) -> list[Ended]:
        """What became of the commands, delivered in this order."""
        return self.applier.apply([(one, None) for one in ones])

    def statuses(self, *ones: Command) -> list[tuple[str, int | None, str | None]]:
        """Status, version and code of each."""
        return [(one.status, one.version, one.error_code) for one in self.apply(*ones)]

    def sql(self, statement: str, *, second: bool = False) -> list[tuple[Any, ...]]:
        """What a database says."""
        return [tuple(row) for row in run_statement(self.second if second else self.first, statement)]

    def countries(self, tenant: str = TENANT) -> dict[str, str]:
        """The names of the countries that are there."""
        rows = self.sql(
            f"SELECT code, name FROM mdm_country WHERE tenant_id = '{tenant}' AND NOT deleted ORDER BY code"
        )
        return dict(rows)

    def currencies(self, tenant: str = TENANT) -> dict[str, tuple[str, int]]:
        """The currencies that are there."""
        rows = self.sql(
            f"SELECT ccy, name, digits FROM mdm.mdm_currency WHERE tenant_id = '{tenant}' AND NOT deleted",
            second=True,
        )
        return {ccy: (name, digits) for ccy, name, digits in rows}

    def notes(self, tenant: str = TENANT) -> dict[str, Any]:
        """The entries of the dictionary that has no tables of its own."""
        rows = self.sql(
            "SELECT item_key, payload FROM refdata.dictionary_item"
            f" WHERE tenant_id = '{tenant}' AND NOT deleted ORDER BY item_key"
        )
        return dict(rows)

    def announcements(self, *, second: bool = False) -> list[dict[str, Any]]:
        """What is in the outbox, the oldest first."""
        return [
            row[0] for row in self.sql("SELECT payload FROM refdata.outbox_event ORDER BY id", second=second)
        ]


def body(code: str, items: Sequence[Any] | dict[str, Any], **members: Any) -> dict[str, Any]:
    """A command as it is sent: items as key → payload (None: it is to be gone), or as they are."""
    entries = [
        {"key": key, "op": "DELETE"} if payload is None else {"key": key, "op": "UPSERT", "payload": payload}
        for key, payload in items.items()
    ] if isinstance(items, dict) else list(items)  # fmt: skip
    return {
        "eventId": str(uuid.uuid4()), "tenantId": TENANT, "source": "REST", "dictCode": code,
        "eventType": "DELTA", "items": entries,
    } | members  # fmt: skip


def command(code: str, items: Sequence[Any] | dict[str, Any], **members: Any) -> Command:
    """The command that says so."""
    return commands.decode(json.dumps(body(code, items, **members)).encode(), now=datetime.now(UTC))


def chunk(
    code: str, snapshot_id: str, index: int, total: int, items: dict[str, Any], **members: Any
) -> Command:
    """One chunk of a snapshot."""
    places = {"snapshotId": snapshot_id, "chunkIndex": index, "chunksTotal": total}
    return command(code, items, eventType="SNAPSHOT", **places, **members)


def open_platform(
    servers: Servers, config: Path, environ: dict[str, str], clock: Clock | None = None
) -> Services:
    """The platform's parts, as a process would have them."""
    settings = Settings(database_url="", broker_url="", data_dir=config.parent, refdata_config=str(config))
    found = services.connect(settings, name="tests", environ=environ)
    if clock is not None:
        found.clock = clock
    return found
