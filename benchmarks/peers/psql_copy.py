"""psql: \\copy of the file's text into an unlogged table, then one upsert by hand. The shortest way there is.

python psql_copy.py FILE DSN
"""

import os
import sys

import ads


def main(file: str, dsn: str) -> None:
    """This process is psql."""
    headings = ", ".join(f'"{heading}"' for heading in ads.HEADINGS)
    quoted = file.replace("'", "''")
    copy = rf"\copy {ads.RAW} ({headings}) FROM '{quoted}' WITH (FORMAT csv, HEADER)"
    commands = [f"--command={command}" for command in (ads.TABLES, copy, ads.UPSERT)]
    os.execvp(
        "psql", ["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={dsn}", *commands]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
