"""What may be asked of the pipeline, and within which bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

import orjson
import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from app.kernel import errors

MOST_BYTES = 64 << 10
MOST_SHARDS = 1024
LARGEST_SHARD = 32_767
LONGEST_LEASE_SECONDS = 86_400
LEASE_SECONDS = 60

T = TypeVar("T")


class BadJson(errors.Refused):
    """The body is no JSON object."""

    code = "invalid_json"


def _whole(value: Any) -> Any:
    """A number without a fraction is an integer, as in JSON Schema; a bool or a text is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("it is no whole number")


def _from_text(value: Any) -> Any:
    """A whole number as it stands in an address."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value, re.ASCII):
        return int(value)
    raise ValueError("it is no whole number")


def _id_from_text(value: Any) -> Any:
    """The id of a row, as it stands in a cursor; fewer digits than the largest that the database can hold."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value, re.ASCII):
        return int(value)
    raise ValueError("it is no place in this list")


def _queue_place(value: Any) -> tuple[datetime, int]:
    """When the task was made, and its id: tasks are handed out in this order."""
    try:
        at, _, row_id = value.partition("~")
        return _moment(at), _id_from_text(row_id)
    except ValueError:
        raise ValueError("it is no place in this queue") from None


def _switch(value: Any) -> Any:
    if value in ("true", "false"):
        return value == "true"
    raise ValueError("it is true or false")


def _moment(value: Any) -> datetime:
    """A time with its zone (RFC 3339)."""
    try:
        found = datetime.fromisoformat(value)
        if found.tzinfo is None:
            raise ValueError
        return found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("it is no time such as 2025-01-01T00:00:00Z") from None


def _printable(value: str) -> str:
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in value):
        raise ValueError("it holds control characters")
    return value


def _storable(value: str) -> str:
    if "\x00" in value:
        raise ValueError("it holds a NUL")
    return value


def _distinct(values: list[int]) -> list[int]:
    return list(dict.fromkeys(values))


_FILENAME = re.compile(r"[0-9A-Za-z._-]{1,255}")
Filename = Annotated[str, Field(strict=True, pattern=rf"^{_FILENAME.pattern}$")]
Shard = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=LARGEST_SHARD)]
Shards = Annotated[list[Shard], Field(min_length=1, max_length=MOST_SHARDS), AfterValidator(_distinct)]
WorkerId = Annotated[str, Field(strict=True, min_length=1, max_length=200), AfterValidator(_printable)]
Token = Annotated[
    str,
    Field(strict=True, pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"),
    AfterValidator(str.lower),
]
Code = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
Message = Annotated[str, Field(strict=True, max_length=4096), AfterValidator(_storable)]
Lease = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=LONGEST_LEASE_SECONDS)]
Many = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=1000)]

