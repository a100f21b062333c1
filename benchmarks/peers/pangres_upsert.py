"""pangres: pandas.read_csv in chunks, each upserted by pangres.

python pangres_upsert.py FILE DSN
"""

import sys

import ads
import pandas as pd
import sqlalchemy
from pangres import upsert
from sqlalchemy import BigInteger, Date, Numeric, Text

CHUNK = 50_000
STATEMENT = 1_000  # rows of one INSERT
TYPES = {"date": Date, "text": Text, "bigint": BigInteger, "numeric": Numeric}
READ = {"bigint": "Int64", "numeric": "float64"}


def main(file: str, dsn: str) -> None:
    """The table has the file's rows."""
    engine = sqlalchemy.create_engine(ads.sqlalchemy_url(dsn))
    with engine.begin() as connection:
        connection.exec_driver_sql(ads.EMPTY_SCHEMA)
        chunks = pd.read_csv(
            file, names=ads.NAMES, header=0, chunksize=CHUNK, parse_dates=["day"],
            dtype={name: READ.get(kind, "str") for _, name, kind in ads.COLUMNS if kind != "date"},
        )  # fmt: skip
        for chunk in chunks:
            # It refuses a frame that holds one key twice.
            upsert(
                connection, chunk.drop_duplicates(list(ads.KEY), keep="last").set_index(list(ads.KEY)),
                "ads", schema=ads.SCHEMA, if_row_exists="update", chunksize=STATEMENT,
                dtype={name: TYPES[kind] for _, name, kind in ads.COLUMNS},
            )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
