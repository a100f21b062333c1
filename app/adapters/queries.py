"""The SQL of `sql/queries`, one attribute for each named block (aiosql)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache, wraps
from importlib import resources
from typing import Any

import aiosql
from aiosql.adapters.pyformat import PyFormatAdapter

from app.adapters import tracing


def _as_span(ask: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(ask)
    def asked(adapter: Any, conn: Any, query_name: str, *args: Any, **named: Any) -> Any:
        with tracing.query(query_name):
            return ask(adapter, conn, query_name, *args, **named)

    return asked


class _Adapter(PyFormatAdapter):
    """aiosql's own for psycopg2, and each query is a span with its name in the trace in which it is asked."""

    select_one = _as_span(PyFormatAdapter.select_one)
    select_value = _as_span(PyFormatAdapter.select_value)
    insert_update_delete = _as_span(PyFormatAdapter.insert_update_delete)
    insert_update_delete_many = _as_span(PyFormatAdapter.insert_update_delete_many)

    def select(
        self, conn: Any, query_name: str, sql: str, parameters: Any, record_class: Any = None
    ) -> Generator[Any, None, None]:
        rows = super().select(conn, query_name, sql, parameters, record_class)
        if tracing.is_recording():
            with tracing.query(query_name):
                # All of them: a span still open between two rows would be the parent of what comes there.
                rows = iter(list(rows))
        yield from rows


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
    return aiosql.from_str(text, _Adapter, mandatory_parameters=False)
