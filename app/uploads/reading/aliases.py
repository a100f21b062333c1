"""Column names of the three platforms in all their languages, looked up exactly."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

from app.uploads.reading.cells import CURRENCIES

ENTITY_FIELDS = ("campaign_name", "campaign_id", "ad_set_name", "ad_set_id", "ad_name", "ad_id")
DATE_FIELDS = ("metric_date", "metric_hour", "range_start", "range_end")
NUMBER_TYPES = ("money", "micros", "int", "decimal")

METRICS = (
    "spend",
    "impressions",
    "clicks",
    "link_clicks",
    "reach",
    "conversions",
    "conversion_value",
)
"""What daily_metrics stores, in the order of its columns."""

UNSTORED = ("derived", "ignore", "extra", "period", "budget", "ad_set_budget")
"""Fields that are known and no metric of a day: ratios above all, which are derived and not stored."""

# Fields that are read as a stored metric; of two that are there, the first counts.
METRIC_OF = {**{metric: metric for metric in METRICS}, "spend_micros": "spend"}


@dataclass(frozen=True, slots=True)
class Alias:
    """What one column name means."""

    field: str
    type: str
    locale: str

    @property
    def is_metric(self) -> bool:
        return self.type in (*NUMBER_TYPES, "list") and self.field not in UNSTORED


@dataclass(frozen=True, slots=True)
class Header:
    """One column name: as it stands, normalised, and what its suffixes say."""

    text: str
    key: str
    currency: str | None
    window: str | None


_SPACES = re.compile(r"\s+")
_INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u200e\u200f"))
_QUOTES = str.maketrans("’‘ʼ´`", "'''''")
# Of names in which any white space is one blank.
_PARENTHESES = re.compile(r" ?([()]) ?")
_WINDOW = re.compile(r" ?\[([^\[\]]*)\]$")
_CURRENCY = re.compile(r" ?\(([A-Z]{3})\)$")


LONGEST_NAME = 1000
"""Characters of a column name that are looked at: a longer one is known nowhere, and would fill memory."""


def header(text: str) -> Header:
    """A column name taken apart: `Amount spent (USD)` is `amount spent` in USD."""
    return _header(text[:LONGEST_NAME])


@lru_cache(maxsize=4096)  # reports of one kind have the same columns
def _header(text: str) -> Header:
    value = unicodedata.normalize("NFKC", text.translate(_QUOTES)).translate(_INVISIBLE)
    value = _SPACES.sub(" ", value.translate(_QUOTES)).strip()
    window = currency = None
    if match := _WINDOW.search(value):
        window, value = match[1], value[: match.start()]
    # Only a suffix in capitals is a currency: "(all)" is none, although ALL is a code.
    if (match := _CURRENCY.search(value)) and match[1] in CURRENCIES:
        currency, value = match[1], value[: match.start()]
    return Header(text, _PARENTHESES.sub(r"\1", value).casefold(), currency, window)


@cache
def table() -> dict[str, dict[str, Alias]]:
    """Platform → normalised column name → what it means."""
    found: dict[str, dict[str, Alias]] = {}
    for row in _rows():
        names = found.setdefault(row["platform"], {})
        names.setdefault(header(row["header"]).key, Alias(row["field"], row["type"], row["locale"]))
    return found


@cache
def display(platform: str) -> dict[str, str]:
    """Field → its column name in an English report of the platform, the usual one where there are several."""
    found: dict[str, str] = {}
    for row in _rows():
        if (row["platform"], row["locale"]) == (platform, "en"):
            found.setdefault(row["field"], row["header"])
    return found


def lookup(platform: str, name: Header) -> Alias | None:
    """What the column name means on this platform; None when it is not known there.

    A column of one attribution window beside the default is never the metric itself.
    """
    alias = table()[platform].get(name.key)
    if alias and name.window is not None and alias.is_metric:
        return Alias("extra", alias.type, alias.locale)
    return alias


def _rows() -> Iterator[dict[str, str]]:
    text = resources.files(__package__).joinpath("header_aliases.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())
