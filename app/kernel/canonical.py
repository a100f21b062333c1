"""One spelling for equal values, so that equal things hash equally."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable
from datetime import date, datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any
from uuid import UUID


def canonical_json(value: Any) -> bytes:
    """The one byte spelling of a JSON value: keys sorted, no blanks, UTF-8, text in NFC.

    Decimals, dates and ids become text, decimals without trailing zeros (a JSON number would lose
    their digits in most readers). ValueError for what has no one spelling: NaN and infinities, half a
    character, two keys of an object that are one in NFC, nesting without end.
    """
    try:
        return _ENCODER.encode(_plain(value)).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(value: Any) -> str:
    """SHA-256 of the canonical JSON, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def natural_key_hash(parts: Iterable[str | None]) -> str:
    """SHA-256 of a natural key, as 64 hex digits; None and "" differ (D6.6 §3.4)."""
    return content_hash(list(parts))


def name_key(name: str) -> str:
    """The form under which two names are the same name: NFC, trimmed, inner blanks kept, case kept."""
    return unicodedata.normalize("NFC", name).strip()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, dict):
        found = {_plain(str(key)): _plain(item) for key, item in value.items()}
        if len(found) < len(value):
            raise ValueError("two keys of an object are one")
        return found
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return plain_decimal(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    return value


MOST_ZEROS = 400
"""Of a decimal in plain digits: more than any double has. Ten characters can ask for a thousand million."""

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def plain_decimal(value: Decimal) -> str:
    """Every digit of a value and no zero too many, in plain digits unless it is vast or tiny.

    ValueError for what is no number.
    """
    if not value.is_finite():
        raise ValueError(f"{value} has no JSON spelling")
    if not value:
        return "0"
    plain = value.normalize(_EXACT)
    return format(plain, "f" if abs(plain.adjusted()) <= MOST_ZEROS else "E")
