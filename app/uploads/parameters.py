"""What a request asks for, checked: fields and query parameters in, values or a refusal out."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.kernel import errors
from app.uploads import intake
from app.uploads.reading import aliases
from app.uploads.states import UPLOAD

FIELDS = (
    "workspace_id", "client_id", "platform", "source", "filename", "created_by", "currency",
    "date_order", "decimal_mark", "force_partial",
)  # fmt: skip
"""What is said about a report that is handed in."""


def upload_request(
    fields: Mapping[str, Any], *, who: str, idempotency_key: str | None = None
) -> intake.Request:
    """The request that these fields make; Refused names the first that cannot be taken."""
    return intake.Request(
        workspace_id=required_uuid(fields, "workspace_id"),
        platform=_text(fields, "platform") or "",
        source=_text(fields, "source") or "manual",
        client_id=uuid(fields, "client_id"),
        filename=_text(fields, "filename"),
        created_by=uuid(fields, "created_by"),
        currency=(_text(fields, "currency") or "").strip().upper() or None,
        date_order=_text(fields, "date_order") or None,
        decimal_mark=_text(fields, "decimal_mark") or None,
        force_partial=flag(fields, "force_partial"),
        idempotency_key=idempotency_key,
        who=who,
    )


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    """The text in this field; a JSON body may hold anything there."""
    found = fields.get(name)
    if found is None or isinstance(found, str):
        return found
    raise errors.Refused(f"`{name}` is no text.", code=f"invalid_{name}")


YES, NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def flag(fields: Mapping[str, Any], name: str) -> bool:
    """Whether the field says yes.

    Refused when it says neither: a misspelt `dry_run` would be an upload.
    """
    found = fields.get(name)
    if isinstance(found, bool):
        return found
    word = (_text(fields, name) or "").strip().lower()
    if word not in (*YES, *NO):
        raise errors.Refused(f"`{name}` is true or false.", code=f"invalid_{name}")
    return word in YES


def uuid(fields: Mapping[str, Any], name: str) -> UUID | None:
    """The id in this field, None when there is none."""
    text = fields.get(name)
    if text is None or text == "":
        return None
    try:
        return UUID(str(text).strip())
    except ValueError:
        raise errors.Refused(f"`{name}` is no UUID.", code=f"invalid_{name}") from None


def required_uuid(fields: Mapping[str, Any], name: str) -> UUID:
    """The id in this field."""
    found = uuid(fields, name)
    if found is None:
        raise errors.Refused(f"The field `{name}` is missing.", code=f"invalid_{name}")
    return found


def platform(query: Mapping[str, Any]) -> str | None:
    """The platform that is asked for."""
    found = query.get("platform") or None
    if found and found not in aliases.table():
        raise errors.Refused(f"The platform is one of {', '.join(aliases.table())}.", code="invalid_platform")
    return str(found) if found else None


def status(query: Mapping[str, Any]) -> str | None:
    """The state that is asked for."""
    found = query.get("status") or None
    if found and found not in UPLOAD.states:
        raise errors.Refused(f"The status is one of {', '.join(UPLOAD.states)}.", code="invalid_status")
    return str(found) if found else None


def time(query: Mapping[str, Any], name: str) -> datetime | None:
    """The date or time in this parameter, in UTC when it says its offset."""
    found = _time_as_given(query, name)
    try:
        return _storable(found) if found else None
    except OverflowError:
        raise errors.Refused(f"`{name}` is no date or time.") from None


def _time_as_given(query: Mapping[str, Any], name: str) -> datetime | None:
    text = query.get(name)
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise errors.Refused(f"`{name}` is no date or time in ISO 8601.") from None


def _storable(found: datetime) -> datetime:
    """The same instant in UTC: PostgreSQL knows offsets below 16 hours only. OverflowError: it has none."""
    return found.astimezone(UTC) if found.tzinfo else found


def instant(query: Mapping[str, Any], name: str) -> datetime | None:
    """The instant in this parameter, of UTC unless it says otherwise."""
    found = time(query, name)
    return found.replace(tzinfo=UTC) if found and found.tzinfo is None else found


def day(query: Mapping[str, Any], name: str, *, days: int = 0) -> datetime | None:
    """The beginning of the day in this parameter, of UTC, or of one some days later."""
    found = _time_as_given(query, name)
    if found is None:
        return None
    try:
        return datetime(found.year, found.month, found.day, tzinfo=UTC) + timedelta(days=days)
    except OverflowError:
        raise errors.Refused(f"`{name}` is no date.") from None


def one_of(query: Mapping[str, Any], name: str, known: Collection[str]) -> str | None:
    """The word in this parameter, None when there is none."""
    word = query.get(name) or None
    if word and word not in known:
        raise errors.Refused(f"`{name}` is one of {', '.join(known)}.", code=f"invalid_{name}")
    return word


def to_cursor(created_at: datetime) -> str:
    """Where the next page of uploads begins."""
    return base64.urlsafe_b64encode(created_at.isoformat().encode()).decode()


def from_cursor(text: str | None) -> datetime | None:
    """The creation time before which the page begins."""
    if not text:
        return None
    try:
        found = _storable(datetime.fromisoformat(base64.urlsafe_b64decode(text.encode()).decode()))
    except (ValueError, OverflowError):
        raise errors.Refused("The cursor is not one of this list.", code="invalid_cursor") from None
    if found.tzinfo is None:
        raise errors.Refused("The cursor is not one of this list.", code="invalid_cursor")
    return found


def from_row_cursor(text: str | None) -> int:
    """The row after which the page begins."""
    if not text:
        return -1
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise errors.Refused("The cursor is not one of this list.", code="invalid_cursor")
    return int(text)


def from_number_cursor(text: str | None) -> int | None:
    """The number before which the page begins."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise errors.Refused("The cursor is not one of this list.", code="invalid_cursor")
    return int(text)


def to_place_cursor(at: datetime, row_id: UUID) -> str:
    """Where the next page of a list in order of time and id begins."""
    return base64.urlsafe_b64encode(f"{at.isoformat()} {row_id}".encode()).decode()


def from_place_cursor(text: str | None) -> tuple[datetime, UUID] | None:
    """The time and id before which the page begins."""
    if not text:
        return None
    try:
        at, _, row_id = base64.urlsafe_b64decode(text.encode()).decode().partition(" ")
        found = _storable(datetime.fromisoformat(at)), UUID(row_id)
    except (ValueError, OverflowError):
        raise errors.Refused("The cursor is not one of this list.", code="invalid_cursor") from None
    if found[0].tzinfo is None:
        raise errors.Refused("The cursor is not one of this list.", code="invalid_cursor")
    return found
