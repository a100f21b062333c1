"""pandas: read_csv in chunks, to_sql with the COPY callable of pandas' own guide, then an upsert by hand.

python pandas_copy.py FILE DSN
"""

import csv
import io
import sys
from collections.abc import Iterable

import ads
import pandas as pd
import sqlalchemy
from pandas.io.sql import SQLTable

CHUNK = 50_000


def main(file: str, dsn: str) -> None:
    """The table has the file's rows."""
    engine = sqlalchemy.create_engine(ads.sqlalchemy_url(dsn))
    with engine.begin() as connection:
        connection.exec_driver_sql(ads.TABLES)
        for chunk in pd.read_csv(file, dtype=str, keep_default_na=False, chunksize=CHUNK):
            chunk.to_sql("raw", connection, schema=ads.SCHEMA, if_exists="append", index=False, method=copy)
        connection.exec_driver_sql(ads.UPSERT)


def copy(table: SQLTable, connection: sqlalchemy.Connection, keys: list[str], rows: Iterable[tuple]) -> None:
    """For `to_sql(method=…)`: the rows go in by COPY."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    text.seek(0)
    columns = ", ".join(f'"{key}"' for key in keys)
    with connection.connection.cursor() as cursor:
        cursor.copy_expert(f"COPY {table.schema}.{table.name} ({columns}) FROM STDIN WITH CSV", text)


if __name__ == "__main__":
    main(*sys.argv[1:])
