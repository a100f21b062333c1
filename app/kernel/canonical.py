"""One spelling for equal values, so that equal things hash equally."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID


def canonical_json(value: Any) -> bytes:
    """The one byte spelling of a JSON value: keys sorted, no blanks, UTF-8, text in NFC.

    Decimals, dates and ids become text, decimals without trailing zeros (a JSON number would lose
    their digits in most readers). NaN and infinities are refused with ValueError.
    """
    return _ENCODER.encode(_plain(value)).encode()


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
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} has no JSON spelling")
        return format(value.normalize() + 0, "f")
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    return value
