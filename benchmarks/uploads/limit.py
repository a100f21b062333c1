"""What PostgreSQL alone needs for the rows of an upload: staging by \\copy, and one upsert of all of them.

The rows are those that an upload staged, and the tables are like the product's: the same columns, keys,
indexes, checks and, unless said otherwise, foreign keys.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.uploads.fleet import Fleet

COLUMNS = (
    "upload_id, workspace_id, row_index, entity_type, natural_key_hash, raw_data, validation_status,"
    " validation_errors, staged_on"
)
DDL = """
DROP SCHEMA IF EXISTS bare CASCADE;
CREATE SCHEMA bare;
CREATE TABLE bare.staging_rows (LIKE public.{partition} INCLUDING ALL);
CREATE TABLE bare.daily_metrics (LIKE public.daily_metrics INCLUDING ALL);
"""
KEYS = """
ALTER TABLE bare.daily_metrics ADD FOREIGN KEY (campaign_id) REFERENCES campaigns,
    ADD FOREIGN KEY (ad_set_id) REFERENCES ad_sets, ADD FOREIGN KEY (ad_id) REFERENCES ads;
"""
UPSERT = """
INSERT INTO bare.daily_metrics
    (workspace_id, client_id, platform, metric_date, campaign_id, ad_set_id, ad_id, currency, spend,
     impressions, clicks, link_clicks, reach, conversions, conversion_value, upload_id, as_of)
SELECT s.workspace_id, NULL, 'meta', (d ->> 'date')::date, c.resolved_id, a.resolved_id, x.resolved_id,
       d ->> 'currency', (d ->> 'spend')::numeric, (d ->> 'impressions')::bigint, (d ->> 'clicks')::bigint,
       (d ->> 'link_clicks')::bigint, (d ->> 'reach')::bigint, (d ->> 'conversions')::numeric,
       (d ->> 'conversion_value')::numeric, s.upload_id, now()
FROM (SELECT DISTINCT ON (natural_key_hash) *, raw_data AS d FROM bare.staging_rows
      WHERE entity_type = 'daily_metric' AND validation_status = 'valid'
      ORDER BY natural_key_hash, row_index) s
LEFT JOIN staging_id_resolution c ON c.upload_id = s.upload_id AND c.entity_type = 'campaign'
    AND c.row_index = (d ->> 'campaign')::integer
LEFT JOIN staging_id_resolution a ON a.upload_id = s.upload_id AND a.entity_type = 'ad_set'
    AND a.row_index = (d ->> 'ad_set')::integer
LEFT JOIN staging_id_resolution x ON x.upload_id = s.upload_id AND x.entity_type = 'ad'
    AND x.row_index = (d ->> 'ad')::integer
ON CONFLICT (workspace_id, campaign_id, metric_date, ad_id, (CASE WHEN ad_id IS NULL THEN ad_set_id END),
             platform, client_id)
DO UPDATE SET spend = excluded.spend, impressions = excluded.impressions, clicks = excluded.clicks,
    link_clicks = excluded.link_clicks, reach = excluded.reach, conversions = excluded.conversions,
    conversion_value = excluded.conversion_value, upload_id = excluded.upload_id, as_of = excluded.as_of
"""


@dataclass(frozen=True)
class Limit:
    """Seconds of the two parts."""

    copy: float
    upsert: float

    @property
    def seconds(self) -> float:
        return self.copy + self.upsert


def prepare(fleet: Fleet, upload_id: str) -> Path:
    """The staging rows of this upload as text, as \\copy reads it."""
    file = fleet.room / "staged.txt"
    psql(fleet, f"\\copy (SELECT {COLUMNS} FROM staging_rows WHERE upload_id = '{upload_id}') TO '{file}'")
    return file


def measure(fleet: Fleet, file: Path, *, foreign_keys: bool = True) -> Limit:
    """The rows of the file are in tables of their own."""
    [day] = fleet.sql("SELECT min(staged_on) AS staged_on FROM staging_rows")
    fleet.sql(DDL.format(partition=f"staging_rows_{day.staged_on:%Y%m%d}"))
    if foreign_keys:
        fleet.sql(KEYS)
    fleet.sql("ANALYZE staging_id_resolution")
    fleet.sql("CHECKPOINT")
    copied = psql(fleet, f"\\copy bare.staging_rows ({COLUMNS}) FROM '{file}'")
    fleet.sql("ANALYZE bare.staging_rows")
    began = time.monotonic()
    fleet.sql(UPSERT)
    limit = Limit(copied, time.monotonic() - began)
    fleet.sql("DROP SCHEMA bare CASCADE")
    return limit


def psql(fleet: Fleet, command: str) -> float:
    """Seconds that psql takes for the command."""
    began = time.monotonic()
    subprocess.run(
        ["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--command", command, fleet.dsn],
        check=True, env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return time.monotonic() - began
