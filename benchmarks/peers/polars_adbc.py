"""polars: read_csv with types, write_database by ADBC into an unlogged table, then an upsert by hand.

python polars_adbc.py FILE DSN
"""

import sys

import ads
import polars as pl
from adbc_driver_postgresql import dbapi

READ = {"date": pl.Date, "text": pl.String, "bigint": pl.Int64, "numeric": pl.Decimal(18, 2)}
STAGED = f"""
{ads.EMPTY_SCHEMA}
CREATE TABLE {ads.TARGET} (
    {", ".join(f"{name} {kind}" for _, name, kind in ads.COLUMNS)}, PRIMARY KEY ({", ".join(ads.KEY)})
);
CREATE UNLOGGED TABLE {ads.RAW} (LIKE {ads.TARGET});
"""
UPSERT = f"INSERT INTO {ads.TARGET} SELECT * FROM {ads.RAW} {ads.ON_CONFLICT};"


def main(file: str, dsn: str) -> None:
    """The table has the file's rows."""
    frame = pl.read_csv(file, schema={heading: READ[kind] for heading, _, kind in ads.COLUMNS})
    frame = frame.rename(dict(zip(ads.HEADINGS, ads.NAMES, strict=True)))
    # `unique` leaves no order, and rows in that of the key are a fifth cheaper to bring into its index.
    frame = frame.unique(ads.KEY, keep="last").sort(ads.KEY)
    with dbapi.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.executescript(STAGED)
        frame.write_database(ads.RAW, connection, engine="adbc", if_table_exists="append")
        cursor.executescript(UPSERT)
        connection.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