AskedShard = Annotated[int, BeforeValidator(_from_text), Field(ge=0, le=LARGEST_SHARD)]
AskedLimit = Annotated[int, BeforeValidator(_from_text), Field(ge=1, le=1000)]
AskedOffset = Annotated[int, BeforeValidator(_from_text), Field(ge=0, le=100_000_000)]
AskedSeconds = Annotated[int, BeforeValidator(_from_text), Field(ge=1, le=100_000_000)]
Place = Annotated[int, BeforeValidator(_id_from_text)]
QueuePlace = Annotated[tuple[datetime, int], BeforeValidator(_queue_place)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
StageName = Literal["event-ingest", "shard-splitter", "shard-worker", "mysql-sender"]
Status = Literal["new", "started", "done", "failed"]

# -- bodies


@dataclass(frozen=True, slots=True)
class Register:
    """Every one of these shards of the file is to have a task."""

    filename: Filename
    shards: Shards


@dataclass(frozen=True, slots=True)
class MoveIngest:
    """The ingest of a file, or of one shard of it, has come to its end, or is to be done again."""

    filename: Filename
    shard: Shard | None = None
    worker_id: WorkerId | None = None
    error_code: Code | None = None
    error_message: Message | None = None


@dataclass(frozen=True, slots=True)
class FinishIngest:
    """The ingest of a file is done."""

    filename: Filename


@dataclass(frozen=True, slots=True)
class Transition:
    """A stage of a task has come to its end, or is to be done again."""

    filename: Filename
    shard: Shard
    worker_id: WorkerId | None = None
    lease_token: Token | None = None
    error_code: Code | None = None
    error_message: Message | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A stage of a task begins."""

    filename: Filename
    shard: Shard
    worker_id: WorkerId | None = None
    lease_token: Token | None = None  # of a start whose answer was lost
    lease_seconds: Lease | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker wants tasks."""

    worker_id: WorkerId
    limit: Many = 1
    lease_seconds: Lease = LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker is still at work."""

    filename: Filename
    shard: Shard
    lease_token: Token
    lease_seconds: Lease = LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class RetryFailed:
    """Failed tasks that match are to be done again."""

    filename: Filename | None = None
    shard: Shard | None = None
    error_code: Code | None = None
    limit: Many = 1000
    dry_run: Annotated[bool, Field(strict=True)] = False


# -- queries


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """A page of a queue."""

    limit: AskedLimit = 100
    offset: AskedOffset = 0
    updated_from: Moment | None = None
    updated_to: Moment | None = None
    cursor: QueuePlace | None = None


@dataclass(frozen=True, slots=True)
class FilesQuery:
    """A page of files."""

    limit: AskedLimit = 100
    status: Status | None = None
    cursor: Filename | None = None


@dataclass(frozen=True, slots=True)
class FileQuery:
    """One file, in short or with everything."""

    details: Annotated[bool, BeforeValidator(_switch)] = False


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A page of what happened to a file."""

    shard: AskedShard | None = None
    limit: AskedLimit = 100
    cursor: Place = 0


@dataclass(frozen=True, slots=True)
class TasksQuery:
    """A page of tasks."""

    stage: StageName | None = None
    status: Status | None = None
    shard: AskedShard | None = None
    filename: Filename | None = None
    error_code: Code | None = None
    updated_from: Moment | None = None
    updated_to: Moment | None = None
    limit: AskedLimit = 100
    cursor: Place = 0


@dataclass(frozen=True, slots=True)
class StuckQuery:
    """Which tasks are at work for too long."""

    stage: StageName | None = None
    older_than_seconds: AskedSeconds | None = None
    limit: AskedLimit = 100


@dataclass(frozen=True, slots=True)
class AskedRetry:
    """Failed tasks that a person wants done again."""

    filename: Filename | None = None
    shard: AskedShard | None = None


@dataclass(frozen=True, slots=True)
class FollowQuery:
    """What is followed."""

    filename: Filename | None = None
    stage: StageName | None = None


_ADAPTERS: dict[type[Any], pydantic.TypeAdapter[Any]] = {
    kind: pydantic.TypeAdapter(kind)
    for kind in (
        Register, MoveIngest, FinishIngest, Transition, Start, Claim, Heartbeat, RetryFailed, QueueQuery,
        FilesQuery, FileQuery, HistoryQuery, TasksQuery, StuckQuery, AskedRetry, FollowQuery,
    )
}  # fmt: skip


def is_filename(text: str) -> bool:
    """Whether a file can be registered under this name."""
    return _FILENAME.fullmatch(text) is not None


def body(kind: type[T], content: bytes) -> T:
    """The request in a body. BadJson, or Refused with what is wrong in it."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise BadJson("The body has to be a JSON object.")
    return _checked(kind, {name: value for name, value in found.items() if value is not None})


def query(kind: type[T], given: dict[str, str]) -> T:
    """The request in an address; a parameter without a value is none. Refused with what is wrong in it."""
    return _checked(kind, {name: value for name, value in given.items() if value != ""})


def _checked(kind: type[T], values: dict[str, Any]) -> T:
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    try:
        found: T = _ADAPTERS[kind].validate_python(
            {name: value for name, value in values.items() if name in known}
        )
        return found
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"] if part != "function-before")
        raise errors.Refused(f"{where}: {first['msg']}.") from None
