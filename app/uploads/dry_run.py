"""Dry run: what an upload of this file would say, with nothing stored and nothing promoted."""

from __future__ import annotations

import heapq
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import groupby
from typing import IO, Any, BinaryIO
from uuid import UUID

from app.kernel import errors
from app.uploads import intake, verdict
from app.uploads.reading import duplicates, formats, plan
from app.uploads.reading.duplicates import KeyRow
from app.uploads.reading.entities import Staged
from app.uploads.reading.plan import Declared, Plan
from app.uploads.reading.rows import Rows
from app.uploads.services import Services

AT_ONCE = 2
"""Files that one process checks at a time: each takes a core for as long as it is read."""

FIRST_REJECTS = 100
"""Rejected rows that are shown with their cells."""

HEAPS = 64
HEAP_BYTES = 256 * 1024
"""Rows are sorted into heaps by their key, each in memory up to so much and on disk from there on."""

_turns = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that would be rejected, in the shape of one that was."""

    row_index: int
    validation_errors: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Checked:
    """What an upload would end as, and what it would tell."""

    status: str  # completed or failed
    report: dict[str, Any] = field(default_factory=dict)
    rejected: tuple[RejectedRow, ...] = ()  # the first ones, in file order
    error_code: str | None = None
    error_text: str | None = None
    size_bytes: int = 0  # of the file as it was handed in


@dataclass(slots=True)
class _Reject:
    code: str
    rows: int
    first_row: int
    first_line: int | None


def check(services: Services, request: intake.Request, file: BinaryIO) -> Checked:
    """What would become of this report, judged by the code that judges an upload.

    Bounded in memory; RateLimited when this process checks as many files as it may.
    """
    file.seek(0, 2)
    size = file.tell()
    report: dict[str, Any] = {}
    if not _turns.acquire(blocking=False):
        raise errors.RateLimited("Other files are being checked right now: try again in a few seconds.")
    try:
        intake.check_content(services, file)
        return replace(_read(services, request, file, report), size_bytes=size)
    except errors.FileRefused as error:
        return Checked("failed", report, error_code=error.code, error_text=error.sentence, size_bytes=size)
    finally:
        _turns.release()


def _read(services: Services, request: intake.Request, file: BinaryIO, report: dict[str, Any]) -> Checked:
    limit = min(services.settings.unpacked_bytes, 2 * services.settings.upload_bytes)
    with ExitStack() as stack:
        try:
            content = stack.enter_context(formats.unpacked(file, max_bytes=limit))
        except errors.FileRefused as error:
            if error.code != "file_too_large" or limit == services.settings.unpacked_bytes:
                raise
            raise errors.Refused(
                f"The file has more than {limit / 2**20:.1f} MB when unpacked, too much to be checked"
                " beforehand. Upload it: what cannot be read is refused then, too.",
                code="too_large_to_check",
            ) from None
        declared = Declared(request.currency, request.date_order, request.decimal_mark)
        found = plan.make(content, platform=request.platform, declared=declared)
        report["plan"] = found.as_json()
        return _judge(services, request, found, content)


def _judge(services: Services, request: intake.Request, found: Plan, file: BinaryIO) -> Checked:
    scope = [str(request.workspace_id), _text(request.client_id), request.platform]
    rows = Rows(found, scope=scope, today=services.clock.now().date())
    rejects = _Rejects()
    with _Heaps() as heaps:
        for staged in rows.read(file):
            for row in staged:
                if row.entity_type == "daily_metric":
                    rejects.look_at(row) if row.errors else heaps.add(row)
        outcome = _settle_repeated_keys(heaps, rejects)
    by_code = rejects.by_code()
    counts = verdict.row_counts(rows.tally, outcome, by_code)
    told = verdict.report(found, rows.tally, outcome=outcome, rejects=by_code, rows=counts)
    judged = Checked("completed", {"plan": found.as_json(), **told}, rejects.first(found, file))
    if verdict.passes(counts, force_partial=request.force_partial):
        return judged
    code, sentence = verdict.refusal(found, counts, by_code)
    return replace(judged, status="failed", error_code=code, error_text=sentence)


def _settle_repeated_keys(heaps: _Heaps, rejects: _Rejects) -> verdict.Outcome:
    outcome = verdict.Outcome()
    for key_rows in heaps.repeated_keys():
        settlement = duplicates.settle(key_rows)
        outcome.add(key_rows, settlement)
        lines = {row.row_index: row.line for row in key_rows}
        for row_index, (code, other) in settlement.rejected.items():
            rejects.add(row_index, code, line=lines[row_index], other=other)
    return outcome


def _text(client_id: UUID | None) -> str | None:
    return str(client_id) if client_id else None


class _Rejects:
    """How many rows are rejected for which reason, and the first of them."""

    def __init__(self) -> None:
        self._codes: dict[str, _Reject] = {}
        self._read: list[tuple[int, str]] = []
        self._settled: list[tuple[int, str, int, int]] = []  # a heap: the last of the first ones on top

    def look_at(self, row: Staged) -> None:
        """A row that could not be read; they come in file order."""
        assert row.errors is not None
        why = json.loads(row.errors)
        self._count(row.row_index, why["errors"][0]["code"], why["line"])
        if len(self._read) < FIRST_REJECTS:
            self._read.append((row.row_index, row.errors))

    def add(self, row_index: int, code: str, *, line: int, other: int) -> None:
        """A row that is refused for the sake of another one."""
        self._count(row_index, code, line if line > 0 else None)
        entry = (-row_index, code, other, line)
        if len(self._settled) < FIRST_REJECTS:
            heapq.heappush(self._settled, entry)
        else:
            heapq.heappushpop(self._settled, entry)

    def _count(self, row_index: int, code: str, line: int | None) -> None:
        known = self._codes.setdefault(code, _Reject(code, 0, row_index, line))
        known.rows += 1
        if row_index < known.first_row:
            known.first_row, known.first_line = row_index, line

    def by_code(self) -> list[_Reject]:
        """In the order of the first row of each."""
        return sorted(self._codes.values(), key=lambda reject: reject.first_row)

    def first(self, found: Plan, file: BinaryIO) -> tuple[RejectedRow, ...]:
        """The first ones with their cells, in file order."""
        settled = {-negative: (code, other, line) for negative, code, other, line in self._settled}
        texts = {**dict(self._read), **verdict.explained(settled, found, file)}
        return tuple(
            RejectedRow(row_index, json.loads(texts[row_index]))
            for row_index in sorted(texts)[:FIRST_REJECTS]
        )


class _Heaps:
    """Daily rows by natural key, without all of them in memory at once."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._heaps: list[IO[str]] = []

    def __enter__(self) -> _Heaps:
        for _ in range(HEAPS):
            heap = tempfile.SpooledTemporaryFile(HEAP_BYTES, "w+", encoding="utf-8", errors="surrogatepass")
            self._heaps.append(self._stack.enter_context(heap))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, row: Staged) -> None:
        """The row is on the heap of its key."""
        heap = self._heaps[int(row.key_hash[:8], 16) % HEAPS]
        heap.write(f"{row.key_hash} {row.row_index:09} {row.raw}\n")

    def repeated_keys(self) -> Iterator[list[KeyRow]]:
        """The rows of each key that stands more than once, in file order."""
        for heap in self._heaps:
            heap.seek(0)
            for _, lines in groupby(sorted(heap), key=lambda line: line[:64]):
                if len(same := list(lines)) > 1:
                    yield [_key_row(line) for line in same]


def _key_row(line: str) -> KeyRow:
    _, row_index, raw = line.split(" ", 2)
    return KeyRow(int(row_index), json.loads(raw, parse_float=Decimal))
