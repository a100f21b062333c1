"""Intake: a report is taken in, recorded and stored, or refused (D6.6 §3.2, IntakeWorker)."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, BinaryIO
from uuid import UUID

from app.adapters import logs, metrics, retries, tracing
from app.kernel import errors
from app.uploads import store
from app.uploads.codes import file_sentence
from app.uploads.reading import aliases, cells, dates, formats, numbers
from app.uploads.services import Services
from app.uploads.work import TASKS

log = logs.get(__name__)

SOURCES = ("manual", "api", "webhook")
MAX_FILENAME = 255


@dataclass(frozen=True, slots=True)
class Request:
    """What a person or a system asks for when handing in a report; checked when it is made."""

    workspace_id: UUID
    platform: str
    source: str
    client_id: UUID | None = None
    filename: str | None = None
    created_by: UUID | None = None
    currency: str | None = None
    date_order: str | None = None
    decimal_mark: str | None = None
    force_partial: bool = False
    idempotency_key: str | None = None
    who: str | None = None  # for the audit trail

    def __post_init__(self) -> None:
        if self.platform not in aliases.table():
            raise errors.Refused(
                f"The platform is {self.platform!r}: give one of {', '.join(aliases.table())}.",
                code="invalid_platform",
            )
        if self.source not in SOURCES:
            raise errors.Refused(
                f"The source is {self.source!r}: give one of {', '.join(SOURCES)}.",
                code="invalid_source",
            )
        if self.currency is not None and self.currency not in cells.CURRENCIES:
            raise errors.Refused(
                f"{self.currency!r} is no currency: give a code such as USD or EUR.",
                code="invalid_currency",
            )
        if self.date_order not in (None, *dates.ORDERS):
            raise errors.Refused(
                "The date order is dmy (31/01/2025) or mdy (01/31/2025).", code="invalid_date_order"
            )
        if self.decimal_mark not in (None, *numbers.MARKS):
            raise errors.Refused("The decimal mark is a point or a comma.", code="invalid_decimal_mark")
        if self.idempotency_key is not None and not 0 < len(self.idempotency_key) <= 200:
            raise errors.Refused("An Idempotency-Key has 1 to 200 characters.")
        for text in (self.filename, self.idempotency_key):
            if text is not None and not cells.storable(text):
                raise errors.Refused("A field holds a character that cannot be stored.")
        # A name is printed in lists, at terminals too, where such a character is a command.
        if any(unicodedata.category(character) == "Cc" for character in self.filename or ""):
            raise errors.Refused("The file's name holds a control character.")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a request: `repeated` when this very request was made before."""

    upload_id: UUID
    status: str
    duplicate_of: UUID | None
    repeated: bool = False


def take_in(services: Services, request: Request, file: BinaryIO) -> Receipt:
    """The upload is pending and its file stored; it will be parsed soon.

    Refused before anything is recorded: an empty file, one that is no CSV or JSON, one that is too
    large. `file` is read to its end, in bounded memory.
    """
    check_content(services, file)
    upload_id, repeated = services.clock.new_id(), False
    if not retries.call(lambda: _record(services, request, upload_id), services.clock):
        earlier = retries.call(lambda: _earlier(services, request), services.clock)
        if earlier.file_url is not None or earlier.status != "pending":
            return Receipt(earlier.id, earlier.status, earlier.duplicate_of, repeated=True)
        upload_id, repeated = earlier.id, True  # it was recorded, and its file is not stored yet
    # The record comes first: a file without one would never be found again.
    duplicate_of = retries.call(lambda: _store(services, request, upload_id, file), services.clock)
    log.info(
        "upload_created", upload_id=str(upload_id), workspace_id=str(request.workspace_id),
        platform=request.platform,
    )  # fmt: skip
    metrics.uploads_created.labels(request.platform, request.source).inc()
    services.dispatch.send(TASKS["parse"])
    return Receipt(upload_id, "pending", duplicate_of, repeated)


def check_content(services: Services, file: BinaryIO) -> None:
    """Returns when the file may be that of a report; else says why not."""
    file.seek(0, 2)
    if file.tell() > services.settings.upload_bytes:
        limit = f"{services.settings.upload_bytes / 2**20:g} MB"
        raise errors.Refused(file_sentence("file_too_large", limit=limit), code="file_too_large")
    formats.check(formats.sample(file))


def _record(services: Services, request: Request, upload_id: UUID) -> bool:
    filename = (request.filename or "")[:MAX_FILENAME] or None
    with services.db.transaction("intake", request.workspace_id) as conn:
        return store.create_upload(
            conn,
            upload_id=upload_id,
            workspace_id=request.workspace_id,
            client_id=request.client_id,
            platform=request.platform,
            source=request.source,
            filename=filename,
            created_by=request.created_by,
            currency=request.currency,
            date_order=request.date_order,
            decimal_mark=request.decimal_mark,
            force_partial=request.force_partial,
            idempotency_key=request.idempotency_key,
            traceparent=tracing.traceparent(),
            who=request.who,
        )


def _store(services: Services, request: Request, upload_id: UUID, file: BinaryIO) -> UUID | None:
    """The file is stored, and the upload waits; returns the earlier upload of the same content."""
    file.seek(0)
    stored = services.blobs.put(f"uploads/{request.workspace_id}/{upload_id}", file)
    with services.db.transaction("intake", request.workspace_id) as conn:
        return store.set_upload_file(
            conn,
            upload_id,
            file_url=stored.url,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
        )


def _earlier(services: Services, request: Request) -> Any:
    assert request.idempotency_key is not None
    with services.db.transaction("intake", request.workspace_id) as conn:
        upload_id = store.upload_of_idempotency_key(
            conn, workspace_id=request.workspace_id, key=request.idempotency_key
        )
        return store.get_upload(conn, upload_id)
