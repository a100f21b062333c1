"""The reading process: one list in, its files and counts out. It is run as a program, by its parent alone."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import json
import os
import pickle
import re
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.kernel import errors
from app.suppliers import durable
from app.suppliers.extracted import Extracted
from app.suppliers.failures import SupplierFailure
from app.suppliers.reading import emit, formats, source
from app.suppliers.reading.limits import Limits

if TYPE_CHECKING:
    from app.suppliers.config import Config

PR_SET_PDEATHSIG = 1
MOST_WRITTEN_BYTES = 8 << 30
LOOKED_AT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be read, and where to."""

    source: Path
    into: Path
    config: Config
    run_id: str
    previous: Path | None
    limits: Limits
    room: Path  # for what an archive holds; whoever asks clears it up
    asked_by: int  # the process that waits for the answer


def main() -> None:
    """The answer stands on the standard output, which nothing else may write to."""
    answer_to = os.dup(1)
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody would read the answer
    job: Job = pickle.load(sys.stdin.buffer)
    if os.getppid() != job.asked_by:
        return  # it died before its death could be heard of
    _confine(job.limits)
    gc.disable()  # cells by the million, and no circles among them
    try:
        found: dict[str, Any] = read(job).as_json()
    except SupplierFailure as failure:
        found = {"failure": failure.code, "detail": failure.detail}
    except OSError as error:
        if not errors.is_disk_full(error):
            raise
        found = {"disk_full": True}
    os.write(answer_to, json.dumps(found).encode())


def _confine(limits: Limits) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    seconds = int(limits.seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN_BYTES, MOST_WRITTEN_BYTES))


def read(job: Job) -> Extracted:
    """The list is read: its files stand in the folder."""
    content = formats.content(job.source, job.config.input, limits=job.limits, room=job.room)
    with contextlib.closing(source.opened(content, job.config, limits=job.limits)) as opened:
        told = emit.emit(opened, job.config, into=job.into, run_id=job.run_id)
    published = _skus(job.previous) if job.previous else set()
    found = Extracted(
        good_rows=told.tally.good,
        bad_rows=told.tally.bad.total(),
        skipped_rows=told.tally.skipped.total(),
        facts=told.facts,
        skus=len(told.skus),
        content_sha256=told.content_sha256(),
        facts_sha256=_synced(job.into / "facts.ndjson"),
        format=content.format,
        encoding=opened.encoding,
        sheets=tuple(told.sheets),
        price_rounded=told.tally.rounded,
        by_category=dict(told.categories),
        bad_by_reason=dict(+told.tally.bad),
        skipped_by_reason=dict(+told.tally.skipped),
        alerts=tuple(told.alerts),
        previous_skus=len(published),
        lost_skus=len(published - told.skus),
    )
    _synced(job.into / "bad.ndjson")
    durable.write_json(job.into / "stats.json", found.stats())
    return found


_SKU = re.compile(rb'"sku":("(?:[^"\\]|\\.)*")')


def _skus(facts: Path) -> set[bytes]:
    """The codes of the published facts, as they are spelled there; a quote within a text is never bare."""
    found: set[bytes] = set()
    with facts.open("rb") as file:
        while some := b"".join(file.readlines(LOOKED_AT_BYTES)):
            found.update(_SKU.findall(some))
    return found


def _synced(path: Path) -> str:
    durable.sync_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    # Under the name by which the parent knows it, so that what it has packed can be unpacked.
    from app.suppliers.reading import job

    job.main()
