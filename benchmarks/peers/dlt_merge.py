"""dlt: merge of Arrow batches, written as Parquet and loaded by ADBC, which its guide calls the fastest way.

python dlt_merge.py FILE DSN

The strategy is delete-insert: `upsert` leaves two rows in the table for a key that the file holds twice. Of
such rows the one with the higher `line` stays, which is why the table has that column too.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator

import ads
import dlt
import psycopg2
import pyarrow as pa
from pyarrow import csv

READ = {"date": pa.date32(), "text": pa.string(), "bigint": pa.int64(), "numeric": pa.decimal128(18, 2)}


def main(file: str, dsn: str) -> None:
    """The table has the file's rows."""
    with contextlib.closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(ads.EMPTY_SCHEMA)
        cursor.execute(f"DROP SCHEMA IF EXISTS {ads.SCHEMA}_staging CASCADE")
    with tempfile.TemporaryDirectory() as folder:
        postgres = dlt.destinations.postgres(dsn)
        pipeline = dlt.pipeline("peer", destination=postgres, dataset_name=ads.SCHEMA, pipelines_dir=folder)
        pipeline.run(report(file), loader_file_format="parquet").raise_on_failed_jobs()


@dlt.resource(
    name="ads", write_disposition={"disposition": "merge", "strategy": "delete-insert"},
    primary_key=ads.KEY, columns={"line": {"data_type": "bigint", "dedup_sort": "desc"}},
)  # fmt: skip
def report(file: str) -> Iterator[pa.Table]:
    """The rows of the file, some thousands at a time."""
    batches = csv.open_csv(
        file,
        read_options=csv.ReadOptions(column_names=ads.NAMES, skip_rows=1),
        convert_options=csv.ConvertOptions(column_types={name: READ[kind] for _, name, kind in ads.COLUMNS}),
    )
    line = 0
    for batch in batches:
        lines = pa.array(range(line, line + batch.num_rows), pa.int64())
        yield pa.Table.from_batches([batch]).append_column("line", lines)
        line += batch.num_rows


if __name__ == "__main__":
    main(*sys.argv[1:])
