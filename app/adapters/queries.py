"""The SQL of `sql/queries`, one attribute for each named block (aiosql)."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import aiosql


@cache
def load(name: str) -> Any:
    """The queries of `sql/queries/<name>.sql`: call them with a connection and keyword arguments.

    A block's suffix says what comes back: none a generator of rows, `^` one row or None, `$` one
    value or None, `!` the number of rows, `*!` nothing (many rows).
    """
    text = resources.files("sql").joinpath("queries", f"{name}.sql").read_text(encoding="utf-8")
    return aiosql.from_str(text, "psycopg2", mandatory_parameters=False)
