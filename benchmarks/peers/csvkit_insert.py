"""csvkit: csvsql --insert without inference, and an upsert by hand that csvsql runs after it.

python csvkit_insert.py FILE DSN
"""

import os
import sys
from pathlib import Path

import ads


def main(file: str, dsn: str) -> None:
    """This process is csvsql."""
    csvsql = str(Path(sys.executable).with_name("csvsql"))
    os.execv(csvsql, [
        csvsql, "--db", ads.sqlalchemy_url(dsn), "--db-schema", ads.SCHEMA, "--tables", "raw",
        "--insert", "--no-create", "--no-inference", "--snifflimit", "0", "--chunk-size", "10000",
        "--before-insert", ads.TABLES.strip().removesuffix(";"),
        "--after-insert", ads.UPSERT.strip().removesuffix(";"), file,
    ])  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
