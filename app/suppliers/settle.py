"""The end of a run, once its manifest stands; and what a run that died has left.

Every step is done or found done, so that it can be begun anew at any of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.adapters import logs
from app.suppliers import accepted, durable, inbox, manifest
from app.suppliers.journal import Journal
from app.suppliers.layout import Layout
from app.suppliers.manifest import Manifest
from app.suppliers.services import Services

log = logs.get(__name__)

LONGEST_NAME_BYTES = 255


def settle(services: Services, journal: Journal, told: Manifest) -> Path | None:
    """All that follows from the manifest has happened; the place of the input, None if it was gone.

    The run of a PASS is the one behind the current state.
    """
    layout, now = services.layout, services.clock.now()
    if told.passed:
        journal.published(told.run_id, replaced=told.previous_run_id, now=now)
        accepted.accept(layout, told, at=now.isoformat())
    moved = _move_input(layout, told)
    # Last: from here on nobody looks at the run any more.
    journal.ended(
        told.run_id, now=now, outcome=told.status, reason_code=told.reason_code, sha256=told.input_sha256,
        name=told.input_filename, content_sha256=told.content_sha256,
        alerts=tuple(alert["code"] for alert in told.alerts),
    )  # fmt: skip
    return moved


def _move_input(layout: Layout, told: Manifest) -> Path | None:
    found = _input_of(layout, told.run_id)
    if found is None:
        return None
    if told.passed:
        return durable.move(found, layout.archive(told.supplier) / _with_run(told.run_id, found.name))
    if told.fail_stage == "publish":  # the list is not at fault
        return durable.move(found, layout.inbox(told.supplier) / found.name)
    return durable.move(found, layout.broken(told.supplier) / found.name)


def _input_of(layout: Layout, run_id: str) -> Path | None:
    try:
        return next(layout.input(run_id).iterdir(), None)
    except FileNotFoundError:
        return None


def _with_run(run_id: str, name: str) -> str:
    """The name behind the run's, cut in its middle where a file system takes no more."""
    full = f"{run_id}__{name}"
    if len(full.encode(errors="surrogateescape")) <= LONGEST_NAME_BYTES:
        return full
    stem, dot, end = full.rpartition(".")
    end = dot + end if dot and len(end.encode(errors="surrogateescape")) < 20 else ""
    room = LONGEST_NAME_BYTES - len(end.encode(errors="surrogateescape"))
    cut = (stem if end else full).encode(errors="surrogateescape")[:room]
    return cut.decode(errors="ignore") + end


def reconcile(services: Services, supplier: str, journal: Journal) -> None:
    """What runs that died have left is finished: published ones to their end, others undone.

    The input of a run that did not get to publish is in the inbox again.
    """
    current = services.states.current(supplier)
    for run_id in journal.open_runs():
        told = manifest.read(services.layout, run_id)
        if told is not None and (not told.passed or (current and current.run_id == run_id)):
            settle(services, journal, told)
        else:
            _undo(services, supplier, journal, run_id, told)
        log.info("run_reconciled", supplier=supplier, run_id=run_id)


def _undo(services: Services, supplier: str, journal: Journal, run_id: str, told: Manifest | None) -> None:
    layout = services.layout
    services.states.drop(supplier, run_id)
    if told is None:
        found = _input_of(layout, run_id)
        if found is None:  # it died before it had the file
            journal.ended(run_id, now=services.clock.now(), outcome="FAIL", reason_code="RUN_INTERRUPTED")
            return
        told = _of_interrupted(services, supplier, run_id, found)
    undone = replace(
        told, status="FAIL", reason_code="RUN_INTERRUPTED", fail_stage="publish",
        finished_at=services.clock.now().isoformat(),
    )  # fmt: skip
    undone.write(layout)
    settle(services, journal, undone)


def _of_interrupted(services: Services, supplier: str, run_id: str, found: Path) -> Manifest:
    stat = found.stat()
    now = services.clock.now().isoformat()
    return Manifest(
        run_id, supplier, inbox.printable(found.name), durable.sha256_of(found), stat.st_mtime_ns,
        stat.st_size, started_at=now, finished_at=now, status="FAIL", code_commit=services.code_commit,
    )  # fmt: skip
