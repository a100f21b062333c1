"""What large tables cost: production that holds millions of rows, and staging that is thrown away."""

from __future__ import annotations

import statistics
import threading
import time
import uuid

from app.adapters.settings import Settings
from app.uploads import cleanup as cleaning
from app.uploads import services
from benchmarks.uploads import small
from benchmarks.uploads.fleet import Fleet

ADS = 20_000
BEFORE = "2023-01-01"
"""The first of the days that are there already; those of the uploads are later."""

ENTITIES = f"""
INSERT INTO campaigns (workspace_id, platform, external_id, id_source, name, upload_id, as_of)
SELECT w, 'meta', (900000000 + n)::text, 'platform', 'Old campaign ' || n, w, now()
FROM generate_series(1, {ADS // 25}) n;
INSERT INTO ad_sets (workspace_id, platform, external_id, id_source, name, campaign_id, upload_id, as_of)
SELECT w, 'meta', c.external_id || '1', 'platform', c.name, c.id, w, now()
FROM campaigns c WHERE workspace_id = w;
INSERT INTO ads
    (workspace_id, platform, external_id, id_source, name, campaign_id, ad_set_id, upload_id, as_of)
SELECT w, 'meta', s.external_id || n, 'platform', s.name || n, s.campaign_id, s.id, w, now()
FROM ad_sets s, generate_series(1, 25) n WHERE workspace_id = w;
"""
DAYS = f"""
INSERT INTO daily_metrics (workspace_id, platform, metric_date, campaign_id, ad_set_id, ad_id, currency,
                           spend, impressions, clicks, upload_id, as_of)
SELECT w, 'meta', date '{BEFORE}' + d, campaign_id, ad_set_id, id, 'USD', 1.5, 100, 3, w, now()
FROM generate_series(%s, %s) d, ads WHERE workspace_id = w
ORDER BY d, campaign_id, id
"""
STAGED = """
INSERT INTO staging_rows_20260101
    (upload_id, workspace_id, row_index, entity_type, natural_key_hash, raw_data, validation_status,
     staged_on)
SELECT %s, %s, n, 'daily_metric', md5(n::text) || md5(n::text),
       jsonb_build_object('line', n, 'date', '2025-12-31', 'spend', n / 100.0, 'impressions', n, 'clicks', n,
                          'campaign', n / 100, 'currency', 'USD', 'reach', n), 'valid', '2026-01-01'
FROM generate_series(1, %s) n
"""


def fill(fleet: Fleet, rows: int) -> str:
    """A workspace for which production holds so many days, of other ads than those of the uploads."""
    fleet.forget()
    workspace_id = fleet.new_workspace()
    if rows:
        this = f"'{workspace_id}'::uuid"
        # The rows are right by themselves: nothing is looked up for each of them.
        fleet.sql("SET session_replication_role = replica")
        fleet.sql(ENTITIES.replace(" w,", f" {this},").replace("= w", f"= {this}"))
        statement = DAYS.replace(" w,", f" {this},").replace("= w", f"= {this}")
        fleet.sql(statement, 0, rows // ADS - 1)
        fleet.sql("SET session_replication_role = origin")
        fleet.settle()
    return workspace_id


def cleanup(fleet: Fleet, *, rows: int, uploads: int) -> dict[str, float]:
    """How long it takes until so many expired rows are gone, and small uploads meanwhile."""
    fleet.forget()
    upload_id = str(uuid.uuid4())
    fleet.sql("SELECT ensure_staging_day('2026-01-01')")
    fleet.sql("SET session_replication_role = replica")  # as above
    fleet.sql(STAGED, upload_id, upload_id, rows)
    fleet.sql("SET session_replication_role = origin")
    fleet.sql("CHECKPOINT")
    assert fleet.sql("SELECT count(*) AS rows FROM staging_rows_20260101")[0].rows == rows
    of = services.connect(
        Settings(database_url=fleet.dsn, broker_url="redis://127.0.0.1:1", data_dir=fleet.room),
        name="benchmark",
    )
    seconds: list[float] = []

    def clean_up() -> None:
        began = time.monotonic()
        assert cleaning.drop_expired(of) == 1
        seconds.append(round(time.monotonic() - began, 2))

    cleaner = threading.Timer(1.0, clean_up)
    cleaner.start()
    meanwhile = small.one_by_one(fleet, uploads)
    cleaner.join()
    of.db.close()
    return {
        "seconds": seconds[0], "p50_ms": round(statistics.median(meanwhile) * 1000),
        "max_ms": round(max(meanwhile) * 1000),
    }  # fmt: skip
