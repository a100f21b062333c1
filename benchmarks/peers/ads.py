"""The tables that the peers load: what the file's columns are called and hold in PostgreSQL, and the upsert
by hand for the tools that have none.

It is imported in the peers' own environments, from the folder of the script that runs: standard library only.
"""

SCHEMA = "peer"
TARGET = f"{SCHEMA}.ads"
RAW = f"{SCHEMA}.raw"
KEY = ("day", "ad_id")
COLUMNS = (
    # in the file                   in the table                    type
    ("Day",                         "day",                          "date"),
    ("Campaign name",               "campaign_name",                "text"),
    ("Campaign ID",                 "campaign_id",                  "text"),
    ("Ad set name",                 "ad_set_name",                  "text"),
    ("Ad set ID",                   "ad_set_id",                    "text"),
    ("Ad name",                     "ad_name",                      "text"),
    ("Ad ID",                       "ad_id",                        "text"),
    ("Impressions",                 "impressions",                  "bigint"),
    ("Reach",                       "reach",                        "bigint"),
    ("Clicks (all)",                "clicks_all",                   "bigint"),
    ("Link clicks",                 "link_clicks",                  "bigint"),
    ("Amount spent (USD)",          "amount_spent_usd",             "numeric"),
    ("Purchases",                   "purchases",                    "bigint"),
    ("Purchases conversion value",  "purchases_conversion_value",   "numeric"),
)  # fmt: skip
HEADINGS = tuple(heading for heading, _, _ in COLUMNS)
NAMES = tuple(name for _, name, _ in COLUMNS)

EMPTY_SCHEMA = f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA};"

# `line` is the order in which rows came: of two with one key, the last wins.
TABLES = f"""
{EMPTY_SCHEMA}
CREATE UNLOGGED TABLE {RAW} (
    line bigint GENERATED ALWAYS AS IDENTITY, {", ".join(f'"{heading}" text' for heading in HEADINGS)}
);
CREATE TABLE {TARGET} (
    {", ".join(f"{name} {kind}" for _, name, kind in COLUMNS)}, PRIMARY KEY ({", ".join(KEY)})
);
"""

_SET = ", ".join(f"{name} = excluded.{name}" for name in NAMES if name not in KEY)
ON_CONFLICT = f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {_SET}"
UPSERT = f"""
INSERT INTO {TARGET} ({", ".join(NAMES)})
SELECT DISTINCT ON ("Day", "Ad ID") {", ".join(f'"{heading}"::{kind}' for heading, _, kind in COLUMNS)}
FROM {RAW} ORDER BY "Day", "Ad ID", line DESC
{ON_CONFLICT};
"""


def sqlalchemy_url(dsn: str, driver: str = "psycopg2") -> str:
    """The address with the driver that the peer has installed: SQLAlchemy's own choice changed with 2.1."""
    return dsn.replace("postgresql://", f"postgresql+{driver}://", 1)
