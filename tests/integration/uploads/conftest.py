"""Uploads in each state, and what the tables hold."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from app.uploads import batches, intake, parse, promote, store, work
from app.uploads.services import Services
from tests.conftest import work_off

WORKSPACE = UUID("11111111-1111-4111-8111-111111111111")
HEADER = "Day,Campaign name,Campaign ID,Impressions,Clicks (all),Amount spent (USD)"


def report(*rows: str, header: str = HEADER) -> bytes:
    """A Meta report of these rows."""
    return "\n".join([header, *rows, ""]).encode()


GOOD = report(
    "2025-05-01,Spring,101,100,10,1.50",
    "2025-05-02,Spring,101,200,20,2.50",
    "2025-05-02,Summer,102,300,30,3.50",
)


@dataclass
class Uploads:
    """Hands in reports and looks at what became of them."""

    services: Services

    def pending(self, content: bytes = GOOD, *, workspace_id: UUID = WORKSPACE, **fields: Any) -> UUID:
        """An upload that waits to be parsed."""
        request = intake.Request(
            **{"workspace_id": workspace_id, "platform": "meta", "source": "manual", **fields}
        )
        return intake.take_in(self.services, request, io.BytesIO(content)).upload_id

    def parsed(self, content: bytes = GOOD, **fields: Any) -> UUID:
        """An upload that waits for promotion."""
        upload_id = self.pending(content, **fields)
        while work.run_next(self.services, "parse", parse.parse_upload):
            pass
        return upload_id

    def finished(self, content: bytes = GOOD, **fields: Any) -> UUID:
        """An upload that went all the way."""
        upload_id = self.pending(content, **fields)
        work_off(self.services)
        return upload_id

    def show(self, upload_id: UUID, *, workspace_id: UUID = WORKSPACE) -> Any:
        with self.services.db.transaction("read", workspace_id) as conn:
            return store.get_upload(conn, upload_id)

    def history(self, upload_id: UUID, *, workspace_id: UUID = WORKSPACE) -> list[Any]:
        with self.services.db.transaction("read", workspace_id) as conn:
            return store.upload_history(conn, upload_id)


@pytest.fixture
def uploads(services: Services) -> Uploads:
    return Uploads(services)


@pytest.fixture
def days(owner_sql: Callable[[str], list[Any]]) -> Callable[[], list[Any]]:
    """Every row of daily_metrics in a readable order."""
    return lambda: owner_sql(
        "SELECT c.external_id, m.metric_date::text, m.spend::float, m.impressions, m.clicks, m.reach,"
        " m.conversions::float FROM daily_metrics m JOIN campaigns c ON c.id = m.campaign_id"
        " ORDER BY 1, 2, m.ad_set_id NULLS FIRST, m.ad_id NULLS FIRST"
    )


def new_workspace() -> UUID:
    return uuid.uuid4()


@pytest.fixture
def in_parts(services: Services, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Services with which every two rows are staged and promoted in transactions of their own."""
    for module in (batches, promote):
        monkeypatch.setattr(module, "PROMOTION_BATCH_ROWS", 2)
    return replace(services, settings=replace(services.settings, staging_chunk_rows=2))


BAD = 437


@pytest.fixture
def refuse_one(owner_sql: Callable[[str], list[Any]]) -> Iterator[Callable[..., None]]:
    """From now on, and until it is called with False, the database refuses the row with BAD impressions."""

    def set_refusal(on: bool = True) -> None:
        if not on:
            owner_sql("DROP FUNCTION IF EXISTS refuse_one CASCADE")
            return
        owner_sql(
            "CREATE FUNCTION refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF NEW.impressions = {BAD} THEN RAISE check_violation; END IF; RETURN NEW; END $$;"
            " CREATE TRIGGER refuse_one BEFORE INSERT OR UPDATE ON daily_metrics"
            " FOR EACH ROW EXECUTE FUNCTION refuse_one()"
        )

    yield set_refusal
    set_refusal(False)
