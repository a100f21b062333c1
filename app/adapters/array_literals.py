"""Lists as PostgreSQL's array literals: `'{"a",NULL,"b"}'`.

The driver writes `ARRAY['a', NULL, 'b']`, an expression of which the server makes a node for each element:
with some thousand values that costs more than all the rest of the statement.
"""

from __future__ import annotations

from typing import Any

from psycopg2 import extensions

_of_driver: Any = extensions.adapters[list, extensions.ISQLQuote]


def register() -> None:
    """Lists of texts and whole numbers are literals from now on; others are what the driver makes of them."""
    extensions.register_adapter(list, _adapter)


def literal(values: list[Any]) -> str:
    """The array literal of texts, whole numbers, None and lists of them; TypeError for anything else."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return _quoted(value)
    if value is None:
        return "NULL"
    if kind is int:
        return str(value)
    if kind is list:
        return literal(value)
    raise TypeError(f"no array literal of {kind.__name__}")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _adapter(values: list[Any]) -> Any:
    try:
        return extensions.QuotedString(literal(values))
    except TypeError:
        return _of_driver(values)
