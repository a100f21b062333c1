"""docs/reference/settings.md: every environment variable, with its default from the code."""

from __future__ import annotations

import dataclasses
from typing import Any

from app.adapters.settings import INSTANCE, Settings
from reference.page import code, page, table
from reference.words_of_settings import BESIDE, GROUPS, Words

HEAD = ("variable", "default", "unit", "meaning", "read by")
ABOUT = """
An instance is configured by its environment. `./scripts/up` sets all that is needed, and `headworks env`
prints it.
A variable that is empty counts as not set. A setting that cannot be used ends its process at the start,
with a
sentence that names it. Switches are `on` or `off`.

*Read by* names processes of the `Procfile`, and the command line. **needed**: they do not start without it.
"""


class Unsaid(LookupError):
    """A setting has no words, or words are about none: reference/words_of_settings.py has to be mended."""


def names() -> set[str]:
    """Every environment variable that means something to an instance."""
    return {*map(variable, fields()), *BESIDE}


def variable(field: str) -> str:
    """The environment variable of a field of the settings."""
    return f"HEADWORKS_{field.upper()}"


def fields() -> dict[str, dataclasses.Field[Any]]:
    """The settings of the code, by their names there."""
    return {field.name: field for field in dataclasses.fields(Settings)}


def settings() -> str:
    """The page. Unsaid when words and code do not name the same settings."""
    known = fields()
    told = [name for group in GROUPS.values() for name in group]
    if sorted(told) != sorted(known):
        raise Unsaid(f"words and settings differ in {sorted(set(told) ^ set(known))}")
    wrong = {name for group in GROUPS.values() for name, words in group.items() if words.needed} ^ set(
        INSTANCE
    )
    if wrong:
        raise Unsaid(f"whether it is needed is wrongly said of {sorted(wrong)}")
    parts = [ABOUT]
    for title, group in GROUPS.items():
        rows = (_row(variable(name), _default(known[name]), words) for name, words in group.items())
        parts += [f"## {title}", table(HEAD, rows)]
    beside = (_row(name, "", words) for name, words in BESIDE.items())
    return page("Settings", *parts, "## Read by others than the settings", table(HEAD, beside))


def _row(name: str, default: str, words: Words) -> tuple[str, ...]:
    return (
        code(name),
        "**needed**" if words.needed else code(default),
        words.unit,
        words.meaning,
        words.readers,
    )


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        return ""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
