"""Singer: a small tap of our own piped into Meltano's target-postgres, which upserts by the key properties.

python singer_target.py FILE DSN

Of the taps for CSV none is on PyPI in a state that installs. This one does the least a tap has to do.
"""

import contextlib
import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import IO

import ads
import psycopg

STREAM = "ads"
STATE_EVERY = 10_000  # rows
TYPES = {
    "date": {"type": "string", "format": "date"}, "text": {"type": ["string", "null"]},
    "bigint": {"type": ["integer", "null"], "minimum": -(2**63), "maximum": 2**63 - 1},
    "numeric": {"type": ["number", "null"]},
}  # fmt: skip
PARSE = {"date": str, "text": str, "bigint": int, "numeric": float}


def main(file: str, dsn: str) -> None:
    """The table has the file's rows."""
    with psycopg.connect(dsn) as connection:
        connection.execute(ads.EMPTY_SCHEMA)
    config = Path("target.json")
    config.write_text(json.dumps({
        "sqlalchemy_url": ads.sqlalchemy_url(dsn, "psycopg"),
        "default_target_schema": ads.SCHEMA, "use_copy": True, "validate_records": False,
        "add_record_metadata": False, "activate_version": False,
    }))  # fmt: skip
    target = Path(sys.executable).with_name("target-postgres")
    process = subprocess.Popen([target, "--config", config], stdin=subprocess.PIPE, text=True)
    # A target that has failed reads no more; what it said of it is in its own words.
    with contextlib.suppress(BrokenPipeError), process.stdin:
        tap(file, process.stdin)
    sys.exit(process.wait())


def tap(file: str, out: IO[str]) -> None:
    """The messages of the file are in `out`."""

    def say(**message: object) -> None:
        out.write(json.dumps(message) + "\n")

    properties = {name: TYPES[kind] for _, name, kind in ads.COLUMNS}
    say(type="SCHEMA", stream=STREAM, schema={"properties": properties}, key_properties=ads.KEY)
    cells = [(name, PARSE[kind]) for _, name, kind in ads.COLUMNS]
    with Path(file).open(newline="", encoding="utf-8") as lines:
        rows = csv.reader(lines)
        next(rows)
        for number, row in enumerate(rows, start=1):
            record = {
                name: parse(text) if text else None for (name, parse), text in zip(cells, row, strict=True)
            }
            say(type="RECORD", stream=STREAM, record=record)
            if number % STATE_EVERY == 0:
                say(type="STATE", value={"row": number})
    say(type="STATE", value={"row": number})


if __name__ == "__main__":
    main(*sys.argv[1:])
