"""The SQL of `sql/queries`, one attribute for each named block (aiosql)."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import aiosql


@cache
def load(name: str, **words: str) -> Any:
    """The queries of `sql/queries/<name>.sql`: call them with a connection and keyword arguments.

    `words` stand in the text for what they are replaced with, such as parts of column names; they are the
    code's own, never anybody's input.

    A block's suffix says what comes back: none a generator of rows, `^` one row or None, `$` one
    value or None, `!` the number of rows, `*!` nothing (many rows).
    """
    text = resources.files("sql").joinpath("queries", f"{name}.sql").read_text(encoding="utf-8")
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return aiosql.from_str(text, "psycopg2", mandatory_parameters=False)
