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
from typing import Any, Protocol

COLUMNS = (
    "upload_id, workspace_id, row_index, entity_type, natural_key_hash, raw_data, validation_status,"
    " validation_errors, staged_on"
)
DDL = """
DROP SCHEMA IF EXISTS bare CASCADE;
CREATE SCHEMA bare;
CREATE TABLE bare.staging_rows (LIKE public.{partition} INCLUDING ALL);
"""
PRODUCTION = "CREATE TABLE bare.daily_metrics (LIKE public.daily_metrics INCLUDING ALL)"
ENTITIES = """
CREATE TABLE bare.campaigns (LIKE public.campaigns INCLUDING ALL);
CREATE TABLE bare.ad_sets (LIKE public.ad_sets INCLUDING ALL,
    FOREIGN KEY (campaign_id) REFERENCES bare.campaigns);
CREATE TABLE bare.ads (LIKE public.ads INCLUDING ALL, FOREIGN KEY (campaign_id) REFERENCES bare.campaigns,
    FOREIGN KEY (ad_set_id) REFERENCES bare.ad_sets);
CREATE TABLE bare.known (entity_type text, row_index integer, id bigint,
    PRIMARY KEY (entity_type, row_index));
ALTER TABLE bare.daily_metrics ADD FOREIGN KEY (campaign_id) REFERENCES bare.campaigns,
    ADD FOREIGN KEY (ad_set_id) REFERENCES bare.ad_sets, ADD FOREIGN KEY (ad_id) REFERENCES bare.ads;
"""
CREATE = """
WITH made AS (
    INSERT INTO bare.{table} (workspace_id, client_id, platform, external_id, id_source, name, name_as_of,
                              upload_id, as_of{parents})
    SELECT s.workspace_id, NULL, 'meta', d ->> 'external_id', d ->> 'id_source', d ->> 'name', now(),
           s.upload_id, now(){ids}
    FROM (SELECT DISTINCT ON (natural_key_hash) *, raw_data AS d FROM bare.staging_rows
          WHERE entity_type = '{kind}' ORDER BY natural_key_hash, row_index DESC) s {joins}
    ON CONFLICT (workspace_id, client_id, platform, external_id) DO UPDATE SET name = excluded.name
    RETURNING external_id, id)
INSERT INTO bare.known SELECT '{kind}', s.row_index, m.id
FROM bare.staging_rows s JOIN made m ON m.external_id = s.raw_data ->> 'external_id'
WHERE s.entity_type = '{kind}'
"""
KINDS = {"campaign": "campaigns", "ad_set": "ad_sets", "ad": "ads"}
KEYS = """
ALTER TABLE bare.daily_metrics ADD FOREIGN KEY (campaign_id) REFERENCES campaigns,
    ADD FOREIGN KEY (ad_set_id) REFERENCES ad_sets, ADD FOREIGN KEY (ad_id) REFERENCES ads;
"""
UPSERT = """
INSERT INTO bare.daily_metrics
    (workspace_id, client_id, platform, metric_date, campaign_id, ad_set_id, ad_id, currency, spend,
     impressions, clicks, link_clicks, reach, conversions, conversion_value, upload_id, as_of)
SELECT s.workspace_id, NULL, 'meta', (d ->> 'date')::date, c.{id}, a.{id}, x.{id},
       d ->> 'currency', (d ->> 'spend')::numeric, (d ->> 'impressions')::bigint, (d ->> 'clicks')::bigint,
       (d ->> 'link_clicks')::bigint, (d ->> 'reach')::bigint, (d ->> 'conversions')::numeric,
       (d ->> 'conversion_value')::numeric, s.upload_id, now()
FROM (SELECT DISTINCT ON (natural_key_hash) *, raw_data AS d FROM bare.staging_rows
      WHERE entity_type = 'daily_metric' AND validation_status = 'valid'
      ORDER BY natural_key_hash, row_index) s
LEFT JOIN {known} c ON c.entity_type = 'campaign' AND c.row_index = (d ->> 'campaign')::integer
LEFT JOIN {known} a ON a.entity_type = 'ad_set' AND a.row_index = (d ->> 'ad_set')::integer
LEFT JOIN {known} x ON x.entity_type = 'ad' AND x.row_index = (d ->> 'ad')::integer
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


class Server(Protocol):
    """A PostgreSQL, and room for files beside it."""

    @property
    def dsn(self) -> str: ...
    @property
    def room(self) -> Path: ...
    def sql(self, statement: str) -> list[Any]: ...


def prepare(server: Server, upload_id: str) -> Path:
    """The staging rows of this upload as text, as \\copy reads it."""
    file = server.room / "staged.txt"
    psql(server, f"\\copy (SELECT {COLUMNS} FROM staging_rows WHERE upload_id = '{upload_id}') TO '{file}'")
    return file


def copy(server: Server, file: Path) -> float:
    """The rows of the file are in a table of their own; seconds of that."""
    [day] = server.sql("SELECT min(staged_on) AS staged_on FROM staging_rows")
    server.sql(DDL.format(partition=f"staging_rows_{day.staged_on:%Y%m%d}"))
    server.sql("CHECKPOINT")
    return psql(server, f"\\copy bare.staging_rows ({COLUMNS}) FROM '{file}'")


def measure(server: Server, file: Path, *, foreign_keys: bool = True) -> Limit:
    """The rows of the file are in tables of their own."""
    server.sql("ANALYZE staging_id_resolution")
    copied = copy(server, file)
    server.sql(PRODUCTION)
    if foreign_keys:
        server.sql(KEYS)
    server.sql("ANALYZE bare.staging_rows")
    began = time.monotonic()
    server.sql(UPSERT.format(known="staging_id_resolution", id="resolved_id"))
    limit = Limit(copied, time.monotonic() - began)
    server.sql("DROP SCHEMA bare CASCADE")
    return limit


def measure_whole(server: Server, file: Path) -> Limit:
    """The rows of the file are in tables of their own, with the campaigns, ad sets and ads that they name."""
    copied = copy(server, file)
    server.sql(PRODUCTION)
    server.sql(ENTITIES)
    server.sql("ANALYZE bare.staging_rows")
    began, parents, ids, joins = time.monotonic(), "", "", ""
    for kind, table in KINDS.items():
        server.sql(CREATE.format(kind=kind, table=table, parents=parents, ids=ids, joins=joins))
        server.sql("ANALYZE bare.known")
        parents, ids = f"{parents}, {kind}_id", f"{ids}, {kind}.id"
        joins += (
            f" LEFT JOIN bare.known {kind} ON {kind}.entity_type = '{kind}'"
            f" AND {kind}.row_index = (d ->> '{kind}')::integer"
        )
    server.sql(UPSERT.format(known="bare.known", id="id"))
    limit = Limit(copied, time.monotonic() - began)
    server.sql("DROP SCHEMA bare CASCADE")
    return limit


def psql(server: Server, command: str) -> float:
    """Seconds that psql takes for the command."""
    began = time.monotonic()
    subprocess.run(
        ["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--command", command, server.dsn],
        check=True, env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return time.monotonic() - began
