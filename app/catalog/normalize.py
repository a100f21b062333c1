"""One spelling for what the API says: equal things become equal trees, equal trees one hash (seed §4.2)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit, urlunsplit

from app.catalog.entities import META, OF_AFFILIATES, RULES, Rules
from app.catalog.failures import TargetFailure

IN_ORDER = "in_order"
"""The key of a raw object under which lists stand as they were given; it is no part of the hash."""

FIELD_HASH_BYTES = 5
"""Enough to tell a field from what it was; what the whole content is, says the long hash."""

MOST_REDIRECTIONS = 3
"""So often may an address of the affiliates lead to another one of theirs."""

T = TypeVar("T")

_WHOLE = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_AFFILIATES_HOST = "hb.afl.rakuten.co.jp"
_TRACKING = frozenset(("rafcid", "scid"))


def normalize(entity: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The record in its one spelling, with the lists whose order is lost in it beside it under `in_order`.

    Texts are trimmed (U+3000 too) and otherwise untouched, an empty one is no value, and no value is no
    member: a field that is missing and one without a value are the same. TargetFailure `unstorable` or
    `contract` where a value cannot be taken.
    """
    try:
        return _normalized(entity, raw)
    except RecursionError:
        raise TargetFailure("contract", excerpt="it is nested too deeply") from None


def _normalized(entity: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    rules = RULES[entity]
    raw = {name: value for name, value in raw.items() if name != IN_ORDER}
    found = _mapping(raw, rules)
    _require(found, *rules.required)
    if entity == "ranking":
        for item in found["Items"]:
            _require(item, "itemCode", "rank")
        found["Items"].sort(key=itemgetter("rank", "itemCode"))
    if entity == "genre":
        for genre in (found["current"], *found.get("parents", ())):
            _require(genre, "genreId")
        for key in ("children", "brothers"):
            if key in found:
                found[key] = sorted(found[key], key=lambda one: one.get("genreId", 0))
    kept = {
        name: _scalars(raw[name], name, rules)
        for name in sorted(rules.kept_in_order & rules.sorted_lists) if raw.get(name)
    }  # fmt: skip
    return {**found, IN_ORDER: kept} if kept else found


def _require(found: Any, *names: str) -> None:
    for name in names:
        if not isinstance(found, Mapping) or name not in found:
            raise TargetFailure("contract", excerpt=f"the record has no {name}")


def compute_content_hash(normalized: Mapping[str, Any]) -> str:
    """SHA-256 of the normalised record as JSON with sorted keys; what stands `in_order` does not count."""
    counted = {key: value for key, value in normalized.items() if key != IN_ORDER}
    return hashlib.sha256(stable_json(counted)).hexdigest()


def compute_field_hashes(normalized: Mapping[str, Any]) -> dict[str, str]:
    """A short hash of each field that counts: two records differ in the fields whose hashes do."""
    return {
        key: hashlib.blake2s(stable_json(value), digest_size=FIELD_HASH_BYTES).hexdigest()
        for key, value in normalized.items() if key != IN_ORDER
    }  # fmt: skip


def stable_json(value: Any) -> bytes:
    """The one spelling of a JSON value; TargetFailure for half a character in it, or nesting without end."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    except UnicodeEncodeError:
        raise TargetFailure("unstorable", excerpt="a text with half a character in it") from None
    except RecursionError:
        raise TargetFailure("contract", excerpt="it is nested too deeply") from None


def _mapping(raw: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    found = {}
    for key, value in raw.items():
        if key not in META and key not in OF_AFFILIATES:
            plain = _value(value, _without_nul(key), rules)
            if plain is not None:
                found[key] = plain
    return found


def _value(value: Any, key: str, rules: Rules) -> Any:
    """The value of a member, by the name of the member; one that nobody knows may be anything."""
    if _is_nothing(value):
        return None
    if key in rules.lists:
        plain = _scalars(value, key, rules)
        return sorted(set(plain)) if key in rules.sorted_lists else plain
    if key in rules.records:
        return [_mapping(_of(dict, one, key), rules) for one in _of(list, value, key)]
    if isinstance(value, Mapping) and not _is_scalar(key, rules):
        return _mapping(value, rules)
    if isinstance(value, list) and not _is_scalar(key, rules):
        plain = [_value(one, key, rules) for one in value]
        return [one for one in plain if one is not None]
    return _scalar(value, key, rules)


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not _text(value))


def _is_scalar(key: str, rules: Rules) -> bool:
    return any(key in names for names in (rules.integers, rules.decimals, rules.urls, rules.texts))


def _scalars(values: Any, key: str, rules: Rules) -> list[Any]:
    return [_scalar(one, key, rules) for one in _of(list, values, key) if not _is_nothing(one)]


def _scalar(value: Any, key: str, rules: Rules) -> Any:
    if isinstance(value, str):
        value = _text(value)
    if key in rules.integers:
        return _integer(value, key)
    if key in rules.decimals:
        return _decimal(value, key)
    if key in rules.urls:
        return _url(_of(str, value, key))
    if key in rules.texts:
        return _of(str, value, key)
    if isinstance(value, float | Decimal):
        text = _decimal(value, key)
        return text if "." in text else int(text)
    return value


def _of(kind: type[T], value: Any, key: str) -> T:
    if not isinstance(value, kind):
        raise TargetFailure("contract", excerpt=f"{key} is of another kind: {str(value)[:100]}")
    return value


def _text(value: str) -> str:
    return _without_nul(value).strip()


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise TargetFailure("unstorable", excerpt="a text with NUL in it")
    return text


def _integer(value: Any, key: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise TargetFailure("contract", excerpt=f"{key} is no whole number: {str(value)[:100]}")


def _decimal(value: Any, key: str) -> str:
    """A number by its digits, however the API spelled it: 5, 5.0 and "5.00" are one."""
    try:
        found = Decimal(value if isinstance(value, int | str) and not isinstance(value, bool) else str(value))
    except (InvalidOperation, ValueError):
        found = Decimal("NaN")
    if not found.is_finite() or abs(found.adjusted()) > 30:
        raise TargetFailure("contract", excerpt=f"{key} is no number: {str(value)[:100]}")
    return format(found.normalize() + 0, "f")


def _url(value: str) -> str:
    """The address without what tells who fetched it, over https."""
    for _ in range(MOST_REDIRECTIONS):
        try:
            parts = urlsplit(value)
        except ValueError:
            raise TargetFailure("contract", excerpt=f"no address: {value[:100]}") from None
        if parts.hostname != _AFFILIATES_HOST:
            # The rest of the query stays letter by letter: spelled anew it would be another address.
            query = "&".join(
                part for part in parts.query.split("&") if part.partition("=")[0] not in _TRACKING
            )
            scheme = "https" if parts.scheme == "http" else parts.scheme
            return urlunsplit((scheme, parts.netloc, parts.path, query, parts.fragment))
        target = parse_qs(parts.query).get("pc")
        if not target:
            return f"https://{_AFFILIATES_HOST}/"
        value = target[0]
    raise TargetFailure("contract", excerpt="an address that leads from one affiliate to the next")
